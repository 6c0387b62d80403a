import type { Loc } from '../../../errors.js'
import type { Edit } from './edits.js'

/**
 * For who has the definition as it was given, and not the completed one: the place in it that is nearest to `path`, a place in the
 * completed one. Of a definition that was converted as a whole only names lead to the same, not the numbers of lists.
 */
export function placeInGiven(given: unknown, edits: readonly Edit[], path: Loc): Loc {
  const isConverted = edits.some(each => each.path.length === 0)
  const place = isConverted ? path : withoutRemovals(path, edits)
  let value = given
  for (const [i, key] of place.entries()) {
    if (isConverted && typeof key === 'number') return place.slice(0, i)
    if (typeof value !== 'object' || value === null) return place.slice(0, i)
    // What is missing has its place too.
    if (!Object.hasOwn(value, key)) return i === place.length - 1 ? place : place.slice(0, i)
    value = (value as Record<string | number, unknown>)[key]
  }
  return place
}

/** A place before items were taken out of the lists that it leads through. */
function withoutRemovals(path: Loc, edits: readonly Edit[]): Loc {
  const place = [...path]
  for (const { op, path: removed } of edits.toReversed()) {
    const last = removed.length - 1
    const [taken, key] = [removed[last], place[last]]
    if (op !== 'remove' || typeof taken !== 'number' || typeof key !== 'number' || key < taken) continue
    if (removed.slice(0, last).every((step, i) => step === place[i])) place[last] = key + 1
  }
  return place
}
