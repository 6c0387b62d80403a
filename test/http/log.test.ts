import { createHash } from 'node:crypto'
import pg from 'pg'
import t from 'tap'
import { listTokens } from '../../src/admin/commands/tokens.js'
import { mintToken } from '../../src/auth/token.js'
import { describeSettings } from '../../src/config.js'
import { makeLogger } from '../../src/http/logging.js'
import { RawConnection, type Running, running, tokenOf } from './running.js'

const SECRET = 'planted-secret'
const TRACE = '0af7651916cd43dd8448eb211c80319c'

/** A request that carries secrets in every part that may hold one. */
function ask(
  { app }: Running,
  options: { method?: 'PATCH' | 'PUT' | 'POST'; url: string; token?: string; payload?: string; type?: string },
) {
  const { method = 'PUT', url, token, payload = '{}', type = 'application/json' } = options
  return app.inject({
    method,
    url,
    headers: {
      'content-type': type,
      'x-secret': SECRET,
      cookie: `session=${SECRET}`,
      traceparent: `00-${TRACE}-b7ad6b7169203331-01`,
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    },
    payload,
  })
}

const lines = ({ log }: Running) => log.map(line => JSON.parse(line))

const HEADERS = JSON.stringify({ custom_headers: [{ key: 'Authorization', value: SECRET }] })

t.test('the line of a request names the agent or tool that it is about, also where it is refused', async t => {
  const service = await running(t)
  const { token, inactiveToken } = service
  const patch = (url: string, bearer: string) => ask(service, { method: 'PATCH', url, token: bearer })
  await patch('/persona/17', inactiveToken)
  await patch('/persona/18', token) // required fields are missing
  await patch('/persona/18?update_mask=nonsense', token)
  await ask(service, { url: '/admin/tool/custom/19', token, payload: '{' })
  await patch('/persona/nonsense', token)
  await ask(service, { method: 'POST', url: '/admin/tool/custom/validate', token })
  const told = lines(service).filter(({ msg }) => msg === 'request answered')
  t.strictSame(
    told.map(({ resource_id, status }) => [resource_id, status]),
    [
      [17, 401],
      [18, 422],
      [18, 422],
      [19, 422],
      [undefined, 422],
      [undefined, 422],
    ],
  )
})

t.test('no line holds a body, a token or a header value, at any level, whatever fails', async t => {
  const service = await running(t, {}, { listen: true })
  const { token, inactiveToken } = service
  const strange = mintToken('person').token
  await ask(service, { url: '/admin/tool/custom/999999', token, payload: HEADERS })
  await ask(service, { url: '/admin/tool/custom/999999', payload: HEADERS })
  for (const bad of [inactiveToken, strange, SECRET])
    await ask(service, { url: '/admin/tool/custom/999999', token: bad })
  for (const payload of [
    `{"name":"${SECRET}`,
    `{"name":{"${SECRET}":1}}`,
    `"${SECRET}"`,
    `{"__proto__":"${SECRET}"}`,
  ]) {
    await ask(service, { url: '/admin/tool/custom/999999', token, payload })
    await ask(service, {
      method: 'POST',
      url: '/admin/tool/custom/validate',
      token,
      payload: `{"definition":${payload}}`,
    })
  }
  await ask(service, { url: '/admin/tool/custom/999999', token, payload: SECRET, type: 'text/plain' })
  await ask(service, { url: '/nowhere', token, payload: HEADERS })
  await ask(service, { method: 'POST', url: '/admin/tool/custom/999999', token, payload: HEADERS })
  const raw = new RawConnection(service.port)
  raw.write(`GET / HTTP/1.1\r\nAuthorization: Bearer ${token}\r\nX-Secret: ${SECRET}\x00\r\n\r\n`)
  await raw.closed
  const cut = new RawConnection(service.port)
  cut.write(
    `PUT /admin/tool/custom/999999 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Length: 99\r\n`,
  )
  cut.write(`Content-Type: application/json\r\n\r\n${SECRET}`)
  await new Promise(resolve => setTimeout(resolve, 100))
  cut.socket.destroy()
  await cut.closed
  await service.database.close()
  const { statusCode } = await ask(service, { url: '/admin/tool/custom/999999', token, payload: HEADERS })
  t.equal(statusCode, 503)
  const text = service.log.join('')
  t.ok(service.log.length > 15)
  for (const secret of [SECRET, token, inactiveToken, strange]) {
    t.notOk(text.includes(secret))
    t.notOk(text.includes(Buffer.from(secret).toString('base64').replace(/=+$/, '')))
  }
})

t.test('one line an answer: request id, operation, caller, status, refusal, duration, trace', async t => {
  const service = await running(t)
  service.log.length = 0
  const { headers } = await ask(service, { url: '/admin/tool/custom/999999', token: service.token })
  const answered = lines(service).filter(line => line.msg === 'request answered')
  t.equal(answered.length, 1)
  const { caller, token, duration_ms, time, ...rest } = answered[0]
  t.type(token, 'number')
  t.match(caller, /^[0-9a-f-]{36}$/)
  t.type(duration_ms, 'number')
  t.ok(Date.parse(time) > 0)
  t.strictSame(rest, {
    level: 30,
    name: 'agents',
    request_id: headers['x-request-id'],
    trace_id: TRACE,
    operation: 'update_custom_tool',
    resource_id: 999_999,
    status: 404,
    refusal: 'NOT_FOUND',
    client: '127.0.0.1',
    msg: 'request answered',
  })
})

t.test('each refusal is logged with its reason, and each line of a request with its trace', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '1' })
  service.log.length = 0
  await ask(service, { url: '/admin/tool/custom/999999' })
  await ask(service, { url: '/admin/tool/custom/999999', token: service.token, payload: '{' })
  await ask(service, { url: '/admin/tool/custom/999999', token: service.token })
  await service.database.close()
  await ask(service, { url: '/admin/tool/custom/999999', token: mintToken('person').token })
  const found = lines(service)
  t.strictSame(
    found.filter(line => line.msg === 'request answered').map(line => [line.status, line.refusal]),
    [
      [401, 'UNAUTHENTICATED'],
      [422, 'INVALID_REQUEST'],
      [429, 'RATE_LIMITED'],
      [503, 'draining'],
    ],
  )
  const failed = found.filter(line => line.status === 503 || line.msg === 'the request failed')
  t.match(failed, [{ msg: 'request answered', level: 40, trace_id: TRACE, cause: /^\w+: / }])
  t.equal(failed.length, 1, 'one line tells of it')
  t.notMatch(JSON.stringify(failed), /\.js:\d/, 'no stack of what is understood')
})

t.test('a traceparent that the recommendation does not allow is not logged', async t => {
  const service = await running(t)
  for (const traceparent of [
    `ff-${TRACE}-b7ad6b7169203331-01`,
    `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
    `00-${TRACE.toUpperCase()}-b7ad6b7169203331-01`,
    `00-${TRACE}-b7ad6b7169203331`,
    `00-${TRACE}-b7ad6b7169203331-01evil`,
    `00-${TRACE}\\",\\"level\\":60`,
  ]) {
    service.log.length = 0
    await service.app.inject({ url: '/healthz', headers: { traceparent } })
    const answered = lines(service).filter(({ msg }) => msg === 'request answered')
    t.equal(answered.length, 1)
    t.equal(answered[0].trace_id, undefined, traceparent)
  }
})

t.test('an error of the database is logged without the values that it repeats', async t => {
  const { database } = await running(t)
  const log: string[] = []
  const logger = makeLogger('trace', { write: line => log.push(line) })
  const provoke = async (sql: string, parameters: unknown[]) => {
    const error = await database.pool.query(sql, parameters).then(
      () => undefined,
      error => error,
    )
    t.ok(error instanceof pg.DatabaseError)
    logger.error({ err: error }, 'failed')
    logger.error({ err: new Error('outer', { cause: error }) }, 'failed')
    logger.error({ err: new AggregateError([error], 'all') }, 'failed')
  }
  await provoke('select $1::uuid', [SECRET])
  await provoke('select $1::text::integer', [SECRET])
  await provoke("insert into user_account (email, kind, permissions) values ($1, 'person', '{}')", [
    'alice@example.com',
  ])
  await provoke('insert into user_account (email, kind, permissions) values ($1, $1, $2)', [SECRET, '{}'])
  await provoke(`select '${SECRET}'::json`, [])
  try {
    JSON.parse(`{"a": ${SECRET}}`)
  } catch (error) {
    logger.error({ err: error }, 'failed')
  }
  t.equal(log.length, 16)
  t.notOk(log.join('').includes(SECRET))
  t.notOk(log.join('').includes('alice@example.com'))
  t.match(JSON.parse(log[6] ?? ''), { err: { code: '23505', constraint: /./, stack: /^ +at / } })
})

t.test('the line of a 429 says which limit and whose token, by its digest where it was not looked up', async t => {
  const DIGEST = (token: string) => createHash('sha256').update(token).digest('hex').slice(0, 12)
  const limits = { RATE_LIMIT_PER_MINUTE: '2', FAILED_AUTH_LIMIT_PER_MINUTE: '1' }
  const service = await running(t, limits)
  const other = await tokenOf(service.database, { email: 'alice+other@example.com', active: true })
  const strange = mintToken('person').token
  service.log.length = 0
  const url = '/admin/tool/custom/999999'
  for (const token of [service.token, service.token, service.token, strange, strange])
    await ask(service, { url, token })
  await ask(service, { url, token: other })
  await ask(service, { url, token: 'nonsense' })
  const told = lines(service).filter(({ msg }) => msg === 'request answered')
  t.strictSame(
    told.map(({ status, limit, token, token_digest }) => [status, limit, typeof token, token_digest]),
    [
      [404, undefined, 'number', undefined],
      [404, undefined, 'number', undefined],
      [429, 'token', 'undefined', DIGEST(service.token)],
      [401, undefined, 'undefined', DIGEST(strange)],
      [429, 'failed-authentication', 'undefined', DIGEST(strange)],
      [404, undefined, 'number', undefined],
      [429, 'failed-authentication', 'undefined', undefined],
    ],
  )
  const listed = await listTokens(service.database.db)
  t.equal(listed.find(({ id }) => id === told[0].token)?.digest, DIGEST(service.token))
  t.equal(listed.find(({ digest }) => digest === DIGEST(other))?.id, told[5].token)
})

t.test(
  'the line of a refusal by a limit names its setting, and that of a 422 what it is about, in words of ours',
  async t => {
    const service = await running(t, { RATE_LIMIT_PER_MINUTE: '8', TOOL_BODY_LIMIT_BYTES: '2000' })
    service.log.length = 0
    const send = async (payload: string, query = '', url = '/persona/1') => {
      const headers = { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' }
      const method = url === '/persona/1' ? 'PATCH' : 'POST'
      await service.app.inject({ method, url: url + query, headers, payload })
    }
    await send(`{"tool_ids":[${Array(1_001).fill(1)}],"description":7,"mine":1}`, '?update_mask=description,tool_ids')
    await send('{}', `?update_mask=&${SECRET}=1`)
    await send(`{"x":"${'x'.repeat(2_000)}"}`, '', '/admin/tool/custom/validate')
    await send('['.repeat(100), '?update_mask=')
    const deep = `${'['.repeat(200)}${']'.repeat(200)}`
    await send(`{"definition":{"openapi":"3.1.0","x":${deep}}}`, '', '/admin/tool/custom/validate')
    await send('['.repeat(300), '', '/admin/tool/custom/validate')
    for (let i = 0; i < 3; i++) await send('{}', '?update_mask=&dry_run=true')
    const told = lines(service).filter(({ msg, refusal }) => msg === 'request answered' && refusal !== undefined)
    t.strictSame(
      told.map(({ status, setting, faults }) => [status, setting, faults]),
      [
        [422, undefined, ['body.description string_type', 'body.tool_ids too_long']],
        [422, undefined, ['query extra_forbidden']],
        [413, 'TOOL_BODY_LIMIT_BYTES', undefined],
        [422, undefined, ['body json_too_deep']],
        [422, undefined, ['body.definition definition_too_deep']],
        [422, undefined, ['body json_too_deep']],
        [429, 'RATE_LIMIT_PER_MINUTE', undefined],
      ],
    )
    const settings = describeSettings().map(({ name }) => name)
    t.ok(told.every(({ setting }) => setting === undefined || settings.includes(setting)))
    t.notOk(service.log.join('').includes(SECRET))
  },
)
