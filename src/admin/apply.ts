import { sql, type Transaction } from 'kysely'
import pg from 'pg'
import { SQLSTATE } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { personaDeletion, releaseTool } from '../persona/life.js'
import { decideDeletion } from '../persona/rules.js'
import { decideRemoval, toolDeletion } from '../tool/life.js'
import { changeAsOperator } from '../updates/engine.js'
import type { Actor } from '../updates/resource.js'
import { collectFaults, unknownFields } from '../validation/faults.js'
import { recordAccess } from './access-events.js'
import { type Catalogue, type Id, type Outcome, type Plan, readCatalogue, SECTIONS, TABLES } from './apply/catalogue.js'
import { planPersonas } from './apply/personas.js'
import { linksOf, planRecords, RECORD_SECTIONS } from './apply/records.js'
import { planTools, type ToolSurroundings } from './apply/tools.js'
import { changesInWords, readReferences } from './apply/words.js'
import { OrganisationDocument, type SectionName } from './document.js'
import { operatorActor } from './operator.js'
import { keepingAdministrator } from './people.js'
import { InvalidDocument } from './refusal.js'

export interface ApplyOptions extends ToolSurroundings {
  /** If true, nothing is stored. */
  plan?: boolean
  /** If true, also removes the stored rows that have no entry, for each list in the document. */
  prune?: boolean
  actor?: Actor
}

/** The result of applying a document. If `planned` is true, nothing was stored, and each new row has the placeholder `new` as its id. */
export interface ApplyReport {
  planned: boolean
  outcomes: Outcome[]
}

/** The key of the advisory lock for applying documents. Without the lock, two concurrent runs could create the same row twice. */
const APPLY_LOCK = 7_153_002

/**
 * Makes the database match an organisation document, in one transaction. Creates the rows that are missing and updates those that differ. Each
 * changed agent or tool gets a new version and an audit row. With `plan`, rolls the transaction back. Throws `InvalidDocument` with the faults of
 * the first check that fails. Throws `Refusal` if a row was changed concurrently or no administrator would remain.
 */
export async function applyOrganisation(
  database: Pick<Database, 'db'>,
  document: unknown,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const wanted = checkedDocument(document)
  const { plan = false, actor = operatorActor() } = options
  const work = async (trx: Transaction<Tables>) => {
    await lockApplies(trx)
    const catalogue = await readCatalogue(trx, wanted)
    const requireNoFaults = () => {
      if (catalogue.faults.length > 0) throw new InvalidDocument(catalogue.faults)
    }
    requireNoFaults()
    const plans: Plan[] = []
    for (const section of RECORD_SECTIONS) plans.push(await planRecords(trx, section, catalogue))
    plans.push(await planTools(trx, catalogue, options), await planPersonas(trx, catalogue))
    requireNoFaults()
    const outcomes = plans.flatMap(plan => plan.outcomes)
    await keepingAdministrator(trx, async () => {
      if (!plan) await catalogue.takeIds(trx)
      for (const { store } of plans) await store(trx, actor)
      const refer = await readReferences(trx)
      for (const outcome of outcomes) outcome.fields = changesInWords(outcome.fields, refer)
      if (options.prune) outcomes.push(...(await pruned(trx, catalogue, wanted, actor)))
    })
    const counts = countOutcomes({ outcomes })
    const applied = { kind: 'apply', subject: '', action: 'applied', detail: counts } as const
    await recordAccess(trx, actor, changesSomething(counts) ? [applied] : [])
    if (plan) for (const each of outcomes) if (each.action === 'created') each.id = 'new'
    return { planned: plan, outcomes }
  }
  return await withRetries(() => inTransaction(database, { rollback: plan }, work), Number.POSITIVE_INFINITY)
}

/** Acquires the lock for applying documents until the transaction ends. Only the statement timeout limits the wait. */
export async function lockApplies(trx: Transaction<Tables>): Promise<void> {
  await sql`set local lock_timeout = 0`.execute(trx)
  await sql`select pg_advisory_xact_lock(${sql.lit(APPLY_LOCK)})`.execute(trx)
  await sql`set local lock_timeout = default`.execute(trx)
}

export function countOutcomes({ outcomes }: Pick<ApplyReport, 'outcomes'>): Record<Outcome['action'], number> {
  const counts = { created: 0, changed: 0, unchanged: 0, removed: 0, kept: 0 }
  for (const { action } of outcomes) counts[action]++
  return counts
}

export function changesSomething({ created, changed, removed }: ReturnType<typeof countOutcomes>): boolean {
  return created + changed + removed > 0
}

/** Checks the types, limits and field names of a document. Throws `InvalidDocument` with all faults. */
function checkedDocument(document: unknown): OrganisationDocument {
  // Unknown fields are faults, because a misspelt field would have no effect.
  const unknown = unknownFields(OrganisationDocument, document)
  const faults = [
    ...collectFaults(OrganisationDocument, document, []),
    ...unknown.map(loc => ({ loc, msg: 'unknown field: correct its name, or remove it', type: 'extra_forbidden' })),
  ]
  if (faults.length > 0) throw new InvalidDocument(faults)
  return document as OrganisationDocument // the document has no faults
}

/**
 * In each list that the document contains, removes the rows without an entry. Agents are only marked as deleted, and users are only deactivated,
 * because other data refers to them. A row is kept if another row still refers to it.
 */
async function pruned(
  trx: Transaction<Tables>,
  catalogue: Catalogue,
  document: OrganisationDocument,
  actor: Actor,
): Promise<Outcome[]> {
  // Prunes the lists in reverse order, so that each row is removed before the rows that it refers to.
  const lists = SECTIONS.filter(section => document[section] !== undefined).reverse()
  const outcomes = lists.flatMap(section =>
    catalogue.unnamed(section).map(({ id, name }): Outcome => ({ section, id, name, action: 'removed', fields: [] })),
  )
  for (const outcome of outcomes) {
    await sql`savepoint removal`.execute(trx)
    try {
      const notes = await removeRow(trx, outcome.section, outcome.id, actor)
      if (notes.length > 0) outcome.notes = notes
    } catch (error) {
      if (!(error instanceof pg.DatabaseError && error.code === SQLSTATE.foreignKeyViolation)) throw error
      await sql`rollback to savepoint removal`.execute(trx)
      const noun = Object.values(TABLES).find(({ table }) => error.table?.startsWith(table))?.noun
      Object.assign(outcome, { action: 'kept', reason: `${noun}s still refer to it: remove these references first` })
    }
    await sql`release savepoint removal`.execute(trx)
  }
  return outcomes
}

/** Removes one row and its links. Only marks an agent as deleted, and only deactivates a user. Returns notes for the operator. */
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
    await releaseTool(trx, Number(id), actor)
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
