import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { eraseUser } from '../src/admin/erasure.js'
import { exportOrganisation } from '../src/admin/export.js'
import { keyStatus } from '../src/admin/keys.js'
import { MIGRATIONS, migrate, schemaState } from '../src/db/migrate.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { appOver } from './app.js'
import { DEFINITION } from './matrix-organisation.js'
import { opened, testDatabase, withClient } from './postgres.js'
import { TEST_SECRET_KEYS } from './world.js'

/**
 * A 2.1 database, dumped by pg_dump --inserts from PostgreSQL 15. Version 1.0.0 created the demo organisation and updated agents 1 and 2 and tool 1.
 * Version 1.15.1 changed agents 1 and 3 and tools 1 and 2, pruned contents, deleted tool 3 and erased a person. Version 2.1 changed agent 2, with two
 * requests that had an `Idempotency-Key`, and the header of tool 1.
 */
const DUMP = new URL('../../test/fixtures/database-2.1.sql', import.meta.url)

/** The administrator's token in the dumped database. No other database has this token. */
const TOKEN = 'pat_aNnUfZpoSJCc5JPpGM5Wgp1uhXvf'

/** The headers of tool 1 as version 2.1 returned them. */
const HEADERS = [{ key: 'X-New', value: '****#fb34c775d3a7' }]

/** The key and definition of an update of tool 1 by 2.1 that changed nothing. The definition is now refused. */
const REFUSED_NOW = 'refused by now'
const DEFINITION_OF_2_1 = { ...DEFINITION, servers: [{ url: 'https://a.example.com/v1?old=1' }] }
const ADMIN = 'd0000000-0000-4000-8000-000000000001'
const sha256 = (value: unknown) => hash('sha256', JSON.stringify(value))

t.test('a database of 2.1 upgrades in one step: rows, secrets, masks, tokens, keys and past stay', async t => {
  const { url } = await testDatabase(t)
  await withClient(url, async client => {
    await client.query('drop schema public cascade; create schema public')
    await client.query(readFileSync(fileURLToPath(DUMP), 'utf8'))
    const content = { definition: sha256(DEFINITION_OF_2_1) }
    await client.query(`insert into public.unchanged_update values (decode($1, 'hex'), decode($2, 'hex'), 1)`, [
      sha256([ADMIN, REFUSED_NOW]),
      sha256([REFUSED_NOW, 'tool', 1, content, 0]),
    ])
  })
  const database = opened(t, url)
  const { db } = database
  const trail = () =>
    db.selectFrom('audit').select(['at', 'actor_id', 'fields', 'difference_hash']).orderBy('difference_hash').execute()
  const before = await trail()
  const interrupted = {
    ...MIGRATIONS,
    '9000_killed': { up: () => Promise.reject(new Error('killed')), oldestProgram: '' },
  }
  await t.rejects(migrate(database, { steps: interrupted }), { message: 'killed' })
  t.strictSame(await migrate(database), Object.keys(MIGRATIONS).slice(1))
  t.strictSame(await trail(), before)
  const of2_1 = Object.fromEntries(Object.entries(MIGRATIONS).slice(0, 1))
  t.strictSame(await schemaState(db, '2.1.0', of2_1), { kind: 'ahead', oldestProgram: '3.0.0' }, '2.1 does not start')

  const { call } = await appOver(t, database)
  const ask = async (method: string, path: string, body?: object, headers: Record<string, string> = {}) => {
    const answer = await call(method, path, { token: TOKEN, headers, ...(body && { body }) })
    t.equal(answer.statusCode, 200, `${method} ${path} ${answer.body}`)
    return { ...answer.json(), etag: answer.headers.etag }
  }
  t.match(await ask('GET', '/persona/1'), { name: 'by 1.15.1', description: 'edition 3' })
  t.match(await ask('GET', '/persona/3?version=3'), { description: 'edition 2', starter_messages: [{ name: 'n2' }] })
  t.match(await ask('GET', '/tool/1'), { custom_headers: HEADERS })
  await ask('PUT', '/admin/tool/custom/1', { custom_headers: HEADERS, description: 'the mask keeps the secret' })
  const repeated = (key: string) =>
    ask('PATCH', '/persona/2?update_mask=description', { description: 'by 2.1' }, { 'idempotency-key': `"${key}"` })
  await ask('PATCH', '/persona/2?update_mask=description', { description: 'after the upgrade' })
  t.match(await repeated('changed by 2.1'), { description: 'after the upgrade', etag: '"persona-2-5"' })
  t.match(await repeated('unchanged by 2.1'), { description: 'after the upgrade', etag: '"persona-2-5"' })
  const refusedNow = { 'idempotency-key': `"${REFUSED_NOW}"` }
  t.match(await ask('PUT', '/admin/tool/custom/1', { definition: DEFINITION_OF_2_1 }, refusedNow), {
    etag: '"tool-1-1"',
  })
  t.match(await keyStatus(db, parseKeyRing(TEST_SECRET_KEYS)), { findings: [] })
  t.match(await exportOrganisation(db), { agents: [{ id: 1 }, { id: 2 }, { id: 3 }] })
  const names = db.selectFrom('tool_definition').select(sql`array_to_string(function_names, ' ')`.as('names'))
  t.same(
    (await names.orderBy('names').execute()).map(row => row.names),
    ['get_forecast', 'get_p', 'get_route', 'list_chapters file_chapter'],
  )
  t.match(await verifyAudit(db), { chains: 2, rows: 2, unchained_rows: before.length, findings: [] })

  await eraseUser(db, 'admin@example.com')
  t.same((await verifyAudit(db)).findings, [], 'every chain verifies without the person')
  const text = await sql<{ found: number }>`
    select count(*)::integer as found from audit a where a::text ~ 'admin@example.com'`.execute(db)
  t.same(text.rows, [{ found: 0 }])
})
