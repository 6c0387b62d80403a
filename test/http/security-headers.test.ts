import t from 'tap'
import { readConfig } from '../../src/config.js'
import { VERSION } from '../../src/version.js'
import { running } from './running.js'

const { app } = await running(t)
const CONSOLE = 'https://console.example.com'

const REQUESTS = [
  { method: 'GET', url: '/healthz', status: 200 },
  { method: 'GET', url: '/nowhere', status: 404 },
  { method: 'GET', url: '/persona/%ff', status: 404 },
  { method: 'PUT', url: '/persona/999999', status: 405 },
  { method: 'OPTIONS', url: '/persona/999999', status: 405 },
  { method: 'PATCH', url: '/persona/999999', status: 401 },
  { method: 'GET', url: '/docs', status: 200 },
  { method: 'GET', url: '/docs/nothing.js', status: 404 },
  { method: 'GET', url: '/docs/%00', status: 404 },
  { method: 'GET', url: '/docs/static/%00', status: 404 },
  { method: 'GET', url: '/docs/static/..%2f..%2fpackage.json', status: 404 },
] as const

t.test(
  'every answer forbids guessing, framing and keeping, names no program, and lets no other origin read',
  async t => {
    for (const { method, url, status } of REQUESTS) {
      const { statusCode, headers, body } = await app.inject({
        method,
        url,
        headers: { origin: 'https://elsewhere.example', 'access-control-request-method': 'PATCH' },
      })
      t.equal(statusCode, status, `${method} ${url}`)
      t.equal(headers['x-content-type-options'], 'nosniff')
      t.match(headers['x-request-id'], /./)
      t.match(headers['cache-control'], /no-store/)
      t.equal(headers.server, undefined)
      t.equal(headers['x-powered-by'], undefined)
      t.notOk(Object.keys(headers).some(name => name.startsWith('access-control-')))
      t.notMatch(body.toLowerCase(), /fastify|fst_err|node_modules/)
      if (status >= 400) t.strictSame(Object.keys(JSON.parse(body)), ['error_code', 'detail', 'request_id'])
      if (status >= 400 && status !== 405) t.notMatch(body, new RegExp(VERSION.replaceAll('.', '\\.')))
    }
  },
)

t.test('JSON may load nothing and be framed nowhere; GET / leads to the page', async t => {
  const { statusCode, headers: ofPage } = await app.inject({ url: '/' })
  t.strictSame([statusCode, ofPage.location], [302, 'docs'], 'relative, so that a path prefix of a proxy stays')
  const { headers } = await app.inject({ url: '/healthz' })
  t.equal(headers['content-security-policy'], "default-src 'none';frame-ancestors 'none'")
  t.equal(headers['x-frame-options'], 'DENY')
  t.equal(headers['referrer-policy'], 'no-referrer')
  t.equal(headers['cross-origin-resource-policy'], 'same-origin')
  t.equal(headers['strict-transport-security'], undefined)
})

t.test('/docs works under its policy: nothing inline, nothing from elsewhere, every file there', async t => {
  const page = await app.inject({ url: '/docs' })
  t.equal(page.statusCode, 200)
  const policy = String(page.headers['content-security-policy'])
  t.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:/)
  t.notMatch(policy, /unsafe|https?:|upgrade-insecure-requests/)
  t.notMatch(page.body, /Swagger UI|fastify/)
  t.notMatch(page.body, /<style|\bstyle=|\bon\w+=|javascript:/i)
  for (const [, attributes = '', content = ''] of page.body.matchAll(/<script([^>]*)>([^<]*)</g)) {
    t.match(attributes, /src=/)
    t.equal(content.trim(), '')
  }
  const references = [...page.body.matchAll(/(?:src|href)="([^"]+)"/g)].map(match => match[1] ?? '')
  t.ok(references.length >= 5)
  for (const reference of references) {
    t.notMatch(reference, /^(?:[a-z]+:|\/\/)/i, reference)
    const url = new URL(reference, 'http://localhost/docs').pathname
    const file = await app.inject({ url })
    t.equal(file.statusCode, 200, url)
    t.equal(file.headers['x-content-type-options'], 'nosniff')
    if (url.endsWith('.js')) t.match(file.headers['content-type'], /javascript/)
    if (url.endsWith('.css')) t.match(file.headers['content-type'], /text\/css/)
    if (url.endsWith('.css')) t.notMatch(file.body, /@import|url\(["']?https?:/)
  }
})

t.test('a page of a named origin may ask, send and read what the operations need; no other may', async t => {
  const { app, token } = await running(t, { CORS_ORIGINS: `${CONSOLE}, http://localhost:3000` })
  const preflight = (origin: string) => {
    const headers = { origin, 'access-control-request-method': 'PATCH', 'access-control-request-headers': 'if-match' }
    return app.inject({ method: 'OPTIONS', url: '/persona/1', headers })
  }
  const { statusCode, headers } = await preflight(CONSOLE)
  t.equal(statusCode, 204)
  t.match(headers, {
    'access-control-allow-origin': CONSOLE,
    'access-control-allow-methods': /\bDELETE\b.*\bPATCH\b/,
    'access-control-allow-headers': /authorization.*if-match.*prefer.*x-request-id/,
    'access-control-allow-credentials': undefined,
    vary: /origin/i,
  })
  t.equal((await preflight('http://localhost:3000')).headers['access-control-allow-origin'], 'http://localhost:3000')
  for (const origin of ['https://elsewhere.example', `${CONSOLE}.elsewhere.example`, 'null'])
    t.equal((await preflight(origin)).headers['access-control-allow-origin'], undefined, origin)
  const read = (more: Record<string, string>) =>
    app.inject({ method: 'PATCH', url: '/persona/1?update_mask=', headers: { origin: CONSOLE, ...more }, payload: {} })
  t.match(await read({}), { statusCode: 401, headers: { 'access-control-allow-origin': CONSOLE } }, 'refusals too')
  const answered = await read({ authorization: `Bearer ${token}`, prefer: 'handling=strict' })
  t.match(answered.headers['access-control-expose-headers'], /\betag\b.*\blocation\b.*\bwarning\b/)
  t.equal(answered.headers.vary, 'Origin, Prefer', 'both are kept')
  t.equal((await app.inject({ url: '/nowhere' })).statusCode, 404)
  const wrong = await app.inject({ method: 'PUT', url: '/persona/1' })
  t.strictSame([wrong.statusCode, wrong.headers.allow], [405, 'DELETE, GET, HEAD, PATCH'])
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
    t.throws(() => readConfig({ CORS_ORIGINS: value }), { message: /CORS_ORIGINS: must be origins such as/ }, value)
  }
  t.doesNotThrow(() => readConfig({ CORS_ORIGINS: `${CONSOLE},http://[::1]:8080` }))
})
