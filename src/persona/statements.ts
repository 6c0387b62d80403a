import { type Expression, type Kysely, type SqlBool, sql } from 'kysely'
import { jsonArrayFrom, jsonBuildObject } from 'kysely/helpers/postgres'
import { isAdmin } from '../auth/caller.js'
import {
  grantsStand,
  type PersonaAccess,
  personaAccess,
  seesTool,
  type Viewer,
  type ViewerParameters,
  viewerWithValues,
} from '../auth/viewer.js'
import { anyOf, arrayOf, named, on, queries, val } from '../db/statements/queries.js'
import type { ShareLevel, Tables } from '../db/tables.js'
import { toolStates } from '../tool/snapshot.js'
import { pagesOf, type ReadPage } from '../updates/list.js'
import { insertAudit, nextVersion, writing } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import { COLUMNS, type Id, linkOf, type PersonaColumn, RELATIONS, type Relation, type StoredLink } from './fields.js'
import { type Attached, NO_REFERENCES, type References } from './rules.js'
import { PersonaSummary } from './schema.js'

/** Stores an agent's columns and an audit row. Stores nothing if the agent is locked, or if its version or the caller's rights have changed. */
export const writePersona = writing<PersonaColumn, { access: PersonaAccess }, { version: number }>(
  'persona_write',
  COLUMNS,
  { access: 'text' },
  (param, changed) => {
    const written = queries()
      .with(
        cte => cte('locked').materialized(),
        () =>
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
          .set({ ...changed, ...nextVersion('p', param) })
          .whereRef('p.id', '=', 'locked.id')
          .returning(['p.audit_head as hash', 'locked.previous']),
      )
    return insertAudit(param, written)
  },
)

/** The links of one relation that an update removes and adds. */
export interface LinkChanges {
  relation: Relation
  removed: readonly Id[]
  put: readonly StoredLink[]
}

/** Returns the link table of a relation, typed as `persona_user`. `end` is the column with the ids of the linked records. */
const linkTable = (relation: Relation) => {
  const { table, column } = linkOf(relation)
  return { table: table as 'persona_user', end: column as 'user_id' }
}

/** Locks the links of one relation that an update will remove. */
export async function lockLinks(db: Kysely<Tables>, agent: number, { relation, removed }: LinkChanges): Promise<void> {
  const { table, end } = linkTable(relation)
  const links = db.selectFrom(table).select(end).where('persona_id', '=', agent).where(end, 'in', removed.map(String))
  if (removed.length > 0) await links.forUpdate().execute()
}

/** Removes and adds the links of one relation. `user` is the user who attaches the added tools. */
export async function writeLinks(
  db: Kysely<Tables>,
  agent: number,
  { relation, removed, put }: LinkChanges,
  user: string | null,
): Promise<void> {
  const { attacher } = linkOf(relation)
  const { table, end } = linkTable(relation)
  if (removed.length > 0)
    await db.deleteFrom(table).where('persona_id', '=', agent).where(end, 'in', removed.map(String)).execute()
  const rows = put.map(one => {
    const { id, ...level } = typeof one === 'object' ? one : { id: one }
    return { persona_id: agent, [end]: id, ...level, ...(attacher && { [attacher]: user }) }
  }) as { persona_id: number; user_id: string; level: ShareLevel }[]
  if (rows.length > 0) await db.insertInto(table).values(rows).execute()
}

/**
 * Reads the records in `attached` that the viewer may attach. Also reads tools that the viewer can see but has no right to attach. With `locks`,
 * first locks the records as an insert of links would, so that the rights are checked after the last wait for a lock.
 */
export async function readReferences(
  db: Kysely<Tables>,
  attached: Attached,
  viewer: ViewerParameters,
  locks = false,
): Promise<References> {
  const asked = RELATIONS.flatMap(([relation, { link }]) => {
    const ids = (attached[relation] ?? []).filter(id => typeof id === 'string' || isInt4(id)) // larger ids cannot exist
    const list = sql<never[]>`${val(ids)}::${sql.raw(link.idType)}[]`
    return ids.length === 0 ? [] : [{ relation, ids, found: ATTACHABLE[relation](list, viewer) }]
  })
  if (asked.length === 0) return NO_REFERENCES
  if (locks) for (const { relation, ids } of asked) await lockRecords(db, relation, ids)
  const members = Object.fromEntries(asked.map(each => [each.relation, each.found]))
  const found = db.selectNoFrom(jsonBuildObject(members).as('references'))
  const { references } = await found.$castTo<{ references: Partial<References> }>().executeTakeFirstOrThrow()
  return { ...NO_REFERENCES, ...references }
}

async function lockRecords(trx: Kysely<Tables>, relation: Relation, ids: readonly Id[]): Promise<void> {
  const { section, column } = linkOf(relation)
  const table = (section === 'users' ? 'user_account' : column.replace(/_id$/, '')) as 'user_account' // all linked tables have an id
  await trx.selectFrom(table).select('id').where('id', 'in', ids.map(String)).orderBy('id').forKeyShare().execute()
}

/** SQL for each relation: the records with these `ids` that `readReferences` returns (DECISIONS section 3). */
const ATTACHABLE: Record<Relation, (ids: Expression<never[]>, viewer: ViewerParameters) => Expression<unknown>> = {
  tool_ids: (ids, parameters) => {
    const viewer = viewerWithValues(parameters)
    const seen = toolStates(viewer).where('t.id', '=', anyOf(ids)).where(seesTool(viewer)).orderBy('t.id')
    return jsonArrayFrom(seen.select(named(isAttachable(viewer), 'attachable')))
  },
  document_set_ids: (ids, { user, is_admin }) => {
    const sets = queries().selectFrom('document_set as s').select('s.id').where('s.id', '=', anyOf(ids))
    const readable = sets.where(({ exists, or, ref, selectFrom }) => {
      const ofUsers = selectFrom('document_set_user as m').where('m.user_id', '=', user)
      const ofGroups = selectFrom('document_set_group as m')
        .innerJoin('user_group_member as g', 'g.user_group_id', 'm.user_group_id')
        .where('g.user_id', '=', user)
      return or([
        ref('s.is_public'),
        exists(ofUsers.whereRef('m.document_set_id', '=', 's.id')),
        exists(ofGroups.whereRef('m.document_set_id', '=', 's.id')),
      ])
    })
    const shown = queries().selectFrom('shown_document_set').selectAll().orderBy('id')
    return jsonArrayFrom(shown.where('id', 'in', is_admin ? sets : readable))
  },
  label_ids: ids =>
    jsonArrayFrom(queries().selectFrom('label').select(['id', 'name']).where('id', '=', anyOf(ids)).orderBy('id')),
  user_file_ids: (ids, { user, is_admin }) => {
    const files = queries().selectFrom('user_file as f').select('f.id').where('f.id', '=', anyOf(ids))
    return arrayOf(is_admin ? files : files.where('f.owner_id', '=', user))
  },
  users: ids =>
    jsonArrayFrom(
      queries().selectFrom('user_account').select(['id', 'email']).where('id', '=', anyOf(ids)).orderBy('id'),
    ),
  groups: ids => arrayOf(queries().selectFrom('user_group as g').select('g.id').where('g.id', '=', anyOf(ids))),
}

/** SQL: true if the viewer may attach the tool `t`. For a tool of an MCP server, the viewer must manage all tools or own the tool or its server. */
function isAttachable({ managesAll, user }: Viewer): Expression<SqlBool> {
  const { eb, exists, or, selectFrom } = on<{ t: 'tool' }>()
  const servers = selectFrom('mcp_server as m').whereRef('m.id', '=', 't.mcp_server_id').where('m.owner_id', '=', user)
  return or([eb('t.mcp_server_id', 'is', null), managesAll, eb('t.user_id', '=', user), exists(servers)])
}

const readPage = pagesOf('persona', PersonaSummary, 'owner_id')
const listed = on<{ r: 'persona' }>()

/** Reads a page of the agents that the caller and their token can see. */
export const readPersonaPage: ReadPage = (db, caller, asked) => {
  const { deleted = false } = asked
  const isSeen = deleted ? listed('r.owner_id', '=', caller.userId) : isSeenBy(caller.userId)
  const rights = isAdmin(caller) ? [] : [isSeen]
  return readPage(
    db,
    asked,
    caller.token.bound?.persona ?? null,
    listed.and([listed('r.deleted', '=', deleted), ...rights]),
  )
}

/** SQL: true if the user owns the agent `r`, or if the agent is public or shared with the user or their groups. */
function isSeenBy(user: string): Expression<SqlBool> {
  const { eb, or, ref, selectFrom } = listed
  const shared = selectFrom('persona_user as s').select('s.persona_id').where('s.user_id', '=', user)
  const ofGroups = selectFrom('persona_group as s')
    .innerJoin('user_group_member as m', 'm.user_group_id', 's.user_group_id')
    .select('s.persona_id')
    .where('m.user_id', '=', user)
  return or([eb('r.owner_id', '=', user), ref('r.is_public'), eb('r.id', 'in', shared), eb('r.id', 'in', ofGroups)])
}
