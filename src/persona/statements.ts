import { type RawBuilder, sql } from 'kysely'
import type { Viewer } from '../auth/access.js'
import { type PersonaAccess, personaAccess } from '../auth/access.js'
import { type RowTypes, rowStatement } from '../db/statements/row-statement.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { AuditEntry } from '../updates/audit.js'
import { AUDIT_TYPES, insertAudit } from '../updates/statements.js'
import { type Attached, RELATIONS, type References, type Relation } from './plan.js'
import { personaSnapshot, type RelationIds, storedRelations } from './snapshot.js'
import { PERSONA_COLUMN_TYPES, type PersonaState, personaState } from './state.js'

/** Who is looking, as parameters of a statement. */
export interface ViewerParameters {
  user: string | null
  manages_all: boolean
  is_admin: boolean
  managed_groups: number[]
}

const VIEWER_TYPES: RowTypes<ViewerParameters> = {
  user: 'uuid',
  manages_all: 'boolean',
  is_admin: 'boolean',
  managed_groups: 'integer[]',
}

/** What a statement answers when it found the agent as expected: the version and the snapshot as JSON text. */
export interface PersonaAnswer {
  version: number
  snapshot: string
}

type StateParameters = { id: number; user: string | null }

/** Reads the state of one agent as a user sees it. */
export const readState = statement<StateParameters, { state: PersonaState }>('persona_state', param => {
  return sql`select ${personaState(sql`${param('user')}::uuid`)} as state from persona p where p.id = ${param('id')}::integer`
})

/** Locks one agent's row against other writers until the transaction ends. The reads come after, with their own view. */
export const lockRow = statement<{ id: number }, { id: number }>('persona_lock', param => {
  return sql`select id from persona where id = ${param('id')}::integer for no key update`
})

type SnapshotParameters = ViewerParameters & { id: number; version: number; access: PersonaAccess }

/** Answers each stored agent, if it is still the version and the access that the request was decided on. */
export const readSnapshot = rowStatement<SnapshotParameters, PersonaAnswer>(
  'persona_snapshot',
  { ...VIEWER_TYPES, id: 'integer', version: 'integer', access: 'text' },
  param => {
    const viewer = viewerOfRow(param)
    return {
      query: sql`
      select input.position, p.version, ${personaSnapshot(storedRelations, viewer)}::text as snapshot
      from input join persona p on p.id = ${param('id')} and p.version = ${param('version')}
      where ${personaAccess(viewer.user)} = ${param('access')}`,
    }
  },
)

type WriteParameters = ViewerParameters &
  AuditEntry & {
    id: number
    version: number
    access: PersonaAccess
    changed_columns: string
    field_versions: string
  } & Record<Relation, (number | string)[]> &
  Partial<Record<`${Relation}_removed` | `${Relation}_put` | `${Relation}_attached`, (number | string)[] | string>>

const ID_TYPE: Record<Relation, string> = {
  tool_ids: 'integer',
  document_set_ids: 'integer',
  label_ids: 'integer',
  user_file_ids: 'text',
  users: 'uuid',
  groups: 'integer',
}

const LINK: Record<Relation, { table: string; column: string }> = {
  tool_ids: { table: 'persona_tool', column: 'tool_id' },
  document_set_ids: { table: 'persona_document_set', column: 'document_set_id' },
  label_ids: { table: 'persona_label', column: 'label_id' },
  user_file_ids: { table: 'persona_user_file', column: 'user_file_id' },
  users: { table: 'persona_user', column: 'user_id' },
  groups: { table: 'persona_group', column: 'user_group_id' },
}

const WRITE_TYPES: RowTypes<WriteParameters> = {
  ...VIEWER_TYPES,
  ...AUDIT_TYPES,
  id: 'integer',
  version: 'integer',
  access: 'text',
  changed_columns: 'jsonb',
  field_versions: 'jsonb',
  ...relationTypes(),
}

/** Ids as lists; users and groups are put with their levels, as JSON. */
function relationTypes() {
  const types = RELATIONS.flatMap(relation => {
    const ids = `${ID_TYPE[relation]}[]`
    const put = isShared(relation) ? 'jsonb' : ids
    return Object.entries({ '': ids, _removed: ids, _put: put, _attached: ids }).map(([part, type]) => {
      return [`${relation}${part}`, type]
    })
  })
  return Object.fromEntries(types) as Record<Relation | `${Relation}_${'removed' | 'put' | 'attached'}`, string>
}

/** Whether the links of a relation have a level. */
function isShared(relation: Relation): boolean {
  return relation === 'users' || relation === 'groups'
}

const writeStatements = new Map<string, ReturnType<typeof compileWrite>>()

/**
 * The statement that stores decided updates and answers the new snapshots, in one round trip and its own transaction.
 *
 * It writes an agent only if its row is unlocked and still has the version and access that the decision was made on, and if
 * what is newly attached exists and may be attached; otherwise it answers nothing for it and leaves it as it is. It never
 * waits for an agent's lock: a statement that waited would see the other tables as they were before the wait.
 * One statement per set of relations that change, so that unchanged associations cost nothing.
 */
export function writeStatement(changed: readonly Relation[], attached: readonly Relation[]) {
  const key = `${changed.join(',')}+${attached.join(',')}`
  const known = writeStatements.get(key)
  if (known) return known
  const compiled = compileWrite(changed, attached, key)
  writeStatements.set(key, compiled)
  return compiled
}

/** The rows that were written, with the values of each. */
const WRITTEN = sql`changed p join locked using (id) join input using (position)`

function compileWrite(changed: readonly Relation[], attached: readonly Relation[], key: string) {
  const build = (param: Param<WriteParameters>) => {
    const viewer = viewerOfRow(param)
    const relations = Object.fromEntries(RELATIONS.map(relation => [relation, param(relation)])) as RelationIds
    const checks = attached.map(relation => {
      const ids = param(`${relation}_attached`)
      return sql`and (select count(*) from (${attachable(relation, ids, viewer, param('is_admin'))}) usable) = cardinality(${ids})`
    })
    const locked = sql`locked as materialized (
        select p.id, input.position
        from input join persona p on p.id = ${param('id')} and p.version = ${param('version')}
        where ${personaAccess(viewer.user)} = ${param('access')}
          ${sql.join(checks, sql` `)}
        for no key update of p skip locked
      )`
    const written = sql`changed as (
        update persona p set
          ${changedColumns(param('changed_columns'))},
          version = p.version + 1,
          field_versions = p.field_versions || ${param('field_versions')},
          audit_head = decode(${param('hash')}, 'hex'),
          audit_count = p.audit_count + 1
        from locked join input using (position) where p.id = locked.id
        returning p.*
      )`
    return {
      parts: [
        locked,
        written,
        ...changed.flatMap(relation => relationWrites(relation, param)),
        insertAudit(WRITTEN, param),
      ],
      query: sql`
      select input.position, p.version, ${personaSnapshot(relations, viewer)}::text as snapshot
      from ${WRITTEN}`,
    }
  }
  return rowStatement<WriteParameters, PersonaAnswer>(`persona_write(${key})`, WRITE_TYPES, build, 'id')
}

/** `column = its new value where the request changes it, else itself`: a fixed text for every set of columns. */
function changedColumns(asked: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql.join(
    Object.entries(PERSONA_COLUMN_TYPES).map(([column, type]) => {
      const value = type === 'json' ? sql`${asked} -> ${sql.lit(column)}` : sql`${asked} ->> ${sql.lit(column)}`
      const typed = type === 'json' ? sql`nullif(${value}, 'null')::json` : sql`(${value})::${sql.raw(type)}`
      const own = sql.ref(column)
      return sql`${own} = case when ${asked} ? ${sql.lit(column)} then ${typed} else p.${own} end`
    }),
  )
}

/** The CTEs that take away and put the links of one relation; a share's level is put again when it changes. */
function relationWrites(relation: Relation, param: Param<WriteParameters>): RawBuilder<unknown>[] {
  const { table, column } = LINK[relation]
  const removed = sql`${sql.ref(`${relation}_removed`)} as (
        delete from ${sql.table(table)} link using ${WRITTEN}
        where link.persona_id = p.id and link.${sql.ref(column)} = any(${param(`${relation}_removed`)}))`
  const put = isShared(relation)
    ? sql`${sql.ref(`${relation}_put`)} as (
        insert into ${sql.table(table)} (persona_id, ${sql.ref(column)}, level)
        select p.id, share.id, share.level
        from ${WRITTEN}
        cross join jsonb_to_recordset(${param(`${relation}_put`)}) share (id ${sql.raw(ID_TYPE[relation])}, level text)
        on conflict (persona_id, ${sql.ref(column)}) do update set level = excluded.level)`
    : sql`${sql.ref(`${relation}_put`)} as (
        insert into ${sql.table(table)} (persona_id, ${sql.ref(column)})
        select p.id, unnest(${param(`${relation}_put`)}) from ${WRITTEN})`
  return [removed, put]
}

/** SQL: which of some ids exist and may be attached by the viewer, one row each (DECISIONS section 3). */
function attachable(
  relation: Relation,
  ids: RawBuilder<unknown>,
  viewer: Viewer,
  isAdmin: RawBuilder<unknown>,
): RawBuilder<unknown> {
  switch (relation) {
    case 'tool_ids':
      return sql`select t.id from tool t where t.id = any(${ids}) and t.enabled and ${attachableTool(viewer)}`
    case 'document_set_ids':
      return sql`
        select s.id from document_set s where s.id = any(${ids}) and (${isAdmin} or s.is_public
          or exists (select from document_set_user m where m.document_set_id = s.id and m.user_id = ${viewer.user})
          or exists (select from document_set_group m join user_group_member g using (user_group_id)
                     where m.document_set_id = s.id and g.user_id = ${viewer.user}))`
    case 'label_ids':
      return sql`select l.id from label l where l.id = any(${ids})`
    case 'user_file_ids':
      return sql`select f.id from user_file f where f.id = any(${ids}) and (${isAdmin} or f.owner_id = ${viewer.user})`
    case 'users':
      return sql`select u.id from user_account u where u.id = any(${ids})`
    case 'groups':
      return sql`select g.id from user_group g where g.id = any(${ids})`
  }
}

/** SQL: a tool of an MCP server can be attached by who manages all tools, or owns the tool or its server. */
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
    const ids = (relation: Relation) => sql`${param(relation)}::${sql.raw(ID_TYPE[relation])}[]`
    const list = (relation: Relation) =>
      sql`${sql.lit(relation)}, array(${attachable(relation, ids(relation), viewer, sql`${param('is_admin')}::boolean`)})`
    return sql`select json_build_object(
    'tool_ids', coalesce((
      select json_agg(json_build_object('id', t.id, 'enabled', t.enabled, 'attachable', ${attachableTool(viewer)}))
      from tool t where t.id = any(${ids('tool_ids')})), '[]'),
    ${sql.join(RELATIONS.filter(relation => relation !== 'tool_ids').map(list))}) as references`
  },
)

function viewerOf(param: Param<ViewerParameters>): Viewer {
  return {
    user: sql`${param('user')}::uuid`,
    managesAll: sql`${param('manages_all')}::boolean`,
    managedGroups: sql`${param('managed_groups')}::integer[]`,
  }
}

/** The viewer of a row statement, whose values have their types. */
function viewerOfRow(param: Param<ViewerParameters>): Viewer {
  return { user: param('user'), managesAll: param('manages_all'), managedGroups: param('managed_groups') }
}

export type { Attached, WriteParameters }
