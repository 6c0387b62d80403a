import t from 'tap'
import { readConfig } from '../../src/config.js'
import { VERSION } from '../../src/version.js'
import { running } from './running.js'

const { app } = await running(t)
const CONSOLE = 'https://console.example.com'

const REQUESTS = [
  ['HEAD', 200, '/healthz', '/readyz'],
  ['GET', 200, '/healthz', '/docs'],
  ['GET', 404, '/nowhere', '/persona/%ff', '/docs/nothing.js', '/docs/%00'],
  ['GET', 404, '/docs/static/%00', '/docs/static/..%2f..%2fpackage.json'],
  ['PUT', 405, '/persona/999999'],
  ['OPTIONS', 405, '/persona/999999'],
  ['PATCH', 401, '/persona/999999'],
] as const

t.test('no answer may be guessed at, framed, kept or read by another origin, or names a program', async t => {
  const origin = { origin: 'https://elsewhere.example', 'access-control-request-method': 'PATCH' }
  for (const [method, status, ...urls] of REQUESTS)
    for (const url of urls) {
      const { statusCode, headers, body } = await app.inject({ method, url, headers: origin })
      t.equal(statusCode, status, `${method} ${url}`)
      t.match(headers, { 'x-content-type-options': 'nosniff', 'x-request-id': /./, 'cache-control': /no-store/ })
      t.strictSame([headers.server, headers['x-powered-by']], [undefined, undefined])
      t.notOk(Object.keys(headers).some(name => name.startsWith('access-control-')))
      t.notMatch(body.toLowerCase(), /fastify|fst_err|node_modules/)
      if (method === 'HEAD') t.equal(body, '')
      if (status >= 400) t.strictSame(Object.keys(JSON.parse(body)), ['error_code', 'detail', 'request_id'])
      if (status >= 400 && status !== 405) t.notMatch(body, new RegExp(VERSION.replaceAll('.', '\\.')))
    }
})

t.test('JSON may load nothing and be framed nowhere', async t => {
  t.match((await app.inject({ url: '/healthz' })).headers, {
    'content-security-policy': /^default-src 'none';frame-ancestors 'none'$/,
    'x-frame-options': /^DENY$/,
    'referrer-policy': /^no-referrer$/,
    'cross-origin-resource-policy': /^same-origin$/,
    'strict-transport-security': undefined,
  })
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
  t.equal((await app.inject({ url: '/nowhere' })).statusCode, 404)
  const wrong = await app.inject({ method: 'PUT', url: '/persona/1' })
  t.strictSame([wrong.statusCode, wrong.headers.allow], [405, 'DELETE, GET, HEAD, PATCH'])
})

t.test('what is not an origin is a fault of the configuration', async t => {
  const values = ['*', 'console.example.com', `${CONSOLE}/`, 'ftp://console.example.com', 'null', `${CONSOLE},x`]
  for (const value of values) {
    t.throws(() => readConfig({ CORS_ORIGINS: value }), { message: /CORS_ORIGINS: must be origins such as/ }, value)
  }
  t.doesNotThrow(() => readConfig({ CORS_ORIGINS: `${CONSOLE},http://[::1]:8080` }))
})
