import { type Kysely, sql, type Transaction } from 'kysely'
import type { Permission, Tables, UserKind } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import type { Actor } from '../updates/resource.js'
import { canonicalUuid } from '../validation/vocabulary.js'
import { recordAccess } from './access-events.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'

/** Creates a user and returns the id. Throws `Refusal` if another user has the email. */
export async function createUser(
  db: Kysely<Tables>,
  user: { email: string; kind: UserKind; permissions: Permission[] },
  actor: Actor = operatorActor(),
): Promise<string> {
  return await joined(db, async trx => {
    const row = await trx
      .insertInto('user_account')
      .values({ ...user, permissions: [...new Set(user.permissions)].sort() })
      .onConflict(conflict => conflict.doNothing())
      .returning('id')
      .executeTakeFirst()
    if (row === undefined) throw new Refusal(`the user ${user.email} already exists: change it with agentctl apply`)
    await recordAccess(trx, actor, [{ kind: 'user', subject: row.id, action: 'created' }])
    return row.id
  })
}

/** Lists the users, sorted by email. */
export async function listUsers(db: Kysely<Tables>) {
  const groups = sql<string[]>`array(
    select g.name from user_group_member m join user_group g on g.id = m.user_group_id where m.user_id = u.id order by 1)`
  return await db
    .selectFrom('user_account as u')
    .select(['id', 'email', 'kind', 'active', 'permissions', groups.as('groups')])
    .orderBy('email')
    .execute()
}

/** Returns the alphabetically first email of an active administrator, or undefined. The permission may come from a group. */
export async function firstAdministrator(db: Kysely<Tables>): Promise<string | undefined> {
  const { rows } = await sql<{ email: string }>`
    select u.email from user_account u
    where u.active and ('admin' = any(u.permissions) or exists (
      select from user_group_member m join user_group g on g.id = m.user_group_id
      where m.user_id = u.id and 'admin' = any(g.permissions)))
    order by u.email limit 1`.execute(db)
  return rows[0]?.email
}

/** The key of the advisory lock for removing administrators. Without the lock, two transactions could together remove the last two. */
const ADMINISTRATORS_LOCK = 7_153_001

/** Runs `work` in a transaction. If `work` removes the last active administrator, rolls back and throws `Refusal`. */
export async function keepingAdministrator<T>(
  db: Kysely<Tables>,
  work: (trx: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  return await joined(db, async trx => {
    await sql`select pg_advisory_xact_lock(${ADMINISTRATORS_LOCK}::bigint)`.execute(trx)
    const before = await firstAdministrator(trx)
    const result = await work(trx)
    if (before !== undefined && (await firstAdministrator(trx)) === undefined) {
      throw new Refusal(
        `the command would leave no active administrator: first create another administrator with agentctl user create EMAIL --permission admin`,
      )
    }
    return result
  })
}

/**
 * Deactivates a user with immediate effect. Returns false if the user was already inactive. Throws `Refusal` if there is no such user or no
 * administrator would remain.
 */
export async function deactivateUser(
  db: Kysely<Tables>,
  email: string,
  actor: Actor = operatorActor(),
): Promise<boolean> {
  return await keepingAdministrator(db, async trx => {
    const user = await lockUser(trx, email)
    if (!user.active) return false
    await trx.updateTable('user_account').set({ active: false }).where('id', '=', user.id).execute()
    await recordAccess(trx, actor, [{ kind: 'user', subject: user.id, action: 'deactivated' }])
    return true
  })
}

const EMAIL_LENGTH_MAX = 320

export function isEmail(text: string): boolean {
  return text.length <= EMAIL_LENGTH_MAX && /^[^\s\p{Cc}@]+@[^\s\p{Cc}@]+$/u.test(text)
}

/** Returns the unique email that an erased account gets. No mail can reach an address under `.invalid`. */
export function nameOfErased(id: string): string {
  return `erased-${id}@erased.invalid`
}

/** True if the account has the email that an erased account gets. */
export function isErased({ id, email }: { id: string; email: string }): boolean {
  return email === nameOfErased(id)
}

/** Finds a user by id or email and locks the row. Ignores the case of emails. Throws `Refusal` if there is no such user. */
export async function lockUser(
  trx: Transaction<Tables>,
  named: string,
): Promise<{ id: string; email: string; kind: UserKind; active: boolean }> {
  const { rows } = await sql<{ id: string; email: string; kind: UserKind; active: boolean }>`
    select id, email, kind, active from user_account
    where lower(email) = lower(${named}::text) or id = ${canonicalUuid(named) ?? null}::uuid
    order by lower(email) = lower(${named}::text) desc limit 1 for no key update`.execute(trx)
  const [row] = rows
  if (row === undefined) throw new Refusal(`there is no user ${named}: see agentctl user list and agentctl user create`)
  return row
}
