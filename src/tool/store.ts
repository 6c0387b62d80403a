import type { Transaction } from 'kysely'
import { type Caller, managesActions } from '../auth/caller.js'
import type { Positioned, RowQuery } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { Database } from '../db/tables.js'
import { inDryRun, inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { PreconditionFailed, PreconditionRequired, ResourceNotFound } from '../errors.js'
import type { Vault } from '../secrets/vault.js'
import { type Actor, type AuditEntry, auditEntry } from '../updates/audit.js'
import { changesSince } from '../updates/changes.js'
import { type Attempt, withOutcome } from '../updates/outcome.js'
import { entityTag, versionInTags } from '../updates/tag.js'
import { databaseTimeMs, received } from '../updates/time.js'
import { planToolUpdate, shownHeaders, type ToolPlan, type ToolUpdate } from './plan.js'
import type { ToolState } from './state.js'
import {
  lockRow,
  readOauthConfig,
  readRow,
  readState,
  type ToolRow,
  type ToolViewerParameters,
  writeStatement,
} from './statements.js'

/** One authenticated request to update a tool. `prefetched` is the state that came with the authentication. */
export interface ToolUpdateRequest {
  id: number
  caller: Caller
  actor: Actor
  prefetched: ToolState | null
  update: ToolUpdate
  vault: Vault
  dryRun: boolean
}

/** The answer: the snapshot as JSON text, the stored version, and the plan that was carried out. */
export interface ToolUpdateResult {
  snapshot: string
  version: number
  plan: ToolPlan
}

/**
 * Updates a custom tool, all or nothing, in the same two steps as an agent: decided on what came with the
 * authentication and checked by the writing statement, else decided again under the row's lock.
 *
 * Errors: `ResourceNotFound`, `Forbidden`, `BuiltinReadOnly`, `InvalidRequest`, `PreconditionFailed`,
 * `PreconditionRequired`, `Unavailable` (`key_missing`); database errors pass through.
 */
export async function updateTool(database: ServiceDatabase, request: ToolUpdateRequest): Promise<ToolUpdateResult> {
  const { prefetched } = request
  if (prefetched === null) throw new ResourceNotFound('tool')
  return await withOutcome<ToolPlan, ToolUpdateResult>(
    database,
    async attempt =>
      (await updateAsPrefetched(database, request, prefetched, attempt)) ??
      (await updateUnderLock(database, request, attempt)),
    plan => answerApplied(database, request, plan),
  )
}

async function updateAsPrefetched(
  database: ServiceDatabase,
  request: ToolUpdateRequest,
  prefetched: ToolState,
  attempt: Attempt<ToolPlan>,
): Promise<ToolUpdateResult | undefined> {
  const plan = planToolUpdate(prefetched, request.update, request.vault, null)
  if (plan.precondition !== 'holds' || !representable(plan.content.oauth_config_id)) return undefined
  const query = answerQuery(prefetched, plan, request, attempt)
  return resultOf(await rowOf(database, query, plan, request.dryRun), prefetched, plan, request.dryRun)
}

async function rowOf(
  database: ServiceDatabase,
  query: RowQuery<ToolRow>,
  { changes, attachesOauthConfig }: ToolPlan,
  dryRun: boolean,
): Promise<Positioned<ToolRow> | undefined> {
  if (dryRun && changes.length > 0) return (await inDryRun(database, query.compiled))[0]
  // A new link waits for whoever deletes what it refers to: nobody else should wait along. (A new definition, which may wait
  // for another that stores the same, goes alone by its statement.)
  return attachesOauthConfig ? await query.single(database.db) : await query.batched(database)
}

async function updateUnderLock(
  database: ServiceDatabase,
  request: ToolUpdateRequest,
  attempt: Attempt<ToolPlan>,
): Promise<ToolUpdateResult> {
  return await inTransaction(database, { rollback: request.dryRun }, async trx => {
    const state = await lockTool(trx, request.id, viewerParameters(request.caller))
    if (state === undefined) throw new ResourceNotFound('tool')
    const exists = await oauthConfigExists(trx, request.update.fields.oauth_config_id ?? null)
    const plan = planToolUpdate(state, request.update, request.vault, exists)
    await requirePrecondition(trx, state, plan, request)
    const row = await answerQuery(state, plan, request, attempt).single(trx)
    const result = resultOf(row, state, plan, request.dryRun)
    if (result === undefined) throw new Error(`tool ${request.id} changed under its lock`)
    return result
  })
}

/** The viewer that may do everything: the operator at the command line. */
export const OPERATOR: ToolViewerParameters = { user: null, manages_all: true, managed_groups: [] }

/** Locks a tool and reads its state, which is final until the transaction ends. Undefined when there is none. */
export async function lockTool(
  trx: Transaction<Database>,
  id: number,
  viewer: ToolViewerParameters,
): Promise<ToolState | undefined> {
  await lockRow.run(trx, { id })
  return await readTool(trx, id, viewer)
}

/** Reads a tool's state as a caller sees it. Undefined when there is none. */
export async function readTool(
  executor: Executor,
  id: number,
  viewer: ToolViewerParameters,
): Promise<ToolState | undefined> {
  const [row] = await readState.run(executor, { ...viewer, id })
  return row && received(row.state)
}

/**
 * Stores what the operator decided, in a transaction that holds the row's lock; one audit row if it differs.
 * Returns the version that is stored then.
 */
export async function writeTool(
  trx: Transaction<Database>,
  state: ToolState,
  plan: Omit<ToolPlan, 'attachesOauthConfig' | 'overwritten' | 'precondition'>,
  actor: Actor,
): Promise<number> {
  if (plan.changes.length === 0) return state.version
  const row = await writeQuery(state, plan, OPERATOR, auditOf(state, plan, actor)).single(trx)
  if (row === undefined) throw new Error(`tool ${state.id} changed under its lock`)
  return row.version
}

/** What to answer when the answer of the write was lost: the tool as it is now. Undefined when it is out of reach. */
async function answerApplied(
  { db }: ServiceDatabase,
  { id, caller }: ToolUpdateRequest,
  plan: ToolPlan,
): Promise<ToolUpdateResult | undefined> {
  const state = await readTool(db, id, viewerParameters(caller))
  if (!state?.manageable) return undefined
  const row = await readRow.for({ id, version: state.version }).single(db)
  return row && { snapshot: snapshotText(row, row.definition), version: row.version, plan }
}

function answerQuery(
  state: ToolState,
  plan: ToolPlan,
  request: ToolUpdateRequest,
  attempt: Attempt<ToolPlan>,
): RowQuery<ToolRow> {
  if (plan.changes.length === 0) return readRow.for({ id: state.id, version: state.version })
  const entry = auditOf(state, plan, request.actor)
  Object.assign(attempt, { entry, plan })
  return writeQuery(state, plan, viewerParameters(request.caller), entry)
}

function auditOf(state: ToolState, plan: Pick<ToolPlan, 'changes' | 'definition'>, actor: Actor): AuditEntry {
  const replaced = plan.definition === null ? null : state.definition_hash
  const { id, version, audit_head } = state
  return auditEntry({ kind: 'tool', id, version, audit_head }, plan.changes, actor, databaseTimeMs(state), replaced)
}

function writeQuery(
  state: ToolState,
  plan: Omit<ToolPlan, 'attachesOauthConfig' | 'overwritten' | 'precondition'>,
  viewer: ToolViewerParameters,
  entry: AuditEntry,
): RowQuery<ToolRow> {
  const shape = { definition: plan.definition !== null, headers: plan.headers !== null }
  const own = {
    id: state.id,
    version: state.version,
    secrets_generation: state.secrets_generation,
    field_versions: JSON.stringify(Object.fromEntries(plan.changes.map(({ field }) => [field, state.version + 1]))),
    definition_text: plan.definition?.text ?? null,
    definition_bytes: Buffer.byteLength(plan.definition?.text ?? ''),
    headers: JSON.stringify((plan.headers ?? []).map(({ sealed, ...header }) => ({ ...header, ...encoded(sealed) }))),
    shown_headers: JSON.stringify(shownHeaders(plan.headers ?? state.headers)),
  }
  // Not spread into a literal: for so many properties V8 makes new hidden classes each time, a tenth of an update.
  return writeStatement(shape).for(Object.assign({}, viewer, entry, Object.assign({}, plan.content, own)))
}

function encoded(sealed: NonNullable<ToolPlan['headers']>[number]['sealed']) {
  return (
    sealed && {
      key_id: sealed.keyId,
      nonce: sealed.nonce.toString('base64'),
      ciphertext: sealed.ciphertext.toString('base64'),
    }
  )
}

/** A caller as the statements' parameters name them. */
export function viewerParameters(caller: Caller): ToolViewerParameters {
  return { user: caller.userId, manages_all: managesActions(caller), managed_groups: caller.managedGroupIds }
}

function resultOf(
  row: Positioned<ToolRow> | undefined,
  state: ToolState,
  plan: ToolPlan,
  dryRun: boolean,
): ToolUpdateResult | undefined {
  if (row === undefined) return undefined
  const snapshot = snapshotText(row, plan.definition?.text ?? row.definition)
  return { snapshot, version: dryRun ? state.version : row.version, plan }
}

/** The wire's ToolSnapshot as JSON text; the definition's own text is put in as it is stored. */
function snapshotText(row: Positioned<ToolRow>, definition: string | null): string {
  const { position: _, version: __, definition: ___, id, name, description, ...rest } = row
  const head = JSON.stringify({ id, name, description })
  return `${head.slice(0, -1)},"definition":${definition ?? 'null'},${JSON.stringify(rest).slice(1)}`
}

async function requirePrecondition(
  trx: Transaction<Database>,
  state: ToolState,
  plan: ToolPlan,
  request: ToolUpdateRequest,
): Promise<void> {
  if (plan.precondition === 'demanded') throw new PreconditionRequired()
  if (plan.precondition === 'holds') return
  const since = versionInTags(request.update.precondition, 'tool', state.id, state.version)
  const changed = await changesSince(trx, 'tool', state.id, since, state.version)
  throw new PreconditionFailed(entityTag('tool', state.id, state.version), changed)
}

async function oauthConfigExists(trx: Transaction<Database>, id: number | null): Promise<boolean> {
  if (id === null || !representable(id)) return false
  return (await readOauthConfig.run(trx, { id })).length > 0
}

function representable(id: number | null): boolean {
  return id === null || (id >= -2147483648 && id <= 2147483647)
}
