import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { type Config, readConfig } from '../../src/config.js'
import { ServerUnfit } from '../../src/db/connection/database-error.js'
import { type DatabaseUrl, parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { openUrl } from '../../src/db/open.js'
import { statement } from '../../src/db/statements/statement.js'
import { appOver } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { MessageProxy } from '../faults/message-proxy.js'
import { testDatabase } from '../postgres.js'
import { worldDatabase } from '../world.js'

const ONE = statement<{ n: number }, { n: number }>('one', { n: 'integer' }, param => sql`select ${param('n')} as n`)
const MODES = { on: { PREPARED_STATEMENTS: 'on' }, off: { PREPARED_STATEMENTS: 'off' } }

/** A busy machine must not be taken for a conflict. */
const PATIENCE = { LOCK_TIMEOUT_MS: '120000', STATEMENT_TIMEOUT_MS: '120000' }

/** What an operator may have set, and what the service works with all the same. */
const SETTINGS: Readonly<Record<string, readonly [set: string, pinned: string]>> = {
  DateStyle: ["'German, DMY'", 'ISO, MDY'],
  TimeZone: ["'Asia/Kathmandu'", 'UTC'],
  extra_float_digits: ['-5', '1'],
  bytea_output: ['escape', 'hex'],
  client_encoding: ['LATIN1', 'UTF8'],
  client_min_messages: ['error', 'warning'],
  default_transaction_isolation: ["'repeatable read'", 'read committed'],
  standard_conforming_strings: ['off', 'on'],
  plan_cache_mode: ['force_custom_plan', 'force_generic_plan'],
  enable_seqscan: ['on', 'off'],
  enable_bitmapscan: ['on', 'off'],
  jit: ['on', 'off'],
}

for (const [mode, env] of Object.entries(MODES)) {
  t.test(
    `whatever the database is set to, sessions pin what results depend on: PREPARED_STATEMENTS=${mode}`,
    async t => {
      const { url, token, database: before } = await worldDatabase(t)
      const admin = await token('admin@example.com')
      for (const [name, [value]] of Object.entries(SETTINGS)) {
        await sql`alter database ${sql.id(databaseOf(url))} set ${sql.raw(name)} = ${sql.raw(value)}`.execute(before.db)
      }
      const database = openUrl(url, readConfig({ DATABASE_POOL_SIZE: '8', ...PATIENCE, ...env }))
      t.teardown(() => database.close())
      const names = Object.keys(SETTINGS)
      const shown = sql<Record<string, string>>`select ${sql.join(
        names.map(
          name =>
            sql`current_setting(${sql.lit(name === 'default_transaction_isolation' ? 'transaction_isolation' : name)}) as ${sql.id(name)}`,
        ),
      )}`
      const expected = Object.fromEntries(names.map(name => [name, SETTINGS[name]?.[1]]))
      t.same((await shown.execute(database.db)).rows, [expected], 'a query')
      t.same(await database.db.transaction().execute(async trx => (await shown.execute(trx)).rows), [expected])

      const { call } = await appOver(t, database, PATIENCE)
      const update = async (body: object) => {
        const fields = Object.keys(body).join(',')
        const response = await call('PATCH', `/persona/1?update_mask=${fields}`, { token: admin, body })
        return {
          status: response.statusCode,
          etag: response.headers.etag,
          body: response.json<Record<string, unknown>>(),
        }
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
      t.match(await verifyAudit(database.db), { findings: [] })
      const isolation = sql<{ level: string }>`select current_setting('transaction_isolation') as level`
      const level = database.db.transaction().setIsolationLevel('repeatable read')
      t.same(await level.execute(async trx => (await isolation.execute(trx)).rows), [{ level: 'repeatable read' }])
    },
  )
}

t.test('503 while the server lets the role not in, as after a rotated password, and 200 when it does', async t => {
  const { url, token, database: before } = await worldDatabase(t)
  const admin = await token('admin@example.com')
  const role = `shut_out_${process.pid}`
  const asSuperuser = (statement: string) => sql.raw(statement).execute(before.db)
  await asSuperuser(`create role ${role} login superuser`)
  const as = new URL(url)
  as.username = role // nothing is set where the host is a folder of sockets
  if (as.username === '') as.searchParams.set('user', role)
  const database = openUrl(as.href, readConfig({}))
  t.teardown(async () => {
    await database.close()
    await asSuperuser(`drop role ${role}`)
  })
  const { call } = await appOver(t, database)
  const update = async () => {
    const answer = await call('PATCH', '/persona/1?update_mask=name', {
      token: admin,
      body: { name: `${Math.random()}` },
    })
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

/** Waits until a state is reached; the test's own time limit ends it. */
async function eventually(isReached: () => Promise<boolean>): Promise<void> {
  while (!(await isReached())) await sleep(20)
}

t.test('a database that is not UTF8 is refused with a sentence, by the command and the service', async t => {
  const { url } = await testDatabase(t)
  const other = `latin_${process.pid}`
  const database = openUrl(url, readConfig({}))
  await sql`create database ${sql.id(other)} encoding 'LATIN1' locale 'C' template template0`.execute(database.db)
  t.teardown(async () => {
    await sql`drop database ${sql.id(other)} with (force)`.execute(database.db)
    await database.close()
  })
  const latin = url.replace(databaseOf(url), other)
  await refuses(t, latin, /the database has the encoding LATIN1: make one with ENCODING 'UTF8'/)
})

t.test('an older server and another engine are refused with a sentence', async t => {
  const cases: [from: RegExp, to: string, refusal: RegExp][] = [
    [/1[5-9]0\d{3}/, '140011', /^the database is PostgreSQL \d.*, and the service needs 15 or later$/],
    [
      /PostgreSQL \d+\.\d+ /,
      'CockroachDB ',
      /^the database is CockroachDB.*, and the service needs PostgreSQL itself$/,
    ],
  ]
  for (const [from, to, refusal] of cases) {
    const { url } = await testDatabase(t)
    await refuses(t, await through(t, url, from, to), refusal)
  }
})

t.test('a pooler that takes the settings of the session and drops them is refused with a sentence', async t => {
  const { url } = await testDatabase(t)
  const proxy = await openProxy(t, url)
  proxy.decide = ({ from, type, bytes }) => {
    const at = from === 'service' && type === '' ? bytes.indexOf('options\0') + 'options\0'.length : 0
    if (at > 'options'.length) bytes.fill(' ', at, bytes.indexOf(0, at))
    return { do: 'pass' }
  }
  await refuses(
    t,
    urlThrough(proxy, url),
    /^a pooler stands before the database that drops session settings \(statement_timeout, .*\): set PREPARED_STATEMENTS=off$/,
  )
})

t.test('through a pooler nothing is prepared by name: the next statement may meet another server', async t => {
  const { url } = await testDatabase(t)
  for (const disguised of [false, true]) {
    const proxy = await MessageProxy.open({ ...parsed(url), disguised })
    t.teardown(() => proxy.close())
    const names: string[] = []
    proxy.decide = ({ from, type, bytes }) => {
      if (from === 'service' && type === 'P') names.push(bytes.toString('latin1', 5, bytes.indexOf(0, 5)))
      return { do: 'pass' }
    }
    const database = openUrl(urlThrough(proxy, url), readConfig({ DATABASE_POOL_SIZE: '1' }))
    t.teardown(() => database.close())
    for (const n of [1, 2, 3]) t.same(await ONE.run(database.db, { n }), [{ n }])
    t.equal(names.filter(name => name !== '').length, disguised ? 0 : 1)
  }
})

/** Through a proxy in which the server says something else of itself, of the same length. */
async function through(t: Test, url: string, from: RegExp, to: string): Promise<string> {
  const proxy = await openProxy(t, url)
  proxy.decide = ({ type, from: sender, bytes }) => {
    const match = sender === 'server' && type === 'D' ? from.exec(bytes.toString('latin1')) : null
    if (match) bytes.write(to.padEnd(match[0].length), match.index, 'latin1')
    return { do: 'pass' }
  }
  return urlThrough(proxy, url)
}

async function openProxy(t: Test, url: string): Promise<MessageProxy> {
  const proxy = await MessageProxy.open(parsed(url))
  t.teardown(() => proxy.close())
  return proxy
}

function urlThrough({ port }: MessageProxy, url: string): string {
  const { user, database } = parsed(url)
  return `postgresql://${user}@127.0.0.1:${port}/${database}`
}

async function refuses(t: Test, url: string, sentence: RegExp): Promise<void> {
  const config: Config = readConfig({ DATABASE_POOL_SIZE: '1' })
  const database = openUrl(url, config)
  t.teardown(() => database.close())
  const error = await sql`select 1`.execute(database.db).catch(caught => caught)
  t.ok(error instanceof ServerUnfit, String(error))
  t.match(error.message, sentence)
  const { status, stderr } = await agentctl({ url, args: ['status'] })
  t.equal(status, 78)
  t.match(stderr, new RegExp(sentence.source.replace(/^\^|\$$/g, '')))
  t.notMatch(stderr, /\n\s+at /, 'no stack')
}

function databaseOf(url: string): string {
  return parsed(url).database ?? ''
}

function parsed(url: string): DatabaseUrl {
  const read = parseDatabaseUrl(url)
  if (!read.ok) throw new Error(read.faults.join('; '))
  return read.url
}
