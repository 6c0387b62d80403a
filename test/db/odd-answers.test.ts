import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { readConfig } from '../../src/config.js'
import { CommitUnknown, ConnectionLost } from '../../src/db/connection/database-error.js'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { BEGIN, COMMIT } from '../../src/db/connection/session.js'
import { openUrl } from '../../src/db/open.js'
import { errorResponse, MessageProxy } from '../faults/message-proxy.js'
import { testDatabase } from '../postgres.js'

/** What a line or a pooler makes of the server's answers must never be taken for what the server did. */

const INSERT = { sql: 'insert into item values ($1) returning id', parameters: [7] }

for (const [prepared, disguised] of [
  ['on', false],
  ['off', true],
] as const) {
  t.test(`a transaction that the server says it is not in is given up: PREPARED_STATEMENTS=${prepared}`, async t => {
    for (const status of ['I', 'X']) {
      const { database, proxy } = await opened(t, prepared, disguised)
      proxy.decide = ({ from, type, bytes }) => {
        if (from === 'server' && type === 'Z' && bytes[5] === 'T'.charCodeAt(0)) bytes.write(status, 5)
        return { do: 'pass' }
      }
      const work = database.db.transaction().execute(async trx => {
        await sql`insert into item values (${7})`.execute(trx)
        throw new Error('rolled back')
      })
      await t.rejects(work, ConnectionLost, status)
      proxy.decide = () => ({ do: 'pass' })
      t.same((await sql`select id from item`.execute(database.db)).rows, [], 'nothing was stored')
    }
  })

  t.test(`an answer of another shape leaves a commit in doubt: PREPARED_STATEMENTS=${prepared}`, async t => {
    const changes: Record<string, { type: string; change(bytes: Buffer): void }> = {
      'a row with a column too few': { type: 'D', change: bytes => bytes.writeInt16BE(0, 5) },
      'an empty query': { type: 'C', change: bytes => bytes.write('I') },
    }
    for (const [what, { type, change }] of Object.entries(changes)) {
      const { database, proxy } = await opened(t, prepared, disguised)
      proxy.decide = message => {
        const isInsert = message.type !== 'C' || message.bytes.includes('INSERT')
        if (message.from === 'server' && message.type === type && isInsert) change(message.bytes)
        return { do: 'pass' }
      }
      await t.rejects(database.pipeline([BEGIN, INSERT, COMMIT]), CommitUnknown, what)
      proxy.decide = () => ({ do: 'pass' })
      t.same((await sql`select id from item`.execute(database.db)).rows, [{ id: 7 }], what)
    }
  })
}

t.test('an error behind a confirmed commit is not a refusal', async t => {
  const { database, proxy } = await opened(t, 'on', false)
  const error = errorResponse('ERROR', '23505', 'duplicate key')
  const ways: Record<string, () => Promise<unknown>> = {
    'one pipeline': () => database.pipeline([BEGIN, INSERT, COMMIT]),
    'statement by statement': () =>
      database.db.transaction().execute(trx => sql`insert into item values (${7})`.execute(trx)),
  }
  for (const [what, write] of Object.entries(ways)) {
    proxy.decide = ({ from, type, bytes }) =>
      from === 'server' && type === 'C' && bytes.includes('COMMIT')
        ? { do: 'replace', bytes: Buffer.concat([bytes, error]) }
        : { do: 'pass' }
    await t.rejects(write(), CommitUnknown, what)
    proxy.decide = () => ({ do: 'pass' })
    t.same((await sql`delete from item returning id`.execute(database.db)).rows, [{ id: 7 }], what)
  }
})

async function opened(t: Test, prepared: 'on' | 'off', disguised: boolean) {
  const { url } = await testDatabase(t)
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.faults.join('; '))
  const { user, database: name } = parsed.url
  const proxy = await MessageProxy.open({ ...parsed.url, disguised })
  t.teardown(() => proxy.close())
  const through = `postgresql://${user}@127.0.0.1:${proxy.port}/${name}`
  const database = openUrl(through, readConfig({ DATABASE_POOL_SIZE: '1', PREPARED_STATEMENTS: prepared }))
  t.teardown(() => database.close())
  await sql`create table item (id integer)`.execute(database.db)
  return { database, proxy }
}
