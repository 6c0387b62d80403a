import type { Kysely, Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import type { CallerNow } from '../auth/hook.js'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { Executor } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import type { Actor, AuditEntry, Change } from './audit.js'
import type { RequestKey } from './idempotency.js'
import type { Precondition } from './tag.js'

/* The interface between the engine and a kind of resource: state, request, decision and statements. */

/** A change of a field by someone other than the caller in the last fifteen minutes. */
export interface RecentChange {
  field: string
  by: string
  age_s: number
}

/** An agent or a tool as one statement read it. Times are milliseconds, hashes are hex. */
export interface VersionedState {
  id: number
  name: string
  version: number
  audit_head: string
  /** The time of this version; null if neither an audit row nor the pruning anchor has it. */
  made_at: string | null
  /** The version in which each field last changed. */
  field_versions: Record<string, number>
  recent: RecentChange[]
  /** The database's clock at the read. */
  read_at_ms: number
  /** This process's monotonic clock when the state arrived. With `read_at_ms` it gives the database's time at any later moment. */
  received_ms: number
  /** The row was inserted by this transaction and has no version yet. */
  isNew?: true
}

/** The changes that an update would make. Each kind of resource adds what its statements need. */
export interface Decision {
  changes: Change[]
  /** The command for the audit row, instead of the actor's. */
  command?: string
}

/** Runs work when there is room for it, per key and in total. Throws `RateLimited`, or `WaitedInVain` if the wait is too long. */
export type Bounded = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>

export interface WorkBounds {
  /** For statements that read many bytes. The key names the token. */
  expensive: Bounded
}

export interface ReadLimits {
  bounds: WorkBounds
  /** The most bytes of definitions in one answer. */
  snapshotBytesMax: number
}

/** The dependencies of every operation on agents and tools. */
export interface OperationOptions extends ReadLimits {
  database: Database
  /** True if every update must carry a precondition. */
  requireIfMatch: boolean
}

export interface ReadRequest extends ReadLimits {
  caller: Caller
}

/** One authenticated request to update a resource. Each kind adds what its decision needs. */
export interface UpdateRequest extends ReadRequest {
  kind: ResourceKind
  id: number
  /** Authenticates the caller again and reads the resource as the route's lookup does. Throws a refusal. */
  authenticateAgain(): Promise<CallerNow>
  /** The same in a transaction or on the pool, without retries. */
  readNow(executor: Executor): Promise<CallerNow>
  actor: Actor
  /** The fields in the request, in their stored form. A request without fields is a read. */
  fields: object
  precondition: Precondition
  ifNoneMatch: Precondition
  /** True if every update must carry a precondition. A token may require it too. */
  preconditionRequired: boolean
  dryRun: boolean
  /** True if the caller wants no snapshot. */
  minimal: boolean
  /** Null without an `Idempotency-Key`. */
  key: RequestKey | null
}

/** The types of one kind of resource. */
export interface ResourceTypes {
  State: VersionedState
  Request: UpdateRequest
  Decision: Decision
  /** What the database knows about records that the request newly refers to. */
  Facts: unknown
}

export type Act = 'update' | 'creation' | 'deletion' | 'restoration'

/** A decision with the state that it was made on. */
export interface Decided<T extends ResourceTypes> {
  state: T['State']
  decision: T['Decision']
  facts: T['Facts']
}

/** A kind of resource: how it decides, its statements, and how answers show it. */
export interface VersionedResource<T extends ResourceTypes> {
  readonly kind: ResourceKind
  /** The noun for its requests in messages. */
  readonly act: Act
  /** The columns of a new row of this owner; null if the operator owns it. */
  newRow(owner: string | null): Readonly<Record<string, unknown>>
  /** Reads the state as the viewer sees it; undefined if it does not exist. */
  read(executor: Executor, id: number, viewer: ViewerParameters): Promise<T['State'] | undefined>
  /** Reads the facts that `decide` needs, with one statement if it needs any. */
  facts(db: Kysely<Tables>, state: T['State'], request: T['Request']): Promise<T['Facts']>
  /** Decides without a database. Throws domain errors. */
  decide(state: T['State'], request: T['Request'], facts: T['Facts']): T['Decision']
  /** The requested value of each field that the request names or changes, before rules and rights are applied. */
  asked(state: T['State'], request: T['Request']): readonly Change[]
  /** True if `write` stores the whole decision: it changes columns of the resource's own row only. */
  isAlone(decision: T['Decision']): boolean
  /** Stores the row and its audit row if the row is not locked and version and rights are those of the decision. Returns the new version. */
  write(
    executor: Executor,
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
    entry: AuditEntry,
  ): Promise<number | undefined>
  /** Stores the rest of the decision, in the transaction of `write`. */
  writeRest(
    trx: Transaction<Tables>,
    state: T['State'],
    decision: T['Decision'],
    viewer: ViewerParameters,
  ): Promise<void>
  /** Reads definitions that are not cached, and returns the function that renders the snapshot after the decision. */
  shown(db: Kysely<Tables>, made: Decided<T>): Promise<() => string>
  /** Renders the stored state. `isRead`: with the fields that only reads have. */
  snapshot(db: Kysely<Tables>, state: T['State'], isRead?: boolean): Promise<string>
  /** Throws `SnapshotTooLarge` if the definitions exceed `bytesMax`. */
  requireAnswerable(state: T['State'], bytesMax: number): void
  /** The hash of the replaced tool definition. The audit row keeps it stored. */
  replacedDefinition(state: T['State'], decision: T['Decision']): string | null
  /** The values covered by the content hash, in a fixed order: after the decision, or as stored if it is null. */
  audited(state: T['State'], decision: T['Decision'] | null): readonly unknown[] | null
  /** True if the caller may see this state. */
  isVisible(state: T['State'], caller: Caller): boolean
  /** Throws what `decide` throws if the caller must not update the resource at all. */
  requireRights(state: T['State'], caller: Caller): void
  /** Throws `ResourceNotFound` or `Forbidden` if the caller must not read earlier versions. */
  requireHistory(state: T['State'], caller: Caller): void
  readonly pastSnapshot: ShowPast<T>
}

/** A request with its dependencies. */
export interface Job<T extends ResourceTypes, Request extends ReadRequest = T['Request']> {
  database: Database
  resource: VersionedResource<T>
  request: Request
}

/** An earlier version, and the old value of each field that changed since, as in the audit rows. */
export interface Past {
  version: number
  values: Readonly<Record<string, unknown>>
}

/** Renders an earlier version; `isRead` as in `snapshot`. Calls `requireSize` with the bytes of its definitions first. Throws `VersionGone`. */
export type ShowPast<T extends ResourceTypes> = (
  db: Kysely<Tables>,
  state: T['State'],
  past: Past,
  viewer: ViewerParameters,
  requireSize: (bytes: number) => void,
  isRead?: boolean,
) => Promise<{ text: string; notes: string[] }>

/** The result of an update. `snapshot` is null if none is wanted. */
export interface Updated<T extends ResourceTypes> {
  snapshot: string | null
  id: number
  version: number
  decision: T['Decision']
  overwritten: RecentChange[]
  /** Notes for the caller. */
  notes: string[]
}
