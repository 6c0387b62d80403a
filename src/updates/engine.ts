import type { Transaction } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import { CommitUnknown } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import { bytesOf, queries } from '../db/statements/queries.js'
import { type Ask, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import {
  type Outcome,
  PreconditionFailed,
  Refused,
  ResourceNotFound,
  TRY_AGAIN,
  Unavailable,
  UnknownRedaction,
} from '../errors.js'
import type { AuditEntry } from './audit.js'
import { AUDIT_TYPES } from './audit-rows.js'
import { fillKey, Repeated, takeKey } from './idempotency.js'
import { mergeNote, readMergeBase } from './merge.js'
import { insertBlank, nextId } from './new-row.js'
import { answerPast } from './past.js'
import { isStale, namedVersion, overwrittenBy, preconditionFailed, preconditionOf, tagOf } from './precondition.js'
import type { Decision, Job, ResourceTypes, Updated, UpdateRequest, VersionedState } from './resource.js'
import { runStatement } from './run-statement.js'
import { entryOf, lockRow, setTimeOfNow } from './write.js'

/*
 * Creates, updates and deletes agents and tools, each in one transaction. The algorithm:
 *
 *   1. Decide on the state that was read with the authentication, and write with one statement. Under the row's lock it checks that
 *      version, access (ownership and shares) and caller (token, user, permission, groups, bindings) have not changed since; if they have,
 *      it returns no row. It never waits for the row's lock.
 *   2. If it returned no row, or if the decision needs the lock: lock the row, authenticate again, read the row again, decide again, write.
 *      A creation inserts a blank row in the same transaction and updates it; a deletion is an update.
 *   3. If the commit is not confirmed: settle. The audit row shows whether the write was applied.
 *
 * Invariants: each effective change makes one version and one audit row, in one transaction. A decision is only written to the state that
 * it was made on. An unconfirmed commit is never repeated, and an outcome is never guessed.
 *
 * `resource.ts` has the interface of a resource, `precondition.ts` the meaning of `If-Match`, `write.ts` the parts of every write.
 */

/**
 * Updates a resource, starting from its prefetched state. Throws `ResourceNotFound`, `PreconditionFailed`, `Refused` (no precondition),
 * `IdempotencyKeyInUse`, `Repeated`, `Unavailable` with the outcome, and what `decide` and the bounds throw.
 */
export async function update<T extends ResourceTypes>(job: Job<T>, prefetched: T['State']): Promise<Updated<T>> {
  return await settled(
    job,
    async progress => (await decideAndWrite(job, prefetched)) ?? (await lockAndDecideAgain(job, progress)),
  )
}

/** Give up after 5 ids that other rows have already. The next request tries the ids after them. */
const IDS_TRIED_MAX = 5

/**
 * Creates a resource in one transaction: inserts a blank row that the caller owns, then updates it. Returns its id. A failed creation and a
 * dry run use up an id. Throws as `update` does.
 */
export async function create<T extends ResourceTypes>(job: Job<T>): Promise<Updated<T>> {
  const { database, resource, request } = job
  return await settled(job, async progress => {
    const make: typeof lockRow = (trx, _, id) => insertBlank(trx, resource, id, request.caller.userId)
    for (let tries = 0; tries < IDS_TRIED_MAX; tries++) {
      const own = { ...job, request: { ...request, id: await nextId(database.db, resource.kind) } }
      const made = await inLockingTransaction(own, make, progress)
      if (made !== undefined) return made
    }
    throw new Unavailable('overloaded', `Each new id was in use already. ${TRY_AGAIN}`, 'not_applied')
  })
}

/** Repeats an attempt that certainly stored nothing, and settles an unconfirmed commit. */
async function settled<T extends ResourceTypes>(
  job: Job<T>,
  attempt: (progress: Progress) => Promise<Updated<T>>,
): Promise<Updated<T>> {
  const progress = { isKeyTaken: false }
  try {
    return await withRetries(() => {
      progress.isKeyTaken = false
      return attempt(progress)
    })
  } catch (error) {
    if (error instanceof InDoubt) return await settle(job, error as InDoubt<T>)
    const failure = unavailableFor(error) ?? error
    if (failure instanceof Unavailable) failure.isKeyLookedUp = progress.isKeyTaken
    throw failure
  }
}

/** What an attempt did. `isKeyTaken`: no earlier request with its key was stored. */
interface Progress {
  isKeyTaken: boolean
}

/** A decision on `state`, with the audit row to store. */
interface Write<T extends ResourceTypes> {
  entry: AuditEntry
  decision: T['Decision']
  state: T['State']
}

/** The commit of an attempt was not confirmed. `write` is what the attempt stored; undefined if it stored at most a key. */
class InDoubt<T extends ResourceTypes = ResourceTypes> extends Error {
  constructor(
    readonly doubt: CommitUnknown,
    readonly write: Write<T> | undefined,
  ) {
    super(doubt.message, { cause: doubt })
  }
}

function inDoubt<T extends ResourceTypes>(error: unknown, write: Write<T> | undefined): unknown {
  return error instanceof CommitUnknown ? new InDoubt(error, write) : error
}

/** Step 1. Undefined if the request has a key, if the decision needs the lock, or if the state changed since it was read. */
async function decideAndWrite<T extends ResourceTypes>(
  job: Job<T>,
  state: T['State'],
): Promise<Updated<T> | undefined> {
  const { database, resource, request } = job
  if (request.key !== null) return undefined
  if (request.merges && isStale(request, state)) {
    resource.requireRights(state, request.caller) // checked before a lock is taken
    return undefined
  }
  const decision = decidedUnlessStale(request, state, () => resource.decide(state, request, null))
  if (decision === undefined || !resource.isStorable(decision)) return undefined
  if (preconditionOf(request, state, decision.changes) !== 'holds') return undefined
  const changes = decision.changes.length > 0
  const { write, query, onSend } = statementFor(job, state, decision)
  const asked = {
    bytes: isMinimal(request, state, decision) ? 0 : resource.definitionBytes(state, decision),
    isDryRun: request.dryRun && changes,
    onSend,
  }
  const row = await runStatement(database, query, request, asked).catch(error => {
    throw inDoubt(error, write)
  })
  return row && updatedBy(job, state, decision, row)
}

/** The result of `decide`. Undefined if both tag and redaction belong to an older state: step 2 then reports what changed since. */
function decidedUnlessStale<D>(request: UpdateRequest, state: VersionedState, decide: () => D): D | undefined {
  try {
    return decide()
  } catch (error) {
    if (error instanceof UnknownRedaction && request.base === undefined && isStale(request, state)) return undefined
    throw error
  }
}

/** Step 2. */
async function lockAndDecideAgain<T extends ResourceTypes>(job: Job<T>, progress: Progress): Promise<Updated<T>> {
  const updated = await inLockingTransaction(job, lockRow, progress)
  if (updated === undefined) throw new ResourceNotFound(job.resource.kind)
  return updated
}

/** Give up after 5 attempts if shares or rights keep changing while the row is locked. */
const LOCKED_TRIES_MAX = 5

/** Step 2 in one transaction. Undefined if `lock` did not lock the row. */
async function inLockingTransaction<T extends ResourceTypes>(
  { database, resource, request }: Job<T>,
  lock: typeof lockRow,
  progress: Progress,
): Promise<Updated<T> | undefined> {
  const { key } = request
  let write: Write<T> | undefined
  try {
    return await inTransaction(database, { rollback: request.dryRun }, async trx => {
      if (key !== null) await takeKey(trx, key)
      progress.isKeyTaken = true
      if (!(await lock(trx, resource.kind, request.id))) return undefined
      // The lock covers only the row. Shares and rights may still change before the write, which checks them: then decide again.
      for (let tries = 0; tries < LOCKED_TRIES_MAX; tries++) {
        const asOfNow = { database, resource, request: { ...request, caller: await request.callerNow(trx) } }
        const { state, decision, base } = await decidedUnderLock(trx, asOfNow)
        const planned = statementFor(asOfNow, state, decision)
        write = planned.write
        planned.onSend?.()
        const row = await planned.query(trx)
        if (row === undefined) continue
        if (key !== null)
          await fillKey(trx, key, { id: state.id, version: row.version, isUnchanged: write === undefined })
        const updated = updatedBy(asOfNow, state, decision, row)
        return base === undefined ? updated : { ...updated, merged: true, notes: [mergeNote(base)] }
      }
      const message = `Others changed shares or rights each time this update was tried. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    })
  } catch (error) {
    throw inDoubt(error, write)
  }
}

const IF_MATCH_REQUIRED = 'This update must have If-Match. A GET of the agent or tool returns its current ETag.'

/** Reads the state under the lock and decides on it. `base` is the start of a merge. Throws the refusal. */
async function decidedUnderLock<T extends ResourceTypes>(trx: Transaction<Tables>, { resource, request }: Job<T>) {
  const { kind } = resource
  const state = await resource.read(trx, request.id, viewerParameters(request.caller))
  if (state === undefined) throw new ResourceNotFound(kind)
  const since = request.merges && isStale(request, state) ? namedVersion(request, state) : undefined
  const base = since === undefined ? undefined : await readMergeBase(trx, kind, state.id, since)
  const asked = base === undefined ? request : { ...request, base: base.values }
  const first = decidedUnlessStale(asked, state, () => resource.decide(state, asked, null))
  const references = first && (await resource.references(trx, asked, first, state))
  const decision = references && decidedUnlessStale(asked, state, () => resource.decide(state, asked, references))
  const found = decision === undefined ? 'failed' : preconditionOf(request, state, decision.changes)
  if (found === 'required') throw new Refused('PRECONDITION_REQUIRED', IF_MATCH_REQUIRED)
  if (found === 'matched') throw new PreconditionFailed('matched', tagOf(request, state), null, 'none')
  const conflicts = decision?.conflicts ?? []
  const isMet = conflicts.length === 0 && (found === 'holds' || base !== undefined)
  if (decision !== undefined && isMet) return { state, decision, base }
  throw await preconditionFailed(trx, request, state, resource.asked(state, request), base && conflicts)
}

/** The statement that answers the update, and the decision that it stores, if any. */
function statementFor<T extends ResourceTypes>(
  { resource, request }: Job<T>,
  state: T['State'],
  decision: T['Decision'],
): { query: Ask<T['Row']>; write?: Write<T>; onSend?: () => void } {
  const viewer = viewerParameters(request.caller)
  if (decision.changes.length === 0) {
    const minimal = isMinimal(request, state, decision)
    if (!minimal) resource.requireAnswerable(state, request.snapshotBytesMax)
    return { query: resource.reading(state, viewer, minimal) }
  }
  const entry = entryOf(resource, state, decision, request.actor)
  const query = resource.writing(state, decision, viewer, entry, request.minimal)
  const write = { entry, decision, state }
  return request.dryRun ? { query, write } : { query, write, onSend: () => setTimeOfNow(entry, state) }
}

/** True if the answer has the version only. A caller with a stale tag gets the snapshot, or they would next overwrite changes that they never saw. */
function isMinimal(request: UpdateRequest, state: VersionedState, { changes }: Decision): boolean {
  return request.minimal && (changes.length > 0 || !isStale(request, state))
}

function updatedBy<T extends ResourceTypes>(
  { resource, request }: Job<T>,
  state: T['State'],
  decision: T['Decision'],
  row: T['Row'],
): Updated<T> {
  const snapshot = isMinimal(request, state, decision) ? null : resource.snapshot(row)
  const overwritten = overwrittenBy(request, state, decision.changes)
  const { version } = request.dryRun ? state : row
  return { snapshot, id: state.id, version, decision, overwritten, merged: false, notes: [] }
}

/** Step 3: finds out whether a write was applied, and answers it if it was. Throws `Unavailable` otherwise, and `KeyTaken`. */
async function settle<T extends ResourceTypes>(job: Job<T>, { doubt, write }: InDoubt<T>): Promise<Updated<T>> {
  const { database, request } = job
  const outcome = write === undefined ? 'unknown' : await database.settle(doubt, auditRow.bind(write.entry))
  if (outcome !== 'applied' || write === undefined) throw lost(outcome, doubt, job)
  if (request.key !== null)
    throw new Repeated({ id: write.entry.resource_id, version: write.entry.version_after, isUnchanged: false })
  const answer = await withRetries(() => answerStored(job, write)).catch(() => undefined)
  if (answer === undefined) throw lost('applied', doubt, job, write.entry.resource_id)
  return answer
}

/** The answer for the version that the caller made: there may be later versions, whose tag would hide others' changes. */
async function answerStored<T extends ResourceTypes>(
  job: Job<T>,
  { entry: { resource_id: id, version_after: version }, decision, state }: Write<T>,
): Promise<Updated<T> | undefined> {
  const { resource, request } = job
  const { caller, prefetched } = await request.authenticateAgain()
  const updated = { id, version, decision, overwritten: overwrittenBy(request, state, decision.changes), merged: false }
  if (request.minimal) {
    // `prefetched` is of the resource type of this route. After a creation or deletion the caller may see the minimal answer in any case.
    const isVisible = prefetched !== null && resource.isVisible(prefetched as T['State'], caller)
    return isVisible || resource.act !== 'update' ? { ...updated, snapshot: null, notes: [] } : undefined
  }
  const { snapshot, notes } = await answerPast({ ...job, request: { ...request, caller } }, id, version)
  return { ...updated, snapshot, notes }
}

/** How to repeat a request whose outcome is not known, by what it carried. */
function waysToRepeat<T extends ResourceTypes>({ resource, request }: Job<T>): string {
  const { merges, key, precondition } = request
  if (key !== null) return 'Repeat it with the same Idempotency-Key: it is applied once.'
  if (resource.act === 'creation')
    return 'Look for it in the list before you repeat it: a second one may be created. Send an Idempotency-Key with the next.'
  if (resource.act === 'deletion') return 'Repeat it: 404 then says that it was applied.'
  if (merges)
    return 'A repeated merge is applied again: read the resource first, and send an Idempotency-Key with the next.'
  if (precondition.kind !== 'tags')
    return 'Read the resource before you repeat it: a repetition could overwrite what others changed since.'
  return (
    'Repeating it with the same If-Match is safe, and only the answer 200 or 412 to it settles this; a 412 names in ' +
    'applied_etag the version in which it was stored, if it was.'
  )
}

function lost<T extends ResourceTypes>(outcome: Outcome, doubt: CommitUnknown, job: Job<T>, id?: number): Unavailable {
  const { act } = job.resource
  const rest = {
    applied: `The ${act} was applied, and its answer could not be read. Read ${id ?? 'the resource'} before the next update.`,
    not_applied: `The ${act} was not applied. ${TRY_AGAIN}`,
    unknown: `Whether the ${act} was applied is not known. ${waysToRepeat(job)}`,
  }
  const message = `The connection to the database was lost. ${rest[outcome]}`
  return new Unavailable('database_unreachable', message, outcome, { cause: doubt })
}

/** Returns a row if exactly this audit row was stored: its hash covers the time and all rows before it. */
const auditRow = statement<AuditEntry, { version_after: number }>('audit_row', AUDIT_TYPES, param =>
  queries()
    .selectFrom('audit')
    .select('version_after')
    .where('resource_kind', '=', param('resource_kind'))
    .where('resource_id', '=', param('resource_id'))
    .where('version_after', '=', param('version_after'))
    .where('hash', '=', bytesOf(param('hash'))),
)
