import { type RawBuilder, sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { exportOrganisation } from '../../src/admin/export.js'
import { readConfig } from '../../src/config.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { worldApp } from '../app.js'
import { deleteTool } from '../deletion.js'

const { call, database, apply, query, alice } = await worldApp(t)
const { db } = database
const { history } = readConfig({})
for (const description of ['one', 'two', 'three', 'four'])
  await call('PATCH', '/persona/1?update_mask=description', { token: alice, body: { description } })

/** Runs statements, verifies the audit trail and rolls the statements back. Returns the findings. */
async function found(...statements: RawBuilder<unknown>[]): Promise<string[]> {
  const trx = await db.startTransaction().execute()
  for (const statement of statements) await statement.execute(trx)
  const { findings } = await verifyAudit(trx)
  await trx.rollback().execute()
  return findings.map(({ problem, kind, subject, version }) => `${problem} ${kind}:${subject} ${version}`)
}

const row = (version: number) =>
  sql`resource_kind = 'persona' and resource_id = 1 and version_after = ${sql.lit(version)}`

t.test('nothing is wrong before; each row is verified', async t => {
  const { chains, rows, since, ...rest } = await verifyAudit(db)
  t.ok(chains > 20 && rows >= chains + 4 && since !== null)
  t.same(rest, { unchained_rows: 0, findings: [] })
})

t.test('a row that was edited, also with the hash of its difference', async t => {
  for (const edit of [
    sql`at = at - interval '1 microsecond'`,
    sql`actor_id = gen_random_uuid()`,
    sql`token_id = coalesce(token_id, 0) + 1`,
    sql`command = 'agentctl apply'`,
    sql`fields = '{name}'`,
    sql`difference = '{"description":{"from":"one","to":"2"}}'`,
    sql`difference_hash = sha256('x')`,
    sql`at = 'infinity'`,
  ])
    t.same(await found(sql`update audit set ${edit} where ${row(3)}`), ['edited persona:1 3'])
  for (const hash of [sql`sha256('x')`, sql`null`])
    t.ok((await found(sql`update audit set hash = ${hash} where ${row(3)}`)).includes('edited persona:1 3'))
})

t.test('rows that were removed: the first, one in the middle, the last', async t => {
  t.same(await found(sql`delete from audit where ${row(1)}`), ['deleted persona:1 2'])
  t.same(await found(sql`delete from audit where ${row(3)}`), ['deleted persona:1 2'])
  t.same(await found(sql`delete from audit where ${row(5)}`), ['deleted persona:1 4'])
  t.same(await found(sql`update audit set hash = null, previous_hash = null where ${row(1)}`), ['deleted persona:1 2'])
  const renumbered = sql`
    update audit set version_after = version_after - 1, version_before = version_before - 1
    where resource_kind = 'persona' and resource_id = 1 and version_after > 3`
  t.ok((await found(sql`delete from audit where ${row(3)}`, renumbered)).includes('reordered persona:1 3'))
})

t.test('two rows that changed places, each with a hash that fits its content', async t => {
  const swapped = sql`
    update audit a set version_after = 7 - a.version_after, version_before = 5 - a.version_before
    where resource_kind = 'persona' and resource_id = 1 and version_after in (3, 4)`
  const told = await found(sql`alter table audit drop constraint audit_pk`, swapped)
  const reordered = told.filter(one => one.startsWith('reordered'))
  t.same(reordered, ['reordered persona:1 3', 'reordered persona:1 4', 'reordered persona:1 5'])
})

t.test('another head, a version too many or too few, an agent that is gone', async t => {
  t.same(await found(sql`update persona set audit_head = sha256('x') where id = 1`), ['head_mismatch persona:1 5'])
  t.same(await found(sql`update persona set version = version + 1 where id = 1`), ['deleted persona:1 5'])
  t.same(await found(sql`update persona set version = version - 1 where id = 1`), ['head_mismatch persona:1 4'])
  const freed = sql`set local session_replication_role = replica`
  t.same(await found(freed, sql`delete from persona where id = 1`), ['resource_missing persona:1 5'])
})

t.test('the text of a definition that was changed', async t => {
  const first = sql`(select min(hash::text)::bytea from tool_definition)`
  const changed = sql`update tool_definition set content = (content::text || ' ')::json where hash = ${first}`
  t.match(await found(changed), [/^edited tool_definition:[0-9a-f]{64} 0$/])
})

t.test('erasing and pruning are no tampering; what is left is still held', async t => {
  await eraseUser(db, 'alice@example.com')
  t.same(await found(), [])
  await pruneHistory(db, { ...history, versionsMax: 2 })
  t.same(await found(), [])
  t.same(await found(sql`update audit set fields = '{name}' where ${row(2)}`), ['edited persona:1 2'])
  await query`update audit set at = at - interval '1000 days' where ${row(1)} or ${row(2)}`
  await pruneHistory(db, history)
  t.same(await found(), [])
  t.same(await found(sql`delete from audit where ${row(3)}`), ['deleted persona:1 4'])
  await pruneHistory(db, { ...history, auditRetentionDays: 0 })
  t.same(await found(), [])
  t.equal((await verifyAudit(db)).rows, 0)
})

t.test('a tool that was deleted, and whose rows were pruned by age, comes back under its id', async t => {
  const { tools } = (await exportOrganisation(db)) as { tools: { id: number }[] }
  const id = 10
  await deleteTool(database, id)
  t.same(await found(), [])
  for (const days of [400, 0]) {
    await pruneHistory(db, { ...history, auditRetentionDays: days })
    await apply({ tools: tools.filter(tool => tool.id === id) })
    t.same(await found(), [], `kept for ${days} days`)
    await deleteTool(database, id)
  }
})
