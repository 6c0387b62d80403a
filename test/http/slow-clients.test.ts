import t from 'tap'
import { RawConnection, type Running, running } from './running.js'

const QUICK = {
  HEADERS_TIMEOUT_MS: '600',
  REQUEST_TIMEOUT_MS: '1200',
  KEEP_ALIVE_TIMEOUT_MS: '500',
  STALL_TIMEOUT_MS: '2500',
  RATE_LIMIT_PER_MINUTE: '0',
  FAILED_AUTH_LIMIT_PER_MINUTE: '0',
}

function head({ token }: Pick<Running, 'token'>, ...headers: string[]): string {
  const lines = [
    'PATCH /persona/1?dry_run=true&update_mask= HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    'Content-Type: application/json',
    ...headers,
  ]
  return `${lines.join('\r\n')}\r\n\r\n`
}

const whole = (service: Running) => `${head(service, 'Content-Length: 2')}{}`

/** How long an ordinary request of somebody else takes now, in ms; it must succeed (the agent is not there: 404). */
async function elapsedForOthers(service: Running): Promise<number> {
  const start = performance.now()
  const connection = new RawConnection(service.port).write(whole(service))
  await connection.until(/HTTP\/1\.1 404 /)
  connection.socket.destroy()
  return performance.now() - start
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
  t.ok((await elapsedForOthers(service)) < 500)
  await Promise.all(slow.map(connection => connection.until(/HTTP\/1\.1 408 /)))
  clearInterval(drip)
  await Promise.all(slow.map(connection => connection.closed))
  const body = slow[0]?.json()
  t.equal(body?.error_code, 'REQUEST_TIMEOUT')
  t.match(body?.request_id, /^[A-Za-z0-9_-]{16}$/)
  t.match(slow[0]?.text, new RegExp(`X-Request-ID: ${body?.request_id}\r\n`))
  t.ok(service.log.some(line => line.includes(String(body?.request_id)) && line.includes('REQUEST_TIMEOUT')))
  t.notOk(service.log.some(line => line.includes('X-Slow')))
})

t.test('408 for a body that never ends, with a length and in chunks; nothing stays in work', async t => {
  const service = await running(t, QUICK, { listen: true })
  const slow = [
    ...openedWith(service, 25, `${head(service, 'Content-Length: 1000')}{"name":`),
    ...openedWith(service, 25, `${head(service, 'Transfer-Encoding: chunked')}2\r\n{"\r\n`),
  ]
  t.ok((await elapsedForOthers(service)) < 500)
  await Promise.all(slow.map(connection => connection.until(/HTTP\/1\.1 408 /)))
  await Promise.all(slow.map(connection => connection.closed))
  t.ok(
    slow.every(connection => connection.text.split('HTTP/1.1').length === 2),
    'one answer each',
  )
  t.match((await service.metrics.text()).body, /agents_http_requests_in_work 0\n/)
})

t.test('1,000 idle connections are closed in time, and others are served meanwhile', async t => {
  const service = await running(t, QUICK, { listen: true })
  const idle = openedWith(service, 1_000)
  const used = openedWith(service, 20, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
  await Promise.all(used.map(connection => connection.until(/alive/)))
  t.ok((await elapsedForOthers(service)) < 1_000)
  const start = performance.now()
  await Promise.all([...idle, ...used].map(connection => connection.closed))
  t.ok(performance.now() - start < 5_000)
})

t.test('connections beyond CONNECTIONS_MAX are closed at once, and there is room again when others go', async t => {
  const service = await running(t, { ...QUICK, CONNECTIONS_MAX: '10', HEADERS_TIMEOUT_MS: '1200' }, { listen: true })
  const held = openedWith(service, 10, 'GET /healthz HTTP/1.1\r\n')
  await new Promise(resolve => setTimeout(resolve, 100))
  const refused = new RawConnection(service.port)
  await refused.closed
  t.equal(refused.text, '')
  held[0]?.socket.destroy()
  await held[0]?.closed
  t.ok((await elapsedForOthers(service)) < 500)
})

t.test('pipelined requests are each answered, in order', async t => {
  const service = await running(t, QUICK, { listen: true })
  const connection = new RawConnection(service.port)
  const ask = (id: string) => `${head(service, 'Content-Length: 2', `X-Request-ID: ${id}`)}{}`
  const ids = Array.from({ length: 50 }, (_, i) => `request-${i}`)
  connection.write(ids.map(ask).join(''))
  await connection.until(/"request_id":"request-49"/)
  t.strictSame(
    [...connection.text.matchAll(/"request_id":"([^"]+)"/g)].map(match => match[1]),
    ids,
  )
  connection.socket.destroy()
})

t.test('pipelined garbage cuts the connection and is no answer to the request before it', async t => {
  const service = await running(t, QUICK, { listen: true })
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
  const service = await running(t, QUICK, { listen: true })
  for (const size of [20_000, 2_000_000]) {
    const connection = new RawConnection(service.port)
    connection.write(`GET /healthz HTTP/1.1\r\nHost: a\r\nX-Large: ${'x'.repeat(size)}\r\n\r\n`)
    await connection.closed
    t.match(connection.text, /^HTTP\/1\.1 431 /)
    t.equal(connection.json().error_code, 'HEADERS_TOO_LARGE')
  }
})

t.test('413 for a body over the limit, with a length and in chunks', async t => {
  const service = await running(t, { ...QUICK, PERSONA_BODY_LIMIT_BYTES: '10000' }, { listen: true })
  const declared = new RawConnection(service.port)
  declared.write(`${head(service, 'Content-Length: 20000')}${'x'.repeat(20_000)}`)
  await declared.until(/HTTP\/1\.1 413 /)
  await declared.until(/PAYLOAD_TOO_LARGE/)
  const chunked = new RawConnection(service.port)
  chunked.write(head(service, 'Transfer-Encoding: chunked'))
  const chunk = `3e8\r\n${'x'.repeat(1_000)}\r\n`
  for (let i = 0; i < 11; i++) chunked.write(chunk)
  await chunked.until(/PAYLOAD_TOO_LARGE/)
  await Promise.all([declared.closed, chunked.closed])
  t.match(chunked.json(), { error_code: 'PAYLOAD_TOO_LARGE', request_id: /./ })
})

t.test('413 reaches a client that sends megabytes more', async t => {
  const service = await running(t, { ...QUICK, PERSONA_BODY_LIMIT_BYTES: '10000' }, { listen: true })
  const answers = await Promise.all(
    Array.from({ length: 10 }, () =>
      fetch(`http://127.0.0.1:${service.port}/persona/1`, {
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
  const service = await running(t, QUICK, { listen: true })
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
