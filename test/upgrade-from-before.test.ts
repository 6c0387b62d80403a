import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { sql, type Transaction } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { readContents } from '../src/admin/audit-verification/content.js'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { eraseUser } from '../src/admin/erasure.js'
import { readHistory } from '../src/admin/history.js'
import { verifyKeys } from '../src/admin/keys.js'
import { createUser } from '../src/admin/people.js'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import type { Database } from '../src/db/tables.js'
import { makeLogger } from '../src/http/logging.js'
import { Lifecycle } from '../src/lifecycle.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { openVault } from '../src/secrets/vault.js'
import { sha256 } from '../src/updates/audit.js'
import { growTree } from '../src/updates/audit-leaves.js'
import { VERSION } from '../src/version.js'
import { deleteTool } from './deletion.js'
import { testDatabase } from './postgres.js'
import { TEST_SECRET_KEYS } from './world.js'

/**
 * Databases that versions 1.0.0 and 1.2.0 made: the demo organisation, three updates each of agents 1 and 2 and of tool 1 with a
 * secret header. Dumped by pg_dump --inserts from PostgreSQL 15. Never made anew: what they hold is what is out there.
 */
const FIXTURES = new URL('../../test/fixtures/', import.meta.url)

/** The administrator's token of that database; no other database knows it. */
const TOKEN = 'pat_aNnUfZpoSJCc5JPpGM5Wgp1uhXvf'

t.test(
  'a database of 1.0.0 upgrades in place: its rows, secrets, tokens and audit trail are what they were',
  async t => {
    const { url } = await testDatabase(t)
    await loadDump(url)

    const config = readConfig({ RATE_LIMIT_PER_MINUTE: '0' })
    const database = openUrl(url, config)
    t.teardown(() => database.close())
    const trail = () => database.db.selectFrom('audit').select(['hash', 'actor', 'at']).orderBy('hash').execute()
    const before = await trail()
    t.equal(before.length, 9 + 5, 'nine updates, and the rows of what the demo made')
    await migrate(database.db)
    t.strictSame(await migrate(database.db), [], 'nothing is left to do')
    t.strictSame(await trail(), before)
    t.same((await verifyAudit(database.db)).findings, [])

    const ring = parseKeyRing(TEST_SECRET_KEYS)
    const service = new Lifecycle({
      config,
      version: VERSION,
      database,
      ring,
      migrates: false,
      log: makeLogger('silent'),
    })
    const app = await buildApp({ config, version: VERSION, database, service, logger: false })
    t.teardown(() => app.close())
    t.ok(await service.start())
    const call = async (method: 'GET' | 'PATCH' | 'PUT', path: string, payload?: object) => {
      const headers = { authorization: `Bearer ${TOKEN}` }
      const answer = await app.inject({ method, url: path, headers, ...(payload && { payload }) })
      t.equal(answer.statusCode, 200, `${method} ${path} ${answer.body}`)
      return answer.json()
    }
    t.match(await call('GET', '/persona/1'), {
      description: 'edition 3',
      starter_messages: [{ name: 'n3', message: 'm' }],
    })
    const { custom_headers } = await call('GET', '/tool/1')
    await call('PUT', '/admin/tool/custom/1', { custom_headers, description: 'the mask keeps the secret' })
    await call('PATCH', '/persona/2?update_mask=name', { name: 'after the upgrade' })
    t.ok(await openVault(database.db, ring))
    t.match(await verifyKeys(database.db, ring), { findings: [] })
    t.same((await verifyAudit(database.db)).findings, [])
    t.equal((await trail()).length, before.length + 2)
    t.ok((await readHistory(database.db, 'persona', 2)).versions.length >= 4, 'the past of the agent goes on')

    const old = sql`update audit set request_id = 'other' where identity_hash is null and actor = 'erased'`
    await t.rejects(eraseUser(database.db, 'admin@example.com'), /no active administrator/)
    await createUser(database.db, { email: 'next@example.com', kind: 'person', permissions: ['admin'] })
    const { audit_rows } = await eraseUser(database.db, 'admin@example.com')
    t.equal(audit_rows, 9 + 2, 'rows that hash the clear text, and new ones')
    t.same((await verifyAudit(database.db)).findings, [], 'every chain verifies without the person')
    const text = await sql<{ found: number }>`
      select count(*)::integer as found from audit a where a::text ~ 'admin@example.com'`.execute(database.db)
    t.same(text.rows, [{ found: 0 }])
    await old.execute(database.db)
    const { findings } = await verifyAudit(database.db)
    t.equal(findings.filter(({ problem }) => problem === 'edited').length, 9, 'what is left of an old row is held')
  },
)

t.test('who had access at the upgrade is recorded then: what SQL changes or plants afterwards is found', async t => {
  const { url } = await testDatabase(t)
  await loadDump(url)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const { db } = database
  await migrate(db)
  await sql`update token set expires_at = null`.execute(db)
  await sql`insert into token (hash, user_id) select sha256('planted'), id from user_account limit 1`.execute(db)
  const { findings } = await verifyAudit(db)
  t.same(
    new Set(findings.map(({ kind, problem }) => `${problem} ${kind}`)),
    new Set(['content_mismatch token', 'unrecorded token']),
  )
})

t.test('what no hash of an old row covers is believed nowhere: content and command', async t => {
  const { url } = await testDatabase(t)
  await loadDump(url)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const { db } = database
  await migrate(db)
  await growTree(db)
  const found = async (forge: (trx: Transaction<Database>) => Promise<unknown>) => {
    const trx = await db.startTransaction().execute()
    try {
      await forge(trx)
      const { findings } = await verifyAudit(trx)
      return findings.map(({ kind, subject, problem }) => `${problem} ${kind}:${subject}`)
    } finally {
      await trx.rollback().execute()
    }
  }
  const vouch = async (trx: Transaction<Database>, kind: 'persona' | 'tool') => {
    const content = (await readContents(trx, kind, [1])).get(1)
    await sql`update audit set content_hash = decode(${sha256(JSON.stringify(content?.audited[0]))}, 'hex')
      where resource_kind = ${kind} and resource_id = 1
        and version_after = (select version from ${sql.table(kind)} where id = 1)`.execute(trx)
  }
  t.same(
    await found(async trx => {
      await sql`update persona set description = 'by hand', owner_id = null where id = 1`.execute(trx)
      await vouch(trx, 'persona')
    }),
    ['edited persona:1', 'content_mismatch persona:1'],
  )
  t.same(
    await found(async trx => {
      await sql`update tool set description = 'by hand' where id = 1`.execute(trx)
      await vouch(trx, 'tool')
    }),
    ['edited tool:1', 'content_mismatch tool:1'],
  )
  for (const column of ['command', 'salt']) {
    const forged = sql`update audit set ${sql.ref(column)} = 'agentctl apply --prune' where resource_kind = 'tool'`
    const told = await found(trx => forged.execute(trx))
    t.ok(told.includes('edited tool:1'), `${column}: ${told}`)
  }
})

t.test('old rows of a removed tool that are in the tree cannot go unseen', async t => {
  const { url } = await testDatabase(t)
  await loadDump(url)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const { db } = database
  await migrate(db)
  await deleteTool(database, 1)
  const own = sql`resource_kind = 'tool' and resource_id = 1`
  const found = async () =>
    (await verifyAudit(db)).findings.map(one => `${one.problem} ${one.kind}:${one.subject} ${one.number}`)
  await sql`delete from audit where ${own} and version_after < 2`.execute(db)
  t.same(await found(), [], 'what 1.0.0 pruned of it was never in the tree')
  await growTree(db)
  t.same(await found(), [])
  await sql`delete from audit where ${own} and version_after < 3`.execute(db)
  t.same(await found(), ['deleted tool:1 2'])
})

t.test('what 1.0.0 pruned is no tampering after the upgrade, and what is taken away by hand then is', async t => {
  const { url } = await testDatabase(t)
  await loadDump(url)
  const database = openUrl(url, readConfig({}))
  t.teardown(() => database.close())
  const { db } = database
  const own = sql`resource_kind = 'persona' and resource_id = 1`
  await sql`delete from audit where ${own} and version_after = 1`.execute(db)
  await sql`update persona p set audit_anchor_version = 1, audit_anchor = a.previous_hash
    from audit a where p.id = 1 and ${own} and a.version_after = 2`.execute(db)
  await sql`update audit set difference = null, definition_before = null where ${own} and version_after = 2`.execute(db)
  await migrate(db)
  t.same((await verifyAudit(db)).findings, [])
  await sql`update audit set difference = null where ${own} and version_after = 3`.execute(db)
  t.match((await verifyAudit(db)).findings, [{ kind: 'persona', subject: '1', number: 3, problem: 'emptied' }])
})

t.test(
  'a database of 1.2.0 upgrades in place: its audit trail verifies, goes on, and still finds what SQL changes',
  async t => {
    const { url } = await testDatabase(t)
    await loadDump(url, '1.2.0')
    const database = openUrl(url, readConfig({}))
    t.teardown(() => database.close())
    const { db } = database
    await migrate(db)
    t.same((await verifyAudit(db)).findings, [])
    const ring = parseKeyRing(TEST_SECRET_KEYS)
    t.match(await verifyKeys(db, ring), { findings: [] })
    await sql`update persona set task_prompt = 'by hand' where id = 1`.execute(db)
    await sql`update tool set enabled = not enabled where id = 1`.execute(db)
    const { findings } = await verifyAudit(db)
    t.match(findings, [
      { kind: 'persona', subject: '1', problem: 'content_mismatch' },
      { kind: 'tool', subject: '1', problem: 'content_mismatch' },
    ])
    t.equal(findings.length, 2)
  },
)

async function loadDump(url: string, version = '1.0.0'): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('drop schema public cascade; create schema public')
  await client.query(readFileSync(fileURLToPath(new URL(`database-${version}.sql`, FIXTURES)), 'utf8'))
  await client.end()
}
