import { sql, type Transaction } from 'kysely'
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
export function planPruning(catalogue: Catalogue, document: OrganisationDocument): Plan {
  // Rows are removed before those that they refer to.
  const lists = SECTIONS.filter(section => document[section] !== undefined).reverse()
  const outcomes = lists.flatMap(section =>
    catalogue.unnamed(section).map(({ id, name }): Outcome => ({ section, id, name, action: 'removed', fields: [] })),
  )
  const store: Plan['store'] = async (trx, actor) => {
    for (const outcome of outcomes) {
      await sql`savepoint removal`.execute(trx)
      try {
        const notes = await removeRow(trx, outcome.section, outcome.id, actor)
        if (notes.length > 0) outcome.notes = notes
      } catch (error) {
        if (!(error instanceof pg.DatabaseError && error.code === SQLSTATE.foreignKeyViolation)) throw error
        await sql`rollback to savepoint removal`.execute(trx)
        Object.assign(outcome, { action: 'kept', reason: `still used in ${error.table}` })
      }
      await sql`release savepoint removal`.execute(trx)
    }
  }
  return { outcomes, store }
}

/** Removes one row with its dependent rows. An agent is marked as deleted, a user is deactivated. Returns notes for the operator. */
export async function removeRow(
  trx: Transaction<Tables>,
  section: SectionName,
  id: Id,
  actor: Actor,
): Promise<string[]> {
  if (section === 'agents') {
    await changeAsOperator(trx, personaDeletion, Number(id), decideDeletion, actor)
    return []
  }
  if (section === 'tools') {
    let notes: string[] = []
    await releaseTool(trx, Number(id), actor, OPERATOR)
    const decide: typeof decideRemoval = state => {
      const decision = decideRemoval(state)
      notes = decision.notes
      return decision
    }
    await changeAsOperator(trx, toolDeletion, Number(id), decide, actor)
    return notes
  }
  if (section === 'users') {
    await trx.updateTable('user_account').set({ active: false }).where('id', '=', String(id)).execute()
  } else {
    for (const { table, owner } of linksOf(section)) {
      await sql`delete from ${sql.table(table)} where ${sql.ref(owner)} = ${id}`.execute(trx)
    }
    await sql`delete from ${sql.table(TABLES[section].table)} where id = ${id}`.execute(trx)
  }
  const kind = TABLES[section].access
  const action = section === 'users' ? 'deactivated' : 'removed'
  if (kind !== undefined) await recordAccess(trx, actor, [{ kind, subject: String(id), action }])
  return []
}
