import { type Kysely, sql } from 'kysely'
import type { Database, Permission, UserKind } from '../db/tables.js'
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
): Promise<string> {
  const row = await db
    .insertInto('user_account')
    .values({ ...user, permissions: sorted(user.permissions) })
    .onConflict(conflict => conflict.doNothing())
    .returning('id')
    .executeTakeFirst()
  if (row === undefined) throw new Refusal(`there is a user ${user.email} already`)
  return row.id
}

/** All users, by email. */
export async function listUsers(db: Kysely<Database>): Promise<ListedUser[]> {
  const { rows } = await sql<ListedUser>`
    select u.id, u.email, u.kind, u.active, u.permissions,
      array(select g.name from user_group_member m join user_group g on g.id = m.user_group_id
            where m.user_id = u.id order by 1) as groups
    from user_account u order by u.email`.execute(db)
  return rows
}

/** Grants or takes a permission of a user; the next request sees it. Throws `Refusal`. */
export async function setUserPermission(
  db: Kysely<Database>,
  email: string,
  permission: Permission,
  held: boolean,
): Promise<void> {
  const id = await userId(db, email)
  await db
    .updateTable('user_account')
    .set({ permissions: withPermission(permission, held) })
    .where('id', '=', id)
    .execute()
}

/** Lets a user in or shuts them out; the next request sees it. Throws `Refusal`. */
export async function setUserActive(db: Kysely<Database>, email: string, active: boolean): Promise<void> {
  await db
    .updateTable('user_account')
    .set({ active })
    .where('id', '=', await userId(db, email))
    .execute()
}

export interface ListedGroup {
  id: number
  name: string
  permissions: Permission[]
  members: string[]
  managers: string[]
}

/** Makes a group and answers the id. Throws `Refusal` when the name is taken. */
export async function createGroup(db: Kysely<Database>, name: string, permissions: Permission[]): Promise<number> {
  const row = await db
    .insertInto('user_group')
    .values({ name, permissions: sorted(permissions) })
    .onConflict(conflict => conflict.doNothing())
    .returning('id')
    .executeTakeFirst()
  if (row === undefined) throw new Refusal(`there is a group ${name} already`)
  return row.id
}

/** All groups, by id. */
export async function listGroups(db: Kysely<Database>): Promise<ListedGroup[]> {
  const { rows } = await sql<ListedGroup>`
    select g.id, g.name, g.permissions,
      array(select u.email from user_group_member m join user_account u on u.id = m.user_id
            where m.user_group_id = g.id and not m.is_manager order by 1) as members,
      array(select u.email from user_group_member m join user_account u on u.id = m.user_id
            where m.user_group_id = g.id and m.is_manager order by 1) as managers
    from user_group g order by g.id`.execute(db)
  return rows
}

/** Grants or takes a permission of a group. Throws `Refusal`. */
export async function setGroupPermission(
  db: Kysely<Database>,
  group: string,
  permission: Permission,
  held: boolean,
): Promise<void> {
  const id = await groupId(db, group)
  await db
    .updateTable('user_group')
    .set({ permissions: withPermission(permission, held) })
    .where('id', '=', id)
    .execute()
}

/** Makes a user a member, or a manager, of a group; a manager who is made a member stays one. Throws `Refusal`. */
export async function addMember(db: Kysely<Database>, group: string, email: string, isManager: boolean): Promise<void> {
  const row = { user_id: await userId(db, email), user_group_id: await groupId(db, group), is_manager: isManager }
  await db
    .insertInto('user_group_member')
    .values(row)
    .onConflict(conflict => {
      const same = conflict.columns(['user_id', 'user_group_id'])
      return isManager ? same.doUpdateSet({ is_manager: true }) : same.doNothing()
    })
    .execute()
}

/** Takes a user out of a group, or, with `onlyManager`, makes a manager a plain member. Throws `Refusal`. */
export async function removeMember(
  db: Kysely<Database>,
  group: string,
  email: string,
  onlyManager: boolean,
): Promise<void> {
  const user = await userId(db, email)
  const id = await groupId(db, group)
  if (onlyManager) {
    await db
      .updateTable('user_group_member')
      .set({ is_manager: false })
      .where('user_id', '=', user)
      .where('user_group_id', '=', id)
      .execute()
  } else {
    await db.deleteFrom('user_group_member').where('user_id', '=', user).where('user_group_id', '=', id).execute()
  }
}

/** The id of the user with an email, in any case. Throws `Refusal`. */
export async function userId(db: Kysely<Database>, email: string): Promise<string> {
  const row = await db
    .selectFrom('user_account')
    .select('id')
    .where(sql<string>`lower(email)`, '=', email.toLowerCase())
    .executeTakeFirst()
  if (row === undefined) throw new Refusal(`there is no user ${email}`)
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

function withPermission(permission: Permission, held: boolean) {
  return held
    ? sql<Permission[]>`array(select distinct p from unnest(permissions || ${permission}::text) p order by 1)`
    : sql<Permission[]>`array_remove(permissions, ${permission}::text)`
}

function sorted(permissions: readonly Permission[]): Permission[] {
  return [...new Set(permissions)].sort()
}
