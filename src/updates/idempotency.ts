import { type Kysely, sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { classifyDatabaseError } from '../db/connection/database-error.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { IdempotencyKeyInUse, InvalidRequest } from '../errors.js'
import { sha256 } from './audit.js'

/*
 * Repeated requests with an `Idempotency-Key`. A request inserts its key first in its transaction, so of two with one key the second waits
 * for the first. A refusal rolls the key back; it is kept if the request succeeds, also without a change.
 */

/** A request's key: SHA-256 in hex of the caller's id with the `Idempotency-Key`. */
export interface RequestKey {
  key: string
  /** The id of the ring's key that header values in the fingerprint are hashed with; null if there are none. */
  secretKeyId: string | null
  /** SHA-256 in hex of the request, with header values hashed with this key of the ring. */
  fingerprint(secretKeyId: string | null): string
}

/** Makes the key under which a request is stored and found again. `asked` returns everything that makes two requests the same. */
export function requestKey(
  caller: Caller,
  key: string | undefined,
  asked: (secretKeyId: string | null) => readonly unknown[],
  secretKeyId: string | null = null,
): RequestKey | null {
  if (key === undefined) return null
  const fingerprint = (id: string | null) => sha256(JSON.stringify([key, ...asked(id)]))
  return { key: sha256(JSON.stringify([caller.userId, key])), secretKeyId, fingerprint }
}

/** The answer to the first request with a key. */
export interface FirstAnswer {
  /** The id of the resource. Absent for an update that changed nothing before version 3.0: then it is the one in the path. */
  id?: number
  version: number
}

/** An earlier request with the same key has been answered: this one repeats it. */
export class Repeated extends Error {
  constructor(readonly first: FirstAnswer) {
    super('a request with this Idempotency-Key was stored before')
  }
}

/**
 * Takes the key of a request for this transaction, first of all. Waits for another transaction with the same key, and throws
 * `IdempotencyKeyInUse` if that takes longer than LOCK_TIMEOUT_MS. Throws `Repeated` if the request was stored before, and `InvalidRequest`
 * if another request with this key was.
 */
export async function takeKey(trx: Transaction<Tables>, request: RequestKey): Promise<void> {
  const taken = await trx
    .insertInto('request_key')
    .values({ key: Buffer.from(request.key, 'hex') })
    .onConflict(conflict => conflict.column('key').doNothing())
    .executeTakeFirst()
    .catch(error => {
      throw classifyDatabaseError(error).kind === 'lock_timeout' ? new IdempotencyKeyInUse() : error
    })
  if (taken.numInsertedOrUpdatedRows === 1n) return
  const first = await firstAnswer(trx, request)
  throw first === undefined ? new IdempotencyKeyInUse() : new Repeated(first) // undefined if it was pruned in between
}

/** The answer to the first request with this key, if any. Throws `InvalidRequest` if that was a different request. */
export async function firstAnswer(
  db: Kysely<Tables>,
  { key, fingerprint }: RequestKey,
): Promise<FirstAnswer | undefined> {
  const found = await db
    .selectFrom('request_key')
    .select(['resource_id as id', 'version', 'fingerprint', 'key_id'])
    .where('key', '=', Buffer.from(key, 'hex'))
    .executeTakeFirst()
  if (found === undefined || found.version === null) return undefined
  const { fingerprint: stored, key_id, version, id } = found
  if (stored?.toString('hex') === fingerprint(key_id)) return { version, ...(id !== null && { id }) }
  const msg = 'This key was used for another request; a key stands for one request and its repetitions'
  throw new InvalidRequest([{ loc: ['header', 'idempotency-key'], msg, type: 'idempotency_key_reused' }])
}

/** Fills the row of a taken key with the result of its request. */
export async function fillKey(
  trx: Transaction<Tables>,
  { key, secretKeyId, fingerprint }: RequestKey,
  { id, version }: Required<FirstAnswer>,
): Promise<void> {
  await trx
    .updateTable('request_key')
    .set({ fingerprint: Buffer.from(fingerprint(secretKeyId), 'hex'), key_id: secretKeyId })
    .set({ resource_id: id, version, at: sql`clock_timestamp()` })
    .where('key', '=', Buffer.from(key, 'hex'))
    .execute()
}

/** True if the resource was removed after this version: another one may have its id now. */
export async function wasRemovedSince(db: Kysely<Tables>, kind: ResourceKind, id: number, version: number) {
  const removal = db
    .selectFrom('audit')
    .select('version_after')
    .where('resource_kind', '=', kind)
    .where('resource_id', '=', id)
    .where('version_after', '>', version)
    .where(({ eb, fn, val }) => eb(val('removed'), '=', fn.any('fields')))
  return (await removal.executeTakeFirst()) !== undefined
}
