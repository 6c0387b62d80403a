import { Validator } from '@seriousme/openapi-schema-validator'
import fastify from 'fastify'
import t from 'tap'
import { registerAuthentication } from '../src/auth/authenticate.js'
import { readConfig } from '../src/config.js'
import { openUrl } from '../src/db/open.js'
import { VERSION } from '../src/version.js'
import { serviceOn } from './demo-app.js'
import { matchesGolden } from './golden.js'
import { documentOf } from './openapi-document.js'

const UNREACHABLE = 'postgres://nobody@127.0.0.1:1/none'

const { app, database, service } = await serviceOn(t, UNREACHABLE)

t.test('GET /openapi.json is the checked-in document, and that of the routes', async t => {
  const text = await documentOf(database, service)
  matchesGolden(t, 'openapi/openapi.json', text)
  const { statusCode, body } = await app.inject({ url: '/openapi.json' })
  t.equal(statusCode, 200)
  if (!process.env.UPDATE_GOLDEN) t.equal(body, text)
})

t.test('the document is valid OpenAPI 3.1', async t => {
  const document = JSON.parse((await app.inject({ url: '/openapi.json' })).body)
  const { valid, errors } = await new Validator().validate(document)
  t.ok(valid, JSON.stringify(errors))
  t.equal(document.info.version, VERSION)
  t.equal(document.info['x-interface-version'], 'Development')
})

t.test('HEAD answers on every page as GET does, without the body', async t => {
  for (const path of ['/', '/docs', '/docs/', '/docs/page.js', '/docs/swagger-ui.css', '/openapi.json']) {
    const read = await app.inject({ url: path })
    const head = await app.inject({ method: 'HEAD', url: path })
    const { date: _, 'x-request-id': __, 'content-length': ___, 'transfer-encoding': ____, ...shown } = head.headers
    t.equal(head.statusCode, read.statusCode, path)
    t.equal(head.body, '')
    for (const [name, value] of Object.entries(shown)) t.equal(read.headers[name], value, `${path} ${name}`)
  }
  t.equal((await app.inject({ method: 'HEAD', url: '/docs/none.js' })).statusCode, 404)
})

t.test('a route that declares no permission keeps the application from starting', async t => {
  const policy = { permission: 'basic' } as const // declared outside any authenticated scope
  for (const config of [{}, { policy }]) {
    const app = fastify()
    registerAuthentication(app, openUrl(UNREACHABLE, readConfig({})))
    app.get('/open', { config }, async () => 'for all')
    await t.rejects(async () => await app.ready(), { message: /routes without a valid permission: \/open/ })
  }
})
