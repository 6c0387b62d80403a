import type { Socket } from 'node:net'
import t from 'tap'
import { PIPELINED_REQUESTS_MAX } from '../../src/http/broken-requests.js'
import { DEFINITION } from '../matrix-organisation.js'
import { eventually, RawConnection, type Running, running, saysItsLimit, tokenOf } from './running.js'

const OFF = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }

const request = ({ token }: Pick<Running, 'token'>, body = '{}', ...headers: string[]) =>
  [
    'PATCH /persona/999999?dry_run=true&update_mask= HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    ...headers,
    '',
    body,
  ].join('\r\n')

async function inWork({ metrics }: Running): Promise<number> {
  const { body } = await metrics.text()
  return Number(/agents_http_requests_in_work (\d+)/.exec(body)?.[1])
}

/** Waits until as many requests are in work for 200 ms on end: what was written to a connection may not have arrived yet. */
async function settled(service: Running, wanted: number): Promise<void> {
  const end = Date.now() + 8_000
  for (let since = Date.now(); Date.now() - since < 200; await new Promise(resolve => setTimeout(resolve, 10))) {
    const found = await inWork(service)
    if (found !== wanted) since = Date.now()
    if (Date.now() > end) throw new Error(`${found} requests are in work, not ${wanted}`)
  }
}

/** Tokens of so many other people. */
function others({ database }: Running, count: number): Promise<string[]> {
  return Promise.all(
    Array.from({ length: count }, (_, i) => tokenOf(database, { email: `alice+other${i}@example.com`, active: true })),
  )
}

/** Holds every statement that reads a token until `release` is called. */
async function lockTokens({ database }: Running): Promise<{ release: () => Promise<void> }> {
  let release = () => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  let locked = () => {}
  const isLocked = new Promise<void>(resolve => {
    locked = resolve
  })
  const done = database.db.transaction().execute(async trx => {
    await trx.executeQuery({
      sql: 'lock table token in access exclusive mode',
      parameters: [],
      query: { kind: 'RawNode' },
    } as never)
    locked()
    await held
  })
  await isLocked
  return {
    release: async () => {
      release()
      await done
    },
  }
}

t.test('503 overloaded beyond CONCURRENT_REQUESTS_MAX; probes and pages go on; room comes back', async t => {
  const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '3' }, { listen: true })
  const tokens = await others(service, 3)
  const lock = await lockTokens(service)
  const held = tokens.map(token => new RawConnection(service.port).write(request({ token })))
  await settled(service, 3)
  const refused = new RawConnection(service.port).write(request(service))
  await refused.until(/request_id/)
  t.match(refused.text, /^HTTP\/1\.1 503 /)
  t.match(refused.text, /retry-after: 1\r\n/)
  t.match(refused.json(), {
    error_code: 'SERVICE_UNAVAILABLE',
    detail: '3 requests of all callers are in work, and no more may. Try again in 1 s.',
    reason: 'overloaded',
    outcome: 'not_applied',
  })
  const page = new RawConnection(service.port).write('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n')
  await page.until(/HTTP\/1\.1 200 /)
  await lock.release()
  await Promise.all(held.map(connection => connection.until(/HTTP\/1\.1 404 /)))
  refused.text = ''
  refused.write(request(service)) // on the connection that was refused: it stays usable
  await refused.until(/HTTP\/1\.1 404 /)
  t.equal(await inWork(service), 0)
  for (const connection of [...held, refused, page]) connection.socket.destroy()
})

t.test('a client that hangs up before a large answer is the fault of nobody here', async t => {
  const service = await running(t, OFF, { listen: true })
  const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' }
  const payload = JSON.stringify({ definition: { ...DEFINITION, 'x-note': 'x'.repeat(1_500_000) } })
  const stored = await service.app.inject({ method: 'PUT', url: '/admin/tool/custom/10', headers, payload })
  t.equal(stored.statusCode, 200)
  const lines = [
    'PUT /admin/tool/custom/10?dry_run=true HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${service.token}`,
    'Content-Type: application/json',
    'Content-Length: 2',
  ]
  for (let delayMs = 0; delayMs < 60; delayMs += 4) {
    const all = Array.from({ length: 3 }, () =>
      new RawConnection(service.port).write(`${lines.join('\r\n')}\r\n\r\n{}`),
    )
    await eventually(() => all.some(({ text }) => text !== ''))
    await new Promise(resolve => setTimeout(resolve, delayMs))
    for (const { socket } of all) socket.destroy()
  }
  await settled(service, 0)
  t.strictSame(
    service.log.filter(line => JSON.parse(line).level >= 40),
    [],
  )
})

t.test('429 for a token with as many requests in work as places are free; others find a place', async t => {
  const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '12' }, { listen: true })
  const tokens = await others(service, 3)
  const [first = '', second = '', newcomer = ''] = tokens
  const hold = (token: string) => new RawConnection(service.port).write(request({ token }, '{}').slice(0, -1))
  const refused = ({ text }: RawConnection) => /HTTP\/1\.1 429 [\s\S]*request_id/.test(text)
  const ofFirst = Array.from({ length: 10 }, () => hold(first))
  await eventually(() => ofFirst.filter(refused).length === 4, 20_000)
  const ofSecond = Array.from({ length: 10 }, () => hold(second))
  await eventually(() => ofSecond.filter(refused).length === 7, 20_000)
  await settled(service, 9)
  const [one = hold('')] = ofSecond.filter(refused)
  t.match(one.text, /retry-after: 1\r\n/)
  t.match(one.text, /ratelimit-policy: "token-requests";q=\d;qu="concurrent-requests"\r\n/)
  t.match(one.text, /ratelimit: "token-requests";r=0;t=1\r\n/)
  t.match(one.json(), {
    error_code: 'RATE_LIMITED',
    detail: /more requests in work than the \d that one token may have/,
  })
  saysItsLimit(t, one.headers, one.json())
  const served = new RawConnection(service.port).write(request({ token: newcomer }))
  await served.until(/HTTP\/1\.1 404 /)
  for (const connection of [...ofFirst, ...ofSecond]) connection.socket.destroy()
  await settled(service, 0)
  const again = new RawConnection(service.port).write(request({ token: first }))
  await again.until(/HTTP\/1\.1 404 /)
  for (const { socket } of [served, again]) socket.destroy()
})

t.test('a connection is closed for too many requests without an answer, and none behind these is served', async t => {
  const service = await running(t, OFF, { listen: true })
  const lock = await lockTokens(service)
  const connection = new RawConnection(service.port).write(request(service).repeat(200))
  await connection.closed
  await lock.release()
  await settled(service, 0)
  t.equal(connection.text, '')
  const lines = service.log.map(line => JSON.parse(line))
  t.equal(lines.filter(({ msg }) => msg === 'the client went away before its answer').length, PIPELINED_REQUESTS_MAX)
  t.equal(lines.filter(({ msg }) => /^connection closed: more than \d+ requests/.test(msg)).length, 1)
  const pages = new RawConnection(service.port).write('GET /nope HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2_000))
  await pages.closed
  const answered = service.log.filter(line => JSON.parse(line).status === 404)
  t.ok(answered.length <= PIPELINED_REQUESTS_MAX, `${answered.length} were answered`)
})

t.test(
  'a client that hangs up frees its place: at the look-up, in the middle of a body, pipelined, when refused',
  async t => {
    const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '5' }, { listen: true }) // three are a token's share
    const lock = await lockTokens(service)
    const atLookUp = new RawConnection(service.port).write(request(service).repeat(3))
    await settled(service, 3)
    const refused = new RawConnection(service.port).write(request(service))
    await refused.until(/429/)
    atLookUp.socket.destroy()
    refused.socket.destroy()
    await settled(service, 0)
    await lock.release()
    const inBody = Array.from({ length: 3 }, () =>
      new RawConnection(service.port).write(request(service, '{}').slice(0, -1)),
    )
    await settled(service, 3)
    for (const connection of inBody) connection.socket.destroy()
    await settled(service, 0)
  },
)

t.test('a connection keeps nothing of the requests that it has answered, alone or pipelined', async t => {
  const service = await running(t, OFF, { listen: true })
  const sockets: Socket[] = []
  service.app.server.on('connection', socket => sockets.push(socket))
  const connection = new RawConnection(service.port)
  const answered = async (count: number) => {
    connection.text = ''
    connection.write(request(service).repeat(count))
    await connection.until(new RegExp(`(?:HTTP/1\\.1 404 [^]*){${count}}"request_id":"[^"]+"\\}$`))
  }
  const listeners = () => sockets[0]?.listenerCount('close')
  await answered(1)
  await settled(service, 0)
  const first = listeners()
  for (let i = 0; i < 20; i++) await answered(1)
  await answered(PIPELINED_REQUESTS_MAX)
  await eventually(() => listeners() === first)
  t.equal(sockets.length, 1)
  connection.socket.destroy()
})

t.test('200 requests cut at random times leave nothing in work', async t => {
  const service = await running(t, OFF, { listen: true })
  const all = Array.from({ length: 200 }, (_, i) => {
    const connection = new RawConnection(service.port).write(request(service).repeat(1 + (i % 3)))
    setTimeout(() => connection.socket.destroy(), (i * 37) % 120)
    return connection.closed
  })
  await Promise.all(all)
  await settled(service, 0)
  const after = new RawConnection(service.port).write(request(service))
  await after.until(/HTTP\/1\.1 404 /)
  after.socket.destroy()
})

t.test('a flood of readiness probes shares its statements', async t => {
  const service = await running(t, OFF)
  const before = service.database.counters.statements
  const one = service.app.inject({ url: '/readyz' })
  await one
  const cost = service.database.counters.statements - before
  const answers = await Promise.all(Array.from({ length: 100 }, () => service.app.inject({ url: '/readyz' })))
  t.ok(answers.every(({ statusCode }) => statusCode === 200))
  t.ok(
    service.database.counters.statements - before <= cost * 5,
    `${service.database.counters.statements - before} of ${cost}`,
  )
})

t.test(
  '200 for others while many tokens take all places with bodies that they do not finish: the oldest make room',
  async t => {
    const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '8' }, { listen: true })
    const tokens = await others(service, 8)
    const begun = tokens.map(token =>
      new RawConnection(service.port).write(request({ token }, '{'.padEnd(200)).slice(0, -199)),
    )
    await settled(service, 8)
    const answered = async () => {
      const victim = new RawConnection(service.port).write(request(service))
      await victim.until(/request_id/)
      victim.socket.destroy()
      return victim.text.slice(9, 12)
    }
    const end = Date.now() + 20_000
    while ((await answered()) !== '404') if (Date.now() > end) throw new Error('nobody made room')
    const refused = begun.filter(({ text }) => text !== '')
    t.equal(refused.length, 1, 'one made room')
    t.match(refused[0]?.text, /^HTTP\/1\.1 503 /)
    t.match(refused[0]?.json(), { reason: 'overloaded', outcome: 'not_applied' })
    for (let n = 0; n < 20; n++) t.equal(await answered(), '404')
    for (const { socket } of begun) socket.destroy()
  },
)
