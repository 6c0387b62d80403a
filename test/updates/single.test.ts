import { setTimeout as sleep } from 'node:timers/promises'
import type { LightMyRequestResponse } from 'fastify'
import { type Kysely, sql } from 'kysely'
import t, { type Test } from 'tap'
import { definitionOf } from '../../bench/definitions.js'
import type { Database } from '../../src/db/tables.js'
import { sha256 } from '../../src/updates/audit.js'
import { appOver, type WorldApp, worldApp } from '../app.js'
import { worldDatabase } from '../world.js'
import { storedAgent, storedTool } from './stored-state.js'

/* What may wait for others, or takes long, shares no statement: whoever asks for it is the one who waits. */

const TOOL = 10
const OTHER_TOOLS = [11, 12, 13, 15, 16, 17, 20]
const MADE_TOOLS = Array.from({ length: 33 }, (_, i) => 1_001 + i)
const MANAGED_AGENT = 9 // of curator@example.com, who manages a group

let editions = 0

t.test('a definition that only a dry run has sent is not taken for a stored one', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const put = putter(world, token)
  const known = await storedDefinition(put)
  const definition = newDefinition()
  t.equal((await put(TOOL, definition, '?dry_run=true')).statusCode, 200)
  await besideStoring(t, world, put, definition, known)
})

t.test('a definition that was stored once may be pruned by now: it is not waited for in company', async t => {
  const world = await worldApp(t)
  const { db } = world.database
  const token = await world.token('admin@example.com')
  const put = putter(world, token)
  const definition = await storedDefinition(put)
  const known = await storedDefinition(put)
  await sql`update audit set difference = null, definition_before = null`.execute(db)
  const pruned =
    await sql`delete from tool_definition where hash = decode(${sha256(JSON.stringify(definition))}, 'hex')`
  t.equal((await pruned.execute(db)).numAffectedRows, 1n)
  await besideStoring(t, world, put, definition, known)
})

t.test('a link that is taken off waits for whoever deletes it, and nobody beside it does', async t => {
  const world = await worldApp(t)
  const { db } = world.database
  const token = await world.token('admin@example.com')
  const link = (id: number, label_ids: number[]) =>
    world.call('PATCH', `/persona/${id}?update_mask=label_ids`, { token, body: { label_ids } })
  const [agent, ...others] = [1, 2, 3, 4, 5, 8, 9, 10] as const
  for (const id of [agent, ...others]) t.equal((await link(id, [1, 2])).statusCode, 200)
  const deleting = await db.startTransaction().execute()
  await sql`delete from persona_label where persona_id = ${agent} and label_id = 1`.execute(deleting)
  await besideOne(
    t,
    db,
    () => link(agent, [2]),
    () => others.map(id => link(id, [2])),
    () => deleting.commit().execute(),
  )
  for (const id of [agent, ...others]) t.same((await storedAgent(db, id)).label_ids, [2])
})

t.test('which requests share a statement', async t => {
  const world = await worldDatabase(t)
  let shared: string[] = []
  const { batched } = world.database
  const recording = Object.assign(Object.create(world.database), {
    batched: async (...[statement, ...rest]: Parameters<typeof batched>) => {
      if (/^(?:persona|tool)_/.test(statement.name)) shared.push(statement.name)
      return await batched.call(world.database, statement, ...rest)
    },
  })
  const app = await appOver(t, recording)
  const admin = await world.token('admin@example.com')
  const curator = await world.token('curator@example.com')
  const put = putter(app, admin)
  const patch = (id: number, body: object, token = admin) =>
    app.call('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, { token, body })
  const read = (id: number, token = admin) => app.call('GET', `/persona/${id}`, { token })
  await sql`insert into tool (id, name, description) overriding system value
    select id, 'Made ' || id, 'One of many' from unnest(${MADE_TOOLS}::integer[]) id`.execute(world.database.db)
  const definition = newDefinition()
  const cases: [string, () => Promise<LightMyRequestResponse>, string[]][] = [
    ['a new definition', () => put(TOOL, definition), []],
    ['the same on another tool', () => put(11, definition), ['tool_write(shared definition+)']],
    ['tools that are attached', () => patch(MANAGED_AGENT, { tool_ids: [10] }), []],
    ['a text', () => patch(MANAGED_AGENT, { description: 'one' }), ['persona_write(none)']],
    ['a text, by a group manager', () => patch(MANAGED_AGENT, { description: 'two' }, curator), []],
    ['a read', () => read(MANAGED_AGENT), ['persona_snapshot']],
    ['a read by a group manager', () => read(MANAGED_AGENT, curator), []],
    ['tools that are taken off', () => patch(MANAGED_AGENT, { tool_ids: [] }), []],
    ['a read by a group manager without tools', () => read(MANAGED_AGENT, curator), ['persona_snapshot']],
    ['thirty-two tools that are attached', () => patch(1, { tool_ids: MADE_TOOLS.slice(1) }), []],
    ['a text beside thirty-two tools', () => patch(1, { description: 'one' }), ['persona_write(none)']],
    ['a read of thirty-two tools', () => read(1), ['persona_snapshot']],
    ['one tool more', () => patch(1, { tool_ids: MADE_TOOLS }), []],
    ['a text beside thirty-three tools', () => patch(1, { description: 'two' }), []],
    ['a read of thirty-three tools', () => read(1), []],
  ]
  for (const [what, request, expected] of cases) {
    shared = []
    const answer = await request()
    t.equal(answer.statusCode, 200, answer.body)
    t.strictSame(shared, expected, what)
  }
})

type Put = (id: number, definition: object, query?: string) => Promise<LightMyRequestResponse>

function putter({ call }: Pick<WorldApp, 'call'>, token: string): Put {
  return (id, definition, query = '') =>
    call('PUT', `/admin/tool/custom/${id}${query}`, { token, body: { definition } })
}

function newDefinition(): object {
  return definitionOf(1, `Edition ${++editions} of ${process.pid}`)
}

/** A definition that was stored by a real update, and that its tool no longer has. */
async function storedDefinition(put: Put): Promise<object> {
  const definition = newDefinition()
  for (const next of [definition, newDefinition()]) {
    const answer = await put(TOOL, next)
    if (answer.statusCode !== 200) throw new Error(answer.body)
  }
  return definition
}

/** While another session stores a definition, so does an update; beside it others store a `known` one, and do not wait. */
async function besideStoring(t: Test, { database }: WorldApp, put: Put, definition: object, known: object) {
  const text = JSON.stringify(definition)
  const storing = await database.db.startTransaction().execute()
  await sql`insert into tool_definition (hash, content, size_bytes)
    values (decode(${sha256(text)}, 'hex'), ${text}, ${text.length})`.execute(storing)
  await besideOne(
    t,
    database.db,
    () => put(TOOL, definition),
    () => OTHER_TOOLS.map(id => put(id, known)),
    () => storing.rollback().execute(),
  )
  t.equal((await storedTool(database.db, TOOL)).definition, text)
}

/**
 * Asks for one request that waits for a lock and for others in the same turn: they are answered while it still waits in the statement in
 * which it began to. Then what it waits for is ended.
 */
async function besideOne(
  t: Test,
  db: Kysely<Database>,
  one: () => Promise<LightMyRequestResponse>,
  others: () => Promise<LightMyRequestResponse>[],
  end: () => Promise<unknown>,
): Promise<void> {
  const waiting = one()
  const beside = others()
  const began = await untilWaiting(db)
  const answers = await Promise.all(beside)
  for (const answer of answers) t.equal(answer.statusCode, 200, answer.body)
  t.strictSame(await waitingStatements(db), began, 'the one still waits')
  await end()
  t.equal((await waiting).statusCode, 200)
}

async function untilWaiting(db: Kysely<Database>): Promise<unknown[]> {
  for (;;) {
    const waiting = await waitingStatements(db)
    if (waiting.length > 0) return waiting
    await sleep(20)
  }
}

async function waitingStatements(db: Kysely<Database>): Promise<unknown[]> {
  const { rows } = await sql`select pid, query_start::text from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'`.execute(db)
  return rows
}
