import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import t from 'tap'
import { type Attack, FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { Callers } from './callers.js'
import { type FairnessWorld, fairnessWorld, type Owner, owner } from './world.js'

/** More than the pool has connections. */
const READS = 14

/** What a list of ids holds at most. */
const LIST_ITEMS = 1_000

/** So many ids make an update a large one. */
const HEAVY_IDS = 40

/** Agents that answer 1 to 3 MB, by their texts, by what they are linked with, and by what that holds. */
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
  connections: `with c as (insert into cc_pair (name, source, access_type)
      select 'connection ' || n, 'confluence', 'private' from generate_series(1, 300) n returning id),
    s as (insert into document_set (name, description, is_up_to_date, is_public)
      select 'wide set ' || n, '', true, true from generate_series(1, 40) n returning id),
    held as (insert into document_set_cc_pair select s.id, c.id from s, c)
    insert into persona_document_set (persona_id, document_set_id) select $1, id from s`,
}

const world = await fairnessWorld(t)

t.test('reads of a large agent at once take one connection, and others are served before them', async t => {
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

t.test('updates and reads of agents with thousands of ids', async t => {
  const lists = await fullLists(world)
  const service = await fairService(t, world, { RATE_LIMIT_BYTES_PER_MINUTE: '0', RATE_LIMIT_PER_MINUTE: '100000' })
  const callers = new Callers(service.port)
  t.teardown(() => callers.close())
  const { attacker, victims } = world
  const [victim] = victims
  if (victim === undefined) throw new Error('the world has no quiet caller')
  const agents = await agentsOf(world, attacker, 20)
  // Large enough for a place of its own, and little work.
  const few = { tool_ids: lists.tool_ids?.slice(0, HEAVY_IDS) }
  const dryRun = (agent: Owner) => callers.update(agent, few, '&dry_run=true')

  // One behind the other: what the attacks below are made with waits for the locks that these hold.
  await t.test('one of each token is at work, two in all', async t => {
    const others = victims.slice(1, 4)
    t.equal((await dryRun(attacker)).status, 200)
    const holder = await lockLabels(world)
    const attacking = agents.map(dryRun)
    await untilWaiting(world.client)
    t.equal(await waiting(world.client), 1, 'of one token')
    attacking.push(...others.map(dryRun))
    await untilWaiting(world.client, 2)
    t.equal(await waiting(world.client), 2, 'of four tokens')
    t.equal((await callers.send('GET', '/me', victim.token, '')).status, 200)
    await holder.query('rollback')
    await holder.end()
    const statuses = new Set((await Promise.all(attacking)).map(({ status }) => status))
    t.ok(statuses.delete(200))
    for (const status of [429, 503]) statuses.delete(status) // behind their own token's, or others': no turn came in time
    t.strictSame([...statuses], [])
  })

  await t.test('who waits for a row keeps no place from other tokens, and is the only one of its own', async t => {
    const [waiter, another, third] = victims
    const [own, ofOwn] = agents
    if (!(waiter && another && third && own && ofOwn)) throw new Error('too few agents')
    t.equal((await dryRun(third)).status, 200, 'the control')
    const holder = new pg.Client({ connectionString: world.url })
    await holder.connect()
    t.teardown(() => holder.end())
    const sinceMs = performance.now()
    await holder.query('begin')
    const waiters = [own, waiter, another]
    await holder.query('select from persona where id = any($1) for update', [waiters.map(({ agentId }) => agentId)])
    let answered = 0
    const noted = async (agent: Owner) => {
      const { status } = await dryRun(agent)
      answered += 1
      return status
    }
    const blocked = waiters.map(noted)
    await untilWaiting(world.client, waiters.length)
    t.equal((await dryRun(third)).status, 200)
    const next = noted(ofOwn)
    await sleep(2_000)
    t.equal(answered, 0, 'neither who waits, nor the next of a token that does')
    const blockedMs = performance.now() - sinceMs
    await holder.query('rollback')
    t.strictSame(await Promise.all([...blocked, next]), [200, 200, 200, 200])
    const afterMs = performance.now() - sinceMs - blockedMs
    t.ok(afterMs < blockedMs, `the wait of ${blockedMs} ms was not charged: the next was answered after ${afterMs} ms`)
  })

  await t.test('a wait in vain says for what: for others it is 503, for what the token sent itself 429', async t => {
    const waitMs = 600
    const hasty = await fairService(t, world, { LOCK_TIMEOUT_MS: String(waitMs), RATE_LIMIT_BYTES_PER_MINUTE: '0' })
    const callers = new Callers(hasty.port)
    t.teardown(() => callers.close())
    // Two of them at a time wait for the lock as long: in four rounds all but the last of these.
    const more = [0, 1, 2, 3].map(n => owner(world.client, `alice+waiting${n}@example.com`, []))
    const others = [...victims, ...(await Promise.all(more))].map(agent => {
      return () => callers.update(agent, few, '&dry_run=true')
    })
    const [one] = others
    const [own, next] = agents.map(agent => () => callers.update(agent, few, '&dry_run=true'))
    if (!(one && own && next)) throw new Error('too few agents')
    const statuses = await Promise.all([own, one].map(async update => (await update()).status))
    t.strictSame(statuses, [200, 200], 'the control')
    const holder = await lockLabels(world)
    t.teardown(() => holder.end())
    const first = own()
    await untilWaiting(world.client)
    // Each waits as long for the lock, and its token then rests as long: the last of them waits in vain for the others.
    const ofToken = await Promise.all([next(), next(), next(), next()])
    const [begun, ofOwn] = [await first, ofToken.find(({ status }) => status !== 503)]
    t.equal(begun.status, 503)
    t.match(JSON.parse(begun.body), { reason: 'overloaded', outcome: 'not_applied', detail: /another transaction/ })
    t.equal(ofOwn?.status, 429)
    t.match(JSON.parse(ofOwn?.body ?? ''), {
      error_code: 'RATE_LIMITED',
      detail: /^One large request of a token .*return=minimal/,
    })
    t.match(ofOwn?.headers, {
      'retry-after': /^[2-4]$/,
      'ratelimit-policy': '"token-requests";q=1;qu="concurrent-requests"',
      ratelimit: /^"token-requests";r=0;t=[2-4]$/,
    })
    const answers = await Promise.all(others.map(update => update()))
    t.strictSame(new Set(answers.map(({ status }) => status)), new Set([503]))
    t.ok(answers.some(({ body }) => /for one of the places for large requests/.test(body)))
  })

  await t.test('a client that hangs up leaves its place', async t => {
    const holder = await lockLabels(world)
    const body = JSON.stringify(few)
    const sockets = agents.map(({ token, agentId }) => {
      const path = `/persona/${agentId}?update_mask=tool_ids&dry_run=true`
      return sent(service.port, 'PATCH', path, token, body)
    })
    await untilWaiting(world.client)
    for (const socket of sockets) socket.destroy()
    await holder.query('rollback')
    await holder.end()
    for (const agent of [attacker, victim]) t.equal((await dryRun(agent)).status, 200)
  })

  const many = (atOnce: number, work: (agent: Owner, n: number, callers: Callers) => Promise<unknown>): Attack => {
    return (over, hostile) => inTurns(over, atOnce, (i, n) => work(agents[i % agents.length] ?? attacker, n, hostile))
  }
  const attacks: Record<string, Attack> = {
    'dry runs with five full lists, sixty at once': many(60, (agent, _, hostile) => {
      return hostile.update(agent, lists, '&dry_run=true')
    }),
  }
  if (FULL) {
    attacks['the same, three at once'] = many(3, (agent, _, hostile) => hostile.update(agent, lists, '&dry_run=true'))
    attacks['the same of one agent, beside thirty light updates of it'] = async (over, hostile) => {
      const light = inTurns(over, 30, (i, n) => hostile.update(attacker, { description: `${i} ${n}` }))
      const heavy = inTurns(over, 60, () => hostile.update(attacker, lists, '&dry_run=true'))
      await Promise.all([light, heavy])
    }
    const empty = Object.fromEntries(Object.keys(lists).map(name => [name, []]))
    attacks['the same stored, and removed, ten at once'] = many(10, (agent, n, hostile) => {
      return hostile.update(agent, n % 2 === 0 ? lists : empty)
    })
    const readers: Owner[] = []
    for (let i = 0; i < 10; i++) readers.push(await owner(world.client, `alice+holder${i}@example.com`, []))
    for (const reader of readers) await link(world, reader, lists)
    attacks['answers of ten tokens that nobody reads, twenty each'] = async over => {
      const sockets = readers.flatMap(({ token, agentId }) =>
        Array.from({ length: 20 }, () => sent(service.port, 'GET', `/persona/${agentId}`, token).pause()),
      )
      while (!over.aborted) await sleep(20)
      for (const socket of sockets) socket.destroy()
    }
    const [reader = attacker] = readers
    attacks['reads by one token, ten at once'] = (over, hostile) =>
      repeatedly(over, 10, 0, () => hostile.send('GET', `/persona/${reader.agentId}`, reader.token, ''))
  }
  for (const [name, attack] of Object.entries(attacks)) {
    t.test(name, async t => await requireFairness(t, world, service, attack))
  }
})

/** An update with five lists, each as long as it may be, of what was made for it. */
async function fullLists({ client }: FairnessWorld): Promise<Record<string, (number | string)[]>> {
  const made: Record<string, string> = {
    tool_ids: `tool (name) select 'listed ' || n`,
    label_ids: `label (name) select 'listed ' || n`,
    document_set_ids: `document_set (name, description, is_up_to_date, is_public) select 'listed ' || n, repeat('d', 2000), true, true`,
    users: `user_account (email, kind, permissions) select 'alice+listed' || n || '@example.com', 'person', '{basic}'`,
    groups: `user_group (name) select 'listed ' || n`,
  }
  const lists: Record<string, (number | string)[]> = {}
  for (const [field, insert] of Object.entries(made)) {
    const { rows } = await client.query(`insert into ${insert} from generate_series(1, $1) n returning id`, [
      LIST_ITEMS,
    ])
    lists[field] = rows.map(({ id }) => id)
  }
  await client.query('vacuum (analyze)')
  return lists
}

/** More agents of the same owner. */
async function agentsOf({ client }: FairnessWorld, { token, agentId }: Owner, count: number): Promise<Owner[]> {
  const { rows } = await client.query<{ id: number }>(
    `insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, owner_id, is_public)
    select 'agent', '', 'auto', false, false, owner_id, false
    from persona cross join generate_series(1, $2) where id = $1 returning id`,
    [agentId, count],
  )
  return rows.map(({ id }) => ({ token, agentId: id }))
}

/** Links an agent with all that the lists name. */
async function link({ client }: FairnessWorld, { agentId }: Owner, lists: Record<string, (number | string)[]>) {
  const tables: Record<string, string> = {
    tool_ids: 'persona_tool (persona_id, tool_id) select $1, unnest($2::integer[])',
    label_ids: 'persona_label (persona_id, label_id) select $1, unnest($2::integer[])',
    document_set_ids: 'persona_document_set (persona_id, document_set_id) select $1, unnest($2::integer[])',
    users: `persona_user (persona_id, user_id, level) select $1, unnest($2::uuid[]), 'viewer'`,
    groups: `persona_group (persona_id, user_group_id, level) select $1, unnest($2::integer[]), 'viewer'`,
  }
  for (const [field, insert] of Object.entries(tables))
    await client.query(`insert into ${insert}`, [agentId, lists[field]])
}

/** Repeats work until the attack is over, so many at once. Each is told which of them it is, and how often it was done. */
async function inTurns(over: AbortSignal, atOnce: number, work: (place: number, n: number) => Promise<unknown>) {
  const run = async (_: unknown, place: number) => {
    let n = 0
    await repeatedly(over, 1, 0, () => work(place, n++))
  }
  await Promise.all(Array.from({ length: atOnce }, run))
}

/** A connection on which one request was sent. */
function sent(port: number, method: string, path: string, token: string, body = ''): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined)
  socket.write(
    [
      `${method} ${path} HTTP/1.1`,
      'Host: localhost',
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
      `Content-Length: ${Buffer.byteLength(body)}`,
      '',
      body,
    ].join('\r\n'),
  )
  return socket
}

/** Holds what every snapshot reads, and no authentication. */
async function lockLabels({ url }: FairnessWorld): Promise<pg.Client> {
  const holder = new pg.Client({ connectionString: url })
  await holder.connect()
  await holder.query('begin')
  await holder.query('lock table label in access exclusive mode')
  return holder
}

/** Resolves when so many wait inside the database, and the others have had time to come. */
async function untilWaiting(client: pg.Client, count = 1): Promise<void> {
  while ((await waiting(client)) < count) await sleep(20)
  await sleep(300)
}

async function waiting(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `select count(*)::integer from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
  )
  return rows[0]?.count ?? 0
}
