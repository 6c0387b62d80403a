import { sql } from 'kysely'
import t from 'tap'
import { InFlight } from '../src/limits/in-flight.js'
import {
  eventually,
  metricsOf,
  RawConnection,
  type Running,
  running,
  saysItsLimit,
  tokenOf,
  whenInWork,
} from './http/running.js'

/* Each bound of what a process takes on: what the first request beyond it is answered, and that it ends with the work. */

const head = (token: string, length: string) =>
  `PATCH /persona/999999?update_mask=description HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n${length}\r\n\r\n`

/** Begins an update and sends nothing of its body. */
function begin({ port, token }: Running, of = token, length = 'Content-Length: 20'): RawConnection {
  return new RawConnection(port).write(head(of, length))
}

async function ask(service: Running, token = service.token) {
  const answer = await fetch(`http://127.0.0.1:${service.port}/persona/999999`, {
    headers: { authorization: `Bearer ${token}` },
  })
  const headers = Object.fromEntries(answer.headers)
  return { status: answer.status, headers, body: (await answer.json()) as Record<string, unknown> }
}

t.test(
  '429 for a token with half of CONCURRENT_REQUESTS_MAX in work, 503 when all are; both end with the work',
  async t => {
    const service = await running(t, { CONCURRENT_REQUESTS_MAX: '4' }, { listen: true })
    const other = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
    const held = [begin(service), begin(service)]
    await whenInWork(service, 2)
    const own = await ask(service)
    t.equal(own.status, 429)
    t.equal(own.headers['ratelimit-policy'], '"token-requests";q=2;qu="concurrent-requests"')
    saysItsLimit(t, own.headers, own.body)
    t.equal((await ask(service, other)).status, 404, 'another token goes on')
    held.push(begin(service, other), begin(service, other))
    await whenInWork(service, 4)
    const third = await tokenOf(service.database, { email: 'alice+third@example.com', active: true })
    const all = await ask(service, third)
    t.equal(all.status, 503)
    t.equal(all.headers['retry-after'], '1')
    t.match(all.body, { error_code: 'SERVICE_UNAVAILABLE', reason: 'overloaded' })
    t.equal((await fetch(`http://127.0.0.1:${service.port}/healthz`)).status, 200, 'probes go on')
    for (const connection of held) connection.write('{"description":"abc"}'.slice(0, 20))
    await Promise.all(held.map(connection => connection.until(/HTTP\/1\.1 4\d\d/)))
    await whenInWork(service, 0)
    t.equal((await ask(service)).status, 404)
    for (const connection of held) connection.socket.destroy()
  },
)

t.test(
  '429 for a quarter of TRANSFER_BYTES_MAX announced by one token, 503 for all of it; a client that leaves frees it',
  async t => {
    const service = await running(t, { TRANSFER_BYTES_MAX: String(8 * 2 ** 20) }, { listen: true })
    const tokens = [service.token]
    for (let i = 0; i < 4; i++)
      tokens.push(await tokenOf(service.database, { email: `alice+${i}@example.com`, active: true }))
    const twoMib = `Content-Length: ${2 * 2 ** 20}`
    const held = [begin(service, tokens[0], twoMib)]
    await whenInWork(service, 1)
    const own = await begin(service, tokens[0], 'Content-Length: 100').until(/\r\n\r\n\{.*\}/)
    t.match(own, /^HTTP\/1\.1 429 [\s\S]*"token-memory";q=2097152;qu="content-bytes"/i)
    for (const token of tokens.slice(1, 4)) held.push(begin(service, token, twoMib))
    await whenInWork(service, 4)
    const all = await begin(service, tokens[4], 'Content-Length: 100').until(/\r\n\r\n\{.*\}/)
    t.match(all, /^HTTP\/1\.1 503 [\s\S]*"reason":"overloaded","outcome":"not_applied"/)
    for (const connection of held) connection.socket.destroy()
    await whenInWork(service, 0)
    t.match(await begin(service, tokens[0], 'Content-Length: 2').write('{}').until(/HTTP/), /^HTTP\/1\.1 4(04|22)/)
  },
)

t.test('a body without a length counts as the largest of its route', async t => {
  const service = await running(t, { TRANSFER_BYTES_MAX: String(4 * 2 ** 20) }, { listen: true })
  const chunked = begin(service, service.token, 'Transfer-Encoding: chunked')
  await whenInWork(service, 1)
  const refused = await begin(service, service.token, 'Content-Length: 100').until(/\r\n\r\n\{.*\}/)
  t.match(refused, /^HTTP\/1\.1 429 /)
  chunked.socket.destroy()
  await whenInWork(service, 0)
})

t.test('408 blames a client only for a body that it did not send', async t => {
  const service = await running(t, { REQUEST_TIMEOUT_MS: '400' }, { listen: true })
  const slow = begin(service)
  t.match(await slow.until(/HTTP[\s\S]*\}/), /^HTTP\/1\.1 408 [\s\S]*A whole request must arrive within 0.4 s/)
  await slow.closed
  const header = new RawConnection(service.port).write('GET /healthz HTTP/1.1\r\nHo')
  t.match(
    await header.until(/HTTP[\s\S]*\}/),
    /^HTTP\/1\.1 408 [\s\S]*The headers of a request must arrive within 0.4 s/,
  )
  const second = new RawConnection(service.port).write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /he')
  t.match(await second.until(/\}[\s\S]*\}/), /^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 408 /)
  const refused = begin(service, 'pat_unknown')
  await refused.closed
  t.match(await refused.until(/\}/), /^HTTP\/1\.1 401 (?![\s\S]*HTTP)/, 'it is answered once')
})

t.test('503 and not 408 where the service itself did not come to read the body', async t => {
  const service = await running(t, { REQUEST_TIMEOUT_MS: '400' }, { listen: true })
  const holding = await service.database.db.startTransaction().execute()
  await sql`lock table token in access exclusive mode`.execute(holding)
  const answer = await begin(service).until(/HTTP[\s\S]*\}/)
  t.match(answer, /^HTTP\/1\.1 503 [\s\S]*"reason":"overloaded","outcome":"not_applied"/)
  await holding.rollback().execute()
})

t.test('400 and 431 for what is not HTTP, in the shape of every other error', async t => {
  const service = await running(t, {}, { listen: true })
  const answers = async (text: string) =>
    (await new RawConnection(service.port).write(text).until(/\r\n\r\n\{.*\}/)).split(' ')[1]
  t.equal(await answers('no HTTP at all\r\n\r\n'), '400')
  t.equal(await answers(`GET / HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`), '431')
  t.equal(await answers(`GET / HTTP/1.1\r\nHost: a\r\n${'X: 1\r\n'.repeat(101)}\r\n`), '431')
  t.equal(await answers('GET / HTTP/1.1\r\n\r\n'), '400', 'without a Host')
  await eventually(() => service.log.some(line => line.includes('"broken request"')))
})

t.test('connections beyond the bound are closed and counted', async t => {
  const service = await running(t, {}, { listen: true })
  service.app.server.maxConnections = 2
  const kept = [new RawConnection(service.port), new RawConnection(service.port)]
  const refused = new RawConnection(service.port)
  await refused.closed
  t.match((await metricsOf(service)).body, /agents_http_connections_refused_total 1\n/)
  for (const { socket } of kept) socket.destroy()
})

t.test('a bound lets one request in, however large, and gives back what was taken', t => {
  const bytes = new InFlight(100, 25)
  t.equal(bytes.take('a', 80), undefined, 'one alone')
  t.equal(bytes.take('a', 1), 'key')
  t.equal(bytes.take('b', 21), 'all')
  bytes.give('a', 80)
  t.equal(bytes.total, 0)
  t.equal(bytes.take('a', 25), undefined)
  t.end()
})
