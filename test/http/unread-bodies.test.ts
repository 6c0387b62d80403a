import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { DROPPED_BYTES_MAX, LINGER_MS } from '../../src/http/connection-end.js'
import { Metrics } from '../../src/http/metrics.js'
import { listenForMetrics } from '../../src/http/metrics-port.js'
import { eventually, RawConnection, type Running, running } from './running.js'

const LIMIT_BYTES = 4_000_000
const service = await running(
  t,
  { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0', PERSONA_BODY_LIMIT_BYTES: String(LIMIT_BYTES) },
  { listen: true },
)
const { token, port } = service
t.jobs = 4

/** What two reads of a connection may take in before anything of it was looked at. */
const READ_BYTES_MAX = 4 * DROPPED_BYTES_MAX
/** More than buffers of the system hold. */
const FLOOD = Buffer.alloc(16 * 2 ** 20, ' ')

const PATCH = 'PATCH /persona/999999?dry_run=true&update_mask='
const JSON_TYPE = 'Content-Type: application/json'
const bearer = (token: string) => `Authorization: Bearer ${token}`

function head(target: string, ...headers: string[]): string {
  return `${[`${target} HTTP/1.1`, 'Host: localhost', ...headers].join('\r\n')}\r\n\r\n`
}

const whole = (token: string) => `${head(PATCH, bearer(token), JSON_TYPE, 'Content-Length: 2')}{}`

/** The ends of the connections of a service on its own side. */
function accepted({ app }: Pick<Running, 'app'>): Socket[] {
  const sockets: Socket[] = []
  app.server.on('connection', socket => sockets.push(socket))
  return sockets
}

/** Sends the start of a request and megabytes behind it; holds when the answer arrives, says that it is the last, and is. */
async function requireUnread(t: Test, to: number, sockets: Socket[], start: string, status: number): Promise<void> {
  const connection = new RawConnection(to).write(start)
  connection.socket.write(FLOOD)
  await connection.until(/HTTP/)
  const { localPort } = connection.socket
  const socket = sockets.find(({ remotePort }) => remotePort === localPort)
  await connection.closed
  const statuses = [...connection.text.matchAll(/^HTTP\/1\.1 (\d+) /gm)].map(([, found]) => Number(found))
  t.strictSame(statuses, [status], connection.text)
  t.match(connection.text, /\r\nconnection: close\r\n/i)
  const bytes = socket?.bytesRead ?? Number.NaN
  t.ok(bytes < READ_BYTES_MAX, `${bytes} bytes were read`)
}

t.test('nothing more is read of a large body that was refused, whatever it is refused for', async t => {
  t.jobs = 12
  const sockets = accepted(service)
  const unknown = mintToken('person').token
  const large = 'Content-Length: 1000000000'
  const fitting = `Content-Length: ${LIMIT_BYTES}`
  const cases: [string, number, string][] = [
    ['a token that is none', 401, head(PATCH, bearer('pat_nope'), JSON_TYPE, large)],
    ['a token that nobody has', 401, head(PATCH, bearer(unknown), JSON_TYPE, large)],
    ['larger than what is taken', 413, head(PATCH, bearer(token), JSON_TYPE, large)],
    ['another media type', 415, head(PATCH, bearer(token), 'Content-Type: text/plain', fitting)],
    ['an address where nothing is', 404, head('POST /nothing', JSON_TYPE, large)],
    ['an address that cannot be decoded', 404, head('POST /persona/%ff', JSON_TYPE, large)],
    ['another method', 405, head('POST /healthz', JSON_TYPE, large)],
    ['a read that has a body', 200, head('GET /healthz', large)],
    ['two lengths', 400, head(PATCH, 'Content-Length: 2', 'Content-Length: 3')],
    ['headers that are too large', 431, `GET /healthz HTTP/1.1\r\nX-Large: ${'x'.repeat(20_000)}`],
  ]
  await Promise.all(
    cases.map(([name, status, start]) =>
      t.test(name, async t => {
        await requireUnread(t, port, sockets, start, status)
      }),
    ),
  )
})

t.test('429: nothing more is read of a large body of a token beyond its quota', async t => {
  const limited = await running(t, { RATE_LIMIT_PER_MINUTE: '1' }, { listen: true })
  const sockets = accepted(limited)
  await new RawConnection(limited.port).write(whole(limited.token)).until(/^HTTP\/1\.1 404 /)
  const start = head(PATCH, bearer(limited.token), JSON_TYPE, 'Content-Length: 4000000')
  await requireUnread(t, limited.port, sockets, start, 429)
})

t.test('nothing is read of a body on the port of the metrics', async t => {
  const readiness = () => service.service.readiness()
  const server = await listenForMetrics(new Metrics(), { host: '127.0.0.1', port: 0, token: undefined, readiness })
  t.teardown(() => void server.close())
  const sockets: Socket[] = []
  server.on('connection', socket => sockets.push(socket))
  const { port: own } = server.address() as { port: number } // it listens on TCP
  await requireUnread(t, own, sockets, head('POST /metrics', 'Content-Length: 1000000000'), 405)
})

t.test('a connection goes on behind a refused body that is small, also where its rest comes later', async t => {
  const length = `Content-Length: ${DROPPED_BYTES_MAX}`
  for (const [status, start] of [
    [401, head(PATCH, bearer('pat_nope'), JSON_TYPE, length)],
    [415, head(PATCH, bearer(token), 'Content-Type: text/plain', length)],
  ] as const) {
    const sent = start.slice(start.indexOf('\r\n\r\n') + 4).length
    const connection = new RawConnection(port).write(start)
    await connection.until(/"detail"/)
    t.match(connection.text, new RegExp(`^HTTP/1\\.1 ${status} `))
    t.notMatch(connection.text, /connection: close/i)
    await sleep(100)
    connection.write(' '.repeat(DROPPED_BYTES_MAX - sent - 1))
    await sleep(100)
    await connection.write(` ${whole(token)}`).until(/HTTP\/1\.1 404 /)
    connection.socket.destroy()
  }
})

t.test('a connection ends behind small bodies that nobody read when they are no longer small together', async t => {
  const bytes = DROPPED_BYTES_MAX / 4
  const body = ' '.repeat(bytes)
  const targets = {
    200: ['GET /healthz'],
    401: [PATCH, bearer('pat_nope'), JSON_TYPE],
    404: ['POST /nothing', JSON_TYPE],
  }
  for (const [status, [target = '', ...headers]] of Object.entries(targets)) {
    const connection = new RawConnection(port)
    const one = head(target, ...headers, `Content-Length: ${bytes}`) + body
    const answer = new RegExp(`^HTTP/1\\.1 ${status} [\\s\\S]*\\}$`)
    for (let i = 0; i < 4; i++) {
      connection.text = ''
      await connection.write(one).until(answer)
      t.notMatch(connection.text, /connection: close/i)
      connection.text = ''
      await connection.write(whole(token)).until(/^HTTP\/1\.1 404 [\s\S]*\}$/) // what is read counts for nothing
    }
    for (let i = 0; i < 50; i++) {
      connection.text = ''
      await connection.write(`${head(target, ...headers, 'Content-Length: 4096')}${' '.repeat(4_096)}`).until(answer)
      t.notMatch(connection.text, /connection: close/i) // no more than headers may have
    }
    connection.text = ''
    await connection.write(one).until(answer)
    t.match(connection.text, /\r\nconnection: close\r\n/i)
    await connection.closed
  }
})

t.test('behind the last answer the rest of a small body has its time, and what follows it is not served', async t => {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }) // it sends on when the service has ended its side
  let text = ''
  socket.on('data', chunk => {
    text += chunk.toString('latin1')
  })
  const faults: Error[] = []
  socket.on('error', error => faults.push(error))
  const closed = new Promise(resolve => socket.once('close', resolve))
  const ended = new Promise(resolve => socket.once('end', resolve))
  const bytes = DROPPED_BYTES_MAX / 2
  const start = head(PATCH, bearer('pat_nope'), JSON_TYPE, `Content-Length: ${bytes}`)
  for (let answers = 1; answers < 3; answers++) {
    socket.write(start + ' '.repeat(bytes))
    await eventually(() => text.split('"request_id"').length > answers)
  }
  t.notMatch(text, /connection: close/i)
  socket.write(start + ' '.repeat(bytes / 2))
  await ended
  t.match(text, /\r\nconnection: close\r\n/i)
  for (let i = 1; i < 32; i++) {
    socket.write(' '.repeat(bytes / 64))
    await sleep((LINGER_MS * 2.5) / 32)
  }
  t.strictSame(faults, [], 'all of it was taken')
  const next = head(PATCH, bearer(token), JSON_TYPE, 'Content-Length: 2', 'X-Request-ID: behind-the-last')
  socket.end(`${' '.repeat(bytes / 64)}${next}{}`)
  await closed
  await sleep(200)
  t.notMatch(service.log.join(''), 'behind-the-last', 'a request whose answer could not be sent is not begun')
})

t.test('a client that wants the connection closed reads the answer to a body that it still sends', async t => {
  const start = head(PATCH, bearer('pat_nope'), JSON_TYPE, 'Connection: close', `Content-Length: ${DROPPED_BYTES_MAX}`)
  const connection = new RawConnection(port).write(start)
  const drip = setInterval(() => connection.write(' '.repeat(1_000)), 5)
  await connection.closed
  clearInterval(drip)
  t.match(connection.text, /^HTTP\/1\.1 401 [\s\S]*"request_id":"[^"]+"\}$/)
})

t.test(
  '100 Continue is sent when the body is about to be read; what is refused before has its status alone',
  async t => {
    const expecting = (...headers: string[]) => head(PATCH, ...headers, 'Expect: 100-continue')
    for (const [status, start] of [
      [401, expecting(bearer('pat_nope'), JSON_TYPE, 'Content-Length: 2')],
      [401, expecting(bearer(mintToken('person').token), JSON_TYPE, 'Content-Length: 2')],
      [413, expecting(bearer(token), JSON_TYPE, `Content-Length: ${LIMIT_BYTES + 1}`)],
      [415, expecting(bearer(token), 'Content-Type: text/plain', 'Content-Length: 2')],
      [404, expecting(bearer(token), JSON_TYPE, 'Content-Length: 2').replace('/persona/', '/nothing/')],
    ] as const) {
      const refused = new RawConnection(port).write(start)
      await refused.until(/"detail"/)
      // Whether the body comes now nobody knows.
      t.match(refused.text, new RegExp(`^HTTP/1\\.1 ${status} [\\s\\S]*\\r\\nconnection: close\\r\\n`, 'i'))
      refused.socket.destroy()
    }
    const taken = new RawConnection(port)
    for (const chunked of [false, true]) {
      taken.text = ''
      taken.write(expecting(bearer(token), JSON_TYPE, chunked ? 'Transfer-Encoding: chunked' : 'Content-Length: 2'))
      await taken.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/)
      await taken
        .write(chunked ? '2\r\n{}\r\n0\r\n\r\n' : '{}')
        .until(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 404 /)
      t.notMatch(taken.text, /connection: close/i)
    }
    taken.text = ''
    await taken.write(whole(token)).until(/^HTTP\/1\.1 404 /)
    taken.socket.destroy()
  },
)

t.test('who reads half of the time later finds the whole answer', async t => {
  const connection = new RawConnection(port)
  connection.socket.pause()
  connection.write(head(PATCH, bearer('pat_nope'), JSON_TYPE, 'Content-Length: 1000000000'))
  connection.socket.write(FLOOD)
  await sleep(LINGER_MS / 2)
  connection.socket.resume()
  await connection.closed
  t.match(connection.text, /^HTTP\/1\.1 401 [\s\S]*"request_id":"[^"]+"\}$/)
})

t.test('a refused body in chunks, or a large one, is one line of the log', async t => {
  const counting = await running(t, {}, { listen: true })
  for (const length of ['Transfer-Encoding: chunked', 'Content-Length: 1000000']) {
    counting.log.length = 0
    const connection = new RawConnection(counting.port)
    await connection.write(head(PATCH, bearer(mintToken('person').token), JSON_TYPE, length)).until(/HTTP/)
    await connection.closed
    t.strictSame(
      counting.log.map(line => (JSON.parse(line) as { msg: string }).msg),
      ['request answered'],
    )
  }
})
