import { createHash } from 'node:crypto'
import pg from 'pg'
import t from 'tap'
import { listTokens } from '../../src/admin/tokens.js'
import { mintToken } from '../../src/auth/token.js'
import { makeLogger } from '../../src/http/logging.js'
import type { Call } from '../test-service.js'
import { RawConnection, type Running, running, whenInWork } from './running.js'

const SECRET = 'planted-secret'
const TOOL = '/admin/tool/custom/999999'
const VALIDATE = '/admin/tool/custom/validate'

/** Sends a request with secrets in a header and a cookie. */
function ask({ call }: Running, { method = 'PUT', url = TOOL, body = '{}', headers, ...sent }: Asked) {
  const secret = { 'x-secret': SECRET, cookie: `session=${SECRET}` }
  return call(method, url, { ...sent, body, headers: { ...secret, ...headers } })
}

interface Asked extends Call {
  method?: string
  url?: string
}

const lines = ({ log }: Running) => log.map(line => JSON.parse(line))
const answered = (service: Running) => lines(service).filter(({ msg }) => msg === 'request answered')

const HEADERS = JSON.stringify({ custom_headers: [{ key: 'Authorization', value: SECRET }] })

const shared = await running(t, { RATE_LIMIT_PER_MINUTE: '0' }, { listen: true })
t.beforeEach(() => {
  shared.log.length = 0
})

t.test('one line an answer: request id, operation, caller, status, refusal, duration', async t => {
  const { headers } = await ask(shared, { token: shared.token })
  t.equal(answered(shared).length, 1)
  const { caller, token, duration_ms, time, ...rest } = answered(shared)[0]
  t.type(token, 'number')
  t.match(caller, /^[0-9a-f-]{36}$/)
  t.type(duration_ms, 'number')
  t.ok(Date.parse(time) > 0)
  t.strictSame(rest, {
    level: 30,
    name: 'agents',
    request_id: headers['x-request-id'],
    method: 'PUT',
    operation: 'update_custom_tool',
    resource_id: 999_999,
    status: 404,
    refusal: 'NOT_FOUND',
    client: '127.0.0.1',
    msg: 'request answered',
  })
})

t.test('an error of the database is logged without the values that it repeats', async t => {
  const log: string[] = []
  const logger = makeLogger('trace', { write: line => log.push(line) })
  const user = 'insert into user_account (email, kind, permissions) values'
  for (const [sql, ...parameters] of [
    ['select $1::uuid', SECRET],
    ['select $1::text::integer', SECRET],
    [`${user} ($1, 'person', '{}')`, 'alice@example.com'],
    [`${user} ($1, $1, $2)`, SECRET, '{}'],
    [`select '${SECRET}'::json`],
  ] as [string, ...string[]][]) {
    const error = await shared.database.pool.query(sql, parameters).catch(error => error)
    t.ok(error instanceof pg.DatabaseError)
    logger.error({ err: error }, 'failed')
    logger.error({ err: new Error('outer', { cause: error }) }, 'failed')
    logger.error({ err: new AggregateError([error], 'all') }, 'failed')
  }
  const broken = await new Response(`{"a": ${SECRET}}`).json().catch(error => error)
  logger.error({ err: broken }, 'failed')
  t.equal(log.length, 16)
  t.notMatch(log.join(''), /planted-secret|alice@example\.com/)
  t.match(JSON.parse(log[6] ?? ''), { err: { code: '23505', constraint: /./, stack: /^ +at / } })
})

t.test('no line holds a body, a token or a header value, at any level, whatever fails', async t => {
  const { token, inactiveToken } = shared
  const strange = mintToken('person').token
  await ask(shared, { token, body: HEADERS })
  await ask(shared, { body: HEADERS })
  for (const bad of [inactiveToken, strange, SECRET]) await ask(shared, { token: bad })
  const bodies = [`{"name":"${SECRET}`, `{"name":{"${SECRET}":1}}`, `"${SECRET}"`, `{"__proto__":"${SECRET}"}`]
  for (const body of bodies) {
    await ask(shared, { token, body })
    await ask(shared, { method: 'POST', url: VALIDATE, token, body: `{"definition":${body}}` })
  }
  await ask(shared, { token, body: SECRET, headers: { 'content-type': 'text/plain' } })
  await ask(shared, { url: '/nowhere', token, body: HEADERS })
  await ask(shared, { method: 'POST', token, body: HEADERS })
  const raw = new RawConnection(shared.port)
  raw.write(`GET / HTTP/1.1\r\nAuthorization: Bearer ${token}\r\nX-Secret: ${SECRET}\x00\r\n\r\n`)
  await raw.closed
  const cut = new RawConnection(shared.port)
  const head = [`PUT ${TOOL} HTTP/1.1`, 'Host: a', `Authorization: Bearer ${token}`, 'Content-Length: 99']
  cut.write(`${[...head, 'Content-Type: application/json'].join('\r\n')}\r\n\r\n${SECRET}`)
  await whenInWork(shared, 1)
  cut.socket.destroy()
  await cut.closed
  await shared.database.close()
  t.equal((await ask(shared, { token, body: HEADERS })).statusCode, 503)
  const text = shared.log.join('')
  t.ok(shared.log.length > 15)
  for (const secret of [SECRET, token, inactiveToken, strange]) {
    t.notOk(text.includes(secret))
    t.notOk(text.includes(Buffer.from(secret).toString('base64').replace(/=+$/, '')))
  }
})

t.test('the line of a refusal: its reason, limit, faults, and the digest of a token not looked up', async t => {
  const digest = (token: string) => createHash('sha256').update(token).digest('hex').slice(0, 12)
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '2' })
  const { token } = service
  t.ok((await listTokens(service.database.db)).some(one => one.digest === digest(token)))
  service.log.length = 0
  const strange = mintToken('person').token
  const masked = { method: 'PATCH', url: `/persona/1?update_mask=description&${SECRET}=1` } as const
  await ask(service, {})
  await ask(service, { token, body: '{' })
  await ask(service, { ...masked, token, body: `{"description":7,"${SECRET}":1}` })
  await ask(service, { token })
  await ask(service, { token: strange })
  await service.database.close()
  await ask(service, { token: strange })
  t.match(answered(service), [
    { status: 401, refusal: 'UNAUTHENTICATED', client: '127.0.0.1' },
    { status: 422, refusal: 'INVALID_REQUEST', faults: ['body json_invalid'] },
    { status: 422, faults: ['query extra_forbidden', 'body string_type'] },
    { status: 429, refusal: 'RATE_LIMITED', limit: 'token', token_digest: digest(token) },
    { status: 401, refusal: 'INVALID_TOKEN', token_digest: digest(strange) },
    { status: 503, refusal: 'draining', level: 40, cause: /^\w+: / },
  ])
  t.equal(lines(service).filter(({ level }) => level >= 40).length, 1, 'one line tells of it')
  t.notMatch(service.log.join(''), new RegExp(`${SECRET}|\\.js:\\d`), 'nor a stack of what is understood')
})
