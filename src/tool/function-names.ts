import { type Kysely, sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { type Caller, isAdmin, visibleAgents } from '../auth/caller.js'
import type { Tables } from '../db/tables.js'
import { functionNames } from '../definition/index.js'
import { factsOf, noteFacts } from './definition-cache.js'

/*
 * Vendors refuse all tools of an agent when two of its functions have one name. The warnings are read after an update is stored, so a failed
 * reading only leaves them out.
 */

/** The most tools that are compared, and warnings that are made. */
const TOOLS_MAX = 100
const WARNINGS_MAX = 5

interface NamedTool {
  id: number
  name: string
  /** The hash of its definition in hex. */
  hash: string
}

/** Warns of functions with one name in two tools of an agent that has these tools. */
export async function sharedNames(db: Kysely<Tables>, toolIds: readonly number[]): Promise<string[]> {
  if (toolIds.length < 2) return []
  const tools = await db
    .selectFrom('tool as t')
    .select(({ fn, val }) => ['t.id', 't.name', fn<string>('encode', ['t.definition_hash', val('hex')]).as('hash')])
    .where('t.id', 'in', toolIds.slice(0, TOOLS_MAX))
    .where('t.definition_hash', 'is not', null)
    .orderBy('t.id')
    .execute()
  const names = await namesOf(db, tools)
  const owners = new Map<string, NamedTool>()
  const warnings: string[] = []
  for (const tool of tools) {
    for (const name of names.get(tool.hash) ?? []) {
      const other = owners.get(name)
      if (other === undefined) owners.set(name, tool)
      else warnings.push(warningOf(name, other, tool))
    }
  }
  return warnings.slice(0, WARNINGS_MAX)
}

/** Warns of such functions of an agent that got a tool by this decision. The change is stored by then, so a failed reading answers none. */
export async function attachedNames(
  db: Kysely<Tables>,
  decision: { attached: { tool_ids?: readonly unknown[] }; after: { tool_ids: readonly number[] } } | null,
): Promise<string[]> {
  return decision?.attached.tool_ids?.length ? await sharedNames(db, decision.after.tool_ids).catch(() => []) : []
}

/**
 * Warns of a tool's function `names` that another tool has too, on one agent that the caller sees; the operator is no caller. A failed
 * reading answers none.
 */
export async function namesBeside(...asked: Parameters<typeof namesOfOthers>): Promise<string[]> {
  return await namesOfOthers(...asked).catch(() => [])
}

async function namesOfOthers(
  db: Kysely<Tables>,
  { id, name }: { id: number; name: string },
  names: readonly string[],
  caller?: Caller,
): Promise<string[]> {
  const own = new Set(names)
  const agents = caller === undefined ? null : visibleAgents(caller.token)
  const tools = await db
    .selectFrom('persona_tool as l')
    .innerJoin('persona as p', 'p.id', 'l.persona_id')
    .innerJoin('persona_tool as o', 'o.persona_id', 'p.id')
    .innerJoin('tool as t', 't.id', 'o.tool_id')
    .select(({ fn, val }) => ['t.id', 't.name', fn<string>('encode', ['t.definition_hash', val('hex')]).as('hash')])
    .distinct()
    .where('l.tool_id', '=', id)
    .where('t.id', '<>', id)
    .where('t.definition_hash', 'is not', null)
    .where('p.deleted', '=', false)
    .$if(caller !== undefined && !isAdmin(caller), query =>
      query.where(({ eb }) => eb(personaAccess(sql<string>`${caller?.userId}::uuid`), '<>', sql.lit('none'))),
    )
    .$if(agents !== null, query => query.where('p.id', 'in', agents?.length ? agents : [0]))
    .orderBy('t.id')
    .limit(TOOLS_MAX)
    .execute()
  const others = await namesOf(db, tools)
  const warnings = tools.flatMap(tool => {
    const shared = (others.get(tool.hash) ?? []).filter(each => own.has(each))
    return shared.map(each => warningOf(each, { id, name }, tool))
  })
  return warnings.slice(0, WARNINGS_MAX)
}

function warningOf(name: string, one: Pick<NamedTool, 'id' | 'name'>, other: Pick<NamedTool, 'id' | 'name'>): string {
  const [first, second] = [one, other].map(tool => `${tool.id} (${tool.name})`)
  return `tools ${first} and ${second} both have a function ${name}: model vendors refuse an agent that has both`
}

/** Returns the names of functions by the definition's hash: those of its check, else by the operationIds of the stored text. */
async function namesOf(db: Kysely<Tables>, tools: readonly NamedTool[]): Promise<Map<string, readonly string[]>> {
  const found = new Map(tools.map(({ hash }) => [hash, factsOf(hash).names]))
  const unknown = [...found].flatMap(([hash, names]) => (names === undefined ? [Buffer.from(hash, 'hex')] : []))
  if (unknown.length > 0) {
    // `jsonb` has no NUL and no lone surrogates, whose escapes the stored text keeps.
    const { rows } = await sql<{ hash: string; ids: string[] }>`
      select encode(hash, 'hex') as hash, jsonb_path_query_array(content::jsonb, ${OPERATION_IDS}::jsonpath) as ids
      from tool_definition where hash in (${sql.join(unknown)}) and content::text !~ '\\\\u(0000|[dD][89a-fA-F])'`.execute(
      db,
    )
    for (const { hash, ids } of rows) {
      const names = functionNames(ids.map(name => ({ name, method: '', path: '' })))
      found.set(hash, names)
      noteFacts(hash, { names })
    }
  }
  return new Map([...found].map(([hash, names]) => [hash, names ?? []]))
}

const OPERATION_IDS =
  '$.paths.*.keyvalue() ? (@.key like_regex "^(get|post|put|patch|delete)$" flag "i").value.operationId ? (@.type() == "string")'
