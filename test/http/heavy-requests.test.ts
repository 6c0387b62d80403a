import { setTimeout as sleep } from 'node:timers/promises'
import fastify from 'fastify'
import t from 'tap'
import type { Caller } from '../../src/auth/caller.js'
import { registerHeavyRequests } from '../../src/http/heavy-requests.js'
import { Metrics } from '../../src/http/metrics.js'
import { registerWaits } from '../../src/http/waits.js'
import { running } from './running.js'

const OFF = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }

t.test('503 when the waits of a request in several queues took as long together as one may', async t => {
  const { app, database, token } = await running(t, { ...OFF, LOCK_TIMEOUT_MS: '2000' })
  const order: string[] = []
  const send = async (name: string, fields: Record<string, number[]>) => {
    const answer = await app.inject({
      method: 'PATCH',
      url: `/persona/1?update_mask=${Object.keys(fields)}`,
      headers: { authorization: `Bearer ${token}` },
      payload: fields,
    })
    order.push(name)
    t.match(
      [answer.statusCode, answer.json()],
      [503, { reason: 'overloaded', detail: /other updates of the same/ }],
      name,
    )
  }
  // What names something that is not there is decided under the row's lock.
  const light = (name: string) => send(name, { label_ids: [999_999] })
  // What attaches tools asks before what they take.
  const weighed = (name: string) => send(name, { tool_ids: [900_000] })
  const leavePlaces = [
    await database.singleStatementQueue.enter('somebody'),
    await database.singleStatementQueue.enter('another'),
  ]
  const leaveRow = await database.rowLockQueue.enter('somebody')
  const both = [light('light'), weighed('weighed')]
  await sleep(1_000)
  const later = light('a second later')
  await sleep(500)
  for (const leave of leavePlaces) leave()
  await Promise.all([...both, later])
  t.equal(order.at(-1), 'a second later', `${order}`)
  leaveRow()
})

t.test('a token has no other heavy request in work for as long as its last one was; others have theirs', async t => {
  const { database } = await running(t, OFF)
  const app = fastify()
  registerWaits(app, new Metrics())
  registerHeavyRequests(app, database)
  app.get('/:token/:ms', async request => {
    const { token, ms } = request.params as { token: number; ms: string }
    request.caller = { token: { id: token } } as Caller // what tells tokens apart
    await request.takePlace()
    await sleep(Number(ms))
    return 'done'
  })
  const order: string[] = []
  const ask = async (url: string) => {
    const start = performance.now()
    const { body } = await app.inject({ url })
    order.push(`${url} ${body}`)
    return performance.now() - start
  }
  await ask('/1/600')
  const [ownMs] = await Promise.all([ask('/1/0'), ask('/2/0')])
  t.strictSame(order, ['/1/600 done', '/2/0 done', '/1/0 done'])
  t.ok(ownMs >= 590, `${ownMs} ms`)
})

t.test(
  'who is answered 300 kB goes before those who wait for 6 MB, where none has used more; then comes who used less',
  async t => {
    const { database } = await running(t, OFF)
    const app = fastify()
    registerWaits(app, new Metrics())
    registerHeavyRequests(app, database)
    app.get('/:token/:bytes', async request => {
      const { token, bytes } = request.params as { token: string; bytes: string }
      request.caller = { token: { id: token } } as unknown as Caller // what tells tokens apart
      await request.takePlace(Number(bytes))
      await sleep(Number(bytes) / 20_000)
      return ''
    })
    const order: string[] = []
    const ask = async (token: string, bytes: number) => {
      await app.inject({ url: `/${token}/${bytes}` })
      order.push(token)
    }
    const many = Array.from({ length: 8 }, (_, n) => `many ${n}`)
    const first = many.map(token => ask(token, 6_000_000))
    await sleep(50)
    await Promise.all([ask('newcomer', 300_000), ...first])
    t.equal(order.indexOf('newcomer'), 1, `${order}`)
    order.length = 0
    const second = many.map(token => ask(token, 6_000_000))
    await Promise.all([...second, ask('newcomer', 300_000).then(() => ask('newcomer', 300_000))])
    t.ok(order.lastIndexOf('newcomer') <= 3, `${order}`)
  },
)

t.test('behind a heavy request its place rests while others are served', async t => {
  const { database } = await running(t, OFF)
  const app = fastify()
  registerWaits(app, new Metrics())
  registerHeavyRequests(app, database)
  app.get('/:token/:ms', async request => {
    const { token, ms } = request.params as { token: number; ms: string }
    request.caller = { token: { id: token } } as Caller // what tells tokens apart
    await request.takePlace()
    await sleep(Number(ms))
    return `${performance.now()}`
  })
  const ask = async (url: string) => Number((await app.inject({ url })).body)
  database.turns.take(7, () => undefined)
  const [first, second, third] = await Promise.all([ask('/1/300'), ask('/2/300'), ask('/3/0')])
  const restMs = third - Math.min(first, second)
  t.ok(restMs >= 45, `${restMs} ms`)
})

t.test('an update that costs about as much as two waits for a place: more than 32 ids or 32 KiB of text', async t => {
  const { app, database, token } = await running(t, { ...OFF, LOCK_TIMEOUT_MS: '100' })
  const leave = await database.heavyRequestQueue.enter('somebody') // there is one, with so few connections
  const update = (fields: Record<string, unknown>) => {
    const url = `/persona/1?dry_run=true&update_mask=${Object.keys(fields)}`
    return app.inject({ method: 'PATCH', url, headers: { authorization: `Bearer ${token}` }, payload: fields })
  }
  const ids = (length: number, from: number) => Array.from({ length }, (_, n) => from + n)
  const light = [{ label_ids: ids(16, 900_000), groups: [] }, { system_prompt: 'x'.repeat(30_000) }]
  for (const fields of light) t.not((await update(fields)).statusCode, 503)
  const heavy = [
    { label_ids: ids(20, 900_000), document_set_ids: ids(20, 900_000) },
    { system_prompt: 'x'.repeat(40_000) },
  ]
  for (const fields of heavy) {
    const answer = await update(fields)
    t.match([answer.statusCode, answer.json()], [503, { reason: 'overloaded', detail: /places for large requests/ }])
  }
  leave()
})
