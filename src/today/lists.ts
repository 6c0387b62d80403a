import { type Static, Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { sql, type Transaction } from 'kysely'
import { type Caller, isAdmin } from '../auth/caller.js'
import { personaAccess, seesAgent, seesTool, viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { anyOf } from '../db/statements/queries.js'
import type { Tables } from '../db/tables.js'
import { InvalidRequest } from '../errors.js'
import { addWarnings, JSON_TYPE } from '../http/answer.js'
import type { SchemaTypes } from '../http/validation.js'
import { personaStates, renderPersona } from '../persona/state.js'
import { definitionsOf } from '../tool/definition-cache.js'
import { renderTool, toolStates } from '../tool/snapshot.js'
import { inOneSnapshot } from '../updates/read.js'
import type { OperationOptions } from '../updates/resource.js'
import { readStates } from '../updates/statements.js'
import { queryFlag } from '../validation/parameters.js'
import { newerMembers, withMembers } from './forms.js'

/* Lists of complete records, which clients of the newer API read in one request. */

const RECORDS_MAX = 1_000

type Asked = Partial<Record<'editable' | 'custom', boolean>>

const AdminQuery = Type.Object({ get_editable: queryFlag('true'), include_deleted: queryFlag('ignored') })
const DELETED_LEFT_OUT = 'include_deleted is ignored: to list deleted agents, use GET /persona?deleted=true'

const LISTS = [
  { path: '/persona', resource: 'persona', asked: {} },
  { path: '/tool', resource: 'tool', asked: {} },
  { path: '/tool/openapi', resource: 'tool', asked: { custom: true } },
  { path: '/admin/persona', resource: 'persona', asked: undefined }, // the query determines the filter
] as const

export function registerLists(today: FastifyInstance, options: OperationOptions): void {
  const app = today.withTypeProvider<SchemaTypes>()
  for (const { path, resource, asked } of LISTS) {
    const config = { policy: { permission: 'basic', resource } } as const
    const querystring = asked === undefined ? AdminQuery : Type.Object({})
    const schema = { operationId: `list${path.replaceAll('/', '_')}`, querystring }
    app.get(path, { config, schema }, async ({ caller, query }, reply) => {
      const { get_editable: editable = true, include_deleted: deleted } = query as Static<typeof AdminQuery>
      if (deleted) addWarnings(reply, [DELETED_LEFT_OUT])
      const whole = resource === 'persona' ? wholeAgents : wholeTools
      const records = await inOneSnapshot(options.database, trx =>
        whole(trx, caller, asked ?? { editable }, options.snapshotBytesMax),
      )
      return reply.type(JSON_TYPE).send(`[${records.join()}]`)
    })
  }
  const policy = { permission: 'basic' } as const
  app.get('/persona/labels', { config: { policy }, schema: { operationId: 'list_labels' } }, async (_, reply) => {
    const found = options.database.db.selectFrom('label').select(['id', 'name']).orderBy('id').execute()
    return reply.type(JSON_TYPE).send(JSON.stringify(await found))
  })
}

const TOOL_BYTES = sql<number>`octet_length(to_json(t)::text) + t.definition_bytes`
const AGENT_BYTES = sql<number>`
  octet_length(to_json(p)::text)
  + coalesce((select sum(${TOOL_BYTES}) from persona_tool l join shown_tool t on t.id = l.tool_id where l.persona_id = p.id), 0)::float8`

async function wholeTools(trx: Transaction<Tables>, caller: Caller, { custom }: Asked, bytesMax: number) {
  const viewer = viewerWithValues(viewerParameters(caller))
  const found = trx
    .selectFrom('shown_tool as t')
    .select(['t.id', TOOL_BYTES.as('bytes')])
    .where(seesTool(viewer))
    .$if(custom === true, query => query.where('t.in_code_tool_id', 'is', null).where('t.mcp_server_id', 'is', null))
  const ids = idsOf('tool', await found.limit(RECORDS_MAX + 1).execute(), bytesMax)
  const tools = await readStates(trx, toolStates(viewer).where('t.id', '=', anyOf(ids)).orderBy('t.id'))
  const hashes = tools.map(tool => tool.definition_hash)
  const definitions = await definitionsOf(trx, hashes)
  return tools.map(tool => renderTool(tool, definitions.of(tool)))
}

async function wholeAgents(trx: Transaction<Tables>, caller: Caller, { editable }: Asked, bytesMax: number) {
  const viewer = viewerWithValues(viewerParameters(caller))
  const found = trx
    .selectFrom('persona as p')
    .select(['p.id', AGENT_BYTES.as('bytes')])
    .where(seesAgent(viewer))
    .$if(editable === true && !isAdmin(caller), query =>
      query.where(personaAccess(viewer.user), 'in', ['owner', 'editor']),
    )
  const ids = idsOf('persona', await found.limit(RECORDS_MAX + 1).execute(), bytesMax)
  const agents = await readStates(trx, personaStates(viewer).where('p.id', '=', anyOf(ids)).orderBy('p.id'))
  const hashes = agents.flatMap(({ related }) => related.tool_ids.map(tool => tool.definition_hash))
  const definitions = await definitionsOf(trx, hashes)
  const shown = agents.map(agent => JSON.parse(renderPersona(agent, { of: () => 'null' })))
  const members = await newerMembers(trx, shown)
  return agents.map((agent, index) => withMembers(renderPersona(agent, definitions, true), members[index]))
}

function idsOf(kind: 'persona' | 'tool', found: readonly { id: number; bytes: number }[], bytesMax: number) {
  const bytes = found.reduce((sum, one) => sum + one.bytes, 0)
  const isLong = found.length > RECORDS_MAX
  if (!isLong && bytes <= bytesMax) return sql<number[]>`${found.map(({ id }) => id)}::integer[]`
  const type = isLong ? 'list_too_long' : 'snapshot_too_large'
  const what = isLong ? `has more than ${RECORDS_MAX} records` : `takes ${bytes} bytes, but the limit is ${bytesMax}`
  throw new InvalidRequest([{ loc: ['path'], msg: `The list ${what}: read pages with GET /${kind}?limit=100`, type }])
}
