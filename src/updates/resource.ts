import type { Kysely } from 'kysely'
import type { CallerNow, Lookup, RoutePolicy } from '../auth/authenticate.js'
import type { Caller } from '../auth/caller.js'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { Executor, Statement } from '../db/statements/statement.js'
import type { AuditTable, RecentChange, ResourceKind, Tables } from '../db/tables.js'
import type { RequestKey } from './idempotency.js'
import type { Precondition } from './tag.js'

/* The interface between the update engine and one kind of resource. */

/** The author of a change, for the audit trail. `actor_id` is null for the operator. `command` is the `agentctl` command without secret or personal values. */
export type Actor = Pick<AuditTable, 'actor_id' | 'token_id' | 'request_id' | 'client_address' | 'command'>

/** The values of one field before and after a change. Secrets are shown as masks. */
export interface Change {
  field: string
  from: unknown
  to: unknown
}

/** A new audit row, without the columns that the inserting statement adds: the time and the hashes of the chain. */
export interface AuditEntry
  extends Actor,
    Pick<AuditTable, 'resource_kind' | 'resource_id' | 'version_before' | 'version_after' | 'fields'>,
    Pick<AuditTable, 'difference_bytes' | 'difference_hash'> {
  difference: string
  taken_from: string | null
  /** The hash of the replaced definition, in hex. Definitions are kept as long as an audit row refers to them. */
  definition_before: string | null
}

/** Someone else's recent change that an update overwrites. `by` is an email, or `agentctl` for the operator. */
export interface Overwritten {
  field: string
  by: string
  ageS: number
}

/** The state of an agent or a tool. */
export interface VersionedState {
  id: number
  /** Empty only in a new row without content. */
  name: string
  version: number
  recent_changes: RecentChange[]
}

/** The changes of an allowed request. Each kind of resource adds members for its statements and warnings. */
export interface Decision {
  changes: Change[]
  after: VersionedState
  /** The hash of the replaced or removed definition of a tool. */
  replaced?: string | null
  command?: string
}

export interface OperationOptions {
  database: Database
  snapshotBytesMax: number
  requireIfMatch: boolean
  /** The kinds of resources that only administrators can change without a proposal. */
  requireApproval: 'none' | 'tools' | 'all'
  propose: Propose
}

/** Stores an update as a proposal. The snapshot in the result is the proposal. */
export type Propose = <T extends ResourceTypes>(job: Job<T>, message: string) => Promise<Stored<T>>

export interface ReadRequest extends Pick<OperationOptions, 'snapshotBytesMax'> {
  caller: Caller
}

/** An authenticated request that stores something. Each kind of resource adds the members that its decision needs. */
export interface UpdateRequest extends ReadRequest {
  kind: ResourceKind
  id: number
  /** Authenticates the caller again and reads the resource of the lookup. Throws `NotAuthenticated` or `Forbidden` if the token has lost access. */
  readNow(executor: Executor, lookup: Lookup): Promise<CallerNow>
  actor: Actor
  fields: object
  precondition: Precondition
  ifNoneMatch: Precondition
  /** True if every update must have a precondition. Tokens can also require preconditions. */
  preconditionRequired: boolean
  /** As in `OperationOptions`, but `none` for proposing and approving. */
  requireApproval: OperationOptions['requireApproval']
  dryRun: boolean
  /** True if the update is only proposed. Only the approval checks the right to edit. */
  proposes?: boolean
  /** True if fields that would be ignored are refused instead. */
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

/** The kind of a request, as a noun in messages. */
export type Act = 'update' | 'creation' | 'deletion' | 'restoration'

/** The functions that the update engine needs for one kind of resource. */
export interface VersionedResource<T extends ResourceTypes> {
  readonly kind: ResourceKind
  readonly act: Act
  /** A sentence on how to find out the outcome of an unconfirmed commit. Default: `waysToRepeat`. */
  readonly remedy?: string
  /** The columns of a new row. `owner` is null for the operator. */
  newRow(owner: string | null): Readonly<Record<string, unknown>>
  /** `lookup` reads the state together with the caller. `read` reads the state for a viewer. */
  readonly reads: {
    lookup: NonNullable<RoutePolicy['lookup']>
    read: Statement<ViewerParameters & { id: number }, { state: T['State'] }>
  }
  isVisible(state: T['State'], caller: Caller): boolean
  /** True if the decision changes only columns of the resource's own row, so that `write` needs no transaction. */
  isAlone(decision: T['Decision']): boolean
  /**
   * Decides on the request. Reads newly referenced records with at most one statement. `locks`: first locks the rows that the write needs. This
   * requires a transaction. Throws refusals.
   */
  decide(db: Kysely<Tables>, state: T['State'], request: T['Request'], locks?: boolean): Promise<T['Decision']>
  /**
   * Stores the decision and its audit row and returns the new version. Stores nothing and returns undefined if the row is locked, or if its version or
   * the caller's rights have changed. Requires a transaction unless `isAlone` returned true.
   */
  write(
    db: Kysely<Tables>,
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry,
  ): Promise<number | undefined>
  /** Renders a state as JSON. `isRead`: includes the fields that only reads have. Throws `SnapshotTooLarge` if the result would exceed `bytesMax`. */
  render(
    db: Kysely<Tables>,
    state: T['State'] | T['Decision']['after'],
    bytesMax: number,
    isRead?: boolean,
  ): Promise<string>
  /** Returns the state with the earlier `values`. Omits parts that the viewer cannot see now, and lists them in `notes`. Throws `VersionGone`. */
  past(
    db: Kysely<Tables>,
    state: T['State'],
    values: PastValues,
    viewer: ViewerParameters,
  ): Promise<{ state: T['State']; notes: string[] }>
  /** Throws a refusal if the caller must not read earlier versions. */
  requireVersions(state: T['State'], caller: Caller): void
  /** Returns the changes of `rows`, with names next to ids. */
  changesOf(
    db: Kysely<Tables>,
    state: T['State'],
    rows: readonly ChangedRow[],
    viewer: ViewerParameters,
  ): Promise<Change[][]>
  /** Returns who may have lost access to the resource by a change: users, groups, or everyone; null if nobody. */
  takenFrom?(state: T['State'], after: T['Decision']['after']): object | null
}

export interface Job<T extends ResourceTypes, Request extends ReadRequest = T['Request']> {
  database: Database
  resource: VersionedResource<T>
  request: Request
}

/** The part of an audit row that the history shows as changes. `difference` is null after pruning. */
export interface ChangedRow {
  difference: Record<string, { from: unknown; to: unknown }> | null
}

/** The value at a version of each field that has changed since that version. */
export type PastValues = Readonly<Record<string, unknown>>

export interface Stored<T extends ResourceTypes> {
  snapshot: string | null
  id: number
  version: number
  /** Null for a repeated request. */
  decision: T['Decision'] | null
  overwritten: Overwritten[]
  /** The address and tag of the proposal, if the update was proposed. */
  proposal?: { location: string; tag: string }
}

/** A change that was sent to the database: its audit row, and the answer if it was stored. */
export interface Written<T extends ResourceTypes> {
  entry: AuditEntry
  answer: Stored<T>
}
