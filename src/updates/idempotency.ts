import { hash } from 'node:crypto'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { classifyDatabaseError } from '../db/connection/database-error.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { IdempotencyKeyInUse, InvalidRequest } from '../errors.js'

/*
 * Recognises repeated requests by their `Idempotency-Key`. The transaction of a request first inserts the key, so a concurrent request with the same
 * key waits for this transaction. A refused request leaves no key behind. A successful request keeps its key, even if it changed nothing.
 */

export interface RequestKey {
  /** The SHA-256, in hex, of the caller's id and the `Idempotency-Key`. */
  key: string
  /** The id of the encryption key used to hash header values for the fingerprint; null if the request has no header values. */
  secretKeyId: string | null
  /** Returns the SHA-256 of the request, in hex. First hashes header values with the encryption key `secretKeyId`. */
  fingerprint(secretKeyId: string | null): string
}

/** Returns the key of a request; null without an `Idempotency-Key`. `asked` returns the values that a repeated request must repeat. */
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
  /** The id of the resource. Releases before 3.0 stored no id for updates without changes; for these, use the id in the request's path. */
  id?: number
  version: number
}

export class Repeated extends Error {
  constructor(readonly first: FirstAnswer) {
    super('a request with this Idempotency-Key was already applied')
  }
}

/**
 * Claims the key of a request as the first step of its transaction. Waits for other transactions with the same key; after LOCK_TIMEOUT_MS, throws
 * `IdempotencyKeyInUse`. Throws `Repeated` if the same request was already applied, and `InvalidRequest` if the key was used for a different request.
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
  throw first === undefined ? new IdempotencyKeyInUse() : new Repeated(first) // `first` is undefined if the key was pruned meanwhile
}

/** Returns the result of the first request with the same key; undefined for a new key. Throws `InvalidRequest` if the first request was different. */
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

/** True if the resource was removed after `version`, so that its id can now belong to a different resource. */
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
