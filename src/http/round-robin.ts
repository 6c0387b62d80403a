/** What waits for its turn, in order for each who has something here; these take turns. */
export class RoundRobin<Key, Value> {
  readonly #of = new Map<Key, Value[]>()

  get size(): number {
    return this.#of.size
  }

  add(key: Key, value: Value): void {
    const same = this.#of.get(key)
    if (same === undefined) this.#of.set(key, [value])
    else same.push(value)
  }

  /** Takes the next one out; undefined where nothing waits. */
  next(): Value | undefined {
    const [next] = this.#of
    if (next === undefined) return undefined
    const [key, values] = next
    const value = values.shift()
    this.#of.delete(key)
    if (values.length > 0) this.#of.set(key, values) // behind those of others
    return value
  }
}
