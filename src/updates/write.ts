import type { Transaction } from 'kysely'
import { OPERATOR, type ViewerParameters } from '../auth/viewer.js'
import { databaseTimeMs } from '../db/clock.js'
import { queries } from '../db/statements/queries.js'
import { statement } from '../db/statements/statement.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { ResourceNotFound, TRY_AGAIN, Unavailable } from '../errors.js'
import { type Actor, type AuditEntry, auditEntry, auditHash, auditTime, type Change, sha256 } from './audit.js'
import type { ResourceTypes, VersionedResource, VersionedState } from './resource.js'

/* The parts that every write of an agent or a tool shares: the lock of its row, and its audit row. */

/** Locks a row against other writers and reads its state. Nobody else can change it until the transaction ends. */
export async function lockState<T extends ResourceTypes>(
  trx: Transaction<Tables>,
  resource: VersionedResource<T>,
  id: number,
  viewer: ViewerParameters,
): Promise<T['State'] | undefined> {
  await lockRow(trx, resource.kind, id)
  const state = await resource.read(trx, id, viewer) // read after the lock: an earlier read would miss a change made while waiting
  if (state !== undefined && resource.act === 'creation') state.isNew = true
  return state
}

/** Stores a decision with its audit row in a transaction that holds the row's lock. Returns the stored version. Throws `Unavailable` if the viewer's rights changed. */
export async function storeDecision<T extends ResourceTypes>(
  trx: Transaction<Tables>,
  resource: VersionedResource<T>,
  state: T['State'],
  decision: T['Decision'],
  actor: Actor,
  viewer = OPERATOR,
): Promise<number> {
  if (decision.changes.length === 0) return state.version
  const entry = entryOf(resource, state, decision, actor)
  const version = await resource.write(trx, state, decision, viewer, entry)
  if (version === undefined)
    throw new Unavailable('overloaded', `Rights changed meanwhile. ${TRY_AGAIN}`, 'not_applied')
  await resource.writeRest(trx, state, decision, viewer)
  return version
}

/**
 * Changes a resource as the operator or as another viewer, without checking rights, and adds its audit row. `decide` receives the locked
 * state. Throws `ResourceNotFound`.
 */
export async function changeAsOperator<T extends ResourceTypes>(
  trx: Transaction<Tables>,
  resource: VersionedResource<T>,
  id: number,
  decide: (state: T['State']) => T['Decision'] | Promise<T['Decision']>,
  actor: Actor,
  viewer = OPERATOR,
): Promise<{ name: string; version: number; changes: Change[] }> {
  const state = await lockState(trx, resource, id, viewer)
  if (state === undefined) throw new ResourceNotFound(resource.kind)
  const decision = await decide(state)
  const version = await storeDecision(trx, resource, state, decision, actor, viewer)
  return { name: state.name, version, changes: decision.changes }
}

/** The audit row of a decision. Its time is later than that of the previous version. */
export function entryOf<T extends ResourceTypes>(
  resource: VersionedResource<T>,
  state: T['State'],
  decision: T['Decision'],
  actor: Actor,
): AuditEntry {
  const audited = resource.audited(state, decision)
  const contentHash = audited && sha256(JSON.stringify(audited))
  const content = { definitionBefore: resource.replacedDefinition(state, decision), contentHash }
  const end = { kind: resource.kind, ...state }
  const { changes, command = actor.command } = decision
  return auditEntry(end, changes, { ...actor, command }, databaseTimeMs(state), content)
}

/** Sets the time of an audit row to now, just before it is sent. */
export function setTimeOfNow(entry: AuditEntry, state: VersionedState): void {
  entry.at = auditTime(databaseTimeMs(state), state.made_at)
  entry.hash = auditHash(entry)
}

/** Locks a row against other writers until the transaction ends. False if the row does not exist. */
export async function lockRow(trx: Transaction<Tables>, kind: ResourceKind, id: number): Promise<boolean> {
  return (await LOCKS[kind].run(trx, { id })).length > 0
}

const LOCKS = { persona: lockStatement('persona'), tool: lockStatement('tool') }

function lockStatement(kind: ResourceKind) {
  return statement<{ id: number }, { id: number }>(`${kind}_lock`, { id: 'integer' }, param => {
    return queries().selectFrom(kind).select('id').where('id', '=', param('id')).forNoKeyUpdate()
  })
}
