import type { Kysely, Transaction } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import { CommitUnknown } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import { bytesOf, queries } from '../db/statements/queries.js'
import { statement } from '../db/statements/statement.js'
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
import { fillKey, takeKey } from './idempotency.js'
import { insertBlank, nextId } from './new-row.js'
import { isStale, overwrittenBy, preconditionFailed, preconditionOf, tagOf } from './precondition.js'
import type { Decided, Job, ResourceTypes, Updated, UpdateRequest, VersionedState } from './resource.js'
import { entryOf, lockRow, setTimeOfNow } from './write.js'

/*
 * Creates, updates, deletes and restores agents and tools:
 *
 *   READ (with the authentication) -> facts about newly referred records -> decide -> WRITE -> render
 *
 * An update of a resource's own columns without an Idempotency-Key is one writing statement. It never waits for the row: it stores nothing
 * if the row is locked, or if version or rights have changed since. Then, and for everything else, the same steps run in a transaction that
 * takes the key, locks the row and reads again.
 *
 * Invariants: each effective change makes one version and one audit row, in one transaction. A decision is only written to the state that
 * it was made on. An unconfirmed commit is never repeated, and an outcome is never guessed.
 */

/**
 * Updates, deletes or restores a resource, starting from the state that was read with the authentication; undefined if there was none.
 * Throws `ResourceNotFound`, `PreconditionFailed`, `Refused` (no precondition), `IdempotencyKeyInUse`, `Repeated`, `Unavailable` with the
 * outcome, and what `decide` throws.
 */
export async function update<T extends ResourceTypes>(job: Job<T>, state: T['State'] | undefined): Promise<Updated<T>> {
  return await settled(job, async progress => {
    const isAlone = state !== undefined && job.request.key === null && job.resource.act !== 'deletion'
    const alone = isAlone ? await inOneStatement(job, state) : undefined
    const updated = alone ?? (await inLockingTransaction(job, lockRow, progress))
    if (updated === undefined) throw new ResourceNotFound(job.resource.kind)
    return updated
  })
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

/** What an attempt did. `isKeyTaken`: no earlier request with its key was stored. */
interface Progress {
  isKeyTaken: boolean
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

/** Undefined if the decision takes a transaction, or if the row is locked or has changed since it was read. */
async function inOneStatement<T extends ResourceTypes>(
  job: Job<T>,
  state: T['State'],
): Promise<Updated<T> | undefined> {
  const { database, resource, request } = job
  const made = await decided(database.db, job, state)
  const { decision } = made
  if (decision.changes.length === 0 || request.dryRun) return await withoutWriting(job)
  if (!resource.isAlone(decision)) return undefined
  const answer = await answerOf(database.db, job, made)
  const entry = entryOf(resource, state, decision, request.actor)
  setTimeOfNow(entry, state)
  const viewer = viewerParameters(request.caller)
  const version = await resource.write(database.db, state, decision, viewer, entry).catch(error => {
    throw inDoubt(error, { entry, answer })
  })
  return version === undefined ? undefined : answer(version)
}

/** Answers a request that stores nothing by what is stored now: others may have changed it while the body arrived. Undefined if it has to be stored. */
async function withoutWriting<T extends ResourceTypes>(job: Job<T>): Promise<Updated<T> | undefined> {
  const { db } = job.database
  const { now, state } = await readNow(db, job)
  const made = await decided(db, now, state)
  if (made.decision.changes.length > 0 && !job.request.dryRun) return undefined
  return (await answerOf(db, now, made))(state.version)
}

/** Reads the caller and the resource of now. */
async function readNow<T extends ResourceTypes>(executor: Kysely<Tables>, job: Job<T>) {
  const { resource, request } = job
  const { caller, prefetched } = await request.readNow(executor)
  const viewer = viewerParameters(caller)
  // The address of a creation names no resource.
  const state = (prefetched as T['State'] | null) ?? (await resource.read(executor, request.id, viewer))
  if (state === undefined) throw new ResourceNotFound(resource.kind)
  if (resource.act === 'creation') state.isNew = true
  return { now: { ...job, request: { ...request, caller } }, viewer, state }
}

/** Give up after 5 attempts if shares or rights keep changing while the row is locked. */
const LOCKED_TRIES_MAX = 5

/** Undefined if `lock` did not lock the row. */
async function inLockingTransaction<T extends ResourceTypes>(
  job: Job<T>,
  lock: typeof lockRow,
  progress: Progress,
): Promise<Updated<T> | undefined> {
  const { database, resource, request } = job
  const { key } = request
  let written: Written<T> | undefined
  try {
    return await inTransaction(database, { rollback: request.dryRun }, async trx => {
      if (key !== null) await takeKey(trx, key)
      progress.isKeyTaken = true
      if (!(await lock(trx, resource.kind, request.id))) return undefined
      // The lock covers only the row. Shares and rights may still change before the write, which checks them: then decide again.
      for (let tries = 0; tries < LOCKED_TRIES_MAX; tries++) {
        const { now, viewer, state } = await readNow(trx, job)
        const made = await decided(trx, now, state)
        const { decision } = made
        const answer = await answerOf(trx, now, made)
        if (decision.changes.length > 0) {
          const entry = entryOf(resource, state, decision, request.actor)
          written = { entry, answer }
          if ((await resource.write(trx, state, decision, viewer, entry)) === undefined) continue
          await resource.writeRest(trx, state, decision, viewer)
        }
        const version = written?.entry.version_after ?? state.version
        if (key !== null) await fillKey(trx, key, { id: state.id, version, isUnchanged: written === undefined })
        return answer(request.dryRun ? state.version : version)
      }
      const message = `Others changed shares or rights each time this update was tried. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    })
  } catch (error) {
    throw inDoubt(error, written)
  }
}

const IF_MATCH_REQUIRED = 'This update must have If-Match. A GET of the agent or tool returns its current ETag.'

/** Decides on a state with all facts. Throws the refusal. */
async function decided<T extends ResourceTypes>(
  db: Kysely<Tables> | Transaction<Tables>,
  { resource, request }: Job<T>,
  state: T['State'],
): Promise<Decided<T>> {
  const facts = await resource.facts(db, state, request)
  const decision = decidedUnlessStale(request, state, () => resource.decide(state, request, facts))
  const found = decision === undefined ? 'failed' : preconditionOf(request, state, decision.changes)
  if (found === 'required') throw new Refused('PRECONDITION_REQUIRED', IF_MATCH_REQUIRED)
  if (found === 'matched') throw new PreconditionFailed('matched', tagOf(request, state), null, 'none')
  if (decision !== undefined && found === 'holds') return { state, decision, facts }
  throw await preconditionFailed(db, request, state, resource.asked(state, request))
}

/** The result of `decide`. Undefined if both tag and redaction belong to an older state: then it is reported what changed since. */
function decidedUnlessStale<D>(request: UpdateRequest, state: VersionedState, decide: () => D): D | undefined {
  try {
    return decide()
  } catch (error) {
    if (error instanceof UnknownRedaction && isStale(request, state)) return undefined
    throw error
  }
}

/** Reads what the answer still needs, and returns the function that makes it once the version is known. */
async function answerOf<T extends ResourceTypes>(
  db: Kysely<Tables>,
  { resource, request }: Job<T>,
  made: Decided<T>,
): Promise<(version: number) => Updated<T>> {
  const { state, decision } = made
  const isUnchanged = decision.changes.length === 0
  // A caller with a stale tag gets the snapshot, or they would next overwrite changes that they never saw.
  const isMinimal = request.minimal && !(isUnchanged && isStale(request, state))
  if (!isMinimal && isUnchanged) resource.requireAnswerable(state, request.snapshotBytesMax)
  const shown = isMinimal ? undefined : await resource.shown(db, made)
  const overwritten = overwrittenBy(request, state, decision.changes)
  return version => ({ snapshot: shown?.() ?? null, id: state.id, version, decision, overwritten, notes: [] })
}

/** What an attempt stored, with its answer. */
interface Written<T extends ResourceTypes> {
  entry: AuditEntry
  answer: (version: number) => Updated<T>
}

/** The commit of an attempt was not confirmed. `written` is undefined if the attempt stored at most a key. */
class InDoubt<T extends ResourceTypes = ResourceTypes> extends Error {
  constructor(
    readonly doubt: CommitUnknown,
    readonly written: Written<T> | undefined,
  ) {
    super(doubt.message, { cause: doubt })
  }
}

function inDoubt<T extends ResourceTypes>(error: unknown, written: Written<T> | undefined): unknown {
  return error instanceof CommitUnknown ? new InDoubt(error, written) : error
}

/** Finds out whether a write was applied, and answers it if it was. Throws `Unavailable` otherwise. */
async function settle<T extends ResourceTypes>(job: Job<T>, { doubt, written }: InDoubt<T>): Promise<Updated<T>> {
  const outcome = written === undefined ? 'unknown' : await job.database.settle(doubt, auditRow.bind(written.entry))
  if (outcome === 'applied' && written !== undefined) return written.answer(written.entry.version_after)
  throw lost(outcome, doubt, job)
}

function lost<T extends ResourceTypes>(outcome: Outcome, doubt: CommitUnknown, job: Job<T>): Unavailable {
  const { act } = job.resource
  const rest =
    outcome === 'not_applied'
      ? `The ${act} was not applied. ${TRY_AGAIN}`
      : `Whether the ${act} was applied is not known. ${waysToRepeat(job)}`
  return new Unavailable('database_unreachable', `The connection to the database was lost. ${rest}`, outcome, {
    cause: doubt,
  })
}

/** How to repeat a request whose outcome is not known, by what it carried. */
function waysToRepeat<T extends ResourceTypes>({ resource, request }: Job<T>): string {
  const { key, precondition } = request
  if (key !== null) return 'Repeat it with the same Idempotency-Key: it is applied once.'
  if (resource.act === 'creation')
    return 'Look for it in the list before you repeat it: a second one may be created. Send an Idempotency-Key with the next.'
  if (resource.act === 'deletion') return 'Repeat it: 404 then says that it was applied.'
  if (precondition.kind !== 'tags')
    return 'Read the resource before you repeat it: a repetition could overwrite what others changed since.'
  return (
    'Repeating it with the same If-Match is safe, and only the answer 200 or 412 to it settles this; a 412 names in ' +
    'applied_etag the version in which it was stored, if it was.'
  )
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
