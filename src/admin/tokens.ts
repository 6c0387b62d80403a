import { type Kysely, sql, type Transaction } from 'kysely'
import { DIGEST_DIGITS, mintToken } from '../auth/token.js'
import type { Database, Permission } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { earlierWritersEnded } from './earlier-writers.js'
import { operatorActor } from './operator.js'
import { lockUser } from './people.js'
import { Refusal } from './refusal.js'

const DEFAULT_TOKEN_LIFE_S = 90 * 86_400

export interface TokenRequest {
  email: string
  /** Narrow what the user may do; absent: no narrowing. */
  scopes?: readonly Permission[]
  /** Bind the token to these resources; absent: no binding. */
  personaIds?: readonly number[]
  toolIds?: readonly number[]
  /** Seconds from the database's now; null never expires. Default: 90 days. */
  expiresInS?: number | null
  requireIfMatch?: boolean
}

/** A token as it is shown once: the secret cannot be had again. `expires_at` is ISO 8601 in UTC. */
export interface IssuedToken {
  id: number
  token: string
  expires_at: string | null
}

/** A token as it can be listed: without the secret. */
export interface ListedToken {
  id: number
  email: string
  scopes: Permission[] | null
  persona_ids: number[] | null
  tool_ids: number[] | null
  requires_if_match: boolean
  created_at: string
  expires_at: string | null
  revoked_at: string | null
  last_used_at: string | null
  /** As the log names the token of a request that was refused before its token was looked up. */
  digest: string
}

/** Makes a token for an existing user, by email or id. Throws `Refusal` when the user or a bound resource does not exist, or the user is inactive. */
export async function createToken(
  db: Kysely<Database>,
  request: TokenRequest,
  actor: Actor = operatorActor(),
): Promise<IssuedToken> {
  return await joined(db, async trx => {
    const user = await lockUser(trx, request.email)
    if (!user.active) throw new Refusal(`${user.email} is inactive: a token would not work`)
    await requireResources(trx, 'persona', request.personaIds ?? [])
    await requireResources(trx, 'tool', request.toolIds ?? [])
    const issued = await insertToken(trx, {
      user_id: user.id,
      kind: user.kind,
      scopes: listOrNull(request.scopes),
      persona_ids: listOrNull(request.personaIds),
      tool_ids: listOrNull(request.toolIds),
      requires_if_match: request.requireIfMatch ?? false,
      expiresInS: request.expiresInS === undefined ? DEFAULT_TOKEN_LIFE_S : request.expiresInS,
    })
    await recordAccess(trx, actor, [{ kind: 'token', subject: String(issued.id), action: 'created' }])
    return issued
  })
}

/** All tokens, or those of one user, in the order in which they were made. */
export async function listTokens(db: Kysely<Database>, email: string | null = null): Promise<ListedToken[]> {
  const { rows } = await sql<ListedToken>`
    select t.id, u.email, t.scopes, t.persona_ids, t.tool_ids, t.requires_if_match, t.created_at, t.expires_at,
      t.revoked_at, t.last_used_at, left(encode(t.hash, 'hex'), ${DIGEST_DIGITS}) as digest
    from token t join user_account u on u.id = t.user_id
    where ${email}::text is null or lower(u.email) = lower(${email}::text) order by id`.execute(db)
  return rows
}

/** Revokes a token; works on the next request, and nothing is stored by it any more when this answers. Answers false when it was revoked before. Throws `Refusal`. */
export async function revokeToken(db: Kysely<Database>, id: number, actor: Actor = operatorActor()): Promise<boolean> {
  const revoked = await joined(db, async trx => {
    const token = await trx.selectFrom('token').select('revoked_at').where('id', '=', id).executeTakeFirst()
    if (token === undefined) throw new Refusal(`there is no token ${id}`)
    const { numUpdatedRows } = await trx
      .updateTable('token')
      .set({ revoked_at: sql<string>`clock_timestamp()` })
      .where('id', '=', id)
      .where('revoked_at', 'is', null)
      .executeTakeFirst()
    if (numUpdatedRows === 0n) return false
    await recordAccess(trx, actor, [{ kind: 'token', subject: String(id), action: 'revoked' }])
    return true
  })
  await earlierWritersEnded(db)
  return revoked
}

/**
 * Makes a new token with the rights and the length of life of an old one; the old one lives on for `overlapS` seconds, or
 * until it would have expired if that is sooner. Throws `Refusal` for a token that is gone, revoked or expired.
 */
export async function rotateToken(
  db: Kysely<Database>,
  id: number,
  overlapS: number,
  actor: Actor = operatorActor(),
): Promise<IssuedToken> {
  return await db.transaction().execute(async trx => {
    const old = await trx
      .selectFrom('token as t')
      .innerJoin('user_account as u', 'u.id', 't.user_id')
      .select(['t.user_id', 'u.kind', 't.scopes', 't.persona_ids', 't.tool_ids', 't.requires_if_match', 't.revoked_at'])
      .select(sql<number | null>`extract(epoch from t.expires_at - t.created_at)::float8`.as('life_s'))
      .select(sql<boolean>`coalesce(t.expires_at <= clock_timestamp(), false)`.as('expired'))
      .where('t.id', '=', id)
      .forUpdate('t')
      .executeTakeFirst()
    if (old === undefined) throw new Refusal(`there is no token ${id}`)
    if (old.revoked_at !== null || old.expired) {
      throw new Refusal(
        `token ${id} is ${old.expired ? 'expired' : 'revoked'}: make a new one with agentctl token create`,
      )
    }
    await trx
      .updateTable('token')
      .set({ expires_at: sql<string>`least(expires_at, clock_timestamp() + make_interval(secs => ${overlapS}))` })
      .where('id', '=', id)
      .execute()
    const issued = await insertToken(trx, { ...old, expiresInS: old.life_s })
    await recordAccess(trx, actor, [
      { kind: 'token', subject: String(id), action: `rotated to ${issued.id}` },
      { kind: 'token', subject: String(issued.id), action: `rotated from ${id}` },
    ])
    return issued
  })
}

interface NewToken {
  user_id: string
  kind: 'person' | 'service_account'
  scopes: Permission[] | null
  persona_ids: number[] | null
  tool_ids: number[] | null
  requires_if_match: boolean
  expiresInS: number | null
}

async function insertToken(db: Kysely<Database> | Transaction<Database>, given: NewToken): Promise<IssuedToken> {
  const { token, hash } = mintToken(given.kind)
  const { user_id, scopes, persona_ids, tool_ids, requires_if_match, expiresInS } = given
  const expires_at = sql<string>`clock_timestamp() + make_interval(secs => ${expiresInS}::float8)`
  const row = await db
    .insertInto('token')
    .values({ hash, user_id, scopes, persona_ids, tool_ids, requires_if_match, expires_at })
    .returning(['id', 'expires_at'])
    .executeTakeFirstOrThrow()
  return { id: row.id, token, expires_at: row.expires_at }
}

async function requireResources(
  db: Kysely<Database>,
  table: 'persona' | 'tool',
  ids: readonly number[],
): Promise<void> {
  if (ids.length === 0) return
  const rows = await db
    .selectFrom(table)
    .select('id')
    .where('id', 'in', [...ids])
    .execute()
  const existing = new Set(rows.map(row => row.id))
  const missing = ids.filter(id => !existing.has(id))
  if (missing.length > 0)
    throw new Refusal(`there is no ${table === 'persona' ? 'agent' : 'tool'} ${missing.join(', ')}`)
}

function listOrNull<Item>(items: readonly Item[] | undefined): Item[] | null {
  return items === undefined || items.length === 0 ? null : [...new Set(items)]
}
