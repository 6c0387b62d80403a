import type { Transaction } from 'kysely'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import { databaseTimeMs, laterInstant } from '../db/clock.js'
import { CommitUnknown, ConnectionLost } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import { classifyDatabaseError } from '../db/connection/sqlstate.js'
import type { RowQuery, SendHooks } from '../db/statements/row-statement.js'
import type { Database } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import type { Watch } from '../db/writes-under-way.js'
import { IdempotencyKeyInUse, InvalidRequest, PreconditionRequired, ResourceNotFound, UnknownMask } from '../errors.js'
import { memoryFor, runAlone, runSized, sharerOf, takePlaceFor } from './answer-size.js'
import type { AnswerText } from './answer-text.js'
import { type AuditEntry, NO_KEY } from './audit.js'
import { firstVersion, isKeyInUse, KeyTaken, takeKey } from './idempotency.js'
import { type MergeBase, mergeNote, readMergeBase } from './merge.js'
import { lost, outcomeOf } from './outcome.js'
import { isStale, namedVersion, overwrittenBy, preconditionFailed, preconditionOf } from './precondition.js'
import { readPast } from './read.js'
import { type ResourceTypes, stateBytes, type Updated, type VersionedResource } from './resource.js'
import { auditedContent, auditOf, lockStatements, setTimeOfNow, writeKey } from './write.js'

/*
 * How an agent or a tool is updated, all or nothing. This is the one home of the algorithm:
 *
 *   1. Decide on the state that came with the authentication, and write with one statement. It checks under the row's
 *      lock that version, access (ownership and shares) and caller (token, user, permission, groups, bindings) are
 *      still those that were decided on, and answers nothing where they are not. It never waits for the row.
 *   2. Where it answered nothing, or where only the lock can tell: lock the row, establish the caller again, read the
 *      row again, decide again, write.
 *   3. Where a commit is not confirmed: settle. The audit row of the write says whether it was applied.
 *
 * Invariants: one effective change makes one version and one audit row, in one transaction. A decision is never written
 * to another state than the one it was made on. An unconfirmed commit is never repeated, and no outcome is ever
 * guessed.
 *
 * What an agent or a tool gives to it is in `resource.ts`, what `If-Match` means in `precondition.ts`, what every write has in
 * `write.ts`, and what is said of a commit that is not confirmed in `outcome.ts`.
 */

/** Decisions under the lock that others' changes of shares and rights overtook are given up after so many. */
const LOCKED_TRIES_MAX = 5

/** The last write that was tried: by its audit row it is found again. */
interface LastWrite<T extends ResourceTypes> {
  entry: AuditEntry
  decision: T['Decision']
  /** What it was decided on. */
  state: T['State']
}

/** A statement that answers the update, and what is to be done when it is sent and answered. */
interface Answering<T extends ResourceTypes> {
  query: RowQuery<T['Row']>
  hooks: Required<SendHooks>
}

/**
 * Updates a resource as a request asks. `prefetched` is the state that came with the authentication; `watch` begins anew with the
 * statement that answers.
 *
 * Errors: `ResourceNotFound`, `PreconditionFailed`, `PreconditionRequired`, what `decide` and `reserveMemory` throw,
 * for a key `IdempotencyKeyInUse` and `KeyTaken` (an update with it is stored, maybe this one), and `Unavailable`,
 * which says what became of the update.
 */
export async function update<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'],
  watch: Watch,
): Promise<Updated<T>> {
  const { kind } = resource
  let last: LastWrite<T> | undefined
  const reserve = memoryFor(request)
  const callerKey = String(request.caller.token.id)
  const key = request.dryRun ? NO_KEY : request.key
  let endWrite: (isStored: boolean) => void = () => undefined
  let hasLostConnection = false
  try {
    const result = await withRetries(async () => {
      const updated = await onPrefetched(prefetched).catch(asEnded)
      return updated ?? (await underLock().catch(asEnded).catch(asOwnAttempt))
    })
    if (!request.dryRun) resource.noteStored(result.decision)
    return result
  } catch (error) {
    if (error instanceof CommitUnknown) return await settled(error)
    throw unavailableFor(error) ?? error
  } finally {
    endWrite(true)
  }

  /** Nothing was stored, unless that is still to be found out. */
  function asEnded(error: unknown): never {
    if (!(error instanceof CommitUnknown)) endWrite(false)
    throw error
  }

  /** The key of an attempt that lost its connection is held until the server has noticed: nobody else uses it. */
  function asOwnAttempt(error: unknown): never {
    const isOwn = hasLostConnection && error instanceof IdempotencyKeyInUse
    hasLostConnection ||= classifyDatabaseError(error).kind === 'connection_lost'
    throw isOwn ? new ConnectionLost({ cause: error }) : error
  }

  async function onPrefetched(state: T['State']): Promise<Updated<T> | undefined> {
    if (isStaleMerge(state)) {
      resource.requireRights(state, request.caller) // before a lock is taken for it
      return undefined
    }
    const decision = decidedOrStale(state)
    if (decision === undefined) return undefined
    const found = preconditionOf(kind, request, state, decision.changes)
    if (found !== 'holds' || !resource.isStorable(decision)) return undefined
    const weighed = await weighedDecision(state, decision)
    if (weighed === undefined) return undefined
    const answerBytes = answerBytesOf(state, weighed)
    const isShownSlowly = !isMinimal(state, weighed) && resource.isShownSlowly(state, weighed, request.caller)
    await takePlaceFor(request, answerBytes, isShownSlowly) // before the update has its time: it is not to wait with it
    const answering = await statementFor(state, weighed, viewerParameters(request.caller), answerBytes)
    return updated(state, weighed, await run(answering, weighed, answerBytes))
  }

  /**
   * How much an answer takes is known before it is made, also where that is not in the state. Undefined where the references have
   * faults: those are told under the lock.
   */
  async function weighedDecision(state: T['State'], decision: T['Decision']): Promise<T['Decision'] | undefined> {
    if (isMinimal(state, decision) || !resource.isWeighedByReferences(decision)) return decision
    const reading = () => resource.references(database.db, request, decision, state)
    const references = await runAlone(database, request, 0, reading)
    try {
      return resource.decide(state, request, references)
    } catch (error) {
      if (error instanceof InvalidRequest) return undefined
      throw error
    }
  }

  /** Undefined where a mask is of another state, as the tag is: only under the lock can be told what happened since. */
  function decidedOrStale(state: T['State']): T['Decision'] | undefined {
    try {
      return resource.decide(state, request, null)
    } catch (error) {
      if (error instanceof UnknownMask && isStale(kind, request, state)) return undefined
      throw error
    }
  }

  async function run(
    { query, hooks }: Answering<T>,
    decision: T['Decision'],
    answerBytes: number,
  ): Promise<T['Row'] | undefined> {
    return await runSized(database, query, request, {
      answerBytes,
      isBatchable: resource.isBatchable(decision, request),
      executor: request.dryRun && decision.changes.length > 0 ? database.rollingBack : database.db,
      hooks,
    })
  }

  async function underLock(): Promise<Updated<T>> {
    reserve(stateBytes(resource, prefetched)) // it is read again
    if (await isKeyInUse(database, key, sharerOf(request))) throw new IdempotencyKeyInUse()
    const goOn = request.leavePlace() // there are few, and this may wait long for its row
    const work = () => inLockingTransaction(goOn)
    return await database.rowLockQueue.run(callerKey, work, `${kind} ${request.id}`, request.waiter)
  }

  async function inLockingTransaction(onLock: () => void): Promise<Updated<T>> {
    return await inTransaction(database, { rollback: request.dryRun }, async trx => {
      if (!(await takeKey(trx, key))) throw new IdempotencyKeyInUse()
      const endWait = request.waiter.beginWait('row_locks')
      await lockStatements[kind].run(trx, { id: request.id }).finally(endWait)
      onLock()
      if ((await firstVersion(key, query => query.single(trx))) !== undefined) throw new KeyTaken()
      // The lock holds the row. What else a decision rests on, shares and rights, may change until the statement that writes.
      for (let tries = 0; tries < LOCKED_TRIES_MAX; tries++) {
        const result = await onLocked(trx, { ...request, caller: await request.callerNow(trx) })
        if (result !== undefined) return result
      }
      throw new Error(`${kind} ${request.id} changed under its lock`)
    })
  }

  async function onLocked(trx: Transaction<Database>, asOfNow: T['Request']): Promise<Updated<T> | undefined> {
    const viewer = viewerParameters(asOfNow.caller)
    const state = await resource.read(trx, asOfNow.id, viewer)
    if (state === undefined) throw new ResourceNotFound(kind)
    const base = await mergeBaseOf(trx, state)
    const asked = base === undefined ? asOfNow : { ...asOfNow, base: base.values }
    const decision = await decidedUnderLock(trx, state, asked)
    const conflicts = decision?.conflicts ?? []
    const found = decision === undefined ? 'failed' : preconditionOf(kind, asOfNow, state, decision.changes)
    if (found === 'required') throw new PreconditionRequired()
    const isMet = conflicts.length === 0 && (base !== undefined || found === 'holds')
    if (decision === undefined || !isMet)
      throw await preconditionFailed(trx, resource, asOfNow, state, base && conflicts)
    const { query, hooks } = await statementFor(state, decision, viewer)
    const { onSend } = hooks // what is answered in a transaction is stored only when that ends
    const result = updated(state, decision, await query.single(trx, { onSend }))
    return result === undefined || base === undefined ? result : { ...result, merged: true, notes: [mergeNote(base)] }
  }

  /** Undefined where a mask is of another state, as the tag is. */
  async function decidedUnderLock(
    trx: Transaction<Database>,
    state: T['State'],
    asked: T['Request'],
  ): Promise<T['Decision'] | undefined> {
    try {
      const references = await resource.references(trx, asked, resource.decide(state, asked, null), state)
      return resource.decide(state, asked, references)
    } catch (error) {
      if (error instanceof UnknownMask && asked.base === undefined && isStale(kind, request, state)) return undefined
      throw error
    }
  }

  async function statementFor(
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    answerBytes = answerBytesOf(state, decision),
  ): Promise<Answering<T>> {
    reserve(answerBytes)
    if (decision.changes.length === 0) {
      if (!isMinimal(state, decision)) resource.requireAnswerable(state, request.snapshotBytesMax)
      const query = resource.reading(state, viewer, isMinimal(state, decision))
      return { query, hooks: { onSend: watch.restart, onAnswer: () => undefined } }
    }
    const content = await auditedContent(resource, state, decision)
    const entry = auditOf(resource, state, decision, request.actor, content)
    const write = { entry, decision, state }
    const query = resource.writing(state, decision, viewer, Object.assign(entry, key), request.minimal)
    return { query, hooks: { onSend: () => beginWrite(write), onAnswer: row => endWrite(row !== undefined) } }
  }

  /** Only what is sent has its time, in one go: others' answers wait for what has an earlier one than they. */
  function beginWrite(write: LastWrite<T>): void {
    endWrite(false) // of what was sent before, and refused
    watch.restart()
    last = write
    if (request.dryRun) return
    const { entry, state } = write
    const { writesUnderWay } = database
    setTimeOfNow(entry, state, writesUnderWay.shownBefore(databaseTimeMs(state)))
    endWrite = writesUnderWay.begin(writeKey(kind, state.id), entry.at)
  }

  function updated(state: T['State'], decision: T['Decision'], row: T['Row'] | undefined): Updated<T> | undefined {
    if (row === undefined) return undefined
    const snapshot = isMinimal(state, decision) ? null : resource.snapshot(row)
    const own = row.version === state.version ? state.made_at : (last?.entry.at ?? null)
    const { version } = request.dryRun ? state : row
    const { tools_at: toolsAt = null } = row
    return updatedTo({ version, made_at: laterInstant(own, toolsAt) }, snapshot, state, decision, toolsAt)
  }

  function updatedTo(
    { version, made_at }: Pick<T['State'], 'version' | 'made_at'>,
    snapshot: AnswerText | null,
    state: T['State'],
    decision: T['Decision'],
    toolsAt: string | null = null,
  ): Updated<T> {
    const at = request.dryRun ? null : made_at
    const overwritten = overwrittenBy(request, state, decision.changes)
    return { snapshot, version, at, toolsAt, decision, overwritten, merged: false, notes: [] }
  }

  /**
   * Whether the caller is told the version alone. Not one whose old tag is let through because nothing is left to change:
   * with the new tag they would overwrite what others made since, and never have seen it.
   */
  function isMinimal(state: T['State'], { changes }: T['Decision']): boolean {
    if (!request.minimal || changes.length > 0) return request.minimal
    return !isStale(kind, request, state)
  }

  function answerBytesOf(state: T['State'], decision: T['Decision']): number {
    return isMinimal(state, decision) ? 0 : resource.answerBytes(state, decision)
  }

  function isStaleMerge(state: T['State']): boolean {
    return request.merges && isStale(kind, request, state)
  }

  /**
   * What a merge starts from; undefined where none is asked for or needed, and where the past is not known that far.
   */
  async function mergeBaseOf(trx: Transaction<Database>, state: T['State']): Promise<MergeBase | undefined> {
    if (!isStaleMerge(state)) return undefined
    const since = namedVersion(kind, request, state)
    return since === undefined ? undefined : await readMergeBase(trx, kind, state.id, since)
  }

  /** What became of a write whose commit was not confirmed, and the answer if it was applied. */
  async function settled(doubt: CommitUnknown): Promise<Updated<T>> {
    const outcome = await outcomeOf(database, doubt, last?.entry)
    if (outcome !== 'applied' || last === undefined) throw lost(outcome, doubt, request)
    if (key.idempotency_key !== null) throw new KeyTaken()
    const write = last
    const result = await withRetries(() => asStored(write)).catch(() => undefined)
    if (result === undefined) throw lost('applied', doubt, request)
    return result
  }

  /** The answer of the caller's own version: by now others may have made later ones, which they have not seen. */
  async function asStored({ entry, decision, state }: LastWrite<T>): Promise<Updated<T> | undefined> {
    const { caller, prefetched: now } = await request.authenticateAgain()
    const { version_after: version, at } = entry
    if (request.minimal) {
      const isVisible = now !== null && resource.isVisible(now as T['State'], caller) // the lookup of its route
      return isVisible ? updatedTo({ version, made_at: at }, null, state, decision) : undefined
    }
    const past = await readPast(database, resource, request.id, { version }, { ...request, caller })
    return { ...updatedTo({ version, made_at: past.at }, past.snapshot, state, decision), notes: past.notes }
  }
}
