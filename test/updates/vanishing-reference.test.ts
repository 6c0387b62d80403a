import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { hashOfEverything } from './stored-state.js'

t.test('422 for a reference that is deleted while the update attaches it', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  for (const [kind, table, id, method, url, body] of [
    ['label', 'label', 3, 'PATCH', '/persona/1?update_mask=label_ids', { label_ids: [2, 3] }],
    ['document set', 'document_set', 3, 'PATCH', '/persona/1?update_mask=document_set_ids', { document_set_ids: [3] }],
    ['OAuth configuration', 'oauth_config', 2, 'PUT', '/admin/tool/custom/10', { oauth_config_id: 2 }],
  ] as const) {
    const trx = await database.db.startTransaction().execute()
    await sql`delete from ${sql.table(table)} where id = ${id}`.execute(trx)
    const asked = call(method, url, { token: admin, body })
    await untilOneWaits(database.db)
    await trx.commit().execute()
    const before = await hashOfEverything(database.db)
    const answer = await asked
    t.equal(answer.statusCode, 422, `${kind}: ${answer.body}`)
    t.match(answer.json(), { detail: [{ type: 'not_found' }] })
    t.same(await hashOfEverything(database.db), before)
  }
})

/** Resolves when a statement waits for the lock of another. */
async function untilOneWaits(db: Parameters<typeof hashOfEverything>[0]): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    const { rows } = await sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`.execute(db)
    if (rows.length > 0) return
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  throw new Error('nobody waits')
}
