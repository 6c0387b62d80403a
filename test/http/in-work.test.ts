import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { PIPELINED_REQUESTS_MAX } from '../../src/http/broken-requests.js'
import { MemoryBudget } from '../../src/http/memory-budget.js'
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
  const end = Date.now() + 60_000
  for (let since = Date.now(); Date.now() - since < 200; await new Promise(resolve => setTimeout(resolve, 10))) {
    const found = await inWork(service)
    if (found !== wanted) since = Date.now()
    if (Date.now() > end) throw new Error(`${found} requests are in work, not ${wanted}`)
  }
}

/** Tokens of so many other people, each of which the service has seen. */
async function others(service: Running, count: number): Promise<string[]> {
  const tokens = await Promise.all(
    Array.from({ length: count }, (_, i) => {
      return tokenOf(service.database, { email: `alice+other${i}@example.com`, active: true })
    }),
  )
  for (const token of tokens) await seen(service, token)
  return tokens
}

/** Has a token authenticate a request. */
async function seen({ app }: Running, token: string): Promise<void> {
  await app.inject({ url: '/me', headers: { authorization: `Bearer ${token}` } })
}

/** A request of an administrator is answered as always. */
async function servesOthers(service: Running): Promise<void> {
  const victim = new RawConnection(service.port).write(request(service))
  await victim.until(/request_id/)
  t.match(victim.text, /^HTTP\/1\.1 404 /)
  victim.socket.destroy()
}

/** Waits until the service has answered nothing for 300 ms on end. */
async function quiet({ log }: Running): Promise<void> {
  for (let lines = -1; lines !== log.length; await sleep(300)) lines = log.length
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
  await seen(service, service.token)
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
  await eventually(() => ofFirst.filter(refused).length === 4)
  const ofSecond = Array.from({ length: 10 }, () => hold(second))
  await eventually(() => ofSecond.filter(refused).length === 7)
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
  t.equal(lines.filter(({ msg }) => msg === 'the client went away before its answer').length, 1)
  t.equal(lines.filter(({ msg }) => /^connection closed: too many requests/.test(msg)).length, 1)
  const pages = new RawConnection(service.port).write('GET /nope HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2_000))
  await pages.closed
  const answered = service.log.filter(line => JSON.parse(line).status === 404)
  t.ok(answered.length <= PIPELINED_REQUESTS_MAX, `${answered.length} were answered`)
})

t.test('requests that wait behind an answer hold so many header fields, of one connection and of all', async t => {
  const service = await running(t, OFF, { listen: true })
  const page = (fields: number) => `GET /nope HTTP/1.1\r\nHost: a\r\n${'a:b\r\n'.repeat(fields)}\r\n`
  const lock = await lockTokens(service)
  const held = Array.from({ length: 130 }, () => new RawConnection(service.port).write(request(service)))
  await settled(service, held.length)
  for (const connection of held) connection.write(page(90).repeat(7)) // 121 fields each, with what a request holds itself
  const refused = () => service.log.filter(line => /connection closed: too many/.test(line)).length
  await eventually(() => refused() === 130 - 118) // 118 times seven are 100,000
  const [one = new RawConnection(service.port)] = held.filter(({ socket }) => !socket.destroyed)
  one.write(page(90).repeat(2)) // nine of them would be 1,000
  await one.closed
  await eventually(() => refused() === 13)
  await lock.release()
  for (const { socket } of held) socket.destroy()
  const again = new RawConnection(service.port).write(page(90).repeat(8))
  await again.until(/(?:HTTP\/1\.1 404 [\s\S]*){8}/)
  again.socket.destroy()
})

t.test('a client that hangs up frees its place: at the look-up, in the middle of a body, when refused', async t => {
  const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '5' }, { listen: true }) // three are a token's share
  await seen(service, service.token)
  const lock = await lockTokens(service)
  const atLookUp = Array.from({ length: 3 }, () => new RawConnection(service.port).write(request(service).repeat(3)))
  await settled(service, 3)
  const refused = new RawConnection(service.port).write(request(service))
  await refused.until(/429/)
  for (const { socket } of atLookUp) socket.destroy()
  refused.socket.destroy()
  await settled(service, 0)
  await lock.release()
  const inBody = Array.from({ length: 3 }, () =>
    new RawConnection(service.port).write(request(service, '{}').slice(0, -1)),
  )
  await settled(service, 3)
  for (const connection of inBody) connection.socket.destroy()
  await settled(service, 0)
})

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

t.test('requests of one connection are worked on one after the other, in their order', async t => {
  const service = await running(t, OFF, { listen: true })
  await seen(service, service.token)
  const lock = await lockTokens(service)
  const connection = new RawConnection(service.port).write(request(service).repeat(5))
  await settled(service, 1)
  await lock.release()
  await connection.until(/(?:HTTP\/1\.1 404 [\s\S]*){5}"request_id":"[^"]+"\}$/)
  connection.socket.destroy()
})

t.test('nothing behind the last answer of a connection is begun', async t => {
  const service = await running(t, OFF, { listen: true })
  service.service.drain()
  const connection = new RawConnection(service.port).write(request(service).repeat(3))
  await connection.closed
  t.match(connection.text, /connection: close/)
  t.equal(connection.text.split('HTTP/1.1 404 ').length, 2)
  t.equal(service.log.filter(line => JSON.parse(line).msg === 'request answered').length, 1)
})

t.test('503 for unseen tokens beyond as many places again; another address and a seen token find one', async t => {
  const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '9' }, { listen: true })
  const [first = ''] = await others(service, 1)
  const newcomer = await tokenOf(service.database, { email: 'alice+new@example.com', active: true })
  const lock = await lockTokens(service)
  const madeUpFrom = (address: string) => {
    return new RawConnection(service.port, address).write(request({ token: mintToken('person').token }))
  }
  const madeUp = Array.from({ length: 20 }, () => madeUpFrom('127.0.0.1'))
  const refused = () => madeUp.filter(({ text }) => /^HTTP\/1\.1 503 [\s\S]*request_id/.test(text))
  await eventually(() => refused().length === 15)
  await settled(service, 5)
  const [one = new RawConnection(service.port)] = refused()
  t.match(one.json(), {
    reason: 'overloaded',
    outcome: 'not_applied',
    detail: /^5 requests from one address with tokens that this process has not seen before are in work/,
  })
  const elsewhere = new RawConnection(service.port, '127.0.0.2').write(request({ token: newcomer }))
  await settled(service, 6)
  for (const [n, address] of ['127.0.0.3', '127.0.0.4', '127.0.0.5'].entries()) {
    madeUp.push(madeUpFrom(address))
    await settled(service, 7 + n)
  }
  const tenth = madeUpFrom('127.0.0.6')
  await tenth.until(/request_id/)
  t.match(tenth.json(), { detail: /^9 requests with tokens that this process has not seen before are in work/ })
  const known = new RawConnection(service.port).write(request({ token: first }))
  await settled(service, 10)
  await lock.release()
  await Promise.all([known, elsewhere].map(connection => connection.until(/HTTP\/1\.1 404 /)))
  await eventually(() => madeUp.filter(({ text }) => /^HTTP\/1\.1 401 /.test(text)).length === 8)
  await settled(service, 0)
  for (const { socket } of [known, elsewhere, tenth, ...madeUp]) socket.destroy()
})

t.test(
  'a new token finds a place beside false ones from its address, where it comes by a connection without those',
  async t => {
    const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '9' }, { listen: true })
    const tokens = await Promise.all(
      ['a', 'b'].map(name => tokenOf(service.database, { email: `alice+${name}@example.com`, active: true })),
    )
    const falseOnes: RawConnection[] = []
    const isFalse = ({ text }: RawConnection) => /^HTTP\/1\.1 401 [\s\S]*request_id/.test(text)
    for (let n = 0; n < 20; n++) {
      const connection = new RawConnection(service.port).write(request({ token: mintToken('person').token }))
      await eventually(() => isFalse(connection))
      connection.text = ''
      falseOnes.push(connection)
    }
    const [shared = new RawConnection(service.port)] = falseOnes.splice(0, 1)
    shared.write(request(service)) // as where a proxy has one connection for many: who is authenticated on it clears it
    await shared.until(/HTTP\/1\.1 404 [\s\S]*request_id/)
    const lock = await lockTokens(service)
    for (const connection of falseOnes) connection.write(request({ token: mintToken('person').token }))
    const refused = () => falseOnes.filter(({ text }) => /^HTTP\/1\.1 503 [\s\S]*request_id/.test(text))
    await eventually(() => refused().length === 14)
    await settled(service, 5)
    const [control = shared] = refused()
    const newcomers = [control, new RawConnection(service.port), shared]
    for (const connection of newcomers) connection.text = ''
    control.write(request({ token: mintToken('person').token }))
    await control.until(/HTTP\/1\.1 503 /)
    newcomers.slice(1).forEach((connection, n) => {
      connection.write(request({ token: tokens[n] ?? '' }))
    })
    await settled(service, 7)
    await lock.release()
    await Promise.all(newcomers.slice(1).map(connection => connection.until(/HTTP\/1\.1 404 /)))
    await settled(service, 0)
    for (const { socket } of [...newcomers, ...falseOnes]) socket.destroy()
  },
)

/** More than the buffers of the system hold. */
const PAGES = 'GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(8)

t.test('a new token is judged by its share once it is authenticated: it has no more places than another', async t => {
  const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '6' }, { listen: true })
  const token = await tokenOf(service.database, { email: 'alice+new@example.com', active: true })
  // No address has the places of all unseen tokens.
  const begun = ['127.0.0.1', '127.0.0.1', '127.0.0.1', '127.0.0.2', '127.0.0.2'].map(address => {
    return new RawConnection(service.port, address).write(request({ token }, '{}').slice(0, -1))
  })
  const refused = () => begun.filter(({ text }) => /^HTTP\/1\.1 429 /.test(text))
  await eventually(() => refused().length === 2)
  await settled(service, 3)
  await servesOthers(service)
  for (const { socket } of begun) socket.destroy()
})

t.test('requests behind pages that nobody reads keep no place', async t => {
  const service = await running(t, { ...OFF, CONCURRENT_REQUESTS_MAX: '10' }, { listen: true })
  await seen(service, service.token)
  const variants: Record<string, () => string> = {
    'with made-up tokens': () => request({ token: mintToken('person').token }),
    'without a token': () => 'GET /persona HTTP/1.1\r\nHost: a\r\n\r\n',
    'with a real token': () => request(service),
    'that are 422': () => request(service).replace('dry_run=true', 'dry_run=2'),
    'with HEAD': () => request(service, '').replace('PATCH', 'HEAD'),
  }
  for (const [name, behind] of Object.entries(variants)) {
    const unread = Array.from({ length: 4 }, () => new RawConnection(service.port))
    for (const connection of unread) {
      connection.socket.pause()
      connection.write(PAGES)
    }
    await quiet(service)
    for (const connection of unread) for (let n = 0; n < 8; n++) connection.write(behind())
    await quiet(service)
    t.equal(await inWork(service), 0, name)
    await servesOthers(service)
    for (const { socket } of unread) socket.destroy()
  }
})

t.test('answers of operations that nobody reads keep no place', async t => {
  const settings = { ...OFF, CONCURRENT_REQUESTS_MAX: '4', STALL_TIMEOUT_MS: '600000' }
  const service = await running(t, settings, { listen: true })
  const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' }
  const payload = JSON.stringify({ definition: { ...DEFINITION, 'x-note': 'x'.repeat(1_500_000) } })
  await service.app.inject({ method: 'PUT', url: '/admin/tool/custom/10', headers, payload })
  const unread: RawConnection[] = []
  for (const token of await others(service, 6)) {
    const connection = new RawConnection(service.port)
    connection.socket.pause()
    unread.push(connection)
    connection.write(`GET /tool/10 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`.repeat(15))
    await quiet(service)
  }
  await settled(service, 0)
  for (let n = 0; n < 3; n++) await servesOthers(service)
  t.ok(
    unread.every(({ socket }) => !socket.destroyed),
    'none had to go',
  )
  for (const { socket } of unread) socket.destroy()
})

t.test('who hangs up before their request is begun leaves no memory reserved', async t => {
  const budgets = new Set<MemoryBudget>()
  const { take } = MemoryBudget.prototype
  MemoryBudget.prototype.take = function (...args) {
    budgets.add(this)
    return take.apply(this, args)
  }
  t.teardown(() => {
    MemoryBudget.prototype.take = take
  })
  const service = await running(t, OFF, { listen: true })
  const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' }
  for (const [noteLength, name] of [
    [100_000, 'an answer that is read with others'],
    [300_000, 'a longer one'],
    [1_500_000, 'a heavy one'],
  ] as const) {
    const payload = JSON.stringify({ definition: { ...DEFINITION, 'x-note': '\u6f22'.repeat(noteLength / 3) } })
    await service.app.inject({ method: 'PUT', url: '/admin/tool/custom/10', headers, payload })
    t.equal((await service.app.inject({ url: '/tool/10', headers })).statusCode, 200)
    const lock = await lockTokens(service)
    const head = `GET /tool/10 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${service.token}\r\n\r\n`
    const reads = Array.from({ length: 10 }, () => new RawConnection(service.port).write(head))
    await settled(service, 10)
    for (const { socket } of reads) socket.destroy()
    await settled(service, 0)
    await lock.release()
    await quiet(service)
    t.strictSame(
      [...budgets].map(({ totalBytes }) => totalBytes),
      [0],
      name,
    )
  }
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
    const end = Date.now() + 60_000
    while ((await answered()) !== '404') if (Date.now() > end) throw new Error('nobody made room')
    const refused = begun.filter(({ text }) => text !== '')
    t.equal(refused.length, 1, 'one made room')
    t.match(refused[0]?.text, /^HTTP\/1\.1 503 /)
    t.match(refused[0]?.json(), { reason: 'overloaded', outcome: 'not_applied' })
    for (let n = 0; n < 20; n++) t.equal(await answered(), '404')
    for (const { socket } of begun) socket.destroy()
  },
)
