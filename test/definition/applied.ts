import type { Completion } from '../../src/tool/definition/index.js'

type Json = Record<string, unknown>

/** The definition with the edits applied one after the other, by another reading of what an edit is. */
export function applied(definition: unknown, { edits }: Completion): unknown {
  const copy = structuredClone(definition) as Json
  for (const { op, path, value } of edits) {
    let holder: Json = copy
    for (const key of path.slice(0, -1)) holder = holder[key] as Json
    const key = path.at(-1) as string
    if (op !== 'remove') holder[key] = structuredClone(value)
    else if (Array.isArray(holder)) holder.splice(Number(key), 1)
    else delete holder[key]
  }
  return copy
}
