import { type Kysely, sql } from 'kysely'
import { DIGEST_DIGITS, mintToken } from '../auth/token.js'
import type { Scope, Tables } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import type { Actor } from '../updates/resource.js'
import { recordAccess } from './access-events.js'
import { operatorActor } from './operator.js'
import { isErased, lockUser } from './people.js'
import { Refusal } from './refusal.js'

const DEFAULT_TOKEN_LIFE_S = 90 * 86_400

export interface TokenRequest {
  email: string
  /** The scopes of the token. Without scopes, the token has all rights of its user. */
  scopes?: readonly Scope[]
  /** The agents and tools that the token is bound to. If both lists are empty, the token is not bound. */
  personaIds?: readonly number[]
  toolIds?: readonly number[]
  /** Seconds until the token expires. Null: the token never expires. Default: 90 days. */
  expiresInS?: number | null
  requireIfMatch?: boolean
}

/** A new token in clear text, which is not stored and cannot be shown again. `expires_at` is an ISO 8601 time in UTC. */
export interface IssuedToken {
  id: number
  token: string
  expires_at: string | null
}

/** Scopes and the kinds of tokens that they determine, in order of precedence. */
const RESTRICTED = [
  ['runtime', 'runtime'],
  ['read', 'read_only'],
  ['propose', 'proposals_only'],
] as const

/** Creates a token for an active user, found by email or id. Throws `Refusal` if the user does not exist or is inactive. */
export async function createToken(
  db: Kysely<Tables>,
  request: TokenRequest,
  actor: Actor = operatorActor(),
): Promise<IssuedToken> {
  const { email, scopes, personaIds, toolIds, requireIfMatch = false, expiresInS = DEFAULT_TOKEN_LIFE_S } = request
  return await joined(db, async trx => {
    const user = await lockUser(trx, email)
    const remedy = isErased(user) ? 'choose another user' : 'first set its field active to true with agentctl apply'
    if (!user.active) throw new Refusal(`${user.email} is inactive: ${remedy}`)
    const restricted = RESTRICTED.find(([scope]) => scopes?.includes(scope))
    const { token, hash } = mintToken(restricted?.[1] ?? user.kind)
    const row = await trx
      .insertInto('token')
      .values({
        ...{ hash, user_id: user.id, requires_if_match: requireIfMatch },
        scopes: listOrNull(scopes),
        persona_ids: listOrNull(personaIds),
        tool_ids: listOrNull(toolIds),
        expires_at: sql<string>`clock_timestamp() + make_interval(secs => ${expiresInS}::float8)`,
      })
      .returning(['id', 'expires_at'])
      .executeTakeFirstOrThrow()
    await recordAccess(trx, actor, [{ kind: 'token', subject: String(row.id), action: 'created' }])
    return { token, ...row }
  })
}

function listOrNull<Item>(items: readonly Item[] = []): Item[] | null {
  return items.length === 0 ? null : [...new Set(items)]
}

/** Lists the tokens of one user or of all users. `digest` identifies a token in the log. */
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

/** Revokes a token with immediate effect. Returns false if the token was already revoked. Throws `Refusal` if it does not exist. */
export async function revokeToken(db: Kysely<Tables>, id: number, actor: Actor = operatorActor()): Promise<boolean> {
  return await joined(db, async trx => {
    const token = await trx.selectFrom('token').select('revoked_at').where('id', '=', id).forUpdate().executeTakeFirst()
    if (token === undefined) throw new Refusal(`there is no token ${id}: see agentctl token list`)
    if (token.revoked_at !== null) return false
    await sql`update token set revoked_at = clock_timestamp() where id = ${id}`.execute(trx)
    await recordAccess(trx, actor, [{ kind: 'token', subject: String(id), action: 'revoked' }])
    return true
  })
}
