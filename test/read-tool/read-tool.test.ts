import t from 'tap'
import { parse } from 'yaml'
import { worldApp } from '../app.js'

const TOOL = 10
const { call, database, admin } = await worldApp(t)

t.test('200: the tool as an update answers it, with a tag that an update takes as If-Match', async t => {
  const headers = [{ key: 'X-Key', value: 'a secret that nobody reads' }]
  const stored = await call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { custom_headers: headers } })
  const read = await call('GET', `/tool/${TOOL}`, { token: admin })
  t.strictSame([read.statusCode, read.json()], [200, stored.json()])
  t.match(read.json().custom_headers, [{ key: 'X-Key', value: /^\*{4}#[0-9a-f]{12}$/ }])
  const tag = String(read.headers.etag)
  const guarded = (description: string) =>
    call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { description }, headers: { 'if-match': tag } })
  t.equal((await guarded('first')).statusCode, 200)
  t.equal((await guarded('second')).statusCode, 412)
})

t.test('304 while nothing has changed; HEAD without a body', async t => {
  const { etag } = (await call('GET', `/tool/${TOOL}`, { token: admin })).headers
  const headers = { 'if-none-match': String(etag) }
  t.match(await call('GET', `/tool/${TOOL}`, { token: admin, headers }), { statusCode: 304, body: '' })
  t.match(await call('HEAD', `/tool/${TOOL}`, { token: admin }), { statusCode: 200, body: '', headers: { etag } })
})

t.test('200 view=functions: what a model is given, without what the headers of the tool supply', async t => {
  const definition = parse(`
    openapi: 3.1.0
    info: { title: Books }
    servers: [{ url: 'https://books.example.com' }]
    paths:
      /books:
        get:
          operationId: listBooks
          summary: Lists books
          parameters:
            - { name: 'page[size]', in: query, schema: { type: integer } }
            - { name: X-Key, in: header, required: true, schema: { type: string } }`)
  const argument = { argument: 'page_size', in: 'query', name: 'page[size]' }
  const key = { argument: 'X-Key', in: 'header', name: 'X-Key' }
  const parameters = { type: 'object', properties: { page_size: { type: 'integer' } } }
  const named = { name: 'listBooks', operationId: 'listBooks', description: 'Lists books' }
  const view = { ...named, parameters, method: 'get', path: '/books', arguments: [argument] }
  const address = 'https://books.example.com/books'
  const custom_headers = [{ key: 'x-key', value: 'a secret that nobody reads' }]
  const stored = await call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { definition, custom_headers } })
  t.equal(stored.statusCode, 200, stored.body)
  const path = `/tool/${TOOL}?view=functions`
  const read = await call('GET', path, { token: admin })
  t.strictSame([read.statusCode, read.json()], [200, { functions: [{ ...view, address }] }])
  const again = await call('GET', path, { token: admin, headers: { 'if-none-match': String(read.headers.etag) } })
  t.equal(again.statusCode, 304)
  const guarded = { token: admin, body: { description: 'D' }, headers: { 'if-match': String(read.headers.etag) } }
  t.equal((await call('PUT', `/admin/tool/custom/${TOOL}`, guarded)).statusCode, 200, 'its tag is that of the version')
  t.match((await call('GET', `${path}&version=1`, { token: admin })).json(), { detail: [{ loc: ['query', 'view'] }] })

  const validate = (query: string) =>
    call('POST', `/admin/tool/custom/validate?view=functions${query}`, { token: admin, body: { definition } })
  t.strictSame((await validate(`&tool_id=${TOOL}`)).json().functions, [view])
  t.strictSame((await validate('')).json().functions[0].arguments, [argument, key], 'of no tool')
})

t.test('200 view=functions: a large definition, none, and one that is no longer accepted', async t => {
  const functionsOf = async () => (await call('GET', `/tool/${TOOL}?view=functions`, { token: admin })).json()
  const operation = (i: number) => ({ operationId: `o${i}`, summary: 'S'.repeat(100) })
  const paths = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`/p${i}`, { get: operation(i) }]))
  const definition = { openapi: '3.1.0', info: { title: 'T' }, servers: [{ url: 'https://t.example.com' }], paths }
  await call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { definition } })
  t.equal((await functionsOf()).functions.length, 300)
  await database.db.updateTable('tool').set({ definition_hash: null }).where('id', '=', TOOL).execute()
  t.strictSame(await functionsOf(), { functions: [] })
  const hash = Buffer.alloc(32)
  const content = JSON.stringify({ swagger: '2.0' })
  await database.db.insertInto('tool_definition').values({ hash, content, size_bytes: content.length }).execute()
  await database.db.updateTable('tool').set({ definition_hash: hash }).where('id', '=', TOOL).execute()
  const faults = [{ loc: ['definition', 'swagger'], type: 'openapi_version_unsupported' }]
  t.match(await functionsOf(), { functions: [], faults })
})
