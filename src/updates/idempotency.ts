import { hash } from 'node:crypto'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { classifyDatabaseError } from '../db/connection/database-error.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { IdempotencyKeyInUse, InvalidRequest } from '../errors.js'

/*
 * Repeated requests with an `Idempotency-Key`. The transaction of a request first inserts its key. A concurrent request with the same key waits for
 * this transaction. A refusal rolls the key back. A success keeps it, even if nothing changed.
 */

export interface RequestKey {
  /** The SHA-256, in hex, of the caller's id and the `Idempotency-Key`. */
  key: string
  /** The id of the key ring's key that hashes header values in the fingerprint; null without header values. */
  secretKeyId: string | null
  /** Returns the SHA-256 of the request, in hex. Header values are first hashed with the key `secretKeyId`. */
  fingerprint(secretKeyId: string | null): string
}

/** Returns the key of a request; null without an `Idempotency-Key`. `asked` returns what a repeated request must not change. */
export function requestKey(
  caller: Caller,
  key: string | undefined,
  asked: (secretKeyId: string | null) => readonly unknown[],
  secretKeyId: string | null = null,
): RequestKey | null {
  if (key === undefined) return null
  const fingerprint = (id: string | null) => hash('sha256', JSON.stringify([key, ...asked(id)]))
  return { key: hash('sha256', JSON.stringify([caller.userId, key])), secretKeyId, fingerprint }
}

/** The result of the first request with a given key. */
export interface FirstAnswer {
  /** The id of the resource. Releases before 3.0 stored no id for an update without changes; use the id in the path of the request. */
  id?: number
  version: number
}

export class Repeated extends Error {
  constructor(readonly first: FirstAnswer) {
    super('a request with this Idempotency-Key was stored before')
  }
}

/**
 * Takes the key of a request as the first step of its transaction. Waits for other transactions with the same key, and throws `IdempotencyKeyInUse`
 * after LOCK_TIMEOUT_MS. Throws `Repeated` if the same request was stored before, and `InvalidRequest` if a different request has the key.
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
  throw first === undefined ? new IdempotencyKeyInUse() : new Repeated(first) // undefined if the row was pruned meanwhile
}

/** Returns the result of the first request with the same key, if any. Throws `InvalidRequest` if that request was different. */
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
  const msg = 'This key was already used for another request: use a new key for each new request'
  throw new InvalidRequest([{ loc: ['header', 'idempotency-key'], msg, type: 'idempotency_key_reused' }])
}

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

/** True if the resource was removed after `version`. Another resource can now have the same id. */
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
