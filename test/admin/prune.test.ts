import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { pruneContents, pruneHistory } from '../../src/updates/prune.js'
import { worldDatabase } from '../world.js'

const { database, url, query } = await worldDatabase(t)
const { db } = database
const { history } = readConfig({})

/** Adds `rows` audit rows without hashes to each record, dated `minutes` ago. `bytes` is the recorded size of each difference. */
async function addRows(kind: 'tool' | 'persona', ids: number[], rows: number, minutes: number, bytes = 2) {
  await query`
    insert into audit (resource_kind, resource_id, version_before, version_after, at, request_id, client_address, fields,
      difference, difference_bytes, difference_hash)
    select ${kind}, id, v - 1, v, now() - make_interval(mins => ${minutes}::integer), 'r', 'c', '{name}', '""',
      ${bytes}::integer, sha256('""')
    from unnest(${ids}::integer[]) id, generate_series(1, ${rows}::integer) v`
}

/** Almost a third of the maximum size of a record's history. */
const THIRD = 20 * 2 ** 20

async function keptOf(ids: number[]): Promise<number[]> {
  const rows = await query<{ kept: number }>`
    select count(difference)::integer as kept from audit
    where resource_kind = 'persona' and resource_id = any(${ids}::integer[]) group by resource_id order by resource_id`
  return rows.map(({ kept }) => kept)
}

t.test('a long history is pruned in steps, whatever time a request may take', async t => {
  await addRows('tool', [1001, 1002], 1_700, 500 * 24 * 60)
  const hurried = openUrl(url, readConfig({ STATEMENT_TIMEOUT_MS: '100' }))
  t.teardown(() => hurried.close())
  t.match(await pruneHistory(hurried.db, history), { auditRows: 3_400 })
  t.same((await verifyAudit(db)).findings, [])
})

t.test('contents are pruned by number and by size; the newest difference stays whatever its size', async t => {
  await addRows('persona', [2001], 10, 5)
  await addRows('persona', [2002], 10, 5, THIRD)
  await addRows('persona', [2003], 10, 5, 4 * THIRD)
  await pruneHistory(db, { ...history, versionsMax: 8 })
  t.strictSame(await keptOf([2001, 2002, 2003]), [8, 3, 1])
})

t.test('an agent that changed lately is pruned between two runs; one that rests is not looked at', async t => {
  await addRows('persona', [2004], 10, 0, THIRD)
  await addRows('persona', [2005], 10, 5, THIRD)
  t.equal(await pruneContents(db, history, 2), 7)
  t.strictSame(await keptOf([2004, 2005]), [3, 10])
  t.equal(await pruneContents(db, history, 2), 0)
  await query`delete from audit where resource_id between 2001 and 2005`
})

t.test('pruning does not wait for writers: locked rows are left to the next run', async t => {
  await query`update audit set at = at - interval '500 days' where resource_kind = 'persona' and resource_id in (1, 2)`
  const writer = await db.startTransaction().execute()
  await sql`select from persona where id = 1 for no key update`.execute(writer)
  t.equal((await pruneHistory(db, history)).auditRows, 1)
  await writer.commit().execute()
  t.equal((await pruneHistory(db, history)).auditRows, 1)
  t.same((await verifyAudit(db)).findings, [])
})

t.test('definitions that nothing uses are removed; one that a writer has just added is not waited for', async t => {
  const add = (text: string) => sql`insert into tool_definition values (sha256(${text}::text::bytea), '{}', 2)`
  await add('unused').execute(db)
  const writer = await db.startTransaction().execute()
  await add('held').execute(writer)
  t.equal((await pruneHistory(db, history)).definitions, 1)
  await writer.commit().execute()
  t.equal((await pruneHistory(db, history)).definitions, 1)
})
