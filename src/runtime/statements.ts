import { type Expression, type SqlBool, sql } from 'kysely'
import { jsonArrayFrom, jsonObjectFrom } from 'kysely/helpers/postgres'
import { callerStatement, viewerOfCaller } from '../auth/authenticate.js'
import { personaAccess, seesTool } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { anyOf, lit, named, on, queries } from '../db/statements/queries.js'
import type { CallerView } from '../db/tables.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'
import type { PersonaState } from '../persona/state.js'
import { type ToolState, toolStates } from '../tool/snapshot.js'
import type { Actor } from '../updates/resource.js'

/* The data for a runtime. One statement reads it together with the caller, so rights, content and encrypted values are consistent. */

/** An enabled tool with its encrypted headers. `nonce` and `ciphertext` are in hex. */
export interface RuntimeTool extends ToolState {
  sealed: Record<'name' | 'mask' | 'key_id' | 'nonce' | 'ciphertext', string>[]
}

/** The state of an agent without its related records. */
export interface RuntimeState extends Omit<PersonaState, 'related'> {
  secret_bytes: number
  /** Null if `secret_bytes` exceeds `SECRET_BYTES_MAX`. */
  tools: RuntimeTool[] | null
}

/** The maximum size of all encrypted header values in one answer. */
export const SECRET_BYTES_MAX = 8 * 2 ** 20

const { exists, or, ref, selectFrom } = on<{ t: 'tool'; p: 'shown_persona'; caller: CallerView }>()

const SEALED = jsonArrayFrom(
  selectFrom('sealed_header as h').selectAll('h').where('h.tool_id', '=', ref('t.id')).orderBy('h.position'),
)

function runtimeTools(ids: Expression<number[]>) {
  const enabled = toolStates(viewerOfCaller).where('t.id', '=', anyOf(ids)).where('t.enabled', '=', lit(true))
  return enabled.select(SEALED.as('sealed')).orderBy('t.id')
}

/** Reads an agent as a `RuntimeState`. */
export const AGENT_LOOKUP = {
  parameter: 'persona_id',
  statement: callerStatement('caller_and_runtime_agent', id => {
    const ids = ref('p.tool_ids')
    const headers = selectFrom('tool_header as h').where('h.tool_id', '=', anyOf(ids))
    const bytes = headers.select(sql<number>`coalesce(sum(octet_length(h.ciphertext)), 0)`.as('bytes'))
    const tools = sql`case when ${bytes} <= ${lit(SECRET_BYTES_MAX)} then ${jsonArrayFrom(runtimeTools(ids))} end`
    const agents = queries().selectFrom('shown_persona as p').selectAll('p').where('p.id', '=', id)
    const access = named(personaAccess(viewerOfCaller.user), 'access')
    return jsonObjectFrom(agents.select([access, bytes.as('secret_bytes'), tools.as('tools')]))
  }),
}

/** Reads a tool as a `RuntimeTool` if the caller can see an agent with the tool. A bound token must be bound to the tool or to such an agent. */
export const HEADERS_LOOKUP = {
  parameter: 'tool_id',
  statement: callerStatement('caller_and_runtime_tool', id => {
    const agents = sql<{ id: number }>`agents_with_tool(t.id, caller.user_id, ${viewerOfCaller.isAdmin})`
    const isBound = sql<SqlBool>`a.id = any(caller.persona_ids)`
    const allowed = selectFrom(agents.as<'a'>(sql`a(id)`)).where(or([seesTool(viewerOfCaller), isBound]))
    return jsonObjectFrom(runtimeTools(sql`array[${id}]`).where(exists(allowed)))
  }),
}

/** Records that a token read the headers of each tool, at most once an hour. An index prevents duplicates. Throws `Unavailable` for any error. */
export async function recordReads({ db }: Database, actor: Actor, tools: readonly RuntimeTool[]): Promise<void> {
  const { actor_id, token_id, request_id, client_address } = actor
  const ids = tools.filter(({ sealed }) => sealed.length > 0).map(({ id }) => id)
  if (ids.length === 0) return
  const insert = sql`
    insert into access_event (kind, subject, at, action, actor_id, token_id, request_id, client_address, detail)
    select 'headers', tool::text, clock_timestamp(), 'read', ${actor_id}, ${token_id}, ${request_id}, ${client_address}, 'null'
    from unnest(${ids}::integer[]) tool on conflict do nothing`
  await insert.execute(db).catch(cause => {
    const message = `This read of headers cannot be recorded, so it is refused. ${TRY_AGAIN}`
    throw new Unavailable('not_recorded', message, 'not_applied', { cause })
  })
}
