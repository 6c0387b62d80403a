import { once } from 'node:events'
import t from 'tap'
import { countOutcomes } from '../../src/admin/apply.js'
import { exportOrganisation } from '../../src/admin/export.js'
import { startAgentctl } from '../cli/agentctl.js'
import { eventually } from '../eventually.js'
import { worldDatabase } from '../world.js'

const { database, url, apply, query } = await worldDatabase(t)
const AGENTS = 120

function round(description: string) {
  const agent = { owner: 'alice@example.com', description }
  return { version: 1, agents: Array.from({ length: AGENTS }, (_, index) => ({ name: `crowd ${index}`, ...agent })) }
}

const stored = async (description: string) =>
  (await query`select from persona where description = ${description}`).length

t.test('a large document is stored whole or not at all: refused by the database, or killed in the middle', async t => {
  t.match(countOutcomes(await apply(round('made'))), { created: AGENTS })
  await query`alter table persona add constraint short check (name <> 'crowd 100' or description <> 'refused')`
  await t.rejects(apply(round('refused')), /short/)
  t.equal(await stored('refused'), 0)
  const { child } = startAgentctl({ url, args: ['apply', '-'], input: JSON.stringify(round('killed')) })
  const writing = () => query`select from pg_locks where relation = 'audit'::regclass and mode = 'RowExclusiveLock'`
  await eventually(async () => (await writing()).length > 0)
  child.kill('SIGKILL')
  await once(child, 'exit')
  t.equal(await stored('made'), AGENTS)
  t.match(countOutcomes(await apply(round('whole'))), { changed: AGENTS })
  t.equal(await stored('whole'), AGENTS)
})

t.test('4,000 users with their groups are made; exported and back is an empty plan', async t => {
  const users = Array.from({ length: 4_000 }, (_, index) => ({ email: `crowd-${index}@example.com` }))
  const groups = [{ name: 'Crowd', members: users.map(({ email }) => email) }]
  t.match(countOutcomes(await apply({ users, groups })), { created: 4_001 })
  const again = await apply(await exportOrganisation(database.db), { plan: true })
  t.match(countOutcomes(again), { created: 0, changed: 0, removed: 0 })
})
