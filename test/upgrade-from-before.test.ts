import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import pg from 'pg'
import t, { type Test } from 'tap'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { eraseUser } from '../src/admin/erasure.js'
import { exportOrganisation } from '../src/admin/export.js'
import { keyStatus } from '../src/admin/keys.js'
import { readConfig } from '../src/config.js'
import { MIGRATIONS, migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { inVain } from './admin/trail.js'
import { appOver } from './app.js'
import { testDatabase } from './postgres.js'
import { TEST_SECRET_KEYS } from './world.js'

/**
 * A database of 1.15.1, dumped by pg_dump --inserts from PostgreSQL 15. Version 1.0.0 made it: the demo organisation with three
 * updates each of agents 1 and 2 and of tool 1. 1.15.1 upgraded it, changed agents 1 and 3 and tools 1 and 2, pruned contents,
 * deleted tool 3, erased a person and filled the tree of that time. Agent 2 is as 1.0.0 left it.
 */
const DUMP = new URL('../../test/fixtures/database-1.15.1.sql', import.meta.url)

/** The steps that 1.15.1 does not know. */
const NEW_STEPS = Object.keys(MIGRATIONS).filter(name => name >= '0012')

/** The administrator's token of that database; no other database knows it. */
const TOKEN = 'pat_aNnUfZpoSJCc5JPpGM5Wgp1uhXvf'

async function databaseOf1_15_1(t: Test) {
  const { url } = await testDatabase(t)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('drop schema public cascade; create schema public')
  await client.query(readFileSync(fileURLToPath(DUMP), 'utf8'))
  await client.end()
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  return { database, db: database.db }
}

t.test(
  'a database of 1.15.1 upgrades in place: rows, secrets, tokens, past and audit trail are what they were',
  async t => {
    const { database, db } = await databaseOf1_15_1(t)
    const trail = () =>
      db
        .selectFrom('audit')
        .select(['at', 'actor_id', 'fields', 'difference_hash'])
        .orderBy('difference_hash')
        .execute()
    const rows = sql<{ text: string }>`select string_agg(a::text, '') as text from audit a`
    t.match((await rows.execute(db)).rows[0]?.text, 'admin@example.com')
    const before = await trail()
    t.strictSame(await migrate(database), NEW_STEPS)
    t.strictSame(await trail(), before)
    t.notMatch((await rows.execute(db)).rows[0]?.text, 'admin@example.com', 'a row names its author by id only')
    const old = { rows: before.length, unchained_rows: before.length, since: null, findings: [] }
    t.match(await verifyAudit(db), old, 'what is of before is readable, and not vouched for')

    const { app } = await appOver(t, database)
    const call = async (method: 'GET' | 'PATCH' | 'PUT' | 'POST', path: string, payload?: object) => {
      const headers = { authorization: `Bearer ${TOKEN}` }
      const answer = await app.inject({ method, url: path, headers, ...(payload && { payload }) })
      t.equal(answer.statusCode, 200, `${method} ${path} ${answer.body}`)
      return answer.json()
    }
    t.match(await call('GET', '/persona/1'), { name: 'by 1.15.1', description: 'edition 3' })
    t.match(await call('GET', '/persona/3?version=3'), { description: 'edition 2', starter_messages: [{ name: 'n2' }] })
    const { custom_headers } = await call('GET', '/tool/1')
    await call('PUT', '/admin/tool/custom/1', { custom_headers, description: 'the mask keeps the secret' })
    await call('PATCH', '/persona/2?update_mask=name', { name: 'after the upgrade' })
    const ring = parseKeyRing(TEST_SECRET_KEYS)
    t.match(await keyStatus(db, ring), { findings: [] })
    t.match(await call('POST', '/admin/tool/custom/2/restore', { version: 1 }), { id: 2 })
    const entries = await call('GET', '/persona/2/history')
    t.match(entries.at(-1), { version: 1, action: 'created' })
    t.match(await exportOrganisation(db), { agents: [{ id: 1 }, { id: 2 }, { id: 3 }] })
    const now = await verifyAudit(db)
    t.match(now, { rows: before.length + 3, unchained_rows: before.length, findings: [] })
    t.ok(now.since && Date.parse(now.since) > Date.now() - 60_000, 'it vouches from the first row after the upgrade on')
    const row = sql`resource_kind = 'persona' and resource_id = 2`
    for (const tamper of [
      sql`update audit set token_id = 99 where ${row} and version_after = 5`,
      sql`delete from audit where ${row} and version_after = 2`,
    ]) {
      const { findings } = await inVain(db, async trx => {
        await tamper.execute(trx)
        return await verifyAudit(trx)
      })
      t.equal(findings.length, 1)
    }

    const { audit_rows } = await eraseUser(db, 'admin@example.com')
    t.ok(audit_rows > 3, 'rows of before, and new ones')
    t.same((await verifyAudit(db)).findings, [], 'every chain verifies without the address')
    const text = await sql<{ found: number }>`
    select count(*)::integer as found from audit a where a::text ~ 'admin@example.com'`.execute(db)
    t.same(text.rows, [{ found: 0 }])
  },
)
