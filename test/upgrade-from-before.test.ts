import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type Kysely, sql } from 'kysely'
import pg from 'pg'
import t, { type Test } from 'tap'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { eraseUser } from '../src/admin/erasure.js'
import { exportOrganisation } from '../src/admin/export.js'
import { listHistory, restoreTool } from '../src/admin/history.js'
import { keyStatus } from '../src/admin/keys.js'
import { readConfig } from '../src/config.js'
import { MIGRATIONS, migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { contentOf } from '../src/persona/rules.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { inVain } from './admin/trail.js'
import { appOver } from './app.js'
import { changeAgent } from './deletion.js'
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
    const trail = () => db.selectFrom('audit').select(['hash', 'actor', 'at']).orderBy('hash').execute()
    const before = await trail()
    t.strictSame(await migrate(database), NEW_STEPS)
    t.strictSame(await trail(), before)
    t.same((await verifyAudit(db)).findings, [])

    const { app } = await appOver(t, database)
    const call = async (method: 'GET' | 'PATCH' | 'PUT', path: string, payload?: object) => {
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
    t.match(await restoreTool(database, ring, 2, 1), { version: 3 })
    t.ok((await listHistory(db, 'persona', 2)).versions.length >= 4, 'the past of the agent goes on')
    t.match(await exportOrganisation(db), { agents: [{ id: 1 }, { id: 2 }, { id: 3 }] })
    t.same((await verifyAudit(db)).findings, [])
    t.equal((await trail()).length, before.length + 3)

    const { audit_rows } = await eraseUser(db, 'admin@example.com')
    t.ok(audit_rows > 12, 'rows that hash the clear text, and new ones')
    t.same((await verifyAudit(db)).findings, [], 'every chain verifies without the person')
    const text = await sql<{ found: number }>`
    select count(*)::integer as found from audit a where a::text ~ 'admin@example.com'`.execute(db)
    t.same(text.rows, [{ found: 0 }])
  },
)

t.test('writers that go on meanwhile lose nothing, and their chains verify', async t => {
  const { database, db } = await databaseOf1_15_1(t)
  // The writers are of this program, so what later steps add is there first; 0012 is the step that they meet.
  for (const name of NEW_STEPS.slice(1)) await MIGRATIONS[name]?.up(db as unknown as Kysely<unknown>)
  const steps = Object.fromEntries(Object.entries(MIGRATIONS).filter(([name]) => name < '0013'))
  let isDone = false
  let written = 0
  const writing = (async () => {
    for (; !isDone || written < 20; written++) {
      await db
        .transaction()
        .execute(trx => changeAgent(trx, 3, state => ({ ...contentOf(state), name: `n${written}` })))
    }
  })()
  await Promise.all([migrate(database, { steps }), migrate(database, { steps })])
  isDone = true
  await writing
  t.match(await db.selectFrom('persona').select('version').where('id', '=', 3).execute(), [{ version: 4 + written }])
  const noted = await db.selectFrom('audit_upgrade_head').selectAll().where('kind', '=', 'persona').execute()
  t.equal(noted.length, 3)
  t.same((await verifyAudit(db)).findings, [])
})

t.test('what SQL changes after the upgrade is found, in rows of before and after it', async t => {
  const { database, db } = await databaseOf1_15_1(t)
  await migrate(database)
  const found = (...statements: ReturnType<typeof sql>[]) =>
    inVain(db, async trx => {
      for (const statement of statements) await statement.execute(trx)
      return (await verifyAudit(trx)).findings.map(one => `${one.problem} ${one.kind}:${one.subject} ${one.number}`)
    })
  const row = (id: number, version: number) =>
    sql`resource_kind = 'persona' and resource_id = ${id} and version_after = ${version}`
  t.same(await found(sql`update audit set actor = 'x' where ${row(3, 4)}`), ['edited persona:3 4'])
  t.same(await found(sql`delete from audit where ${row(1, 2)}`), ['deleted persona:1 2'])
  t.same(await found(sql`update audit set hash = sha256('x') where ${row(1, 2)}`), ['reordered persona:1 3'])
  t.same(await found(sql`update persona set description = 'by hand' where id = 3`), ['content_mismatch persona:3 4'])
  t.same(await found(sql`update persona set description = 'by hand' where id = 2`), ['content_mismatch persona:2 4'])
  const cut = sql`update persona p set version = 3, audit_count = 3, audit_head = a.hash from audit a
    where p.id = 2 and a.resource_id = 2 and a.resource_kind = 'persona' and a.version_after = 3`
  t.ok((await found(sql`delete from audit where ${row(2, 4)}`, cut)).includes('head_mismatch persona:2 4'))
  t.same(await found(sql`insert into token (hash, user_id) select sha256('planted'), id from user_account limit 1`), [
    'unrecorded token:2 0',
  ])
  await db.transaction().execute(trx => changeAgent(trx, 2, state => ({ ...contentOf(state), name: 'new' })))
  const old = sql`update audit set identity_hash = null, actor = 'x' where ${row(2, 5)}`
  t.same(await found(old), ['edited persona:2 5'], 'a new row in the form of before')
})
