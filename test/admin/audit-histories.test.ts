import { type Kysely, sql, type Transaction } from 'kysely'
import t, { type Test } from 'tap'
import { changePersona } from '../../src/admin/apply/personas.js'
import { applyOrganisation } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { createToken, revokeToken } from '../../src/admin/commands/tokens.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { operatorActor } from '../../src/admin/operator.js'
import { createUser } from '../../src/admin/people.js'
import { readConfig } from '../../src/config.js'
import type { Database } from '../../src/db/tables.js'
import { contentOf } from '../../src/persona/rules.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { type WorldApp, worldApp } from '../app.js'
import { inVain, readRows } from './trail.js'

/** `TEST_CAMPAIGN=full` plays 1,000 histories. */
const HISTORIES = process.env.TEST_CAMPAIGN === 'full' ? 1_000 : 12

/** What has happened is read again and again: after so many histories the world begins anew. */
const HISTORIES_OF_A_WORLD = 50

const { history: retention } = readConfig({})

/** Numbers that look random and are the same in every run. */
function randomOf(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

type Pick = <Item>(items: readonly Item[]) => Item

/** What happens by rights. Each goes through the program. */
interface Life {
  db: Kysely<Database>
  call: WorldApp['call']
  vault: WorldApp['vault']
  people: { email: string; token: string; tokenId: number }[]
  serial: number
}

const AGENTS = [1, 2, 4]

async function live(life: Life, pick: Pick): Promise<void> {
  const { db, call } = life
  const person = life.people.length > 0 ? pick(life.people) : await newPerson(life)
  const acts: (() => Promise<unknown>)[] = [
    () => edit(person.token, pick(AGENTS)),
    () => edit(person.token, pick(AGENTS)),
    () => edit(person.token, pick(AGENTS)),
    () => share(db, pick(AGENTS), person.email),
    () => newPerson(life),
    () =>
      applied(life, { users: [{ email: person.email, permissions: pick([['admin'], ['admin', 'manage:actions']]) }] }),
    async () => {
      await revokeToken(db, person.tokenId)
      life.people = life.people.filter(other => other !== person)
    },
    () =>
      applied(life, { groups: [{ name: `Group ${life.serial++}`, [pick(['members', 'managers'])]: [person.email] }] }),
    () => pruneHistory(db, { ...retention, versionsMax: 1 + pick([1, 2, 4]) }),
  ]
  await pick(acts)()

  async function edit(secret: string, id: number) {
    const body = {
      description: `by ${life.serial++}`,
      ...pick([{}, { icon_name: `${life.serial}` }, { is_public: true }]),
    }
    await call('PATCH', `/persona/${id}?update_mask=${Object.keys(body).join(',')}`, { token: secret, body })
  }
}

async function applied(life: Life, document: object): Promise<void> {
  await applyOrganisation({ db: life.db }, { version: 1, ...document }, { vault: life.vault, env: {} })
}

async function newPerson(life: Life) {
  const { db } = life
  const email = `person-${life.serial++}@example.com`
  await createUser(db, { email, kind: 'person', permissions: ['admin'] })
  const issued = await createToken(db, { email })
  const person = { email, token: issued.token, tokenId: issued.id }
  life.people.push(person)
  return person
}

async function share(db: Kysely<Database>, id: number, email: string): Promise<void> {
  const user = await db.selectFrom('user_account').select('id').where('email', '=', email).executeTakeFirstOrThrow()
  await db.transaction().execute(async trx => {
    const decide = (state: Parameters<typeof contentOf>[0]) => {
      const others = state.users.filter(held => held.id !== user.id)
      const users = [...others, { id: user.id, level: 'editor' as const }].sort((a, b) => (a.id < b.id ? -1 : 1))
      return { ...contentOf(state), users }
    }
    await changePersona(trx, id, decide, operatorActor())
  })
}

/** Tampering by SQL: answers what it did to what, such as `persona:4`, or undefined where there is nothing to do it to. */
type Tampering = (trx: Transaction<Database>, pick: Pick) => Promise<string | undefined>

async function aRow(trx: Kysely<Database>, pick: Pick, condition = sql`true`) {
  const rows = await readRows(trx, sql`resource_kind = 'persona' and ${condition}`)
  return rows.length === 0 ? undefined : pick(rows)
}

function inRow(set: ReturnType<typeof sql>, condition = sql`true`): Tampering {
  return async (trx, pick) => {
    const row = await aRow(trx, pick, condition)
    if (row === undefined) return undefined
    await sql`update audit set ${set} where resource_kind = 'persona' and resource_id = ${row.resource_id}
      and version_after = ${row.version_after}`.execute(trx)
    return `persona:${row.resource_id}`
  }
}

function inEvent(change: (place: ReturnType<typeof sql>) => ReturnType<typeof sql>, condition = sql`true`): Tampering {
  return async (trx, pick) => {
    const { rows: events } = await sql<{ kind: string; subject: string; number: number }>`
      select kind, subject, number from access_event where ${condition} order by 1, 2, 3`.execute(trx)
    if (events.length === 0) return undefined
    const { kind, subject, number } = pick(events)
    await change(sql`kind = ${kind} and subject = ${subject} and number = ${number}::integer`).execute(trx)
    return `${kind}:${subject}`
  }
}

function inTable(
  table: 'persona' | 'user_account' | 'token' | 'user_group',
  kind: string,
  set: ReturnType<typeof sql>,
): Tampering {
  return async (trx, pick) => {
    const { rows } = await sql<{ id: number | string }>`
      select t.id from ${sql.table(table)} t where exists (select from access_event where kind = ${kind} and subject = t.id::text)
        or ${kind} = 'persona' order by t.id`.execute(trx)
    if (rows.length === 0) return undefined
    const { id } = pick(rows)
    await sql`update ${sql.table(table)} set ${set} where id::text = ${String(id)}`.execute(trx)
    return `${kind}:${id}`
  }
}

const TAMPERINGS: Record<string, Tampering> = {
  'another actor': inRow(sql`actor = 'mallory@example.com'`),
  'another address': inRow(sql`client_address = '203.0.113.9'`),
  'another time': inRow(sql`at = at - interval '1 second'`),
  'another request': inRow(sql`request_id = 'other'`),
  'another token': inRow(sql`token_id = coalesce(token_id, 0) + 1`),
  'another command': inRow(sql`command = 'agentctl apply'`),
  'other fields': inRow(sql`fields = '{name}'`),
  'another difference': inRow(sql`difference = '{"name":{"from":"a","to":"b"}}'`, sql`difference is not null`),
  'no difference': inRow(sql`difference = null, definition_before = null`, sql`difference is not null`),
  'other difference bytes': inRow(sql`difference_bytes = difference_bytes + 1`),
  'another content hash': inRow(sql`content_hash = sha256('x')`),
  'no salt': inRow(sql`salt = null`, sql`salt is not null`),
  'erased by hand': inRow(sql`actor = 'erased', client_address = 'erased', salt = null`, sql`actor <> 'erased'`),
  'an erased row edited': inRow(sql`request_id = 'other'`, sql`actor = 'erased'`),
  'a name for an erased row': inRow(sql`actor = 'bob@example.com'`, sql`actor = 'erased'`),
  'a row removed': async (trx, pick) => {
    const row = await aRow(trx, pick)
    if (row === undefined) return undefined
    await sql`delete from audit where resource_kind = 'persona' and resource_id = ${row.resource_id}
      and version_after = ${row.version_after}`.execute(trx)
    return `persona:${row.resource_id}`
  },
  'young rows removed with a forged anchor': async (trx, pick) => {
    const row = await aRow(trx, pick)
    if (row === undefined) return undefined
    const { resource_id: id, version_after: version, hash } = row
    await sql`delete from audit where resource_kind = 'persona' and resource_id = ${id} and version_after <= ${version}`.execute(
      trx,
    )
    await sql`update persona set audit_anchor = decode(${hash}, 'hex'), audit_anchor_version = ${version} where id = ${id}`.execute(
      trx,
    )
    return `persona:${id}`
  },
  'version and count lowered': async (trx, pick) => {
    const row = await aRow(trx, pick)
    if (row === undefined) return undefined
    await sql`update persona set version = version - 1, audit_count = audit_count - 1 where id = ${row.resource_id}`.execute(
      trx,
    )
    return `persona:${row.resource_id}`
  },
  'version and count raised': inTable('persona', 'persona', sql`version = version + 1, audit_count = audit_count + 1`),
  'another head': inTable('persona', 'persona', sql`audit_head = sha256('x')`),
  'other content': inTable('persona', 'persona', sql`description = description || '.'`),
  'another owner': inTable(
    'persona',
    'persona',
    sql`owner_id = (select id from user_account where id is distinct from owner_id limit 1)`,
  ),
  'seen or not': inTable('persona', 'persona', sql`is_visible = not is_visible`),
  'an editor share': async (trx, pick) => {
    const id = pick(AGENTS)
    await sql`insert into persona_user (persona_id, user_id, level) select ${id}, u.id, 'editor' from user_account u
      where not exists (select from persona_user where persona_id = ${id} and user_id = u.id) limit 1`.execute(trx)
    return `persona:${id}`
  },
  'an administrator': inTable('user_account', 'user', sql`permissions = permissions || '{basic}'::text[]`),
  'somebody let in or shut out': inTable('user_account', 'user', sql`active = not active`),
  'another email': inTable('user_account', 'user', sql`email = 'x' || email`),
  'a group that may more': inTable('user_group', 'group', sql`permissions = permissions || '{admin}'::text[]`),
  'a token that lives longer': inTable('token', 'token', sql`expires_at = expires_at + interval '1 day'`),
  'a token that is another': inTable('token', 'token', sql`hash = sha256(hash)`),
  'an event edited': inEvent(place => sql`update access_event set action = 'other' where ${place}`),
  'the operator of an event': inEvent(place => sql`update access_event set client_address = 'other' where ${place}`),
  'the person of an event': inEvent(place => sql`update access_event set person = 'x@example.com' where ${place}`),
  'an event erased by hand': inEvent(
    place => sql`update access_event set person = null, person_salt = null where ${place}`,
    sql`person is not null`,
  ),
  'an event removed': inEvent(place => sql`delete from access_event where ${place}`),
  'a pruning that says more': inEvent(
    place =>
      sql`update access_event set detail = '{"anchor_version":0,"anchor_hash":"00","content_hash":null,"emptied_to":99}' where ${place}`,
    sql`kind = 'prune'`,
  ),
}

const NAMES = Object.keys(TAMPERINGS)

t.test(
  `${HISTORIES} random histories: every tampering is found and named, no erasure or pruning is taken for one`,
  async t => {
    const tried = new Map<string, number>()
    for (let first = 1; first <= HISTORIES; first += HISTORIES_OF_A_WORLD) {
      const last = Math.min(HISTORIES, first + HISTORIES_OF_A_WORLD - 1)
      await t.test(`histories ${first} to ${last}`, async t => {
        const { database, call, vault } = await worldApp(t)
        const life: Life = { db: database.db, call, vault, people: [], serial: 0 }
        for (let history = first; history <= last; history++) await play(t, life, history, tried)
        t.pass('played')
      })
    }
    t.comment(`${[...tried.values()].reduce((sum, count) => sum + count, 0)} tamperings of ${tried.size} kinds`)
    t.ok(tried.size >= Math.min(25, HISTORIES), `${tried.size} kinds`)
  },
)

async function play(t: Test, life: Life, history: number, tried: Map<string, number>): Promise<void> {
  const { db } = life
  const random = randomOf(history)
  const pick: Pick = items => items[random(items.length)] as (typeof items)[number] // an index of the list
  for (let step = 0; step < 6; step++) await live(life, pick)
  const person = pick([undefined, undefined, life.people[0]])
  if (person) {
    await eraseUser(db, person.email)
    life.people.shift()
  }
  if (history % 20 === 0) await pruneHistory(db, { ...retention, auditRetentionDays: 0 })
  const { findings } = await verifyAudit(db)
  if (findings.length > 0) t.same(findings, [], `history ${history} by rights`)
  for (let tries = 0; tries < 3; tries++) {
    const name = NAMES[(history * 3 + tries) % NAMES.length] ?? ''
    const place = await inVain(db, async trx => {
      const target = await TAMPERINGS[name]?.(trx, pick)
      if (target === undefined) return undefined
      const found = (await verifyAudit(trx)).findings.map(({ kind, subject }) => `${kind}:${subject}`)
      if (!found.includes(target)) t.fail(`history ${history}: ${name} of ${target}`, { found })
      return target
    })
    if (place !== undefined) tried.set(name, (tried.get(name) ?? 0) + 1)
  }
}
