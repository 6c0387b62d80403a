import { gzipSync } from 'node:zlib'
import { sql } from 'kysely'
import t from 'tap'
import { DEFINITION } from '../matrix-organisation.js'
import { faultsOf } from '../updates/stored-state.js'
import { RawConnection, running } from './running.js'

/* Repeated headers, media types of bodies, limits of bodies, request ids of clients, and unknown addresses. */

const service = await running(t, { RATE_LIMIT_PER_MINUTE: '0' }, { listen: true })
const { app, token, inactiveToken } = service

async function raw(...headers: string[]): Promise<RawConnection> {
  const lines = ['GET /persona/1 HTTP/1.1', ...headers, 'Connection: close', '', '']
  const connection = new RawConnection(service.port).write(lines.join('\r\n'))
  await connection.closed
  return connection
}

const DESCRIPTION = '/persona/1?update_mask=description'

interface Sent {
  method?: 'PATCH' | 'PUT' | 'POST'
  url?: string
  payload?: string | Buffer
}

const send = (headers: Record<string, string>, { method = 'PATCH', url = DESCRIPTION, payload }: Sent = {}) =>
  app.inject({
    method,
    url,
    headers: { authorization: `Bearer ${token}`, ...headers },
    payload: payload ?? '{"description":"as it came"}',
  })

t.test('400: more than one Host or Authorization, in whatever order and case', async t => {
  const good = `Authorization: Bearer ${token}`
  const dead = `authorization: Bearer ${inactiveToken}`
  const host = 'Host: 127.0.0.1'
  t.match((await raw(host, good)).text, /^HTTP\/1\.1 200 /, 'one of each is a request')
  for (const [name, ...headers] of [
    ['host', host, 'Host: agents.example.com', good],
    ['host', host, 'hOST: 127.0.0.1', good],
    ['authorization', host, good, dead],
    ['authorization', host, dead, good],
    ['authorization', host, good, 'Authorization:'],
  ]) {
    const answer = await raw(...headers)
    t.match(answer.text, /^HTTP\/1\.1 400 /, headers.join(', '))
    t.match(answer.json(), { error_code: 'BAD_REQUEST', detail: `The request must have only one ${name} header.` })
  }
})

t.test('415 for another media type or a content coding, with the header that says what is read', async t => {
  const kinds = 'merge-patch+json|json-patch+json; charset=utf-8|vnd.api+json|problem+json|+json|jsonx'.split('|')
  const types = ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'json']
  for (const type of [...types, ...kinds.map(kind => `application/${kind}`)]) {
    const answer = await send({ 'content-type': type })
    const detail = /with the header Content-Type: application\/json\.$/
    t.match(answer.json(), { error_code: 'UNSUPPORTED_MEDIA_TYPE', detail })
    t.strictSame([answer.statusCode, answer.headers.accept], [415, 'application/json'], type)
  }
  for (const coding of ['gzip', 'GZIP', 'br', 'deflate, gzip', 'identity, gzip', 'identity;q=1', 'x']) {
    for (const payload of ['{}', gzipSync('{}')]) {
      for (const json of [{}, { 'content-type': 'application/json' }]) {
        const refused = await send({ ...json, 'content-encoding': coding }, { payload })
        t.match(refused.json(), { error_code: 'UNSUPPORTED_MEDIA_TYPE', detail: /Content-Encoding/ })
        t.strictSame([refused.statusCode, refused.headers['accept-encoding']], [415, 'identity'], coding)
      }
    }
  }
  t.equal((await send({ 'content-type': 'text/plain' }, { url: '/nowhere' })).statusCode, 404, 'an address comes first')
  const read = await app.inject({ url: '/persona/1', headers: { authorization: `Bearer ${token}` } })
  t.not(read.json().description, 'as it came', 'nothing was stored')
})

t.test('200: without a Content-Type, or with an empty one, a body is read as JSON, on every operation', async t => {
  for (const headers of [
    {},
    { 'content-type': '' },
    { 'content-type': 'Application/JSON ; charset=utf-8' },
    ...['identity', ' Identity ', ''].map(coding => ({ 'content-encoding': coding })),
  ])
    t.equal((await send(headers)).json().description, 'as it came', JSON.stringify(headers))
  t.equal((await send({}, { method: 'PUT', url: '/admin/tool/custom/10' })).statusCode, 200)
  const validate = { method: 'POST', url: '/admin/tool/custom/validate', payload: '{"definition":1}' } as const
  t.strictSame(faultsOf(await send({}, validate)), ['body.definition dict_type'])
  t.strictSame(faultsOf(await send({}, { payload: '' })), ['body missing'])
  t.strictSame(faultsOf(await send({}, { payload: '{' })), ['body.1 json_invalid'])
})

t.test('422 key_forbidden hides no other fault', async t => {
  const agent = `{"__proto__":1,"task_prompt":2,"name":3,
    "starter_messages":[{"name":4,"message":""},{"name":"a","message":"b","constructor":{"prototype":1}},{"name":5,"message":""}]}`
  const mask = 'update_mask=name,task_prompt,starter_messages'
  t.strictSame(faultsOf(await send({}, { url: `/persona/x?${mask}&page=1`, payload: agent })), [
    'path.persona_id int_parsing',
    'query.page extra_forbidden',
    'body.name string_type',
    'body.task_prompt string_type',
    'body.starter_messages.0.name string_type',
    'body.starter_messages.2.name string_type',
    'body.__proto__ key_forbidden',
    'body.starter_messages.1.constructor.prototype key_forbidden',
  ])
  const masked = { url: '/persona/1?update_mask=name', payload: '{"__proto__":1,"nme":1,"name":""}' }
  t.strictSame(faultsOf(await send({ prefer: 'handling=strict' }, masked)), [
    'body.name string_too_short',
    'body.nme extra_forbidden',
    'body.__proto__ key_forbidden',
  ])
  const payload = '{"passthrough_auth":1,"definition":{"paths":{"__proto__":{},"/a":{"__proto__":{}}}},"name":""}'
  t.strictSame(faultsOf(await send({}, { method: 'PUT', url: '/admin/tool/custom/10', payload })), [
    'body.name string_too_short',
    'body.passthrough_auth bool_type',
    'body.definition.paths.__proto__ key_forbidden',
    'body.definition.paths./a.__proto__ key_forbidden',
  ])
})

t.test('422 at the limits: 1,000 items, 64 levels, 128 in a definition', async t => {
  const nested = (levels: number) => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`
  const many = (count: number) => JSON.stringify({ label_ids: Array(count).fill(1) })
  const labels = { url: '/persona/1?update_mask=label_ids' }
  t.equal((await send({}, { ...labels, payload: many(1_000) })).statusCode, 200)
  t.strictSame(faultsOf(await send({}, { ...labels, payload: many(1_001) })), ['body.label_ids too_long'])
  const deep = (levels: number) => send({}, { payload: `{"description":"x","deep":${nested(levels)}}` })
  t.equal((await deep(63)).statusCode, 200)
  t.strictSame(faultsOf(await deep(64)), ['body json_too_deep'])
  const check = async (levels: number) => {
    const payload = JSON.stringify({ definition: DEFINITION }).replace(/}}$/, `,"x-deep":${nested(levels)}}}`)
    return (await send({}, { method: 'POST', url: '/admin/tool/custom/validate', payload })).statusCode
  }
  t.strictSame([await check(127), await check(128)], [200, 422])
})

t.test('X-Request-ID: a valid one is returned, and differs each time in the audit trail', async t => {
  for (const description of ['one', 'two', 'three']) {
    const answer = await send({ 'x-request-id': 'my-request_1' }, { payload: JSON.stringify({ description }) })
    t.equal(answer.headers['x-request-id'], 'my-request_1')
  }
  const found = service.database.db.selectFrom('audit').select('request_id').where('request_id', 'like', 'my-%')
  const ids = (await found.execute()).map(({ request_id }) => request_id)
  t.equal(new Set(ids).size, 3)
  for (const id of ids) t.match(id, /^my-request_1\.[\w-]{16}$/)
  for (const id of ['with.dot', 'with blank', 'x'.repeat(65), '', 'ä'])
    t.match((await send({ 'x-request-id': id })).headers['x-request-id'], /^[\da-f-]{36}$/, id)
})

t.test('404 for an unknown address', async t => {
  const headers = { authorization: `Bearer ${token}` }
  for (const url of ['/nowhere', '/persona/x/y', '/persona/1/', `/persona/1/${'a/'.repeat(50)}`, '/%00', '//'])
    t.equal((await app.inject({ url, headers })).json().detail, 'There is nothing at this address. See /docs.', url)
})

t.test('a list that ends before its end says so in a Warning, unless a limit was asked for', async t => {
  await sql`insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
    select 'Many', '', 'auto', true, true from generate_series(1, 60)`.execute(service.database.db)
  const list = async (query: string) => {
    const { headers } = await app.inject({ url: `/persona${query}`, headers: { authorization: `Bearer ${token}` } })
    return [headers.warning, headers.link]
  }
  t.match(await list(''), ['299 - "there are more agents; Link has the address of the next page"', /rel="next"/])
  t.match(await list('?limit=10'), [undefined, /rel="next"/])
  t.match(await list('?name=Many 1'), [undefined, undefined])
})

t.test('503: a dry run is one whose decoded query says so, and its outcome is known', async t => {
  await service.database.close()
  const outcome = async (query: string) =>
    (await send({ 'idempotency-key': '"a"' }, { url: `/persona/1${query}` })).json().outcome
  for (const query of ['dry_run=true', 'dry%5Frun=true', 'a=b&dry_run=%74rue', 'update_mask=&dry%5frun=true'])
    t.equal(await outcome(`?${query}`), 'not_applied', query)
  for (const query of ['', '?', '?dry_run=false', '?x=dry_run=true', '?dry_run=true&dry_run=true'])
    t.equal(await outcome(query), 'unknown', query)
})
