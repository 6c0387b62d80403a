import { setTimeout as sleep } from 'node:timers/promises'
import { sql, type Transaction } from 'kysely'
import type { Database } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import type { Fault } from '../errors.js'
import { collectFaults, unknownFields } from '../schema/faults.js'
import type { Vault } from '../secrets/vault.js'
import type { DefinitionLimits } from '../tool/definition/index.js'
import {
  type Catalogue,
  matchDocument,
  type Reserve,
  readCatalogue,
  reserveForPlan,
  reserveInDatabase,
} from './apply/catalogue.js'
import { nameAuthors } from './apply/drift.js'
import { planPersonas } from './apply/personas.js'
import { DEFAULT_PREFIX } from './apply/placeholders.js'
import { planPruning } from './apply/pruning.js'
import { planRecords, RECORD_SECTIONS, type RecordsPlan } from './apply/records.js'
import type { ApplyReport } from './apply/report.js'
import { planTools } from './apply/tools.js'
import { OrganisationDocument } from './document.js'
import { operatorActor } from './operator.js'
import { keepingAdministrator } from './people.js'
import { InvalidDocument } from './refusal.js'

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
  /** What a definition may hold; by default the limits of the check. */
  definitionLimits?: Partial<DefinitionLimits>
  /** Hears what is being done. */
  progress?(stage: string, done?: number, total?: number): void
}

/** Two documents at once would each make what the other makes as well. */
const APPLY_LOCK = 7_153_002
const TURN_PAUSE_MS = 100

/**
 * Brings the database to what an organisation document says, in one transaction: rows are found by id or name, made when they
 * are missing, and changed where a field that the document names differs. Applying it again changes nothing.
 *
 * Every change of an existing agent or tool takes its row's lock, a version and an audit row. One document at a time: another one
 * waits for its turn. Throws `InvalidDocument` with every fault at once, `Refusal` when a needed key is missing or nobody would
 * administer afterwards; then nothing is stored, and no id is taken.
 */
export async function applyOrganisation(
  database: Pick<ServiceDatabase, 'db'>,
  document: unknown,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const wanted = checkedDocument(document)
  return await inTransaction(database, { rollback: options.plan === true }, async trx => {
    if (!options.plan) await takeTurn(trx, options)
    return await applyInTransaction(trx, wanted, options)
  })
}

async function applyInTransaction(
  trx: Transaction<Database>,
  wanted: OrganisationDocument,
  options: ApplyOptions,
): Promise<ApplyReport> {
  options.progress?.('comparing the document with the database')
  const planned = await planAll(trx, wanted, options, reserveForPlan())
  if (options.plan) {
    await nameAuthors(trx, planned.outcomes)
    return { planned: true, outcomes: planned.outcomes }
  }
  // Everything is checked: only now are ids taken, which no rollback gives back.
  const { outcomes, write } = await planAll(trx, wanted, options, reserveInDatabase(trx))
  options.progress?.('storing')
  await keepingAdministrator(trx, write)
  return { planned: false, outcomes }
}

/** Waits until no other document is being applied. The lock ends with the transaction, however that ends. */
async function takeTurn(trx: Transaction<Database>, { progress }: ApplyOptions): Promise<void> {
  for (;;) {
    const { rows } = await sql<{ taken: boolean }>`
      select pg_try_advisory_xact_lock(${APPLY_LOCK}::bigint) as taken`.execute(trx)
    if (rows[0]?.taken) return
    progress?.('waiting for another apply to end')
    await sleep(TURN_PAUSE_MS)
  }
}

/** The document, or `InvalidDocument` with every fault of its shape: types, limits and unknown names. */
export function checkedDocument(document: unknown): OrganisationDocument {
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
): Promise<{ outcomes: ApplyReport['outcomes']; write(trx: Transaction<Database>): Promise<void> }> {
  const catalogue = await readCatalogue(trx, document, options.asNew === true)
  await matchDocument(catalogue, document, reserve)
  requireNoFaults(catalogue)
  const records: RecordsPlan[] = []
  for (const section of RECORD_SECTIONS) records.push(await planRecords(trx, section, catalogue))
  const { vault, env, envPrefix = DEFAULT_PREFIX, baseDir, definitionLimits = {} } = options
  const around = { vault, env, envPrefix, baseDir, definitionLimits }
  const tools = await planTools(trx, catalogue, around)
  const personas = await planPersonas(trx, catalogue)
  const pruning = await planPruning(trx, catalogue, document, options.prune === true)
  requireNoFaults(catalogue)
  return {
    outcomes: [...records.flatMap(plan => plan.outcomes), ...tools.outcomes, ...personas.outcomes, ...pruning.outcomes],
    write: async executor => {
      const actor = operatorActor()
      for (const plan of records) await plan.write(executor)
      await tools.write(executor, actor)
      await personas.write(executor, actor)
      await pruning.write(executor, actor)
    },
  }
}

function requireNoFaults({ faults }: Catalogue): void {
  if (faults.length > 0) throw new InvalidDocument(faults)
}
