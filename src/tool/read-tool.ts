import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { sql } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { pageRows } from '../db/statements/page-rows.js'
import { isOnly, statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound } from '../errors.js'
import { answerRead, editLink } from '../http/answer.js'
import { editHeader, errorResponses, readOneHeaders } from '../http/openapi.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow, registerList } from '../http/pages.js'
import { asOf, IfNoneMatch, NO_PRECONDITION, ReadQuery } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { HTTPValidationError } from '../schema/faults.js'
import { pathId } from '../schema/parameters.js'
import { reference } from '../schema/vocabulary.js'
import { readPast, readResource } from '../updates/read.js'
import type { ReadRequest, WorkBounds } from '../updates/resource.js'
import { jsonRow } from '../updates/statements.js'
import { pastUpdateText, toolResource, updateText } from './resource.js'
import { CustomToolUpdate, ToolSnapshot, ToolSummary } from './schema.js'
import { callerAndTool, type ToolState } from './snapshot.js'

/** `GET /tool/{tool_id}`: the tool as an update answers it; masks of its header values for those who may manage it. */
export function registerReadTool(
  app: FastifyInstance,
  database: ServiceDatabase,
  limits: Omit<ReadRequest, 'caller'>,
): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/tool/:tool_id',
    {
      exposeHeadRoute: true,
      config: {
        policy: {
          permission: 'basic',
          resource: 'tool',
          lookup: { parameter: 'tool_id', statement: callerAndTool },
        },
      },
      schema: {
        operationId: 'read_tool',
        summary: 'Read Tool',
        description:
          'Answers a tool. Header values are masks for who may manage it, else `null`. Its `ETag` is what an update ' +
          'takes as `If-Match`. With `version` or `at` the tool as it was. With `view=update` what an update takes, to be ' +
          'sent back with edits to the address that `Link` with `rel="edit"` names.',
        params: Type.Object({ tool_id: pathId() }),
        querystring: Type.Object(ReadQuery),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: {
          200: {
            anyOf: [reference(ToolSnapshot), reference(CustomToolUpdate)],
            description: 'The tool as it is now; with `view=update` the body of an update that changes nothing.',
            headers: { ...readOneHeaders, ...editHeader },
          },
          304: { description: 'The tool is still what the caller has.', type: 'null', headers: readOneHeaders },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
          ...errorResponses(400, 401, 403, 404, 409, 410, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const { tool_id: id } = request.params
      const prefetched = request.prefetched as ToolState | null // this route's lookup reads it
      if (id === undefined || prefetched === null) throw new ResourceNotFound('tool')
      const earlier = asOf(request.query)
      const isUpdateView = request.query.view === 'update'
      const reader = { caller: request.caller, ...limits }
      const read =
        earlier === undefined
          ? await readResource(database, toolResource, prefetched, reader, isUpdateView ? updateText : undefined)
          : await readPast(database, toolResource, id, earlier, reader, isUpdateView ? pastUpdateText : undefined)
      if (isUpdateView) reply.header('link', editLink(`../admin/tool/custom/${id}`))
      return answerRead(reply, { kind: 'tool', id, ...read }, request.headers['if-none-match'] ?? NO_PRECONDITION)
    },
  )
}

/** `GET /tool`: the tools that the caller sees, as small records, a page at a time. */
export function registerReadTools(app: FastifyInstance, database: ServiceDatabase, bounds: WorkBounds): void {
  registerList(app, database, bounds, { resource: 'tool', title: 'tools', record: ToolSummary, read: readToolPage })
}

/* Lists of tools, a page at a time in the order of their ids. Tools are no secret to a signed-in caller (DECISIONS section 6). */

interface Parameters {
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

const SCOPES = ['all', 'all of a name', 'bound', 'bound of a name'] as const
type Scope = (typeof SCOPES)[number]

/** A constant, so that the planner knows that a page is short. */
const MOST = sql.lit(PAGE_RECORDS_MAX + 1)

const OWNER = jsonRow(sql`select u.id, u.email from user_account u where u.id = t.user_id`)
const RECORD = sql`${jsonRow(sql`
      select t.id, t.name, coalesce(t.display_name, t.name) as display_name, t.description, ${OWNER} as owner,
        t.in_code_tool_id, t.mcp_server_id, t.enabled, t.passthrough_auth,
        format('"tool-%s-%s"', t.id, t.version) as etag`)}::text`

/** The statement of each scope: all tools, or those that a token is bound to. */
export const toolPages = Object.fromEntries(SCOPES.map(scope => [scope, pageOf(scope)])) as Record<
  Scope,
  ReturnType<typeof pageOf>
>

/** Reads so many tools behind an id, of those that the token is not bound away from. */
export async function readToolPage(
  database: ServiceDatabase,
  { token }: Caller,
  { name }: AskedPage,
  after: number,
  rows: number,
): Promise<PageRow[]> {
  const scope = token.toolIds === null ? 'all' : 'bound'
  const parameters = { after, rows, name: name ?? '', ids: token.toolIds ?? [] }
  return await toolPages[name === undefined ? scope : (`${scope} of a name` as const)].run(database.db, parameters)
}

function pageOf(scope: Scope) {
  return statement<Parameters, PageRow>(`tool_page(${scope})`, param => {
    const named = scope.endsWith('name') ? sql`and ${isOnly(sql`t.name`, sql`${param('name')}::text`)}` : sql``
    const bound = scope.startsWith('bound') ? sql`and t.id = any(${param('ids')}::integer[])` : sql``
    const order = scope.endsWith('name') ? sql`t.name, t.id` : sql`t.id`
    const found = sql`
      select t.* from tool t where t.id > ${param('after')}::integer ${named} ${bound} order by ${order} limit ${MOST}`
    return pageRows(found, 't', RECORD, sql`${param('rows')}::integer`)
  })
}
