import { type Kysely, sql, type Transaction } from 'kysely'
import pg from 'pg'
import { OPERATOR } from '../../auth/viewer.js'
import { SQLSTATE } from '../../db/connection/database-error.js'
import type { Tables } from '../../db/tables.js'
import { personaDeletion, releaseTool } from '../../persona/life.js'
import { decideDeletion } from '../../persona/rules.js'
import { decideRemoval, toolDeletion } from '../../tool/life.js'
import { recordAccess } from '../../updates/access-events.js'
import type { Actor } from '../../updates/audit.js'
import { changeAsOperator } from '../../updates/engine.js'
import type { OrganisationDocument, SectionName } from '../document.js'
import { type Catalogue, type Id, type Outcome, type Plan, SECTIONS, TABLES } from './catalogue.js'
import { linksOf } from './records.js'

/**
 * Plans the removal of rows without an entry, in the lists that the document has. Agents are marked as deleted, as the service does. Users
 * are deactivated, because the audit trail and their resources refer to them. Other rows are removed unless a remaining row refers to them.
 */
export async function planPruning(
  db: Kysely<Tables>,
  catalogue: Catalogue,
  document: OrganisationDocument,
): Promise<Plan> {
  // Rows are removed before those that they refer to.
  const lists = SECTIONS.filter(section => document[section] !== undefined).reverse()
  const outcomes = lists.flatMap(section =>
    catalogue
      .unnamed(section)
      .filter(row => row.deleted !== true && !(section === 'users' && row.active === false))
      .map((row): Outcome => {
        return { section, id: row.id, name: String(row[TABLES[section].named]), action: 'removed', fields: [] }
      }),
  )
  for (const outcome of outcomes.filter(({ section }) => section === 'tools')) {
    const headers = await db
      .selectFrom('tool_header')
      .select('name')
      .where('tool_id', '=', Number(outcome.id))
      .execute()
    if (headers.length > 0) outcome.notes = [`its secrets are lost: ${headers.map(({ name }) => name).join(', ')}`]
  }
  const store: Plan['store'] = async (trx, actor) => {
    for (const outcome of outcomes) {
      await sql`savepoint removal`.execute(trx)
      try {
        await removeRow(trx, outcome.section, outcome.id, actor)
      } catch (error) {
        if (!(error instanceof pg.DatabaseError && error.code === SQLSTATE.foreignKeyViolation)) throw error
        await sql`rollback to savepoint removal`.execute(trx)
        Object.assign(outcome, { action: 'kept', reason: `still used by ${userIn(error.table)}`, notes: [] })
      }
      await sql`release savepoint removal`.execute(trx)
    }
  }
  return { outcomes, store }
}

/** Describes the referring row by its table. */
function userIn(table = ''): string {
  if (table.startsWith('persona')) return 'an agent'
  return `a ${table
    .replace(/^user_group_member/, 'group')
    .replace(/_(user|group|cc_pair|federated_connector)$/, '')
    .replaceAll('_', ' ')}`
}

/** Removes one row with its dependent rows. An agent is marked as deleted, a user is deactivated. */
export async function removeRow(trx: Transaction<Tables>, section: SectionName, id: Id, actor: Actor): Promise<void> {
  if (section === 'agents') {
    await changeAsOperator(trx, personaDeletion, Number(id), decideDeletion, actor)
    return
  }
  if (section === 'users') {
    await trx.updateTable('user_account').set({ active: false }).where('id', '=', String(id)).execute()
    await recordAccess(trx, actor, [{ kind: 'user', subject: String(id), action: 'deactivated' }])
    return
  }
  if (section === 'tools') {
    await releaseTool(trx, Number(id), actor, OPERATOR)
    await changeAsOperator(trx, toolDeletion, Number(id), decideRemoval, actor)
    return
  }
  for (const { table, owner } of linksOf(section)) {
    await sql`delete from ${sql.table(table)} where ${sql.ref(owner)} = ${id}`.execute(trx)
  }
  await sql`delete from ${sql.table(TABLES[section].table)} where id = ${id}`.execute(trx)
  const kind = TABLES[section].access
  if (kind !== undefined) await recordAccess(trx, actor, [{ kind, subject: String(id), action: 'removed' }])
}
