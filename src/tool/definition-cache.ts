import { LRUCache } from 'lru-cache'
import { anyOf, hexOf, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'

/* Caches of definition texts and of facts about definitions, by hash in hex. Definitions never change, so no entry can be stale. */

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

interface Facts {
  origins?: ReadonlySet<string>
  names?: readonly string[]
  /** The headers for which the definition passed the check, and the notes. */
  checked?: { headers: string; notes: string[] }
}

const facts = new LRUCache<string, Facts>({ max: 2_000 })

/** Returns the known facts of a definition. A tool without a definition has no origins. */
export function factsOf(hash: string | null): Facts {
  return hash === null ? { origins: new Set() } : (facts.get(hash) ?? {})
}

/** Adds facts about a definition. Long lists of addresses and names are not cached. */
export function noteFacts(hash: string, found: Facts): void {
  const characters = [...(found.origins ?? []), ...(found.names ?? [])].join('').length
  if (characters <= 4_000) facts.set(hash, { ...facts.get(hash), ...found })
}
