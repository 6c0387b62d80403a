import { CompiledQuery, type RawBuilder, sql } from 'kysely'
import t, { type Test } from 'tap'
import {
  CommitUnknown,
  ConnectionLost,
  classifyDatabaseError,
  type DatabaseErrorKind,
} from '../../src/db/connection/database-error.js'
import type { DatabaseOptions } from '../../src/db/connection/options.js'
import type { Query } from '../../src/db/connection/session.js'
import { Database } from '../../src/db/database.js'
import { statement } from '../../src/db/statements/statement.js'
import { limitStatements } from '../../src/db/transaction.js'
import { eventually } from '../eventually.js'
import { MessageProxy } from '../faults/message-proxy.js'
import { addressOf, testDatabase, urlThrough } from '../postgres.js'

const { url } = await testDatabase(t)
const target = addressOf(url)
const ONE = statement<{ n: number }, { n: number }>('one', { n: 'integer' }, param => sql`select ${param('n')} as n`)
const SCHEMA =
  'create table item (id int primary key, name text not null unique deferrable initially deferred, at timestamptz)'

t.before(async () => {
  const { db, close } = open()
  await sql.raw(SCHEMA).execute(db)
  await close()
})

t.test('values: int8, timestamptz with microseconds in any zone, json, numeric, arrays', async t => {
  const { db } = opened(t)
  const { rows } = await sql<object>`select
    9007199254740991::int8 as safe,
    '2024-01-02 03:04:05.123456+00'::timestamptz as utc, '2024-01-02 03:04:05.1+05:30'::timestamptz as fraction,
    '0001-01-01 00:00:00+00'::timestamptz as first, '9999-12-31 23:59:59.999999+00'::timestamptz as last,
    'infinity'::timestamptz as endless, '{"b":1,"a":[2]}'::json as json, '{"b": 1}'::json::text as text,
    1.50::numeric as amount, '{1,2}'::int[] as ids, null::timestamptz as missing`.execute(db)
  t.strictSame(Object.values(rows[0] ?? {}), [
    ...[9007199254740991, '2024-01-02T03:04:05.123456Z', '2024-01-01T21:34:05.100000Z', '0001-01-01T00:00:00.000000Z'],
    ...['9999-12-31T23:59:59.999999Z', 'infinity', { b: 1, a: [2] }, '{"b": 1}', '1.50', [1, 2], null],
  ])
})

t.test('when a statement of a transaction fails, nothing is applied and the connection stays in use', async t => {
  const { transact, db, pool } = opened(t, { poolSize: 1 })
  const pid = await backendPid(db)
  const circular: Record<string, unknown> = {}
  circular.self = circular
  const faults: [Query[], { code: string; constraint?: string } | typeof TypeError][] = [
    [[insert(1), query('select 1 / $1::int', [0]), insert(2)], { code: '22012' }],
    [[insert(1), query('select nonsense'), insert(2)], { code: '42703' }],
    [[insert(1), query('insert into item (id, name) values (1, null)')], { code: '23502' }],
    // A deferred constraint fails at the commit, which is still a definite failure.
    [[insert(1, 'same'), insert(2, 'same')], { code: '23505', constraint: 'item_name_key' }],
    [[insert(1), query('select $1::json', [circular])], TypeError],
  ]
  for (const [statements, expected] of faults) {
    await t.rejects(transact(statements), expected)
    t.equal(await count(db), 0)
  }
  t.equal(await backendPid(db), pid)
  t.equal(pool.totalCount, 1)
})

t.test('a commit that the server turns into a rollback is an error, not a success', async t => {
  const { db } = opened(t)
  const transaction = await db.startTransaction().execute()
  await t.rejects(transaction.executeQuery(query('select nonsense')))
  await t.rejects(transaction.commit().execute(), { message: /was rolled back/ })
  await transaction.rollback().execute()
})

t.test('statements of the program are prepared by name, and no others', async t => {
  const { transact, db } = opened(t, { poolSize: 1 })
  const one = ONE.bind({ n: 1 })
  for (let i = 0; i < 3; i++) await transact([one, query('select $1::int', [1])])
  t.strictSame(await preparedTexts(db), [one.sql])
  const off = opened(t, { poolSize: 1, preparedStatements: false })
  for (let i = 0; i < 3; i++) await off.transact([one])
  t.strictSame(await preparedTexts(off.db), [])
})

t.test('a changed table makes "cached plan", after which the connection is replaced', async t => {
  const { db } = opened(t, { poolSize: 1 })
  await sql`create table changing (a int)`.execute(db)
  const all = statement<{ n: number }, object>(
    'all',
    { n: 'integer' },
    param => sql`select * from changing where ${param('n')} = 1`,
  )
  await all.run(db, { n: 1 })
  await sql`alter table changing add column b text`.execute(db)
  await t.rejects(all.run(db, { n: 1 }), { code: '0A000' })
  await all.run(db, { n: 1 })
})

t.test('killed in a transaction: not applied; killed while idle: replaced without a fault', async t => {
  const errors: Error[] = []
  const { db } = opened(t, { poolSize: 1, onError: error => errors.push(error) })
  const killer = opened(t)
  const inTransaction = db.transaction().execute(async trx => {
    await sql`insert into item (id, name) values (1, 'lost')`.execute(trx)
    const pid = await backendPid(trx)
    await kill(killer.db, pid)
    await eventually(async () => (await statementOf(killer.db, pid)) === undefined)
    await sql`select 1`.execute(trx)
  })
  isOf(t, await t.rejects(inTransaction, ConnectionLost), 'connection_lost', true)
  t.equal(await count(db), 0)
  await kill(killer.db, await backendPid(db))
  await eventually(() => errors.length > 0)
  t.equal(errors.length, 1)
  t.equal(await count(db), 0)
})

t.test('killed during a write: in doubt, though the server says so, as a pooler does of a commit', async t => {
  const { db } = opened(t)
  const rejected = t.rejects(
    db.executeQuery(query(`insert into item select 1, 'slow' from pg_sleep(5)`)),
    CommitUnknown,
  )
  const sleeping = sql<{ pid: number }>`
    select pid from pg_stat_activity where query like 'insert%pg_sleep(5)%' and state = 'active'`
  await eventually(async () => (await sleeping.execute(db)).rows.length > 0)
  for (const { pid } of (await sleeping.execute(db)).rows) await kill(db, pid)
  await rejected
  t.equal(await count(db), 0)
})

t.test('a write outside a transaction whose answer is lost is CommitUnknown; a read is ConnectionLost', async t => {
  const { db, cutsAnswers } = await throughProxy(t)
  const cases: [Query, typeof CommitUnknown | typeof ConnectionLost][] = [
    [query('delete from item'), CommitUnknown],
    [query('with gone as (delete from item returning id) select id from gone'), CommitUnknown],
    [db.deleteFrom('label').where('id', '=', 0).compile(), CommitUnknown],
    [{ ...query('select set_config($1, $2, false)', ['a.b', 'c']), writes: true }, CommitUnknown],
    [query('select 1'), ConnectionLost],
    [{ ...query('with one as (select 1 as n) select n from one'), writes: false }, ConnectionLost],
    [db.selectFrom('user_account').selectAll().compile(), ConnectionLost],
  ]
  for (const [asked, expected] of cases) {
    cutsAnswers(false)
    await sql`select 1`.execute(db)
    cutsAnswers(true)
    await t.rejects(db.executeQuery(asked), expected, asked.sql)
  }
})

t.test('ConnectionLost: a server that falls silent, does not answer, is not there', async t => {
  const { db, proxy } = await throughProxy(t, { statementTimeoutMs: 100 })
  await sql`select 1`.execute(db)
  proxy.decide = () => ({ do: 'drop' })
  const address = { ...addressOf(urlThrough(proxy.port, url)), connectTimeoutMs: 200 }
  for (const from of [db, opened(t, { address }).db]) await t.rejects(sql`select 1`.execute(from), ConnectionLost)
  await proxy.close()
  await t.rejects(sql`select 1`.execute(opened(t, { address }).db), ConnectionLost)
})

t.test('a pool with every connection taken is refused after a wait, and works when one comes back', async t => {
  const { db, transact } = opened(t, { poolSize: 1, address: { ...target, connectTimeoutMs: 5_000 } })
  const holder = await db.startTransaction().execute()
  await sql`select 1`.execute(holder)
  isOf(t, await t.rejects(transact([]), { name: 'DatabaseFault' }), 'waited', false)
  await holder.rollback().execute()
  await transact([])
})

t.test('at most 16 reads with one key share a connection; a lost one is replaced, and all come back', async t => {
  const { db, pool, sharedReads } = opened(t)
  const holder = await db.startTransaction().execute()
  await sql`lock table item`.execute(holder)
  const read = () => sharedReads('one').executeQuery(query('select from item'))
  const waiting = sql<{
    pid: number
  }>`select pid from pg_stat_activity where query = 'select from item' and state = 'active' order by query_start`
  const pids = async () => (await waiting.execute(db)).rows.map(({ pid }) => pid)
  const first = t.rejects(Promise.any(Array.from({ length: 16 }, read)), AggregateError)
  await eventually(async () => (await pids()).length === 1)
  const second = read()
  await eventually(async () => (await pids()).length === 2)
  t.same((await sharedReads('another').executeQuery(query('select 1 as n'))).rows, [{ n: 1 }])
  const [pid = 0] = await pids()
  await kill(db, pid)
  await first
  await holder.rollback().execute()
  await second
  await read()
  t.equal(pool.idleCount, pool.totalCount)
})

t.test('a server that accepts no writes is refused where the URL asks for one that does', async t => {
  const proxy = await MessageProxy.open(target)
  t.teardown(() => proxy.close())
  proxy.decide = ({ from, type, bytes }) => {
    if (from === 'server' && type === 'D' && bytes.includes('PostgreSQL')) bytes.write('f', bytes.length - 1) // the last column of the row
    return { do: 'pass' }
  }
  const { db } = opened(t, { address: { ...addressOf(urlThrough(proxy.port, url)), writesOnly: true } })
  await t.rejects(sql`select 1`.execute(db), { name: 'DatabaseFault', message: /accepts no writes/ })
})

t.test('a 25006 discards the connection: the next one may reach a server that accepts writes', async t => {
  const { db, pool } = opened(t, { poolSize: 1 })
  const pid = await backendPid(db)
  const client = await pool.connect()
  await client.query('set default_transaction_read_only = on')
  client.release()
  isOf(t, await t.rejects(sql`insert into item (id, name) values (9, 'x')`.execute(db)), 'read_only', true)
  t.not(await backendPid(db), pid)
})

t.test('timeouts reach the server at start-up, or with each transaction; one transaction may have longer', async t => {
  const settings = sql<{ setting: string }>`select setting from pg_settings
    where name in ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout') order by name`
  const values = async (executor: Parameters<typeof settings.execute>[0]) =>
    (await settings.execute(executor)).rows.map(({ setting }) => setting)
  const timeouts = { statementTimeoutMs: 2_321, lockTimeoutMs: 1_234 }
  for (const preparedStatements of [true, false]) {
    const { db } = opened(t, { ...timeouts, preparedStatements, poolSize: 1 })
    t.strictSame(await values(db), ['10000', '1234', '2321'])
    t.strictSame(await db.transaction().execute(values), ['10000', '1234', '2321'])
    await db.transaction().execute(async trx => {
      await limitStatements(trx, 60_000)
      await sql`select pg_sleep(3)`.execute(trx)
    })
    await t.rejects(sql`select pg_sleep(60)`.execute(db), { code: '57014' })
  }
})

t.test('a statement whose client has gone is ended on the server', async t => {
  const { db: left, proxy } = await throughProxy(t, { statementTimeoutMs: 60_000 })
  const lost = t.rejects(sql`select pg_sleep(50)`.execute(left), ConnectionLost)
  const running = sql`
    select from pg_stat_activity where state = 'active' and query = 'select pg_sleep(50)' and datname = current_database()`
  const { db } = opened(t)
  const isRunning = async () => (await running.execute(db)).rows.length > 0
  await eventually(isRunning)
  proxy.cut()
  await lost
  await eventually(async () => !(await isRunning()))
})

t.test('close waits for running statements, refuses new ones, and closes every socket', async t => {
  const { db, close, pool, transact } = open()
  const watcher = opened(t)
  const pid = await backendPid(db)
  const slow = sql<{ pid: number }>`select pg_backend_pid() as pid, pg_sleep(1)`.execute(db)
  await eventually(async () => (await statementOf(watcher.db, pid))?.includes('pg_sleep(1)') ?? false)
  const closing = close()
  await t.rejects(transact([]), { name: 'DatabaseFault' })
  t.equal((await slow).rows[0]?.pid, pid)
  await closing
  await close()
  t.equal(pool.totalCount, 0)
  await eventually(async () => (await statementOf(watcher.db, pid)) === undefined)
})

function isOf(t: Test, error: unknown, kind: DatabaseErrorKind, transient: boolean): void {
  t.match(classifyDatabaseError(error), { kind, transient })
}

function open(options: Partial<DatabaseOptions> = {}) {
  const limits = { poolSize: 4, statementTimeoutMs: 10_000, lockTimeoutMs: 5_000, preparedStatements: true }
  const database = new Database({ address: target, ...limits, ...options })
  const transact = (queries: readonly Query[]) =>
    database.db.transaction().execute(async trx => {
      for (const one of queries) await trx.executeQuery(one)
    })
  const { db, pool } = database
  return { db, pool, transact, sharedReads: database.sharedReads.bind(database), close: database.close.bind(database) }
}

function opened(t: Test, options: Partial<DatabaseOptions> = {}) {
  const database = open(options)
  t.teardown(() => database.close(500))
  return database
}

/** Opens a database through a proxy. After `cutsAnswers(true)`, the proxy cuts the connection at the server's next message. */
async function throughProxy(t: Test, options: Partial<DatabaseOptions> = {}) {
  const proxy = await MessageProxy.open(target)
  t.teardown(() => proxy.close())
  const { db } = opened(t, { address: addressOf(urlThrough(proxy.port, url)), ...options })
  const cutsAnswers = (cuts: boolean) => {
    proxy.decide = ({ from }) => (cuts && from === 'server' ? { do: 'cut', after: 0 } : { do: 'pass' })
  }
  return { db, proxy, cutsAnswers }
}

function query(text: string, values: unknown[] = []): Query {
  return CompiledQuery.raw(text, values)
}

function insert(id: number, name = `item ${id}`): Query {
  return query('insert into item (id, name) values ($1, $2)', [id, name])
}

type Executor = ReturnType<typeof open>['db']

/** Returns the column `value` of the first row. */
async function valueIn<T>(db: Executor, query: RawBuilder<{ value: T }>): Promise<T | undefined> {
  return (await query.execute(db)).rows[0]?.value
}

const count = (db: Executor) => valueIn(db, sql<{ value: number }>`select count(*) as value from item`)

async function backendPid(db: Executor): Promise<number> {
  return (await valueIn(db, sql<{ value: number }>`select pg_backend_pid() as value`)) ?? -1
}

async function kill(db: Executor, pid: number): Promise<void> {
  await sql`select pg_terminate_backend(${pid}::int)`.execute(db)
}

async function preparedTexts(db: Executor): Promise<string[]> {
  const query = sql<{ statement: string }>`select statement from pg_prepared_statements order by statement`
  return (await query.execute(db)).rows.map(row => row.statement)
}

/** Returns the current or last statement of a session; undefined if the session has ended. */
async function statementOf(db: Executor, pid: number): Promise<string | undefined> {
  return await valueIn(db, sql<{ value: string }>`select query as value from pg_stat_activity where pid = ${pid}`)
}
