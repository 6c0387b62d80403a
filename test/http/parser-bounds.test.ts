import type { IncomingMessage } from 'node:http'
import t from 'tap'
import { PIPELINED_REQUESTS_MAX } from '../../src/http/broken-requests.js'
import { PackedMessage } from '../../src/http/packed-message.js'
import { eventually, RawConnection, running } from './running.js'

/** Little more than one read of a connection. */
const READ_BYTES = 64 * 1024

const GET = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'

function chunkedHead(method: string, path: string, token?: string): string {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'Host: a',
    'Content-Type: application/json',
    'Transfer-Encoding: chunked',
  ]
  if (token !== undefined) lines.push(`Authorization: Bearer ${token}`)
  return `${lines.join('\r\n')}\r\n\r\n`
}

t.test('of one read nothing is made behind what closes the connection', async t => {
  const { app, port } = await running(t, {}, { listen: true })
  let made = 0
  app.server.on('request', () => made++)
  const connection = new RawConnection(port).write(GET.repeat(READ_BYTES / GET.length))
  await connection.closed
  t.ok(made <= PIPELINED_REQUESTS_MAX + 2, `${made} requests`)
  const next = new RawConnection(port).write(GET)
  await next.until(/"status"/)
  t.match(next.text, /^HTTP\/1\.1 200 /)
  next.socket.destroy()
})

t.test('of a body in small chunks no more is made than who reads it needs to refuse it', async t => {
  const { app, port, token } = await running(t, {}, { listen: true })
  const requests: IncomingMessage[] = []
  app.server.on('request', request => requests.push(request))
  const pieces = () => requests.map(request => (request instanceof PackedMessage ? request.pieces : Number.NaN))
  const chunks = `${'1\r\n \r\n'.repeat(10_000)}0\r\n\r\n`

  const kept = new RawConnection(port).write(chunkedHead('GET', '/healthz') + chunks)
  await kept.until(/"status"/)
  t.match(kept.text, /^HTTP\/1\.1 200 /)
  const refused = new RawConnection(port).write(chunkedHead('PATCH', '/persona/1') + chunks)
  await refused.until(/"detail"/)
  t.match(refused.text, /^HTTP\/1\.1 401 /)
  t.ok(Math.max(...pieces()) <= 110, `${pieces()} pieces of bodies that nobody reads`)

  requests.length = 0
  const tiny = new RawConnection(port).write(chunkedHead('PATCH', '/persona/1', token) + chunks)
  await tiny.until(/"detail"/)
  t.match(tiny.text, /^HTTP\/1\.1 400 [\s\S]*chunks/)
  t.ok(Math.max(...pieces()) <= 4_100, `${pieces()} pieces of a body that is refused`)

  // The parser hands on the next body of the connection, and those of the connections that have it next.
  const body = JSON.stringify({ description: 'x'.repeat(200) })
  const small = body.match(/.{1,2}/g) ?? []
  const whole = `${small.map(chunk => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('')}0\r\n\r\n`
  for (const { socket } of [refused, tiny]) socket.destroy()
  for (const connection of [kept, ...Array.from({ length: 4 }, () => new RawConnection(port))]) {
    connection.text = ''
    connection.write(chunkedHead('PATCH', '/persona/1?update_mask=description', token) + whole)
    await connection.until(/^HTTP\/1\.1 200 [\s\S]*x{200}/)
    connection.socket.destroy()
  }
  t.equal(requests.length, 6)
})

t.test('bodies of one read are bounded together, and what was cut is never taken for the whole', async t => {
  const { app, port, token } = await running(t, {}, { listen: true })
  const requests: IncomingMessage[] = []
  app.server.on('request', request => requests.push(request))
  // Each alone is within its bound; the second is whole JSON where it is cut, and would not be at its end.
  const chunked = (text: string) => `${[...text].map(chunk => `1\r\n${chunk}\r\n`).join('')}0\r\n\r\n`
  const path = '/persona/1?update_mask=description'
  const body = `{"description":"kept"}${' '.repeat(3_500)}`
  const texts = [body, `${body.replace('kept', 'cut')}x`, body]
  const connection = new RawConnection(port)
  connection.write(texts.map(text => chunkedHead('PATCH', path, token) + chunked(text)).join(''))
  await connection.until(/HTTP\/1\.1 400 [\s\S]*chunks/)
  t.match(connection.text, /^HTTP\/1\.1 200 [\s\S]*"description" ?: ?"kept"/)
  t.notMatch(connection.text, /"description" ?: ?"cut"/)
  const pieces = requests.reduce((sum, request) => sum + (request instanceof PackedMessage ? request.pieces : 0), 0)
  t.ok(pieces <= 4_200, `${pieces} pieces`)
  connection.socket.destroy()
})

t.test('bodies of all connections that are read in one turn of the event loop are bounded together', async t => {
  const { app, port, token } = await running(t, {}, { listen: true })
  const requests: IncomingMessage[] = []
  app.server.on('request', request => requests.push(request))
  const sent = chunkedHead('PATCH', '/persona/1?update_mask=description', token) + '1\r\n \r\n'.repeat(3_900)
  let accepted = 0
  app.server.on('connection', () => accepted++)
  const connections = Array.from({ length: 40 }, () => new RawConnection(port))
  await eventually(() => accepted === connections.length)
  for (const connection of connections) connection.write(`${sent}0\r\n\r\n`)
  await Promise.all(connections.map(connection => connection.until(/"detail"/)))
  const pieces = requests.reduce((sum, request) => sum + (request instanceof PackedMessage ? request.pieces : 0), 0)
  t.ok(pieces < 100_000, `${pieces} pieces of 156,000`)
  const refused = connections.filter(({ text }) => text.startsWith('HTTP/1.1 503 '))
  t.ok(refused.length > 0)
  for (const connection of refused) {
    t.match(connection.headers, { 'retry-after': '1' })
    t.match(connection.json(), { reason: 'overloaded', outcome: 'not_applied', detail: /small chunks/ })
  }
  for (const { socket } of connections) socket.destroy()
  const next = new RawConnection(port).write(`${sent}16\r\n{"description":"next"}\r\n0\r\n\r\n`)
  await next.until(/^HTTP\/1\.1 200 /)
  next.socket.destroy()
})
