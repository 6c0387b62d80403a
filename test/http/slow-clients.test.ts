import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { PIPELINED_REQUESTS_MAX } from '../../src/http/broken-requests.js'
import { slowness } from '../slowness.js'
import { RawConnection, type Running, running } from './running.js'

const OFF = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }

/** An honest request may take a second where this is 1, and on a busy machine so many times as long, or more. */
const timesSlower = Math.min(4, Math.round(slowness(40)))

/** Only for what waits for them. */
const QUICK = {
  ...OFF,
  HEADERS_TIMEOUT_MS: String(1_500 * timesSlower),
  REQUEST_TIMEOUT_MS: String(3_000 * timesSlower),
  KEEP_ALIVE_TIMEOUT_MS: String(1_000 * timesSlower),
  STALL_TIMEOUT_MS: String(6_000 * timesSlower),
}

function head({ token }: Pick<Running, 'token'>, ...headers: string[]): string {
  const lines = [
    'PATCH /persona/999999?dry_run=true&update_mask= HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    'Content-Type: application/json',
    ...headers,
  ]
  return `${lines.join('\r\n')}\r\n\r\n`
}

const whole = (service: Running) => `${head(service, 'Content-Length: 2')}{}`

/** An ordinary request of somebody else is answered (the agent is not there: 404) while all of these still wait. */
async function servesOthers(t: Test, service: Running, waiting: RawConnection[] = []): Promise<void> {
  const connection = new RawConnection(service.port).write(whole(service))
  await connection.until(/HTTP\/1\.1 404 /)
  t.ok(waiting.every(({ text, socket }) => text === '' && !socket.closed))
  connection.socket.destroy()
}

/** The metrics come to show this line; rejects when they do not. */
async function shows(service: Running, line: string): Promise<void> {
  const end = Date.now() + 180_000
  while (!(await service.metrics.text()).body.includes(`${line}\n`)) {
    if (Date.now() > end) throw new Error(`the metrics never say ${line}`)
    await sleep(20)
  }
}

function openedWith(service: Running, count: number, text = ''): RawConnection[] {
  return Array.from({ length: count }, () => {
    const connection = new RawConnection(service.port)
    if (text !== '') connection.write(text)
    return connection
  })
}

t.test('408 for headers that come byte by byte; others are served meanwhile', async t => {
  const service = await running(t, QUICK, { listen: true })
  const slow = openedWith(service, 50, 'GET /healthz HTTP/1.1\r\nX-Slow: ')
  const drip = setInterval(() => slow.forEach(connection => void connection.write('a')), 50)
  await servesOthers(t, service, slow)
  await Promise.all(slow.map(connection => connection.until(/HTTP\/1\.1 408 /)))
  clearInterval(drip)
  await Promise.all(slow.map(connection => connection.closed))
  const body = slow[0]?.json()
  t.equal(body?.error_code, 'REQUEST_TIMEOUT')
  t.equal(
    body?.detail,
    `The headers of a request must arrive within ${Number(QUICK.HEADERS_TIMEOUT_MS) / 1_000} s (HEADERS_TIMEOUT_MS).`,
  )
  t.match(body?.request_id, /^[A-Za-z0-9_-]{16}$/)
  t.match(slow[0]?.text, new RegExp(`X-Request-ID: ${body?.request_id}\r\n`))
  t.ok(service.log.some(line => line.includes(String(body?.request_id)) && line.includes('REQUEST_TIMEOUT')))
  t.notOk(service.log.some(line => line.includes('X-Slow')))
})

t.test(
  '408 for a body that never ends, with a length and in chunks: as every answer; nothing stays in work',
  async t => {
    const service = await running(t, QUICK, { listen: true })
    const start = (i: number) => {
      const id = `X-Request-ID: slow-${i}`
      if (i % 2 > 0) return `${head(service, id, 'Content-Length: 1000')}{"name":`
      return `${head(service, id, 'Transfer-Encoding: chunked')}2\r\n{"\r\n`
    }
    const slow = Array.from({ length: 50 }, (_, i) => new RawConnection(service.port).write(start(i)))
    await servesOthers(t, service, slow)
    await Promise.all(slow.map(connection => connection.until(/HTTP\/1\.1 408 /)))
    await Promise.all(slow.map(connection => connection.closed))
    for (const [i, connection] of slow.entries()) {
      t.equal(connection.text.split('HTTP/1.1').length, 2, 'one answer each')
      t.match(connection.headers, { 'x-request-id': `slow-${i}`, connection: 'close' })
      t.strictSame(connection.json(), {
        error_code: 'REQUEST_TIMEOUT',
        detail: `A whole request must arrive within ${Number(QUICK.REQUEST_TIMEOUT_MS) / 1_000} s (REQUEST_TIMEOUT_MS).`,
        request_id: `slow-${i}`,
      })
      const lines = service.log.filter(line => line.includes(`"slow-${i}"`)).map(line => JSON.parse(line))
      t.match(lines, [
        {
          msg: 'request answered',
          operation: 'update_persona',
          resource_id: 999999,
          token: Number,
          status: 408,
          refusal: 'REQUEST_TIMEOUT',
          client: '127.0.0.1',
        },
      ])
      t.equal(lines.length, 1)
    }
    await shows(service, 'agents_http_requests_in_work 0')
    await shows(service, 'agents_http_refusals_total{reason="REQUEST_TIMEOUT"} 50')
    await shows(service, 'agents_http_requests_abandoned_total{operation="update_persona"} 0')
  },
)

t.test('400 for chunks that cannot be read, once; a client that leaves in its body is told once, too', async t => {
  const service = await running(t, OFF, { listen: true })
  const broken = new RawConnection(service.port)
  broken.write(`${head(service, 'X-Request-ID: broken', 'Transfer-Encoding: chunked')}2\r\n{"\r\nnonsense\r\n`)
  await broken.closed
  t.match(broken.json(), { error_code: 'BAD_REQUEST', request_id: 'broken' })
  const leaves = new RawConnection(service.port)
  leaves.write(`${head(service, 'X-Request-ID: leaves', 'Content-Length: 1000')}{"name":`)
  await shows(service, 'agents_http_requests_in_work 1')
  leaves.socket.end()
  await leaves.closed
  await shows(service, 'agents_http_requests_abandoned_total{operation="update_persona"} 1')
  const told = service.log.map(line => JSON.parse(line)).filter(line => /broken|leaves/.test(line.request_id))
  t.strictSame(
    told.map(({ request_id, msg, operation, refusal }) => [request_id, msg, operation, refusal]),
    [
      ['broken', 'request answered', 'update_persona', 'BAD_REQUEST'],
      ['leaves', 'the client went away before its answer', 'update_persona', undefined],
    ],
  )
  t.notOk(service.log.some(line => line.includes('broken request')))
})

/** The request timeout, one minute away, would answer 408. */
const STALL = {
  ...OFF,
  STALL_TIMEOUT_MS: String(3_000 * timesSlower),
  REQUEST_TIMEOUT_MS: String(60_000 * timesSlower),
}

t.test(
  'a connection that falls silent within a body is cut without an answer; one that is only slow is not',
  async t => {
    const service = await running(t, STALL, { listen: true })
    const silent = openedWith(service, 50, `${head(service, 'Content-Length: 1000')}{"name":`)
    const slow = new RawConnection(service.port).write(head(service, 'Content-Length: 15'))
    await servesOthers(t, service, silent)
    for (const character of '{             }') {
      await sleep(300)
      slow.write(character)
    }
    await slow.until(/HTTP\/1\.1 404 /)
    slow.socket.destroy()
    await Promise.all(silent.map(connection => connection.closed))
    t.ok(silent.every(({ text }) => text === ''))
    await shows(service, 'agents_http_requests_in_work 0')
  },
)

t.test('a connection that takes no answers is cut, and others are served meanwhile', async t => {
  const service = await running(t, STALL, { listen: true })
  const deaf = openedWith(service, 3)
  // More answers than the buffers of both sides hold.
  for (const { socket } of deaf)
    socket.pause().write('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(15))
  await servesOthers(t, service, deaf)
  await shows(service, 'agents_http_connections 0')
  for (const { socket } of deaf) socket.destroy()
})

t.test('a connection that was used and is idle is closed after KEEP_ALIVE_TIMEOUT_MS', async t => {
  const service = await running(t, { ...OFF, KEEP_ALIVE_TIMEOUT_MS: '1000' }, { listen: true })
  const connection = new RawConnection(service.port).write(whole(service))
  await connection.until(/HTTP\/1\.1 404 /)
  const start = performance.now()
  await connection.closed
  t.ok(performance.now() - start < 30_000, 'half of what a stalled request would have')
})

t.test('1,000 idle connections are closed in time, and others are served meanwhile', async t => {
  const service = await running(t, QUICK, { listen: true })
  const idle = openedWith(service, 1_000)
  const used = openedWith(service, 20, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
  await Promise.all(used.map(connection => connection.until(/alive/)))
  await servesOthers(t, service, idle)
  const start = performance.now()
  await Promise.all([...idle, ...used].map(connection => connection.closed))
  t.ok(performance.now() - start < 10_000 * slowness())
  t.ok(
    idle.every(({ text }) => text === ''),
    'who has asked for nothing is answered nothing',
  )
  await shows(service, 'agents_http_refusals_total{reason="REQUEST_TIMEOUT"} 0')
})

t.test('connections beyond CONNECTIONS_MAX are closed at once, and there is room again when others go', async t => {
  const service = await running(
    t,
    { ...OFF, CONNECTIONS_MAX: '10', CONNECTIONS_PER_ADDRESS_MAX: '10' },
    { listen: true },
  )
  const held = openedWith(service, 10, 'GET /healthz HTTP/1.1\r\n')
  await new Promise(resolve => setTimeout(resolve, 100))
  const refused = new RawConnection(service.port)
  await refused.closed
  t.equal(refused.text, '')
  held[0]?.socket.destroy()
  await held[0]?.closed
  await servesOthers(t, service)
})

t.test('pipelined requests are each answered, in order', async t => {
  const service = await running(t, OFF, { listen: true })
  const connection = new RawConnection(service.port)
  const ask = (id: string) => `${head(service, 'Content-Length: 2', `X-Request-ID: ${id}`)}{}`
  const ids = Array.from({ length: PIPELINED_REQUESTS_MAX }, (_, i) => `request-${i}`)
  connection.write(ids.map(ask).join(''))
  await connection.until(new RegExp(`"request_id":"${ids.at(-1)}"`))
  t.strictSame(
    [...connection.text.matchAll(/"request_id":"([^"]+)"/g)].map(match => match[1]),
    ids,
  )
  connection.socket.destroy()
})

t.test('pipelined garbage cuts the connection and is no answer to the request before it', async t => {
  const service = await running(t, OFF, { listen: true })
  const connection = new RawConnection(service.port).write(`${whole(service)}\x00garbage\r\n\r\n`)
  await connection.closed
  t.notMatch(connection.text, /400/)
  const alone = new RawConnection(service.port).write('\x00garbage\r\n\r\n')
  await alone.closed
  t.match(alone.text, /^HTTP\/1\.1 400 Bad Request\r\n/)
  t.strictSame(
    { ...alone.json(), request_id: '' },
    {
      error_code: 'BAD_REQUEST',
      detail: 'This is not HTTP that can be read.',
      request_id: '',
    },
  )
})

t.test('431 for headers that are too large; the answer arrives although more is being sent', async t => {
  const service = await running(t, OFF, { listen: true })
  for (const size of [20_000, 2_000_000]) {
    const connection = new RawConnection(service.port)
    connection.write(`GET /healthz HTTP/1.1\r\nHost: a\r\nX-Large: ${'x'.repeat(size)}\r\n\r\n`)
    await connection.closed
    t.match(connection.text, /^HTTP\/1\.1 431 /)
    t.equal(connection.json().error_code, 'HEADERS_TOO_LARGE')
  }
  const connection = new RawConnection(service.port).write(`GET /${'x'.repeat(17_000)} HTTP/1.1\r\nHost: a\r\n\r\n`)
  await connection.closed
  t.match(connection.json(), { error_code: 'HEADERS_TOO_LARGE', detail: /^The request line and the headers together/ })
})

t.test('431 for more than 100 header fields, also where those that count come last', async t => {
  const service = await running(t, OFF, { listen: true })
  const answered = async (fields: number) => {
    const lines = ['GET /me HTTP/1.1', ...Array.from({ length: fields - 3 }, (_, i) => `x${i}: y`)]
    lines.push('Connection: close', 'Host: a', `Authorization: Bearer ${service.token}`)
    const connection = new RawConnection(service.port).write(`${lines.join('\r\n')}\r\n\r\n`)
    await connection.closed
    return connection
  }
  t.match((await answered(100)).text, /^HTTP\/1\.1 200 /)
  for (const fields of [101, 150, 1_500]) {
    const connection = await answered(fields)
    t.match(connection.text, /^HTTP\/1\.1 431 /)
    t.match(connection.json(), { error_code: 'HEADERS_TOO_LARGE', detail: /100 header fields/ })
  }
})

t.test('414 for an address of more than 4,096 characters, of which nothing is parsed', async t => {
  const { app, port, token } = await running(t, OFF, { listen: true })
  const received: IncomingMessage[] = []
  app.server.on('request', request => received.push(request))
  const connection = new RawConnection(port)
  const ask = async (address: string) => {
    connection.text = ''
    const lines = [
      `PATCH ${address} HTTP/1.1`,
      'Host: a',
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
    ]
    const body = '{"description":"by a long address"}'
    connection.write(`${lines.join('\r\n')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
    await connection.until(/\r\n\r\n\{[\s\S]*\}$/)
    return connection
  }
  const path = '/persona/1'
  const query = '?update_mask=description&dry_run=true'
  const long = (start: string, length: number) => start + '&a'.repeat(length).slice(0, length - start.length)
  const longest = await ask(long(path + query, 4_096))
  t.match(longest.text, /^HTTP\/1\.1 422 [\s\S]*extra_forbidden/)
  t.equal(received.at(-1)?.url, path, 'the router parses no query')
  for (const [address, parsed] of [
    [long(path + query, 4_097), path],
    [long(`${path}#x`, 15_000), path],
    [long('/nothing?', 15_000), '/nothing'],
    [`/${'persona/1/'.repeat(1_500)}`, '/'],
    [`${path}${'1'.repeat(300)}?${'a'.repeat(5_000)}`, path + '1'.repeat(300)], // the router refuses such a path
  ] as const) {
    const { text, headers } = await ask(address)
    t.match(text, /^HTTP\/1\.1 414 URI Too Long\r\n/)
    t.match(connection.json(), {
      error_code: 'URI_TOO_LONG',
      detail: `The address has ${address.length} characters, path and query together, and at most 4096 are read.`,
      request_id: headers['x-request-id'],
    })
    t.equal(received.at(-1)?.url, parsed)
  }
  const agent = await app.inject({ url: path, headers: { authorization: `Bearer ${token}` } })
  t.notMatch(agent.body, /by a long address/)
  connection.socket.destroy()
})

t.test('413 for a body over the limit, with a length and in chunks, and the connection goes on', async t => {
  const service = await running(t, { ...QUICK, PERSONA_BODY_LIMIT_BYTES: '10000' }, { listen: true })
  const declared = new RawConnection(service.port)
  declared.write(`${head(service, 'Content-Length: 20000')}${'x'.repeat(20_000)}${whole(service)}`)
  await declared.until(/HTTP\/1\.1 413 [\s\S]*HTTP\/1\.1 404 /)
  const chunked = new RawConnection(service.port)
  chunked.write(head(service, 'Transfer-Encoding: chunked'))
  const chunk = `3e8\r\n${'x'.repeat(1_000)}\r\n`
  for (let i = 0; i < 11; i++) chunked.write(chunk)
  await chunked.until(/PAYLOAD_TOO_LARGE/)
  t.match(chunked.json(), { error_code: 'PAYLOAD_TOO_LARGE', request_id: /./ })
  const drip = setInterval(() => chunked.write(chunk), 20)
  await chunked.closed // whoever never stops sending is cut at the request timeout, without another answer
  clearInterval(drip)
  t.equal(chunked.text.split('HTTP/1.1').length, 2)
  declared.socket.destroy()
})

t.test('413: agents and tools have limits of their own', async t => {
  const limits = { PERSONA_BODY_LIMIT_BYTES: '4000', TOOL_BODY_LIMIT_BYTES: '2000' }
  const { app, token } = await running(t, { ...OFF, ...limits })
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  for (const [method, url, limit, within] of [
    ['PATCH', '/persona/999999?update_mask=', 4_000, 404],
    ['PUT', '/admin/tool/custom/999999', 2_000, 404],
    ['POST', '/admin/tool/custom/validate', 2_000, 422],
  ] as const) {
    const ask = (size: number) => app.inject({ method, url, headers, payload: `{${' '.repeat(size - 2)}}` })
    t.equal((await ask(limit)).statusCode, within, `${method} ${limit} bytes`)
    const refused = await ask(limit + 1)
    t.equal(refused.statusCode, 413, `${method} one more`)
    t.match(refused.json(), { error_code: 'PAYLOAD_TOO_LARGE' })
  }
})

t.test('413 reaches a client that sends megabytes more', async t => {
  const service = await running(t, { ...OFF, PERSONA_BODY_LIMIT_BYTES: '10000' }, { listen: true })
  const answers = await Promise.all(
    Array.from({ length: 10 }, () =>
      fetch(`http://127.0.0.1:${service.port}/persona/999999`, {
        method: 'PATCH',
        headers: { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' },
        body: 'x'.repeat(6_000_000),
      }).then(
        answer => answer.status,
        error => error.cause?.code ?? String(error),
      ),
    ),
  )
  t.strictSame(answers, Array(10).fill(413))
})

t.test(
  '400 for HTTP/1.1 without Host, 404 for an address that cannot be decoded, in the shape of every error',
  async t => {
    const service = await running(t, QUICK, { listen: true })
    const hostless = new RawConnection(service.port).write('GET /healthz HTTP/1.1\r\n\r\n')
    await hostless.until(/request_id/)
    t.match(hostless.text, /^HTTP\/1\.1 400 /)
    t.match(hostless.json(), { error_code: 'BAD_REQUEST', request_id: /./ })
    const bad = new RawConnection(service.port).write(
      'GET /persona/%ff HTTP/1.1\r\nHost: a\r\nX-Request-ID: mine\r\n\r\n',
    )
    await bad.until(/request_id/)
    t.match(bad.text, /^HTTP\/1\.1 404 /)
    t.match(bad.text, /x-request-id: mine\r\n/)
    t.match(bad.text, /cache-control: no-store\r\n/)
    t.match(bad.json(), { error_code: 'NOT_FOUND', request_id: 'mine' })
    for (const text of [
      'FOO / HTTP/1.1\r\nHost: a\r\n\r\n',
      'GET / HTTP/9.9\r\nHost: a\r\n\r\n',
      'GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n',
    ]) {
      const broken = new RawConnection(service.port).write(text)
      await broken.closed
      t.match(broken.text, /^HTTP\/1\.1 400 /)
      t.match(broken.json(), { error_code: 'BAD_REQUEST', request_id: /./ })
    }
    const expecting = new RawConnection(service.port).write(
      'GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n',
    )
    await expecting.until(/alive/)
    const unusual = new RawConnection(service.port).write('PROPFIND /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
    await unusual.until(/request_id/)
    t.match(unusual.text, /^HTTP\/1\.1 405 /)
    for (const connection of [hostless, bad, expecting, unusual]) connection.socket.destroy()
  },
)

t.test('both a length and chunks, or two lengths, are refused: proxies read them differently', async t => {
  const service = await running(t, OFF, { listen: true })
  for (const lines of [
    ['Content-Length: 2', 'Transfer-Encoding: chunked'],
    ['Content-Length: 2', 'Content-Length: 3'],
    ['Transfer-Encoding: chunked, identity'],
    ['Transfer-Encoding : chunked'],
  ]) {
    const connection = new RawConnection(service.port).write(`${head(service, ...lines)}0\r\n\r\n`)
    await connection.closed
    t.match(connection.text, /^HTTP\/1\.1 400 /, lines.join('; '))
  }
})
