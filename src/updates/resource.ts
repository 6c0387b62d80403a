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

/** The author of a change. `actor_id` is null for the operator. `command` is the `agentctl` command without secret or personal values. */
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

/** Another user's recent change that an update overwrites. `by` is the user's email, or `agentctl` for the operator. */
export interface Overwritten {
  field: string
  by: string
  ageS: number
}

/** The state of an agent or a tool. */
export interface VersionedState {
  id: number
  /** Empty only in a new row whose content is not yet stored. */
  name: string
  version: number
  recent_changes: RecentChange[]
}

/** The changes of an allowed request. Each kind of resource adds properties for its statements and warnings. */
export interface Decision {
  changes: Change[]
  after: VersionedState
  /** The hash of the tool's definition that the changes replace or remove. */
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

/** Stores an update as a proposal. `snapshot` in the result is the proposal. */
export type Propose = <T extends ResourceTypes>(job: Job<T>, message: string) => Promise<Stored<T>>

export interface ReadRequest extends Pick<OperationOptions, 'snapshotBytesMax'> {
  caller: Caller
}

/** An authenticated request that stores something. Each kind of resource adds the properties that its decision needs. */
export interface UpdateRequest extends ReadRequest {
  kind: ResourceKind
  id: number
  /** Authenticates the caller again and reads the resource with `lookup`. Throws `NotAuthenticated` or `Forbidden` if the token has lost access. */
  readNow(executor: Executor, lookup: Lookup): Promise<CallerNow>
  actor: Actor
  fields: object
  precondition: Precondition
  ifNoneMatch: Precondition
  /** True if every update must have `If-Match`. A token can also require `If-Match`. */
  preconditionRequired: boolean
  /** The value from `OperationOptions`, or `none` for requests that propose or approve an update. */
  requireApproval: OperationOptions['requireApproval']
  dryRun: boolean
  /** True if the update is only proposed. To propose a change of an agent, the right to see the agent is enough. */
  proposes?: boolean
  /** True if the request must be refused when a field would otherwise be ignored. */
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
  /** A sentence that tells the client how to find out the outcome of an unconfirmed commit. Default: `waysToRepeat`. */
  readonly remedy?: string
  /** Returns the columns of a new row. `owner` is null for the operator. */
  newRow(owner: string | null): Readonly<Record<string, unknown>>
  /** `lookup` reads the state and the caller in one statement. `read` reads only the state, for a given viewer. */
  readonly reads: {
    lookup: NonNullable<RoutePolicy['lookup']>
    read: Statement<ViewerParameters & { id: number }, { state: T['State'] }>
  }
  isVisible(state: T['State'], caller: Caller): boolean
  /** True if the decision changes only columns of the resource's own row, so that `write` needs no transaction. */
  isAlone(decision: T['Decision']): boolean
  /**
   * Decides on the request, or throws a refusal. Reads newly referenced records with at most one statement. With `locks`, first locks the rows that
   * the write needs, which requires a transaction.
   */
  decide(db: Kysely<Tables>, state: T['State'], request: T['Request'], locks?: boolean): Promise<T['Decision']>
  /**
   * Stores the decision and its audit row, and returns the new version. Stores nothing and returns undefined if the resource is locked, or if its
   * version or the caller's rights have changed. Requires a transaction unless `isAlone` returned true.
   */
  write(
    db: Kysely<Tables>,
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry,
  ): Promise<number | undefined>
  /** Renders a state as JSON. `isRead` adds the fields that only reads return. Throws `SnapshotTooLarge` if the result would exceed `bytesMax`. */
  render(
    db: Kysely<Tables>,
    state: T['State'] | T['Decision']['after'],
    bytesMax: number,
    isRead?: boolean,
  ): Promise<string>
  /** Returns the state with the earlier `values`. Linked records that are now neither linked nor visible are only named in `notes`. Throws `VersionGone`. */
  past(
    db: Kysely<Tables>,
    state: T['State'],
    values: PastValues,
    viewer: ViewerParameters,
  ): Promise<{ state: T['State']; notes: string[] }>
  /** Throws a refusal if the caller must not read earlier versions. */
  requireVersions(state: T['State'], caller: Caller): void
  /** Returns the changes in `rows`, with the names of related records next to their ids. */
  changesOf(
    db: Kysely<Tables>,
    state: T['State'],
    rows: readonly ChangedRow[],
    viewer: ViewerParameters,
  ): Promise<Change[][]>
  /** Returns the users and groups who may lose access to the resource, and whether everyone may lose it. Returns null if nobody can. */
  takenFrom?(state: T['State'], after: T['Decision']['after']): object | null
}

export interface Job<T extends ResourceTypes, Request extends ReadRequest = T['Request']> {
  database: Database
  resource: VersionedResource<T>
  request: Request
}

/** An audit row with the difference that the history shows as changes. `difference` is null after pruning. */
export interface ChangedRow {
  difference: Record<string, { from: unknown; to: unknown }> | null
}

/** The values that fields had at an earlier version. Contains only the fields that have changed since then. */
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

/** A change that was sent to the database. `answer` is the answer to the request if the change was stored. */
export interface Written<T extends ResourceTypes> {
  entry: AuditEntry
  answer: Stored<T>
}
