import type { Loc } from '../check/findings.js'
import type { Edit } from './edits.js'
import { placeKey } from './pointers.js'

/** For who has the definition as it was given, and not the completed one: the places of what is found in that. */
export class GivenPlaces {
  private readonly isConverted: boolean
  /** The indices of items that were taken out of a list, by its place, the last one first. */
  private readonly removed = new Map<string, number[]>()

  constructor(
    private readonly given: unknown,
    edits: readonly Edit[],
  ) {
    this.isConverted = edits.some(each => each.path.length === 0)
    if (this.isConverted) return
    for (const { op, path } of edits.toReversed()) {
      const index = path.at(-1)
      if (op !== 'remove' || typeof index !== 'number') continue
      const list = placeKey(path.slice(0, -1))
      const known = this.removed.get(list)
      if (known === undefined) this.removed.set(list, [index])
      else known.push(index)
    }
  }

  /**
   * The place in it that is nearest to `path`, a place in the completed one. Of a definition that was converted as a whole only names
   * lead to the same, not the numbers of lists.
   */
  nearestTo(path: Loc): Loc {
    const place = this.isConverted ? path : this.beforeRemovals(path)
    let value = this.given
    for (const [i, key] of place.entries()) {
      if (this.isConverted && typeof key === 'number') return place.slice(0, i)
      if (typeof value !== 'object' || value === null) return place.slice(0, i)
      // What is missing has its place too.
      if (!Object.hasOwn(value, key)) return i === place.length - 1 ? place : place.slice(0, i)
      value = (value as Record<string | number, unknown>)[key]
    }
    return place
  }

  /** A place before items were taken out of the lists that it leads through. No list of which is taken out stands in another. */
  private beforeRemovals(path: Loc): Loc {
    if (this.removed.size === 0) return path
    return path.map((key, i) => {
      if (typeof key !== 'number') return key
      let index = key
      for (const taken of this.removed.get(placeKey(path.slice(0, i))) ?? []) if (index >= taken) index++
      return index
    })
  }
}
