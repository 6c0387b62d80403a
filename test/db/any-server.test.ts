import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { ServerUnfit } from '../../src/db/connection/database-error.js'
import { appOver } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { document } from '../definition/document.js'
import { eventually } from '../eventually.js'
import { MessageProxy } from '../faults/message-proxy.js'
import { addressOf, opened, testDatabase, urlThrough } from '../postgres.js'
import { worldDatabase } from '../world.js'

/** Long timeouts, so that a busy machine causes no lock timeouts. */
const PATIENCE = { LOCK_TIMEOUT_MS: '120000', STATEMENT_TIMEOUT_MS: '120000' }

/** Unusual server settings that must not change the service's behaviour. */
const SETTINGS = {
  DateStyle: "'German, DMY'",
  TimeZone: "'Asia/Kathmandu'",
  extra_float_digits: '1',
  bytea_output: 'escape',
  client_encoding: 'LATIN1',
  default_transaction_isolation: "'repeatable read'",
  plan_cache_mode: 'force_custom_plan',
  jit: 'on',
}

for (const mode of ['on', 'off']) {
  t.test(`200 and the same values, whatever the database is set to: PREPARED_STATEMENTS=${mode}`, async t => {
    const { url, token, database: before } = await worldDatabase(t)
    const admin = await token('admin@example.com')
    for (const [name, value] of Object.entries(SETTINGS)) {
      await sql`alter database ${sql.id(databaseOf(url))} set ${sql.raw(name)} = ${sql.raw(value)}`.execute(before.db)
    }
    const database = opened(t, url, { DATABASE_POOL_SIZE: '8', ...PATIENCE, PREPARED_STATEMENTS: mode })
    const shown = sql`select current_setting('transaction_isolation') as level, current_setting('TimeZone') as zone`
    const expected = [{ level: 'read committed', zone: 'UTC' }]
    t.same((await shown.execute(database.db)).rows, expected, 'a query')
    t.same(await database.db.transaction().execute(async trx => (await shown.execute(trx)).rows), expected)

    const { call } = await appOver(t, database, PATIENCE)
    const update = async (body: object) => {
      const fields = Object.keys(body).join(',')
      const response = await call('PATCH', `/persona/1?update_mask=${fields}`, { token: admin, body })
      return { status: response.statusCode, etag: response.headers.etag, body: response.json() }
    }
    const awkward = {
      name: "Ω 漢字 \\ 'quoted' 🙂",
      num_chunks: 0.1234567890123457,
      search_start_date: '2024-02-03T04:05:06.789012Z',
    }
    const first = await update(awkward)
    t.match(first, { status: 200, body: { name: awkward.name, num_chunks: awkward.num_chunks } })
    t.equal((await update(awkward)).etag, first.etag, 'the same again is no change')
    const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => update({ description: `hot ${n}` })))
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200], 'forty updates of one agent')
    const definition = document({ info: { title: `mode ${mode}`, version: '1' } })
    const stored = await call('PUT', '/admin/tool/custom/10', { token: admin, body: { definition } })
    t.match({ status: stored.statusCode, ...stored.json() }, { status: 200, definition }, 'a new definition')
    t.match(await verifyAudit(database.db), { findings: [] })
  })
}

t.test('503 while the server refuses the role, as after a password change, and 200 afterwards', async t => {
  const { url, token, database: before } = await worldDatabase(t)
  const admin = await token('admin@example.com')
  const role = `shut_out_${process.pid}`
  const asSuperuser = (statement: string) => sql.raw(statement).execute(before.db)
  await asSuperuser(`create role ${role} login superuser`)
  const as = new URL(url)
  as.username = role // has no effect if the host is a folder with a socket
  if (as.username === '') as.searchParams.set('user', role)
  t.teardown(() => asSuperuser(`drop role ${role}`))
  const database = opened(t, as.href)
  const { call } = await appOver(t, database)
  const update = async () => {
    const body = { name: `${Math.random()}` }
    const answer = await call('PATCH', '/persona/1?update_mask=name', { token: admin, body })
    const { reason, outcome } = answer.json<{ reason?: string; outcome?: string }>()
    return [answer.statusCode, reason, outcome]
  }
  t.same(await update(), [200, undefined, undefined])
  await asSuperuser(`alter role ${role} nologin`)
  await asSuperuser(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}'`)
  await eventually(async () => (await update())[0] !== 200)
  t.same(await update(), [503, 'database_unreachable', 'not_applied'])
  await asSuperuser(`alter role ${role} login`)
  t.same(await update(), [200, undefined, undefined])
})

t.test('78 and a sentence for a server that the service cannot use: the command and the service', async t => {
  const { url } = await testDatabase(t)
  const latin = `latin_${process.pid}`
  const { db } = opened(t, url)
  await sql`create database ${sql.id(latin)} encoding 'LATIN1' locale 'C' template template0`.execute(db)
  t.teardown(() => sql`drop database ${sql.id(latin)} with (force)`.execute(db))
  await refuses(t, url.replace(databaseOf(url), latin), /its encoding is LATIN1, and the service needs UTF8: /)
  await refuses(t, await through(t, url, /PostgreSQL \d+\.\d+/, 'CockroachDB'), /it is CockroachDB.*needs PostgreSQL$/)
  const pooled = await MessageProxy.open({ ...addressOf(url), disguised: true })
  t.teardown(() => pooled.close())
  await refuses(t, urlThrough(pooled.port, url), /a pooler is in front of it: set PREPARED_STATEMENTS=off$/)
})

/** Returns the URL of a proxy that replaces text matching `from` in the server's answers with `to`, padded to the same length. */
async function through(t: Test, url: string, from: RegExp, to: string): Promise<string> {
  const proxy = await MessageProxy.open(addressOf(url))
  t.teardown(() => proxy.close())
  proxy.decide = ({ type, from: sender, bytes }) => {
    const match = sender === 'server' && type === 'D' ? from.exec(bytes.toString('latin1')) : null
    if (match) bytes.write(to.padEnd(match[0].length), match.index, 'latin1')
    return { do: 'pass' }
  }
  return urlThrough(proxy.port, url)
}

async function refuses(t: Test, url: string, sentence: RegExp): Promise<void> {
  const database = opened(t, url, { DATABASE_POOL_SIZE: '1' })
  t.match(await t.rejects(sql`select 1`.execute(database.db), ServerUnfit), { message: sentence })
  const { status, stderr } = await agentctl({ url, args: ['status'] })
  t.equal(status, 78)
  t.match(stderr, new RegExp(sentence.source.replace('$', '')))
  t.notMatch(stderr, /\n\s+at /, 'no stack')
}

function databaseOf(url: string): string {
  return addressOf(url).config.database ?? ''
}
