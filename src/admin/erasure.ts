import { type Kysely, sql, type Transaction } from 'kysely'
import type { Database } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import { readEvents, recordAccess } from '../updates/access-events.js'
import { type Actor, type StoredRow, sha256 } from '../updates/audit.js'
import { readRows } from '../updates/audit-rows.js'
import { operatorActor } from './operator.js'
import { keepingAdministrator } from './people.js'
import { Refusal } from './refusal.js'

/** What stands in place of the clear text of somebody who was erased. */
export const ERASED = 'erased'

/** What is kept of a person in clear text. */
export interface ErasurePlan {
  email: string
  /** The ids under which they made changes. They stay, and lead to nobody any more. */
  ids: string[]
  /** Whether there is an account: it is shut, loses its email, and keeps what it owns. */
  has_account: boolean
  audit_rows: number
  events: number
}

const ROWS_AT_ONCE = 500

/** What the account of somebody who was erased is called: no address, and no two alike. */
function nameOfErased(id: string): string {
  return `${ERASED}-${id}@erased.invalid`
}

/** What erasing a person would take away. Throws `Refusal` when nothing is kept of them. */
export async function planErasure(db: Kysely<Database>, email: string): Promise<ErasurePlan> {
  const { rows: found } = await sql<{ id: string; account: boolean }>`
    select id, bool_or(account) as account from (
      select id, true as account from user_account where lower(email) = lower(${email}::text)
      union all select subject::uuid, false from access_event where kind = 'user' and lower(person) = lower(${email}::text)
      union all select actor_id, false from audit where lower(actor) = lower(${email}::text)
    ) named where id is not null group by id order by id`.execute(db)
  const ids = found.map(({ id }) => id)
  const { rows } = await sql<{ audit_rows: number; events: number }>`
    select (select count(*)::integer from audit where ${ownRows(ids)}) as audit_rows,
      (select count(*)::integer from access_event where ${aboutThem(email, ids)}) as events`.execute(db)
  const { audit_rows = 0, events = 0 } = rows[0] ?? {}
  const has_account = found.some(({ account }) => account)
  if (!has_account && audit_rows + events === 0) throw new Refusal(`nothing is kept of ${email}`)
  return { email, ids, has_account, audit_rows, events }
}

/**
 * Erases a person: the account is shut and loses its email, and clear text and salts go from audit rows and events. The
 * commitments stay, so every chain, proof and checkpoint verifies; events of the kind `erasure` say what was erased, without
 * which `audit verify` takes it for tampering. In pages, so that nobody waits; interrupted, it goes on when it is called again.
 * Throws `Refusal` when nothing is kept of them, and when nobody would administer afterwards.
 */
export async function eraseUser(
  db: Kysely<Database>,
  email: string,
  actor: Actor = operatorActor(),
  progress: (rows: number) => void = () => undefined,
): Promise<ErasurePlan> {
  const plan = await planErasure(db, email)
  await keepingAdministrator(db, trx => shutAccounts(trx, plan, actor))
  let erased = 0
  for (const erasePage of [eraseRows, eraseEvents]) {
    for (let count = ROWS_AT_ONCE; count === ROWS_AT_ONCE; erased += count) {
      progress(erased)
      count = await joined(db, trx => erasePage(trx, plan, actor))
    }
  }
  return plan
}

async function shutAccounts(trx: Transaction<Database>, { ids }: ErasurePlan, actor: Actor): Promise<void> {
  for (const id of ids) {
    const { rows } = await sql`
      update user_account set email = ${nameOfErased(id)}, active = false
      where id = ${id}::uuid and email <> ${nameOfErased(id)} returning id`.execute(trx)
    if (rows.length === 0) continue
    const { rows: tokens } = await sql<{ id: number }>`
      update token set revoked_at = clock_timestamp() where user_id = ${id}::uuid and revoked_at is null
      returning id`.execute(trx)
    await recordAccess(trx, actor, [
      { kind: 'user', subject: id, action: 'erased' },
      ...tokens.map(token => ({ kind: 'token' as const, subject: String(token.id), action: 'revoked' })),
    ])
  }
}

function ownRows(ids: readonly string[]) {
  return sql`actor_id = any(${ids}::uuid[]) and (actor <> ${ERASED} or client_address <> ${ERASED} or salt is not null)`
}

/** Events that name them, by this email or by one that they had under the same id. */
function aboutThem(email: string, ids: readonly string[]) {
  const names = ids.map(nameOfErased)
  return sql`person <> all(${names}::text[]) and lower(person) in (
    select lower(${email}::text) union select lower(person) from access_event where kind = 'user' and subject = any(${ids}::text[]))`
}

async function eraseRows(trx: Transaction<Database>, { ids }: ErasurePlan, actor: Actor): Promise<number> {
  const rows = await readRows(
    trx,
    sql`(resource_kind, resource_id, version_after) in (
      select resource_kind, resource_id, version_after from audit where ${ownRows(ids)}
      order by 1, 2, 3 limit ${ROWS_AT_ONCE}::integer for update)`,
  )
  const places = JSON.stringify(
    rows.map(({ resource_kind, resource_id, version_after }) => ({ resource_kind, resource_id, version_after })),
  )
  await sql`
    update audit a set actor = ${ERASED}, client_address = ${ERASED}, salt = null
    from json_to_recordset(${places}::json) place (resource_kind text, resource_id integer, version_after integer)
    where a.resource_kind = place.resource_kind and a.resource_id = place.resource_id
      and a.version_after = place.version_after`.execute(trx)
  const erased = rows.map(row => [`${row.resource_kind}:${row.resource_id}:${row.version_after}`, remainsOf(row)])
  await recordErasure(trx, actor, ids, erased)
  return rows.length
}

async function eraseEvents(trx: Transaction<Database>, { email, ids }: ErasurePlan, actor: Actor): Promise<number> {
  const events = await readEvents(
    trx,
    sql`(kind, subject, number) in (
      select kind, subject, number from access_event where ${aboutThem(email, ids)}
      order by kind = 'user', 1, 2, 3 limit ${ROWS_AT_ONCE}::integer for update)`,
  )
  const places = JSON.stringify(events.map(({ kind, subject, number }) => ({ kind, subject, number })))
  await sql`
    update access_event e set person = null, person_salt = null
    from json_to_recordset(${places}::json) place (kind text, subject text, number integer)
    where e.kind = place.kind and e.subject = place.subject and e.number = place.number`.execute(trx)
  const erased = events.map(event => [`${event.kind}:${event.subject}:${event.number}`, event.hash])
  await recordErasure(trx, actor, ids, erased)
  return events.length
}

async function recordErasure(
  trx: Transaction<Database>,
  actor: Actor,
  ids: readonly string[],
  erased: readonly string[][],
): Promise<void> {
  if (erased.length === 0) return
  await recordAccess(trx, actor, [
    { kind: 'erasure', subject: ids[0] ?? '', action: 'erased', detail: { ids, erased } },
  ])
}

/** By place, such as `persona:12:7`: what remains of each row and event from which somebody was erased. */
export type Erasures = ReadonlyMap<string, string>

/** What the events of erasures say. */
export async function readErasures(db: Kysely<Database>): Promise<Erasures> {
  const { rows } = await sql<{ place: string; digest: string }>`
    select erased ->> 0 as place, erased ->> 1 as digest
    from access_event cross join json_array_elements(detail -> 'erased') erased where kind = 'erasure'`.execute(db)
  return new Map(rows.map(({ place, digest }) => [place, digest]))
}

/** What an erasure says of a row: its hash, and of a row that hashes the clear text everything else with it. Hex. */
export function remainsOf(row: Omit<StoredRow, 'actor' | 'client_address'>): string {
  if (row.identity_hash !== null) return row.hash
  const { resource_kind, resource_id, version_before, version_after, at, actor_id, token_id, request_id, fields } = row
  const who = [resource_kind, resource_id, version_before, version_after, at, actor_id, token_id, request_id]
  return sha256(JSON.stringify([...who, fields, row.difference_hash, row.previous_hash, row.hash]))
}
