import { sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { OPERATOR, type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import { databaseTimeMs, laterInstant } from '../db/clock.js'
import { CommitUnknown, ConnectionLost } from '../db/connection/database-error.js'
import { withRetries } from '../db/connection/retry.js'
import { classifyDatabaseError } from '../db/connection/sqlstate.js'
import type { RowQuery } from '../db/statements/row-statement.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { Database, ResourceKind } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import {
  IdempotencyKeyInUse,
  InvalidRequest,
  PreconditionFailed,
  PreconditionRequired,
  ResourceNotFound,
  Unavailable,
  UnknownMask,
} from '../errors.js'
import { type HeavyRequest, memoryFor, runSized, takePlaceFor } from './answer-size.js'
import { type AnswerText, digestOf } from './answer-text.js'
import {
  type Actor,
  type AuditEntry,
  type AuditedContent,
  auditEntry,
  type Change,
  NO_KEY,
  type RequestKey,
} from './audit.js'
import { changesSince } from './changes-since.js'
import { firstVersion, isKeyInUse, KeyTaken, takeKey } from './idempotency.js'
import { type MergeBase, mergeNote, readMergeBase } from './merge.js'
import type { Past } from './past.js'
import type { RecentChange } from './recent.js'
import { entityTag, type Precondition, preconditionHolds, versionsInTags } from './tag.js'

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
 */

/** An agent or a tool as one statement found it. Times are milliseconds, hashes are hex. */
export interface VersionedState {
  id: number
  version: number
  audit_head: string
  /** When this version was made; null where neither an audit row nor the anchor of the pruned ones tells. */
  made_at: string | null
  /** The version in which each field last changed. */
  field_versions: Record<string, number>
  /** What others changed lately. */
  recent: RecentChange[]
  /** The database's clock when the state was read. */
  read_at_ms: number
  /** When the state arrived here, by this process's own clock: makes the database's time of any later moment. */
  received_ms: number
  /** What texts take that were left out, being large: they are null. Absent where nothing is ever left out. */
  left_out_bytes?: number
}

/** What an update would change. Each kind of resource adds what its statements need. */
export interface Decision {
  changes: Change[]
  /** Of a merge the fields that both sides changed, each to something else: such a decision is not made. */
  conflicts?: readonly string[]
}

/** One authenticated request to update a resource. Each kind adds what its decision needs. */
export interface UpdateRequest extends HeavyRequest {
  id: number
  /** The caller as they are by now. Throws what refuses them. */
  callerNow(executor: Executor): Promise<Caller>
  actor: Actor
  /** The fields that the request names, in the form in which they are stored. One that names none is a read. */
  fields: object
  precondition: Precondition
  /** Whether every update must carry a precondition; a caller's token may ask for it too. */
  preconditionRequired: boolean
  dryRun: boolean
  /** Whether a stale precondition asks for a merge. */
  merges: boolean
  /** Of a merge, what the fields that others changed since the version that the precondition names were then. */
  base?: Past['values'] | undefined
  /** The caller wants no snapshot: none is made. */
  minimal: boolean
  /** What an `Idempotency-Key` makes of the request. */
  key: RequestKey
  /** The most bytes that the definitions of an answer may take. */
  snapshotBytesMax: number
  /** Takes memory for an answer of so many bytes until the request is over; throws when there is none. */
  reserveMemory(bytes: number): void
}

/** The types that belong to one kind of resource. */
export interface ResourceTypes {
  State: VersionedState
  Request: UpdateRequest
  Decision: Decision
  /** What the database says of what a decision attaches. */
  References: unknown
  /** What the statements answer. */
  Row: ShownRow
}

/** What every statement of a resource answers; `tools_at`, of an agent, when the newest of the tools that it shows was made so. */
export interface ShownRow {
  version: number
  tools_at?: string | null
}

/** What a kind of resource gives to the algorithm: how it decides, and its statements. */
export interface VersionedResource<T extends ResourceTypes> {
  readonly kind: ResourceKind
  /** Reads the state as the viewer sees it; undefined when there is none. */
  read(executor: Executor, id: number, viewer: ViewerParameters): Promise<T['State'] | undefined>
  /**
   * Decides, without a database: the same state, request and references give the same decision. With `references` null
   * what is newly attached is taken for granted: the writing statement checks it. Throws domain errors.
   */
  decide(state: T['State'], request: T['Request'], references: T['References'] | null): T['Decision']
  /** What the whole request asks to change of the state, whatever rules, rights and a merge make of it. Never throws. */
  asked(state: T['State'], request: T['Request']): readonly Change[]
  references(
    executor: Executor,
    request: T['Request'],
    decision: T['Decision'],
    state: T['State'],
  ): Promise<T['References']>
  /** Whether the writing statement can check the rest of the decision itself; else it is made anew under the lock. */
  isStorable(decision: T['Decision']): boolean
  /** Whether the statement may run in a batch: not where it may wait for others or take long. */
  isBatchable(decision: T['Decision'], request: T['Request']): boolean
  /** The same of the statement that answers the stored state. */
  isReadBatchable(state: T['State'], caller: Caller): boolean
  /** Whether to decide what the request asks for, and to store it, is much work, whatever is stored. */
  isHeavy(request: T['Request']): boolean
  /**
   * About how many bytes the answer takes beyond the few thousand that every answer has: after the decision or, where it is
   * null, as stored.
   */
  answerBytes(state: T['State'], decision: T['Decision'] | null): number
  /** Whether it takes the references to know that: the decision attaches what takes much. */
  isWeighedByReferences(decision: T['Decision']): boolean
  /** The tools that an answer shows beside the resource itself, after the decision or, where it is null, as stored. */
  shownTools(state: T['State'], decision: T['Decision'] | null): readonly number[]
  /** What definitions take of the answer for the stored state. */
  definitionBytes(state: T['State']): number
  /** The statement that answers the stored state, or its version alone, if it is still this one. */
  reading(state: T['State'], viewer: ViewerParameters, minimal?: boolean): RowQuery<T['Row']>
  /**
   * The statement that stores the decision if the stored state is still this one, and answers the new one, or its
   * version alone. Its other values are put onto `entry`.
   */
  writing(
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry & RequestKey,
    minimal: boolean,
  ): RowQuery<T['Row']>
  /** Told of each decision whose commit was confirmed. */
  noteStored(decision: T['Decision']): void
  /** The snapshot that a row stands for. */
  snapshot(row: T['Row']): AnswerText
  /** The hash of the tool definition that the decision replaces, which the audit row keeps alive. */
  replacedDefinition(state: T['State'], decision: T['Decision']): string | null
  /**
   * Everything that the audit trail vouches for, after the decision or, where it is null, as stored: always in one
   * order.
   */
  audited(state: T['State'], decision: T['Decision'] | null): readonly unknown[]
  /** Whether all links are in the state: of a prefetched one long lists are cut. */
  hasAllLinks(state: T['State']): boolean
  /** Whether the caller may still be shown this state. */
  isVisible(state: T['State'], caller: Caller): boolean
  /** That the caller may update it at all. Throws what `decide` throws for that. */
  requireRights(state: T['State'], caller: Caller): void
  /** The snapshot of an earlier version. */
  readonly pastSnapshot: ShowPast<T>
}

/**
 * Shows an earlier version, in a transaction that sees `state`, with what the caller should know of it. Calls
 * `reserve` with the size of its definitions before it is made. Throws `VersionGone`.
 */
export type ShowPast<T extends ResourceTypes> = (
  executor: Executor,
  state: T['State'],
  past: Past,
  viewer: ViewerParameters,
  reserve: (bytes: number) => void,
) => Promise<{ text: AnswerText; notes: string[] }>

/**
 * What an update led to: the snapshot (null where none is wanted), the stored version, the decision, and
 * whose changes it replaced.
 */
export interface Updated<T extends ResourceTypes> {
  snapshot: AnswerText | null
  version: number
  /**
   * When the newest of what it shows was made: asked for with this time, it is answered again. Null after a dry run, and where
   * nothing tells.
   */
  at: string | null
  decision: T['Decision']
  overwritten: RecentChange[]
  /** Whether it was merged into what others made since the version that the precondition names. */
  merged: boolean
  /** What the caller should know of the answer. */
  notes: string[]
}

/** Decisions under the lock that others' changes of shares and rights overtook are given up after so many. */
const LOCKED_TRIES_MAX = 5

/** The last write that was tried: by its audit row it is found again. */
interface LastWrite<T extends ResourceTypes> {
  entry?: AuditEntry
  decision?: T['Decision']
}

/**
 * Updates a resource as a request asks. `prefetched` is the state that came with the authentication.
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
): Promise<Updated<T>> {
  const last: LastWrite<T> = {}
  const reserve = memoryFor(request)
  const callerKey = String(request.caller.token.id)
  const key = request.dryRun ? NO_KEY : request.key
  const endings: (() => void)[] = []
  let hasLostConnection = false
  try {
    const result = await withRetries(async () => {
      const updated = await onPrefetched(prefetched).finally(endWrites)
      return updated ?? (await underLock().finally(endWrites).catch(asOwnAttempt))
    })
    if (!request.dryRun) resource.noteStored(result.decision)
    return result
  } catch (error) {
    if (error instanceof CommitUnknown) return await settled(error)
    throw unavailableFor(error) ?? error
  }

  function endWrites(): void {
    for (const end of endings.splice(0)) end()
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
    if (preconditionOf(state, decision, request) !== 'holds' || !resource.isStorable(decision)) return undefined
    const weighed = await weighedDecision(state, decision)
    if (weighed === undefined) return undefined
    const answerBytes = answerBytesOf(state, weighed)
    await takePlaceFor(request, answerBytes) // before the update has its time: it is not to wait with it
    const query = await statementFor(state, weighed, viewerParameters(request.caller), answerBytes)
    return updated(state, weighed, await run(query, weighed, answerBytes))
  }

  /**
   * How much an answer takes is known before it is made, also where that is not in the state. Undefined where the references have
   * faults: those are told under the lock.
   */
  async function weighedDecision(state: T['State'], decision: T['Decision']): Promise<T['Decision'] | undefined> {
    if (isMinimal(state, decision) || !resource.isWeighedByReferences(decision)) return decision
    const references = await resource.references(database.db, request, decision, state)
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
      if (error instanceof UnknownMask && isStale(state)) return undefined
      throw error
    }
  }

  async function run(
    query: RowQuery<T['Row']>,
    decision: T['Decision'],
    answerBytes: number,
  ): Promise<T['Row'] | undefined> {
    return await runSized(database, query, request, {
      answerBytes,
      isBatchable: resource.isBatchable(decision, request),
      executor: request.dryRun && decision.changes.length > 0 ? database.rollingBack : database.db,
    })
  }

  async function underLock(): Promise<Updated<T>> {
    reserve(stateBytes(resource, prefetched)) // it is read again
    if (await isKeyInUse(database.db, key)) throw new IdempotencyKeyInUse()
    return await database.rowLockQueue.run(callerKey, inLockingTransaction, `${resource.kind} ${request.id}`)
  }

  async function inLockingTransaction(): Promise<Updated<T>> {
    return await inTransaction(database, { rollback: request.dryRun }, async trx => {
      if (!(await takeKey(trx, key))) throw new IdempotencyKeyInUse()
      await lockStatements[resource.kind].run(trx, { id: request.id })
      if ((await firstVersion(trx, key)) !== undefined) throw new KeyTaken()
      // The lock holds the row. What else a decision rests on, shares and rights, may change until the statement that writes.
      for (let tries = 0; tries < LOCKED_TRIES_MAX; tries++) {
        const result = await onLocked(trx, { ...request, caller: await request.callerNow(trx) })
        if (result !== undefined) return result
      }
      throw new Error(`${resource.kind} ${request.id} changed under its lock`)
    })
  }

  async function onLocked(trx: Transaction<Database>, asOfNow: T['Request']): Promise<Updated<T> | undefined> {
    const viewer = viewerParameters(asOfNow.caller)
    const state = await resource.read(trx, asOfNow.id, viewer)
    if (state === undefined) throw new ResourceNotFound(resource.kind)
    const base = await mergeBaseOf(trx, state)
    const asked = base === undefined ? asOfNow : { ...asOfNow, base: base.values }
    const decision = await decidedUnderLock(trx, state, asked)
    const conflicts = decision?.conflicts ?? []
    const found = decision === undefined ? 'failed' : preconditionOf(state, decision, asOfNow)
    if (found === 'required') throw new PreconditionRequired()
    const isMet = conflicts.length === 0 && (base !== undefined || found === 'holds')
    if (decision === undefined || !isMet) throw await preconditionFailed(trx, state, asOfNow, base && conflicts)
    const query = await statementFor(state, decision, viewer)
    const result = updated(state, decision, await query.single(trx))
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
      if (error instanceof UnknownMask && asked.base === undefined && isStale(state)) return undefined
      throw error
    }
  }

  async function statementFor(
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    answerBytes = answerBytesOf(state, decision),
  ): Promise<RowQuery<T['Row']>> {
    reserve(answerBytes)
    if (decision.changes.length === 0) return resource.reading(state, viewer, isMinimal(state, decision))
    const content = await auditedContent(resource, state, decision)
    // From here to its end in one go: who reads meanwhile must find the write under the time that it bears.
    const { writesUnderWay } = database
    const shown = request.dryRun ? null : writesUnderWay.shownBefore(databaseTimeMs(state))
    const entry = auditOf(resource, state, decision, request.actor, content, shown)
    if (!request.dryRun) endings.push(writesUnderWay.begin(writeKey(resource.kind, state.id), entry.at))
    Object.assign(last, { entry, decision })
    return resource.writing(state, decision, viewer, Object.assign(entry, key), request.minimal)
  }

  function updated(state: T['State'], decision: T['Decision'], row: T['Row'] | undefined): Updated<T> | undefined {
    if (row === undefined) return undefined
    const snapshot = isMinimal(state, decision) ? null : resource.snapshot(row)
    const own = row.version === state.version ? state.made_at : (last.entry?.at ?? null)
    const { version } = request.dryRun ? state : row
    const shown = { version, made_at: laterInstant(own, row.tools_at ?? null) }
    return updatedTo(shown, snapshot, state, decision)
  }

  function updatedTo(
    { version, made_at }: Pick<T['State'], 'version' | 'made_at'>,
    snapshot: AnswerText | null,
    state: T['State'],
    decision: T['Decision'],
  ): Updated<T> {
    const at = request.dryRun ? null : made_at
    return { snapshot, version, at, decision, overwritten: overwrittenBy(state, decision), merged: false, notes: [] }
  }

  /**
   * Whether the caller is told the version alone. Not one whose old tag is let through because nothing is left to change:
   * with the new tag they would overwrite what others made since, and never have seen it.
   */
  function isMinimal(state: T['State'], { changes }: T['Decision']): boolean {
    if (!request.minimal || changes.length > 0) return request.minimal
    return !isStale(state)
  }

  function answerBytesOf(state: T['State'], decision: T['Decision']): number {
    return isMinimal(state, decision) ? 0 : resource.answerBytes(state, decision)
  }

  function overwrittenBy({ recent }: T['State'], { changes }: T['Decision']): RecentChange[] {
    if (request.precondition.kind !== 'none' || recent.length === 0) return []
    const changed = new Set(changes.map(change => change.field))
    return recent.filter(({ field }) => changed.has(field))
  }

  function isStale({ id, version }: T['State']): boolean {
    return !preconditionHolds(request.precondition, entityTag(resource.kind, id, version))
  }

  function isStaleMerge(state: T['State']): boolean {
    return request.merges && isStale(state)
  }

  /**
   * What a merge starts from; undefined where none is asked for or needed, and where the past is not known that far.
   */
  async function mergeBaseOf(trx: Transaction<Database>, state: T['State']): Promise<MergeBase | undefined> {
    if (!isStaleMerge(state)) return undefined
    const since = namedVersion(state)
    return since === undefined ? undefined : await readMergeBase(trx, resource.kind, state.id, since)
  }

  function preconditionOf(
    state: T['State'],
    { changes }: T['Decision'],
    { caller }: T['Request'],
  ): 'holds' | 'failed' | 'required' {
    const { precondition, fields } = request
    const preconditionRequired = request.preconditionRequired || caller.token.requiresIfMatch
    const asks = Object.keys(fields).length > 0
    // A request that names no field is a read: where If-Match is required, it is how a client learns the tag.
    if (asks && precondition.kind === 'none' && preconditionRequired) return 'required'
    if (!isStale(state)) return 'holds'
    // A retry after a lost answer finds its own change already stored: that is success, not a conflict.
    return changes.length === 0 && namedVersion(state) !== undefined ? 'holds' : 'failed'
  }

  /**
   * Of a failed precondition the newest version of the past that it names, for a merge the oldest: what was made between
   * two of them is not the caller's to set back. Undefined where the resource never had any of its tags.
   */
  function namedVersion({ id, version }: T['State']): number | undefined {
    const versions = versionsInTags(request.precondition, resource.kind, id, version)
    if (versions.length === 0) return undefined
    return request.merges ? Math.min(...versions) : Math.max(...versions)
  }

  /** The refusal of an update whose tag is stale. `conflicts` are those of a merge; undefined where there was none. */
  async function preconditionFailed(
    trx: Transaction<Database>,
    state: T['State'],
    asOfNow: T['Request'],
    conflicts: readonly string[] | undefined,
  ): Promise<PreconditionFailed> {
    const since = namedVersion(state)
    // All that was asked for, not what a merge leaves of it: only so is told whether it was stored before.
    const changes = resource.asked(state, asOfNow)
    const refused = { actorId: request.actor.id, fields: Object.keys(request.fields), changes }
    const { changed, applied } = await changesSince(trx, resource.kind, state.id, since, state.version, refused)
    const tagOf = (version: number) => entityTag(resource.kind, state.id, version)
    return new PreconditionFailed(
      since === undefined ? 'unknown_tag' : 'changed',
      tagOf(state.version),
      changed,
      typeof applied === 'number' ? { tag: tagOf(applied) } : applied,
      request.merges ? { conflicts: conflicts === undefined ? null : [...conflicts] } : undefined,
    )
  }

  /** What became of a write whose commit was not confirmed, and the answer if it was applied. */
  async function settled(doubt: CommitUnknown): Promise<Updated<T>> {
    const { entry, decision } = last
    const outcome = entry === undefined ? 'unknown' : await database.settle(doubt, auditRow.bind(entry))
    if (outcome !== 'applied' || decision === undefined || entry === undefined) throw lost(outcome, doubt, request)
    if (key.idempotency_key !== null) throw new KeyTaken()
    const result = await withRetries(() => asStoredNow(decision, entry)).catch(() => undefined)
    if (result === undefined) throw lost('applied', doubt, request)
    return result
  }

  async function asStoredNow(decision: T['Decision'], entry: AuditEntry): Promise<Updated<T> | undefined> {
    const caller = await request.callerNow(database.db)
    const viewer = viewerParameters(caller)
    const state = await resource.read(database.db, request.id, viewer)
    if (state === undefined || !resource.isVisible(state, caller)) return undefined
    // The tag of their own version: by now others may have made later ones, which they have not seen.
    if (request.minimal) {
      return updatedTo({ version: entry.version_after, made_at: entry.at }, null, state, decision)
    }
    return updated(state, decision, await resource.reading(state, viewer).single(database.db))
  }
}

/** About what a whole state takes. */
export function stateBytes<T extends ResourceTypes>(resource: VersionedResource<T>, state: T['State']): number {
  return resource.answerBytes(state, null) - resource.definitionBytes(state)
}

/** What the answer says when the connection was lost at the commit. */
function lost(
  outcome: 'applied' | 'not_applied' | 'unknown',
  doubt: CommitUnknown,
  { merges, key }: UpdateRequest,
): Unavailable {
  const repeating =
    merges && key.idempotency_key === null
      ? 'A merge that is repeated is a new one: read the resource first, and send an Idempotency-Key with the next.'
      : 'Repeating it with the same If-Match is safe, and only the answer 200 or 412 to it settles this; a 412 names in ' +
        'applied_etag the version in which it was stored, if it was.'
  const rest = {
    applied: 'The update was applied, and its answer could not be read. Read the resource before the next update.',
    not_applied: 'The update was not applied. Try again.',
    unknown: `Whether the update was applied is not known. ${repeating}`,
  }
  const message = `The connection to the database was lost. ${rest[outcome]}`
  return new Unavailable('database_unreachable', message, outcome, { cause: doubt })
}

/** Locks a resource's row against other writers and reads its state, which is final until the transaction ends. */
export async function lockState<T extends ResourceTypes>(
  trx: Transaction<Database>,
  resource: VersionedResource<T>,
  id: number,
  viewer: ViewerParameters,
): Promise<T['State'] | undefined> {
  await lockStatements[resource.kind].run(trx, { id })
  return await resource.read(trx, id, viewer) // only now: a read that began before the wait would show the old state
}

/**
 * Stores what the operator decided, in a transaction that holds the row's lock, with one audit row if it differs.
 * Answers the version that is stored then.
 */
export async function storeDecision<T extends ResourceTypes>(
  trx: Transaction<Database>,
  resource: VersionedResource<T>,
  state: T['State'],
  decision: T['Decision'],
  actor: Actor,
): Promise<number> {
  if (decision.changes.length === 0) return state.version
  const content = await auditedContent(resource, state, decision)
  const entry = auditOf(resource, state, decision, actor, content)
  const row = await resource.writing(state, decision, OPERATOR, Object.assign(entry, NO_KEY), true).single(trx)
  if (row === undefined) throw new Error(`${resource.kind} ${state.id} changed under its lock`)
  return row.version
}

async function auditedContent<T extends ResourceTypes>(
  resource: VersionedResource<T>,
  state: T['State'],
  decision: T['Decision'],
): Promise<AuditedContent> {
  const contentHash = await digestOf([JSON.stringify(resource.audited(state, decision))])
  return { definitionBefore: resource.replacedDefinition(state, decision), contentHash }
}

/** The audit row; its time is later than that of the version before, and than `shown`. */
function auditOf<T extends ResourceTypes>(
  { kind }: VersionedResource<T>,
  state: T['State'],
  { changes }: T['Decision'],
  actor: Actor,
  content: AuditedContent,
  shown: string | null = null,
): AuditEntry {
  const { id, version, audit_head, made_at } = state
  const end = { kind, id, version, audit_head, made_at: laterInstant(made_at, shown) }
  return auditEntry(end, changes, actor, databaseTimeMs(state), content)
}

/** What `WritesUnderWay` knows an agent or tool by. */
export function writeKey(kind: ResourceKind, id: number): string {
  return `${kind}:${id}`
}

/** Locks one row against other writers until the transaction ends. */
export const lockStatements = { persona: lockStatement('persona'), tool: lockStatement('tool') }

function lockStatement(kind: ResourceKind) {
  return statement<{ id: number }, { id: number }>(`${kind}_lock`, param => {
    return sql`select id from ${sql.raw(kind)} where id = ${param('id')}::integer for no key update`
  })
}

/** Answers a row if this very audit row was stored; its hash covers the moment and everything before it. */
const auditRow = statement<AuditEntry, { found: number }>('audit_row', param => {
  return sql`select 1 as found from audit
    where resource_kind = ${param('resource_kind')}::text and resource_id = ${param('resource_id')}::integer
      and version_after = ${param('version_after')}::integer and hash = decode(${param('hash')}::text, 'hex')`
})
