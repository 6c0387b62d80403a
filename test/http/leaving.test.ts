import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { DEFINITION } from '../matrix-organisation.js'
import { eventually, inWork, RawConnection, type Running, running, tokenOf, whenInWork } from './running.js'

/* If a client disconnects at any stage of a request, everything that the request held is released exactly once. */

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

function textOf(operation: Operation, token: string): { head: string; body: string } {
  const { body = '' } = operation
  const length = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`
  const first = `${operation.method} ${operation.path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n`
  return { head: `${first}${length}\r\n`, body }
}

/** The parts of a request to send: part of the head, the head, the head and part of the body, the whole request, or three requests. */
const WAYS: ((head: string, body: string) => string)[] = [
  head => head.slice(0, -10),
  head => head,
  (head, body) => head + body.slice(0, -1),
  (head, body) => head + body,
  (head, body) => (head + body).repeat(3),
]

/** Sends the part of a request that `way` returns, does not read the answer, and disconnects after `ms` milliseconds. */
async function leave({ port, token }: Running, operation: Operation, way: (typeof WAYS)[number], ms: number) {
  const { head, body } = textOf(operation, token)
  const client = new RawConnection(port)
  client.socket.pause()
  client.write(way(head, body))
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

t.test('everything that a request holds is released when its client leaves, at whatever stage', async t => {
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

/** More than the buffers of both sides of a connection hold. */
const UNREAD_BYTES = 12_000_000

/** Starts a service whose answer for agent 2 is longer than `UNREAD_BYTES`. `ask` requests this answer and does not read it. */
async function unread(t: Parameters<typeof running>[0], settings: Record<string, string>) {
  const SNAPSHOT_BYTES_MAX = String(16 * 2 ** 20)
  const service = await running(t, { ...SETTINGS, SNAPSHOT_BYTES_MAX, ...settings }, { listen: true })
  const tools = [10, 11, 12]
  const definition = { ...DEFINITION, 'x-note': 'x'.repeat(UNREAD_BYTES / tools.length) }
  const put = async (method: 'PATCH' | 'PUT', url: string, body: object) => {
    const answer = await service.call(method, url, { token: service.token, body })
    if (answer.statusCode !== 200) throw new Error(`not put: ${answer.body.slice(0, 500)}`)
  }
  for (const id of tools) await put('PUT', `/admin/tool/custom/${id}`, { definition })
  await put('PATCH', '/persona/2?update_mask=tool_ids', { tool_ids: tools })
  const accepted: Socket[] = []
  service.app.server.on('connection', socket => accepted.push(socket))
  const ask = () => {
    const client = new RawConnection(service.port)
    client.socket.pause()
    return client.write(textOf({ method: 'GET', path: '/persona/2' }, service.token).head)
  }
  const heldCount = () => accepted.filter(({ writableLength }) => writableLength > 0).length
  return { service, ask, heldCount }
}

t.test('200 for others, and at last for all, while a token leaves answers in all its places unread', async t => {
  const { service, ask, heldCount } = await unread(t, {})
  const token = await tokenOf(service.database, { email: 'alice+other@example.com' })
  const held = [1, 2, 3].map(() => ask())
  await eventually(() => heldCount() === 2)
  for (let i = 0; i < 5; i++) t.equal(await statusOf({ ...service, token }, OPERATIONS[0]), '200')
  t.equal(await inWork(service), 3)
  for (const { socket } of held) socket.resume()
  await eventually(() => held.every(({ text }) => text.length > UNREAD_BYTES))
  await whenInWork(service, 0)
})

t.test('an answer that is not read in time is cut, also one read bit by bit, and gives its place back', async t => {
  const { service, ask } = await unread(t, {})
  service.app.server.requestTimeout = 2_000
  const clients = [1, 2, 3, 4].map(() => ask())
  const [slow] = clients
  const reading = setInterval(() => slow?.socket.read(1_000), 50)
  t.teardown(() => clearInterval(reading))
  await eventually(() => service.log.filter(line => line.includes('closed before the answer was sent')).length === 4)
  await whenInWork(service, 0)
  clearInterval(reading)
  for (const client of clients) {
    client.socket.resume()
    await client.closed
    t.ok(client.text.length < UNREAD_BYTES)
  }
})
