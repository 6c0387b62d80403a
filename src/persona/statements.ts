import type { AliasedExpression, Expression, SelectQueryBuilder, SqlBool } from 'kysely'
import { sql } from 'kysely'
import { jsonArrayFrom, jsonBuildObject, jsonObjectFrom } from 'kysely/helpers/postgres'
import { type PersonaAccess, personaAccess, seesTool, type Viewer } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { grantsStand, VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { pageRows } from '../db/statements/page-rows.js'
import {
  anyOf,
  arrayOf,
  isOnly,
  itemsOf,
  jsonText,
  lit,
  materialized,
  named,
  on,
  queries,
  recordsOf,
} from '../db/statements/queries.js'
import { type Executor, type Param, type SqlTypes, statement } from '../db/statements/statement.js'
import type { PersonaTable, ShareLevel, Tables } from '../db/tables.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow } from '../http/pages.js'
import { shownTools } from '../tool/snapshot.js'
import { AUDIT_TYPES, type AuditEntry, insertAudit } from '../updates/audit.js'
import { changedColumns, nextVersion } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import { COLUMNS, type Id, type IdOf, linkOf, RELATIONS, type Relation } from './fields.js'
import { type Attached, NO_REFERENCES, type References } from './rules.js'
import { type PersonaState, personaState, relatedRecords } from './state.js'

/** Reads the state of one agent as the viewer sees it. */
export const readState = statement<ViewerParameters & { id: number }, { state: PersonaState }>(
  'persona_state',
  { ...VIEWER_TYPES, id: 'integer' },
  param =>
    queries()
      .selectFrom('persona as p')
      .select(personaState(viewerOf(param)).as('state'))
      .where('p.id', '=', param('id')),
)

type WriteParameters = ViewerParameters &
  AuditEntry & { id: number; version: number; access: PersonaAccess; changed_columns: string; field_versions: string }

/** Stores an agent's columns and its audit row if the row is not locked, and version and rights are those of the decision. */
export const writePersona = statement<WriteParameters, { version: number }>(
  'persona_write',
  {
    ...VIEWER_TYPES,
    ...AUDIT_TYPES,
    ...{ id: 'integer', version: 'integer', access: 'text', changed_columns: 'jsonb', field_versions: 'jsonb' },
  },
  param =>
    queries()
      .with(materialized('locked'), () =>
        queries()
          .selectFrom('persona as p')
          .select(['p.id', 'p.audit_head as previous'])
          .where('p.id', '=', param('id'))
          .where('p.version', '=', param('version'))
          .where(personaAccess(param('user')), '=', param('access'))
          .where(grantsStand(param))
          .forNoKeyUpdate('p')
          .skipLocked(),
      )
      .with('changed', db =>
        db
          .updateTable('persona as p')
          .from('locked')
          .set({ ...changedColumns('p', COLUMNS, param('changed_columns')), ...nextVersion('p', param) })
          .whereRef('p.id', '=', 'locked.id')
          .returning(['p.version', 'p.audit_head as hash', 'locked.previous']),
      )
      .with('audited', () => insertAudit(param))
      .selectFrom('changed')
      .select('version'),
  true,
)

interface LinkParameters {
  id: number
  user: string | null
  removed: (number | string)[]
  /** Ids; of shares JSON text with ids and levels. */
  put: (number | string)[] | string
}

/** Removes and adds the links of one relation. A share with a new level is added again. */
export const writeLinks = Object.fromEntries(RELATIONS.map(([relation]) => [relation, linksStatement(relation)])) as {
  [R in Relation]: ReturnType<typeof linksStatement> // has one entry for each
}

function linksStatement(relation: Relation) {
  const { idType, isShare, attacher, ...link } = linkOf(relation)
  const [table, end] = [link.table as 'link', link.column as 'end'] // only the common columns are used
  const types = { id: 'integer', user: 'uuid', removed: `${idType}[]`, put: isShare ? 'jsonb' : `${idType}[]` }
  return statement<LinkParameters, object>(
    `persona_links(${relation})`,
    types,
    param => {
      const given = param('put') as Expression<never[]>
      const agent = named(param('id'), 'persona_id')
      const db = queries<{ link: LinkRow }>().with('gone', db =>
        db
          .deleteFrom(`${table} as l`)
          .where('l.persona_id', '=', param('id'))
          .where(`l.${end}`, '=', anyOf(param('removed') as Expression<never[]>)),
      )
      const ids = queries().selectFrom(itemsOf(given, 'put')).select([agent, 'put.id'])
      const shares = queries()
        .selectFrom(
          recordsOf<{ id: number; level: ShareLevel }, 'share'>(given, 'share', { id: idType, level: 'text' }),
        )
        .select([agent, 'share.id', 'share.level'])
      return isShare
        ? db
            .insertInto(table)
            .columns(['persona_id', end, 'level'])
            .expression(shares)
            .onConflict(conflict =>
              conflict.columns(['persona_id', end]).doUpdateSet(({ ref }) => ({ level: ref('excluded.level') })),
            )
        : db
            .insertInto(table)
            .columns(['persona_id', end, ...(attacher ? [attacher] : [])])
            .expression(attacher ? ids.select(named(param('user'), attacher)) : ids)
    },
    true,
  )
}

/** The common columns of link tables. `end` is the column of the linked record. */
interface LinkRow {
  persona_id: number
  end: never
  level: ShareLevel
  attached_by: string | null
}

type RelationLists = { [R in Relation]: IdOf<R>[] }

type Attachable<R extends Relation> = (
  ids: Expression<IdOf<R>[]>,
  viewer: ReturnType<typeof viewerOf>,
) => SelectQueryBuilder<Tables, never, { id: unknown }>

const db = queries()

/** SQL: one row for each id that exists and that the viewer may attach (DECISIONS section 3). */
const ATTACHABLE: { [R in Relation]: Attachable<R> } = {
  tool_ids: (ids, viewer) => seenTools(ids, viewer).where('t.enabled', '=', lit(true)).where(attachableTool(viewer)),
  document_set_ids: (ids, { user, isAdmin }) =>
    db
      .selectFrom('document_set as s')
      .select('s.id')
      .where('s.id', '=', anyOf(ids))
      .where(({ exists, or, ref, selectFrom }) => {
        const ofUsers = selectFrom('document_set_user as m').where('m.user_id', '=', user)
        const ofGroups = selectFrom('document_set_group as m')
          .innerJoin('user_group_member as g', 'g.user_group_id', 'm.user_group_id')
          .where('g.user_id', '=', user)
        return or([
          isAdmin,
          ref('s.is_public'),
          exists(ofUsers.whereRef('m.document_set_id', '=', 's.id')),
          exists(ofGroups.whereRef('m.document_set_id', '=', 's.id')),
        ])
      }),
  label_ids: ids => db.selectFrom('label as l').select('l.id').where('l.id', '=', anyOf(ids)),
  user_file_ids: (ids, { user, isAdmin }) =>
    db
      .selectFrom('user_file as f')
      .select('f.id')
      .where('f.id', '=', anyOf(ids))
      .where(({ eb, or }) => or([isAdmin, eb('f.owner_id', '=', user)])),
  users: ids => db.selectFrom('user_account as u').select('u.id').where('u.id', '=', anyOf(ids)),
  groups: ids => db.selectFrom('user_group as g').select('g.id').where('g.id', '=', anyOf(ids)),
}

/** SQL: the tools `t` with these ids that the viewer's token may see. */
function seenTools(ids: Expression<number[]>, viewer: Viewer) {
  return db.selectFrom('tool as t').select('t.id').where('t.id', '=', anyOf(ids)).where(seesTool(viewer))
}

/** SQL: the viewer may attach the tool. A tool of an MCP server needs a manager of all tools, or the owner of the tool or server. */
function attachableTool({ managesAll, user }: Viewer): Expression<SqlBool> {
  const { eb, exists, or, selectFrom } = on<{ t: 'tool' }>()
  const servers = selectFrom('mcp_server as m').whereRef('m.id', '=', 't.mcp_server_id').where('m.owner_id', '=', user)
  return or([eb('t.mcp_server_id', 'is', null), managesAll, eb('t.user_id', '=', user), exists(servers)])
}

const REFERENCE_TYPES: SqlTypes<ViewerParameters & RelationLists> = {
  ...VIEWER_TYPES,
  ...(Object.fromEntries(RELATIONS.map(([relation, { link }]) => [relation, `${link.idType}[]`])) as Record<
    Relation,
    string
  >),
}

/** Reads the records with these ids that exist and that the viewer may attach; of tools all that they see. */
export async function readReferences(db: Executor, attached: Attached, viewer: ViewerParameters): Promise<References> {
  if (Object.keys(attached).length === 0) return NO_REFERENCES
  // No record can have the other ids.
  const storable = (ids: readonly Id[] = []) => ids.filter(id => typeof id === 'string' || isInt4(id))
  const lists = Object.fromEntries(RELATIONS.map(([relation]) => [relation, storable(attached[relation])]))
  const row = await REFERENCES.first(db, { ...viewer, ...(lists as unknown as RelationLists) }) // has one entry for each
  return row?.references ?? NO_REFERENCES
}

const REFERENCES = statement<ViewerParameters & RelationLists, { references: References }>(
  'persona_references',
  REFERENCE_TYPES,
  param => {
    const viewer = viewerOf(param)
    const attachable = <R extends Relation>(relation: R) =>
      arrayOf(ATTACHABLE[relation](param(relation) as Expression<never[]>, viewer)) as Expression<never[]>
    const ids = { document_set_ids: attachable('document_set_ids'), label_ids: attachable('label_ids') }
    const tools = shownTools(arrayOf(seenTools(param('tool_ids'), viewer)), viewer)
    const references = {
      ...relatedRecords({ ...ids, users: attachable('users') }),
      groups: attachable('groups'),
      user_file_ids: attachable('user_file_ids'),
      tool_ids: jsonArrayFrom(tools.select(named(attachableTool(viewer), 'attachable'))),
    }
    return queries().selectNoFrom(jsonBuildObject(references).as('references')).$castTo<{ references: References }>()
  },
)

/* Lists of agents, by pages. The agents that a caller sees come from four indexes. */

interface Parameters {
  user: string
  sees_all: boolean
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

/** A constant tells the planner that a page is short. */
const MOST = lit(PAGE_RECORDS_MAX + 1)

/** Expressions on the alias `p` of the enclosing query: an agent. */
const persona = on<{ p: 'persona' }>()
const OWNER = persona.selectFrom('user_account as u').select(['u.id', 'u.email']).whereRef('u.id', '=', 'p.owner_id')
const column = <Name extends keyof PersonaTable>(name: Name) => persona.ref(`p.${name}`).as(name)
const RECORD = jsonText(
  queries().selectNoFrom([
    ...(['id', 'name', 'description'] as const).map(column),
    jsonObjectFrom(OWNER).as('owner'),
    ...(['is_public', 'is_visible', 'is_default_persona', 'builtin_persona'] as const).map(column),
    persona.fn<string>('format', [lit('"persona-%s-%s"'), 'p.id', 'p.version']).as('etag'),
  ]),
)

/** The agents of a list: all (for an administrator), those that a token is bound to, or those that the caller sees. */
type Scope = 'all' | 'bound' | 'seen'

const PAGE_TYPES = {
  ...{ user: 'uuid', sees_all: 'boolean', after: 'integer', rows: 'integer', name: 'text', ids: 'integer[]' },
} satisfies SqlTypes<Parameters>

const PAGES = { all: pagesOf('all'), bound: pagesOf('bound'), seen: pagesOf('seen') }

/** Reads up to `rows` agents that the caller and the token may see, after an id. */
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
  const name = `persona_page(${scope}${isNamed ? ' of a name' : ''})`
  return statement<Parameters, PageRow>(name, PAGE_TYPES, param => {
    const isSeen = scope === 'seen' && !isNamed
    const found = isSeen ? seenAgents(param) : queries().selectFrom('persona as p').selectAll('p')
    const sees = persona.or([param('sees_all'), persona(personaAccess(param('user')), '<>', lit('none'))])
    const page = found
      .where('p.id', '>', param('after'))
      .where(({ not, ref }) => not(ref('p.deleted')))
      .$if(isNamed, query => query.where(isOnly(persona.ref('p.name'), param('name'))).orderBy('p.name'))
      .$if(scope === 'bound', query => query.where('p.id', '=', anyOf(param('ids'))))
      .$if(scope !== 'all' && !isSeen, query => query.where(sees))
      .orderBy('p.id')
      .limit(MOST)
    return pageRows(page, 'p', RECORD, param('rows'))
  })
}

/**
 * SQL: the first agents `p` that the user owns, that are public, or that are shared with the user or a group. Each is read by primary key:
 * `offset 0` stops the planner from scanning all agents in order.
 */
function seenAgents(param: Param<Parameters>) {
  const [user, after] = [param('user'), param('after')]
  const first = <DB, TB extends keyof DB>(
    query: SelectQueryBuilder<DB, TB, { id: number }>,
    id: 'c.id' | 's.persona_id',
  ) => {
    return query.where(sql.ref<number>(id), '>', after).orderBy(sql.ref(id)).limit(MOST)
  }
  const living = db
    .selectFrom('persona as c')
    .select('c.id')
    .where(({ not, ref }) => not(ref('c.deleted')))
  const owned = first(living.where('c.owner_id', '=', user), 'c.id')
  const open = first(
    living.where(({ ref }) => ref('c.is_public')),
    'c.id',
  )
  const shared = first(
    db
      .selectFrom('persona_user as s')
      .innerJoin('persona as c', 'c.id', 's.persona_id')
      .select('s.persona_id as id')
      .where(({ not, ref }) => not(ref('c.deleted')))
      .where('s.user_id', '=', user),
    's.persona_id',
  )
  const ofGroup = first(
    on<{ m: 'user_group_member' }>()
      .selectFrom('persona_group as s')
      .innerJoin('persona as c', 'c.id', 's.persona_id')
      .select('s.persona_id as id')
      .where(({ not, ref }) => not(ref('c.deleted')))
      .whereRef('s.user_group_id', '=', 'm.user_group_id'),
    's.persona_id',
  )
  const ofGroups = db
    .selectFrom('user_group_member as m')
    .crossJoinLateral(ofGroup.as('s'))
    .select('s.id')
    .where('m.user_id', '=', user)
  const all = [open, shared, ofGroups].reduce((sum, one) => sum.union(whole(one)), whole(owned))
  return db
    .with(materialized('candidate'), () => db.selectFrom(all.as('one')).select('one.id').orderBy('one.id').limit(MOST))
    .selectFrom('candidate')
    .crossJoinLateral(({ ref, selectFrom }) =>
      selectFrom('persona').selectAll().where('persona.id', '=', ref('candidate.id')).offset(lit(0)).as('p'),
    )
    .selectAll('p')
}

/** SQL: wraps a query that has its own order and limit, for use in a union. */
function whole(query: Expression<{ id: number }> & { as(alias: 'one'): AliasedExpression<{ id: number }, 'one'> }) {
  return db.selectFrom(query.as('one')).select('one.id')
}
