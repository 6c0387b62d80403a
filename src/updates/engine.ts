import type { Kysely, Transaction } from 'kysely'
import pg from 'pg'
import { OPERATOR, type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import { CommitUnknown } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { Failed, ResourceNotFound, TRY_AGAIN, Unavailable, UnknownRedaction, VersionGone } from '../errors.js'
import { type FirstAnswer, fillKey, firstAnswer, Repeated, takeKey, wasRemovedSince } from './idempotency.js'
import { closeProposalsIfDeleted } from './open-proposals.js'
import { isStale, overwrittenBy, requireDirect, requirePrecondition } from './precondition.js'
import { readState } from './read.js'
import type { Decision, Job, ResourceTypes, Stored, UpdateRequest, VersionedResource, Written } from './resource.js'
import { auditEntry, insertBlank, lockRow, nextId } from './statements.js'
import { settle, unavailableFor } from './unavailable.js'

/*
 * Creates, updates, deletes and restores agents and tools, for requests and for the operator. If an update has no `Idempotency-Key` and changes only
 * columns of the resource's own row, the engine first tries a single statement. The statement stores nothing if the row is locked, or if the row's
 * version or the caller's rights have changed. In this case, and for all other requests, a transaction claims the key, locks the row, reads its state
 * and decides. An unconfirmed commit is never repeated, and its outcome is never guessed.
 */

/** The progress of one attempt. `isKeyTaken`: the request's key, if any, has been claimed. `written`: the change that was sent to the database. */
interface Attempt<T extends ResourceTypes> {
  isKeyTaken: boolean
  written?: Written<T>
}

/**
 * Answers a repeated request, and calls `store` for any other request. Refuses a hidden resource before reading related records, so that the response
 * time does not reveal that the resource exists. Throws `InvalidRequest` if the key was used for a different request, and the errors of `store`.
 */
export async function updateOnce<T extends ResourceTypes>(job: Job<T>, state: T['State'] | null): Promise<Stored<T>> {
  const { database, resource, request } = job
  const { key, caller } = request
  const first = key && (await withRetries(() => firstAnswer(database.db, key)))
  if (first) return await repeated(job, first)
  if (state === null ? resource.act !== 'creation' : !resource.isVisible(state, caller))
    throw new ResourceNotFound(resource.kind)
  return await store(job, state)
}

/** Answers a repeated request with the current record and the version of the first answer. Throws `VersionGone` if the record is gone or hidden. */
async function repeated<T extends ResourceTypes>(job: Job<T>, first: FirstAnswer): Promise<Stored<T>> {
  const { resource, request, database } = job
  const { kind, act } = resource
  const { id = request.id, version } = first
  const answer = { id, version, decision: null, overwritten: [] }
  if (act === 'deletion') return { ...answer, snapshot: null }
  try {
    const now = await withRetries(() => readAgain(database.db, { resource, request: { ...request, id } }))
    const isSeen = resource.isVisible(now.state, now.request.caller)
    if (!isSeen || (await wasRemovedSince(database.db, kind, id, version))) throw new ResourceNotFound(kind)
    const snapshot = request.minimal ? null : await resource.render(database.db, now.state, request.snapshotBytesMax)
    return { ...answer, snapshot }
  } catch (error) {
    if (error instanceof ResourceNotFound)
      throw new VersionGone(
        'deleted',
        `This request was already applied, but record ${id} is now deleted or hidden from you.`,
      )
    const failure = error instanceof Unavailable ? error : unavailableFor(error)
    if (failure === undefined || failure.outcome === 'applied') throw failure ?? error
    const message = `The ${act} was applied, but the record could not be read. Repeat the request with the same Idempotency-Key.`
    throw new Unavailable(failure.reason, message, 'applied', { cause: error })
  }
}

/**
 * Decides on a request and stores its changes. `state` is the state that was read together with the caller, or null if the transaction must read it.
 * Throws `ResourceNotFound`, `PreconditionFailed`, `IdempotencyKeyInUse`, `Unavailable` with the outcome, and the errors of `decideRequest`.
 */
export async function store<T extends ResourceTypes>(job: Job<T>, state: T['State'] | null): Promise<Stored<T>> {
  const work = async (attempt: Attempt<T>) =>
    (await storeAlone(job, state, attempt)) ?? (await storeInTransaction(job, attempt))
  return await settled(job, work)
}

/** Applies a request to all resources in `ids` in one transaction. The request must have no `Idempotency-Key`. Throws the errors of `store`. */
export async function storeTogether<T extends ResourceTypes>(job: Job<T>, ids: readonly number[]): Promise<void> {
  const { database, request } = job
  await settled(job, attempt =>
    inTransaction(database, { rollback: request.dryRun }, async trx => {
      // One resource after another, so that a caller without rights on the first resource does not lock the others.
      for (const id of ids.toSorted((a, b) => a - b)) {
        const { entry, answer } = await storeLocked(trx, { ...job, request: { ...request, id } })
        if (entry !== undefined) attempt.written = { entry, answer }
      }
      return attempt.written?.answer
    }),
  )
}

/**
 * Runs `work`, and runs it again after an error that proves that nothing was stored. Answers a repeated request. After an unconfirmed commit, finds
 * out whether the change was stored.
 */
async function settled<T extends ResourceTypes, Result>(
  job: Job<T>,
  work: (attempt: Attempt<T>) => Promise<Result>,
): Promise<Result | Stored<T>> {
  let attempt: Attempt<T> = { isKeyTaken: false }
  try {
    return await withRetries(async () => {
      attempt = { isKeyTaken: false }
      return await work(attempt)
    })
  } catch (error) {
    if (error instanceof Repeated) return await repeated(job, error.first)
    if (error instanceof CommitUnknown) return await settle(job, error, attempt.written)
    const failure = unavailableFor(error) ?? error
    if (failure instanceof Unavailable) failure.isKeyLookedUp = attempt.isKeyTaken
    if (!(failure instanceof pg.DatabaseError)) throw failure
    // PostgreSQL refused a statement or the commit, for example because of a trigger that an operator has added.
    throw new Failed(job.request.key === null || attempt.isKeyTaken ? 'not_applied' : 'unknown', failure)
  }
}

/** Stores a change with one statement. Returns undefined if the request needs a transaction, or if the row is locked or was changed meanwhile. */
async function storeAlone<T extends ResourceTypes>(
  job: Job<T>,
  state: T['State'] | null,
  attempt: Attempt<T>,
): Promise<Stored<T> | undefined> {
  const { resource, request } = job
  const { db } = job.database
  if (state === null || request.key !== null || resource.act !== 'update') return undefined
  const decision = await decideRequest(db, job, state)
  if (decision.changes.length === 0 || request.dryRun) {
    // The record may have changed while the body was arriving.
    const now = await readAgain(db, job)
    const asked = { resource, request: now.request }
    const decisionNow = await decideRequest(db, asked, now.state)
    const writes = decisionNow.changes.length > 0 && !request.dryRun
    return writes ? undefined : await answerOf(db, asked, now.state, decisionNow)
  }
  if (!resource.isAlone(decision)) return undefined
  const answer = await answerOf(db, job, state, decision)
  const entry = auditEntry(resource, state, decision, request.actor)
  attempt.written = { entry, answer: { ...answer, version: entry.version_after } }
  const version = await resource.write(db, state, decision, viewerParameters(request.caller), entry)
  return version === undefined ? undefined : attempt.written.answer
}

async function storeInTransaction<T extends ResourceTypes>(job: Job<T>, attempt: Attempt<T>): Promise<Stored<T>> {
  const { database, resource, request } = job
  const { key, dryRun, caller } = request
  const creates = resource.act === 'creation'
  const id = creates ? await nextId(database.db, resource.kind) : request.id // encrypting header values requires the id
  return await inTransaction(database, { rollback: dryRun }, async trx => {
    if (key !== null) await takeKey(trx, key)
    attempt.isKeyTaken = true
    if (creates && !(await insertBlank(trx, resource, id, caller.userId)))
      throw new Unavailable('overloaded', `The new record's id is already in use. ${TRY_AGAIN}`, 'not_applied')
    const { answer, entry } = await storeLocked(trx, { resource, request: { ...request, id } })
    if (key !== null) await fillKey(trx, key, answer)
    if (entry !== undefined) attempt.written = { entry, answer }
    return answer
  })
}

type Asked<T extends ResourceTypes> = Pick<Job<T>, 'resource' | 'request'>

/** Decides on a request with the caller's current rights and stores its changes, in the current transaction. Throws the errors of `store`. */
export async function storeLocked<T extends ResourceTypes>(trx: Transaction<Tables>, { resource, request }: Asked<T>) {
  await lockRow(trx, resource.kind, request.id)
  const { answer, entry } = await decideAndWrite(trx, resource, request, async () => {
    const now = await readAgain(trx, { resource, request })
    const asked = { resource, request: now.request }
    const decision = await decideRequest(trx, asked, now.state, true)
    return { ...now, decision, answer: await answerOf(trx, asked, now.state, decision) }
  })
  return { entry, answer: { ...answer, version: entry?.version_after ?? answer.version } }
}

/** Changes a resource as the operator, in the current transaction. Throws `ResourceNotFound`. */
export async function changeAsOperator<T extends ResourceTypes>(
  trx: Transaction<Tables>,
  resource: VersionedResource<T>,
  id: number,
  decide: (state: T['State']) => T['Decision'] | Promise<T['Decision']>,
  actor: UpdateRequest['actor'],
): Promise<{ name: string; version: number; changes: Decision['changes'] }> {
  await lockRow(trx, resource.kind, id)
  const { state, decision, entry } = await decideAndWrite(trx, resource, { actor, dryRun: false }, async () => {
    const state = await readState(trx, resource, id, OPERATOR) // read after the lock was acquired
    return { state, viewer: OPERATOR, decision: await decide(state) }
  })
  return { name: state.name, version: entry?.version_after ?? state.version, changes: decision.changes }
}

/** The maximum number of attempts if shares or rights keep changing while the row is locked. */
const LOCKED_TRIES_MAX = 5

/** Decides on a locked row and stores the decision. Tries again if shares or rights change meanwhile, because the lock does not cover them. */
async function decideAndWrite<T extends ResourceTypes, More>(
  trx: Transaction<Tables>,
  resource: VersionedResource<T>,
  { actor, dryRun }: Pick<UpdateRequest, 'actor' | 'dryRun'>,
  decideNow: () => Promise<{ state: T['State']; viewer: ViewerParameters; decision: T['Decision'] } & More>,
) {
  for (let tries = 0; tries < LOCKED_TRIES_MAX; tries++) {
    const made = await decideNow()
    const { state, viewer, decision } = made
    if (decision.changes.length === 0 || dryRun) return { ...made, entry: undefined }
    const entry = auditEntry(resource, state, decision, actor)
    if ((await resource.write(trx, state, decision, viewer, entry)) === undefined) continue
    await closeProposalsIfDeleted(trx, entry)
    return { ...made, entry }
  }
  throw new Unavailable('overloaded', `Shares or rights kept changing during this request. ${TRY_AGAIN}`, 'not_applied')
}

/** Authenticates the caller again and reads the current resource. Throws `ResourceNotFound` and the errors of the authentication. */
export async function readAgain<T extends ResourceTypes>(db: Kysely<Tables>, { resource, request }: Asked<T>) {
  const { statement } = resource.reads.lookup
  const { caller, prefetched } = await request.readNow(db, { statement, id: request.id })
  if (prefetched === null) throw new ResourceNotFound(resource.kind)
  const state = prefetched as T['State'] // the lookup's statement determines the type
  return { request: { ...request, caller }, viewer: viewerParameters(caller), state }
}

export async function decideRequest<T extends ResourceTypes>(
  db: Kysely<Tables>,
  { resource, request }: Asked<T>,
  state: T['State'],
  locks = false,
): Promise<T['Decision']> {
  const decision = await resource.decide(db, state, request, locks).catch(error => {
    // An unknown header mask can come from an older version. If `If-Match` names an older version, the answer is 412 instead of this error.
    if (!(error instanceof UnknownRedaction && isStale(request, state))) throw error
    return undefined
  })
  if (decision !== undefined) requireDirect(resource.act, request, decision.changes)
  return await requirePrecondition(db, request, state, decision)
}

async function answerOf<T extends ResourceTypes>(
  db: Kysely<Tables>,
  { resource, request }: Asked<T>,
  state: T['State'],
  decision: T['Decision'],
): Promise<Stored<T>> {
  // An update with an outdated `If-Match` succeeds if it changes nothing. The client has not seen the current state, so the answer contains it.
  const isMinimal = request.minimal && !(decision.changes.length === 0 && isStale(request, state))
  const snapshot = isMinimal ? null : await resource.render(db, decision.after, request.snapshotBytesMax)
  const overwritten = await overwrittenBy(db, request, state, decision.changes)
  return { snapshot, id: state.id, version: state.version, decision, overwritten }
}
