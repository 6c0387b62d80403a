import { sql, type Transaction } from 'kysely'
import { CommitUnknown } from '../db/connection/database-error.js'
import { classifyDatabaseError } from '../db/connection/sqlstate.js'
import type { Database } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import type { Fault } from '../errors.js'
import { collectFaults, unknownFields } from '../schema/faults.js'
import type { Vault } from '../secrets/vault.js'
import type { DefinitionLimits } from '../tool/definition/index.js'
import { recordAccess } from '../updates/access-events.js'
import { type Actor, sha256 } from '../updates/audit.js'
import {
  type Catalogue,
  matchDocument,
  type Reserve,
  readCatalogue,
  reserveForPlan,
  reserveForTrial,
  reserveInDatabase,
} from './apply/catalogue.js'
import { nameAuthors } from './apply/drift.js'
import { planPersonas } from './apply/personas.js'
import { DEFAULT_PREFIX } from './apply/placeholders.js'
import { planPruning } from './apply/pruning.js'
import { planReferenceSections, REFERENCE_SECTIONS } from './apply/reference-sections.js'
import { type ApplyReport, countOutcomes, type Outcome } from './apply/report.js'
import { type Plan, portions, type Step } from './apply/step.js'
import { planTools } from './apply/tools.js'
import { takeTurn } from './apply/turn.js'
import { OrganisationDocument } from './document.js'
import { earlierWritersEnded } from './earlier-writers.js'
import { operatorActor } from './operator.js'
import { keepingAdministrator } from './people.js'
import { InvalidDocument, Refusal } from './refusal.js'

export type { ApplyReport, Outcome } from './apply/report.js'
export { countOutcomes } from './apply/report.js'

export interface ApplyOptions {
  vault: Vault
  /** Where the values of `${env:NAME}` come from. Null: a value stands as it is written. */
  env: Readonly<Record<string, string | undefined>> | null
  /** How the names of such variables begin. Default `AGENTS_`. */
  envPrefix?: string
  /** Decide only; nothing is stored. */
  plan?: boolean
  /** Remove what no entry names, in the lists that the document has. */
  prune?: boolean
  /** An agent or tool without an id is a new one, also where its name exists. */
  asNew?: boolean
  /** The folder from which `definition_file` starts; without it none can be named. */
  baseDir?: string
  /** Who applies it, for the audit trail. */
  actor?: Actor
  /** What a definition may hold; by default the limits of the check. */
  definitionLimits?: Partial<DefinitionLimits>
  /** The most that the tools of an agent may take in an answer; without it nothing is said of what takes more. */
  snapshotBytesMax?: number
  /** Answers, when a large document begins to be stored, what ends that between two portions. */
  interruption?(): AbortSignal
  /** Hears what is being done. */
  progress?(stage: string, done?: number, total?: number): void
}

/** A document that changes no more rows than this is stored as a whole. */
const WHOLE_ROWS_MAX = 100
/** How many existing rows are held at once while a larger one is stored: about a tenth of a second. */
const PORTION_ROWS = 20

/** A large document was stored in part: what was stored stays, and applying it again goes on. Its cause says why. */
export class PartlyApplied extends Error {
  constructor(
    readonly stored: number,
    readonly total: number,
    cause: unknown,
  ) {
    const count = cause instanceof CommitUnknown ? `at least ${stored}` : String(stored)
    super(`${count} of ${total} changes are stored and stay; apply the document again to go on`, { cause })
  }
}

/**
 * Brings the database to what an organisation document says: rows are found by id or name, made when they are missing, and changed
 * where a field that the document names differs. Applying it again changes nothing.
 *
 * Everything is checked first: with any fault nothing is stored, and no id is taken. Then a document that changes at most 100 rows
 * is stored in one transaction. A larger one is stored in portions, so that nobody waits long for a row: new rows of a list
 * together, existing ones 20 at a time, in the order in which they refer to each other, so that no reference is ever
 * open. Each agent and tool changes as a whole, under its row's lock, with a version and an audit row. One document at a
 * time: another one waits for its turn.
 *
 * Throws `InvalidDocument` with every fault, `Refusal` when a needed key is missing or nobody would administer afterwards;
 * `PartlyApplied` when the database refuses, or the caller interrupts, in the middle of a large one.
 */
export async function applyOrganisation(
  database: Pick<ServiceDatabase, 'db'>,
  document: unknown,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const wanted = checkedDocument(document)
  const report = await inTransaction(database, { rollback: options.plan === true }, async trx => {
    if (!options.plan) await takeTurn(trx, () => options.progress?.('waiting for another apply to end'))
    options.progress?.('comparing the document with the database')
    const planned = await planAll(trx, wanted, options, reserveForPlan())
    if (options.plan) {
      await nameAuthors(trx, planned.outcomes)
      if (planned.outcomes.some(mayTakeAccess)) {
        const { steps } = await planAll(trx, wanted, options, reserveForTrial())
        await requireAdministrator(trx, steps, options.actor ?? operatorActor()).catch(asUntried)
      }
      return { planned: true, outcomes: planned.outcomes }
    }
    // Everything is checked: only now are ids taken, which no rollback gives back.
    const { outcomes, steps } = await planAll(trx, wanted, options, reserveInDatabase(trx))
    const actor = options.actor ?? operatorActor()
    const report = { planned: false, outcomes }
    const total = rowsOf(steps)
    const said = (action: string): Step => recordStep(action, wanted, report)
    if (total > WHOLE_ROWS_MAX) {
      await storeInPortions(database, trx, [said('begun'), ...steps, said('completed')], actor, options)
    } else if (total > 0) {
      await keepingAdministrator(trx, async () => await runAll(trx, [...steps, said('applied')], actor))
    }
    return report
  })
  if (!report.planned && report.outcomes.some(mayTakeAccess)) await earlierWritersEnded(database.db)
  return report
}

function mayTakeAccess({ section, action }: Outcome): boolean {
  return (section === 'users' || section === 'groups') && (action === 'changed' || action === 'removed')
}

/** What the audit trail says of a document: how many rows met which fate, and the SHA-256 of its JSON without header values. */
function recordStep(action: string, document: unknown, report: ApplyReport): Step {
  const withoutSecrets = JSON.stringify(document, (key, value) => (key === 'custom_headers' ? undefined : value))
  const detail = { ...countOutcomes(report), document_sha256: sha256(withoutSecrets) }
  const run: Step['run'] = (trx, actor) => recordAccess(trx, actor, [{ kind: 'apply', subject: '', action, detail }])
  return { rows: 0, people: false, run }
}

/** Stores a large document while `turn`, the transaction with the lock, is kept open. */
async function storeInPortions(
  database: Pick<ServiceDatabase, 'db'>,
  turn: Transaction<Database>,
  steps: readonly Step[],
  actor: Actor,
  { progress, interruption }: ApplyOptions,
): Promise<void> {
  await sql`set local idle_in_transaction_session_timeout = 0`.execute(turn)
  // Before anything is stored.
  await inTransaction(database, { rollback: true }, trx => requireAdministrator(trx, steps, actor))
  const total = rowsOf(steps)
  const signal = interruption?.()
  let stored = 0
  for (const portion of portions(steps, PORTION_ROWS)) {
    if (signal?.aborted) throw new PartlyApplied(stored, total, new Refusal('interrupted'))
    progress?.('storing', stored, total)
    try {
      await keepingAdministrator(database.db, async trx => await runAll(trx, portion, actor))
    } catch (error) {
      throw new PartlyApplied(stored, total, error)
    }
    stored += rowsOf(portion)
  }
}

/** That somebody still administers behind these steps, tried in a transaction that is rolled back. Throws `Refusal`. */
async function requireAdministrator(trx: Transaction<Database>, steps: readonly Step[], actor: Actor): Promise<void> {
  const people = steps.filter(step => step.people)
  await keepingAdministrator(trx, async () => await runAll(trx, people, actor))
}

/** Of a trial that the server did not take. */
function asUntried(error: unknown): never {
  if (classifyDatabaseError(error).kind !== 'read_only') throw error
  throw new Refusal(
    'whether somebody would still administer is found out in a transaction that is rolled back, and this server takes no changes: plan it against the one that does',
    { cause: error },
  )
}

function rowsOf(steps: readonly Step[]): number {
  return steps.reduce((sum, { rows }) => sum + rows, 0)
}

async function runAll(trx: Transaction<Database>, steps: readonly Step[], actor: Actor): Promise<void> {
  for (const step of steps) await step.run(trx, actor)
}

/** The document, or `InvalidDocument` with every fault of its shape: types, limits and unknown names. */
function checkedDocument(document: unknown): OrganisationDocument {
  const faults = [...collectFaults(OrganisationDocument, document, []), ...unknownNames(document)]
  if (faults.length > 0) throw new InvalidDocument(faults)
  return document as OrganisationDocument // it passed the schema
}

/** A mistyped field would silently leave things as they are: it is a fault. */
function unknownNames(document: unknown): Fault[] {
  const places = unknownFields(OrganisationDocument, document)
  return places.map(loc => ({ loc, msg: 'this field is unknown', type: 'extra_forbidden' }))
}

async function planAll(
  trx: Transaction<Database>,
  document: OrganisationDocument,
  options: ApplyOptions,
  reserve: Reserve,
): Promise<{ outcomes: ApplyReport['outcomes']; steps: Step[] }> {
  const catalogue = await readCatalogue(trx, document, options.asNew === true)
  await matchDocument(catalogue, document, reserve)
  requireNoFaults(catalogue)
  const records: Plan[] = []
  for (const section of REFERENCE_SECTIONS) records.push(await planReferenceSections(trx, section, catalogue))
  const { vault, env, envPrefix = DEFAULT_PREFIX, baseDir, definitionLimits = {}, snapshotBytesMax } = options
  const around = { vault, env, envPrefix, baseDir, definitionLimits, snapshotBytesMax }
  const tools = await planTools(trx, catalogue, around)
  const personas = await planPersonas(trx, catalogue)
  const pruning = await planPruning(trx, catalogue, document, options.prune === true)
  requireNoFaults(catalogue)
  return {
    outcomes: [...records.flatMap(plan => plan.outcomes), ...tools.outcomes, ...personas.outcomes, ...pruning.outcomes],
    steps: [...records.flatMap(plan => plan.steps), ...tools.steps, ...personas.steps, ...pruning.steps],
  }
}

function requireNoFaults({ faults }: Catalogue): void {
  if (faults.length > 0) throw new InvalidDocument(faults)
}
