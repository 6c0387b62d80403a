import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { canonicalUuid } from '../validation/vocabulary.js'
import { lockApplies } from './apply.js'
import { earlierWritersEnded } from './earlier-writers.js'
import { operatorActor } from './operator.js'
import { isErased, keepingAdministrator, nameOfErased } from './people.js'
import { Refusal } from './refusal.js'

/** Replaces the names and addresses of an erased person. */
export const ERASED = 'erased'

const ROWS_AT_ONCE = 500

/**
 * Counts what erasing a person would remove. `named` is their current email or their id. If the account is gone, `email` is the id. Throws
 * `Refusal` if nothing is stored about them.
 */
export async function planErasure(db: Kysely<Tables>, named: string) {
  const uuid = canonicalUuid(named) ?? null
  const { rows } = await sql<{ id: string; email: string }>`
    select id, email from user_account where lower(email) = lower(${named}::text) or id = ${uuid}::uuid`.execute(db)
  const account = rows.find(row => !isErased(row))
  const id = account?.id ?? uuid
  if (id === null)
    throw new Refusal(
      `nobody has ${named} now: name them by their id (agentctl user list; erased accounts have theirs in the email)`,
    )
  const [kept = { audit_rows: 0, events: 0 }] = (
    await sql<{ audit_rows: number; events: number }>`
      select (select count(*)::integer from audit where ${ownRows(id)}) as audit_rows,
        (select count(*)::integer from access_event where ${aboutThem(id)}) as events`.execute(db)
  ).rows
  if (account === undefined && kept.audit_rows + kept.events === 0) throw new Refusal(`nothing is kept of ${named}`)
  return { email: account?.email ?? id, id, has_account: account !== undefined, ...kept }
}

/**
 * Erases a person: deactivates the account, removes its email, and removes names, addresses and salts from audit rows and events, page by
 * page. It may be repeated. Every chain still verifies, because the commitments stay. Throws `Refusal`, also if no administrator would
 * remain.
 */
export async function eraseUser(db: Kysely<Tables>, named: string, actor: Actor = operatorActor()) {
  const plan = await planErasure(db, named)
  await joined(db, async trx => {
    // A document that is being applied could restore the email.
    await lockApplies(trx)
    await keepingAdministrator(trx, () => shutAccount(trx, plan.id, actor))
  })
  await earlierWritersEnded(db)
  for (const page of [eraseRows, eraseEvents]) {
    while ((await joined(db, trx => erasePage(trx, page, plan.id, actor))) === ROWS_AT_ONCE);
  }
  return plan
}

async function shutAccount(trx: Transaction<Tables>, id: string, actor: Actor): Promise<void> {
  const { rows } = await sql`
    update user_account set email = ${nameOfErased(id)}, active = false
    where id = ${id}::uuid and email <> ${nameOfErased(id)} returning id`.execute(trx)
  if (rows.length === 0) return
  const { rows: tokens } = await sql<{ id: number }>`
    update token set revoked_at = clock_timestamp() where user_id = ${id}::uuid and revoked_at is null
    returning id`.execute(trx)
  await recordAccess(trx, actor, [
    { kind: 'user', subject: id, action: 'erased' },
    ...tokens.map(token => ({ kind: 'token' as const, subject: String(token.id), action: 'revoked' })),
  ])
}

function ownRows(id: string) {
  return sql`actor_id = ${id}::uuid and (actor <> ${ERASED} or client_address <> ${ERASED} or salt is not null)`
}

/**
 * SQL: the events that concern a person, by any of their emails. If others had the same email at other times, an event belongs to the
 * person who had it at that time, which the nearest user event shows.
 */
function aboutThem(id: string) {
  return sql`(kind, subject, number) in (
    with theirs as materialized (
      select distinct lower(person) as email from access_event
      where kind = 'user' and subject = ${id} and person <> ${nameOfErased(id)}),
    held as materialized (
      select subject, lower(person) as email, at from access_event
      where kind = 'user' and lower(person) in (select email from theirs))
    select e.kind, e.subject, e.number from access_event e
    where lower(e.person) in (select email from theirs) and ${id} = case when e.kind = 'user' then e.subject else (
      select h.subject from held h where h.email = lower(e.person)
      order by h.at > e.at, abs(extract(epoch from h.at - e.at)) limit 1) end)`
}

/** SQL that erases at most 500 rows or events. Returns their places, such as `persona:12:7`, and hashes. */
type ErasePage = (id: string) => RawBuilder<{ place: string; hash: string }>

const eraseRows: ErasePage = id => sql`
  with own as (
    select resource_kind, resource_id, version_after from audit where ${ownRows(id)}
    order by 1, 2, 3 limit ${ROWS_AT_ONCE}::integer for update)
  update audit a set actor = ${ERASED}, client_address = ${ERASED}, salt = null from own
  where a.resource_kind = own.resource_kind and a.resource_id = own.resource_id and a.version_after = own.version_after
  returning a.resource_kind || ':' || a.resource_id || ':' || a.version_after as place, encode(a.hash, 'hex') as hash`

const eraseEvents: ErasePage = id => sql`
  with own as (
    select kind, subject, number from access_event where ${aboutThem(id)}
    order by kind = 'user', 1, 2, 3 limit ${ROWS_AT_ONCE}::integer for update)
  update access_event e set person = null, person_salt = null from own
  where e.kind = own.kind and e.subject = own.subject and e.number = own.number
  returning e.kind || ':' || e.subject || ':' || e.number as place, encode(e.hash, 'hex') as hash`

async function erasePage(trx: Transaction<Tables>, page: ErasePage, id: string, actor: Actor): Promise<number> {
  const { rows } = await page(id).execute(trx)
  const erased = rows.map(({ place, hash }) => [place, hash])
  if (rows.length > 0) {
    await recordAccess(trx, actor, [{ kind: 'erasure', subject: id, action: 'erased', detail: { ids: [id], erased } }])
  }
  return rows.length
}
