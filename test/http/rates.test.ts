import { sql } from 'kysely'
import t from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { InvalidConfiguration, readConfig } from '../../src/config.js'
import { Rate } from '../../src/limits/rate.js'
import { eventually, type Running, running, saysItsLimit, tokenOf, whenInWork } from './running.js'

/** A dry run on an agent that is not there: 404 once the caller is known. */
function ask(
  { app }: Running,
  { token, from = '192.0.2.1', forwarded }: { token?: string; from?: string; forwarded?: string },
) {
  return app.inject({
    method: 'PATCH',
    url: '/persona/999999?dry_run=true&update_mask=',
    headers: {
      'content-type': 'application/json',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(forwarded !== undefined && { 'x-forwarded-for': forwarded }),
    },
    payload: '{}',
    remoteAddress: from,
  })
}

t.test('429 RATE_LIMITED for a token over its quota, without a look-up; others go on', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '3' })
  const [first, , third] = [await ask(service, service), await ask(service, service), await ask(service, service)]
  t.equal(first.statusCode, 404)
  t.equal(first.headers['ratelimit-policy'], '"token";q=3;w=60')
  t.match(first.headers.ratelimit, /^"token";r=2;t=(60|59)$/)
  t.match(third.headers.ratelimit, /^"token";r=0;t=\d+$/)
  const statements = service.database.counters.statements
  const refused = await ask(service, service)
  t.equal(refused.statusCode, 429)
  t.equal(service.database.counters.statements, statements)
  t.match(refused.headers['retry-after'], /^([1-9]|[1-5]\d|60)$/)
  t.equal(refused.headers['ratelimit-policy'], '"token";q=3;w=60')
  t.match(refused.headers.ratelimit, /^"token";r=0;t=\d+$/)
  t.strictSame(refused.json(), {
    error_code: 'RATE_LIMITED',
    detail: `This token has made all 3 requests that one minute allows. Try again in ${refused.headers['retry-after']} s.`,
    request_id: refused.headers['x-request-id'],
  })
  saysItsLimit(t, refused.headers, refused.json())
  t.equal((await ask(service, { token: mintToken('person').token })).statusCode, 401)
  t.notOk(Object.keys(first.headers).some(name => name.startsWith('x-ratelimit')))
})

t.test('429 for a dead token that hammers costs no more look-ups than its quota', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '5', FAILED_AUTH_LIMIT_PER_MINUTE: '0' })
  const statements = service.database.counters.statements
  const statuses = []
  for (let i = 0; i < 20; i++) statuses.push((await ask(service, { token: service.inactiveToken })).statusCode)
  t.strictSame(statuses, [...Array(5).fill(401), ...Array(15).fill(429)])
  t.equal(service.database.counters.statements, statements + 5)
})

t.test('429 instead of 401 for an address over its failures, and a valid token from there is still served', async t => {
  const service = await running(t, { FAILED_AUTH_LIMIT_PER_MINUTE: '4' })
  t.equal((await ask(service, service)).statusCode, 404)
  const bad = [undefined, 'nonsense', mintToken('person').token, service.inactiveToken]
  for (const token of bad) {
    const { statusCode, headers } = await ask(service, token === undefined ? {} : { token })
    t.equal(statusCode, 401)
    t.equal(headers['ratelimit-policy'], '"failed-authentication";q=4;w=60')
  }
  const statements = service.database.counters.statements
  for (const token of [undefined, 'nonsense', `${service.token.slice(0, -1)}_`]) {
    const refused = await ask(service, token === undefined ? {} : { token })
    t.equal(refused.statusCode, 429)
    t.strictSame(refused.json(), {
      error_code: 'RATE_LIMITED',
      detail: `More than 4 requests of one minute from this address had no valid token. Try again in ${refused.headers['retry-after']} s.`,
      request_id: refused.headers['x-request-id'],
    })
    t.ok(Number(refused.headers['retry-after']) >= 1)
    saysItsLimit(t, refused.headers, refused.json())
    t.equal(refused.headers['www-authenticate'], undefined)
  }
  t.equal(service.database.counters.statements, statements, 'nothing was looked up for what is no token')
  for (let i = 0; i < 20; i++) t.equal((await ask(service, { token: mintToken('person').token })).statusCode, 429)
  for (let i = 0; i < 20; i++) t.equal((await ask(service, { token: service.inactiveToken })).statusCode, 429)
  t.equal(service.database.counters.statements, statements, 'and nothing for tokens that are not known')
  t.equal((await ask(service, service)).statusCode, 404, 'a token that was valid before is served')
  t.equal((await ask(service, { from: '192.0.2.2' })).statusCode, 401, 'another address has its own quota')
})

t.test('a new token has a way in behind an address over its failures, however often a dead one is sent', async t => {
  const service = await running(t, { FAILED_AUTH_LIMIT_PER_MINUTE: '60', RATE_LIMIT_PER_MINUTE: '0' })
  const dead = mintToken('person').token
  for (let i = 0; i < 61; i++) await ask(service, { token: dead })
  const hammer = () => ask(service, { token: dead })
  const statuses = new Set<number>()
  const end = Date.now() + 30_000
  for (let status = 0; status !== 404 && Date.now() < end; statuses.add(status)) {
    for (const refused of [await hammer(), await hammer()]) statuses.add(refused.statusCode)
    status = (await ask(service, service)).statusCode
  }
  t.strictSame([...statuses].sort(), [404, 429])
})

t.test('a window never has more seconds left than it lasts', t => {
  const rate = new Rate(60_000)
  for (let i = 0; i < 20_000; i++) if (rate.count(String(i)).resetS > 60) t.fail('61 s are left')
  t.end()
})

t.test('of many failures at once those are 401 that the quota allows', async t => {
  const service = await running(t, { FAILED_AUTH_LIMIT_PER_MINUTE: '4' })
  const tokens = Array.from({ length: 10 }, () => mintToken('person').token)
  const answers = await Promise.all(tokens.map(token => ask(service, { token })))
  t.strictSame(answers.map(({ statusCode }) => statusCode).sort(), [...Array(4).fill(401), ...Array(6).fill(429)])
})

t.test('failures of one IPv6 network are counted together, and successes not at all', async t => {
  const service = await running(t, { FAILED_AUTH_LIMIT_PER_MINUTE: '2' })
  for (let i = 0; i < 5; i++) await ask(service, { ...service, from: '2001:db8::1' })
  const from = async (address: string) => (await ask(service, { from: address })).statusCode
  t.equal(await from('2001:db8::1'), 401)
  t.equal(await from('2001:db8::2'), 401)
  t.equal(await from('2001:db8::3'), 429)
  t.equal(await from('2001:db8:0:1::1'), 401)
})

t.test('0 switches a limit off and its headers', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' })
  for (let i = 0; i < 30; i++) {
    const { statusCode, headers } = await ask(service, {})
    t.equal(statusCode, 401)
    t.equal(headers.ratelimit, undefined)
  }
})

t.test('X-Forwarded-For is believed of the proxies that TRUST_PROXY names, and only if it is an address', async t => {
  const plain = await running(t, { FAILED_AUTH_LIMIT_PER_MINUTE: '1' })
  t.equal((await ask(plain, { forwarded: '203.0.113.1' })).statusCode, 401)
  t.equal((await ask(plain, { forwarded: '203.0.113.2' })).statusCode, 429, 'nobody is believed by default')
  const proxied = await running(t, { FAILED_AUTH_LIMIT_PER_MINUTE: '1', TRUST_PROXY: 'loopback, 192.0.2.0/24' })
  const from = async (address: string, forwarded: string) =>
    (await ask(proxied, { from: address, forwarded })).statusCode
  t.equal(await from('192.0.2.1', '203.0.113.1'), 401)
  t.equal(await from('192.0.2.1', '203.0.113.2'), 401)
  t.equal(await from('127.0.0.1', '203.0.113.1'), 429)
  t.equal(await from('192.0.2.1', '198.51.100.7, 203.0.113.1'), 429, 'what the client wrote before it counts nothing')
  t.equal(await from('203.0.113.9', '203.0.113.10'), 401)
  t.equal(await from('203.0.113.9', '203.0.113.11'), 429, 'a stranger is not believed')
  t.equal(await from('192.0.2.1', '203.0.113.1:51234'), 429, 'with a port')
  t.equal(await from('192.0.2.1', '[2001:db8::1]:443'), 401)
  t.equal(await from('192.0.2.1', '2001:db8::1, 192.0.2.7:8080, [::1]:443'), 429, 'proxies with ports are trusted')
  t.equal(await from('192.0.2.1', '[2001:db8::1]'), 429)
  t.equal(await from('192.0.2.1', 'no address'), 401)
  t.equal(await from('192.0.2.1', `no address either ${'x'.repeat(4000)}`), 429, 'then the proxy itself is counted')
})

t.test('TRUST_PROXY and ports that cannot work are faults of the configuration', async t => {
  const faults = (env: Record<string, string>) => {
    try {
      readConfig(env)
      return []
    } catch (error) {
      return error instanceof InvalidConfiguration ? error.faults : [error]
    }
  }
  t.strictSame(faults({ TRUST_PROXY: 'loopback,10.0.0.0/8 , ::1,2001:db8::/32,192.0.2.1' }), [])
  t.strictSame(faults({ TRUST_PROXY: 'true' }), [
    'TRUST_PROXY: true is not an address, a network (10.0.0.0/8) or one of loopback,linklocal,uniquelocal',
  ])
  for (const bad of ['1', '10.0.0.0/33', '10.0.0/8', 'proxy.example.com', '10.0.0.1/8/8', '::1/129', '10.0.0.0/']) {
    t.equal(faults({ TRUST_PROXY: bad }).length, 1, bad)
  }
  t.strictSame(faults({ PORT: '9090', METRICS_PORT: '9090' }), ['METRICS_PORT: must not be that of PORT'])
  t.strictSame(faults({ PORT: '0', METRICS_PORT: '0' }), [])
})

t.test('one slow read of a token runs at a time; another token has its turn meanwhile', async t => {
  const waits = { LOCK_TIMEOUT_MS: '60000', STATEMENT_TIMEOUT_MS: '60000' }
  const service = await running(t, { DATABASE_POOL_SIZE: '8', ...waits })
  const { app, database, token } = service
  const other = await tokenOf(database, { email: 'alice+other@example.com', active: true })
  const holding = await database.db.startTransaction().execute()
  await sql`lock table persona_label, persona in access exclusive mode`.execute(holding)
  const read = (one: string) => app.inject({ url: '/persona', headers: { authorization: `Bearer ${one}` } })
  const waiting = async () => {
    const found = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    return (await found.execute(database.db)).rows.length // one transaction would see one snapshot
  }
  const reads = []
  for (const [one, statements] of [
    [token, 1],
    [other, 2],
    [token, 2],
  ] as const) {
    reads.push(read(one))
    await whenInWork(service, reads.length)
    await eventually(async () => (await waiting()) >= statements, 20_000)
    t.equal(await waiting(), statements)
  }
  await holding.rollback().execute()
  for (const { statusCode } of await Promise.all(reads)) t.equal(statusCode, 200)
})
