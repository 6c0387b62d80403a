import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { ByteQuota } from '../../src/http/byte-quota.js'
import { FREE_BYTES, MemoryBudget } from '../../src/http/memory-budget.js'
import { type Unfinished, UnfinishedTransfers } from '../../src/http/unfinished-transfers.js'
import { DEFINITION } from '../matrix-organisation.js'
import { eventually, RawConnection, running, saysItsLimit, tokenOf } from './running.js'

const OFF = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }
const MIB = 2 ** 20
/** So that the largest body and answer of one request are less than the budgets of these tests. */
const SMALL = { ...OFF, SNAPSHOT_BYTES_MAX: String(MIB), TOOL_BODY_LIMIT_BYTES: String(MIB) }

function head(token: string, length: number): string {
  const lines = [
    'PATCH /persona/999999?dry_run=true&update_mask= HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    'Content-Type: application/json',
    `Content-Length: ${length}`,
  ]
  return `${lines.join('\r\n')}\r\n\r\n`
}

t.test('200 for reads that wait for their turn: they hold no memory until then', async t => {
  const bodies = { PERSONA_BODY_LIMIT_BYTES: String(MIB), TRANSFER_PER_TOKEN_BYTES_MAX: String(MIB) }
  const { app, database, token } = await running(t, { ...SMALL, ...bodies })
  await sql`update persona set system_prompt = repeat('x', 40000) where id = 1`.execute(database.db)
  const headers = { authorization: `Bearer ${token}` }
  const reads = Array.from({ length: 40 }, () => app.inject({ url: '/persona/1', headers }))
  const statuses = (await Promise.all(reads)).map(({ statusCode }) => statusCode)
  t.strictSame(new Set(statuses), new Set([200]), 'all of them together would take ten MiB')
})

t.test('413 says how many bytes the operation takes, and how many came where that is known', async t => {
  const service = await running(t, { ...OFF, PERSONA_BODY_LIMIT_BYTES: '100000' }, { listen: true })
  const announced = new RawConnection(service.port).write(head(service.token, 100_001))
  await announced.until(/request_id/)
  t.match(announced.text, /^HTTP\/1\.1 413 /)
  t.match(announced.json(), { detail: 'The body has 100001 bytes, and this operation takes at most 100000.' })
  const chunked = head(service.token, 0).replace('Content-Length: 0', 'Transfer-Encoding: chunked')
  const unannounced = new RawConnection(service.port).write(`${chunked}186a1\r\n${' '.repeat(100_001)}\r\n0\r\n\r\n`)
  await unannounced.until(/request_id/)
  t.match(unannounced.text, /^HTTP\/1\.1 413 /)
  t.match(unannounced.json(), { detail: 'The body has more bytes, and this operation takes at most 100000.' })
  for (const { socket } of [announced, unannounced]) socket.destroy()
})

t.test('404 and 405 before the body is there: nobody reads it', async t => {
  const service = await running(t, OFF, { listen: true })
  for (const [target, status] of [
    ['/nothing', 404],
    ['/healthz', 405],
  ] as const) {
    const connection = new RawConnection(service.port)
    connection.write(
      `POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{`,
    )
    await connection.until(/request_id/)
    t.match(connection.text, new RegExp(`^HTTP/1\\.1 ${status} `))
    connection.socket.destroy()
  }
})

t.test('429 for a token that has used the bytes of a minute, without a look-up; others go on', async t => {
  const service = await running(t, { ...OFF, RATE_LIMIT_BYTES_PER_MINUTE: '10000' })
  const other = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
  const ask = (token: string, size: number) =>
    service.app.inject({
      method: 'PATCH',
      url: '/persona/999999?update_mask=',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      payload: `{${' '.repeat(size - 2)}}`,
    })
  const first = await ask(service.token, 9_000)
  t.equal(first.statusCode, 404)
  const left = 10_000 - 9_000 - first.body.length
  t.match(first.headers.ratelimit, new RegExp(`^"token-bytes";r=${left};t=\\d+$`), 'it is seen before it is used up')
  t.equal((await ask(service.token, 9_000)).statusCode, 404, 'what one request uses is known when it is used')
  const statements = service.database.counters.statements
  const refused = await ask(service.token, 2)
  t.equal(refused.statusCode, 429)
  t.equal(service.database.counters.statements, statements)
  t.match(refused.headers['retry-after'], /^([1-9]|[1-5]\d|60)$/)
  t.equal(refused.headers['ratelimit-policy'], '"token-bytes";q=10000;qu="content-bytes";w=60')
  saysItsLimit(t, refused.headers, refused.json())
  t.match(refused.json(), { error_code: 'RATE_LIMITED', detail: /bytes/ })
  t.equal((await ask(other, 2)).statusCode, 404)
  t.equal((await ask(mintToken('person').token, 2)).statusCode, 401)
})

t.test('429 for the bytes of what is read and not sent: an answer of 304, a definition that is compared', async t => {
  const LENGTH = 60_000
  const service = await running(t, { ...OFF, RATE_LIMIT_BYTES_PER_MINUTE: String(4 * LENGTH) })
  const definition = { ...DEFINITION, 'x-note': 'x'.repeat(LENGTH) }
  const ask = async (token: string, method: 'GET' | 'PUT' | 'POST', url: string, body?: object, tag = '"none"') => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'if-none-match': tag }
    return await service.app.inject({ method, url, headers, ...(body && { payload: JSON.stringify(body) }) })
  }
  t.equal((await ask(service.token, 'PUT', '/admin/tool/custom/10', { definition })).statusCode, 200)
  const asks = [
    (token: string) => ask(token, 'POST', '/admin/tool/custom/validate?tool_id=10', { definition: DEFINITION }),
    (token: string) => ask(token, 'GET', '/tool/10', undefined, '*'),
  ]
  for (const [index, one] of asks.entries()) {
    const token = await tokenOf(service.database, { email: `alice+reader${index}@example.com`, active: true })
    const statuses: number[] = []
    for (let i = 0; i < 6; i++) statuses.push((await one(token)).statusCode)
    t.strictSame(statuses.slice(4), [429, 429], `${statuses}`)
    t.notOk(statuses.slice(0, 3).includes(429))
  }
})

t.test('connections of one address beyond its share are closed at once; those of others are not', async t => {
  const service = await running(t, { ...OFF, CONNECTIONS_MAX: '10' }, { listen: true })
  const held = openedFrom(service.port, '127.0.0.2', 5)
  await eventually(() => held.every(socket => !socket.connecting))
  const [refused] = openedFrom(service.port, '127.0.0.2', 1)
  await eventually(() => refused?.closed === true)
  const other = new RawConnection(service.port).write(`${head(service.token, 2)}{}`)
  await other.until(/HTTP\/1\.1 404 /)
  held[0]?.destroy()
  await eventually(() => held[0]?.closed === true)
  await new Promise(resolve => setTimeout(resolve, 100))
  const [again] = openedFrom(service.port, '127.0.0.2', 1)
  await new Promise(resolve => setTimeout(resolve, 200))
  t.equal(again?.closed, false)
  for (const socket of [...held, again]) socket?.destroy()
  other.socket.destroy()
})

t.test('refused connections are counted by their limit, and a line of the log has the address', async t => {
  const service = await running(t, { ...OFF, CONNECTIONS_MAX: '10' }, { listen: true })
  const sockets: Socket[] = []
  const open = (address: string, count: number) => sockets.push(...openedFrom(service.port, address, count))
  const metric = async (name: string) => {
    const { body } = await service.metrics.text()
    return Number(
      body
        .split('\n')
        .find(line => line.startsWith(`${name} `))
        ?.slice(name.length),
    )
  }
  const refused = (limit: string) => metric(`agents_http_connections_refused_total{limit="${limit}"}`)
  const closed = () => sockets.filter(socket => socket.closed).length
  open('127.0.0.2', 5)
  await eventually(() => sockets.every(socket => !socket.connecting))
  open('127.0.0.2', 3)
  await eventually(() => closed() === 3)
  t.equal(await refused('CONNECTIONS_PER_ADDRESS_MAX'), 3)
  t.equal(await refused('CONNECTIONS_MAX'), 0)
  open('127.0.0.3', 5)
  await eventually(() => sockets.every(socket => !socket.connecting))
  open('127.0.0.4', 2)
  await eventually(() => closed() === 5)
  t.equal(await refused('CONNECTIONS_PER_ADDRESS_MAX'), 3)
  t.equal(await refused('CONNECTIONS_MAX'), 2)
  t.equal(await metric('agents_http_connections'), 10)
  t.equal(await metric('agents_http_connections_max{limit="CONNECTIONS_MAX"}'), 10)
  t.equal(await metric('agents_http_connections_max{limit="CONNECTIONS_PER_ADDRESS_MAX"}'), 5)
  const told = service.log.map(line => JSON.parse(line)).filter(({ msg }) => msg === 'connections are refused')
  t.strictSame(
    told.map(({ limit, max, client, refused }) => [limit, max, client, refused]),
    [
      ['CONNECTIONS_PER_ADDRESS_MAX', 5, '127.0.0.2', 1],
      ['CONNECTIONS_MAX', 10, '127.0.0.4', 1],
    ],
  )
  for (const socket of sockets) socket.destroy()
})

t.test('a trusted proxy brings the connections of many', async t => {
  const service = await running(t, { ...OFF, CONNECTIONS_MAX: '10', TRUST_PROXY: 'loopback' }, { listen: true })
  const held = openedFrom(service.port, '127.0.0.2', 9)
  await new Promise(resolve => setTimeout(resolve, 200))
  t.ok(held.every(socket => !socket.closed && !socket.connecting))
  for (const socket of held) socket.destroy()
})

function openedFrom(port: number, localAddress: string, count: number): Socket[] {
  return Array.from({ length: count }, () => {
    const socket = connect({ port, host: '127.0.0.1', localAddress })
    socket.on('error', () => undefined) // a cut connection is what some tests wait for
    return socket.resume()
  })
}

t.test('what is given back to a budget can be taken again, by whom ever', async t => {
  const budget = new MemoryBudget({ totalBytes: 100 * FREE_BYTES, perTokenBytes: 40 * FREE_BYTES })
  const take = (token: string, times: number) => budget.take(token, times * FREE_BYTES)
  t.equal(take('a', 40), undefined)
  t.equal(budget.totalBytes, 39 * FREE_BYTES)
  t.equal(take('a', 1), 'token')
  t.equal(take('b', 32), 'total', 'more than it would leave free')
  t.equal(take('b', 31), undefined)
  t.equal(take('c', 16), undefined, 'there is room for whoever comes next')
  t.equal(take('d', 8), undefined)
  t.equal(take('e', 4), undefined)
  t.equal(take('f', 2), undefined)
  t.equal(take('g', 1), undefined, 'the first bytes of each count for nobody else')
  t.equal(take('g', 3), 'total')
  budget.give('a', 40 * FREE_BYTES)
  t.equal(budget.totalBytes, (30 + 15 + 7 + 3 + 1) * FREE_BYTES)
  t.equal(take('b', 6), undefined)
  for (const [token, times] of Object.entries({ b: 37, c: 16, d: 8, e: 4, f: 2, g: 1 }))
    budget.give(token, times * FREE_BYTES)
  t.equal(budget.totalBytes, 0)
})

t.test('a byte quota begins anew with its window and forgets the oldest key when there are too many', async t => {
  const quota = new ByteQuota(10, 2, 200)
  quota.use('a', 10)
  quota.use('b', 9)
  t.equal(quota.remaining('a'), 0)
  t.equal(quota.remaining('b'), 1)
  t.equal(quota.resetS(), 1)
  quota.use('c', 10)
  t.equal(quota.remaining('a'), 10, 'forgotten')
  t.equal(quota.remaining('c'), 0)
  await new Promise(resolve => setTimeout(resolve, 250))
  t.equal(quota.remaining('c'), 10)
})

t.test('who holds most makes room first, not who began first', async t => {
  const abandoned: string[] = []
  const held = new Map([
    ['small', 3],
    ['large', 20],
    ['larger', 30],
  ])
  const heldBy = (owner: string) => held.get(owner) ?? 0
  const transfers = new UnfinishedTransfers()
  const begin = (owner: string, bytes: number, kind: Unfinished['kind'] = 'answer') => {
    const transfer: Unfinished = {
      kind,
      owner,
      heldBytes: () => bytes,
      abandon: () => {
        abandoned.push(owner)
        held.set(owner, heldBy(owner) - bytes)
      },
    }
    transfers.add(transfer)
    return transfer
  }
  begin('small', 3)
  begin('large', 20)
  const paused = begin('larger', 15, 'body')
  begin('larger', 0)
  const read = begin('larger', 15)
  transfers.pause(paused)
  t.notOk(transfers.abandonOfLargest(30, 35, heldBy), 'not before a second')
  await sleep(1_100)
  transfers.renew(read)
  t.ok(transfers.abandonOfLargest(0, 5, heldBy))
  t.strictSame(abandoned, ['large'], 'of those who had their time')
  t.notOk(transfers.abandonOfLargest(30, 31, heldBy), 'who holds less than the other would stays')
  await sleep(1_100)
  t.ok(transfers.abandonOfLargest(0, 5, heldBy))
  t.notOk(transfers.abandonOfLargest(15, 16, heldBy), 'a body that waits for the service stays')
  transfers.resume(paused)
  t.notOk(transfers.abandonOfLargest(15, 15, heldBy), 'its client has its time anew')
  t.ok(transfers.abandonOfLargest(14, 20, heldBy), 'but nobody is slow, and the other holds less')
  t.strictSame(abandoned, ['large', 'larger', 'larger'])
  t.ok(transfers.abandonOfLargest(0, 3, heldBy))
})
