import { LRUCache } from 'lru-cache'
import { anyOf, hexOf, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'

/* A cache of definition texts, by hash in hex. Definitions never change, so no entry can be stale. */

const texts = new LRUCache<string, string>({ maxSize: 16 * 1024 * 1024, sizeCalculation: text => text.length + 1 })

export interface Definitions {
  /** The text of a tool's definition; `null` if it has none. Throws `Unavailable` if it was pruned meanwhile. */
  of(tool: { definition_hash: string | null }): string
}

export async function definitionsOf(executor: Executor, hashes: readonly (string | null)[]): Promise<Definitions> {
  const found = await textsOf(executor, hashes)
  return {
    of({ definition_hash: hash }) {
      const text = hash === null ? 'null' : found.get(hash)
      if (text !== undefined) return text
      throw new Unavailable('overloaded', `A definition was replaced and pruned meanwhile. ${TRY_AGAIN}`, 'not_applied')
    },
  }
}

/** The text of a stored definition; undefined if it was pruned. */
export async function definitionText(executor: Executor, hash: string): Promise<string | undefined> {
  return (await textsOf(executor, [hash])).get(hash)
}

/** The texts of stored definitions by hash. Reads those that are not cached with one statement. */
export async function textsOf(executor: Executor, hashes: readonly (string | null)[]): Promise<Map<string, string>> {
  const asked = [...new Set(hashes)].filter(hash => hash !== null)
  const cached = asked.map(hash => ({ hash, text: texts.get(hash) }))
  const missing = cached.flatMap(({ hash, text }) => (text === undefined ? [Buffer.from(hash, 'hex')] : []))
  const rows = missing.length === 0 ? [] : await readDefinitions.run(executor, { hashes: missing })
  for (const { hash, text } of rows) texts.set(hash, text)
  return new Map([...cached, ...rows].flatMap(({ hash, text }) => (text === undefined ? [] : [[hash, text] as const])))
}

const readDefinitions = statement<{ hashes: Buffer[] }, { hash: string; text: string }>(
  'tool_definitions',
  { hashes: 'bytea[]' },
  param =>
    queries()
      .selectFrom('tool_definition as d')
      .select(({ cast, ref }) => [hexOf(ref('d.hash')).as('hash'), cast<string>('d.content', 'text').as('text')])
      .where('d.hash', '=', anyOf(param('hashes'))),
)
