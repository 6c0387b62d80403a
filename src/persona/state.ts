import type { AliasableExpression, Expression, SqlBool } from 'kysely'
import { jsonArrayFrom } from 'kysely/helpers/postgres'
import { type PersonaAccess, personaAccess } from '../auth/access.js'
import { callerStatement, userOfCaller } from '../auth/authenticate.js'
import { anyOf, arrayOf, columnsOf, hexOf, lit, named, on, queries } from '../db/statements/queries.js'
import { snapshotBytes } from '../tool/snapshot.js'
import type { VersionedState } from '../updates/resource.js'
import { columnValue, versionedState } from '../updates/statements.js'
import { COLUMNS, linkOf, type PersonaColumn, type PersonaContent, RELATIONS, type Relation } from './fields.js'

/** The state of an agent as one statement read it, with the caller's rights by ownership and shares. */
export interface PersonaState extends PersonaContent, VersionedState {
  access: PersonaAccess
  tool_sizes: ToolSize[]
}

/** Expressions on an agent (alias `p`) and the bytes of its large texts (alias `large`). */
const persona = on<{ p: 'persona'; large: { bytes: number } }>()
const { cast, fn, ref } = persona

/** Columns that may hold large texts, with their bytes. */
const LARGE_COLUMNS: Partial<Record<PersonaColumn, Expression<number>>> = {
  system_prompt: fn('octet_length', ['p.system_prompt']),
  task_prompt: fn('octet_length', ['p.task_prompt']),
  starter_messages: fn('octet_length', [cast('p.starter_messages', 'text')]),
}

/** The most bytes of one agent's large texts together. A batch has up to 32 states, and a byte may become six in JSON. */
const PREFETCHED_TEXT_BYTES_MAX = 16 * 1024

/** SQL: the agent `p` as a `PersonaState` with the user's rights. `isWhole` false leaves out texts that are too large to prefetch. */
export function personaState(user: Expression<string>, isWhole = true): AliasableExpression<PersonaState> {
  const isLarge = persona('large.bytes', '>', lit(PREFETCHED_TEXT_BYTES_MAX))
  const columns = COLUMNS.map(([name, { column }]) => {
    const value = columnValue(ref(`p.${name}`), column)
    const isLeftOut = !isWhole && LARGE_COLUMNS[name] !== undefined
    return [name, isLeftOut ? persona.case().when(persona.not(isLarge)).then(value).end() : value]
  })
  const relations = RELATIONS.map(([name, { link }]) => [name, link.isShare ? storedShares(name) : storedIds(name)])
  const leftOut = persona.case().when(isLarge).then(ref('large.bytes')).else(lit(0)).end()
  return versionedState<PersonaState>('persona', 'p', user, {
    ...Object.fromEntries([...columns, ...relations]),
    ...(isWhole ? {} : { left_out_bytes: leftOut }),
    access: personaAccess(user),
    tool_sizes: storedToolSizes,
  })
}

/** SQL: the links `l` of agent `p` in one relation, and the column of the linked ids. */
function storedLinks(relation: Relation) {
  const { table, column } = linkOf(relation)
  const links = persona
    .selectFrom(`${table as 'persona_user'} as l`) // all link tables have these columns, and shares a level
    .where('l.persona_id', '=', ref('p.id'))
  return { links, id: columnsOf<Record<string, never>>('l')(column) }
}

/** SQL: the sorted ids of a relation of agent `p`; texts by their bytes. */
export function storedIds(relation: Relation): Expression<never[]> {
  const { links, id } = storedLinks(relation)
  const ids = links.select(id.as('id'))
  return arrayOf(linkOf(relation).idType === 'text' ? ids.orderBy(id, by => by.collate('C')) : ids.orderBy(id))
}

function storedShares(relation: Relation): Expression<unknown> {
  const { links, id } = storedLinks(relation)
  return jsonArrayFrom(links.select([id.as('id'), 'l.level']).orderBy(id))
}

/* Bytes of an agent's tools in an answer, from stored sizes: the definitions are not read. */

/** SQL: tools `t` with their definitions `d`. */
const toolsWithDefinitions = () =>
  queries().selectFrom('tool as t').leftJoin('tool_definition as d', 'd.hash', 't.definition_hash')

/** The bytes of a tool in an agent's answer, and the hash of its definition in hex. */
export interface ToolSize {
  bytes: number
  definition: string | null
}

const definition = hexOf(on<{ t: 'tool' }>().ref('t.definition_hash'))

/** SQL: the sizes of the tools of the agent `p`, in the order of their ids. */
const storedToolSizes: Expression<ToolSize[]> = jsonArrayFrom(
  toolsWithDefinitions()
    .innerJoin('persona_tool as l', 'l.tool_id', 't.id')
    .select([named(snapshotBytes, 'bytes'), definition.as('definition')])
    .where('l.persona_id', '=', ref('p.id'))
    .orderBy('l.tool_id'),
)

/** SQL: true if these tools take at most `bytes`. */
export function takeAtMost(ids: Expression<number[]>, bytes: Expression<number>): Expression<SqlBool> {
  const taken = toolsWithDefinitions()
    .select(({ fn }) => fn.coalesce(fn.sum<number>(snapshotBytes), lit(0)).as('bytes'))
    .where('t.id', '=', anyOf(ids))
  return on()(taken, '<=', bytes)
}

/** SQL: these tools, each with `isAttachable` and its `ToolSize`. */
export function toolsWithBytes(ids: Expression<number[]>, isAttachable: Expression<SqlBool>) {
  return jsonArrayFrom(
    toolsWithDefinitions()
      .select(['t.id', 't.enabled', named(isAttachable, 'attachable')])
      .select([named(snapshotBytes, 'bytes'), definition.as('definition')])
      .where('t.id', '=', anyOf(ids)),
  )
}

/** The lookup of one agent's routes: reads the agent in the same statement as the caller. */
export const PERSONA_LOOKUP = {
  parameter: 'persona_id',
  statement: callerStatement('caller_and_persona', id => {
    const bytes = Object.values(LARGE_COLUMNS).map(bytes => fn.coalesce(bytes, lit(0)))
    const large = queries()
      .selectNoFrom(bytes.reduce((sum, one) => persona(sum, '+', one)).as('bytes'))
      .offset(lit(0))
    return queries()
      .selectFrom('persona as p')
      .crossJoinLateral(large.as('large'))
      .select(personaState(userOfCaller, false).as('state'))
      .where('p.id', '=', id)
  }),
}
