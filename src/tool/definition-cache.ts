import { LRUCache } from 'lru-cache'
import { anyOf, hexOf, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'

/* Caches of definition texts and of facts about definitions, by hash in hex. Definitions never change, so no entry can be stale. */

const TEXT_CHARACTERS_MAX = 16 * 1024 * 1024
const texts = new LRUCache<string, string>({
  maxSize: TEXT_CHARACTERS_MAX,
  maxEntrySize: TEXT_CHARACTERS_MAX / 2,
  sizeCalculation: text => text.length + 1,
})

/** The JSON texts of definitions. */
export interface Definitions {
  /** The text of a tool's definition; `null` if it has none. */
  of(tool: { definition_hash: string | null }): string
}

/** Reads the texts of these definitions: those that are not cached, with one statement. Throws `Unavailable` if one was pruned meanwhile. */
export async function definitionsOf(executor: Executor, hashes: readonly (string | null)[]): Promise<Definitions> {
  const found = new Map<string, string>()
  const missing: Buffer[] = []
  for (const hash of new Set(hashes)) {
    if (hash === null) continue
    const text = texts.get(hash)
    if (text === undefined) missing.push(Buffer.from(hash, 'hex'))
    else found.set(hash, text)
  }
  const rows = missing.length === 0 ? [] : await readDefinitions.run(executor, { hashes: missing })
  for (const { hash, text } of rows) {
    texts.set(hash, text)
    found.set(hash, text)
  }
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
  const cached = texts.get(hash)
  if (cached !== undefined) return cached
  const [row] = await readDefinitions.run(executor, { hashes: [Buffer.from(hash, 'hex')] })
  if (row !== undefined) texts.set(hash, row.text)
  return row?.text
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
  /** The names of its functions. */
  names?: readonly string[]
  /** The headers for which the definition passed the check, and the notes. */
  checked?: { headers: string; notes: string[] }
}

const facts = new LRUCache<string, Facts>({ max: 2_000 })
const NOTHING: Facts = {}

/** Returns the known facts of a definition. A tool without a definition has no origins. */
export function factsOf(hash: string | null): Facts {
  return hash === null ? { origins: new Set() } : (facts.get(hash) ?? NOTHING)
}

/** Longer lists of addresses and names are not cached. */
const CHARACTERS_MAX = 4_000

/** Adds facts about a definition. */
export function noteFacts(hash: string, found: Facts): void {
  if ([...(found.origins ?? []), ...(found.names ?? [])].join('').length > CHARACTERS_MAX) return
  facts.set(hash, { ...facts.get(hash), ...found })
}
