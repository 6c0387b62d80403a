import { sql, type Transaction } from 'kysely'
import type { Database } from '../db/database.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { collectFaults, unknownFields } from '../validation/faults.js'
import { type Outcome, type Plan, readCatalogue } from './apply/catalogue.js'
import { planPersonas } from './apply/personas.js'
import { planPruning } from './apply/pruning.js'
import { planRecords, RECORD_SECTIONS } from './apply/records.js'
import { planTools, type ToolSurroundings } from './apply/tools.js'
import { changesInWords, readReferences } from './apply/words.js'
import { OrganisationDocument } from './document.js'
import { operatorActor } from './operator.js'
import { keepingAdministrator } from './people.js'
import { InvalidDocument } from './refusal.js'

export interface ApplyOptions extends ToolSurroundings {
  /** Only decide; store nothing. */
  plan?: boolean
  /** In the lists that the document has, remove rows without an entry. */
  prune?: boolean
  /** The author for the audit trail. */
  actor?: Actor
}

/** The result of applying a document. `planned`: nothing was stored. */
export interface ApplyReport {
  planned: boolean
  outcomes: Outcome[]
}

/** Serializes documents: two at once could both create the same row. */
const APPLY_LOCK = 7_153_002

/**
 * Makes the database match an organisation document, in one transaction: rows are found by id, or by name where the entry names the owner;
 * they are created if missing, and updated where a field of the document differs. Applying it again changes nothing. A plan is the same
 * transaction, rolled back. Each changed agent or tool gets a version and an audit row.
 *
 * Throws, with nothing stored, `InvalidDocument` with all faults, or `Refusal` if a row changed meanwhile or no administrator would remain.
 */
export async function applyOrganisation(
  database: Pick<Database, 'db'>,
  document: unknown,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const wanted = checkedDocument(document)
  const { plan = false, actor = operatorActor() } = options
  return await inTransaction(database, { rollback: plan }, async trx => {
    await lockApplies(trx)
    const namesBefore = await readReferences(trx)
    const catalogue = await readCatalogue(trx, wanted)
    const requireNoFaults = () => {
      if (catalogue.faults.length > 0) throw new InvalidDocument(catalogue.faults)
    }
    requireNoFaults()
    const plans: Plan[] = []
    for (const section of RECORD_SECTIONS) plans.push(await planRecords(trx, section, catalogue))
    plans.push(await planTools(trx, catalogue, options), await planPersonas(trx, catalogue))
    if (options.prune) plans.push(planPruning(catalogue, wanted))
    requireNoFaults()
    await keepingAdministrator(trx, async () => {
      if (!plan) await catalogue.takeIds(trx)
      for (const { store } of plans) await store(trx, actor)
    })
    const outcomes = plans.flatMap(plan => plan.outcomes)
    const refer = await readReferences(trx, namesBefore)
    for (const outcome of outcomes) outcome.fields = changesInWords(outcome.fields, refer)
    const counts = countOutcomes({ outcomes })
    const report = { planned: plan, outcomes }
    if (!changesSomething(counts)) return report
    await recordAccess(trx, actor, [{ kind: 'apply', subject: '', action: 'applied', detail: counts }])
    return report
  })
}

/** Waits without limit until no other document is being applied. The lock ends with the transaction. */
export async function lockApplies(trx: Transaction<Tables>): Promise<void> {
  await sql`set local lock_timeout = 0`.execute(trx)
  await sql`select pg_advisory_xact_lock(${sql.lit(APPLY_LOCK)})`.execute(trx)
  await sql`set local lock_timeout = default`.execute(trx)
}

/** Counts the rows by outcome. */
export function countOutcomes({ outcomes }: Pick<ApplyReport, 'outcomes'>): Record<Outcome['action'], number> {
  const counts = { created: 0, changed: 0, unchanged: 0, removed: 0, kept: 0 }
  for (const { action } of outcomes) counts[action]++
  return counts
}

/** True if rows were created, changed or removed. */
export function changesSomething({ created, changed, removed }: ReturnType<typeof countOutcomes>): boolean {
  return created + changed + removed > 0
}

/** Checks the shape of a document: types, limits and unknown names. Throws `InvalidDocument` with all faults. */
function checkedDocument(document: unknown): OrganisationDocument {
  // An unknown name is a fault, because a mistyped field would silently change nothing.
  const unknown = unknownFields(OrganisationDocument, document)
  const faults = [
    ...collectFaults(OrganisationDocument, document, []),
    ...unknown.map(loc => ({ loc, msg: 'this field is unknown', type: 'extra_forbidden' })),
  ]
  if (faults.length > 0) throw new InvalidDocument(faults)
  return document as OrganisationDocument // it passed the schema
}
