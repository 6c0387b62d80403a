import { type Kysely, sql } from 'kysely'
import { OPERATOR, seesAgent, VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { lit, queries } from '../db/statements/queries.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'

/* Warnings about duplicate function names. Model providers refuse all tools of an agent if two functions have the same name. */

const WARNINGS_MAX = 5

export interface NamedTool {
  id: number
  name: string
  names: readonly string[]
}

interface SharedName {
  name: string
  tools: string[]
}

const readShared = statement<{ ids: number[] }, SharedName>(
  'tools_sharing_names',
  { ids: 'integer[]' },
  param => sql<SharedName>`
    select f.name, array_agg(format('%s (%s)', t.id, t.name) order by t.id) as tools
    from tool t join tool_definition d on d.hash = t.definition_hash cross join unnest(d.function_names) as f(name)
    where t.id = any (${param('ids')})
    group by f.name having count(*) > 1 order by f.name limit ${lit(WARNINGS_MAX)}`,
)

/** SQL: true if an agent with the tool `id` has another tool with a function whose name is in `names`. */
export function hasNamesBeside(param: Param<{ id: number; names: readonly string[] }>) {
  return sql<boolean>`(select has_names from names_beside(${param('id')}, ${param('names')}))`
}

/** Finds tools that have a function named in `names` and share an agent with the tool `id`. The viewer must be able to see the agent. */
const readToolsBeside = statement<ViewerParameters & Pick<NamedTool, 'id' | 'names'>, NamedTool>(
  'tools_beside',
  { ...VIEWER_TYPES, id: 'integer', names: 'text[]' },
  param => {
    const agents = queries()
      .selectFrom('persona_tool as l')
      .innerJoin('persona as p', 'p.id', 'l.persona_id')
      .select('p.id')
      .where('l.tool_id', '=', param('id'))
      .where(seesAgent(viewerOf(param)))
    const beside = queries().selectFrom('persona_tool as o').select('o.tool_id').where('o.persona_id', 'in', agents)
    return queries()
      .selectFrom('tool as t')
      .innerJoin('tool_definition as d', 'd.hash', 't.definition_hash')
      .select(['t.id', 't.name', 'd.function_names as names'])
      .where('d.function_names', '&&', param('names'))
      .where('t.id', '<>', param('id'))
      .where('t.id', 'in', beside)
      .orderBy('t.id')
      .limit(lit(WARNINGS_MAX))
  },
)

/** Returns warnings about functions with the same name in two tools of an agent. */
export async function sharedNames(db: Kysely<Tables>, toolIds: readonly number[]): Promise<string[]> {
  const shared = toolIds.length < 2 ? [] : await readShared.run(db, { ids: [...toolIds] })
  return shared.map(({ name, tools }) => warningOf(name, tools))
}

/** Returns the warnings of `sharedNames` if the decision attached a tool. If reading fails, returns none, because the change is already stored. */
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
    const others = await readToolsBeside.run(db, { ...viewer, id: tool.id, names: tool.names })
    const own = new Set(tool.names)
    const warnings = others.flatMap(other => {
      const both = other.names.filter(name => own.has(name))
      return both.map(name =>
        warningOf(
          name,
          [tool, other].map(({ id, name }) => `${id} (${name})`),
        ),
      )
    })
    return warnings.slice(0, WARNINGS_MAX)
  } catch {
    return []
  }
}

function warningOf(name: string, [first, second]: readonly string[]): string {
  return `tools ${first} and ${second} both have a function ${name}: rename the function in one of them, because model providers refuse an agent that has both tools`
}
