import t from 'tap'
import { worldApp } from '../app.js'

const { call, token } = await worldApp(t)
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
