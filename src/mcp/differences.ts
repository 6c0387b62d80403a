import { isDeepStrictEqual } from 'node:util'
import { isJsonObject } from '../validation/vocabulary.js'

/** A change inside a field: of the member at `place`, or of the lines or items from `at` on. What is absent was or is not there. */
interface Change {
  field: string
  place?: (string | number)[]
  at?: number
  from?: unknown
  to?: unknown
}

/** With more changes than this, a field is shown as a whole, before and after. */
const CHANGES_MAX = 200

/** Every change between the fields of two records, without what stays the same in long lists, texts and objects. Nothing is shortened. */
export function differences(before: Record<string, unknown>, after: Record<string, unknown>): Change[] {
  return Object.keys(after).flatMap(field => {
    const [from = null, to = null] = [before[field], after[field]]
    const changes = changesIn(from, to, [], CHANGES_MAX)
    return (changes ?? [{ from, to }]).map(change => ({ field, ...change }))
  })
}

type Place = (string | number)[]

/** The changes of a value; undefined if there are more than `max`. */
function changesIn(from: unknown, to: unknown, place: Place, max: number): Omit<Change, 'field'>[] | undefined {
  if (isDeepStrictEqual(from, to)) return []
  const where = place.length === 0 ? {} : { place }
  if (isJsonObject(from) && isJsonObject(to)) {
    const names = [...new Set([...Object.keys(from), ...Object.keys(to)])]
    return changesOf(names, name => [from[name], to[name]], place, max)
  }
  if (Array.isArray(from) && Array.isArray(to)) {
    const { start, removed, added } = changedPart(from, to)
    if (removed.length !== added.length) return [{ ...where, at: start, from: removed, to: added }]
    const indexes = removed.map((_, index) => start + index)
    return changesOf(indexes, index => [from[index], to[index]], place, max)
  }
  if (typeof from === 'string' && typeof to === 'string' && (from.includes('\n') || to.includes('\n'))) {
    const { start, removed, added } = changedPart(from.split('\n'), to.split('\n'))
    return [{ ...where, at: start, from: removed.join('\n'), to: added.join('\n') }]
  }
  return [{ ...where, ...(from !== undefined && { from }), ...(to !== undefined && { to }) }]
}

function changesOf<Key extends string | number>(
  keys: readonly Key[],
  membersOf: (key: Key) => [unknown, unknown],
  place: Place,
  max: number,
): Omit<Change, 'field'>[] | undefined {
  const found: Omit<Change, 'field'>[] = []
  for (const key of keys) {
    const changes = changesIn(...membersOf(key), [...place, key], max - found.length)
    if (changes === undefined || found.length + changes.length > max) return undefined
    found.push(...changes)
  }
  return found
}

/** What is between the items that two lists have in common at their start and at their end. */
function changedPart<Item>(from: readonly Item[], to: readonly Item[]) {
  let [start, end] = [0, 0]
  const most = Math.min(from.length, to.length)
  while (start < most && isDeepStrictEqual(from[start], to[start])) start++
  while (end < most - start && isDeepStrictEqual(from.at(-1 - end), to.at(-1 - end))) end++
  return { start, removed: from.slice(start, from.length - end), added: to.slice(start, to.length - end) }
}
