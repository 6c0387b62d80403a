import t from 'tap'
import { readConfig } from '../../src/config.js'
import { running } from './running.js'

const CONSOLE = 'https://console.example.com'

t.test('without CORS_ORIGINS no answer has a CORS header and a preflight is no request of ours', async t => {
  const { app } = await running(t)
  for (const method of ['OPTIONS', 'PATCH'] as const) {
    const { statusCode, headers } = await app.inject({
      method,
      url: '/persona/1',
      headers: { origin: CONSOLE, 'access-control-request-method': 'PATCH' },
    })
    t.equal(statusCode, method === 'OPTIONS' ? 405 : 401)
    t.strictSame(
      Object.keys(headers).filter(name => name.startsWith('access-control-')),
      [],
    )
  }
})

t.test('a page of a named origin may ask, send and read what the operations need; no other may', async t => {
  const { app, token } = await running(t, { CORS_ORIGINS: `${CONSOLE}, http://localhost:3000` })
  const preflight = (origin: string) =>
    app.inject({
      method: 'OPTIONS',
      url: '/persona/1',
      headers: {
        origin,
        'access-control-request-method': 'PATCH',
        'access-control-request-headers': 'authorization,content-type,if-match',
      },
    })
  const allowed = await preflight(CONSOLE)
  t.equal(allowed.statusCode, 204)
  t.equal(allowed.headers['access-control-allow-origin'], CONSOLE)
  t.match(allowed.headers['access-control-allow-methods'], /\bPATCH\b/)
  for (const name of ['authorization', 'content-type', 'if-match', 'prefer', 'x-request-id']) {
    t.ok(String(allowed.headers['access-control-allow-headers']).split(', ').includes(name), name)
  }
  t.equal(allowed.headers['access-control-allow-credentials'], undefined)
  t.match(allowed.headers.vary, /origin/i)
  t.equal((await preflight('http://localhost:3000')).headers['access-control-allow-origin'], 'http://localhost:3000')
  for (const origin of ['https://elsewhere.example', `${CONSOLE}.elsewhere.example`, 'null']) {
    t.equal((await preflight(origin)).headers['access-control-allow-origin'], undefined, origin)
  }

  const read = { method: 'PATCH', url: '/persona/1?update_mask=', headers: { origin: CONSOLE }, payload: {} } as const
  const refused = await app.inject(read)
  t.equal(refused.statusCode, 401)
  t.equal(refused.headers['access-control-allow-origin'], CONSOLE, 'refusals can be read too')
  const answered = await app.inject({ ...read, headers: { ...read.headers, authorization: `Bearer ${token}` } })
  t.equal(answered.statusCode, 200)
  t.match(answered.headers['access-control-expose-headers'], /\betag\b.*\bwarning\b/)
})

t.test('with CORS_ORIGINS an address that is not there stays 404, a method that is not taken 405', async t => {
  const { app } = await running(t, { CORS_ORIGINS: CONSOLE })
  t.equal((await app.inject({ url: '/nowhere' })).statusCode, 404)
  const { statusCode, headers } = await app.inject({ method: 'DELETE', url: '/persona/1' })
  t.strictSame([statusCode, headers.allow], [405, 'GET, HEAD, PATCH'])
})

t.test('what is not an origin is a fault of the configuration', async t => {
  for (const value of [
    '*',
    'console.example.com',
    `${CONSOLE}/`,
    'ftp://console.example.com',
    'null',
    `${CONSOLE},x`,
  ]) {
    t.throws(() => readConfig({ CORS_ORIGINS: value }), { message: /CORS_ORIGINS: .* is not an origin/ }, value)
  }
  t.doesNotThrow(() => readConfig({ CORS_ORIGINS: `${CONSOLE},http://[::1]:8080` }))
})
