import { createHash } from 'node:crypto'

/** Texts remembered as seen once. Forgetting them costs nothing but a later naming. */
const SEEN_LIMIT = 1_000

/**
 * Gives SQL texts the names under which they are prepared on each connection. A text gets its name at its second use, so
 * that one-off statements take no place; at most `limit` texts ever get one, as each costs memory on every connection of
 * the server. The name is a hash of the text: the same text has the same name on every connection.
 */
export class PreparedNames {
  readonly #names = new Map<string, string>()
  readonly #seen = new Set<string>()

  constructor(readonly limit: number) {}

  /** The name to prepare this text under, or undefined when it is to be sent unnamed. */
  nameOf(sql: string): string | undefined {
    const name = this.#names.get(sql)
    if (name !== undefined || this.#names.size >= this.limit) return name
    if (this.#seen.delete(sql)) return this.#assign(sql)
    if (this.#seen.size >= SEEN_LIMIT) this.#seen.clear()
    this.#seen.add(sql)
    return undefined
  }

  #assign(sql: string): string {
    const name = `q_${createHash('sha256').update(sql).digest('hex').slice(0, 24)}`
    this.#names.set(sql, name)
    return name
  }
}
