import { setTimeout as sleep } from 'node:timers/promises'
import type { LightMyRequestResponse } from 'fastify'
import { type Kysely, sql } from 'kysely'
import t, { type Test } from 'tap'
import { definitionOf } from '../../bench/world.js'
import type { Database } from '../../src/db/tables.js'
import { sha256 } from '../../src/updates/audit.js'
import { type WorldApp, worldApp } from '../app.js'
import { storedAgent, storedTool } from './stored-state.js'

/* What may wait for others, or takes long, shares no statement: whoever asks for it is the one who waits. */

const TOOL = 10
const OTHER_TOOLS = [11, 12, 13, 15, 16, 17, 20]

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
