import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { BodyTurns } from '../../src/http/body-turns.js'
import { ByteQuota } from '../../src/http/byte-quota.js'
import { LINGER_MS } from '../../src/http/connection-end.js'
import { FREE_BYTES, MemoryBudget } from '../../src/http/memory-budget.js'
import { type Unfinished, UnfinishedTransfers } from '../../src/http/unfinished-transfers.js'
import { DEFINITION } from '../matrix-organisation.js'
import { slowness } from '../slowness.js'
import { eventually, RawConnection, type Running, running, saysItsLimit, tokenOf } from './running.js'

/** How many of one caller wait in front of the pool. */
const WAITING_MAX = 100

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

/** A body of three MiB and a bit that lacks its last byte. */
const LONG_BYTES = 3 * MIB + 100_000
const longBody = `{"name":"${'x'.repeat(LONG_BYTES - 11)}"`

function unfinished({ port }: Running, token: string): RawConnection {
  return new RawConnection(port).write(head(token, LONG_BYTES) + longBody)
}

/** The same without its length: nobody knows how much memory it takes. */
function unfinishedChunk({ port }: Running, token: string, body = longBody): RawConnection {
  return new RawConnection(port).write(`${chunked(token)}${body.length.toString(16)}\r\n${body}\r\n`)
}

const LAST_CHUNK = '0\r\n\r\n'

function chunked(token: string): string {
  return head(token, 0).replace('Content-Length: 0', 'Transfer-Encoding: chunked')
}

t.test(
  '429 for bodies of unknown length beyond the bytes of a token; others are served, and there is room after a hang-up',
  async t => {
    const service = await running(t, { ...SMALL, TRANSFER_PER_TOKEN_BYTES_MAX: String(8 * MIB) }, { listen: true })
    const other = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
    const all = [1, 2, 3].map(() => unfinishedChunk(service, service.token))
    const isRefused = ({ text }: RawConnection) => /HTTP\/1\.1 429 [\s\S]*request_id/.test(text)
    await eventually(() => all.some(isRefused))
    const held = all.filter(connection => !isRefused(connection))
    t.equal(held.length, 2)
    const [refused = new RawConnection(service.port)] = all.filter(isRefused)
    t.match(refused.text, /\r\nretry-after: 1\r\n/)
    t.match(refused.text, /\r\nratelimit-policy: "token-memory";q=8388608;qu="content-bytes"\r\n/)
    const [, rest] = /\r\nratelimit: "token-memory";r=(\d+);t=1\r\n/.exec(refused.text) ?? []
    t.ok(Number(rest) < 4 * MIB, 'less than it asked for')
    t.match(refused.json(), { error_code: 'RATE_LIMITED', request_id: /./ })
    saysItsLimit(t, refused.headers, refused.json())
    const small = new RawConnection(service.port).write(`${head(service.token, 2)}{}`)
    await small.until(/HTTP\/1\.1 404 /) // it needs no room
    const fromOther = unfinishedChunk(service, other).write(`1\r\n}\r\n${LAST_CHUNK}`)
    await fromOther.until(/HTTP\/1\.1 404 /)
    for (const { socket } of held) socket.destroy()
    await eventually(() => held.every(({ socket }) => socket.closed))
    await new Promise(resolve => setTimeout(resolve, 500))
    const after = unfinishedChunk(service, service.token).write(`1\r\n}\r\n${LAST_CHUNK}`)
    await after.until(/HTTP\/1\.1 404 /)
    for (const { socket } of [small, fromOther, after]) socket.destroy()
  },
)

t.test('503 for bodies of unknown length beyond the bytes of all tokens together; small ones are served', async t => {
  const service = await running(
    t,
    { ...SMALL, TRANSFER_PER_TOKEN_BYTES_MAX: String(8 * MIB), TRANSFER_BYTES_MAX: String(16 * MIB) },
    { listen: true },
  )
  const held: RawConnection[] = []
  for (let i = 0; i < 7; i++) {
    held.push(
      unfinishedChunk(service, await tokenOf(service.database, { email: `alice+${i}@example.com`, active: true })),
    )
  }
  await eventually(() =>
    held.some(({ text }) => /HTTP\/1\.1 503 [\s\S]*retry-after: 1\r\n[\s\S]*request_id/.test(text)),
  )
  const answered = held.filter(({ text }) => text !== '')
  for (const refused of answered) {
    t.match(refused.json(), {
      error_code: 'SERVICE_UNAVAILABLE',
      detail: /^(Too little is left of the 16777216 bytes|The body was still on its way) .* Try again in 1 s\.$/,
      reason: 'overloaded',
    })
  }
  const small = new RawConnection(service.port).write(`${head(service.token, 2)}{}`)
  await small.until(/HTTP\/1\.1 404 /)
  const larger = new RawConnection(service.port).write(`${head(service.token, 200_000)}{${' '.repeat(199_998)}}`)
  await larger.until(/HTTP\/1\.1 404 /) // those that hold much leave room for one that holds nothing yet
  for (const { socket } of [...held, small, larger]) socket.destroy()
})

t.test(
  'bodies whose length is known wait, unread, for the memory of all of them: many at once are all served',
  async t => {
    const shares = { TRANSFER_PER_TOKEN_BYTES_MAX: String(4 * MIB), TRANSFER_BYTES_MAX: String(8 * MIB) }
    const service = await running(t, { ...SMALL, ...shares, PERSONA_BODY_LIMIT_BYTES: String(MIB) }, { listen: true })
    const others = await Promise.all(
      [1, 2].map(n => tokenOf(service.database, { email: `alice+large${n}@example.com`, active: true })),
    )
    const body = `{"name":"${'x'.repeat(900_000)}"}`
    const all = [service.token, ...others].flatMap(token =>
      Array.from({ length: 20 }, () => new RawConnection(service.port).write(head(token, body.length) + body)),
    )
    await Promise.all(all.map(connection => connection.until(/^HTTP\/1\.1 \d[\s\S]*"detail"/)))
    t.strictSame(new Set(all.map(({ text }) => text.slice(9, 12))), new Set(['404']))
    const { body: metrics } = await service.metrics.text()
    const [, waits] = /^agents_queue_wait_seconds_count{queue="transfer_memory"} (\d+)$/m.exec(metrics) ?? []
    t.ok(Number(waits) >= all.length - 8, `${waits} waited`)
    for (const { socket } of all) socket.destroy()
  },
)

t.test(
  '429 for a large agent beyond the memory of its token, also as it was and where it is read under its lock',
  async t => {
    const service = await running(t, { ...SMALL, TRANSFER_PER_TOKEN_BYTES_MAX: String(MIB) })
    const ask = (method: 'GET' | 'PATCH', query: string, headers: Record<string, string> = {}) =>
      service.app.inject({
        method,
        url: `/persona/1${query}`,
        headers: { authorization: `Bearer ${service.token}`, 'content-type': 'application/json', ...headers },
        ...(method === 'PATCH' && { payload: '{"description":"other"}' }),
      })
    const raised = service.log.map(line => JSON.parse(line)).find(({ setting }) => setting !== undefined)
    t.match(raised, { level: 40, setting: 'TRANSFER_PER_TOKEN_BYTES_MAX', configured: MIB, effective: 5 * MIB })
    const merge = { prefer: 'merge=fields, return=minimal', 'if-match': '"persona-1-999"' }
    const asks = [
      () => ask('GET', ''),
      () => ask('GET', `?at=${new Date().toISOString()}`),
      () => ask('PATCH', '?update_mask=description', merge),
    ]
    const small = []
    for (const one of asks) small.push((await one()).statusCode)
    await sql`
    update persona set system_prompt = repeat(chr(1), 256000), task_prompt = repeat(chr(1), 256000),
      starter_messages = (select json_agg(json_build_object('name', n::text, 'message', repeat(chr(1), 10000)))
                          from generate_series(1, 50) n)
    where id = 1`.execute(service.database.db)
    t.strictSame(small, [200, 200, 412])
    for (const one of asks) {
      const refused = await one()
      t.match(
        { status: refused.statusCode, body: refused.json() },
        { status: 429, body: { error_code: 'RATE_LIMITED' } },
      )
    }
  },
)

t.test(
  '503 that says so for an update that is applied and whose answer finds no memory; 204 where none is wanted',
  async t => {
    const bodies = { PERSONA_BODY_LIMIT_BYTES: String(MIB), TRANSFER_PER_TOKEN_BYTES_MAX: String(MIB) }
    const service = await running(t, { ...SMALL, ...bodies }, { listen: true })
    await sql`update persona set system_prompt = '\u6f22' || repeat(chr(1), 15000) where id = 1`.execute(
      service.database.db,
    )
    const ask = (description: string, query = '', headers = {}) =>
      service.app.inject({
        method: 'PATCH',
        url: `/persona/1?update_mask=description${query}`,
        headers: { authorization: `Bearer ${service.token}`, ...headers },
        payload: { description },
      })
    const room = await ask('with room')
    t.equal(room.statusCode, 200)
    t.ok(room.body.length > 64 * 1024)
    const held = [1, 2].map(() => unfinishedChunk(service, service.token, longBody.slice(0, MIB - 1)))
    let refused = await ask('stored')
    for (let i = 0; refused.statusCode === 200 && i < 1_000; i++) {
      await sleep(10) // until the bodies have arrived
      refused = await ask(`stored ${i}`)
    }
    t.match(
      [refused.statusCode, refused.json()],
      [503, { reason: 'overloaded', outcome: 'applied', detail: /Of the \d+ bytes .* of one token .*return=minimal/ }],
    )
    t.equal((await ask('dry', '&dry_run=true')).statusCode, 429, 'nothing is stored by it')
    t.equal((await ask('minimal', '', { prefer: 'return=minimal' })).statusCode, 204)
    for (const { socket } of held) socket.destroy()
  },
)

t.test('an update that was let in with a large definition has room for its answer', async t => {
  const shares = { TOOL_BODY_LIMIT_BYTES: String(2 * MIB), TRANSFER_PER_TOKEN_BYTES_MAX: String(8 * MIB) }
  const service = await running(t, { ...OFF, SNAPSHOT_BYTES_MAX: String(MIB), ...shares }, { listen: true })
  const statuses: number[] = []
  const sent = Array.from({ length: 12 }, async (_, i) => {
    const definition = { ...DEFINITION, 'x-text': `${i}${'y'.repeat(1_500_000)}` }
    const answer = await fetch(`http://127.0.0.1:${service.port}/admin/tool/custom/10`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ definition }),
    })
    statuses.push(answer.status)
    const body = (await answer.json()) as { detail?: string } // an answer, or an error in our shape
    if (answer.status !== 200) t.match([answer.status, body.detail], [429, /memory for large bodies/])
  })
  await Promise.all(sent)
  t.ok(statuses.filter(status => status === 200).length >= 5, statuses.join(' '))
})

t.test('200 for reads that wait for their turn: they hold no memory until then', async t => {
  const bodies = { PERSONA_BODY_LIMIT_BYTES: String(MIB), TRANSFER_PER_TOKEN_BYTES_MAX: String(MIB) }
  const { app, database, token } = await running(t, { ...SMALL, ...bodies })
  await sql`update persona set system_prompt = repeat('x', 40000) where id = 1`.execute(database.db)
  const headers = { authorization: `Bearer ${token}` }
  const reads = Array.from({ length: 40 }, () => app.inject({ url: '/persona/1', headers }))
  const statuses = (await Promise.all(reads)).map(({ statusCode }) => statusCode)
  t.strictSame(new Set(statuses), new Set([200]), 'all of them together would take ten MiB')
})

t.test('429 for updates of one row that wait beyond the share of their token: nobody else is to blame', async t => {
  const service = await running(t, { ...OFF, LOCK_TIMEOUT_MS: '60000' })
  const { app, database, token } = service
  const update = (description: string) =>
    app.inject({
      method: 'PATCH',
      url: '/persona/1?update_mask=description',
      headers: { authorization: `Bearer ${token}` },
      payload: { description },
    })
  const sent = 130
  const updates: ReturnType<typeof update>[] = []
  let refused = 0
  await database.db.transaction().execute(async trx => {
    await sql`select from persona where id = 1 for no key update`.execute(trx)
    for (let i = 0; i < sent; i++) {
      const answer = update(`d${i}`)
      updates.push(answer)
      answer.then(({ statusCode }) => {
        if (statusCode !== 200) refused++
      })
    }
    // One waits for the lock, a hundred for their turn.
    await eventually(() => refused === sent - WAITING_MAX - 1)
  })
  const answers = await Promise.all(updates)
  const limited = answers.filter(({ statusCode }) => statusCode === 429)
  t.equal(limited.length, sent - WAITING_MAX - 1)
  t.equal(answers.filter(({ statusCode }) => statusCode === 200).length, WAITING_MAX + 1)
  t.match(limited[0]?.headers, { 'retry-after': '1' })
  const [one] = limited
  t.match(one?.json(), { detail: /^100 requests of this token wait for other updates of the same agent or tool, / })
  saysItsLimit(t, one?.headers ?? {}, one?.json() ?? {})
  const lines = service.log.map(line => JSON.parse(line)).filter(({ status }) => status === 429)
  t.match(lines[0], { limit: 'token-requests', queue: 'row_locks' })
})

t.test('bodies whose clients send no further give their memory to others', async t => {
  const service = await running(t, { ...SMALL, TRANSFER_BYTES_MAX: String(16 * MIB) }, { listen: true })
  const others = await Promise.all(
    [1, 2, 3, 4, 5, 6].map(n => tokenOf(service.database, { email: `alice+${n}@example.com`, active: true })),
  )
  const accepted: Socket[] = []
  service.app.server.on('connection', socket => accepted.push(socket))
  const held = others.flatMap(token => [unfinished(service, token), unfinished(service, token)])
  await restOf(() => accepted.reduce((sum, { bytesRead }) => sum + bytesRead, 0))
  const body = `${longBody}}`
  const connection = new RawConnection(service.port).write(head(service.token, body.length) + body)
  await connection.until(/"detail"/)
  t.match(connection.text, /^HTTP\/1\.1 404 /)
  t.ok(
    held.some(({ text }) =>
      /^HTTP\/1\.1 503 [\s\S]*bytes of memory for large bodies and answers of all callers/.test(text),
    ),
  )
  for (const { socket } of [connection, ...held]) socket.destroy()
})

t.test('bodies that are announced and given up leave nothing reserved', async t => {
  const service = await running(t, { ...SMALL, TRANSFER_BYTES_MAX: String(16 * MIB) }, { listen: true })
  const others = await Promise.all(
    [1, 2, 3, 4, 5, 6].map(n => tokenOf(service.database, { email: `alice+left${n}@example.com`, active: true })),
  )
  for (let round = 0; round < 3; round++) {
    const left = Array.from({ length: 200 }, async (_, n) => {
      const text = head(others[n % others.length] ?? '', LONG_BYTES) + ' '.repeat(n % 3 === 0 ? 0 : n * 1_000)
      const { socket } = new RawConnection(service.port).write(text)
      await sleep((n * 7) % 400) // in every phase: before its token is known, before its turn, and behind it
      socket.destroy()
    })
    await Promise.all(left)
  }
  const body = `${longBody}}`
  const all = others.slice(0, 2).map(token => new RawConnection(service.port).write(head(token, body.length) + body))
  await Promise.all(all.map(connection => connection.until(/"detail"/)))
  for (const { text } of all) t.match(text, /^HTTP\/1\.1 404 /)
  for (const { socket } of all) socket.destroy()
})

/** Resolves when a number of bytes has not changed for so long that their senders count as slow: they are read in turns. */
async function restOf(bytes: () => number): Promise<void> {
  for (let before = -1; before !== bytes(); ) {
    before = bytes()
    await sleep(1_500)
  }
}

t.test('400 for a body in chunks of a byte; the rest of it is not read, and larger chunks are', async t => {
  const service = await running(t, OFF, { listen: true })
  const tiny = new RawConnection(service.port).write(chunked(service.token) + '1\r\n \r\n'.repeat(500_000))
  const control = new RawConnection(service.port)
  control.write(`${chunked(service.token)}2\r\n{}\r\n${`50\r\n${' '.repeat(80)}\r\n`.repeat(6_000)}0\r\n\r\n`)
  await control.until(/HTTP\/1\.1 404 /)
  await tiny.closed
  t.match(tiny.text, /^HTTP\/1\.1 400 /)
  t.match(tiny.json(), { error_code: 'BAD_REQUEST', detail: /chunks/ })
  const unknown = new RawConnection(service.port)
  unknown.write(chunked(mintToken('person').token) + '1\r\n \r\n'.repeat(500_000))
  await unknown.closed // long before the request timeout
  t.match(unknown.text, /^HTTP\/1\.1 401 /)
  const few = new RawConnection(service.port)
  few.write(`${chunked(service.token)}1\r\n{\r\n${'1\r\n \r\n'.repeat(2_000)}1\r\n}\r\n0\r\n\r\n`)
  await few.until(/HTTP\/1\.1 404 /)
  for (const { socket } of [control, few]) socket.destroy()
})

t.test('what small chunks cost counts as time: such bodies wait for turns, others of as many bytes do not', async t => {
  const service = await running(t, OFF, { listen: true })
  const tokens = await Promise.all(
    Array.from({ length: 10 }, (_, n) =>
      tokenOf(service.database, { email: `alice+chunks${n}@example.com`, active: true }),
    ),
  )
  const body = `{}${' '.repeat(3_898)}`
  const waits = async () => {
    const { body } = await service.metrics.text()
    return Number(/^agents_queue_wait_seconds_count\{queue="body_turns"\} (\d+)$/m.exec(body)?.[1] ?? 0)
  }
  const waitsBehind = async (chunkBytes: number) => {
    const before = await waits()
    const chunks = body.match(new RegExp(`.{1,${chunkBytes}}`, 'g')) ?? []
    const text = chunks.map(chunk => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('')
    const all = tokens.map(token => new RawConnection(service.port).write(`${chunked(token)}${text}${LAST_CHUNK}`))
    await Promise.all(all.map(connection => connection.until(/^HTTP\/1\.1 (404|503) /)))
    for (const { socket } of all) socket.destroy()
    t.ok(all.some(connection => connection.text.startsWith('HTTP/1.1 404 ')))
    const refused = all.filter(connection => connection.text.startsWith('HTTP/1.1 503 '))
    for (const { text } of refused) t.match(text, /small chunks/) // of all together there is a bound
    t.ok(refused.length === 0 || chunkBytes === 1)
    return (await waits()) - before
  }
  let ofOthers = 1
  for (let n = 0; n < 10 && ofOthers > 0; n++) ofOthers = await waitsBehind(80) // cold code takes longer
  t.equal(ofOthers, 0)
  t.ok((await waitsBehind(1)) > 0)
})

t.test(
  'a refusal before the end of a body in chunks says that its connection ends; behind a whole one it goes on',
  async t => {
    const service = await running(t, OFF, { listen: true })
    const unknown = mintToken('person').token
    const chunk = '2\r\n{}\r\n'
    for (const token of ['malformed', unknown]) {
      const whole = new RawConnection(service.port).write(`${chunked(token)}${chunk}0\r\n\r\n`)
      await whole.until(/^HTTP\/1\.1 401 [\s\S]*"detail"/)
      t.notMatch(whole.text, /connection: close/i, 'its end came with it')
      whole.text = ''
      await sleep(2 * LINGER_MS)
      await whole.write(`${head(service.token, 2)}{}`).until(/^HTTP\/1\.1 404 /)
      whole.socket.destroy()

      const cut = new RawConnection(service.port).write(chunked(token) + chunk)
      await cut.until(/"detail"/)
      t.match(cut.text, /^HTTP\/1\.1 401 [\s\S]*\r\nconnection: close\r\n/i)
      await cut.closed
    }
    const sending = new RawConnection(service.port)
    sending.write(chunked(unknown) + `10000\r\n${' '.repeat(65_536)}\r\n`.repeat(200))
    await sending.closed
    t.match(sending.text, /^HTTP\/1\.1 401 [\s\S]*"detail"/, 'who still sends reads the whole answer')
  },
)

t.test('422 before the body has ended, for what it holds by then', async t => {
  const service = await running(t, OFF, { listen: true })
  const attacks = {
    json_too_many_nodes: [`{"x":[${'{},'.repeat(60_000)}`, 'more than 20000 objects, lists, texts and commas together'],
    json_too_deep: ['['.repeat(60_000), 'nested more than 64 deep, at byte 64'],
    json_key_too_long: [`{"${'k'.repeat(1_025)}":`, 'a key of more than 1024 bytes, at byte 2'],
    json_number_too_long: [`{"num_chunks":${'9'.repeat(4_097)}`, 'a number of more than 4096 digits, at byte 14'],
  } as const
  for (const [type, [start, sentence]] of Object.entries(attacks)) {
    const connection = new RawConnection(service.port).write(head(service.token, 4_000_000) + start)
    await connection.until(/"detail"/)
    t.match(connection.text, /^HTTP\/1\.1 422 /)
    t.match(connection.json(), { detail: [{ loc: ['body'], type, msg: sentence }] })
    await connection.closed
  }
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

/** Small, but with many texts: it takes a turn. */
const DEAR = `{${Array.from({ length: 3_000 }, (_, i) => `"k${i}":1`).join(',')}}`

t.test('tokens take turns with bodies that are dear to parse; 429 for those of one beyond a hundred', async t => {
  const service = await running(t, OFF)
  const other = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
  const order: string[] = []
  const send = async (token: string, name: string) => {
    const answer = await service.app.inject({
      method: 'PATCH',
      url: '/persona/999999?update_mask=',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      payload: DEAR,
    })
    order.push(`${name} ${answer.statusCode}`)
    return answer
  }
  const all = Array.from({ length: 130 }, () => send(service.token, 'one'))
  const [last] = await Promise.all([send(other, 'other'), ...all])
  t.equal(last?.statusCode, 404)
  t.ok(order.filter(entry => entry === 'one 404').length > 100)
  t.ok(order.indexOf('other 404') < order.length - 20, 'before most of what was there first')
  const answers = await Promise.all(all)
  const refused = answers.find(({ statusCode }) => statusCode === 429)
  t.match(refused?.json(), { error_code: 'RATE_LIMITED', detail: /^100 requests of this token wait for a turn / })
  saysItsLimit(t, refused?.headers ?? {}, refused?.json() ?? {})
  t.equal(refused?.headers['retry-after'], '1')
  t.equal(refused?.headers['ratelimit-policy'], '"token-requests";q=100;qu="concurrent-requests"')
  t.equal(refused?.headers.ratelimit, '"token-requests";r=0;t=1')
})

t.test(
  'a body that waits for its turn when its client hangs up is not parsed, and is the fault of nobody here',
  async t => {
    const service = await running(t, OFF, { listen: true })
    const payload = DEAR.padEnd(100_000)
    const message = head(service.token, payload.length) + payload
    const all = Array.from({ length: 60 }, () => new RawConnection(service.port).write(message))
    await eventually(() => all.some(({ text }) => text !== ''))
    const waiting = all.filter(({ text }) => text === '')
    for (const { socket } of waiting) socket.destroy()
    const after = new RawConnection(service.port).write(message)
    await after.until(/HTTP\/1\.1 404 /)
    after.socket.destroy()
    const answered = () => service.log.filter(line => JSON.parse(line).msg === 'request answered')
    const dropped = service.log.filter(line => JSON.parse(line).level >= 40)
    t.ok(waiting.length > 10)
    t.strictSame(dropped, [])
    t.comment(JSON.stringify(answered().slice(-3)))
  },
)

function busy(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

t.test('the turns of a place have a quarter of the thread; what fails in one keeps nobody from the next', async t => {
  const turns = new BodyTurns()
  const order: string[] = []
  const start = performance.now()
  const take = (token: string) => {
    const work = () => {
      order.push(token)
      busy(10)
      if (token === 'c') throw new Error('failed')
    }
    return turns.take(token, work, { expectedMs: 10 })
  }
  const all = [take('a'), take('a'), take('a'), take('b'), take('c')]
  const ends = await Promise.allSettled(all)
  t.strictSame(
    ends.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'fulfilled', 'fulfilled', 'rejected'],
  )
  t.strictSame(order, ['a', 'b', 'c', 'a', 'a'], 'who had a turn comes behind those who had none')
  // A place that was free for long has rested for the half of one.
  t.ok(performance.now() - start >= 4 * 40 - 20)
})

t.test(
  'who sends a body of several short turns now and then waits for no rest behind the long ones of others',
  async t => {
    const turns = new BodyTurns()
    let long = 0
    let isOver = false
    const repeat = async (token: string) => {
      while (!isOver) {
        const work = () => {
          long++
          busy(10)
        }
        await turns.take(token, work, { expectedMs: 10 })
      }
    }
    const others = Array.from({ length: 20 }, (_, i) => repeat(`other ${i % 10}`))
    await eventually(() => long >= 12)
    for (let body = 0; body < 2; body++) {
      const begun = long
      for (let turn = 0; turn < 4; turn++) await turns.take('quiet', () => undefined, { usedMs: 1.5 })
      t.ok(long - begun <= 2, `${long - begun} long turns began meanwhile`)
      await eventually(() => long >= begun + 6)
    }
    isOver = true
    await Promise.all(others)
  },
)

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

t.test(
  'for a place a body makes room that is idle; what is read, has to wait, or is an answer keeps nobody out',
  async t => {
    const abandoned: string[] = []
    const transfers = new UnfinishedTransfers()
    const begin = (kind: Unfinished['kind'], owner: string) => {
      const transfer: Unfinished = { kind, owner, heldBytes: () => 1, abandon: () => abandoned.push(owner) }
      transfers.add(transfer)
      return transfer
    }
    begin('answer', 'unread')
    begin('body', 'idle')
    const read = begin('body', 'read')
    transfers.pause(begin('body', 'waiting'))
    t.notOk(transfers.abandonIdlestBody(), 'not before a second')
    await sleep(1_100)
    transfers.renew(read)
    t.equal(transfers.countSlowBodies(), 1)
    t.ok(transfers.abandonIdlestBody())
    t.notOk(transfers.abandonIdlestBody())
    t.strictSame(abandoned, ['idle'])
  },
)

t.test('a slow but steady upload goes on where others who hold more have taken all memory', async t => {
  const service = await running(t, { ...SMALL, TRANSFER_BYTES_MAX: String(16 * MIB) }, { listen: true })
  const token = (n: number) => tokenOf(service.database, { email: `alice+${n}@example.com`, active: true })
  const others = await Promise.all([1, 2, 3, 4].map(token))
  const slow = new RawConnection(service.port).write(`${head(await token(0), MIB)}{${' '.repeat(400_000)}`)
  const held = others.flatMap(other => [unfinished(service, other), unfinished(service, other)])
  let left = MIB - 400_001
  const drip = setInterval(() => {
    const bytes = Math.min(20_000, left - 1)
    left -= bytes
    if (bytes > 0) slow.write(' '.repeat(bytes))
  }, 200)
  await sleep(2_000)
  for (let n = 0; n < 3; n++) {
    const connection = unfinished(service, service.token)
    await sleep(500)
    held.push(connection)
  }
  await eventually(() => left === 1)
  clearInterval(drip)
  slow.write('}')
  await slow.until(/"detail"/)
  t.match(slow.text, /^HTTP\/1\.1 404 /)
  t.ok(
    held.some(({ text }) => /^HTTP\/1\.1 503 /.test(text)),
    'there was too little for all',
  )
  for (const { socket } of [slow, ...held]) socket.destroy()
})

let slowPeople = 0

/**
 * Bodies of so many other people, of which a bit more than what needs no turn comes at a time, and then nothing for as long as a turn was
 * once kept for it. Answers how to end them.
 */
async function slowBodies(service: Running, count: number): Promise<() => void> {
  const connections = await Promise.all(
    Array.from({ length: count }, async () => {
      const email = `alice+${++slowPeople}@example.com`
      const token = await tokenOf(service.database, { email, active: true })
      return new RawConnection(service.port).write(`${head(token, LONG_BYTES)}{`)
    }),
  )
  const pieceBytes = 67_000
  const left = connections.map(() => LONG_BYTES - 1)
  const sending = setInterval(() => {
    for (const [n, connection] of connections.entries()) {
      const leftBytes = left[n] ?? 0
      if (connection.socket.writableLength > 100_000 || leftBytes < 100_000) continue
      connection.write(' '.repeat(pieceBytes))
      left[n] = leftBytes - pieceBytes
    }
  }, 55)
  return () => {
    clearInterval(sending)
    for (const { socket } of connections) socket.destroy()
  }
}

t.test('bodies that come slowly keep nobody from their turns', async t => {
  const service = await running(t, OFF, { listen: true })
  const servedMs = async () => {
    const start = performance.now()
    const connection = new RawConnection(service.port).write(`${head(service.token, LONG_BYTES)}${longBody}}`)
    await connection.until(/HTTP\/1\.1 404 /)
    connection.socket.destroy()
    return performance.now() - start
  }
  await servedMs()
  const tries: string[] = []
  let isFair = false
  for (let attempt = 0; attempt < 4 && !isFair; attempt++) {
    const aloneMs = await servedMs()
    const end = await slowBodies(service, 20)
    await sleep(300)
    const besideMs = await servedMs()
    end()
    isFair = besideMs <= 4 * aloneMs + 1_000 * slowness()
    tries.push(`${besideMs} ms, alone ${aloneMs} ms`)
  }
  t.ok(isFair, tries.join('; '))
})

t.test('a body whose service does not read it is not one of a slow client', async t => {
  const service = await running(t, { ...SMALL, TRANSFER_BYTES_MAX: String(16 * MIB) }, { listen: true })
  const end = await slowBodies(service, 12)
  const honest = new RawConnection(service.port).write(`${head(service.token, MIB)}{${' '.repeat(MIB - 2)}}`)
  await honest.until(/"detail"/)
  t.match(honest.text, /^HTTP\/1\.1 404 /)
  honest.socket.destroy()
  end()
})
