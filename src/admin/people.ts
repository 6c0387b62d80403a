import { type Kysely, sql, type Transaction } from 'kysely'
import type { Database, Permission, UserKind } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import { canonicalUuid } from '../schema/vocabulary.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { earlierWritersEnded } from './earlier-writers.js'
import { type Selection, selectRows } from './listing.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'

export interface ListedUser {
  id: string
  email: string
  kind: UserKind
  active: boolean
  permissions: Permission[]
  groups: string[]
}

/** Makes a user and answers the id. Throws `Refusal` when the email is taken. */
export async function createUser(
  db: Kysely<Database>,
  user: { email: string; kind: UserKind; permissions: Permission[] },
  actor: Actor = operatorActor(),
): Promise<string> {
  return await joined(db, async trx => {
    const row = await trx
      .insertInto('user_account')
      .values({ ...user, permissions: sorted(user.permissions) })
      .onConflict(conflict => conflict.doNothing())
      .returning('id')
      .executeTakeFirst()
    if (row === undefined) throw new Refusal(`there is a user ${user.email} already`)
    await recordAccess(trx, actor, [{ kind: 'user', subject: row.id, action: 'created' }])
    return row.id
  })
}

const USERS = sql<ListedUser>`
  select u.id, u.email, u.kind, u.active, u.permissions,
    array(select g.name from user_group_member m join user_group g on g.id = m.user_group_id
          where m.user_id = u.id order by 1) as groups
  from user_account u`

/** The users, by email. */
export async function listUsers(db: Kysely<Database>, selection: Selection = {}): Promise<ListedUser[]> {
  return await selectRows(db, USERS, sql`email`, selection)
}

/** Whether somebody administers, by a permission of their own or of a group. Answers the first by email. */
export async function firstAdministrator(db: Kysely<Database>): Promise<string | undefined> {
  const { rows } = await sql<{ email: string }>`
    select u.email from user_account u
    where u.active and ('admin' = any(u.permissions) or exists (
      select from user_group_member m join user_group g on g.id = m.user_group_id
      where m.user_id = u.id and 'admin' = any(g.permissions)))
    order by u.email limit 1`.execute(db)
  return rows[0]?.email
}

/** Everything that may take the last administrator away takes turns: two at once would each see the other's. */
const ADMINISTRATORS_LOCK = 7_153_001

/**
 * Does what changes who administers, in a transaction. Throws `Refusal`, with nothing changed, when somebody administered before
 * and nobody would afterwards.
 */
export async function keepingAdministrator<T>(
  db: Kysely<Database>,
  work: (trx: Transaction<Database>) => Promise<T>,
): Promise<T> {
  const within = async (trx: Transaction<Database>) => {
    await sql`select pg_advisory_xact_lock(${ADMINISTRATORS_LOCK}::bigint)`.execute(trx)
    const before = await firstAdministrator(trx)
    const result = await work(trx)
    if (before !== undefined && (await firstAdministrator(trx)) === undefined) {
      throw new Refusal(
        `this would leave no active administrator: make another one first (agentctl user grant EMAIL admin)`,
      )
    }
    return result
  }
  return await joined(db, within)
}

/** The same for what takes access away: afterwards nothing is stored any more that was decided on what was taken. */
export async function takingAccess<T>(
  db: Kysely<Database>,
  work: (trx: Transaction<Database>) => Promise<T>,
): Promise<T> {
  const result = await keepingAdministrator(db, work)
  await earlierWritersEnded(db)
  return result
}

/**
 * Grants or takes a permission of a user, named by email or id, or of a group, by name or id; the next request sees it.
 * Answers false when they had it already, or had it not. Throws `Refusal`.
 */
export async function setPermission(
  db: Kysely<Database>,
  holder: 'user' | 'group',
  named: string,
  permission: Permission,
  isGranted: boolean,
  actor: Actor = operatorActor(),
): Promise<boolean> {
  return await (isGranted ? keepingAdministrator : takingAccess)(db, async trx => {
    const id = holder === 'user' ? await userId(trx, named) : await groupId(trx, named)
    const permissions = isGranted
      ? sql`array(select distinct p from unnest(permissions || ${permission}::text) p order by 1)`
      : sql`array_remove(permissions, ${permission}::text)`
    const { numAffectedRows } = await sql`
      update ${sql.table(holder === 'user' ? 'user_account' : 'user_group')} set permissions = ${permissions}
      where id = ${id} and ${permission}::text = any(permissions) <> ${isGranted}::boolean`.execute(trx)
    if (numAffectedRows === 0n) return false
    const action = `${isGranted ? 'granted' : 'revoked'} ${permission}`
    await recordAccess(trx, actor, [{ kind: holder, subject: String(id), action }])
    return true
  })
}

/**
 * Lets a user in or shuts them out; the next request sees it. Answers false when they were so already. Throws `Refusal`, also for
 * an erased account, which stays shut.
 */
export async function setUserActive(
  db: Kysely<Database>,
  email: string,
  active: boolean,
  actor: Actor = operatorActor(),
): Promise<boolean> {
  return await (active ? keepingAdministrator : takingAccess)(db, async trx => {
    const user = await lockUser(trx, email)
    if (active && isErased(user)) throw new Refusal('this account was erased and stays shut: make a new one')
    if (user.active === active) return false
    await trx.updateTable('user_account').set({ active }).where('id', '=', user.id).execute()
    await recordAccess(trx, actor, [{ kind: 'user', subject: user.id, action: active ? 'activated' : 'deactivated' }])
    return true
  })
}

/** What the account of somebody who was erased is called: no address, and no two alike. */
export function nameOfErased(id: string): string {
  return `erased-${id}@erased.invalid`
}

/** Whether this is the account of somebody who was erased: it stays shut. */
export function isErased({ id, email }: { id: string; email: string }): boolean {
  return email === nameOfErased(id)
}

export interface ListedGroup {
  id: number
  name: string
  permissions: Permission[]
  members: string[]
  managers: string[]
}

/** Makes a group and answers the id. Throws `Refusal` when the name is taken. */
export async function createGroup(
  db: Kysely<Database>,
  name: string,
  permissions: Permission[],
  actor: Actor = operatorActor(),
): Promise<number> {
  return await joined(db, async trx => {
    const row = await trx
      .insertInto('user_group')
      .values({ name, permissions: sorted(permissions) })
      .onConflict(conflict => conflict.doNothing())
      .returning('id')
      .executeTakeFirst()
    if (row === undefined) throw new Refusal(`there is a group ${name} already`)
    await recordAccess(trx, actor, [{ kind: 'group', subject: String(row.id), action: 'created' }])
    return row.id
  })
}

const GROUPS = sql<ListedGroup>`
  select g.id, g.name, g.permissions,
    array(select u.email from user_group_member m join user_account u on u.id = m.user_id
          where m.user_group_id = g.id and not m.is_manager order by 1) as members,
    array(select u.email from user_group_member m join user_account u on u.id = m.user_id
          where m.user_group_id = g.id and m.is_manager order by 1) as managers
  from user_group g`

/** The groups, by id. */
export async function listGroups(db: Kysely<Database>, selection: Selection = {}): Promise<ListedGroup[]> {
  return await selectRows(db, GROUPS, sql`id`, selection)
}

/**
 * Makes a user a member, or a manager, of a group; a manager who is made a member stays one. Answers false when they were already.
 * Throws `Refusal`.
 */
export async function addMember(
  db: Kysely<Database>,
  group: string,
  named: string,
  isManager: boolean,
  actor: Actor = operatorActor(),
): Promise<boolean> {
  return await joined(db, async trx => {
    const id = await groupId(trx, group)
    const { id: user_id, email } = await lockUser(trx, named)
    const { numAffectedRows } = await sql`
      insert into user_group_member as m (user_id, user_group_id, is_manager) values (${user_id}, ${id}, ${isManager})
      on conflict (user_id, user_group_id) do update set is_manager = true
        where excluded.is_manager and not m.is_manager`.execute(trx)
    if (numAffectedRows === 0n) return false
    const action = isManager ? 'manager added' : 'member added'
    await recordAccess(trx, actor, [{ kind: 'group', subject: String(id), action, person: email }])
    return true
  })
}

/**
 * Takes a user out of a group, or, with `onlyManager`, makes a manager a plain member. Throws `Refusal`, also when the user is no
 * member, or no manager, of it.
 */
export async function removeMember(
  db: Kysely<Database>,
  group: string,
  named: string,
  onlyManager: boolean,
  actor: Actor = operatorActor(),
): Promise<boolean> {
  return await takingAccess(db, async trx => {
    const id = await groupId(trx, group)
    const { id: user, email } = await lockUser(trx, named)
    const { numAffectedRows } = await (onlyManager
      ? sql`update user_group_member set is_manager = false
            where user_id = ${user} and user_group_id = ${id} and is_manager`
      : sql`delete from user_group_member where user_id = ${user} and user_group_id = ${id}`
    ).execute(trx)
    if (numAffectedRows === 0n) {
      throw new Refusal(`${email} is not a ${onlyManager ? 'manager' : 'member'} of the group ${group}`)
    }
    const action = onlyManager ? 'manager removed' : 'member removed'
    await recordAccess(trx, actor, [{ kind: 'group', subject: String(id), action, person: email }])
    return true
  })
}

/**
 * The user with an email, in any case, or with an id, locked until the transaction ends: an erasure waits, so that no event names
 * them after it. Throws `Refusal`.
 */
export async function lockUser(
  trx: Transaction<Database>,
  named: string,
): Promise<{ id: string; email: string; kind: UserKind; active: boolean }> {
  const { rows } = await sql<{ id: string; email: string; kind: UserKind; active: boolean }>`
    select id, email, kind, active from user_account where id = ${await userId(trx, named)} for no key update`.execute(
    trx,
  )
  const [row] = rows
  if (row === undefined) throw new Refusal(`there is no user ${named}`)
  return row
}

/** The id of the user with an email, in any case, or with an id. Throws `Refusal`. */
export async function userId(db: Kysely<Database>, user: string): Promise<string> {
  const { rows } = await sql<{ id: string }>`
    select id from user_account where lower(email) = lower(${user}::text) or id = ${canonicalUuid(user) ?? null}::uuid
    order by lower(email) = lower(${user}::text) desc limit 1`.execute(db)
  const [row] = rows
  if (row === undefined) throw new Refusal(`there is no user ${user}`)
  return row.id
}

/** The id of a group, by name, or by id where no name fits. Throws `Refusal`. */
export async function groupId(db: Kysely<Database>, group: string): Promise<number> {
  const named = await db.selectFrom('user_group').select('id').where('name', '=', group).executeTakeFirst()
  if (named !== undefined) return named.id
  const id = /^\d{1,9}$/.test(group) ? Number(group) : 0
  const row = await db.selectFrom('user_group').select('id').where('id', '=', id).executeTakeFirst()
  if (row === undefined) throw new Refusal(`there is no group ${group}`)
  return row.id
}

function sorted(permissions: readonly Permission[]): Permission[] {
  return [...new Set(permissions)].sort()
}
