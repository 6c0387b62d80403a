import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import t from 'tap'
import { fairService, repeatedly, requireFairness } from './beside.js'
import { Callers } from './callers.js'
import { fairnessWorld, type Owner, owner } from './world.js'

const world = await fairnessWorld(t)
const service = await fairService(t, world)

t.test('row 4: forty updates of one locked agent', async t => {
  const holder = new pg.Client({ connectionString: world.url })
  await holder.connect()
  t.teardown(() => holder.end())
  const { attacker } = world
  let n = 0
  await requireFairness(t, world, service, async (over, callers) => {
    await holder.query('begin')
    await holder.query('select from persona where id = $1 for update', [attacker.agentId])
    const attacking = repeatedly(over, 40, 100, () => callers.update(attacker, { description: `${n++}` }))
    over.addEventListener('abort', () => void holder.query('rollback'))
    await attacking
  })
})

/** Enough to take every place in front of the pool. */
const OWN_AGENTS = 12

t.test('a caller who waits for many rows of their own leaves a place to the merge of another', async t => {
  const { client, victims } = world
  const attacker = await owner(client, 'alice+waiting@example.com', []) // with a minute of its own
  const [victim] = victims
  if (victim === undefined) throw new Error('the world has no quiet caller')
  const { rows: agents } = await client.query<{ id: number }>(
    `insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, owner_id)
    select 'own ' || n, '', 'auto', false, false, owner_id from persona, generate_series(1, $2) n where id = $1
    returning id`,
    [attacker.agentId, OWN_AGENTS],
  )
  const holder = new pg.Client({ connectionString: world.url })
  await holder.connect()
  t.teardown(() => holder.end())
  const callers = new Callers(service.port)
  t.teardown(() => callers.close())
  for (const description of ['second', 'third']) {
    t.equal((await callers.update(victim, { description })).status, 200)
  }
  const merged = () => merge(service.port, victim)
  t.equal(await merged(), 200, 'the control')
  await holder.query('begin')
  await holder.query('select from persona where id = any($1) for update', [agents.map(({ id }) => id)])
  let answered = 0
  const waiting = agents.map(async ({ id: agentId }) => {
    const { status } = await callers.update({ ...attacker, agentId }, { description: 'waits' })
    answered += 1
    return status
  })
  await untilSome(
    client,
    `select from pg_stat_activity where query like '%for no key update' and wait_event_type = 'Lock'`,
  )
  t.equal(await merged(), 200)
  t.equal(answered, 0, 'before anything of the other caller')
  await holder.query('rollback')
  t.strictSame(new Set(await Promise.all(waiting)), new Set([200]), 'then all of theirs')
})

/** A merge of the victim's own agent, into what came after its second version; answers the status. */
async function merge(port: number, { agentId, token }: Owner): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${port}/persona/${agentId}?update_mask=name`, {
    method: 'PATCH',
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'if-match': `"persona-${agentId}-2"`,
      prefer: 'merge=fields',
    },
    body: JSON.stringify({ name: 'merged' }),
  })
  await response.text()
  return response.status
}

/** Asks the database until it answers a row. */
async function untilSome(client: pg.Client, query: string): Promise<void> {
  while ((await client.query(query)).rows.length === 0) await sleep(20)
}
