import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { createUser } from '../../src/admin/people.js'
import { createToken } from '../../src/admin/tokens.js'
import { worldApp } from '../app.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'

const { url, database, call, apply, query } = await worldApp(t)
const { db } = database
const agentctl = async (line: string) => await agentctlOf({ url, args: line.split(' ') })
const make = async (email: string) => await createUser(db, { email, kind: 'person', permissions: ['admin'] })
const account = async (id: string) =>
  await db.selectFrom('user_account').select(['email', 'active']).where('id', '=', id).executeTakeFirst()

/** Counts audit rows with the person's client address, and audit rows, access events and accounts with the person's email. */
async function traces(id: string, email: string): Promise<number> {
  const found = await query`
    select a::text as text from audit a where client_address <> 'erased' and actor_id = ${id}::uuid
    union all select text from (
      select a::text as text from audit a union all select e::text from access_event e
      union all select u::text from user_account u) stored where text ilike ${`%${email}%`}`
  return found.length
}

t.test('an address that went to somebody else: only its present holder is erased', async t => {
  const role = 'desk@example.com'
  const gina = await make(role)
  await apply({ users: [{ id: gina, email: 'gina@example.com' }] })
  const present = await make(role)
  const { token } = await createToken(db, { email: role })
  const body = { description: 'by desk' }
  const edited = await call('PATCH', '/persona/1?update_mask=description', { token, body })
  t.equal(edited.statusCode, 200, edited.body)

  const plan = await agentctl(`user erase ${role} --plan`)
  t.match(plan, { status: 2, stdout: `Would close the account ${role} (${present}), revoke` })
  t.match(await eraseUser(db, role, { plan: true }), { id: present, audit_rows: 1 })
  t.match(await account(present), { email: role, active: true })
  const erased = await agentctl(`user erase ${role} --yes`)
  t.equal(erased.status, 0, erased.stderr)
  t.match(await account(gina), { email: 'gina@example.com', active: true })
  t.match(await account(present), { email: `erased-${present}@erased.invalid`, active: false })
  t.equal(await traces(present, role), 0)
  t.equal((await call('GET', '/me', { token })).statusCode, 401)

  const again = await agentctl(`user erase ${role} --yes`)
  t.match(again, { status: 1, stderr: /no account has the email desk@example.com: correct the email/ })
  await t.rejects(eraseUser(db, present), /no data about \S+ is stored/)
  t.strictSame((await verifyAudit(db)).findings, [])
})

t.test('an erased account stays shut: nothing lets it in, names it, or makes a token for it', async t => {
  const id = await make('ella@example.com')
  await eraseUser(db, id)
  const { email = '' } = (await account(id)) ?? {}
  t.match((await agentctl(`token create --for ${email}`)).stderr, /is inactive: choose another user/)
  const faults = [{ loc: ['users', 0], type: 'erased' }]
  for (const change of [{ active: true }, { email: 'ella@example.com' }]) {
    const refused = await apply({ users: [{ id, email, ...change }] }).catch((error: unknown) => error)
    t.match(refused, { faults })
  }
  t.match(await account(id), { email, active: false })
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
    t.equal(await traces(id, email), 0, `after ${stored} updates`)
  }
  t.strictSame((await verifyAudit(db)).findings, [])
})
