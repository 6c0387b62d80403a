import type { Repair } from '../../src/definition/index.js'

type Json = Record<string, unknown>

/** Applies edits one after the other, independently of the repair's own code. */
export function applied(definition: unknown, { edits }: Repair): unknown {
  const copy = structuredClone(definition) as Json
  for (const { op, path, from = path, after } of edits) {
    let holder: Json = copy
    for (const key of path.slice(0, -1)) holder = holder[key] as Json
    const key = path.at(-1) as string
    if (op === 'move') {
      const members = Object.entries(holder)
      for (const [name] of members) delete holder[name]
      for (const [name, each] of members) holder[name === from.at(-1) ? key : name] = each
    } else if (op !== 'remove') holder[key] = structuredClone(after)
    else if (Array.isArray(holder)) holder.splice(Number(key), 1)
    else delete holder[key]
  }
  return copy
}
