import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { earlierWritersEnded } from '../../src/admin/earlier-writers.js'
import { eraseUser, planErasure } from '../../src/admin/erasure.js'
import { operatorActor } from '../../src/admin/operator.js'
import { createUser, deactivateUser } from '../../src/admin/people.js'
import type { InvalidDocument } from '../../src/admin/refusal.js'
import { createToken, revokeToken } from '../../src/admin/tokens.js'
import type { Tables } from '../../src/db/tables.js'
import { recordAccess } from '../../src/updates/access-events.js'
import { worldApp } from '../app.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'

const world = await worldApp(t)
const { database, call } = world
const { db } = database
const agentctl = async (...args: string[]) => await agentctlOf({ url: world.url, args })
const apply = async (document: object) =>
  await applyOrganisation(database, { version: 1, ...document }, { ring: world.ring, env: {} })
/** Makes an administrator, and members as versions before 2.0 recorded it. */
async function make(email: string, ...groups: string[]): Promise<string> {
  const id = await createUser(db, { email, kind: 'person', permissions: ['admin'] })
  for (const name of groups) {
    await db.transaction().execute(async trx => {
      const group = await trx.selectFrom('user_group').select('id').where('name', '=', name).executeTakeFirstOrThrow()
      const member = { user_id: id, user_group_id: group.id, is_manager: false }
      await trx.insertInto('user_group_member').values(member).execute()
      const event = { kind: 'group', subject: String(group.id), action: 'member added', person: email } as const
      await recordAccess(trx, operatorActor('test'), [event])
    })
  }
  return id
}
const rename = async (id: string, email: string) => await apply({ users: [{ id, email }] })
const account = async (id: string) =>
  await db.selectFrom('user_account').select(['email', 'active']).where('id', '=', id).executeTakeFirst()
/** Whom the events name, in the order in which they were made. */
const named = async (...emails: string[]) =>
  (
    await sql<{ text: string }>`
      select kind || ' ' || action || ' ' || person as text from access_event
      where person = any(${emails}) order by at, kind, number`.execute(db)
  ).rows.map(({ text }) => text)

t.test(
  'an address that went to somebody else: only its present holder is erased, and nobody else loses a name',
  async t => {
    const role = 'desk@example.com'
    await apply({ groups: [{ name: 'First desk' }, { name: 'Second desk' }] })
    const gina = await make(role, 'First desk')
    await createToken(db, { email: role })
    await rename(gina, 'gina@example.com')
    const present = await make(role, 'Second desk')
    const { token } = await createToken(db, { email: role })
    const edited = await call('PATCH', '/persona/1?update_mask=description', {
      token,
      body: { description: 'by desk' },
    })
    t.equal(edited.statusCode, 200, edited.body)

    const plan = await agentctl('user', 'erase', role, '--plan')
    t.match(plan.stdout, `the account ${role} (${present}) would be shut`)
    t.match(await planErasure(db, role), { id: present, audit_rows: 1, events: 3 })
    const erased = await agentctl('user', 'erase', role, '--yes')
    t.equal(erased.status, 0, erased.stderr)
    t.match(await account(gina), { email: 'gina@example.com', active: true })
    t.match(await account(present), { email: `erased-${present}@erased.invalid`, active: false })
    t.strictSame(await named(role, 'gina@example.com'), [
      `user created ${role}`,
      `group member added ${role}`,
      `token created ${role}`,
      'user changed gina@example.com',
    ])

    t.match((await agentctl('user', 'erase', role, '--plan')).stderr, /nobody has desk@example.com now: name them by/)
    t.equal((await agentctl('user', 'erase', role, '--yes')).status, 1)
    t.match(await account(gina), { email: 'gina@example.com', active: true })
    await eraseUser(db, gina)
    t.strictSame(await named(role, 'gina@example.com'), [])
    t.strictSame((await verifyAudit(db)).findings, [])
  },
)

t.test('erasing the former holder of an address leaves its present holder in the trail', async t => {
  const role = 'press@example.com'
  await apply({ groups: [{ name: 'Press' }] })
  const first = await make(role, 'Press')
  await rename(first, 'paul@example.com')
  await make(role, 'Press')
  await eraseUser(db, 'paul@example.com')
  t.strictSame(await named(role, 'paul@example.com'), [`user created ${role}`, `group member added ${role}`])
  t.strictSame((await verifyAudit(db)).findings, [])
})

/** Removes an account as versions before 2.0 did. */
async function remove(id: string, email: string): Promise<void> {
  await db.transaction().execute(async trx => {
    await trx.deleteFrom('user_account').where('id', '=', id).execute()
    const event = { kind: 'user', subject: id, action: 'deleted', person: email } as const
    await recordAccess(trx, operatorActor('test'), [event])
  })
}

t.test('a deleted user is erased by the id', async t => {
  const email = 'gone@example.com'
  const first = await make(email)
  await remove(first, email)
  const second = await make(email)
  await remove(second, email)
  await t.rejects(eraseUser(db, email), /nobody has gone@example.com now/)
  await eraseUser(db, first)
  t.strictSame(await named(email), [`user created ${email}`, `user deleted ${email}`])
  t.match(await eraseUser(db, second), { id: second, has_account: false })
  t.strictSame(await named(email), [])
  await t.rejects(eraseUser(db, second), /nothing is kept of/)
  t.strictSame((await verifyAudit(db)).findings, [])
})

t.test('an erased account stays shut: nothing lets it in, names it, or makes a token for it', async t => {
  const id = await make('ella@example.com')
  await eraseUser(db, id)
  const { email = '' } = (await account(id)) ?? {}
  t.match((await agentctl('token', 'create', '--for', email)).stderr, /is inactive/)
  for (const change of [{ active: true }, { email: 'ella@example.com' }]) {
    const document = { version: 1, users: [{ id, email, ...change }] }
    const applied = applyOrganisation(database, document, { ring: world.ring, env: {} })
    const { faults } = await applied.then(
      () => ({ faults: [] }),
      (error: InvalidDocument) => error,
    )
    t.match(faults, [{ loc: ['users', 0], type: 'erased' }])
  }
  t.match(await account(id), { email, active: false })
})

/** An update that found its user active, and waits behind a lock of somebody else: `release` lets it go on. */
async function updateUnderWay(token: string, description: string) {
  const blocker = await db.startTransaction().execute()
  await sql`select from label where id = 2 for update`.execute(blocker)
  const body = { label_ids: [1, 2], description }
  await db.deleteFrom('persona_label').where('persona_id', '=', 3).execute()
  const answer = call('PATCH', '/persona/3?update_mask=label_ids,description', { token, body })
  for (;;) {
    const { rows } = await sql`
      select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(db)
    if (rows.length > 0) break
    await sleep(5)
  }
  return { answer, release: async () => void (await blocker.rollback().execute()) }
}

/** Whether something is still waited for after a while in which it would have been done. */
async function isPending(work: Promise<unknown>): Promise<boolean> {
  return await Promise.race([work.then(() => false), sleep(500, true)])
}

t.test('what takes access away answers when nothing can be stored by it any more', async t => {
  await sql`insert into label (id, name) values (1, 'one'), (2, 'two') on conflict do nothing`.execute(db)
  await sql`update persona set owner_id = null where id = 3`.execute(db)
  const ways: Record<string, (email: string, token: number) => Promise<unknown>> = {
    erased: email => eraseUser(db, email),
    deactivated: email => deactivateUser(db, email),
    revoked: (_, token) => revokeToken(db, token),
    'deactivated by a document': email => {
      const document = { version: 1, users: [{ email, active: false }] }
      return applyOrganisation(database, document, { ring: world.ring, env: {} })
    },
  }
  for (const [way, take] of Object.entries(ways)) {
    const email = `late-${way.replaceAll(' ', '-')}@example.com`
    await make(email)
    const { id, token } = await createToken(db, { email })
    const { answer, release } = await updateUnderWay(token, way)
    const taken = take(email, id)
    t.equal(await isPending(taken), true, `${way}: waits for the update that began before`)
    await release()
    t.equal((await answer).statusCode, 200)
    await taken
    const { rows } = await sql<{ actor: string }>`
      select actor from audit where resource_kind = 'persona' and resource_id = 3 order by version_after desc limit 1`.execute(
      db,
    )
    t.strictSame(rows, [{ actor: way === 'erased' ? 'erased' : email }], `${way}: nothing comes after it`)
  }
})

t.test('a transaction that never ends is named, and the change stays', async t => {
  const idle = await db.startTransaction().execute()
  await sql`update access_chain set number = number where kind = 'user' and subject = ''`.execute(idle)
  const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(idle)
  await t.rejects(earlierWritersEnded(db, 100), new RegExp(`the change is stored.*process ${rows[0]?.pid}`))
  await idle.rollback().execute()
  await earlierWritersEnded(db, 100)
})

t.test('a person who goes on writing while they are erased leaves nothing', async t => {
  const trials = process.env.TEST_CAMPAIGN === 'full' ? 30 : 4
  for (let trial = 0; trial < trials; trial++) {
    const email = `racer-${trial}@example.com`
    const id = await make(email)
    const { token } = await createToken(db, { email })
    let stored = 0
    const loops = Array.from({ length: 8 }, async (_, loop) => {
      for (let round = 0; ; round++) {
        const body = { description: `${trial}.${loop}.${round}` }
        const url = `/persona/${1 + (loop % 3)}?update_mask=description`
        const { statusCode } = await call('PATCH', url, { token, body })
        if (statusCode === 401) return
        if (statusCode === 200) stored++
      }
    })
    while (stored < 20) await sleep(2)
    await eraseUser(db, email)
    await Promise.all(loops)
    t.strictSame(await traces(db, id, email), { rows: 0, events: 0 }, `after ${stored} updates`)
  }
  t.strictSame((await verifyAudit(db)).findings, [])
})

async function traces(db: Kysely<Tables>, id: string, email: string) {
  const { rows } = await sql<{ rows: number; events: number }>`
    select (select count(*)::integer from audit where actor = ${email} or (actor_id = ${id}::uuid and salt is not null)) as rows,
      (select count(*)::integer from access_event where person = ${email}) as events`.execute(db)
  return rows[0]
}
