import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { pruneGrowing, pruneHistory } from '../../src/updates/prune.js'
import { worldDatabase } from '../world.js'

const { database, url } = await worldDatabase(t)
const { db } = database
const { history } = readConfig({})

/** Rows that say nothing and are not chained: pruning asks only for their age and size. */
async function addAuditRows(resources: number, rows: number): Promise<void> {
  await sql`
    insert into audit (resource_kind, resource_id, version_before, version_after, at, actor, request_id, client_address,
      fields, difference, difference_bytes, difference_hash, previous_hash, hash)
    select 'tool', 1000 + r, v - 1, v, now() - make_interval(days => 1000 - v), 'a', 'r', 'c', '{name}', '{}', 2,
      '\\x00', '\\x00', '\\x00'
    from generate_series(1, ${resources}::integer) r, generate_series(1, ${rows}::integer) v`.execute(db)
}

t.test('a long history is pruned in pages, whatever time a request may take', async t => {
  await addAuditRows(1_100, 3)
  const hurried = openUrl(url, readConfig({ STATEMENT_TIMEOUT_MS: '100' }))
  t.teardown(() => hurried.close())
  const steps: number[] = []
  const pruned = await pruneHistory(hurried.db, history, resources => steps.push(resources))
  t.equal(pruned.auditRows, 3_300)
  t.ok(steps.length > 2, `${steps.length} pages`)
  t.same((await verifyAudit(db)).findings, [])
})

t.test('an agent that grows fast is pruned between two runs; one that rests is not looked at', async t => {
  const sizes = async () => {
    const { rows } = await sql<{ resource_id: number; kept: number }>`
      select resource_id, count(difference)::integer as kept from audit
      where resource_kind = 'persona' and resource_id in (2001, 2002) group by 1 order by 1`.execute(db)
    return rows.map(({ kept }) => kept)
  }
  const text = 'x'.repeat(100_000)
  await sql`
    insert into audit (resource_kind, resource_id, version_before, version_after, at, actor, request_id, client_address,
      fields, difference, difference_bytes, difference_hash, previous_hash, hash)
    select 'persona', id, v - 1, v, now() - make_interval(mins => case id when 2001 then 0 else 5 end), 'a', 'r', 'c',
      '{name}', to_json(${text}::text), ${text.length + 2}, '\\x00', '\\x00', '\\x00'
    from unnest('{2001,2002}'::integer[]) id, generate_series(1, 10) v`.execute(db)
  const bounded = { ...history, bytesMax: 350_000 }
  t.equal(await pruneGrowing(db, bounded), 7)
  t.strictSame(await sizes(), [3, 10])
  t.equal(await pruneGrowing(db, bounded), 0)
  await pruneHistory(db, bounded)
  t.strictSame(await sizes(), [3, 3], 'the next run comes to all')
  await sql`delete from audit where resource_kind = 'persona' and resource_id in (2001, 2002)`.execute(db)
})

t.test('pruning waits for no writer: what is held is left to the next run', async t => {
  await sql`update audit set at = at - interval '500 days' where resource_kind = 'persona' and resource_id in (1, 2)`.execute(
    db,
  )
  const writer = await db.startTransaction().execute()
  await sql`select from persona where id = 1 for no key update`.execute(writer)
  t.equal((await pruneHistory(db, history)).auditRows, 1)
  await writer.commit().execute()
  t.equal((await pruneHistory(db, history)).auditRows, 1)
})

t.test('pruning stands in no line for the table of definitions: nobody waits for it', async t => {
  const add = (executor: typeof db, text: string) =>
    sql`insert into tool_definition (hash, content, size_bytes) values (sha256(${text}::text::bytea), '{}', 2)`.execute(
      executor,
    )
  await add(db, 'unused')
  const writer = await db.startTransaction().execute()
  await add(writer as typeof db, 'held')
  const pruning = pruneHistory(db, history)
  for (let round = 0; round < 5; round++) await add(db, `beside ${round}`)
  t.equal((await pruning).definitions, 0, 'the writer is not cut')
  await writer.rollback().execute()
  t.equal((await pruneHistory(db, history)).definitions, 6)
})
