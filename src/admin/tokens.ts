import { type Insertable, type Kysely, sql, type Transaction } from 'kysely'
import { DIGEST_DIGITS, mintToken } from '../auth/token.js'
import type { Scope, Tables, TokenTable, UserKind } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { operatorActor } from './operator.js'
import { lockUser } from './people.js'
import { Refusal } from './refusal.js'

const DEFAULT_TOKEN_LIFE_S = 90 * 86_400

export interface TokenRequest {
  email: string
  /** Restrict the token to these scopes; absent or empty: all rights of the user. */
  scopes?: readonly Scope[]
  /** Bind the token to these resources; absent or empty: not bound. */
  personaIds?: readonly number[]
  toolIds?: readonly number[]
  /** Seconds until it expires; null for never. Default: 90 days. */
  expiresInS?: number | null
  requireIfMatch?: boolean
}

/** A new token, which is shown only once. `expires_at` is ISO 8601 in UTC. */
export interface IssuedToken {
  id: number
  token: string
  expires_at: string | null
}

/** Creates a token for an active user, by email or id. Throws `Refusal` for any other. */
export async function createToken(
  db: Kysely<Tables>,
  request: TokenRequest,
  actor: Actor = operatorActor(),
): Promise<IssuedToken> {
  const { email, scopes, personaIds, toolIds, requireIfMatch = false, expiresInS = DEFAULT_TOKEN_LIFE_S } = request
  return await joined(db, async trx => {
    const user = await lockUser(trx, email)
    requireActive(user)
    const issued = await insertToken(trx, user.kind, expiresInS, {
      user_id: user.id,
      scopes: listOrNull(scopes),
      persona_ids: listOrNull(personaIds),
      tool_ids: listOrNull(toolIds),
      requires_if_match: requireIfMatch,
    })
    await recordAccess(trx, actor, [{ kind: 'token', subject: String(issued.id), action: 'created' }])
    return issued
  })
}

function requireActive({ email, active }: { email: string; active: boolean }): void {
  if (!active) throw new Refusal(`${email} is inactive: a token would not work`)
}

/** The tokens of all users or of one, without secrets. `digest` is the value that the log has for an unknown token. */
export async function listTokens(db: Kysely<Tables>, email: string | null = null) {
  return await db
    .selectFrom('token as t')
    .innerJoin('user_account as u', 'u.id', 't.user_id')
    .select(['t.id', 'u.email', 't.scopes', 't.persona_ids', 't.tool_ids', 't.requires_if_match', 't.created_at'])
    .select(['t.expires_at', 't.revoked_at', 't.last_used_at'])
    .select(sql<string>`left(encode(t.hash, 'hex'), ${DIGEST_DIGITS})`.as('digest'))
    .where(sql<boolean>`${email}::text is null or lower(u.email) = lower(${email}::text)`)
    .orderBy('t.id')
    .execute()
}

/** Revokes a token with immediate effect. Returns false if it was revoked before. Throws `Refusal`. */
export async function revokeToken(db: Kysely<Tables>, id: number, actor: Actor = operatorActor()): Promise<boolean> {
  return await joined(db, async trx => {
    const token = await trx.selectFrom('token').select('revoked_at').where('id', '=', id).forUpdate().executeTakeFirst()
    if (token === undefined) throw new Refusal(`there is no token ${id}`)
    if (token.revoked_at !== null) return false
    await sql`update token set revoked_at = clock_timestamp() where id = ${id}`.execute(trx)
    await recordAccess(trx, actor, [{ kind: 'token', subject: String(id), action: 'revoked' }])
    return true
  })
}

/**
 * Creates a token with the rights and lifetime of an old one. The old one stays valid for `overlapS` seconds, or until it expires. Throws
 * `Refusal` for a missing, revoked or expired token, or an inactive user.
 */
export async function rotateToken(
  db: Kysely<Tables>,
  id: number,
  overlapS: number,
  actor: Actor = operatorActor(),
): Promise<IssuedToken> {
  return await db.transaction().execute(async trx => {
    const old = await trx
      .selectFrom('token as t')
      .innerJoin('user_account as u', 'u.id', 't.user_id')
      .select(['t.user_id', 't.scopes', 't.persona_ids', 't.tool_ids', 't.requires_if_match', 't.revoked_at'])
      .select(['u.email', 'u.active', 'u.kind'])
      .select(sql<number | null>`extract(epoch from t.expires_at - t.created_at)::float8`.as('life_s'))
      .select(sql<boolean>`coalesce(t.expires_at <= clock_timestamp(), false)`.as('expired'))
      .where('t.id', '=', id)
      .forUpdate('t')
      .executeTakeFirst()
    if (old === undefined) throw new Refusal(`there is no token ${id}`)
    if (old.revoked_at !== null || old.expired) {
      const state = old.expired ? 'expired' : 'revoked'
      throw new Refusal(`token ${id} is ${state}: make a new one with agentctl token create`)
    }
    requireActive(old)
    await sql`
      update token set expires_at = least(expires_at, clock_timestamp() + make_interval(secs => ${overlapS}))
      where id = ${id}`.execute(trx)
    const { user_id, kind, scopes, persona_ids, tool_ids, requires_if_match, life_s } = old
    const issued = await insertToken(trx, kind, life_s, { user_id, scopes, persona_ids, tool_ids, requires_if_match })
    await recordAccess(trx, actor, [
      { kind: 'token', subject: String(id), action: `rotated to ${issued.id}` },
      { kind: 'token', subject: String(issued.id), action: `rotated from ${id}` },
    ])
    return issued
  })
}

async function insertToken(
  trx: Transaction<Tables>,
  kind: UserKind,
  expiresInS: number | null,
  columns: Omit<Insertable<TokenTable>, 'hash' | 'expires_at'>,
): Promise<IssuedToken> {
  const { token, hash } = mintToken(columns.scopes?.includes('read') ? 'read_only' : kind)
  const expires_at = sql<string>`clock_timestamp() + make_interval(secs => ${expiresInS}::float8)`
  const row = await trx
    .insertInto('token')
    .values({ hash, ...columns, expires_at })
    .returning(['id', 'expires_at'])
    .executeTakeFirstOrThrow()
  return { token, ...row }
}

function listOrNull<Item>(items: readonly Item[] | undefined): Item[] | null {
  return items === undefined || items.length === 0 ? null : [...new Set(items)]
}
