import type { TSchema } from '@sinclair/typebox'
import type { Kysely, Transaction } from 'kysely'
import type { Database } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import type { Loc } from '../errors.js'
import { collectFaults } from '../schema/faults.js'
import { isJsonObject } from '../schema/vocabulary.js'
import type { Vault } from '../secrets/vault.js'
import type { DefinitionLimits } from '../tool/definition/index.js'
import { type Catalogue, matchDocument, readCatalogue, reserveForPlan, reserveInDatabase } from './apply/catalogue.js'
import { nameAuthors } from './apply/drift.js'
import { planPersonas } from './apply/personas.js'
import { planPruning } from './apply/pruning.js'
import { planRecords, RECORD_SECTIONS, type RecordsPlan } from './apply/records.js'
import type { ApplyReport } from './apply/report.js'
import { planTools } from './apply/tools.js'
import { OrganisationDocument } from './document.js'
import { operatorActor } from './operator.js'
import { InvalidDocument } from './refusal.js'

export type { ApplyReport, Outcome } from './apply/report.js'
export { countOutcomes } from './apply/report.js'

export interface ApplyOptions {
  vault: Vault
  /** Where the values of `${env:NAME}` come from. */
  env: Readonly<Record<string, string | undefined>>
  /** Decide only; nothing is stored. */
  plan?: boolean
  /** Remove what no entry names, in the lists that the document has. */
  prune?: boolean
  /** The folder from which `definition_file` starts; without it none can be named. */
  baseDir?: string
  /** What a definition may hold; by default the limits of the check. */
  definitionLimits?: Partial<DefinitionLimits>
}

/**
 * Brings the database to what an organisation document says, in one transaction: rows are found by id or name, made when they
 * are missing, and changed where a field that the document names differs. Applying it again changes nothing.
 *
 * Every change of an existing agent or tool takes its row's lock, a version and an audit row. Throws `InvalidDocument` with every
 * fault at once, `Refusal` when a needed key is missing; then nothing is stored.
 */
export async function applyOrganisation(
  database: Pick<ServiceDatabase, 'db'>,
  document: unknown,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const wanted = checkedDocument(document)
  return await inTransaction(database, { rollback: options.plan === true }, async trx => {
    const catalogue = await readCatalogue(trx)
    await matchDocument(catalogue, wanted, options.plan ? reserveForPlan() : reserveInDatabase(trx))
    requireNoFaults(catalogue)
    const { outcomes, write } = await planAll(trx, catalogue, wanted, options)
    requireNoFaults(catalogue)
    if (options.plan) await nameAuthors(trx, outcomes)
    else await write(trx)
    return { planned: options.plan === true, outcomes }
  })
}

/** The document, or `InvalidDocument` with every fault of its shape: types, limits and unknown names. */
export function checkedDocument(document: unknown): OrganisationDocument {
  const faults = [...collectFaults(OrganisationDocument, document, []), ...unknownNames(document)]
  if (faults.length > 0) throw new InvalidDocument(faults)
  return document as OrganisationDocument // it passed the schema
}

function unknownNames(document: unknown) {
  if (!isJsonObject(document)) return []
  return unknownIn(document, OrganisationDocument, [])
}

/** A mistyped field would silently leave things as they are: it is a fault. */
function unknownIn(value: unknown, schema: TSchema, loc: Loc): { loc: Loc; msg: string; type: string }[] {
  const { items, properties } = schema as SchemaNode // TSchema's own properties are untyped
  if (Array.isArray(value) && items !== undefined) {
    return value.flatMap((item, index) => unknownIn(item, items, [...loc, index]))
  }
  if (!isJsonObject(value) || properties === undefined) return []
  return Object.entries(value).flatMap(([name, child]) => {
    const inner = Object.hasOwn(properties, name) ? properties[name] : undefined
    if (inner !== undefined) return unknownIn(child, inner, [...loc, name])
    return [{ loc: [...loc, name], msg: 'this field is unknown', type: 'extra_forbidden' }]
  })
}

interface SchemaNode {
  items?: TSchema
  properties?: Readonly<Record<string, TSchema>>
}

async function planAll(
  trx: Transaction<Database>,
  catalogue: Catalogue,
  document: OrganisationDocument,
  options: ApplyOptions,
): Promise<{ outcomes: ApplyReport['outcomes']; write(trx: Transaction<Database>): Promise<void> }> {
  const records: RecordsPlan[] = []
  for (const section of RECORD_SECTIONS) records.push(await planRecords(trx, section, catalogue))
  const { vault, env, baseDir, definitionLimits = {} } = options
  const around = { vault, env, baseDir, definitionLimits }
  const tools = await planTools(trx, catalogue, around)
  const personas = await planPersonas(trx, catalogue)
  const pruning = await planPruning(trx, catalogue, document, options.prune === true)
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

/** Whether the database holds no organisation at all, so that a demo may be loaded without harm. */
export async function isEmptyOrganisation(db: Kysely<Database>): Promise<boolean> {
  const row = await db.selectFrom('user_account').select('id').limit(1).executeTakeFirst()
  return row === undefined
}
