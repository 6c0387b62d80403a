import { type Expression, type SqlBool, sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { classifyDatabaseError } from '../db/connection/database-error.js'
import { bytesOf, hexOf, instant, lit, on, queries } from '../db/statements/queries.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { InvalidRequest } from '../errors.js'
import { NO_KEY, type RequestKey, sha256 } from './audit.js'

/*
 * Repeated requests with an `Idempotency-Key`. The audit row of a change stores its key, so both are committed together. The key of an
 * update without a change is a row of `unchanged_update`. An advisory lock detects that the first request is still running; a unique index
 * guarantees that only one succeeds.
 */

/** Makes the key under which a request is stored and found again. `asked` returns everything that makes two requests the same. */
export function requestKey(caller: Caller, key: string | undefined, asked: () => readonly unknown[]): RequestKey {
  if (key === undefined) return NO_KEY
  return {
    idempotency_key: sha256(JSON.stringify([caller.userId, key])),
    request_fingerprint: sha256(JSON.stringify([key, ...asked()])),
  }
}

/** Another request stored an update with this key in the meantime. */
export class KeyTaken extends Error {}

/** True if a write failed because an update with its key is already stored. */
export function isKeyTaken(error: unknown): boolean {
  return error instanceof KeyTaken || classifyDatabaseError(error).constraint === 'audit_idempotency_key_unique'
}

/** The answer to the first request with a key. `shownAt` is its time if it stored no version of its own. */
export interface FirstAnswer {
  /** The id of the resource; null if the request changed nothing, and then the id is the one in its path. */
  id: number | null
  version: number
  shownAt: string | null
}

/** Returns the answer that the first request with this key had, if any. Throws `InvalidRequest` if that was a different request. */
export async function firstAnswer(executor: Executor, key: RequestKey): Promise<FirstAnswer | undefined> {
  if (key.idempotency_key === null) return undefined
  const first = await storedKey.first(executor, { idempotency_key: key.idempotency_key })
  if (first === undefined || first.request_fingerprint === key.request_fingerprint) return first
  const msg = 'This key was used for another request; a key stands for one request and its repetitions'
  throw new InvalidRequest([{ loc: ['header', 'idempotency-key'], msg, type: 'idempotency_key_reused' }])
}

/** Stores the key of an update that changed nothing in this version. The transaction must hold the key and the row's lock. */
export async function storeKey(trx: Transaction<Tables>, key: RequestKey, version: number): Promise<void> {
  const { idempotency_key, request_fingerprint } = key
  if (idempotency_key !== null) await storeUnchanged.run(trx, { idempotency_key, request_fingerprint, version })
}

/** True if an update with this key is running. */
export async function isKeyInUse(executor: Executor, key: RequestKey): Promise<boolean> {
  if (key.idempotency_key === null) return false
  const row = await tryKeyShared.first(executor, { idempotency_key: key.idempotency_key })
  return row?.taken !== true
}

/** Takes the key until the transaction ends. False if an update with it is running. */
export async function takeKey(executor: Executor, key: RequestKey): Promise<boolean> {
  if (key.idempotency_key === null) return true
  const [row] = await tryKey.run(executor, { idempotency_key: key.idempotency_key })
  return row?.taken === true
}

/**
 * SQL: takes the lock of this key (hex, or null) until the transaction ends. True if no other transaction has it, and no update without a
 * change is stored under it.
 */
export function keyIsFree(key: Expression<string>): Expression<SqlBool> {
  const { and, eb, exists, not, or, selectFrom } = on()
  const stored = selectFrom('unchanged_update as u').where('u.idempotency_key', '=', bytesOf(key))
  return or([eb(key, 'is', null), and([lockKey('pg_try_advisory_xact_lock', key), not(exists(stored))])])
}

/** SQL: tries to take the advisory lock of a key; true if it did. */
function lockKey(take: `pg_try_advisory_xact_lock${'' | '_shared'}`, key: Expression<string>) {
  return on().fn<boolean>(take, [sql`('x' || left(${key}, 16))::bit(64)::bigint`])
}

interface StoredKey {
  idempotency_key: string
}

interface StoredAnswer extends FirstAnswer {
  request_fingerprint: string
}

const KEY_TYPES = { idempotency_key: 'text' }

const storedKey = statement<StoredKey, StoredAnswer>('stored_key', KEY_TYPES, param => {
  const key = bytesOf(param('idempotency_key'))
  const version = queries()
    .selectFrom('audit')
    .select([
      'resource_id as id',
      'version_after as version',
      lit(null).$castTo<string | null>().as('shownAt'),
      'request_fingerprint',
    ])
    .where('idempotency_key', '=', key)
  const unchanged = queries()
    .selectFrom('unchanged_update')
    .select(({ ref }) => [
      lit(null).$castTo<number>().as('id'),
      'version',
      instant(ref('at')).as('shownAt'),
      'request_fingerprint',
    ])
    .where('idempotency_key', '=', key)
  return queries()
    .selectFrom(version.unionAll(unchanged).limit(lit(1)).as('first'))
    .select(({ ref }) => [
      ...(['first.id', 'first.version', 'first.shownAt'] as const),
      hexOf(ref('first.request_fingerprint')).as('request_fingerprint'),
    ])
})

const storeUnchanged = statement<StoredKey & { request_fingerprint: string | null; version: number }, object>(
  'store_unchanged',
  { ...KEY_TYPES, request_fingerprint: 'text', version: 'integer' },
  param =>
    queries()
      .insertInto('unchanged_update')
      .values({
        idempotency_key: bytesOf(param('idempotency_key')),
        request_fingerprint: bytesOf(param('request_fingerprint')),
        version: param('version'),
      }),
)

const tryKey = statement<StoredKey, { taken: boolean }>('try_key', KEY_TYPES, param =>
  queries().selectNoFrom(lockKey('pg_try_advisory_xact_lock', param('idempotency_key')).as('taken')),
)

const tryKeyShared = statement<StoredKey, { taken: boolean }>('try_key_shared', KEY_TYPES, param =>
  queries().selectNoFrom(lockKey('pg_try_advisory_xact_lock_shared', param('idempotency_key')).as('taken')),
)
