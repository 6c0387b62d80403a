import type { Transaction } from 'kysely'
import { type Caller, isAdmin, managesActions } from '../auth/caller.js'
import type { RowQuery } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { Database } from '../db/tables.js'
import { inDryRun, inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { PreconditionFailed, PreconditionRequired, ResourceNotFound } from '../errors.js'
import { type Actor, type AuditEntry, auditEntry } from '../updates/audit.js'
import { changesSince } from '../updates/changes.js'
import { type Attempt, withOutcome } from '../updates/outcome.js'
import { entityTag, versionInTags } from '../updates/tag.js'
import { databaseTimeMs, received } from '../updates/time.js'
import {
  type Attached,
  idsOf,
  type PersonaPlan,
  type PersonaUpdate,
  planPersonaUpdate,
  RELATIONS,
  type References,
  type Relation,
} from './plan.js'
import { PERSONA_COLUMN_TYPES, type PersonaContent, type PersonaState } from './state.js'
import {
  lockRow,
  type PersonaAnswer,
  readReferences,
  readSnapshot,
  readState,
  type ViewerParameters,
  writeStatement,
} from './statements.js'

/** One authenticated request to update an agent. `prefetched` is the state that came with the authentication. */
export interface PersonaUpdateRequest {
  id: number
  caller: Caller
  actor: Actor
  prefetched: PersonaState | null
  update: PersonaUpdate
  dryRun: boolean
}

/** The answer: the snapshot as JSON text, the stored version, and the plan that was carried out. */
export interface PersonaUpdateResult {
  snapshot: string
  version: number
  plan: PersonaPlan
}

/**
 * Updates an agent, all or nothing.
 *
 * The uncontended case decides on the state that came with the authentication and writes with one statement, which
 * checks under the row's lock that nothing moved since. When that statement finds something moved, locked or not
 * attachable, the same decision is made again under the lock, where it is final.
 *
 * Errors: `ResourceNotFound`, `Forbidden`, `BuiltinReadOnly`, `InvalidRequest`, `PreconditionFailed`,
 * `PreconditionRequired`; database errors pass through.
 */
export async function updatePersona(
  database: ServiceDatabase,
  request: PersonaUpdateRequest,
): Promise<PersonaUpdateResult> {
  const { prefetched } = request
  if (prefetched === null) throw new ResourceNotFound('persona')
  return await withOutcome<PersonaPlan, PersonaUpdateResult>(
    database,
    async attempt =>
      (await updateAsPrefetched(database, request, prefetched, attempt)) ??
      (await updateUnderLock(database, request, attempt)),
    plan => answerApplied(database, request, plan),
  )
}

async function updateAsPrefetched(
  database: ServiceDatabase,
  request: PersonaUpdateRequest,
  prefetched: PersonaState,
  attempt: Attempt<PersonaPlan>,
): Promise<PersonaUpdateResult | undefined> {
  const plan = planPersonaUpdate(prefetched, request.caller, request.update, null)
  if (plan.precondition !== 'holds' || !allRepresentable(plan.attached)) return undefined
  const query = answerQuery(prefetched, plan, request, attempt)
  const answer = await answerOf(database, query, plan, request.dryRun)
  return resultOf(answer, prefetched, plan, request.dryRun)
}

async function answerOf(
  database: ServiceDatabase,
  query: RowQuery<PersonaAnswer>,
  { changes, attached, content }: PersonaPlan,
  dryRun: boolean,
): Promise<PersonaAnswer | undefined> {
  if (dryRun && changes.length > 0) return (await inDryRun(database, query.compiled))[0]
  // A new link waits for whoever deletes what it refers to, and the definitions of many tools take long to read: nobody
  // else should wait along.
  const takesLong = Object.keys(attached).length > 0 || content.tool_ids.length > BATCHED_TOOLS_MAX
  return takesLong ? await query.single(database.db) : await query.batched(database)
}

/** An agent with more tools goes alone: its snapshot holds the definition of each. */
const BATCHED_TOOLS_MAX = 8

async function updateUnderLock(
  database: ServiceDatabase,
  request: PersonaUpdateRequest,
  attempt: Attempt<PersonaPlan>,
): Promise<PersonaUpdateResult> {
  return await inTransaction(database, { rollback: request.dryRun }, async trx => {
    const state = await lockPersona(trx, request.id, request.caller.userId)
    if (state === undefined) throw new ResourceNotFound('persona')
    const attached = planPersonaUpdate(state, request.caller, request.update, null).attached
    const references = await referencesOf(trx, attached, request.caller)
    const plan = planPersonaUpdate(state, request.caller, request.update, references)
    await requirePrecondition(trx, state, plan, request)
    const answer = await answerQuery(state, plan, request, attempt).single(trx)
    const result = resultOf(answer, state, plan, request.dryRun)
    if (result === undefined) throw new Error(`agent ${request.id} changed under its lock`)
    return result
  })
}

/** Locks an agent and reads its state, which is final until the transaction ends. Undefined when there is none. */
export async function lockPersona(
  trx: Transaction<Database>,
  id: number,
  userId: string | null,
): Promise<PersonaState | undefined> {
  await lockRow.run(trx, { id })
  return await readPersona(trx, id, userId)
}

/** Reads an agent's state as a user (null: nobody in particular) sees it. Undefined when there is none. */
export async function readPersona(
  executor: Executor,
  id: number,
  userId: string | null,
): Promise<PersonaState | undefined> {
  const [row] = await readState.run(executor, { id, user: userId })
  return row && received(row.state)
}

/**
 * Stores a content that the operator decided, in a transaction that holds the row's lock; one audit row if it differs.
 * Returns the version that is stored then.
 */
export async function writePersona(
  trx: Transaction<Database>,
  state: PersonaState,
  plan: Pick<PersonaPlan, 'content' | 'changes'>,
  actor: Actor,
): Promise<number> {
  if (plan.changes.length === 0) return state.version
  const operator = { user: null, manages_all: true, is_admin: true, managed_groups: [] }
  const query = writeQuery(state, { ...plan, attached: {} }, operator, auditOf(state, plan, actor))
  const answer = await query.single(trx)
  if (answer === undefined) throw new Error(`agent ${state.id} changed under its lock`)
  return answer.version
}

/** What to answer when the answer of the write was lost: the agent as it is now. Undefined when it is out of sight. */
async function answerApplied(
  { db }: ServiceDatabase,
  { id, caller }: PersonaUpdateRequest,
  plan: PersonaPlan,
): Promise<PersonaUpdateResult | undefined> {
  const state = await readPersona(db, id, caller.userId)
  if (state === undefined || state.deleted || (state.access === 'none' && !isAdmin(caller))) return undefined
  const { version, access } = state
  const row = await readSnapshot.for({ ...viewerParameters(caller), id, version, access }).single(db)
  return resultOf(row, state, plan, false)
}

function answerQuery(
  state: PersonaState,
  plan: PersonaPlan,
  request: PersonaUpdateRequest,
  attempt: Attempt<PersonaPlan>,
): RowQuery<PersonaAnswer> {
  const viewer = viewerParameters(request.caller)
  if (plan.changes.length === 0) {
    return readSnapshot.for({ ...viewer, id: state.id, version: state.version, access: state.access })
  }
  const entry = auditOf(state, plan, request.actor)
  Object.assign(attempt, { entry, plan })
  return writeQuery(state, plan, viewer, entry)
}

function auditOf(state: PersonaState, plan: Pick<PersonaPlan, 'changes'>, actor: Actor): AuditEntry {
  const { id, version, audit_head } = state
  return auditEntry({ kind: 'persona', id, version, audit_head }, plan.changes, actor, databaseTimeMs(state))
}

function writeQuery(
  state: PersonaState,
  plan: Pick<PersonaPlan, 'content' | 'changes' | 'attached'>,
  viewer: ViewerParameters,
  entry: AuditEntry,
): RowQuery<PersonaAnswer> {
  const changed = new Set(plan.changes.map(change => change.field))
  const changedRelations = RELATIONS.filter(relation => changed.has(relation))
  const attachedRelations = RELATIONS.filter(relation => plan.attached[relation] !== undefined)
  const own = {
    id: state.id,
    version: state.version,
    access: state.access,
    changed_columns: JSON.stringify(
      Object.fromEntries(plan.changes.filter(({ field }) => field in PERSONA_COLUMN_TYPES).map(c => [c.field, c.to])),
    ),
    field_versions: JSON.stringify(Object.fromEntries(plan.changes.map(({ field }) => [field, state.version + 1]))),
  }
  // Not spread into a literal: for so many properties V8 makes new hidden classes each time, a tenth of an update.
  const parameters = Object.assign({}, viewer, entry, Object.assign(allRelationIds(plan.content), own))
  for (const relation of changedRelations) Object.assign(parameters, relationChange(relation, state, plan.content))
  for (const relation of attachedRelations) {
    Object.assign(parameters, { [`${relation}_attached`]: plan.attached[relation] })
  }
  return writeStatement(changedRelations, attachedRelations).for(parameters)
}

function allRelationIds(content: PersonaContent): Record<Relation, (number | string)[]> {
  return {
    tool_ids: content.tool_ids,
    document_set_ids: content.document_set_ids,
    label_ids: content.label_ids,
    user_file_ids: content.user_file_ids,
    users: idsOf(content, 'users'),
    groups: idsOf(content, 'groups'),
  }
}

function relationChange(relation: Relation, before: PersonaContent, after: PersonaContent) {
  const kept = new Set(idsOf(after, relation))
  const removed = idsOf(before, relation).filter(id => !kept.has(id))
  return { [`${relation}_removed`]: removed, [`${relation}_put`]: linksToPut(relation, before, after) }
}

function linksToPut(relation: Relation, before: PersonaContent, after: PersonaContent): (number | string)[] | string {
  if (relation === 'users' || relation === 'groups') {
    const levels = new Map<number | string, string>(before[relation].map(share => [share.id, share.level]))
    return JSON.stringify(after[relation].filter(share => levels.get(share.id) !== share.level))
  }
  const had = new Set(idsOf(before, relation))
  return idsOf(after, relation).filter(id => !had.has(id))
}

function viewerParameters(caller: Caller): ViewerParameters {
  return {
    user: caller.userId,
    manages_all: managesActions(caller),
    is_admin: isAdmin(caller),
    managed_groups: caller.managedGroupIds,
  }
}

function resultOf(
  answer: PersonaAnswer | undefined,
  state: PersonaState,
  plan: PersonaPlan,
  dryRun: boolean,
): PersonaUpdateResult | undefined {
  return answer && { snapshot: answer.snapshot, version: dryRun ? state.version : answer.version, plan }
}

async function requirePrecondition(
  trx: Transaction<Database>,
  state: PersonaState,
  plan: PersonaPlan,
  request: PersonaUpdateRequest,
): Promise<void> {
  if (plan.precondition === 'demanded') throw new PreconditionRequired()
  if (plan.precondition === 'holds') return
  const since = versionInTags(request.update.precondition, 'persona', state.id, state.version)
  const changed = await changesSince(trx, 'persona', state.id, since, state.version)
  throw new PreconditionFailed(entityTag('persona', state.id, state.version), changed)
}

/** What the database says of newly attached ids. Ids that no column can hold are nobody's. */
async function referencesOf(trx: Transaction<Database>, attached: Attached, caller: Caller): Promise<References> {
  const ids = Object.fromEntries(
    RELATIONS.map(relation => [relation, (attached[relation] ?? []).filter(representable)]),
  ) as Record<Relation, (number | string)[]>
  const [row] = await readReferences.run(trx, { ...viewerParameters(caller), ...ids })
  if (row === undefined) throw new Error('the references statement answered no row')
  return row.references
}

function allRepresentable(attached: Attached): boolean {
  return RELATIONS.every(relation => (attached[relation] ?? []).every(representable))
}

function representable(id: number | string): boolean {
  return typeof id === 'string' || (id >= -2147483648 && id <= 2147483647)
}
