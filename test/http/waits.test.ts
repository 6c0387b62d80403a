import { sql } from 'kysely'
import t from 'tap'
import { QUEUES, type QueueName } from '../../src/db/connection/waiter.js'
import { DEFINITION } from '../matrix-organisation.js'
import { eventually, RawConnection, type Running, running, tokenOf } from './running.js'

const OFF = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }
const AGENT = '/persona/1?update_mask=description'

/** From so long on the line of a request tells of its waits. */
const TOLD_MS = 100

/** Each update of `ask` changes something: one that does not waits for no row. */
let asked = 0

function ask(
  { app, token }: Running,
  url = AGENT,
  options: { method?: 'GET' | 'PATCH' | 'PUT'; payload?: string } = {},
) {
  const { method = 'PATCH', payload = JSON.stringify({ description: `other ${asked++}` }) } = options
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  return app.inject({ method, url, headers, ...(method !== 'GET' && { payload }) })
}

/** The lines of answered and abandoned requests, the last one last. */
function linesOf({ log }: Running): Record<string, unknown>[] {
  return log
    .map(line => JSON.parse(line))
    .filter(({ msg }) => /^(request answered|the client went away before its answer)$/.test(msg))
}

/** How many waits the metrics have, and how long they took, in seconds. */
async function waitsIn({ metrics }: Running, queue: QueueName): Promise<{ count: number; sumS: number }> {
  const { body } = await metrics.text()
  const value = (name: string) =>
    Number(new RegExp(`^agents_queue_wait_seconds_${name}{queue="${queue}"} (.*)$`, 'm').exec(body)?.[1])
  return { count: value('count'), sumS: value('sum') }
}

/** Holds the row of agent 1 as a long transaction does, while `work` runs. */
async function withLockedRow(service: Running, work: () => Promise<unknown>): Promise<void> {
  await service.database.db.transaction().execute(async trx => {
    await sql`select from persona where id = 1 for no key update`.execute(trx)
    await work()
  })
}

/** Waits until the service has had answers to so many statements, and then to none for a while: whatever is in work waits. */
async function quietDatabase({ database: { counters } }: Running, statements: number): Promise<void> {
  const first = counters.statements
  let last = -1
  while (counters.statements < first + statements || counters.statements !== last) {
    last = counters.statements
    await new Promise(resolve => setTimeout(resolve, 700))
  }
}

const longEnough = () => new Promise(resolve => setTimeout(resolve, 2 * TOLD_MS))

const service = await running(t, { ...OFF, DATABASE_POOL_SIZE: '8' }, { listen: true })
t.beforeEach(() => {
  service.log.length = 0
})

t.test('the metrics have each queue at 0 from the start; a request that waits for nothing leaves nothing', async t => {
  t.equal((await ask(service)).statusCode, 200)
  for (const queue of QUEUES) t.strictSame(await waitsIn(service, queue), { count: 0, sumS: 0 }, queue)
  const [line = {}] = linesOf(service)
  t.notOk('waited_ms' in line || 'queue' in line)
})

t.test('who waits for a row is told with the queue and the time, in the database and in front of the pool', async t => {
  const all: ReturnType<typeof ask>[] = []
  await withLockedRow(service, async () => {
    all.push(ask(service), ask(service))
    await quietDatabase(service, 3) // for the caller of both, and each has tried
  })
  for (const { statusCode } of await Promise.all(all)) t.equal(statusCode, 200)
  for (const line of linesOf(service)) {
    t.match(line, { queue: 'row_locks', status: 200 })
    t.ok(Number(line.waited_ms) >= TOLD_MS && Number(line.waited_ms) <= Number(line.duration_ms) + 1)
  }
  t.ok((await waitsIn(service, 'row_locks')).sumS >= (2 * TOLD_MS) / 1_000)
})

t.test('who leaves while it waits is told likewise', async t => {
  const head = (length: number) => [
    `PATCH ${AGENT} HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${service.token}`,
    'Content-Type: application/json',
    `Content-Length: ${length}`,
    '',
    '',
  ]
  await withLockedRow(service, async () => {
    const body = '{"description":"gone"}'
    const client = new RawConnection(service.port).write(head(body.length).join('\r\n') + body)
    await quietDatabase(service, 2)
    client.socket.destroy()
    await eventually(() => linesOf(service).length > 0)
  })
  const [row] = linesOf(service)
  t.match(row, { msg: 'the client went away before its answer', operation: 'update_persona', queue: 'row_locks' })
  t.ok(Number(row?.waited_ms) >= TOLD_MS && Number(row?.waited_ms) <= Number(row?.duration_ms) + 1)
  t.match((await service.metrics.text()).body, /^agents_http_requests_abandoned_total{operation="update_persona"} 1$/m)
  // Each is read in turns that take long, as the body is cheap to send and dear to parse.
  const sent = `{"description":"${'x'.repeat(2_000_000)}`
  const clients = Array.from({ length: 6 }, () =>
    new RawConnection(service.port).write(head(3_000_000).join('\r\n') + sent),
  )
  await longEnough()
  for (const { socket } of clients) socket.destroy()
  await eventually(() => linesOf(service).length === 1 + clients.length)
  const left = linesOf(service).filter(({ queue }) => queue === 'body_turns')
  t.ok(left.some(({ msg, waited_ms }) => /went away/.test(String(msg)) && Number(waited_ms) >= TOLD_MS))
})

t.test('who leaves while it waits for the checking thread has one line, and no failure of the service', async t => {
  const service = await running(t, OFF, { listen: true })
  const paths = Object.fromEntries(
    Array.from({ length: 400 }, (_, i) => [`/${i}`, { get: { summary: 'x'.repeat(2_000) } }]),
  )
  const body = JSON.stringify({ definition: { ...DEFINITION, paths } })
  const head = [
    'POST /admin/tool/custom/validate HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${service.token}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ]
  const clients = Array.from({ length: 6 }, () =>
    new RawConnection(service.port).write(`${head.join('\r\n')}\r\n\r\n${body}`),
  )
  const last = clients.pop()
  await eventually(() => clients.some(({ text }) => text !== ''))
  for (const { socket } of clients) socket.destroy()
  await last?.until(/HTTP\/1\.1 \d/)
  last?.socket.destroy()
  const left = linesOf(service).filter(({ msg }) => /went away/.test(String(msg)))
  t.ok(left.some(({ queue }) => queue === 'checking_thread'))
  t.strictSame(
    service.log.filter(line => line.includes('the request failed')),
    [],
  )
})

t.test('an answer that is cut off because others need its memory has a line that says so', async t => {
  const service = await running(t, OFF, { listen: true })
  const long = JSON.stringify({ definition: { ...DEFINITION, 'x-note': 'x'.repeat(4_800_000) } })
  t.equal((await ask(service, '/admin/tool/custom/10', { method: 'PUT', payload: long })).statusCode, 200)
  const tokens = await Promise.all(
    [1, 2, 3].map(n => tokenOf(service.database, { email: `alice+${n}@example.com`, active: true })),
  )
  const unread = (token: string) => {
    const connection = new RawConnection(service.port)
    connection.socket.pause()
    return connection.write(`GET /tool/10 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`)
  }
  service.log.length = 0
  const [first = '', second = '', third = ''] = tokens
  const all = [first, second].flatMap(token => Array.from({ length: 5 }, () => unread(token)))
  const isCut = (line: Record<string, unknown>) => /^the answer was cut off/.test(String(line.msg))
  const lines = () => service.log.map(line => JSON.parse(line))
  // A client counts as slow when it took nothing for a second.
  for (let asks = 0; asks < 20 && !lines().some(isCut); asks++) {
    await new Promise(resolve => setTimeout(resolve, 500))
    all.push(unread(third))
  }
  t.match(lines().find(isCut), { operation: 'read_tool', resource_id: 10, refusal: 'overloaded', token: Number })
  const { body } = await service.metrics.text()
  t.notMatch(body, /agents_http_refusals_total{reason="overloaded"} 0$/m)
  t.match(body, /agents_http_requests_abandoned_total{operation="read_tool"} 0$/m)
  for (const { socket } of all) socket.destroy()
})

t.test('so are large bodies, of agents for their turn and of definitions for the checking thread', async t => {
  const dear = `{${Array.from({ length: 9_000 }, (_, i) => `"k${i}":1`).join(',')}}`
  await Promise.all(Array.from({ length: 12 }, () => ask(service, AGENT, { payload: dear })))
  const turn = linesOf(service).at(-1)
  t.match(turn, { queue: 'body_turns' })
  t.ok(Number(turn?.waited_ms) >= TOLD_MS)
  t.ok((await waitsIn(service, 'body_turns')).count >= 11)
  const parameters = Array.from({ length: 8 }, (_, i) => ({ name: `a${i}`, in: 'query', schema: { type: 'string' } }))
  const paths = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`/p${i}`, { get: { parameters } }]))
  const payload = JSON.stringify({ definition: { ...DEFINITION, paths } })
  const validate = () =>
    service.app.inject({
      method: 'POST',
      url: '/admin/tool/custom/validate?complete=true&report=full',
      headers: { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' },
      payload,
    })
  for (const { statusCode } of await Promise.all([validate(), validate(), validate()])) t.equal(statusCode, 200)
  t.match(linesOf(service).at(-1), { queue: 'checking_thread' })
  t.equal((await waitsIn(service, 'checking_thread')).count, 2)
})

t.test('so is a burst that waits for the thread', async t => {
  const others = await Promise.all(
    [1, 2, 3].map(n => tokenOf(service.database, { email: `alice+${n}@example.com`, active: true })),
  )
  const burst = (token: string, length: number) => Array.from({ length }, () => ask({ ...service, token }))
  await Promise.all(others.flatMap(token => burst(token, 50)))
  for (let rounds = 0; rounds < 20 && (await waitsIn(service, 'thread_turns')).count === 0; rounds++) {
    await Promise.all([...others.flatMap(token => burst(token, 100)), ...burst(service.token, 3)])
  }
  t.ok((await waitsIn(service, 'thread_turns')).count > 0)
})

t.test('503 after a wait in vain says for what and how long, and when to try again', async t => {
  const service = await running(t, { ...OFF, LOCK_TIMEOUT_MS: '300', DATABASE_CONNECT_TIMEOUT_MS: '400' })
  await withLockedRow(service, async () => {
    t.match((await ask(service)).json(), {
      reason: 'overloaded',
      detail: /^This request waited in vain for a lock that another transaction .* Try again in 1 s\.$/,
    })
    t.match(linesOf(service).at(-1), { refusal: 'overloaded', setting: 'LOCK_TIMEOUT_MS' })
  })
  const held = await Promise.all(Array.from({ length: 4 }, () => service.database.pool.connect()))
  const refused = await ask(service)
  for (const client of held) client.release()
  t.match(refused.json(), {
    reason: 'overloaded',
    detail:
      'This request waited as long as one may, 0.4 s, and in vain for a connection to the database. Try again in 1 s.',
  })
  t.match(linesOf(service).at(-1), { refusal: 'overloaded', setting: 'DATABASE_CONNECT_TIMEOUT_MS' })
})
