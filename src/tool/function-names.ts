import type { Kysely } from 'kysely'
import { seesAgent } from '../auth/access.js'
import { OPERATOR, VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { anyOf, arrayOf, lit, on, queries } from '../db/statements/queries.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'

/* Warnings about duplicate function names. Model providers refuse all tools of an agent if two functions have the same name. */

/** The maximum number of tools that are compared. */
const TOOLS_MAX = 100
const WARNINGS_MAX = 5

export interface NamedTool {
  id: number
  name: string
  names: readonly string[]
}

const tools = queries()
  .selectFrom('tool as t')
  .innerJoin('tool_definition as d', 'd.hash', 't.definition_hash')
  .select(['t.id', 't.name', 'd.function_names as names'])
  .orderBy('t.id')

const toolsOf = statement<{ ids: number[] }, NamedTool>('tools_named', { ids: 'integer[]' }, param =>
  tools.where('t.id', '=', anyOf(param('ids'))),
)

/** SQL: true if an agent with the tool `id` has another tool with a function whose name is in `names`. */
export function hasNamesBeside(param: Param<{ id: number; names: readonly string[] }>) {
  const { exists, selectFrom } = on()
  const beside = selectFrom('persona_tool as l')
    .innerJoin('persona_tool as o', 'o.persona_id', 'l.persona_id')
    .where('l.tool_id', '=', param('id'))
    .where('o.tool_id', '<>', param('id'))
    .select('o.tool_id')
  return exists(
    selectFrom('tool as t')
      .innerJoin('tool_definition as d', 'd.hash', 't.definition_hash')
      .where('t.id', '=', anyOf(arrayOf(beside)))
      .where('d.function_names', '&&', param('names')),
  )
}

/** Reads up to 100 other tools of the agents that have the tool `id` and are visible to the viewer. */
const readToolsBeside = statement<ViewerParameters & { id: number }, NamedTool>(
  'tools_beside',
  { ...VIEWER_TYPES, id: 'integer' },
  param => {
    const agents = queries()
      .selectFrom('persona_tool as l')
      .innerJoin('persona as p', 'p.id', 'l.persona_id')
      .select('p.id')
      .where('l.tool_id', '=', param('id'))
      .where(seesAgent(viewerOf(param)))
    const beside = queries().selectFrom('persona_tool as o').select('o.tool_id').where('o.persona_id', 'in', agents)
    return tools.where('t.id', '<>', param('id')).where('t.id', 'in', beside).limit(lit(TOOLS_MAX))
  },
)

/** Returns warnings about functions with the same name in two of the given tools, which belong to one agent. */
export async function sharedNames(db: Kysely<Tables>, toolIds: readonly number[]): Promise<string[]> {
  if (toolIds.length < 2) return []
  const tools = await toolsOf.run(db, { ids: toolIds.slice(0, TOOLS_MAX) })
  return tools.flatMap((tool, i) => warningsOf(tool, tools.slice(i + 1))).slice(0, WARNINGS_MAX)
}

/** Returns the warnings of `sharedNames` if the decision attached a tool. The change is already stored, so an error only omits the warnings. */
export async function attachedNames(
  db: Kysely<Tables>,
  decision: { attached: { tool_ids?: readonly unknown[] }; after: { tool_ids: readonly number[] } } | null,
): Promise<string[]> {
  return decision?.attached.tool_ids?.length ? await sharedNames(db, decision.after.tool_ids).catch(() => []) : []
}

/**
 * Returns warnings about functions of the tool that have the same name as a function of another tool of the same agent. Considers only agents that
 * the viewer can see. If reading fails, returns no warnings.
 */
export async function namesBeside(
  db: Kysely<Tables>,
  tool: NamedTool,
  viewer: ViewerParameters = OPERATOR,
): Promise<string[]> {
  try {
    const others = await readToolsBeside.run(db, { ...viewer, id: tool.id })
    return warningsOf(tool, others).slice(0, WARNINGS_MAX)
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
