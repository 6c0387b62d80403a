import { LRUCache } from 'lru-cache'
import { anyOf, hexOf, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'
import type { CheckedDefinition } from './rules.js'

/* A cache of definitions by hash (hex). A stored definition never changes, so no entry can become stale. */

const known = new LRUCache<string, CheckedDefinition>({
  maxSize: 4 * 1024 * 1024,
  sizeCalculation: ({ text }) => text.length + 1,
})

export interface Definitions {
  /** Returns a tool's definition as JSON text (`null` if it has none). Throws `Unavailable` if the definition was pruned after the tool was read. */
  of(tool: { definition_hash: string | null }): string
}

export async function definitionsOf(executor: Executor, hashes: readonly (string | null)[]): Promise<Definitions> {
  const found = await storedDefinitions(executor, hashes)
  return { of: ({ definition_hash: hash }) => (hash === null ? 'null' : kept(found.get(hash)).text) }
}

/** Returns the definition. If it is undefined, throws `Unavailable`, because the definition was pruned after its hash was read. */
export function kept(definition: CheckedDefinition | undefined): CheckedDefinition {
  if (definition !== undefined) return definition
  throw new Unavailable('overloaded', `A definition was removed while it was being read. ${TRY_AGAIN}`, 'not_applied')
}

/** Returns stored definitions by hash. Omits definitions that were pruned. Reads all uncached definitions with one statement. */
export async function storedDefinitions(executor: Executor, hashes: readonly (string | null)[]) {
  const asked = [...new Set(hashes)].filter(hash => hash !== null)
  const cached = asked.flatMap(hash => known.get(hash) ?? [])
  const found = new Map(cached.map(each => [each.hash, each]))
  const missing = asked.filter(hash => !found.has(hash)).map(hash => Buffer.from(hash, 'hex'))
  const rows = missing.length === 0 ? [] : await readDefinitions.run(executor, { hashes: missing })
  for (const each of rows) known.set(each.hash, each)
  for (const each of rows) found.set(each.hash, each)
  return found
}

const readDefinitions = statement<{ hashes: Buffer[] }, CheckedDefinition>(
  'tool_definitions',
  { hashes: 'bytea[]' },
  param =>
    queries()
      .selectFrom('tool_definition as d')
      .select(({ cast, ref }) => [hexOf(ref('d.hash')).as('hash'), cast<string>('d.content', 'text').as('text')])
      .select('d.function_names as names')
      .where('d.hash', '=', anyOf(param('hashes'))),
)
