import { type RawBuilder, sql } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { classifyDatabaseError } from '../db/connection/sqlstate.js'
import { type BatchRunner, type RowQuery, rowStatement } from '../db/statements/row-statement.js'
import { type Executor, statement } from '../db/statements/statement.js'
import { InvalidRequest } from '../errors.js'
import { NO_KEY, type RequestKey, sha256 } from './audit.js'

/*
 * Repeated requests with an `Idempotency-Key`. The audit row holds the key: both are committed together or not at all. An advisory lock
 * tells of a first request under way; a unique index has the last word.
 */

/** What a request with this key is found again by. `asked` answers everything that makes it the same request. */
export function requestKey(caller: Caller, key: string | undefined, asked: () => readonly unknown[]): RequestKey {
  if (key === undefined) return NO_KEY
  return {
    idempotency_key: sha256(JSON.stringify([caller.userId, key])),
    request_fingerprint: sha256(JSON.stringify([key, ...asked()])),
  }
}

/** Somebody stored an update with this key meanwhile. */
export class KeyTaken extends Error {}

/** Whether a write failed because an update with its key is stored. */
export function isKeyTaken(error: unknown): boolean {
  return error instanceof KeyTaken || classifyDatabaseError(error).constraint === 'audit_idempotency_key_unique'
}

/** The version that the update with this key made, if any. Throws `InvalidRequest` where another request had the key. */
export async function firstVersion(
  key: RequestKey,
  run: (query: RowQuery<StoredVersion>) => Promise<StoredVersion | undefined>,
): Promise<number | undefined> {
  if (key.idempotency_key === null) return undefined
  const first = await run(storedKey.for({ idempotency_key: key.idempotency_key }))
  if (first === undefined || first.request_fingerprint === key.request_fingerprint) return first?.version
  const msg = 'This key was used for another request; a key stands for one request and its repetitions'
  throw new InvalidRequest([{ loc: ['header', 'idempotency-key'], msg, type: 'idempotency_key_reused' }])
}

/** Whether an update with this key is under way. */
export async function isKeyInUse(database: BatchRunner, key: RequestKey): Promise<boolean> {
  if (key.idempotency_key === null) return false
  const row = await tryKeyShared.for({ idempotency_key: key.idempotency_key }).batched(database)
  return row?.taken !== true
}

/** Takes the key until the transaction ends; false where an update with it is under way. */
export async function takeKey(executor: Executor, key: RequestKey): Promise<boolean> {
  if (key.idempotency_key === null) return true
  const [row] = await tryKey.run(executor, { idempotency_key: key.idempotency_key })
  return row?.taken === true
}

/** SQL: that no other transaction is storing an update with this key (hex, or null), until this one ends. */
export function keyIsFree(key: RawBuilder<unknown>): RawBuilder<boolean> {
  return sql`coalesce(pg_try_advisory_xact_lock(${lockOf(key)}), true)`
}

function lockOf(key: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`('x' || left(${key}, 16))::bit(64)::bigint`
}

interface StoredKey {
  idempotency_key: string
}

interface StoredVersion {
  version: number
  request_fingerprint: string
}

const KEY_TYPES = { idempotency_key: 'text' }

const storedKey = rowStatement<StoredKey, StoredVersion>('stored_key', KEY_TYPES, param => ({
  query: sql`select input.position, version_after as version, encode(request_fingerprint, 'hex') as request_fingerprint
    from input join audit on audit.idempotency_key = decode(${param('idempotency_key')}, 'hex')`,
}))

const tryKey = statement<StoredKey, { taken: boolean }>('try_key', param => {
  return sql`select pg_try_advisory_xact_lock(${lockOf(sql`${param('idempotency_key')}::text`)}) as taken`
})

const tryKeyShared = rowStatement<StoredKey, { taken: boolean }>('try_key_shared', KEY_TYPES, param => ({
  query: sql`select input.position, pg_try_advisory_xact_lock_shared(${lockOf(param('idempotency_key'))}) as taken from input`,
}))
