import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { Cluster } from './cluster.js'
import { ask, ServiceProcess } from './service.js'
import { AGENT_COUNT, makeWorld, range } from './world.js'

/** How much longer than its bound an answer may take on a busy machine. */
const MARGIN_MS = 8_000

/** As many as one token may have at a time: half of the pool. */
const UPDATES = 5

/** What the default settings give: 5 s for a connection, 12 s for a statement, 2.5 s to settle. */
const BOUNDS_MS = { overloaded: 5_000, database_unreachable: 17_000, unsettled: 14_500, probe: 2_000 }

const cluster = await Cluster.create(t)
const token = await makeWorld(cluster.url())
const service = await ServiceProcess.start({ DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() }, t)

async function update(id: number) {
  const startedAt = performance.now()
  const sent = { body: { description: `at ${startedAt}` } }
  const { status, body } = await ask(service, token, 'PATCH', `/persona/${id}?update_mask=description`, sent)
  const { reason, outcome } = body
  return { status, reason, outcome, tookMs: Math.round(performance.now() - startedAt) }
}

t.test('503 within the bounds that the default settings give when the server hangs, and 200 afterwards', async t => {
  await Promise.all(range(AGENT_COUNT).map(update)) // opens connections
  const holder = await cluster.connect()
  await holder.query('begin; lock table audit in share mode')
  const writing = update(1) // its one statement, commit included, waits for the lock
  await cluster.lockWaits()
  cluster.freeze()
  t.teardown(() => cluster.thaw())
  const others = Promise.all(range(UPDATES).map(update))
  const probe = performance.now()
  t.match(await service.readiness(), { status: 503, reason: 'database_unreachable' })
  t.ok(performance.now() - probe < BOUNDS_MS.probe + MARGIN_MS)
  const written = await writing
  t.match(written, { status: 503, reason: 'database_unreachable', outcome: 'unknown' })
  t.ok(written.tookMs < BOUNDS_MS.unsettled + MARGIN_MS, `unsettled: ${written.tookMs} ms`)
  const answers = await others
  for (const answer of answers) t.match(answer, { status: 503, outcome: 'not_applied' })
  for (const reason of ['overloaded', 'database_unreachable'] as const) {
    const longest = Math.max(0, ...answers.filter(answer => answer.reason === reason).map(({ tookMs }) => tookMs))
    t.ok(longest < BOUNDS_MS[reason] + MARGIN_MS, `${reason}: ${longest} ms`) // on a busy machine one of them may not occur
  }
  cluster.thaw()
  await holder.query('rollback')
  await holder.end()
  t.equal((await update(2)).status, 200)
})
