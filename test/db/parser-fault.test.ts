import { sql } from 'kysely'
import t from 'tap'
import { CommitUnknown, ConnectionLost } from '../../src/db/connection/database-error.js'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { openDatabase } from '../../src/db/connection/pool.js'
import { testDatabase } from '../postgres.js'
import { slowness } from '../slowness.js'
import { TcpProxy } from './tcp-proxy.js'

/** A row's message: the letter, four bytes of length, two of how many values it has. */
const DATA_ROW = 'D'.charCodeAt(0)

t.test('bytes that pg stumbles over cost one connection: the process and the others go on', async t => {
  const { url } = await testDatabase(t)
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  const proxy = await TcpProxy.open(parsed.url.hosts[0])
  t.teardown(() => proxy.close())
  const database = openDatabase({
    url: { ...parsed.url, hosts: [{ host: '127.0.0.1', port: proxy.port }] },
    poolSize: 2,
    connectTimeoutMs: 5_000,
    statementTimeoutMs: 10_000,
    lockTimeoutMs: 5_000,
    idleInTransactionTimeoutMs: 10_000,
    preparedStatements: true,
  })
  t.teardown(() => database.close())
  const { db } = database
  await sql`create table item (id integer)`.execute(db)
  const breakRows = () => {
    proxy.onBackward = bytes => {
      for (let at = 0; at + 7 <= bytes.length; at += 1 + bytes.readInt32BE(at + 1)) {
        if (bytes[at] === DATA_ROW) bytes.writeInt16BE(0x7fff, at + 5)
      }
      return true
    }
  }
  const isWhole = async () => {
    proxy.onBackward = () => true
    return (await sql<{ one: number }>`select 1 as one`.execute(db)).rows
  }
  breakRows()
  await t.rejects(sql`select ${1}::integer as one`.execute(db), ConnectionLost)
  t.same(await isWhole(), [{ one: 1 }])
  breakRows()
  await t.rejects(sql`insert into item values (${7}) returning id`.execute(db), CommitUnknown)
  t.same(await isWhole(), [{ one: 1 }])
  t.same((await sql`select id from item`.execute(db)).rows, [{ id: 7 }], 'what the server applied stays applied')
  for (const [what, bytes] of Object.entries({
    'an error without its end': Buffer.from('E\0\0\0\u000bSFATAL\0', 'latin1'),
    'a notice of no bytes': Buffer.from('N\0\0\0\u0004', 'latin1'),
    'a length that is none': Buffer.from('E\0\0\0\0', 'latin1'),
  })) {
    proxy.onBackward = answer => {
      bytes.copy(answer)
      return true
    }
    await t.rejects(sql`select ${1}::integer as one`.execute(db), ConnectionLost, what)
    t.same(await isWhole(), [{ one: 1 }], what)
  }
})

t.test('long texts are as they are stored, and hold the thread no longer for what characters they have', async t => {
  const { url } = await testDatabase(t)
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  const database = openDatabase({
    url: parsed.url,
    poolSize: 1,
    connectTimeoutMs: 5_000,
    statementTimeoutMs: 10_000,
    lockTimeoutMs: 5_000,
    idleInTransactionTimeoutMs: 10_000,
    preparedStatements: true,
  })
  t.teardown(() => database.close())
  const repeated = async (text: string, count: number) => {
    const { rows } = await sql<{ texts: string }>`select repeat(${text}::text, ${count}::integer) as texts`.execute(
      database.db,
    )
    return rows[0]?.texts
  }
  for (const text of ['x', 'é', '\u4e2d', '\u{1f600}', '\u0001', 'a\u00df\u20ac\u{10ffff}']) {
    for (const count of [10, 20_000, 100_000]) t.ok((await repeated(text, count)) === text.repeat(count), text)
  }
  /** The longest time in which nothing else had its turn, the least of some tries. */
  const heldMs = async (text: string, count: number) => {
    let least = Number.POSITIVE_INFINITY
    for (let tries = 0; tries < 10; tries++) {
      let longest = 0
      let isOver = false
      const watching = (async () => {
        for (let last = performance.now(); !isOver; ) {
          await new Promise(setImmediate)
          longest = Math.max(longest, performance.now() - last)
          last = performance.now()
        }
      })()
      await repeated(text, count)
      isOver = true
      await watching
      least = Math.min(least, longest)
    }
    return least
  }
  const [plain, wide] = [await heldMs('x', 6_000_000), await heldMs('\u4e2d', 2_000_000)]
  t.ok(wide < 3 * plain + 5 * slowness(), `${wide} ms, of ASCII ${plain} ms`)
})
