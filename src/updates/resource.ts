import type { Kysely } from 'kysely'
import type { CallerNow, Lookup, RoutePolicy } from '../auth/authenticate.js'
import type { Caller } from '../auth/caller.js'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { Executor, Statement } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import type { Actor, AuditEntry, Change } from './audit.js'
import type { RequestKey } from './idempotency.js'
import type { Precondition } from './tag.js'

/* The interface between the engine and a kind of resource: its state, request, decision and statements. */

/** A change of a field by someone other than the caller in the last fifteen minutes. */
export interface RecentChange {
  field: string
  by: string
  age_s: number
}

/** An agent or a tool as one statement read it. */
export interface VersionedState {
  id: number
  /** Empty only in a new row that has no version yet. */
  name: string
  version: number
  recent: RecentChange[]
}

/** The changes of an allowed request. Each kind of resource adds what its statements and warnings need. */
export interface Decision {
  changes: Change[]
  /** The record after the change, as answers show it. */
  after: VersionedState
  /** The hash of a tool's definition that is replaced or removed. The audit row keeps it stored. */
  replaced?: string | null
  /** The command for the audit row, instead of the actor's. */
  command?: string
}

/** Runs work when there is room for it, per key and in total. Throws `RateLimited`, or `WaitedInVain` if the wait is too long. */
export type Bounded = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>

export interface OperationOptions {
  database: Database
  /** The most bytes of definitions in one answer. */
  snapshotBytesMax: number
  /** True if every update must carry a precondition. */
  requireIfMatch: boolean
  /** What only administrators change without a proposal. */
  requireApproval: 'none' | 'tools' | 'all'
  propose: Propose
}

/** Stores an update as a proposal, which is the answer's snapshot. */
export type Propose = <T extends ResourceTypes>(job: Job<T>, message: string) => Promise<Stored<T>>

export interface ReadRequest extends Pick<OperationOptions, 'snapshotBytesMax'> {
  caller: Caller
}

/** One authenticated request to store something. Each kind adds what its decision needs. */
export interface UpdateRequest extends ReadRequest {
  kind: ResourceKind
  id: number
  /** Authenticates the caller again and reads the resource of the lookup. Throws a refusal. */
  readNow(executor: Executor, lookup: Lookup): Promise<CallerNow>
  actor: Actor
  /** What the request asks for. A request without fields is a read. */
  fields: object
  precondition: Precondition
  ifNoneMatch: Precondition
  /** True if every update must carry a precondition. A token may require it too. */
  preconditionRequired: boolean
  /** What only administrators change directly; `none` for proposals and approvals. */
  requireApproval: OperationOptions['requireApproval']
  dryRun: boolean
  /** True if the update is only proposed: the rights to edit are checked at its approval. */
  proposes?: boolean
  /** True if unknown fields, and fields that would stay, are refused. */
  strict: boolean
  /** True if the caller wants no snapshot. */
  minimal: boolean
  /** Null without an `Idempotency-Key`. */
  key: RequestKey | null
}

/** A request to make a new version with the content of an earlier one. */
export interface RestoreRequest extends UpdateRequest {
  fields: { version: number }
}

export interface ResourceTypes {
  State: VersionedState
  Request: UpdateRequest
  Decision: Decision
}

/** A kind of resource: how it is read, decided, stored and shown. */
export interface VersionedResource<T extends ResourceTypes> {
  readonly kind: ResourceKind
  /** The noun for its requests in messages. */
  readonly act: 'update' | 'creation' | 'deletion' | 'restoration'
  /** The columns of a new row of this owner; null if the operator owns it. */
  newRow(owner: string | null): Readonly<Record<string, unknown>>
  /** Read the state as the caller sees it, together with the caller, and as a viewer sees it. */
  readonly reads: {
    lookup: NonNullable<RoutePolicy['lookup']>
    read: Statement<ViewerParameters & { id: number }, { state: T['State'] }>
  }
  isVisible(state: T['State'], caller: Caller): boolean
  /** True if the request can be decided and stored without a transaction: it changes at most columns of the resource's own row. */
  isAlone(state: T['State'], request: T['Request']): boolean
  /** Reads what the request newly refers to, with one statement if there is any, and decides. Throws domain errors. */
  decide(db: Kysely<Tables>, state: T['State'], request: T['Request']): Promise<T['Decision']>
  /**
   * Stores the decision and its audit row if the row is not locked and version and rights are those of the decision. Returns the new
   * version. Unless the decision is alone, the executor is a transaction.
   */
  write(
    db: Kysely<Tables>,
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry,
  ): Promise<number | undefined>
  /** Renders a state; `isRead`: with the fields that only reads have. Throws `SnapshotTooLarge` if its definitions exceed `bytesMax`. */
  render(
    db: Kysely<Tables>,
    state: T['State'] | T['Decision']['after'],
    bytesMax: number,
    isRead?: boolean,
  ): Promise<string>
  /**
   * The state as it was when these fields had these values, as audit rows have them, limited to what the viewer may see now. `notes` says
   * what is left out. Throws `VersionGone`.
   */
  past(
    db: Kysely<Tables>,
    state: T['State'],
    values: PastValues,
    viewer: ViewerParameters,
  ): Promise<{ state: T['State']; notes: string[] }>
  /** Requires the right to earlier versions. Throws the refusal. */
  requireVersions(state: T['State'], caller: Caller): void
  /** The changes to show of rows of its history. */
  changesOf(
    db: Kysely<Tables>,
    state: T['State'],
    rows: readonly ChangedRow[],
    viewer: ViewerParameters,
  ): Promise<ShownChange[][]>
  /** The users and groups that a change takes the sight of the resource from; null if none. */
  takenFrom?(state: T['State'], after: T['Decision']['after']): object | null
}

export interface Job<T extends ResourceTypes, Request extends ReadRequest = T['Request']> {
  database: Database
  resource: VersionedResource<T>
  request: Request
}

/** The part of an audit row from which its changes are shown. `difference` is null if it was pruned. */
export interface ChangedRow {
  version: number
  version_before: number
  difference: Record<string, { from: unknown; to: unknown }> | null
}

/** Stands for a long value. `bytes` is null if the value is no longer kept. `href` is relative to the address of the history. */
export interface Shortened {
  digest: string
  bytes: number | null
  href: string
}

/** One change as the history shows it. A shortened side is only in `shortened`, so that no stored value can look like one. */
export interface ShownChange {
  field: string
  from?: unknown
  to?: unknown
  shortened?: { from?: Shortened; to?: Shortened }
}

/** The old value of each field that changed since an earlier version. */
export type PastValues = Readonly<Record<string, unknown>>

export interface Stored<T extends ResourceTypes> {
  /** Null if none is wanted. */
  snapshot: string | null
  id: number
  version: number
  /** Null for the repetition of a stored request. */
  decision: T['Decision'] | null
  overwritten: RecentChange[]
  /** The update is only proposed: the proposal's address and tag. */
  proposal?: { location: string; tag: string }
}
