import { sameValue } from '../updates/field-table.js'
import type { Past } from '../updates/past.js'

/** The fields of an update that are left to be made, and those that both sides changed, each to something else. */
export interface Merged<Fields> {
  fields: Fields
  conflicts: string[]
}

/**
 * What of an update is a change of the version that it names. `before` is what the fields that others changed since were
 * then; `wanted` and `stored` are the update and the present state in the same form. What the update leaves as it was, or
 * others made the same, is theirs.
 */
export function mergeFields<Fields extends object>(
  fields: Fields,
  before: Past['values'],
  wanted: Past['values'],
  stored: Past['values'],
): Merged<Fields> {
  const left: [string, unknown][] = []
  const conflicts: string[] = []
  for (const [name, value] of Object.entries(fields)) {
    if (!Object.hasOwn(before, name) || sameValue(stored[name], before[name])) left.push([name, value])
    else if (sameValue(wanted[name], before[name]) || sameValue(wanted[name], stored[name])) continue
    else conflicts.push(name)
  }
  return { fields: Object.fromEntries(left) as Fields, conflicts } // each of them may be absent
}
