import { setTimeout as sleep } from 'node:timers/promises'
import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { definitionOf } from '../../bench/world.js'
import { mintToken } from '../../src/auth/token.js'
import { sha256 } from '../../src/updates/audit.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { BOB, CAROL } from '../fixtures/users.js'
import { storedAgent, storedTool } from './stored-state.js'

/* Updates that are asked at once: what must then be as if each had been written alone. */

const AGENTS = [1, 2, 3, 4, 5, 8, 9, 10]
const TOOLS = [10, 11, 12, 13, 15, 16, 17, 20]
// Behind PgBouncer the timeouts travel with the statements, in transactions of their own.
const isPooled = process.env.TEST_POOLER_URL !== undefined

const world = await worldApp(t)
const { db } = world.database
const token = await world.token('admin@example.com')
const patch = (id: number, body: object, headers = {}) =>
  world.call('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, { token, body, headers })
const put = (id: number, body: object, query = '') =>
  world.call('PUT', `/admin/tool/custom/${id}${query}`, { token, body })

t.test('200 for different relations and shares of different agents at once: each gets its own', async t => {
  const full = { label_ids: [1, 2, 3], tool_ids: [10, 11, 13], document_set_ids: [1, 2], users: [BOB, CAROL] }
  for (const id of AGENTS) t.equal((await patch(id, full)).statusCode, 200)
  await sql`update persona_user set level = case when persona_id % 2 = 0 then 'editor' else 'viewer' end`.execute(db)
  // What each keeps is another part.
  const kept = (id: number) => ({ label_ids: [1 + (id % 3)], tool_ids: id % 2 ? [10] : [], document_set_ids: [1] })
  const answers = await Promise.all(AGENTS.map(id => patch(id, { ...kept(id), users: id % 3 ? [BOB] : [CAROL] })))
  for (const [i, id] of AGENTS.entries()) {
    t.equal(answers[i]?.statusCode, 200, String(answers[i]?.body))
    const stored = await storedAgent(world, id)
    t.match(stored, kept(id))
    t.match(answers[i]?.json().labels, [{ id: kept(id).label_ids[0] }])
    // Bob owns agents 3 and 4: an owner has no share.
    const share = { id: id % 3 ? BOB : CAROL, level: id % 2 === 0 ? 'editor' : 'viewer' }
    t.same(stored.users, id === 4 ? [] : [share])
  }
})

t.test('200 for definitions and headers of several tools at once: each gets its own', async t => {
  // Two of each definition, so that one statement stores the same new one twice; 0 to 3 headers each.
  const body = (id: number, round: number) => ({
    name: `tool ${id} ${round}`,
    definition: definitionOf(2 + (id % 4) + round),
    custom_headers: Array.from({ length: (id + round) % 4 }, (_, i) => ({
      key: `X-${i}`,
      value: `${id} ${i} ${round}`,
    })),
  })
  for (const round of [0, 1]) {
    const answers = await Promise.all(TOOLS.map(id => put(id, body(id, round))))
    for (const [i, id] of TOOLS.entries()) {
      const { name, definition, custom_headers: headers } = body(id, round)
      t.match(answers[i]?.json(), { id, name, definition, custom_headers: headers.map(({ key }) => ({ key })) })
      const stored = await storedTool(world, id)
      t.equal(stored.definition, JSON.stringify(definition))
      const names = stored.headers.map(header => header.name)
      t.strictSame(
        names,
        headers.map(({ key }) => key),
      )
    }
  }
})

t.test('an update that the database refuses fails alone: those beside it are written', async t => {
  await sql`create function refuse() returns trigger language plpgsql as
    $$begin raise exception 'this row is not to be written'; end$$`.execute(db)
  await sql`create trigger refuse before update on persona for each row when (new.description like '%refuse%')
    execute function refuse()`.execute(db)
  const texts = AGENTS.map(id => (id === 4 ? 'refuse this' : `written ${id}`))
  const answers = await Promise.all(AGENTS.map((id, i) => patch(id, { description: texts[i] })))
  t.same(
    answers.map(answer => answer.statusCode),
    AGENTS.map(id => (id === 4 ? 500 : 200)),
  )
  for (const [i, id] of AGENTS.entries())
    t.equal((await storedAgent(world, id)).description === texts[i], id !== 4, `agent ${id}`)
  await sql`drop trigger refuse on persona`.execute(db)
})

/**
 * While another transaction holds what one request needs, others of the same turn are answered; then it ends, and so does the
 * request, with the status.
 */
async function waitsAlone(
  t: Test,
  [text, ending]: [string, 'commit' | 'rollback'],
  one: () => Promise<LightMyRequestResponse>,
  others: () => Promise<LightMyRequestResponse>[],
  status = 200,
) {
  const holding = await db.startTransaction().execute()
  await sql.raw(text).execute(holding)
  let ended = false
  const waiting = one().finally(() => {
    ended = true
  })
  for (const answer of await Promise.all(others())) t.equal(answer.statusCode, 200, answer.body)
  t.equal(ended, false, 'the one still waits')
  await untilWaiting()
  await holding[ending]().execute()
  const answer = await waiting
  t.equal(answer.statusCode, status, answer.body)
}

async function untilWaiting(): Promise<void> {
  const waiting = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  while ((await waiting.execute(db)).rows.length === 0) await sleep(20)
}

t.test(
  'an update that waits for another transaction waits alone: a label that is deleted, attached or taken off',
  async t => {
    const [agent = 1, ...others] = AGENTS
    for (const id of AGENTS) t.equal((await patch(id, { label_ids: [1, 2] })).statusCode, 200)
    const describe = () => others.map(id => patch(id, { description: 'past it' }))
    const attach = () => patch(agent, { label_ids: [1, 2, 3] })
    await waitsAlone(t, ['delete from label where id = 3', 'commit'], attach, describe, 422)
    const takeOff = () => others.map(id => patch(id, { label_ids: [2] }))
    const link = `delete from persona_label where persona_id = ${agent} and label_id = 1`
    await waitsAlone(t, [link, 'commit'], () => patch(agent, { label_ids: [2] }), takeOff)
    for (const id of AGENTS) t.same((await storedAgent(world, id)).label_ids, [2])
  },
)

t.test(
  'so does a definition that another transaction stores, seen in a dry run alone, or stored once and pruned',
  async t => {
    let editions = 0
    const newDefinition = () => definitionOf(1, `Edition ${++editions} of ${process.pid}`)
    const [rehearsed, known, pruned] = [newDefinition(), newDefinition(), newDefinition()]
    t.equal((await put(10, { definition: rehearsed }, '?dry_run=true')).statusCode, 200)
    for (const definition of [known, pruned, newDefinition()]) t.equal((await put(10, { definition })).statusCode, 200)
    await sql`update audit set definition_before = null, difference = null
    where encode(definition_before, 'hex') = ${sha256(JSON.stringify(pruned))}`.execute(db)
    await sql`delete from tool_definition where encode(hash, 'hex') = ${sha256(JSON.stringify(pruned))}`.execute(db)
    for (const definition of [rehearsed, pruned]) {
      const text = JSON.stringify(definition)
      const store = `insert into tool_definition (hash, content, size_bytes)
      values (decode('${sha256(text)}', 'hex'), '${text}', ${text.length})`
      const others = () => TOOLS.slice(1).map(id => put(id, { definition: known }))
      await waitsAlone(t, [store, 'rollback'], () => put(10, { definition }), others)
      t.equal((await storedTool(world, 10)).definition, text)
    }
  },
)

const ALICES_AGENT = 1
const TOOL = 10
const ITEMS = definitionOf(10)
const VALIDATE = '/admin/tool/custom/validate'

t.test('round trips to the database, authentication included, when nobody else is at the same row', async t => {
  const { call, token, database } = await worldApp(t)
  const alice = await token('alice@example.com')
  const admin = await token('admin@example.com')
  const updateAgent = (fields: object, query = '', as = alice, headers = {}) =>
    call('PATCH', `/persona/${ALICES_AGENT}${query}`, { token: as, body: { ...REQUIRED_FIELDS, ...fields }, headers })
  const updateTool = (fields: object, query = '') =>
    call('PUT', `/admin/tool/custom/${TOOL}${query}`, { token: admin, body: fields })
  const validate = (definition: unknown) => call('POST', VALIDATE, { token: admin, body: { definition } })

  // The first use of a token is written down once a minute, beside the request.
  await updateAgent({})
  await updateTool({ definition: ITEMS, custom_headers: [{ key: 'X-Key', value: 'one' }] })
  await validate(ITEMS)

  const counted = async (answer: () => Promise<LightMyRequestResponse>) => {
    const before = { ...database.counters }
    const { statusCode } = await answer()
    return { statusCode, statements: database.counters.statements - before.statements }
  }
  const change = (fields: object, query = '', headers = {}) =>
    call('PATCH', `/persona/${ALICES_AGENT}?update_mask=${Object.keys(fields)}${query}`, {
      token: alice,
      body: fields,
      headers,
    })
  await change({}) // definitions are kept now
  const unknown = mintToken('person').token
  const headers = [{ key: 'X-Key', value: 'two' }]
  const cases: [string, () => Promise<LightMyRequestResponse>, status: number, statements: number][] = [
    ['an agent update that changes a column', () => change({ description: 'two' }), 200, 2],
    ['return=minimal', () => change({ description: 'three' }, '', { prefer: 'return=minimal' }), 204, 2],
    ['with a key', () => change({ description: 'four' }, '', { 'idempotency-key': 'one' }), 200, 9],
    ['new labels', () => change({ label_ids: [1, 2] }), 200, 8],
    ['fewer labels', () => change({ label_ids: [1] }), 200, 7],
    ['an agent update that changes nothing', () => change({ label_ids: [1] }), 200, 2],
    ['a dry run', () => change({ description: 'five' }, '&dry_run=true'), 200, 2],
    ['a read of an agent', () => call('GET', `/persona/${ALICES_AGENT}`, { token: alice }), 200, 1],
    ['a tool update', () => updateTool({ name: 'two' }), 200, 2],
    ['a new definition', () => updateTool({ definition: definitionOf(11) }), 200, 3],
    ['headers', () => updateTool({ custom_headers: headers }), 200, 8],
    ['a tool update that changes nothing', () => updateTool({}), 200, 2],
    ['a validation', () => validate(ITEMS), 200, 1],
    ['a faulty agent update', () => updateAgent({ num_chunks: 'many' }), 422, 1],
    ['a faulty definition', () => validate({}), 422, 1],
    ['an unknown token', () => updateAgent({}, '', unknown), 401, 1],
    ['a token whose checksum is wrong', () => updateAgent({}, '', `pat_${'0'.repeat(28)}`), 401, 0],
    ['no token', () => call('PATCH', '/persona/1', { body: REQUIRED_FIELDS }), 401, 0],
  ]
  for (const [what, request, statusCode, statements] of cases)
    t.match(await counted(request), { statusCode, statements: isPooled ? Number : statements }, what)
})

t.test('what an update does not change is not written', async t => {
  const { call, token, database } = await worldApp(t)
  const alice = await token('alice@example.com')
  const admin = await token('admin@example.com')
  const agent = { ...REQUIRED_FIELDS, tool_ids: [10, 13], label_ids: [1, 2] }
  const tool = { definition: ITEMS, custom_headers: [{ key: 'X-Key', value: 'one' }] }
  const updateAgent = (fields: object) =>
    call('PATCH', `/persona/${ALICES_AGENT}`, { token: alice, body: { ...agent, ...fields } })
  const updateTool = (fields: object) => call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: fields })
  /** Where each row version lies and which transaction wrote it: any write, even of equal values, moves it. */
  const places = async () => {
    const list = (table: string, where: string) =>
      sql.raw(`(select json_agg(ctid || ' ' || xmin order by ctid) from ${table} where ${where})`)
    const { rows } = await sql<Record<string, unknown>>`select
      ${list('persona', `id = ${ALICES_AGENT}`)} as agent,
      ${list('persona_tool', `persona_id = ${ALICES_AGENT}`)} as tools,
      ${list('persona_document_set', `persona_id = ${ALICES_AGENT}`)} as document_sets,
      ${list('persona_label', `persona_id = ${ALICES_AGENT}`)} as labels,
      ${list('tool', `id = ${TOOL}`)} as tool,
      ${list('tool_header', `tool_id = ${TOOL}`)} as headers,
      ${list('tool_definition', 'true')} as definitions,
      ${list('audit', 'true')} as audit`.execute(database.db)
    return rows[0] ?? {}
  }
  const movedBy = async (update: () => Promise<LightMyRequestResponse>) => {
    const before = await places()
    const { statusCode, body } = await update()
    if (statusCode !== 200) throw new Error(body)
    const after = await places()
    return Object.keys(after).filter(name => JSON.stringify(after[name]) !== JSON.stringify(before[name]))
  }
  await updateAgent({})
  const { custom_headers } = (await updateTool(tool)).json()

  t.same(await movedBy(() => updateAgent({})), [], 'an agent update that changes nothing')
  t.same(await movedBy(() => updateTool({ ...tool, custom_headers })), [], 'a tool update that changes nothing')
  t.same(await movedBy(() => updateAgent({ description: 'two' })), ['agent', 'audit'], 'one column of an agent')
  t.same(await movedBy(() => updateAgent({ description: 'two', label_ids: [2] })), ['agent', 'labels', 'audit'])
  t.same(await movedBy(() => updateTool({ name: 'renamed' })), ['tool', 'audit'], 'one column of a tool')
  t.same(
    await movedBy(() => updateTool({ custom_headers: [{ key: 'X-Key', value: 'two' }] })),
    ['tool', 'headers', 'audit'],
    'the headers of a tool',
  )
})
