import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import t from 'tap'
import { fairService } from './beside.js'
import { Callers } from './callers.js'
import { type FairnessWorld, fairnessWorld, type Owner, owner } from './world.js'

/** More than the pool has connections. */
const READS = 24

/** Agents that answer 3 MB and 1 MB, by their texts and by what they are linked with. */
const LARGE: Record<string, string> = {
  texts: `update persona set system_prompt = repeat(chr(1), 256000), task_prompt = repeat(chr(1), 256000) where id = $1`,
  links: `with s as (insert into document_set (name, description, is_up_to_date, is_public)
      select 'set ' || n, '', true, true from generate_series(1, 1000) n returning id),
    l as (insert into label (name) select 'label ' || n from generate_series(1, 1000) n returning id),
    u as (insert into user_account (email, kind, permissions)
      select 'alice+reader' || n || '@example.com', 'person', '{basic}' from generate_series(1, 150) n returning id),
    shared as (insert into persona_user (persona_id, user_id, level) select $1, id, 'viewer' from u),
    linked as (insert into persona_document_set (persona_id, document_set_id) select $1, id from s)
    insert into persona_label (persona_id, label_id) select $1, id from l`,
}

t.test('reads of a large agent at once take one connection, and others are served before them', async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const callers = new Callers(service.port)
  t.teardown(() => callers.close())
  const [victim] = world.victims
  if (victim === undefined) throw new Error('the world has no quiet caller')
  const read = ({ token, agentId }: Owner, query = '') => callers.send('GET', `/persona/${agentId}${query}`, token, '')

  for (const [what, change] of Object.entries(LARGE)) {
    t.test(`large by its ${what}`, async t => {
      const large = await owner(world.client, `alice+${what}@example.com`, [])
      await world.client.query(change, [large.agentId])
      const before = await read(large)
      t.equal(before.status, 200)
      t.ok(before.body.length > 2 ** 20 / 10, `${before.body.length} bytes`)

      const holder = await lockLabels(world)
      let served = 0
      const reads = Array.from({ length: READS }, async () => {
        const { status } = await read(large)
        if (status === 200) served += 1
        return status
      })
      await untilWaiting(world.client)
      t.equal((await callers.send('GET', '/me', victim.token, '')).status, 200)
      t.equal(await waiting(world.client), 1)
      t.equal(served, 0)
      await holder.query('rollback')
      await holder.end()
      const refused = (await Promise.all(reads)).filter(status => status !== 200)
      t.ok(served > 0)
      t.strictSame(
        refused.filter(status => status !== 429 && status !== 503),
        [],
        'for the memory of one token, or in time',
      )

      t.equal((await read({ ...victim, agentId: large.agentId })).status, 404, 'of others it is not there')
      t.equal((await read(large, '?view=update')).status, 200)
      const updated = await callers.update(large, { description: 'updated' })
      t.equal(updated.status, 200)
      const expected = { ...JSON.parse(before.body), description: 'updated' }
      t.strictSame(JSON.parse(updated.body), expected)
      t.equal((await callers.update({ ...victim, agentId: large.agentId }, { description: '' })).status, 404)
    })
  }
})

/** Holds what every snapshot reads, and no authentication. */
async function lockLabels({ url }: FairnessWorld): Promise<pg.Client> {
  const holder = new pg.Client({ connectionString: url })
  await holder.connect()
  await holder.query('begin')
  await holder.query('lock table label in access exclusive mode')
  return holder
}

async function untilWaiting(client: pg.Client): Promise<void> {
  while ((await waiting(client)) === 0) await sleep(20)
  await sleep(300) // for the others to come
}

async function waiting(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `select count(*)::integer from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
  )
  return rows[0]?.count ?? 0
}
