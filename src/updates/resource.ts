import type { Kysely } from 'kysely'
import type { CallerNow, Lookup, RoutePolicy } from '../auth/authenticate.js'
import type { Caller } from '../auth/caller.js'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { Executor, Statement } from '../db/statements/statement.js'
import type { RecentChange, ResourceKind, Tables } from '../db/tables.js'
import type { Actor, AuditEntry, Change } from './audit.js'
import type { RequestKey } from './idempotency.js'
import type { Precondition } from './tag.js'

/* The interface between the engine and a kind of resource. */

/** A change of a field by someone other than the caller, which an update replaces. `by` is an email, or `agentctl` for the operator. */
export interface Overwritten {
  field: string
  by: string
  ageS: number
}

/** An agent or a tool as read by one statement. */
export interface VersionedState {
  id: number
  /** Empty only in a new row without a version. */
  name: string
  version: number
  recent_changes: RecentChange[]
}

/** The changes of an allowed request. Each kind of resource adds the data that its statements and warnings need. */
export interface Decision {
  changes: Change[]
  /** The record after the change, in the form that answers show. */
  after: VersionedState
  /** The hash of the tool's definition that is replaced or removed. The audit row keeps the definition stored. */
  replaced?: string | null
  command?: string
}

export interface OperationOptions {
  database: Database
  snapshotBytesMax: number
  requireIfMatch: boolean
  /** The resources that only administrators can change without a proposal. */
  requireApproval: 'none' | 'tools' | 'all'
  propose: Propose
}

/** Stores an update as a proposal and returns the proposal as the snapshot. */
export type Propose = <T extends ResourceTypes>(job: Job<T>, message: string) => Promise<Stored<T>>

export interface ReadRequest extends Pick<OperationOptions, 'snapshotBytesMax'> {
  caller: Caller
}

/** An authenticated request that stores something. Each kind of resource adds the data that its decision needs. */
export interface UpdateRequest extends ReadRequest {
  kind: ResourceKind
  id: number
  /** Authenticates the caller again and reads the lookup's resource. Throws a refusal. */
  readNow(executor: Executor, lookup: Lookup): Promise<CallerNow>
  actor: Actor
  fields: object
  precondition: Precondition
  ifNoneMatch: Precondition
  /** True if every update must have a precondition. A token may require one too. */
  preconditionRequired: boolean
  /** Which resources only administrators can change directly: the setting, but `none` while a proposal is stored or approved. */
  requireApproval: OperationOptions['requireApproval']
  dryRun: boolean
  /** True if the update is only proposed. The right to edit is then checked when it is approved. */
  proposes?: boolean
  /** True if unknown fields, and fields that would not be restored, are refused. */
  strict: boolean
  minimal: boolean
  key: RequestKey | null
}

export interface Restoration extends UpdateRequest {
  fields: { version: number }
}

export interface ResourceTypes {
  State: VersionedState
  Request: UpdateRequest
  Decision: Decision
}

/** What a request does, as the noun in messages. */
export type Act = 'update' | 'creation' | 'deletion' | 'restoration'

/** How one kind of resource is read, decided, stored and shown. */
export interface VersionedResource<T extends ResourceTypes> {
  readonly kind: ResourceKind
  readonly act: Act
  /** How the caller finds out the outcome of a lost commit. Default: `waysToRepeat`. */
  readonly remedy?: string
  /** The columns of a new row with this owner; the operator's rows have none. */
  newRow(owner: string | null): Readonly<Record<string, unknown>>
  /** `lookup` reads the state together with the caller; `read` reads it as a viewer sees it. */
  readonly reads: {
    lookup: NonNullable<RoutePolicy['lookup']>
    read: Statement<ViewerParameters & { id: number }, { state: T['State'] }>
  }
  isVisible(state: T['State'], caller: Caller): boolean
  /** True if the request needs no transaction, because it changes only columns of the resource's own row. */
  isAlone(state: T['State'], request: T['Request']): boolean
  /**
   * Decides on the request, after reading newly referenced records with at most one statement. `locks`: first locks what the write will lock,
   * which requires a transaction. Throws domain errors.
   */
  decide(db: Kysely<Tables>, state: T['State'], request: T['Request'], locks?: boolean): Promise<T['Decision']>
  /**
   * Stores the decision and its audit row, unless the row is locked or its version or the rights have changed. Returns the new version. `db`
   * must be a transaction unless `isAlone` returned true.
   */
  write(
    db: Kysely<Tables>,
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry,
  ): Promise<number | undefined>
  /** Renders a state. `isRead`: includes the fields that only reads have. Throws `SnapshotTooLarge` if the definitions exceed `bytesMax`. */
  render(
    db: Kysely<Tables>,
    state: T['State'] | T['Decision']['after'],
    bytesMax: number,
    isRead?: boolean,
  ): Promise<string>
  /**
   * The state with earlier values of these fields, taken from audit rows, limited to the parts that the viewer can see now. `notes` lists the
   * omitted parts. Throws `VersionGone`.
   */
  past(
    db: Kysely<Tables>,
    state: T['State'],
    values: PastValues,
    viewer: ViewerParameters,
  ): Promise<{ state: T['State']; notes: string[] }>
  /** Checks the right to read earlier versions. Throws a refusal. */
  requireVersions(state: T['State'], caller: Caller): void
  /** The changes of these rows, with names next to ids. A long definition is undefined. */
  changesOf(
    db: Kysely<Tables>,
    state: T['State'],
    rows: readonly ChangedRow[],
    viewer: ViewerParameters,
  ): Promise<Change[][]>
  /** The users and groups that can no longer see the resource after a change; null if there are none. */
  takenFrom?(state: T['State'], after: T['Decision']['after']): object | null
}

export interface Job<T extends ResourceTypes, Request extends ReadRequest = T['Request']> {
  database: Database
  resource: VersionedResource<T>
  request: Request
}

/** The part of an audit row that the history shows as changes. `difference` is null if it was pruned. */
export interface ChangedRow {
  difference: Record<string, { from: unknown; to: unknown }> | null
}

/** The old values of the fields that have changed since an earlier version. */
export type PastValues = Readonly<Record<string, unknown>>

export interface Stored<T extends ResourceTypes> {
  snapshot: string | null
  id: number
  version: number
  /** Null if the request repeats a stored one. */
  decision: T['Decision'] | null
  overwritten: Overwritten[]
  /** The address and tag of the proposal, if the update is only proposed. */
  proposal?: { location: string; tag: string }
}
