import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'

const { call, database, token } = await worldApp(t)
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
