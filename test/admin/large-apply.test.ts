import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation, countOutcomes, PartlyApplied } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { startAgentctl } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { database, url, vault } = await worldDatabase(t)
const { db } = database
const options = { vault, env: {} }
const AGENTS = 400

/** Agents whose description says which round this is. */
function round(description: string, rest: object = {}) {
  const agents = Array.from({ length: AGENTS }, (_, index) => ({ name: `crowd ${index}`, description }))
  return { version: 1, agents, ...rest }
}

const stored = async (description: string) => {
  const { rows } = await sql<{ count: number }>`
    select count(*)::integer as count from persona where description = ${description}`.execute(db)
  return rows[0]?.count ?? 0
}

t.test(
  'a large document holds no row for long: who writes one of its rows meanwhile waits a part of its time',
  async t => {
    t.equal(countOutcomes(await applyOrganisation(database, round('made'), options)).created, AGENTS)
    const { id } = await db.selectFrom('persona').select('id').where('name', '=', 'crowd 0').executeTakeFirstOrThrow()
    const started = performance.now()
    const applied = applyOrganisation(database, round('changed'), options).then(() => performance.now() - started)
    let running = true
    void applied.finally(() => (running = false))
    let longestMs = 0
    // Who writes takes the row's lock. A change by SQL would be one that verification rightly finds.
    while (running) {
      const from = performance.now()
      await db
        .transaction()
        .execute(transaction => sql`select from persona where id = ${id} for update`.execute(transaction))
      longestMs = Math.max(longestMs, performance.now() - from)
      await sleep(5)
    }
    const tookMs = await applied
    t.ok(longestMs < tookMs / 4, `the longest wait was ${longestMs} ms of ${tookMs}`)
    t.equal(await stored('changed'), AGENTS)
    t.same((await verifyAudit(db)).findings, [])
  },
)

t.test('killed in the middle, what is stored is whole, and applying it again goes on', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'large-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'document.json')
  writeFileSync(path, JSON.stringify(round('killed')))
  const { child } = startAgentctl({ url, args: ['apply', path] })
  while ((await stored('killed')) === 0) await sleep(5)
  child.kill('SIGKILL')
  await once(child, 'exit')
  const left = AGENTS - (await stored('killed'))
  t.ok(left > 0 && left < AGENTS, `${left} of ${AGENTS} are left`)
  t.same((await verifyAudit(db)).findings, [])
  t.equal(countOutcomes(await applyOrganisation(database, round('killed'), options)).changed, left)
  t.equal(await stored('killed'), AGENTS)
})

t.test('Ctrl-C in the middle says how much is stored, and that applying it again goes on', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'large-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'document.json')
  writeFileSync(path, JSON.stringify(round('interrupted')))
  const { child, answer } = startAgentctl({ url, args: ['apply', path] })
  while ((await stored('interrupted')) === 0) await sleep(5)
  child.kill('SIGINT')
  const { status, stderr } = await answer
  t.equal(status, 1)
  const count = await stored('interrupted')
  t.ok(count > 0 && count < AGENTS)
  const said = `agentctl apply: interrupted; ${count} of ${AGENTS} changes are stored and stay; apply the document again to go on`
  t.match(stderr, said)
})

t.test('what the database refuses in the middle of a large one is said with how much is stored', async t => {
  await sql`alter table persona add constraint short check (name <> 'crowd 300' or description <> 'refused')`.execute(
    db,
  )
  const error = await applyOrganisation(database, round('refused'), options).catch((thrown: unknown) => thrown)
  t.ok(error instanceof PartlyApplied)
  t.match(error, { stored: await stored('refused'), total: AGENTS })
  t.ok((await stored('refused')) > 0)
  t.same((await verifyAudit(db)).findings, [])
})

t.test('a large one that would leave no administrator stores nothing', async t => {
  const { rows } = await sql<{ email: string }>`select email from user_account`.execute(db)
  const users = rows.map(({ email }) => ({ email, active: false }))
  await t.rejects(applyOrganisation(database, round('nobody', { users }), options), /leave no active administrator/)
  t.equal(await stored('nobody'), 0)
})

t.test('a list is as long as it is: 14,000 users with their groups are made', async t => {
  const users = Array.from({ length: 14_000 }, (_, index) => ({ email: `crowd-${index}@example.com` }))
  const groups = [{ name: 'Crowd', members: users.map(({ email }) => email) }]
  t.equal(countOutcomes(await applyOrganisation(database, { version: 1, users, groups }, options)).created, 14_001)
})
