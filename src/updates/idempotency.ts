import { type Expression, type SqlBool, sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { classifyDatabaseError } from '../db/connection/database-error.js'
import { bytesOf, hexOf, instant, lit, on, queries } from '../db/statements/queries.js'
import { type BatchRunner, type RowQuery, rowStatement } from '../db/statements/row-statement.js'
import { type Executor, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { InvalidRequest } from '../errors.js'
import { NO_KEY, type RequestKey, sha256 } from './audit.js'

/*
 * Repeated requests with an `Idempotency-Key`. The audit row of a change holds its key: both are committed together or not at all. The key
 * of an update that changes nothing is a row of its own. An advisory lock tells of a first request under way; a unique index has the last word.
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

/** What the first request with a key was answered. `shownAt`: when, where it made no version of its own. */
export interface FirstAnswer {
  /** Of which agent or tool; null where it changed nothing: then it is the one that the request names. */
  id: number | null
  version: number
  shownAt: string | null
}

/** The answer that the first request with this key had, if any. Throws `InvalidRequest` where another request had the key. */
export async function firstAnswer(
  key: RequestKey,
  run: (query: RowQuery<StoredAnswer>) => Promise<StoredAnswer | undefined>,
): Promise<FirstAnswer | undefined> {
  if (key.idempotency_key === null) return undefined
  const first = await run(storedKey.for({ idempotency_key: key.idempotency_key }))
  if (first === undefined || first.request_fingerprint === key.request_fingerprint) return first
  const msg = 'This key was used for another request; a key stands for one request and its repetitions'
  throw new InvalidRequest([{ loc: ['header', 'idempotency-key'], msg, type: 'idempotency_key_reused' }])
}

/** Stores the key of an update that changed nothing of this version, in the transaction that holds the key and the row's lock. */
export async function storeKey(trx: Transaction<Tables>, key: RequestKey, version: number): Promise<void> {
  const { idempotency_key, request_fingerprint } = key
  if (idempotency_key !== null) await storeUnchanged.run(trx, { idempotency_key, request_fingerprint, version })
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

/** SQL: that this key (hex, or null) stands for no update that changed nothing, nor for one that another transaction stores until this one ends. */
export function keyIsFree(key: Expression<string>): Expression<SqlBool> {
  const { and, eb, exists, not, or, selectFrom } = on()
  const stored = selectFrom('unchanged_update as u').where('u.idempotency_key', '=', bytesOf(key))
  return or([eb(key, 'is', null), and([lockKey('pg_try_advisory_xact_lock', key), not(exists(stored))])])
}

/** SQL: takes the advisory lock of a key, and whether it could. */
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

const storedKey = rowStatement<StoredKey, StoredAnswer>('stored_key', KEY_TYPES, (param, db) => {
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
  return db
    .selectFrom('input')
    .crossJoinLateral(version.unionAll(unchanged).limit(lit(1)).as('first'))
    .select(({ ref }) => [
      ...(['input.position', 'first.id', 'first.version', 'first.shownAt'] as const),
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

const tryKeyShared = rowStatement<StoredKey, { taken: boolean }>('try_key_shared', KEY_TYPES, (param, db) =>
  db
    .selectFrom('input')
    .select(['input.position', lockKey('pg_try_advisory_xact_lock_shared', param('idempotency_key')).as('taken')]),
)
