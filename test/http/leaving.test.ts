import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { ServiceProcess } from '../faults/service.js'
import { DEFINITION } from '../matrix-organisation.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { eventually, inWork, RawConnection, type Running, running, tokenOf, whenInWork } from './running.js'

/* Clients that leave, at every stage of a request: what they held of the bounds is given back, once. */

const SETTINGS = { RATE_LIMIT_PER_MINUTE: '0' }
const LARGE = JSON.stringify({ definition: { ...DEFINITION, 'x-note': 'x'.repeat(40_000) } })
const OPERATIONS = [
  { method: 'PATCH', path: '/persona/1?update_mask=description', body: '{"description":"later"}' },
  { method: 'PUT', path: '/admin/tool/custom/10', body: '{"description":"later"}' },
  { method: 'PUT', path: '/admin/tool/custom/10?dry_run=true', body: LARGE },
  { method: 'POST', path: '/admin/tool/custom/validate', body: JSON.stringify({ definition: DEFINITION }) },
  { method: 'POST', path: '/admin/tool/custom/validate?complete=true', body: LARGE },
  { method: 'GET', path: '/persona/1' },
  { method: 'GET', path: '/tool/10?version=1' },
  { method: 'GET', path: '/persona' },
] as const satisfies Operation[]

interface Operation {
  method: string
  path: string
  body?: string
}

/** The parts of a request: up to the end of its headers, and its body. */
function textOf(operation: Operation, token: string): { head: string; body: string } {
  const { body = '' } = operation
  const length = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`
  const first = `${operation.method} ${operation.path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n`
  return { head: `${first}${length}\r\n`, body }
}

const WAYS = ['within the headers', 'behind the headers', 'within the body', 'behind the body', 'pipelined'] as const

/** Sends a request as far as `way` says and leaves after a time; the connection does not read. */
async function leave({ port, token }: Running, operation: Operation, way: (typeof WAYS)[number], ms: number) {
  const { head, body } = textOf(operation, token)
  const sent = {
    'within the headers': head.slice(0, -10),
    'behind the headers': head,
    'within the body': head + body.slice(0, -1),
    'behind the body': head + body,
    pipelined: (head + body).repeat(3),
  }
  const client = new RawConnection(port)
  client.socket.pause()
  client.write(sent[way])
  await sleep(ms)
  client.socket.destroy()
  await client.closed
}

const statusOf = async ({ port, token }: Pick<Running, 'port' | 'token'>, operation: Operation) => {
  const { head, body } = textOf(operation, token)
  const client = new RawConnection(port).write(head + body)
  const answer = await client.until(/^HTTP\/1\.1 \d+/)
  client.socket.destroy()
  return answer.slice(9, 12)
}

t.test('1,200 updates that are aborted 1 to 6 ms after they were sent hold nothing afterwards', async t => {
  const service = await running(t, SETTINGS, { listen: true })
  for (let round = 0; round < 12; round++) {
    const [patch] = OPERATIONS
    const lane = async (i: number) => await leave(service, patch, 'behind the body', 1 + (i % 6))
    await Promise.all(Array.from({ length: 100 }, (_, i) => lane(i)))
  }
  await whenInWork(service, 0)
  t.equal(await statusOf(service, OPERATIONS[0]), '200')
})

t.test('whatever a client has sent when it leaves, and whatever it then waits for, is given back', async t => {
  const service = await running(t, SETTINGS, { listen: true })
  const { database } = service
  const stalls = {
    nothing: undefined,
    authentication: sql`lock table token in access exclusive mode`,
    'a row, and then the pool': sql`select from persona, tool for update`,
    'the statements of reads': sql`lock table persona_tool in access exclusive mode`,
  }
  for (const [name, stall] of Object.entries(stalls)) {
    const holding = await database.db.startTransaction().execute()
    await stall?.execute(holding)
    const leaving = OPERATIONS.flatMap(operation =>
      WAYS.flatMap(way => [leave(service, operation, way, 5), leave(service, operation, way, 150)]),
    )
    await Promise.all(leaving)
    await holding.rollback().execute()
    await whenInWork(service, 0)
    for (const operation of OPERATIONS) t.equal(await statusOf(service, operation), '200', `${operation.path}: ${name}`)
  }
  const unnamed = service.log.filter(line => line.includes('"client":""'))
  t.strictSame(unnamed, [], 'the log names the clients that left')
  t.ok(service.log.some(line => line.includes('"client":"127.0.0.1"')))
})

/** Beyond what the buffers of both sides of a connection take. */
const UNREAD_BYTES = 12_000_000
const UNREAD = { method: 'GET', path: '/persona/2' }

/** A service whose agent 2 has an answer of that size, and a reader of it that does not read. */
async function unread(t: Parameters<typeof running>[0], settings: Record<string, string>) {
  const SNAPSHOT_BYTES_MAX = String(16 * 2 ** 20)
  const service = await running(t, { ...SETTINGS, SNAPSHOT_BYTES_MAX, ...settings }, { listen: true })
  const headers = { authorization: `Bearer ${service.token}` }
  const tools = [10, 11, 12]
  const definition = { ...DEFINITION, 'x-note': 'x'.repeat(UNREAD_BYTES / tools.length) }
  const put = async (method: 'PATCH' | 'PUT', url: string, payload: object) => {
    const { statusCode, body } = await service.app.inject({ method, url, payload, headers })
    if (statusCode !== 200) throw new Error(`not put: ${body.slice(0, 500)}`)
  }
  for (const id of tools) await put('PUT', `/admin/tool/custom/${id}`, { definition })
  await put('PATCH', '/persona/2?update_mask=tool_ids', { tool_ids: tools })
  const accepted: Socket[] = []
  service.app.server.on('connection', socket => accepted.push(socket))
  const ask = (operation: Operation, times = 1) => {
    const { head, body } = textOf(operation, service.token)
    const client = new RawConnection(service.port)
    client.socket.pause()
    return client.write((head + body).repeat(times))
  }
  const heldCount = () => accepted.filter(({ writableLength }) => writableLength > 0).length
  return { service, ask, heldCount }
}

t.test(
  '200 for others, and in the end for all, while a token does not read as many answers as it has places',
  async t => {
    const { service, ask, heldCount } = await unread(t, { CONCURRENT_REQUESTS_MAX: '2' })
    const token = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
    const held = [1, 2, 3].map(() => ask(UNREAD))
    await eventually(() => heldCount() === 2)
    for (let i = 0; i < 5; i++) t.equal(await statusOf({ ...service, token }, OPERATIONS[0]), '200')
    t.equal(await inWork(service), 3)
    for (const { socket } of held) socket.resume()
    await eventually(() => held.every(({ text }) => text.length > UNREAD_BYTES))
    await whenInWork(service, 0)
  },
)

t.test('an answer that is not read in time is cut, also one read bit by bit, and gives its place back', async t => {
  const { service, ask } = await unread(t, {})
  service.app.server.requestTimeout = 2_000
  const clients = [1, 2, 3, 4].map(() => ask(UNREAD))
  const [slow] = clients
  const reading = setInterval(() => slow?.socket.read(1_000), 50)
  t.teardown(() => clearInterval(reading))
  await eventually(() => service.log.filter(line => line.includes('closed before the answer was read')).length === 4)
  await whenInWork(service, 0)
  clearInterval(reading)
  for (const client of clients) {
    client.socket.resume()
    await client.closed
    t.ok(client.text.length < UNREAD_BYTES)
  }
})

t.test('200 for every pipelined request: one waits, and holds no answer, until the one before it is read', async t => {
  const { service, ask, heldCount } = await unread(t, {})
  const client = ask(UNREAD, 5)
  await eventually(() => heldCount() > 0)
  await whenInWork(service, 5)
  client.socket.resume()
  await whenInWork(service, 0)
  t.equal(client.text.match(/HTTP\/1\.1 200/g)?.length, 5)
  client.socket.destroy()
})

t.test(
  'answers of 4 MB on 60 connections that stay open are not kept in memory, and few that are not read',
  async t => {
    const world = await worldDatabase(t)
    const service = await ServiceProcess.start({ DATABASE_URL: world.url, SECRET_KEYS: TEST_SECRET_KEYS })
    t.teardown(() => service.stop('SIGKILL'))
    const { port } = service
    const [token, other] = [await world.token('admin@example.com'), await world.token('admin@example.com')]
    const definition = { ...DEFINITION, 'x-note': 'x'.repeat(4_000_000) }
    const body = JSON.stringify({ definition })
    t.equal(await statusOf({ port, token }, { method: 'PUT', path: '/admin/tool/custom/10', body }), '200')
    const clients = []
    for (let i = 0; i < 60; i++) {
      const isRead = i % 8 > 0
      const { head } = textOf({ method: 'GET', path: '/tool/10' }, isRead ? other : token)
      const client = new RawConnection(port).write(head)
      clients.push(client)
      await client.until(/^HTTP\/1\.1 200/)
      if (!isRead) client.socket.pause()
    }
    let bytes = Number.POSITIVE_INFINITY
    for (let tries = 0; tries < 100 && bytes > 120e6; tries++) {
      bytes = (await service.metric('nodejs_external_memory_bytes')) ?? bytes
      await statusOf({ port, token: other }, { method: 'GET', path: '/tool/10' }) // work, so that memory is collected
    }
    t.ok(bytes <= 120e6, `${bytes} bytes`)
    for (const { socket } of clients) socket.destroy()
  },
)
