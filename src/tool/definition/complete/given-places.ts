import type { Loc } from '../check/findings.js'
import type { Edit } from './edits.js'
import { placeKey } from './pointers.js'

/** Finds the places of a completed definition in the one that was given. */
export class GivenPlaces {
  private readonly isConverted: boolean
  /** The indices of items that were taken out of a list, by its place, the last one first. */
  private readonly removed = new Map<string, number[]>()

  constructor(
    private readonly given: unknown,
    edits: readonly Edit[],
  ) {
    this.isConverted = edits.some(each => each.path.length === 0)
    for (const { op, path } of this.isConverted ? [] : edits.toReversed()) {
      const index = path.at(-1)
      if (op !== 'remove' || typeof index !== 'number') continue
      const list = placeKey(path.slice(0, -1))
      this.removed.set(list, [...(this.removed.get(list) ?? []), index])
    }
  }

  /**
   * The place in it that is nearest to `path`, a place in the completed one. Of a definition that was converted as a whole only names
   * lead to the same, not the numbers of lists.
   */
  nearestTo(path: Loc): Loc {
    // No list of which items are taken out stands in another.
    const place = path.map((key, i) => {
      if (typeof key !== 'number') return key
      const removed = this.removed.get(placeKey(path.slice(0, i))) ?? []
      return removed.reduce((index, taken) => (index >= taken ? index + 1 : index), key)
    })
    let value = this.given
    for (const [i, key] of place.entries()) {
      if (typeof value !== 'object' || value === null || (this.isConverted && typeof key === 'number'))
        return place.slice(0, i)
      // What is missing has its place too.
      if (!Object.hasOwn(value, key)) return i === place.length - 1 ? place : place.slice(0, i)
      value = (value as Record<string | number, unknown>)[key]
    }
    return place
  }
}
