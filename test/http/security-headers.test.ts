import { type IncomingMessage, request } from 'node:http'
import t from 'tap'
import { VERSION } from '../../src/version.js'
import { running } from './running.js'

const REQUESTS = [
  { method: 'GET', url: '/healthz', status: 200 },
  { method: 'GET', url: '/nowhere', status: 404 },
  { method: 'GET', url: '/persona/%ff', status: 404 },
  { method: 'DELETE', url: '/persona/999999', status: 405 },
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
    const { app } = await running(t)
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

t.test('404: a path below /docs that leads elsewhere or holds a NUL, written as it is', async t => {
  const { port } = await running(t, {}, { listen: true })
  for (const path of [
    '/docs/..',
    '/docs/static/..',
    '/docs/static/%2e%2e',
    '/docs/%00',
    '/docs/static/%00',
    '/docs/%2f',
  ]) {
    const answer = await new Promise<IncomingMessage>((resolve, reject) =>
      request({ host: '127.0.0.1', port, path, agent: false }, resolve).on('error', reject).end(),
    )
    answer.resume()
    t.equal(answer.statusCode, 404, path)
  }
})

t.test('GET / leads to the page', async t => {
  const { app } = await running(t)
  const { statusCode, headers } = await app.inject({ url: '/' })
  t.equal(statusCode, 302)
  t.equal(headers.location, 'docs', 'relative, so that a path prefix of a proxy stays')
})

t.test('JSON may load nothing and be framed nowhere', async t => {
  const { app } = await running(t)
  const { headers } = await app.inject({ url: '/healthz' })
  t.equal(headers['content-security-policy'], "default-src 'none';frame-ancestors 'none'")
  t.equal(headers['x-frame-options'], 'DENY')
  t.equal(headers['referrer-policy'], 'no-referrer')
  t.equal(headers['cross-origin-resource-policy'], 'same-origin')
  t.equal(headers['strict-transport-security'], undefined)
})

t.test('/docs works under its policy: nothing inline, nothing from elsewhere, every file there', async t => {
  const { app } = await running(t)
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
