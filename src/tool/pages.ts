import { sql } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { pageRows } from '../db/statements/page-rows.js'
import { isOnly, statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import { jsonRow } from '../updates/statements.js'

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
