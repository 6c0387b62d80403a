import { type RawBuilder, sql } from 'kysely'
import { type PersonaAccess, personaAccess, seesTool, type Viewer } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { VIEWER_TYPES, type ViewerParameters, viewerOf, viewerOfRow, viewerStands } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { pageRows } from '../db/statements/page-rows.js'
import { type RowTypes, rowStatement } from '../db/statements/row-statement.js'
import { isOnly, type Param, statement } from '../db/statements/statement.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import type { CachedDefinitions } from '../tool/definition-cache.js'
import type { AuditEntry, RequestKey } from '../updates/audit.js'
import { AUDIT_TYPES, insertAudit } from '../updates/audit-rows.js'
import { keyIsFree } from '../updates/idempotency.js'
import { changedColumns, jsonRow, nextVersion } from '../updates/statements.js'
import { COLUMNS, linkOf, RELATIONS, type Relation } from './fields.js'
import type { References } from './rules.js'
import { personaSnapshot, type RelationIds, storedRelations } from './snapshot.js'
import { type PersonaState, personaState, takeAtMost, toolsWithBytes } from './state.js'

/** What a statement answers for an agent that is as expected: the version, and the snapshot for `withDefinitions`. */
export interface PersonaRow extends PersonaVersion {
  snapshot: string
}

export interface PersonaVersion {
  version: number
}

type StateParameters = { id: number; user: string | null }

/** Reads the state of one agent as a user sees it. */
export const readState = statement<StateParameters, { state: PersonaState }>('persona_state', param => {
  return sql`select ${personaState(sql`${param('user')}::uuid`)} as state from persona p where p.id = ${param('id')}::integer`
})

type ReadParameters = ViewerParameters & { id: number; version: number; access: PersonaAccess }

const READ_TYPES: RowTypes<ReadParameters> = { ...VIEWER_TYPES, id: 'integer', version: 'integer', access: 'text' }

/** Answers each stored agent, if version, access and caller are still those that the request was decided on. */
export const readSnapshot = rowStatement<ReadParameters & CachedDefinitions, PersonaRow>(
  'persona_snapshot',
  { ...READ_TYPES, cached_definitions: 'bytea[]' },
  param => {
    const snapshot = personaSnapshot(storedRelations, viewerOfRow(param), param('cached_definitions'))
    return { query: asDecidedOn(sql`p.version, ${snapshot} as snapshot`, param) }
  },
)

/** The same, and answers the version alone. */
export const readVersion = rowStatement<ReadParameters, PersonaVersion>('persona_version', READ_TYPES, param => ({
  query: asDecidedOn(sql`p.version`, param),
}))

function asDecidedOn(columns: RawBuilder<unknown>, param: Param<ReadParameters>): RawBuilder<unknown> {
  return sql`
      select input.position, ${columns}
      from input join persona p on p.id = ${param('id')} and p.version = ${param('version')}
      where ${personaAccess(viewerOfRow(param).user)} = ${param('access')} and ${viewerStands(param)}`
}

type WriteParameters = ViewerParameters &
  CachedDefinitions &
  AuditEntry &
  RequestKey & {
    id: number
    version: number
    access: PersonaAccess
    changed_columns: string
    field_versions: string
  } & Record<Relation, (number | string)[]> & { tool_bytes_left?: number } & Partial<
    Record<`${Relation}_removed` | `${Relation}_put` | `${Relation}_attached`, (number | string)[] | string>
  >

const WRITE_TYPES: RowTypes<WriteParameters> = {
  ...VIEWER_TYPES,
  ...AUDIT_TYPES,
  id: 'integer',
  version: 'integer',
  access: 'text',
  changed_columns: 'jsonb',
  field_versions: 'jsonb',
  tool_bytes_left: 'integer',
  cached_definitions: 'bytea[]',
  ...relationTypes(),
}

function relationTypes() {
  const types = RELATIONS.flatMap(([relation, { link }]) => {
    const ids = `${link.idType}[]`
    const put = link.isShare ? 'jsonb' : ids
    return Object.entries({ '': ids, _removed: ids, _put: put, _attached: ids }).map(([part, type]) => {
      return [`${relation}${part}`, type]
    })
  })
  return Object.fromEntries(types) as Record<Relation | `${Relation}_${'removed' | 'put' | 'attached'}`, string>
}

const writeStatements = new Map<string, ReturnType<typeof compileWrite>>()

/**
 * Stores decided updates and answers the new snapshots, in one round trip and its own transaction: none for an agent that is locked or not
 * as decided on, or where an id may not be attached. It writes no relation, one, or all: a statement for each set would be 128.
 */
export function writeStatement(relations: WrittenRelations, minimal = false) {
  const key = `${relations}${minimal ? ' minimal' : ''}`
  const existing = writeStatements.get(key)
  if (existing) return existing
  const compiled = compileWrite(relationsOf(relations), key, minimal)
  writeStatements.set(key, compiled)
  return compiled
}

/** Which relations a statement writes. The ids of each that it writes may stay as they are. */
export type WrittenRelations = 'none' | Relation | 'all'

/** The fewest that a statement can write of those that have these in them. */
export function writtenRelations([first, ...others]: readonly Relation[]): WrittenRelations {
  if (first === undefined) return 'none'
  return others.length === 0 ? first : 'all'
}

/** The relations that such a statement writes. */
export function relationsOf(written: WrittenRelations): readonly Relation[] {
  if (written === 'none') return []
  return written === 'all' ? RELATIONS.map(([name]) => name) : [written]
}

/** The rows that were written, with the values of each. */
const WRITTEN = sql`changed join locked input using (position)`

function compileWrite(relations: readonly Relation[], key: string, minimal: boolean) {
  const build = (param: Param<WriteParameters>) => {
    const viewer = viewerOfRow(param)
    const checks = relations.map(relation => {
      const ids = param(`${relation}_attached`)
      const usable = sql`and (select count(*) from (${ATTACHABLE[relation](ids, viewer)}) usable) = cardinality(${ids})`
      return relation === 'tool_ids' ? sql`${usable} and ${takeAtMost(ids, param('tool_bytes_left'))}` : usable
    })
    const locked = sql`locked as materialized (
        select input.*
        from input join persona p on p.id = ${param('id')} and p.version = ${param('version')}
        where ${personaAccess(viewer.user)} = ${param('access')} and ${viewerStands(param)}
          and ${keyIsFree(param('idempotency_key'))}
          ${sql.join(checks, sql` `)}
        for no key update of p skip locked
      )`
    const written = sql`changed as (
        update persona p set
          ${changedColumns('p', COLUMNS, param('changed_columns'))},
          ${nextVersion('p', param)}
        from locked input where p.id = ${param('id')}
        returning input.position, p.version${minimal ? sql`` : sql`, ${newSnapshot(param, viewer)} as snapshot`}
      )`
    return {
      parts: [
        locked,
        written,
        ...relations.flatMap(relation => relationWrites(relation, param)),
        insertAudit('persona', WRITTEN, param),
      ],
      query: sql`select * from changed`,
    }
  }
  return rowStatement<WriteParameters, PersonaRow>(`persona_write(${key})`, WRITE_TYPES, build, 'id')
}

function newSnapshot(param: Param<WriteParameters>, viewer: Viewer): RawBuilder<unknown> {
  const relations = Object.fromEntries(RELATIONS.map(([relation]) => [relation, param(relation)])) as RelationIds
  return personaSnapshot(relations, viewer, param('cached_definitions'))
}

/** The CTEs that take away and put the links of one relation; a share's level is put again when it changes. */
function relationWrites(relation: Relation, param: Param<WriteParameters>): RawBuilder<unknown>[] {
  const { table, column, idType, isShare, attacher } = linkOf(relation)
  const removed = sql`${sql.ref(`${relation}_removed`)} as (
        delete from ${sql.table(table)} link using ${WRITTEN}
        where link.persona_id = ${param('id')} and link.${sql.ref(column)} = any(${param(`${relation}_removed`)}))`
  const put = isShare
    ? sql`${sql.ref(`${relation}_put`)} as (
        insert into ${sql.table(table)} (persona_id, ${sql.ref(column)}, level)
        select ${param('id')}, share.id, share.level
        from ${WRITTEN}
        cross join jsonb_to_recordset(${param(`${relation}_put`)}) share (id ${sql.raw(idType)}, level text)
        on conflict (persona_id, ${sql.ref(column)}) do update set level = excluded.level)`
    : sql`${sql.ref(`${relation}_put`)} as (
        insert into ${sql.table(table)} (persona_id, ${sql.ref(column)}${sql.raw(attacher === undefined ? '' : `, ${attacher}`)})
        select ${param('id')}, unnest(${param(`${relation}_put`)})${attacher === undefined ? sql`` : sql`, ${param('user')}`} from ${WRITTEN})`
  return [removed, put]
}

type Attachable = (ids: RawBuilder<unknown>, viewer: ReturnType<typeof viewerOf>) => RawBuilder<unknown>

/** SQL: which of some ids exist and may be attached by the viewer, one row each (DECISIONS section 3). */
const ATTACHABLE: Record<Relation, Attachable> = {
  tool_ids: (ids, viewer) =>
    sql`select t.id from tool t where t.id = any(${ids}) and t.enabled and ${seesTool(viewer)} and ${attachableTool(viewer)}`,
  document_set_ids: (ids, { user, isAdmin }) => sql`
        select s.id from document_set s where s.id = any(${ids}) and (${isAdmin} or s.is_public
          or exists (select from document_set_user m where m.document_set_id = s.id and m.user_id = ${user})
          or exists (select from document_set_group m join user_group_member g using (user_group_id)
                     where m.document_set_id = s.id and g.user_id = ${user}))`,
  label_ids: ids => sql`select l.id from label l where l.id = any(${ids})`,
  user_file_ids: (ids, { user, isAdmin }) =>
    sql`select f.id from user_file f where f.id = any(${ids}) and (${isAdmin} or f.owner_id = ${user})`,
  users: ids => sql`select u.id from user_account u where u.id = any(${ids})`,
  groups: ids => sql`select g.id from user_group g where g.id = any(${ids})`,
}

/** SQL: a tool of an MCP server can be attached by managers of all tools, and by the owner of the tool or its server. */
function attachableTool(viewer: Viewer): RawBuilder<boolean> {
  return sql`(t.mcp_server_id is null or ${viewer.managesAll} or t.user_id = ${viewer.user} or exists (
    select from mcp_server m where m.id = t.mcp_server_id and m.owner_id = ${viewer.user}))`
}

type ReferenceParameters = ViewerParameters & Record<Relation, (number | string)[]>

/** Reads what newly attached ids refer to, for the faults of an update that may not attach them. */
export const readReferences = statement<ReferenceParameters, { references: References }>(
  'persona_references',
  param => {
    const viewer = viewerOf(param)
    const lists = RELATIONS.map(([relation, { link }]) => {
      const ids = sql`${param(relation)}::${sql.raw(link.idType)}[]`
      return relation === 'tool_ids'
        ? sql`'tool_ids', ${toolsWithBytes(sql`array(select t.id from tool t where t.id = any(${ids}) and ${seesTool(viewer)})`, sql`'id', t.id, 'enabled', t.enabled, 'attachable', ${attachableTool(viewer)}`)}`
        : sql`${sql.lit(relation)}, array(${ATTACHABLE[relation](ids, viewer)})`
    })
    return sql`select json_build_object(${sql.join(lists)}) as references`
  },
)

/* Lists of agents, a page at a time, by indexes. What a caller sees comes from four places. */

interface Parameters {
  user: string
  sees_all: boolean
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

/** A constant, so that the planner knows that a page is short. */
const MOST = sql.lit(PAGE_RECORDS_MAX + 1)

/** Each candidate is read by its key: `offset 0` keeps the planner from reading all agents in order. */
const BY_ID = sql`candidate cross join lateral (select * from persona where id = candidate.id offset 0) p`

const OWNER = jsonRow(sql`select u.id, u.email from user_account u where u.id = p.owner_id`)
const RECORD = sql`${jsonRow(sql`
      select p.id, p.name, p.description, ${OWNER} as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag`)}::text`

/** Which agents are looked at: all (an administrator), those that a token is bound to, or those that the caller sees. */
type Scope = 'all' | 'bound' | 'seen'

const PAGES = { all: pagesOf('all'), bound: pagesOf('bound'), seen: pagesOf('seen') }

/** Reads `rows` agents after an id that the caller and the token may see. */
export async function readPersonaPage(
  database: Database,
  caller: Caller,
  { name }: AskedPage,
  after: number,
  rows: number,
): Promise<PageRow[]> {
  const ids = caller.token.personaIds
  const [page, pageOfName] = PAGES[ids !== null ? 'bound' : isAdmin(caller) ? 'all' : 'seen']
  const parameters = { user: caller.userId, sees_all: isAdmin(caller), after, rows, name: name ?? '', ids: ids ?? [] }
  return await (name === undefined ? page : pageOfName).run(database.db, parameters)
}

function pagesOf(scope: Scope) {
  return [pageOf(scope, false), pageOf(scope, true)] as const
}

function pageOf(scope: Scope, isNamed: boolean) {
  return statement<Parameters, PageRow>(`persona_page(${scope}${isNamed ? ' of a name' : ''})`, param => {
    const user = sql`${param('user')}::uuid`
    const behind = (id: RawBuilder<unknown>) => sql`${id} > ${param('after')}::integer`
    const isSeen = scope === 'seen' && !isNamed
    const first = isSeen ? sql`with candidate as materialized (${candidates(user, behind)})` : sql``
    const conditions = [
      sql`${behind(sql`p.id`)} and not p.deleted`,
      ...(isNamed ? [isOnly(sql`p.name`, sql`${param('name')}::text`)] : []),
      ...(scope === 'bound' ? [sql`p.id = any(${param('ids')}::integer[])`] : []),
      ...(scope === 'all' || isSeen ? [] : [sql`(${param('sees_all')}::boolean or ${personaAccess(user)} <> 'none')`]),
    ]
    const found = sql`
      select p.* from ${isSeen ? BY_ID : sql`persona p`}
      where ${sql.join(conditions, sql` and `)} order by ${isNamed ? sql`p.name, p.id` : sql`p.id`} limit ${MOST}`
    return sql`${first}${pageRows(found, 'p', RECORD, sql`${param('rows')}::integer`)}`
  })
}

/** SQL: the ids of the first agents that the user owns, that are public, or that are shared with them or a group. */
function candidates(user: RawBuilder<unknown>, behind: (id: RawBuilder<unknown>) => RawBuilder<unknown>) {
  const first = (id: RawBuilder<unknown>) => sql`and ${behind(id)} order by ${id} limit ${MOST}`
  return sql`
      select id from (
        (select c.id from persona c where c.owner_id = ${user} and not c.deleted ${first(sql`c.id`)})
        union (select c.id from persona c where c.is_public and not c.deleted ${first(sql`c.id`)})
        union (
          select s.persona_id from persona_user s join persona c on c.id = s.persona_id and not c.deleted
          where s.user_id = ${user} ${first(sql`s.persona_id`)})
        union (
          select s.persona_id from user_group_member m
          cross join lateral (
            select s.persona_id from persona_group s join persona c on c.id = s.persona_id and not c.deleted
            where s.user_group_id = m.user_group_id ${first(sql`s.persona_id`)}
          ) s where m.user_id = ${user})
      ) one order by id limit ${MOST}`
}
