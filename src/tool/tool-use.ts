import type { Kysely } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { seesAgent, viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { named } from '../db/statements/queries.js'
import type { Tables } from '../db/tables.js'
import { Forbidden, Refused, ResourceNotFound } from '../errors.js'
import type { OperationOptions, UpdateRequest } from '../updates/resource.js'
import { definitionsOf } from './definition-cache.js'
import { requireManageable } from './rules.js'
import { TOOL_READS, type ToolState } from './snapshot.js'
import type { StoredText } from './worker/pool.js'
import type { ToolUse } from './worker/tasks.js'

/** The maximum number of agents that are read for one tool. Reading more would delay other requests. */
const AGENTS_MAX = 10_000
const AGENTS_LISTED_MAX = 1_000

/** Reads a tool and the agents that have it. Requires the right to update the tool. Throws `ResourceNotFound`, `Forbidden` and `Refused`. */
export async function readToolUse(
  { database }: OperationOptions,
  request: Pick<UpdateRequest, 'readNow'>,
  id: number | undefined,
) {
  const { caller, prefetched } = await withRetries(() => {
    return request.readNow(database.db, { statement: TOOL_READS.lookup.statement, id })
  })
  // The URL path of a validation has no tool id, so the token's binding to tools is checked here.
  const { bound } = caller.token
  if (bound !== null && (id === undefined || !bound.tool.includes(id)))
    throw new Forbidden('This token is bound to other agents or tools. Use a token with access to this tool.')
  if (prefetched === null) throw new ResourceNotFound('tool')
  const state = prefetched as ToolState // the lookup's statement determines the type
  requireManageable(state)
  return { tool: state, ...(await useOf(database, state, caller)) }
}

/** Returns the stored definition, the header names, and the agents that have the tool. Agents that the caller cannot see are only counted. */
export async function useOf(database: Database, state: ToolState, caller: Caller) {
  const { seen, others } = await readUse(database.db, state.id, caller)
  const use: ToolUse = { ids: seen.map(({ id }) => id), others }
  return { use, stored: storedText(database, state), headerNames: state.headers.map(({ name }) => name) }
}

/** Reads the agents that have the tool: those that the caller can see, and the number of others. Ignores deleted agents. */
async function readUse(db: Kysely<Tables>, id: number, caller: Caller) {
  const agents = await db
    .selectFrom('persona_tool as l')
    .innerJoin('persona as p', 'p.id', 'l.persona_id')
    .select(['p.id', 'p.name', named(seesAgent(viewerWithValues(viewerParameters(caller))), 'is_seen')])
    .where('l.tool_id', '=', id)
    .where('p.deleted', '=', false)
    .orderBy('p.id')
    .limit(AGENTS_MAX)
    .execute()
  const seen = agents.filter(({ is_seen }) => is_seen).slice(0, AGENTS_LISTED_MAX)
  return { seen, others: agents.length - seen.length }
}

const AGENTS_NAMED_MAX = 100

/** Throws `Refused` if an agent has the tool. The error lists the agents that the caller can see. */
export async function requireUnused(db: Kysely<Tables>, id: number, caller: Caller): Promise<void> {
  const { seen, others } = await readUse(db, id, caller)
  if (seen.length + others === 0) return
  const named = seen.slice(0, AGENTS_NAMED_MAX).map(({ id, name }) => ({ id, name }))
  const extra = { agents: named, others: seen.length + others - named.length }
  const users = `${seen.length + others} in total; \`agents\` lists at most ${AGENTS_NAMED_MAX} of those that you can see`
  throw new Refused('TOOL_IN_USE', `Agents use this tool (${users}). Remove it from these agents first.`, { extra })
}

/** Returns a tool's stored definition for a task; undefined if the tool has none. `text` throws `Unavailable` if the definition was pruned. */
export function storedText(
  { db }: Database,
  state: Pick<ToolState, 'definition_hash' | 'definition_bytes'>,
): StoredText | undefined {
  const { definition_hash: hash, definition_bytes: bytes } = state
  if (hash === null) return undefined
  return { bytes, text: () => withRetries(async () => (await definitionsOf(db, [hash])).of(state)) }
}
