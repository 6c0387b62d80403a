import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { operatorActor } from '../../src/admin/operator.js'
import { readBacklog } from '../../src/changes/feed.js'
import { personaResource } from '../../src/persona/resource.js'
import { decisionFor } from '../../src/persona/rules.js'
import { changeAsOperator } from '../../src/updates/engine.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { appOver } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { untilPublished } from '../eventually.js'
import { ALICE, BOB } from '../fixtures/users.js'
import { historyWorld } from '../history/world.js'

/* Tests of the feed of changes. Open transactions of other tests on the server delay the feed, so each read first waits for the changes. */

interface Change {
  kind: string
  id: number
  version: number
  action: string
  fields?: string[]
  actor?: object
}
interface Page {
  changes: Change[]
  next: string
}

const world = await historyWorld(t)
const { database, url, query, token, get, patch, agentOf, toolOf, remove, alice, bob, admin } = world
const carol = await token('carol@example.com')

async function page(of: string, after?: string, more = '', call = world.call): Promise<Page> {
  const answer = await call('GET', `/changes?${after === undefined ? '' : `after=${after}`}${more}`, { token: of })
  if (answer.statusCode !== 200) throw new Error(answer.body)
  return answer.json()
}

const now = async () => (await page(alice)).next

/** Reads all changes after a cursor with the token `of`, in pages of `limit`. */
async function readAll(of: string, after: string, limit = 100): Promise<Change[]> {
  await untilPublished(database.db)
  const all: Change[] = []
  for (let next = after; ; ) {
    const found = await page(of, next, `&limit=${limit}`)
    all.push(...found.changes)
    if (found.next === next) return all
    next = found.next
  }
}

const summary = (changes: Change[]) =>
  changes.map(({ kind, id, version, action }) => `${kind} ${id} v${version} ${action}`)

t.test('after=-2 begins with the newest two changes of everybody, and so shows nothing of others', async t => {
  const [mine, others] = [await agentOf(), await agentOf()]
  await patch(mine, { description: 'newest' })
  await untilPublished(database.db)
  const shown = async (of: string) => summary((await page(of, '-2')).changes)
  t.strictSame(await shown(alice), [`persona ${others} v1 created`, `persona ${mine} v2 updated`])
  t.strictSame(await shown(carol), [])
  t.strictSame((await readAll(alice, '-999999')).length, (await readAll(alice, 'first')).length)
})

t.test('each caller learns of the changes of what they see, and of the one that ends it', async t => {
  const begin = await now()
  const id = await agentOf()
  await untilPublished(database.db)
  const callers = { alice, bob, carol, admin }
  let after = await now()
  const steps: [step: () => Promise<unknown>, seen: Partial<Record<keyof typeof callers, string>>][] = [
    [() => patch(id, { users: [BOB] }), { alice: 'updated', bob: 'updated', admin: 'updated' }],
    [() => patch(id, { description: 'a' }), { alice: 'updated', bob: 'updated', admin: 'updated' }],
    [() => patch(id, { users: [] }), { alice: 'updated', bob: 'gone', admin: 'updated' }],
    [() => patch(id, { description: 'b' }), { alice: 'updated', admin: 'updated' }],
    [() => patch(id, { is_public: true }), { alice: 'updated', bob: 'updated', carol: 'updated', admin: 'updated' }],
    [
      () => patch(id, { is_public: false, groups: [2] }), // Bob is a member of group 2, Sales
      { alice: 'updated', bob: 'updated', carol: 'gone', admin: 'updated' },
    ],
    [() => patch(id, { groups: [] }), { alice: 'updated', bob: 'gone', admin: 'updated' }],
    [() => patch(id, { is_public: true }), { alice: 'updated', bob: 'updated', carol: 'updated', admin: 'updated' }],
    [() => remove(`/persona/${id}`), { alice: 'deleted', bob: 'deleted', carol: 'deleted', admin: 'deleted' }],
    [() => world.restore(`/persona/${id}`, 1), { alice: 'restored', admin: 'restored' }],
    [
      () => agentctl({ url, args: ['agent', 'owner', String(id), '--to', 'bob@example.com'] }),
      { alice: 'gone', bob: 'applied', admin: 'applied' },
    ],
  ]
  let version = 1
  for (const [step, seen] of steps) {
    version++
    await step()
    await untilPublished(database.db)
    for (const [name, of] of Object.entries(callers)) {
      const action = seen[name as keyof typeof callers]
      const wanted = action === undefined ? [] : [`persona ${id} v${version} ${action}`]
      t.strictSame(summary((await page(of, after)).changes), wanted, `${name}, version ${version}`)
    }
    after = await now()
  }
  // A reader who starts late gets `gone` for the version that hid the agent from them, and none of the changes that were hidden from them.
  const late = (of: string) =>
    readAll(of, begin).then(changes => changes.map(({ version, action }) => `${version} ${action}`))
  t.strictSame(await late(carol), ['7 gone', '10 deleted'])
  t.strictSame((await late(admin)).length, version)
})

t.test('fields and author are for those who may edit', async t => {
  const begin = await now()
  const id = await agentOf()
  await patch(id, { users: [BOB] })
  const tool = await toolOf()
  await world.put(tool, { description: 'other' })
  await remove(`/admin/tool/custom/${tool}`, admin)
  const editors = { 'user of the agent': bob, owner: alice, administrator: admin }
  const whole: Record<string, object> = {}
  for (const [name, of] of Object.entries(editors)) {
    const changes = await readAll(of, begin)
    whole[name] = changes.map(({ kind, action, version, fields, actor }) => [
      kind,
      action,
      version,
      fields ?? null,
      actor ?? null,
    ])
  }
  const byAlice = { id: ALICE, email: 'alice@example.com' }
  const byAdmin = { id: 'a0000000-0000-4000-8000-000000000001', email: 'admin@example.com' }
  const plain = (of: object, kind: string) => (of as unknown[][]).map(one => (one[0] === kind ? one : one.slice(0, 3)))
  const made = ['name', 'description', 'num_chunks', 'recency_bias', 'system_prompt', 'task_prompt', 'owner_id']
  t.match(whole.administrator, [
    ['persona', 'created', 1, made, byAlice],
    ['persona', 'updated', 2, ['users'], byAlice],
    ['tool', 'created', 1, ['name', 'definition', 'user_id'], byAdmin],
    ['tool', 'updated', 2, ['description'], byAdmin],
    ['tool', 'deleted', 3, ['definition', 'removed'], byAdmin],
  ])
  t.strictSame(plain(whole.owner ?? [], 'persona'), plain(whole.administrator ?? [], 'persona'))
  t.ok((whole.owner as unknown[][]).every(one => one[0] === 'persona' || one[3] === null))
  t.ok((whole['user of the agent'] as unknown[][]).every(one => one[3] === null && one[4] === null))
  await world.makeBobEditor(id)
  t.match((await readAll(bob, begin))[1], { fields: ['users'], actor: byAlice })
  t.notMatch(JSON.stringify(whole), /other/)
  await agentctl({ url, args: ['user', 'create', 'dora@example.com'] })
  const hers = await agentOf({ is_public: true }, await token('dora@example.com'))
  await agentctl({ url, args: ['user', 'erase', 'dora@example.com', '--yes'] })
  const created = (await readAll(admin, begin)).find(({ kind, id: agent }) => kind === 'persona' && agent === hers)
  t.match(created?.actor, { email: /erased\.invalid$/ })
})

t.test('a token that is bound learns of its own; a kind can be chosen; pages follow each other', async t => {
  const begin = await now()
  const [first, second] = [await agentOf(), await agentOf()]
  const tool = await toolOf()
  const bound = await token('alice@example.com', { personaIds: [second] })
  const boundToTool = await token('admin@example.com', { toolIds: [tool] })
  t.strictSame(summary(await readAll(bound, begin)), [`persona ${second} v1 created`])
  t.strictSame(summary(await readAll(boundToTool, begin)), [`tool ${tool} v1 created`])
  t.strictSame(summary((await page(admin, begin, '&kind=tool')).changes), [`tool ${tool} v1 created`])
  const all = summary(await readAll(admin, begin))
  t.strictSame(all, [`persona ${first} v1 created`, `persona ${second} v1 created`, `tool ${tool} v1 created`])
  t.strictSame(summary(await readAll(admin, begin, 1)), all)
  t.strictSame(summary(await readAll(bound, begin, 1)), [`persona ${second} v1 created`])
  for (const query of ['limit=1001', 'kind=label', 'wait=61'])
    t.equal((await get(`/changes?${query}`)).statusCode, 422, query)
})

t.test('a token that is bound to an agent learns of the tools on it while its user sees the agent', async t => {
  const begin = await now()
  const tool = await toolOf()
  const agent = await agentOf({ tool_ids: [tool] })
  const bound = await token('alice@example.com', { personaIds: [agent] })
  const other = await token('bob@example.com', { personaIds: [agent] })
  await world.put(tool, { description: 'other' })
  t.strictSame(summary(await readAll(bound, begin)), [
    `tool ${tool} v1 created`,
    `persona ${agent} v1 created`,
    `tool ${tool} v2 updated`,
  ])
  t.strictSame(await readAll(other, begin), [])
  await patch(agent, { tool_ids: [] })
  t.notMatch(JSON.stringify(await readAll(bound, begin)), '"tool"')
})

t.test('422 for an `after` that is not a cursor', async t => {
  const cursor = await now()
  for (const after of ['', 'junk', '1.2.3', `${cursor}%20`, cursor.toUpperCase().replace(/^\d/, 'A')]) {
    const answer = await get(`/changes?after=${after}`)
    t.match([answer.statusCode, answer.json()], [422, { detail: [{ loc: ['query', 'after'] }] }], after)
  }
})

t.test('410 for a cursor beyond the newest change, as after a standby without the last commits took over', async t => {
  await untilPublished(database.db)
  const [feed, transaction, place] = (await now()).split('.')
  const ahead = [`${feed}.${Number(transaction) + 50}.0`, `${feed}.${transaction}.${Number(place) + 1}`]
  for (const after of [...ahead, `${feed}.${'9'.repeat(18)}.1`])
    t.match((await get(`/changes?after=${after}`)).json(), { error_code: 'CURSOR_GONE' }, after)
  t.equal((await get(`/changes?after=${feed}.${transaction}.${place}`)).statusCode, 200)
})

async function held(agent: number, description: string) {
  const trx = await database.db.startTransaction().execute()
  const decide = (state: Parameters<typeof decisionFor>[0]) => decisionFor(state, { ...state, description })
  await changeAsOperator(trx, personaResource, agent, decide, operatorActor('held'))
  return trx
}

t.test('changes come in the order of their transactions, after the oldest has ended', async t => {
  const agents: number[] = []
  for (let i = 0; i < 8; i++) agents.push(await agentOf())
  await untilPublished(database.db)
  const begin = await now()
  const writers: Awaited<ReturnType<typeof held>>[] = []
  for (const agent of agents) writers.push(await held(agent, 'first'))
  for (const writer of writers.slice(1).reverse()) {
    await writer.commit().execute()
    t.strictSame(await page(admin, begin), { changes: [], next: begin })
    t.equal(await now(), begin)
  }
  t.ok((await readBacklog(database.db)).lag_s > 0, 'what the alert looks at')
  await writers[0]?.commit().execute()
  const wanted = agents.map(id => `persona ${id} v2 applied`)
  t.strictSame(summary(await readAll(admin, begin, 3)), wanted)
})

t.test('the lag is that of a proposal too', async t => {
  const [agent, another] = [await agentOf(), await agentOf()]
  await untilPublished(database.db)
  const writer = await held(another, 'first')
  t.equal((await readBacklog(database.db)).lag_s, 0)
  const sent = { token: alice, body: { name: 'B' }, headers: { 'if-match': `"persona-${agent}-1"` } }
  t.equal((await world.call('PATCH', `/persona/${agent}?update_mask=name&propose=true`, sent)).statusCode, 202)
  t.ok((await readBacklog(database.db)).lag_s > 0)
  await writer.rollback().execute()
})

t.test('nothing is missed and nothing comes twice beside eight writers that hold transactions', async t => {
  const agents: number[] = []
  for (let i = 0; i < 16; i++) agents.push(await agentOf())
  await untilPublished(database.db)
  const begin = await now()
  const seen: Change[] = []
  const follow = async () => {
    for (let after = begin; seen.length < 8 * 18; ) {
      const found = await page(admin, after, '&limit=3')
      seen.push(...found.changes)
      after = found.next
    }
  }
  const writes = agents.slice(8).map(async (agent, index) => {
    for (let round = 0; round < 10; round++) {
      const writer = await held(agent, `round ${round}`)
      await patch(agents[index] ?? 0, { task_prompt: `${round}` })
      await sleep(((index * 7 + round * 5) % 11) * 4)
      await (round % 5 === 4 ? writer.rollback() : writer.commit()).execute()
    }
  })
  await Promise.all([follow(), ...writes])
  const rows = await query<{ place: [number, number] }>`select array[resource_id, version_after] as place from audit
    where resource_kind = 'persona' and resource_id = any(${agents}) and version_after > 1 order by transaction_id, place`
  t.strictSame(
    seen.map(({ id, version }) => [id, version]),
    rows.map(({ place }) => place),
  )
})

t.test('at most 1,000 changes are looked at for a page: it is empty, and its next goes on', async t => {
  const begin = await now()
  const last = await agentOf()
  await query`
    insert into audit (resource_kind, resource_id, version_before, version_after, at, request_id, client_address, fields, difference_bytes, difference_hash)
    select 'persona', 3, v, v + 1, now(), 'r', 'c', '{}', 0, '' from generate_series(100, 2600) v`
  const shared = await agentOf({ is_public: true })
  await untilPublished(database.db)
  const pages: string[][] = []
  for (let next = begin; pages.length < 4; ) {
    const found = await page(alice, next)
    pages.push(summary(found.changes))
    next = found.next
  }
  t.strictSame(pages, [[`persona ${last} v1 created`], [], [`persona ${shared} v1 created`], []])
  await query`delete from audit where resource_id = 3 and version_after > 100`
})

t.test('410 for a cursor whose changes are pruned, not for the last of them; a restart changes nothing', async t => {
  const begin = await now()
  const agents = [await agentOf(), await agentOf()]
  await untilPublished(database.db)
  const [first, both] = [(await page(alice, begin, '&limit=1')).next, await now()]
  await query`update audit set at = at - interval '800 days' where resource_id = any(${agents}) and resource_kind = 'persona'`
  await pruneHistory(database.db, { auditRetentionDays: 400, versionsMax: 100 })
  for (const after of [begin, first])
    t.match((await get(`/changes?after=${after}`)).json(), { error_code: 'CURSOR_GONE' })
  t.strictSame(await page(alice, both), { changes: [], next: both })
  const again = await appOver(t, database)
  const id = await agentOf()
  await untilPublished(database.db)
  for (const after of [both, 'first'])
    t.strictSame(summary((await page(alice, after, '', again.call)).changes), [`persona ${id} v1 created`], after)
})

t.test('410 after agentctl changes reset, and where the database is another: the feed goes on', async t => {
  for (const isReset of [true, false]) {
    const before = await now()
    await agentOf()
    if (isReset)
      t.match(await agentctl({ url, args: ['changes', 'reset'] }), { stdout: /^the feed of changes was reset: / })
    else await query`update change_feed set system_identifier = 1` // as in a database restored from another server's dump
    const { call } = await appOver(t, database)
    const answer = await call('GET', `/changes?after=${before}`, { token: alice })
    t.match([answer.statusCode, answer.json()], [410, { error_code: 'CURSOR_GONE' }])
    const after = await now()
    t.match(after, /\.0\.0$/, 'what was stored before is not in the feed')
    const id = await agentOf()
    await untilPublished(database.db)
    t.strictSame(summary((await page(alice, after)).changes), [`persona ${id} v1 created`])
  }
})
