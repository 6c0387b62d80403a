import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { endProposals } from '../updates/open-proposals.js'
import type { Actor } from '../updates/resource.js'
import { canonicalUuid } from '../validation/vocabulary.js'
import { recordAccess } from './access-events.js'
import { lockApplies } from './apply.js'
import { operatorActor } from './operator.js'
import { isErased, keepingAdministrator, nameOfErased } from './people.js'
import { Refusal } from './refusal.js'

/** Finds a person by email or id, and counts the audit rows with the person's client address. Throws `Refusal` if nothing can be erased. */
async function findPerson(db: Kysely<Tables>, named: string) {
  const uuid = canonicalUuid(named) ?? null
  const { rows } = await sql<{ id: string; email: string }>`
    select id, email from user_account where lower(email) = lower(${named}::text) or id = ${uuid}::uuid`.execute(db)
  const account = rows.find(row => !isErased(row))
  const id = account?.id ?? uuid
  if (id === null)
    throw new Refusal(
      `no account has the email ${named}: correct the email. If the account was already erased, give its id: agentctl user list shows the email erased-ID@erased.invalid`,
    )
  const counted = await sql<{ audit_rows: number }>`
    select count(*)::integer as audit_rows from audit where ${hasAddress(id)}`.execute(db)
  const { audit_rows = 0 } = counted.rows[0] ?? {}
  if (account === undefined && audit_rows === 0) throw new Refusal(`no data about ${named} is stored`)
  return { email: account?.email ?? id, id, has_account: account !== undefined, audit_rows }
}

/**
 * Erases a person: deactivates the account, revokes its tokens, withdraws open proposals, and removes the email, the client addresses, and the texts
 * that the person wrote in proposals. The audit chains stay valid, because their hashes do not cover the removed values. If the account was already
 * erased, returns its id as `email`. With `plan`, rolls back. Throws `Refusal` if nothing can be erased or no administrator would remain.
 */
export async function eraseUser(
  db: Kysely<Tables>,
  named: string,
  { plan = false, actor = operatorActor() }: { plan?: boolean; actor?: Actor } = {},
) {
  const person = await findPerson(db, named)
  await inTransaction({ db }, { rollback: plan }, async trx => {
    // Without this lock, a document that is applied at the same time could restore the email.
    await lockApplies(trx)
    // This lock waits for running changes, and blocks new changes until the transaction ends.
    await sql`lock table audit in share row exclusive mode`.execute(trx)
    await keepingAdministrator(trx, () => shutAccount(trx, person.id, actor))
    await sql`update audit set client_address = 'erased' where ${hasAddress(person.id)}`.execute(trx)
    await sql`update access_event set client_address = 'erased' where ${hasAddress(person.id)}`.execute(trx)
    await endProposals(trx, { state: 'withdrawn', by: null }, sql<boolean>`author_id = ${person.id}::uuid`)
    await sql`update proposal set message = '' where author_id = ${person.id}::uuid`.execute(trx)
    await sql`update proposal set reason = '' where closed_by = ${person.id}::uuid and reason is not null`.execute(trx)
  })
  return person
}

function hasAddress(id: string) {
  return sql`actor_id = ${id}::uuid and client_address <> 'erased'`
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
