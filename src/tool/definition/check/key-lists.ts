const REMEMBERED_KEYS = 1000

/**
 * The keys of the objects of one document. Listing the keys of a large object cannot be divided and takes as long as a third of
 * parsing it, so that a long list is made once, however many passes need it.
 */
export class KeyLists {
  private readonly long = new Map<object, string[]>()

  of(object: Record<string, unknown>): string[] {
    const known = this.long.size === 0 ? undefined : this.long.get(object)
    if (known !== undefined) return known
    const keys = Object.keys(object)
    if (keys.length >= REMEMBERED_KEYS) this.long.set(object, keys)
    return keys
  }
}
