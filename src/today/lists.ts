import { type Static, Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { sql, type Transaction } from 'kysely'
import { managesTool, personaAccess } from '../auth/access.js'
import { type Caller, isAdmin, visibleAgents, visibleTools } from '../auth/caller.js'
import { viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { anyOf, arrayOf, lit, named, on } from '../db/statements/queries.js'
import type { Tables } from '../db/tables.js'
import { InvalidRequest } from '../errors.js'
import { answerTagged, JSON_TYPE } from '../http/answer.js'
import { IfNoneMatch } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { addWarnings } from '../http/warnings.js'
import { renderPersona } from '../persona/snapshot.js'
import { personaState } from '../persona/state.js'
import { definitionsOf } from '../tool/definition-cache.js'
import { renderTool, shownTools, snapshotBytes } from '../tool/snapshot.js'
import { inOneSnapshot } from '../updates/read.js'
import type { OperationOptions } from '../updates/resource.js'
import { contentTag } from '../updates/tag.js'
import { queryFlag } from '../validation/parameters.js'
import { newerMembers, readShares } from './records.js'

/* Whole lists of full records, which today's clients read in one piece. */

const RECORDS_MAX = 1_000

/** What a list has: what the caller may edit, custom tools. */
type Asked = Partial<Record<'editable' | 'custom', boolean>>
/** A record, and about how many bytes its texts take. */
type Found = { id: number; bytes: number }

const AdminQuery = Type.Object({ get_editable: queryFlag('true'), include_deleted: queryFlag('ignored') })
const DELETED_LEFT_OUT = 'include_deleted is ignored: deleted agents are in no list'

const LISTS = [
  { path: '/persona', resource: 'persona', asked: {} },
  { path: '/tool', resource: 'tool', asked: {} },
  { path: '/tool/openapi', resource: 'tool', asked: { custom: true } },
  { path: '/admin/persona', resource: 'persona', asked: undefined }, // as its query says
] as const

export function registerLists(today: FastifyInstance, options: OperationOptions): void {
  const app = today.withTypeProvider<SchemaTypes>()
  for (const { path, resource, asked } of LISTS) {
    const config = { policy: { permission: 'basic', resource } } as const
    const querystring = asked === undefined ? AdminQuery : Type.Object({})
    const headers = Type.Object({ 'if-none-match': IfNoneMatch })
    const schema = { operationId: `list${path.replaceAll('/', '_')}`, querystring, headers }
    app.get(path, { exposeHeadRoute: true, config, schema }, async ({ caller, headers, query }, reply) => {
      const { get_editable: editable = true, include_deleted: deleted } = query as Static<typeof AdminQuery>
      if (deleted) addWarnings(reply, [DELETED_LEFT_OUT])
      const read = () => wholeList(resource, caller, asked ?? { editable }, options)
      const text = await options.bounds.expensive(String(caller.token.id), read)
      return answerTagged(reply, contentTag(text), text, headers['if-none-match'])
    })
  }
  const policy = { permission: 'basic' } as const
  const labels = { exposeHeadRoute: true, config: { policy }, schema: { operationId: 'list_labels' } }
  app.get('/persona/labels', labels, async (_, reply) => {
    const found = options.database.db.selectFrom('label').select(['id', 'name']).orderBy('id').execute()
    return reply.type(JSON_TYPE).send(JSON.stringify(await found))
  })
}

/** Reads the agents or tools that the caller sees in one snapshot of the database. Throws `InvalidRequest` for too many. */
async function wholeList(kind: 'persona' | 'tool', caller: Caller, asked: Asked, options: OperationOptions) {
  const viewer = viewerWithValues(viewerParameters(caller))
  return await inOneSnapshot(options.database, async trx => {
    const found = kind === 'persona' ? await foundAgents(trx, caller, asked) : await foundTools(trx, caller, asked)
    requireRoom(kind, found, options.snapshotBytesMax)
    const ids = idsOf(found)
    if (kind === 'tool') {
      const { rows: tools } = await trx.executeQuery(shownTools(ids, viewer).compile())
      const definitions = await definitionsOf(
        trx,
        tools.map(tool => tool.definition_hash),
      )
      return `[${tools.map(tool => renderTool(tool, definitions.of(tool))).join()}]`
    }
    // Which tools the caller manages is found once, and not for each agent again.
    const each = anyOf(ids)
    const attached = selectFrom('persona_tool as l').select('l.tool_id').distinct().where('l.persona_id', '=', each)
    const isManaged = managesTool(viewer, arrayOf(attached))
    const managed = trx.selectFrom('tool as t').select('t.id').where(isManaged).execute()
    const manager = { ...viewer, managesAll: lit(true), tools: idsOf(await managed) }
    const state = personaState(manager).as('state')
    const rows = await trx.selectFrom('persona as p').select(state).where('p.id', '=', each).orderBy('p.id').execute()
    const agents = rows.map(({ state }) => state)
    const definitions = await definitionsOf(
      trx,
      agents.flatMap(({ related }) => related.tool_ids.map(tool => tool.definition_hash)),
    )
    const shown = agents.map(agent => JSON.parse(renderPersona(agent, { of: () => 'null' })))
    const shares = await readShares(trx, shown)
    const records = agents.map((agent, index) => {
      const more = JSON.stringify(newerMembers(shown[index], shares))
      return `${renderPersona(agent, definitions, true).slice(0, -1)},${more.slice(1)}`
    })
    return `[${records.join()}]`
  })
}

const { cast, fn, selectFrom, val } = on<{ p: 'persona' }>()
const idsOf = (rows: readonly { id: number }[]) => cast<number[]>(val(rows.map(({ id }) => id)), sql.raw('integer[]'))
const toolBytes = selectFrom('persona_tool as l')
  .innerJoin('tool as t', 't.id', 'l.tool_id')
  .leftJoin('tool_definition as d', 'd.hash', 't.definition_hash')
  .whereRef('l.persona_id', '=', 'p.id')
  .select(fn.coalesce(fn.sum<number>(snapshotBytes), lit(0)).as('bytes'))

async function foundAgents(trx: Transaction<Tables>, caller: Caller, { editable }: Asked): Promise<Found[]> {
  const ids = visibleAgents(caller.token)
  const access = personaAccess(cast(val(caller.userId), 'uuid'))
  const levels = ['owner', 'editor', ...(editable ? [] : ['viewer' as const])] as const
  return await trx
    .selectFrom('persona as p')
    .select(eb => ['p.id', eb(sql<number>`octet_length(p::text)`, '+', toolBytes).as('bytes')])
    .$if(ids !== null, query => query.where('p.id', 'in', ids ?? []))
    .where(({ not }) => not('p.deleted'))
    .$if(!isAdmin(caller), query => query.where(access, 'in', levels))
    .orderBy('p.id')
    .limit(RECORDS_MAX + 1)
    .execute()
}

async function foundTools(trx: Transaction<Tables>, { token }: Caller, { custom }: Asked): Promise<Found[]> {
  const ids = visibleTools(token)
  return await trx
    .selectFrom('tool as t')
    .leftJoin('tool_definition as d', 'd.hash', 't.definition_hash')
    .select(['t.id', named(snapshotBytes, 'bytes')])
    .$if(ids !== null, query => query.where('t.id', 'in', ids ?? []))
    .$if(custom === true, query => query.where('t.in_code_tool_id', 'is', null).where('t.mcp_server_id', 'is', null))
    .orderBy('t.id')
    .limit(RECORDS_MAX + 1)
    .execute()
}

function requireRoom(kind: 'persona' | 'tool', found: readonly Found[], bytesMax: number): void {
  const bytes = found.reduce((sum, one) => sum + Number(one.bytes), 0)
  const isLong = found.length > RECORDS_MAX
  if (!isLong && bytes <= bytesMax) return
  const type = isLong ? 'list_too_long' : 'snapshot_too_large'
  const what = isLong ? `has more than ${RECORDS_MAX} records` : `takes ${bytes} bytes, more than ${bytesMax}`
  throw new InvalidRequest([{ loc: ['path'], msg: `The list ${what}: read its pages at /${kind}?limit=100`, type }])
}
