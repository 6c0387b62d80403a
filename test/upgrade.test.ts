/**
 * The rehearsal of an upgrade: many agents, writers that go on, and a step that expands the schema under them. With
 * `TEST_CAMPAIGN=full` on a million agents.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import { MIGRATIONS, migrate, type SchemaStep, schemaState } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { makeLogger } from '../src/http/logging.js'
import { Lifecycle } from '../src/lifecycle.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { AGENT_COUNT, makeWorld, range } from './faults/world.js'
import { testDatabase } from './postgres.js'
import { TEST_SECRET_KEYS } from './world.js'

const { TEST_CAMPAIGN } = process.env
const IS_FULL = TEST_CAMPAIGN === 'full'
const AGENTS = IS_FULL ? 1_000_000 : 20_000
const WRITERS = 4
/** Outside of the campaign each writer rests between two updates: other tests have a part of the machine. */
const PAUSE_MS = IS_FULL ? 0 : 10
const BASELINE_MS = 500
const WAIT_LIMIT_MS = 250
/** How long somebody reads a table in a transaction while the step wants it for itself. */
const READING_MS = 1_500
const SAMPLE_EVERY_MS = 10

const PROGRAM = '1.0.0'

if (IS_FULL) t.setTimeout(600_000)

/** What a next release may bring: each step fit for the program before it. */
const EXPANDED: Readonly<Record<string, SchemaStep>> = {
  ...MIGRATIONS,
  '9001_rating': step({ up: 'alter table persona add column rating integer' }),
  '9002_rating_index': step({
    prepare: [
      'drop index concurrently if exists persona_by_rating',
      'create index concurrently persona_by_rating on persona (rating, created_at)',
    ],
    up: 'alter table persona add constraint persona_rating_known check (rating between 1 and 5) not valid',
  }),
  '9003_rating_known': step({ prepare: ['alter table persona validate constraint persona_rating_known'] }),
}

function step({ prepare = [], up }: { prepare?: string[]; up?: string }): SchemaStep {
  return {
    oldestProgram: PROGRAM,
    locks: [],
    prepare: async db => {
      for (const statement of prepare) await sql.raw(statement).execute(db)
    },
    up: async db => {
      if (up !== undefined) await sql.raw(up).execute(db)
    },
  }
}

/** The present program over a database with many agents. */
async function program(t: Parameters<typeof testDatabase>[0], agents: number) {
  const { url } = await testDatabase(t)
  const token = await makeWorld(url)
  const database = openUrl(url, readConfig({ DATABASE_POOL_SIZE: '8', STATEMENT_TIMEOUT_MS: '600000' }))
  t.teardown(() => database.close())
  await sql`
    insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, owner_id)
    select 'agent ' || n, '', 'auto', false, false, (select id from user_account)
    from generate_series(${AGENT_COUNT + 1}::integer, ${agents}::integer) n`.execute(database.db)
  const config = readConfig({ RATE_LIMIT_PER_MINUTE: '0' })
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const log = makeLogger('silent')
  const service = new Lifecycle({ config, version: PROGRAM, database, ring, migrates: false, log })
  const app = await buildApp({ config, version: PROGRAM, database, service, logger: false })
  t.teardown(() => app.close())
  await service.start()
  return { url, database, app, token }
}

type Program = Awaited<ReturnType<typeof program>>

interface Write {
  id: number
  marker: string
  status: number
  startedAt: number
  durationMs: number
}

/** Clients that update agents, one after the other each, until they are stopped. */
function writing({ app, token }: Program, agents: number) {
  const writes: Write[] = []
  let isRunning = true
  const work = async (writer: number) => {
    for (let count = 0; isRunning; count++) {
      // Each writer has its own agents, so that none waits for another one's row.
      const id = 1 + writer + WRITERS * Math.floor((Math.random() * (agents - WRITERS)) / WRITERS)
      const marker = `${writer}-${count}`
      const startedAt = performance.now()
      const answer = await app.inject({
        method: 'PATCH',
        url: `/persona/${id}?update_mask=description`,
        headers: { authorization: `Bearer ${token}` },
        payload: { description: marker },
      })
      writes.push({ id, marker, status: answer.statusCode, startedAt, durationMs: performance.now() - startedAt })
      if (PAUSE_MS > 0) await sleep(PAUSE_MS)
    }
  }
  const workers = range(WRITERS).map(number => work(number - 1))
  const stop = async () => {
    isRunning = false
    await Promise.all(workers)
    return writes
  }
  return { writes, stop }
}

/**
 * Looks again and again who waits for the table of the agents, and for how long: the server's own clock, so that a busy
 * machine makes nobody look like a waiter. Whoever wants the table for itself does not count.
 */
function watching(url: string) {
  const client = new pg.Client({ connectionString: url })
  let isRunning = true
  let longestMs = 0
  let samples = 0
  const watch = async () => {
    await client.connect()
    for (; isRunning; samples++) {
      const { rows } = await client.query<{ waited_ms: number | null }>(`
        select max(extract(epoch from clock_timestamp() - waitstart) * 1000)::float8 as waited_ms from pg_locks
        where not granted and locktype = 'relation' and relation = 'persona'::regclass
          and mode in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')`)
      longestMs = Math.max(longestMs, rows[0]?.waited_ms ?? 0)
      await sleep(SAMPLE_EVERY_MS)
    }
    await client.end()
  }
  const watched = watch()
  const stop = async () => {
    isRunning = false
    await watched
    return { longestMs, samples }
  }
  return { stop }
}

/** Reads the agents and keeps the transaction open for a while; resolves when it has its lock. */
async function longReader(url: string) {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('begin')
  await client.query('select id from persona limit 1')
  const ended = sleep(READING_MS)
    .then(() => client.query('commit'))
    .then(() => client.end())
  return { ended }
}

const longest = (writes: readonly Write[]) => Math.round(Math.max(0, ...writes.map(({ durationMs }) => durationMs)))

t.test('no writer waits 250 ms for an expanding step, and the program before it serves on', async t => {
  const before = await program(t, AGENTS)
  const { app, database, url } = before
  const writers = writing(before, AGENTS)
  await sleep(BASELINE_MS)
  const startedAt = performance.now()

  const reader = await longReader(url)
  const locks = watching(url)
  const second = openUrl(url, readConfig({ STATEMENT_TIMEOUT_MS: '600000' }))
  t.teardown(() => second.close())
  const ran = await Promise.all([migrate(database.db, EXPANDED), migrate(second.db, EXPANDED)])
  const endedAt = performance.now()
  const { longestMs, samples } = await locks.stop()
  await reader.ended
  await sleep(200)
  const writes = await writers.stop()

  const baseline = writes.filter(write => write.startedAt + write.durationMs < startedAt)
  const during = writes.filter(write => write.startedAt + write.durationMs >= startedAt && write.startedAt < endedAt)
  t.comment(`${AGENTS} agents; the steps took ${Math.round(endedAt - startedAt)} ms`)
  t.comment(`longest write before: ${longest(baseline)} ms of ${baseline.length} writes`)
  t.comment(`longest write meanwhile: ${longest(during)} ms of ${during.length} writes`)
  t.comment(`longest wait for the table: ${Math.round(longestMs)} ms, seen in ${samples} looks`)

  t.strictSame(ran.flat().sort(), ['9001_rating', '9002_rating_index', '9003_rating_known'], 'each step once')
  t.ok(endedAt - startedAt > READING_MS, 'the step had to wait for the reader')
  t.ok(during.length > 0 && samples > 20)
  t.ok(longestMs < WAIT_LIMIT_MS, `the longest wait for the table was ${Math.round(longestMs)} ms`)
  t.strictSame(
    writes.filter(({ status }) => status !== 200),
    [],
    'every write was acknowledged',
  )
  t.strictSame(await lost(before, writes), [], 'and is there')
  t.match((await app.inject({ url: '/readyz' })).json(), { status: 'ready' })
  t.strictSame(await schemaState(database.db, PROGRAM), { kind: 'current' })
  const { rows } = await sql`select indisvalid from pg_index where indexrelid = 'persona_by_rating'::regclass`.execute(
    database.db,
  )
  t.strictSame(rows, [{ indisvalid: true }])
})

t.test('503 schema_ahead from the program before a step that it cannot live with', async t => {
  const { app, database } = await program(t, AGENT_COUNT)
  const contract = { ...step({ up: 'alter table persona add column rating integer' }), oldestProgram: '1.1.0' }
  await migrate(database.db, { ...MIGRATIONS, '9001_contract': contract })
  const ready = await app.inject({ url: '/readyz' })
  t.equal(ready.statusCode, 503)
  t.match(ready.json(), { reason: 'schema_ahead', detail: /1\.1\.0/ })
})

t.test('the watch sees writers that wait behind a step without a bound', async t => {
  const before = await program(t, AGENT_COUNT)
  const writers = writing(before, AGENT_COUNT)
  const reader = await longReader(before.url)
  const locks = watching(before.url)
  const careless = new pg.Client({ connectionString: before.url })
  await careless.connect()
  await careless.query('alter table persona add column rating integer')
  await careless.end()
  const { longestMs } = await locks.stop()
  await Promise.all([writers.stop(), reader.ended])
  t.ok(longestMs > WAIT_LIMIT_MS, `the longest wait for the table was ${Math.round(longestMs)} ms`)
})

t.test('a preparation that fails leaves its step undone, and is repeated', async t => {
  const { database } = await program(t, AGENT_COUNT)
  let tries = 0
  const prepare = async (db: Kysely<unknown>) => {
    tries++
    await sql`create index concurrently if not exists persona_by_image on persona (uploaded_image_id)`.execute(db)
    if (tries === 1) throw new Error('cut short')
  }
  const steps = { ...EXPANDED, '9004_image': { ...step({}), prepare } }
  await t.rejects(migrate(database.db, steps), { message: 'cut short' })
  t.strictSame(await schemaState(database.db, PROGRAM, steps), {
    kind: 'behind',
    pending: ['9004_image'],
    isEmpty: false,
  })
  t.strictSame(await migrate(database.db, steps), ['9004_image'])
  const { rows } = await sql<{ lock_timeout: string }>`select setting as lock_timeout from pg_settings
    where name = 'lock_timeout'`.execute(database.db)
  t.not(rows[0]?.lock_timeout, '0', 'connections have their bounds again')
})

/** Agents that do not hold what was last written to them. */
async function lost({ database }: Program, writes: readonly Write[]): Promise<unknown[]> {
  const last = new Map(writes.map(({ id, marker }) => [id, marker]))
  const { rows } = await sql<{ id: number; description: string }>`
    select id, description from persona where id = any(${[...last.keys()]}::integer[])`.execute(database.db)
  return rows.filter(row => last.get(row.id) !== row.description)
}
