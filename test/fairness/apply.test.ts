import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { startAgentctl } from '../cli/agentctl.js'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

const AGENTS = FULL ? 4_100 : 400
const AT_ONCE = 3

t.test(`row 4: documents of ${AGENTS} agents, ${AT_ONCE} applied at once`, async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const folder = mkdtempSync(join(tmpdir(), 'fair-apply-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  let documents = 0
  /** Starts an apply that changes every agent of the document, those of half of the quiet callers too. */
  const start = () => {
    const description = `document ${++documents}`
    const crowd = Array.from({ length: AGENTS }, (_, index) => ({ name: `crowd ${index}`, description }))
    const theirs = world.victims.slice(0, 5).map(({ agentId: id }) => ({ id, name: 'agent', task_prompt: description }))
    const path = join(folder, `${documents}.json`)
    writeFileSync(path, JSON.stringify({ version: 1, agents: [...theirs, ...crowd] }))
    return startAgentctl({ url: world.url, args: ['apply', path, '--json'] })
  }
  const answers: unknown[] = []
  const attack = (over: AbortSignal) =>
    repeatedly(over, AT_ONCE, 0, async () => {
      const { child, answer } = start()
      const isOver = await Promise.race([answer.then(() => false), once(over, 'abort').then(() => true)])
      if (isOver) child.kill('SIGKILL') // what a large one has stored is whole
      const { status, stderr } = await answer
      if (status !== 0 && status !== null) answers.push({ status, stderr })
    })

  await requireFairness(t, world, service, attack, { extraMs: 100 })

  t.strictSame(answers, [], 'each took its turn')
  t.equal((await start().answer).status, 0)
  const { rows } = await world.client.query(
    `select count(*)::integer as agents, count(distinct name)::integer as names,
      count(*) filter (where description = $1)::integer as changed
    from persona where name like 'crowd %'`,
    [`document ${documents}`],
  )
  t.strictSame(rows, [{ agents: AGENTS, names: AGENTS, changed: AGENTS }], 'no agent was made twice')
})
