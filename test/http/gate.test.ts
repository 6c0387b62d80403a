import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { eventually } from '../eventually.js'
import { begin, RawConnection, type Running, running, saysItsLimit, tokenOf, whenInWork } from './running.js'

/* The limits of one caller, and the resources that a caller must not hold while others need them. */

/** Reads an agent that does not exist. The answer is 404 if the caller is authenticated. */
const ask = ({ call }: Running, { token, url = '/persona/999999' }: { token?: string | undefined; url?: string }) =>
  call('GET', url, token === undefined ? {} : { token })

let others = 0
const otherToken = ({ database }: Running) => tokenOf(database, { email: `alice+${++others}@example.com` })

/** Returns a second token. Both this token and the service's own token have been authenticated. */
async function knownToken(t: Test, service: Running): Promise<string> {
  const token = await otherToken(service)
  for (const one of [token, service.token]) t.equal((await ask(service, { token: one })).statusCode, 404)
  return token
}

async function lock({ database }: Running, tables: string): Promise<() => Promise<void>> {
  const holding = await database.db.startTransaction().execute()
  await sql`lock table ${sql.raw(tables)} in access exclusive mode`.execute(holding)
  return () => holding.rollback().execute()
}

const shared = await running(t, { LOCK_TIMEOUT_MS: '60000' }, { listen: true })

t.test('429 RATE_LIMITED for a token over its quota, without a look-up; others go on', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '3' })
  const policy = '"token";q=3;w=60'
  for (const left of [2, 1, 0]) {
    const { statusCode, headers } = await ask(service, service)
    t.strictSame([statusCode, headers['ratelimit-policy']], [404, policy])
    t.match(headers.ratelimit, new RegExp(`^"token";r=${left};t=\\d+$`))
  }
  const statements = service.statements.length
  const refused = await ask(service, service)
  t.strictSame([refused.statusCode, refused.headers['ratelimit-policy']], [429, policy])
  t.equal(service.statements.length, statements)
  t.match(refused.headers['retry-after'], /^([1-9]|[1-5]\d|60)$/)
  t.match(refused.headers.ratelimit, /^"token";r=0;t=\d+$/)
  t.strictSame(refused.json(), {
    error_code: 'RATE_LIMITED',
    detail: `This token has reached its limit of requests per minute (3). Try again in ${refused.headers['retry-after']} s.`,
    request_id: refused.headers['x-request-id'],
  })
  saysItsLimit(t, refused)
  t.equal((await ask(service, { token: await otherToken(service) })).statusCode, 404)
})

t.test('429 even after more made-up tokens than are remembered: they displace no count of a valid token', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '1', CONCURRENT_REQUESTS_MAX: '2' }) // the gate remembers 20 tokens
  t.equal((await ask(service, service)).statusCode, 404)
  for (let i = 0; i < 30; i++) t.equal((await ask(service, { token: mintToken('person').token })).statusCode, 401)
  t.equal((await ask(service, service)).statusCode, 429)
})

t.test('401 uses no quota, and a revoked token none any more; 0 switches the quota off', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '1' })
  for (const token of [undefined, 'nonsense', mintToken('person').token, service.inactiveToken])
    for (let i = 0; i < 3; i++) {
      const { statusCode, headers } = await ask(service, { token })
      t.strictSame([statusCode, headers.ratelimit], [401, undefined])
    }
  const off = await running(t, { RATE_LIMIT_PER_MINUTE: '0' })
  const token = await otherToken(off)
  for (let i = 0; i < 3; i++) t.equal((await ask(off, { token })).headers.ratelimit, undefined)
  await off.database.db.updateTable('token').set({ revoked_at: new Date().toISOString() }).execute()
  for (let i = 0; i < 3; i++) t.equal((await ask(off, { token })).statusCode, 401)
})

t.test('404 in turn for a new token among made-up ones; 503 if too many wait; known ones go on', async t => {
  const service = await running(t, { CONCURRENT_REQUESTS_MAX: '20', LOCK_TIMEOUT_MS: '60000' })
  const [fresh, late] = [await otherToken(service), await otherToken(service)]
  t.equal((await ask(service, service)).statusCode, 404)
  const unlock = await lock(service, 'token')
  const held = Array.from({ length: 21 }, () => ask(service, { token: mintToken('person').token }))
  await whenInWork(service, 21)
  const waiting = ask(service, { token: fresh })
  await whenInWork(service, 22)
  for (const token of [late, mintToken('person').token]) {
    const refused = await ask(service, { token })
    t.strictSame([refused.statusCode, refused.headers['retry-after']], [503, '1'])
    const detail = / reached its limit of concurrent requests with tokens that are not verified yet \(2\)\./
    t.match(refused.json(), { error_code: 'SERVICE_UNAVAILABLE', reason: 'overloaded', detail })
  }
  t.equal((await ask(service, {})).statusCode, 401, 'no token needs no look-up')
  t.equal((await ask(service, { url: '/healthz' })).statusCode, 200)
  const known = ask(service, service)
  await whenInWork(service, 23)
  await unlock()
  for (const { statusCode } of await Promise.all(held)) t.equal(statusCode, 401)
  for (const one of [known, waiting]) t.equal((await one).statusCode, 404)
})

t.test('429 for a token of which 100 requests wait for half of the pool; another goes on meanwhile', async t => {
  const service = shared
  const token = await knownToken(t, service)
  const unlock = await lock(service, 'persona_label, persona')
  const held = Array.from({ length: 102 }, () => ask(service, service))
  await whenInWork(service, 102)
  const refused = await ask(service, service)
  t.equal(refused.statusCode, 429)
  t.equal(refused.headers['ratelimit-policy'], '"token-requests";q=2;qu="concurrent-requests"')
  saysItsLimit(t, refused)
  t.equal((await ask(service, { token, url: '/me' })).statusCode, 200)
  await unlock()
  for (const { statusCode } of await Promise.all(held)) t.equal(statusCode, 404)
})

t.test('401 for a token that is revoked while its request waits for a place, also a new one', async t => {
  const service = await running(t, { DATABASE_POOL_SIZE: '1', LOCK_TIMEOUT_MS: '60000' }, { listen: true })
  const { database, statements, token } = service
  const holding = await database.db.startTransaction().execute() // holds the only connection, so that both look-ups wait
  const { socket } = begin(service)
  await whenInWork(service, 1)
  const waiting = ask(service, service)
  await whenInWork(service, 2)
  const before = statements.length
  await holding.rollback().execute()
  await eventually(() => statements.length >= before + 3) // both look-ups, and the record of the last use
  await database.db.updateTable('token').set({ revoked_at: new Date().toISOString() }).execute()
  socket.destroy()
  t.equal((await waiting).statusCode, 401)
  t.equal((await ask(service, { token })).statusCode, 401)
})

t.test('503 for all while CONCURRENT_REQUESTS_MAX requests are in progress', async t => {
  const service = await running(t, { CONCURRENT_REQUESTS_MAX: '2' })
  const token = await knownToken(t, service)
  const unlock = await lock(service, 'persona')
  const held = [ask(service, service), ask(service, service)]
  await whenInWork(service, 2)
  const refused = await ask(service, { token, url: '/me' })
  t.strictSame([refused.statusCode, refused.headers['retry-after']], [503, '1'])
  t.match(refused.json(), {
    error_code: 'SERVICE_UNAVAILABLE',
    reason: 'overloaded',
    detail: /^The service is busy: it has reached its limit of concurrent requests \(2\)\./,
  })
  await unlock()
  for (const { statusCode } of await Promise.all(held)) t.equal(statusCode, 404)
  t.equal((await ask(service, { token, url: '/me' })).statusCode, 200)
})

const busy = await running(t, { LOCK_TIMEOUT_MS: '60000' }, { listen: true })

for (const length of ['Content-Length: 4000000', 'Transfer-Encoding: chunked'])
  t.test(`200 for others while 100 bodies do not come that were announced by ${length}`, async t => {
    const service = busy
    const token = await knownToken(t, service)
    const held = Array.from({ length: 100 }, () => begin(service, service.token, length))
    held.push(...Array.from({ length: 17 }, () => begin(service, mintToken('person').token, length)))
    await whenInWork(service, 100)
    for (let i = 0; i < 10; i++) t.equal((await ask(service, { token, url: '/me' })).statusCode, 200)
    for (const { socket } of held) socket.destroy()
    await whenInWork(service, 0)
    t.equal((await ask(service, service)).statusCode, 404)
  })

t.test('200 for others beside 1,100 pipelined requests with made-up tokens whose answers are not read', async t => {
  const service = shared
  t.equal((await ask(service, service)).statusCode, 404)
  const client = new RawConnection(service.port)
  client.socket.pause()
  client.write('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(4))
  for (let i = 0; i < 1_100; i++)
    client.write(`GET /me HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${mintToken('person').token}\r\n\r\n`)
  for (let i = 0; i < 50; i++) t.equal((await ask(service, { token: service.token, url: '/me' })).statusCode, 200)
  client.socket.destroy()
  await whenInWork(service, 0)
})
