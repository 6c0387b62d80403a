import { type RowQuery, rowQuery } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import { PIECE_LENGTH } from '../updates/answer-text.js'
import { type CachedDefinitions, type CachedTexts, cachedTexts, cacheText, leavingOut } from './definition-cache.js'
import { readDefinition } from './statements.js'

/** A definition that an answer shows: its hash in hex, null where there is none, and about its size. */
interface ShownDefinition {
  definition: string | null
  bytes: number
}

/**
 * The query that leaves out the definitions whose texts are cached here, and puts them into its answer. Where it runs by itself,
 * long ones that are not cached are read before it, one by one: in one answer with all of them, the driver would hold up every
 * other request while it makes a text of several MiB.
 */
export function withCached<Row, Shown>(
  definitions: readonly ShownDefinition[],
  query: (parameters: CachedDefinitions) => RowQuery<Row>,
  show: (row: Row, cached: CachedTexts) => Promise<Shown>,
): RowQuery<Shown> {
  const now = () => {
    const cached = cachedTexts(definitions.map(({ definition }) => definition))
    return query(leavingOut(cached)).map(row => show(row, cached))
  }
  return rowQuery(
    async (executor, hooks) => {
      await cacheLong(executor, definitions)
      return await now().single(executor, hooks)
    },
    (database, executor, hooks) => now().batched(database, executor, hooks),
  )
}

async function cacheLong(executor: Executor, definitions: readonly ShownDefinition[]): Promise<void> {
  for (const { definition: hash, bytes } of definitions) {
    if (hash === null || bytes <= PIECE_LENGTH || cachedTexts([hash]).size > 0) continue
    const row = await readDefinition.for({ hash }).single(executor)
    if (row !== undefined) await cacheText(hash, row.definition)
  }
}
