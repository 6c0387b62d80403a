import { type Kysely, sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { OPERATOR, VIEWER_TYPES, type ViewerParameters } from '../auth/viewer.js'
import { anyOf, hexOf, lit, on, queries } from '../db/statements/queries.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { functionNames } from '../definition/index.js'
import { factsOf, noteFacts } from './definition-facts.js'

/* Vendors refuse all tools of an agent when two of its functions have one name. */

/** The most tools that are compared, and warnings that are made. */
const TOOLS_MAX = 100
const WARNINGS_MAX = 5

interface NamedTool {
  id: number
  name: string
  names: readonly string[]
}

/** A tool with the hash of its definition. */
export type HashedTool = Omit<NamedTool, 'names'> & { hash: string }

const tools = queries()
  .selectFrom('tool as t')
  .select(({ ref }) => ['t.id', 't.name', hexOf(ref('t.definition_hash')).as('hash')])
  .where('t.definition_hash', 'is not', null)
  .orderBy('t.id')

const toolsOf = statement<{ ids: number[] }, HashedTool>('tools_named', { ids: 'integer[]' }, param =>
  tools.where('t.id', '=', anyOf(param('ids'))),
)

/** SQL: the other tools of the agents that have the tool `id`, on agents that the viewer sees. */
export function toolsBeside(param: Param<ViewerParameters & { id: number }>) {
  const { eb, or } = on<{ p: 'persona' }>()
  const agents = queries()
    .selectFrom('persona_tool as l')
    .innerJoin('persona as p', 'p.id', 'l.persona_id')
    .select('p.id')
    .where('l.tool_id', '=', param('id'))
    .where('p.deleted', '=', lit(false))
    .where(or([eb(param('agents'), 'is', null), eb('p.id', '=', anyOf(param('agents')))]))
    .where(or([param('is_admin'), eb(personaAccess(param('user')), '<>', lit('none'))]))
  const beside = queries().selectFrom('persona_tool as o').select('o.tool_id').where('o.persona_id', 'in', agents)
  return tools.where('t.id', '<>', param('id')).where('t.id', 'in', beside).limit(lit(TOOLS_MAX))
}

const readToolsBeside = statement<ViewerParameters & { id: number }, HashedTool>(
  'tools_beside',
  { ...VIEWER_TYPES, id: 'integer' },
  toolsBeside,
)

/** Warns of functions with one name in two tools of an agent that has these tools. */
export async function sharedNames(db: Kysely<Tables>, toolIds: readonly number[]): Promise<string[]> {
  if (toolIds.length < 2) return []
  const tools = await withNames(db, await toolsOf.run(db, { ids: toolIds.slice(0, TOOLS_MAX) }))
  return tools.flatMap((tool, i) => warningsOf(tool, tools.slice(i + 1))).slice(0, WARNINGS_MAX)
}

/** Warns of such functions if the decision attached a tool. The change is stored already, so a failed reading gives no warning. */
export async function attachedNames(
  db: Kysely<Tables>,
  decision: { attached: { tool_ids?: readonly unknown[] }; after: { tool_ids: readonly number[] } } | null,
): Promise<string[]> {
  return decision?.attached.tool_ids?.length ? await sharedNames(db, decision.after.tool_ids).catch(() => []) : []
}

/**
 * Warns of function `names` of a tool that another tool of an agent has too, on agents that the viewer sees. `beside`: these tools, if they
 * are read already. If reading fails, there are no warnings.
 */
export async function namesBeside(
  db: Kysely<Tables>,
  { id, name }: { id: number; name: string },
  names: readonly string[],
  viewer: ViewerParameters = OPERATOR,
  beside?: readonly HashedTool[],
): Promise<string[]> {
  try {
    const others = beside ?? (await readToolsBeside.run(db, { ...viewer, id }))
    return warningsOf({ id, name, names }, await withNames(db, others)).slice(0, WARNINGS_MAX)
  } catch {
    return []
  }
}

function warningsOf(tool: NamedTool, others: readonly NamedTool[]): string[] {
  const own = new Set(tool.names)
  return others.flatMap(other => {
    const [first, second] = [tool, other].map(({ id, name }) => `${id} (${name})`)
    const both = other.names.filter(name => own.has(name))
    return both.map(
      name => `tools ${first} and ${second} both have a function ${name}: model vendors refuse an agent that has both`,
    )
  })
}

/** Adds the names of the tools' functions: those of the check, else by the operationIds of the stored text. */
async function withNames(db: Kysely<Tables>, tools: readonly HashedTool[]): Promise<NamedTool[]> {
  const names = new Map(tools.map(({ hash }) => [hash, factsOf(hash).names]))
  const unknown = [...names].flatMap(([hash, known]) => (known === undefined ? [Buffer.from(hash, 'hex')] : []))
  if (unknown.length > 0) {
    // `jsonb` has no NUL and no lone surrogates, whose escapes the stored text keeps.
    const { rows } = await sql<{ hash: string; ids: string[] }>`
      select encode(hash, 'hex') as hash, jsonb_path_query_array(content::jsonb, ${OPERATION_IDS}::jsonpath) as ids
      from tool_definition where hash in (${sql.join(unknown)}) and content::text !~ '\\\\u(0000|[dD][89a-fA-F])'`.execute(
      db,
    )
    for (const { hash, ids } of rows) {
      names.set(hash, functionNames(ids.map(name => ({ name, method: '', path: '' }))))
      noteFacts(hash, { names: names.get(hash) ?? [] })
    }
  }
  return tools.map(({ id, name, hash }) => ({ id, name, names: names.get(hash) ?? [] }))
}

const OPERATION_IDS =
  '$.paths.*.keyvalue() ? (@.key like_regex "^(get|post|put|patch|delete)$" flag "i").value.operationId ? (@.type() == "string")'
