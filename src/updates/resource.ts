import type { Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import type { CallerNow } from '../auth/hook.js'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { RowQuery } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import type { AnswerText } from './answer-text.js'
import type { Actor, AuditEntry, Change, RequestKey } from './audit.js'
import type { Past } from './past.js'
import type { Precondition } from './tag.js'

/* A kind of resource, for reads and updates: its state, a request, a decision, and what it does with them. */

/** A field that somebody else than the caller changed in the last fifteen minutes. */
export interface RecentChange {
  field: string
  by: string
  age_s: number
}

/** An agent or a tool as one statement found it. Times are milliseconds, hashes are hex. */
export interface VersionedState {
  id: number
  name: string
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
  /** The row was made by this very transaction, and has no version yet. */
  isNew?: true
  /** What texts take that were left out, being large: they are null. Absent where nothing is ever left out. */
  left_out_bytes?: number
}

/** What an update would change. Each kind of resource adds what its statements need. */
export interface Decision {
  changes: Change[]
  /** Of a merge the fields that both sides changed, each to something else: such a decision is not made. */
  conflicts?: readonly string[]
  /** What the audit row says of how it was made, instead of the actor's command. */
  command?: string
}

/** Runs work when there is room for it: bounded by key and in all. Throws `RateLimited`, or `WaitedInVain`, where the wait is too long. */
export type Bounded = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>

export interface WorkBounds {
  /** For updates that lock a row; the key names the row. */
  rowTurn: Bounded
  /** For those that wait for a row that another session has locked, with the same key. */
  lockedRow: Bounded
  /** For statements that read much; the key names the token. */
  expensive: Bounded
}

/** What bounds reads and updates. */
export interface ReadLimits {
  bounds: WorkBounds
  /** The most bytes that the definitions of an answer may take. */
  snapshotBytesMax: number
}

/** What every operation on agents and tools works with. */
export interface OperationOptions extends ReadLimits {
  database: Database
  /** Whether every update must carry a precondition. */
  requireIfMatch: boolean
}

/** One authenticated request to read a resource. */
export interface ReadRequest extends ReadLimits {
  caller: Caller
}

/** One authenticated request to update a resource. Each kind adds what its decision needs. */
export interface UpdateRequest extends ReadRequest {
  kind: ResourceKind
  id: number
  /** The caller as they are by now, and the state of the resource as the route's lookup finds it, in a batch. Throws what refuses them. */
  authenticateAgain(): Promise<CallerNow>
  /** The caller as a transaction sees them by now. Throws likewise. */
  callerNow(trx: Executor): Promise<Caller>
  actor: Actor
  /** The fields that the request names, in the form in which they are stored. One that names none is a read. */
  fields: object
  /** `If-Match`. */
  precondition: Precondition
  ifNoneMatch: Precondition
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

/** What every statement of a resource answers. */
export interface ShownRow {
  version: number
}

/** What a request does with a resource. */
export type Act = 'update' | 'creation' | 'deletion' | 'restoration'

/** What a kind of resource gives to the algorithm: how it decides, and its statements. */
export interface VersionedResource<T extends ResourceTypes> {
  readonly kind: ResourceKind
  /** What its requests do, in the words of messages. */
  readonly act: Act
  /** The columns of a new row of this owner; null for the operator's. */
  newRow(owner: string | null): Readonly<Record<string, unknown>>
  /** Reads the state as the viewer sees it; undefined when there is none. */
  read(executor: Executor, id: number, viewer: ViewerParameters): Promise<T['State'] | undefined>
  /** Decides without a database. With `references` null what is newly attached is left to the writing statement. Throws domain errors. */
  decide(state: T['State'], request: T['Request'], references: T['References'] | null): T['Decision']
  /** The fields that the request names or changes, as they are and as it asks for them, whatever rules, rights and a merge make of it. */
  asked(state: T['State'], request: T['Request']): readonly Change[]
  references(
    trx: Transaction<Tables>,
    request: T['Request'],
    decision: T['Decision'],
    state: T['State'],
  ): Promise<T['References']>
  /** Whether the writing statement can check the rest of the decision itself; else it is made anew under the lock. */
  isStorable(decision: T['Decision']): boolean
  /** Whether the writing statement may run in a batch: not where it may wait for a lock of others. */
  isBatchable(decision: T['Decision']): boolean
  /** What stored definitions take of the answer, after the decision or, where it is null, as stored. */
  definitionBytes(state: T['State'], decision: T['Decision'] | null): number
  /** That they take no more than one answer may. Throws `SnapshotTooLarge`. */
  requireAnswerable(state: T['State'], bytesMax: number): void
  /** The statement that answers the stored state, or its version alone, if it is still this one. */
  reading(state: T['State'], viewer: ViewerParameters, minimal?: boolean): RowQuery<T['Row']>
  /** The statement that stores the decision on an unchanged state; answers the new state or its version. Changes `entry`. */
  writing(
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry & RequestKey,
    minimal: boolean,
  ): RowQuery<T['Row']>
  /** The snapshot that a row stands for. */
  snapshot(row: T['Row']): AnswerText
  /** The hash of the tool definition that the decision replaces, which the audit row keeps alive. */
  replacedDefinition(state: T['State'], decision: T['Decision']): string | null
  /** What the audit trail vouches for, in one order: after the decision or, where it is null, as stored. */
  audited(state: T['State'], decision: T['Decision'] | null): readonly unknown[] | null
  /** Whether all of it is in the state: from a prefetched one large texts are left out, and long lists are cut. */
  isWhole(state: T['State']): boolean
  /** Whether the caller may still be shown this state. */
  isVisible(state: T['State'], caller: Caller): boolean
  /** That the caller may update it at all. Throws what `decide` throws for that. */
  requireRights(state: T['State'], caller: Caller): void
  /** That the caller may read earlier versions. Throws `ResourceNotFound`, `Forbidden`. */
  requireHistory(state: T['State'], caller: Caller): void
  /** The snapshot of an earlier version. */
  readonly pastSnapshot: ShowPast<T>
}

/** A request, and what it is carried out with. */
export interface Job<T extends ResourceTypes, Request extends ReadRequest = T['Request']> {
  database: Database
  resource: VersionedResource<T>
  request: Request
}

/** Shows an earlier version. Calls `requireSize` with the size of its definitions before it is made. Throws `VersionGone`. */
export type ShowPast<T extends ResourceTypes> = (
  executor: Executor,
  state: T['State'],
  past: Past,
  viewer: ViewerParameters,
  requireSize: (bytes: number) => void,
) => Promise<{ text: AnswerText; notes: string[] }>

/** What an update led to; `snapshot` is null where none is wanted. */
export interface Updated<T extends ResourceTypes> {
  snapshot: AnswerText | null
  id: number
  version: number
  decision: T['Decision']
  overwritten: RecentChange[]
  /** Whether it was merged into what others made since the version that the precondition names. */
  merged: boolean
  /** What the caller should know of the answer. */
  notes: string[]
}
