import { sql } from 'kysely'
import pg from 'pg'
import t from 'tap'
import { worldApp } from '../app.js'
import { slowness } from '../slowness.js'

const { call, database, token, url } = await worldApp(t)
const admin = await token('admin@example.com')

const ANSWERS = process.env.TEST_CAMPAIGN === 'full' ? 10_000 : 300
const AGENT = '/persona/1'
const TOOLS = [10, 11]

interface Seen {
  path: string
  at: string
  body: string
}

async function ask(method: string, path: string, body?: object) {
  const answer = await call(method, path, { token: admin, ...(body !== undefined && { body }) })
  if (answer.statusCode >= 400) throw new Error(`${path}: ${answer.body}`)
  return answer
}

/** What can be asked for again: an update that was answered with a tool of later than the version behind it has no time. */
const hasTime = ({ at }: Seen): boolean => at !== 'undefined'

function seenIn(path: string, { headers, body }: Awaited<ReturnType<typeof ask>>): Seen {
  return { path, at: String(headers['snapshot-at']), body }
}

t.test(`each of ${ANSWERS} answers under concurrent writers is answered again with its Snapshot-At as at`, async t => {
  await ask('PATCH', `${AGENT}?update_mask=tool_ids`, { tool_ids: TOOLS })
  const seen: Seen[] = []
  let edits = 0
  const until = async (turn: () => Promise<Seen>) => {
    while (seen.length < ANSWERS) seen.push(await turn())
  }
  const edit = async () => seenIn(AGENT, await ask('PATCH', `${AGENT}?update_mask=name`, { name: `agent ${edits++}` }))
  const attach = async () => {
    const tool_ids = edits++ % 2 === 0 ? TOOLS : [10]
    return seenIn(AGENT, await ask('PATCH', `${AGENT}?update_mask=tool_ids`, { tool_ids }))
  }
  const change = (id: number) => async () => {
    return seenIn(`/tool/${id}`, await ask('PUT', `/admin/tool/custom/${id}`, { description: `edit ${edits++}` }))
  }
  const read = (path: string) => async () => seenIn(path, await ask('GET', path))
  const turns = [edit, attach, ...TOOLS.map(change), read(AGENT), read(AGENT), read(AGENT), read('/tool/10')]
  await Promise.all(turns.map(until))

  const different: { first: Seen; again: Seen }[] = []
  const asked = seen.filter(hasTime)
  t.ok(asked.length > 0.9 * seen.length, `${asked.length} of ${seen.length} answers have a time`)
  for (const first of asked) {
    const again = seenIn(first.path, await ask('GET', `${first.path}?at=${first.at}`))
    if (again.body !== first.body || again.at !== first.at) different.push({ first, again })
  }
  t.same(different.slice(0, 3), [])
  t.equal(different.length, 0)
})

/** More than may wait of one token at once. */
const WRITERS = 128
const AGENTS = 40

t.test(
  `${WRITERS} updates at once of agents whose tool is edited are not told a time that finds something else`,
  async t => {
    const { rows } = await sql<{ persona_id: number }>`
    with a as (insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
      select 'busy', '', 'auto', false, false from generate_series(1, ${AGENTS}) returning id)
    insert into persona_tool (persona_id, tool_id) select id, 10 from a returning persona_id`.execute(database.db)
    const paths = rows.map(({ persona_id }) => `/persona/${persona_id}`)
    const seen: Seen[] = []
    let edits = 0
    let writing = WRITERS
    const write = async (place: number) => {
      const path = String(paths[place % paths.length])
      for (let n = 0; n < 2; n++) {
        seen.push(seenIn(path, await ask('PATCH', `${path}?update_mask=name`, { name: `${place} ${n}` })))
      }
      writing--
    }
    const edit = async () => {
      while (writing > 0) await ask('PUT', '/admin/tool/custom/10', { description: `busy ${edits++}` })
    }
    await Promise.all([...Array.from({ length: WRITERS }, (_, place) => write(place)), edit(), edit()])

    const timed = seen.filter(hasTime)
    t.ok(timed.length > 0.3 * seen.length, `${timed.length} of ${seen.length} answers have a time`)
    const asked = timed.filter((_, place) => place % 8 === 0) // each is a heavy request
    const different: { first: Seen; again: Seen }[] = []
    const check = async () => {
      for (let first = asked.pop(); first !== undefined; first = asked.pop()) {
        const again = seenIn(first.path, await ask('GET', `${first.path}?at=${first.at}`))
        if (again.body !== first.body || again.at !== first.at) different.push({ first, again })
      }
    }
    await Promise.all(Array.from({ length: 8 }, check))
    t.same(different.slice(0, 3), [])
  },
)

/** So many connections one token has for its single statements, of the 20 of the test's pool, and one that waits for them. */
const STUCK = 5 + 1
/** An answer waited for 500 ms where a write of its tool did not end: so many would be longer than this, whatever the machine. */
const WAITS = 10
const WAITED_MS = WAITS * 500

t.test('an answer is not held up by writes of its tool that wait, and its Snapshot-At stays true', async t => {
  const { rows } = await sql<{ id: number }>`insert into tool (name, definition_hash)
    select 'stuck', definition_hash from tool, generate_series(1, ${STUCK}) where tool.id = 10 returning id`.execute(
    database.db,
  )
  const tools = rows.map(({ id }) => id)
  for (const id of tools) await ask('PUT', `/admin/tool/custom/${id}`, { description: 'with a time' })
  const [first, last] = [tools.at(0) ?? 0, tools.at(-1) ?? 0]
  const definition = (await ask('GET', '/tool/10')).json().definition
  const edited = { ...definition, info: { ...definition.info, title: 'edited' } }
  const curator = await token('admin@example.com')
  const holder = new pg.Client({ connectionString: url })
  await holder.connect()
  t.teardown(() => holder.end())

  /** Runs while nobody can store a definition: then that is stored for all of these. */
  async function whileStuck(work: () => Promise<void>): Promise<void> {
    await holder.query('begin; lock table tool_definition in share mode')
    const puts: ReturnType<typeof call>[] = []
    try {
      for (const [place, id] of tools.entries()) {
        const body = { definition: { ...edited, info: { ...edited.info, version: `${performance.now()}` } } }
        puts.push(call('PUT', `/admin/tool/custom/${id}`, { token: curator, body }))
        await untilWaiting(Math.min(place + 1, STUCK - 1))
      }
      await work()
    } finally {
      await holder.query('rollback')
    }
    for (const put of puts) t.equal((await put).statusCode, 200)
  }

  async function untilWaiting(count: number): Promise<void> {
    for (let waiting = -1; waiting !== count; ) {
      const { rows } = await sql<{ waiting: number }>`select count(*)::integer as waiting from pg_locks
        where relation = 'tool_definition'::regclass and not granted`.execute(database.db)
      waiting = rows[0]?.waiting ?? -1
    }
  }

  const rename = async (name: string) => seenIn(AGENT, await ask('PATCH', `${AGENT}?update_mask=name`, { name }))

  t.test('in the queue of this process: the answer has its time', async t => {
    await ask('PATCH', `${AGENT}?update_mask=tool_ids`, { tool_ids: [last] })
    const seen: Seen[] = []
    let tookMs = 0
    await whileStuck(async () => {
      const sinceMs = performance.now()
      for (let n = 0; n < WAITS; n++) seen.push(await rename(`queue ${n}`))
      tookMs = performance.now() - sinceMs
    })
    t.ok(tookMs < WAITED_MS * slowness(), `${WAITS} answers in ${Math.round(tookMs)} ms`)
    for (const answer of seen) t.strictSame(seenIn(AGENT, await ask('GET', `${AGENT}?at=${answer.at}`)), answer)
  })

  t.test('in the database: the answer has none', async t => {
    await ask('PATCH', `${AGENT}?update_mask=tool_ids`, { tool_ids: [first] })
    const seen: Seen[] = []
    let tookMs = 0
    await whileStuck(async () => {
      const sinceMs = performance.now()
      for (let n = 0; n < WAITS; n++) seen.push(await rename(`lock ${n}`))
      tookMs = performance.now() - sinceMs
    })
    t.ok(tookMs < WAITED_MS * slowness(), `${WAITS} answers in ${Math.round(tookMs)} ms`)
    t.strictSame(seen.filter(hasTime), [])
    const after = await rename('after')
    t.ok(hasTime(after))
    t.strictSame(seenIn(AGENT, await ask('GET', `${AGENT}?at=${after.at}`)), after)
  })

  t.test('in the database, beside a definition of 200 kB: the answer has none, and does not wait', async t => {
    const large = { ...definition, info: { ...definition.info, description: 'x'.repeat(200_000) } }
    await ask('PUT', `/admin/tool/custom/${first}`, { definition: large })
    await rename('control')
    const fastestMs = async (name: string) => {
      const tookMs: number[] = []
      for (let n = 0; n < WAITS; n++) {
        const sinceMs = performance.now()
        const answer = await rename(`${name} ${n}`)
        tookMs.push(performance.now() - sinceMs)
        t.equal(hasTime(answer), name === 'alone')
      }
      return Math.min(...tookMs)
    }
    const aloneMs = await fastestMs('alone')
    let besideMs = 0
    await whileStuck(async () => {
      besideMs = await fastestMs('beside')
    })
    t.ok(besideMs < aloneMs + 40 * slowness(), `${besideMs} ms, control ${aloneMs} ms`)
  })
})
