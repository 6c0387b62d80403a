import { gzipSync } from 'node:zlib'
import t from 'tap'
import { RawConnection, running } from './running.js'

/* Headers of which there may be one, what is said of a body's coding, and ids that a client chooses. */

const service = await running(t, { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' }, { listen: true })
const { app, token, inactiveToken } = service

async function raw(...headers: string[]): Promise<RawConnection> {
  const connection = new RawConnection(service.port)
  connection.write(['GET /persona/1 HTTP/1.1', ...headers, 'Connection: close', '', ''].join('\r\n'))
  await connection.closed
  return connection
}

t.test('400: more than one Host or Authorization, in whatever order and case', async t => {
  const good = `Authorization: Bearer ${token}`
  const dead = `authorization: Bearer ${inactiveToken}`
  const host = 'Host: 127.0.0.1'
  t.match((await raw(host, good)).text, /^HTTP\/1\.1 200 /, 'one of each is a request')
  const cases: [string, ...string[]][] = [
    ['host', host, 'Host: agents.example.com', good],
    ['host', host, 'hOST: 127.0.0.1', good],
    ['host', host, host],
    ['authorization', host, good, dead],
    ['authorization', host, dead, good],
    ['authorization', host, good, good],
    ['authorization', host, good, 'Authorization:'],
  ]
  for (const [name, ...headers] of cases) {
    const answer = await raw(...headers)
    t.match(answer.text, /^HTTP\/1\.1 400 /, headers.join(', '))
    t.match(answer.json(), { error_code: 'BAD_REQUEST', detail: `The request has more than one ${name} header.` })
  }
})

const patch = (headers: Record<string, string>, payload: string | Buffer = '{}') =>
  app.inject({
    method: 'PATCH',
    url: '/persona/1?update_mask=',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    payload,
  })

t.test('415: a body with a Content-Encoding, compressed or not; identity is none', async t => {
  for (const coding of ['gzip', 'GZIP', 'br', 'deflate, gzip', 'identity, gzip', 'x']) {
    for (const payload of ['{}', gzipSync('{}')]) {
      const refused = await patch({ 'content-encoding': coding }, payload)
      t.equal(refused.statusCode, 415, coding)
      t.match(refused.json(), { error_code: 'UNSUPPORTED_MEDIA_TYPE', detail: /Content-Encoding/ })
      t.equal(refused.headers['accept-encoding'], 'identity')
    }
  }
  for (const coding of ['identity', ' Identity ', '']) {
    t.equal((await patch({ 'content-encoding': coding })).statusCode, 200, coding)
  }
})

t.test('X-Request-ID: one that can be taken is answered, of another the Warning says that it was replaced', async t => {
  const taken = await patch({ 'x-request-id': 'my-request_1' })
  t.equal(taken.headers['x-request-id'], 'my-request_1')
  t.equal(taken.headers.warning, undefined)
  const replaced = '299 - "X-Request-ID was replaced: it takes 1 to 64 letters, digits, - and _"'
  for (const id of ['with.dot', 'with blank', 'x'.repeat(65), '', 'ä']) {
    const answer = await patch({ 'x-request-id': id })
    t.match(answer.headers['x-request-id'], /^[\w-]{16}$/)
    t.equal(answer.headers.warning, replaced, id)
  }
  const both = await patch({ 'x-request-id': 'a.b' }, '{"nmae":1}')
  t.match(both.headers.warning, /^299 - "X-Request-ID was replaced.*", 299 - "unknown field nmae ignored.*"$/)
  const refused = await app.inject({ url: '/nowhere', headers: { 'x-request-id': 'a.b' } })
  t.equal(refused.headers.warning, replaced, 'of every answer')
})

t.test('an id that a client sends again and again is told apart in the audit trail', async t => {
  for (const name of ['one', 'two', 'three']) {
    const answer = await app.inject({
      method: 'PATCH',
      url: '/persona/1?update_mask=name',
      headers: { authorization: `Bearer ${token}`, 'x-request-id': 'again' },
      payload: { name },
    })
    t.equal(answer.statusCode, 200)
  }
  const rows = await service.database.db
    .selectFrom('audit')
    .select('request_id')
    .where('request_id', 'like', 'again.%')
    .execute()
  t.equal(new Set(rows.map(({ request_id }) => request_id)).size, 3)
  for (const { request_id } of rows) t.match(request_id, /^again\.[\w-]{16}$/)
})
