import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { exportOrganisation } from '../../src/admin/export.js'
import { startAgentctl } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { database, url, ring } = await worldDatabase(t)
const { db } = database
const options = { ring, env: {} }
const AGENTS = 120

/** Agents whose description says which round this is. */
function round(description: string) {
  return {
    version: 1,
    agents: Array.from({ length: AGENTS }, (_, index) => ({
      name: `crowd ${index}`,
      owner: 'alice@example.com',
      description,
    })),
  }
}

const stored = async (description: string) =>
  (await db.selectFrom('persona').select('id').where('description', '=', description).execute()).length

t.test(
  'a large document is stored as a whole or not at all: refused by the database, or killed in the middle',
  async t => {
    t.equal(countOutcomes(await applyOrganisation(database, round('made'), options)).created, AGENTS)
    await sql`alter table persona add constraint short check (name <> 'crowd 100' or description <> 'refused')`.execute(
      db,
    )
    await t.rejects(applyOrganisation(database, round('refused'), options), /short/)
    t.equal(await stored('refused'), 0)
    const folder = mkdtempSync(join(tmpdir(), 'large-'))
    t.teardown(() => rmSync(folder, { recursive: true }))
    const path = join(folder, 'document.json')
    writeFileSync(path, JSON.stringify(round('killed')))
    const { child } = startAgentctl({ url, args: ['apply', path] })
    const writing = async () =>
      (await sql`select from pg_locks where relation = 'audit'::regclass and mode = 'RowExclusiveLock'`.execute(db))
        .rows
    while ((await writing()).length === 0) await sleep(5)
    child.kill('SIGKILL')
    await once(child, 'exit')
    t.equal(await stored('made'), AGENTS)
    t.equal(countOutcomes(await applyOrganisation(database, round('whole'), options)).changed, AGENTS)
    t.equal(await stored('whole'), AGENTS)
  },
)

t.test(
  'a list is as long as it is: 4,000 users with their groups are made; exported and back is an empty plan',
  async t => {
    const users = Array.from({ length: 4_000 }, (_, index) => ({ email: `crowd-${index}@example.com` }))
    const groups = [{ name: 'Crowd', members: users.map(({ email }) => email) }]
    t.equal(countOutcomes(await applyOrganisation(database, { version: 1, users, groups }, options)).created, 4_001)
    const exported = await exportOrganisation(db)
    const { created, changed, removed } = countOutcomes(
      await applyOrganisation(database, exported, { ...options, plan: true }),
    )
    t.same({ created, changed, removed }, { created: 0, changed: 0, removed: 0 })
  },
)
