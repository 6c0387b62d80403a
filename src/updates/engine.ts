import { sql, type Transaction } from 'kysely'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import { CommitUnknown, ConnectionLost } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import type { Outcome } from '../db/connection/settle.js'
import { classifyDatabaseError } from '../db/connection/sqlstate.js'
import type { RowQuery, SendHooks } from '../db/statements/row-statement.js'
import { statement } from '../db/statements/statement.js'
import type { Database } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import {
  IdempotencyKeyInUse,
  PreconditionRequired,
  ResourceNotFound,
  TRY_AGAIN,
  Unavailable,
  UnknownMask,
} from '../errors.js'
import type { AnswerText } from './answer-text.js'
import { type AuditEntry, NO_KEY } from './audit.js'
import { firstVersion, isKeyInUse, KeyTaken, takeKey } from './idempotency.js'
import { type MergeBase, mergeNote, readMergeBase } from './merge.js'
import { isStale, namedVersion, overwrittenBy, preconditionFailed, preconditionOf } from './precondition.js'
import { readPast, runShown } from './read.js'
import type { ResourceTypes, Updated, UpdateRequest, VersionedResource } from './resource.js'
import { entryOf, lockRow, setTimeOfNow, tryLockRow } from './write.js'

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
 * What an agent or a tool gives to it is in `resource.ts`, what `If-Match` means in `precondition.ts`, and what every write has in
 * `write.ts`.
 */

/** Decisions under the lock that others' changes of shares and rights overtook are given up after so many. */
const LOCKED_TRIES_MAX = 5

interface LastWrite<T extends ResourceTypes> {
  entry: AuditEntry
  decision: T['Decision']
  /** What it was decided on. */
  state: T['State']
}

/**
 * Updates a resource from its prefetched state. Throws `ResourceNotFound`, `PreconditionFailed`, `PreconditionRequired`, what `decide` and
 * the bounds throw, for a key `IdempotencyKeyInUse` and `KeyTaken`, and `Unavailable`, which says what became of the update.
 */
export async function update<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  request: T['Request'],
  prefetched: T['State'],
): Promise<Updated<T>> {
  const { kind } = resource
  let last: LastWrite<T> | undefined
  const key = request.dryRun ? NO_KEY : request.key
  let hasLostConnection = false
  try {
    return await withRetries(async () => {
      return (await onPrefetched(prefetched)) ?? (await underLock().catch(asOwnAttempt))
    })
  } catch (error) {
    if (error instanceof CommitUnknown) return await settled(error)
    throw unavailableFor(error) ?? error
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
    const { query, hooks } = statementFor(state, decision, viewerParameters(request.caller))
    const row = await runShown(database, query, request, {
      bytes: isMinimal(state, decision) ? 0 : resource.definitionBytes(state, decision),
      isBatchable: resource.isBatchable(decision),
      executor: request.dryRun && decision.changes.length > 0 ? database.rollingBack : database.db,
      hooks,
    })
    return updated(state, decision, row)
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

  async function underLock(): Promise<Updated<T>> {
    if (await isKeyInUse(database, key)) throw new IdempotencyKeyInUse()
    const row = `${kind} ${request.id}`
    const { rowTurn, lockedRow } = request.bounds
    return await rowTurn(row, async () => {
      const stored =
        (await inLockingTransaction(tryLockRow)) ?? (await lockedRow(row, () => inLockingTransaction(lockRow)))
      if (stored === undefined) throw new ResourceNotFound(kind)
      return stored
    })
  }

  /** Undefined where `lock` did not lock the row. */
  async function inLockingTransaction(lock: typeof lockRow): Promise<Updated<T> | undefined> {
    return await inTransaction(database, { rollback: request.dryRun }, async trx => {
      if (!(await takeKey(trx, key))) throw new IdempotencyKeyInUse()
      if (!(await lock(trx, kind, request.id))) return undefined
      if ((await firstVersion(key, query => query.single(trx))) !== undefined) throw new KeyTaken()
      // The lock holds the row. What else a decision rests on, shares and rights, may change until the statement that writes.
      for (let tries = 0; tries < LOCKED_TRIES_MAX; tries++) {
        const result = await onLocked(trx, { ...request, caller: await request.callerNow(trx) })
        if (result !== undefined) return result
      }
      const message = `Others changed shares or rights each time this update was tried. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
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
    const { query, hooks } = statementFor(state, decision, viewer)
    const result = updated(state, decision, await query.single(trx, hooks))
    return result === undefined || base === undefined ? result : { ...result, merged: true, notes: [mergeNote(base)] }
  }

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

  /** The statement that answers the update, and what is to be done when it is sent. */
  function statementFor(
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
  ): { query: RowQuery<T['Row']>; hooks?: SendHooks } {
    if (decision.changes.length === 0) {
      if (!isMinimal(state, decision)) resource.requireAnswerable(state, request.snapshotBytesMax)
      return { query: resource.reading(state, viewer, isMinimal(state, decision)) }
    }
    const entry = entryOf(resource, state, decision, request.actor, key)
    const write = { entry, decision, state }
    const query = resource.writing(state, decision, viewer, entry, request.minimal)
    return { query, hooks: { onSend: () => beginWrite(write) } }
  }

  /** A write has the time at which it is sent. */
  function beginWrite(write: LastWrite<T>): void {
    last = write
    if (!request.dryRun) setTimeOfNow(write.entry, write.state)
  }

  function updated(state: T['State'], decision: T['Decision'], row: T['Row'] | undefined): Updated<T> | undefined {
    if (row === undefined) return undefined
    const snapshot = isMinimal(state, decision) ? null : resource.snapshot(row)
    return updatedTo((request.dryRun ? state : row).version, snapshot, state, decision)
  }

  function updatedTo(
    version: number,
    snapshot: AnswerText | null,
    state: T['State'],
    decision: T['Decision'],
  ): Updated<T> {
    const overwritten = overwrittenBy(request, state, decision.changes)
    return { snapshot, version, decision, overwritten, merged: false, notes: [] }
  }

  /** Whether the caller is told the version alone: not with a stale tag, or they would overwrite what they never saw. */
  function isMinimal(state: T['State'], { changes }: T['Decision']): boolean {
    if (!request.minimal || changes.length > 0) return request.minimal
    return !isStale(kind, request, state)
  }

  function isStaleMerge(state: T['State']): boolean {
    return request.merges && isStale(kind, request, state)
  }

  /** What a merge starts from; undefined where none is asked for or needed, or the past is not known that far. */
  async function mergeBaseOf(trx: Transaction<Database>, state: T['State']): Promise<MergeBase | undefined> {
    if (!isStaleMerge(state)) return undefined
    const since = namedVersion(kind, request, state)
    return since === undefined ? undefined : await readMergeBase(trx, kind, state.id, since)
  }

  async function settled(doubt: CommitUnknown): Promise<Updated<T>> {
    const outcome = last === undefined ? 'unknown' : await database.settle(doubt, auditRow.bind(last.entry))
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
    const { version_after: version } = entry
    if (request.minimal) {
      const isVisible = now !== null && resource.isVisible(now as T['State'], caller) // the lookup of its route
      return isVisible ? updatedTo(version, null, state, decision) : undefined
    }
    const past = await readPast(database, resource, request.id, { version }, { ...request, caller })
    return { ...updatedTo(version, past.snapshot, state, decision), notes: past.notes }
  }
}

/** How to repeat an update whose outcome is not known, by what it carried. */
function waysToRepeat({ merges, key, precondition }: UpdateRequest): string {
  if (key.idempotency_key !== null) return 'Repeat it with the same Idempotency-Key: it is applied once.'
  if (merges)
    return 'A merge that is repeated is a new one: read the resource first, and send an Idempotency-Key with the next.'
  if (precondition.kind !== 'tags')
    return 'Read the resource before you repeat it: a repetition could overwrite what others changed since.'
  return (
    'Repeating it with the same If-Match is safe, and only the answer 200 or 412 to it settles this; a 412 names in ' +
    'applied_etag the version in which it was stored, if it was.'
  )
}

function lost(outcome: Outcome, doubt: CommitUnknown, request: UpdateRequest): Unavailable {
  const rest = {
    applied: 'The update was applied, and its answer could not be read. Read the resource before the next update.',
    not_applied: `The update was not applied. ${TRY_AGAIN}`,
    unknown: `Whether the update was applied is not known. ${waysToRepeat(request)}`,
  }
  const message = `The connection to the database was lost. ${rest[outcome]}`
  return new Unavailable('database_unreachable', message, outcome, { cause: doubt })
}

/** Answers a row if this very audit row was stored; its hash covers the moment and everything before it. */
const auditRow = statement<AuditEntry, { found: number }>('audit_row', param => {
  return sql`select 1 as found from audit
    where resource_kind = ${param('resource_kind')}::text and resource_id = ${param('resource_id')}::integer
      and version_after = ${param('version_after')}::integer and hash = decode(${param('hash')}::text, 'hex')`
})
