import t from 'tap'
import { parse } from 'yaml'
import { worldApp } from '../app.js'

const { app, call, database, admin } = await worldApp(t)
const VALIDATE = '/admin/tool/custom/validate'

const incomplete = parse(`
  openapi: 3.0.3
  info: { title: T, version: '1' }
  paths: { '/items/{id}': { get: { description: Gets one item by its id. }, post: { operationId: add } } }`)

async function validate(query: string, definition: unknown = incomplete) {
  const answer = await call('POST', `${VALIDATE}${query}`, { token: admin, body: { definition } })
  return { status: answer.statusCode, body: answer.json() }
}

t.test('422 for what people paste: a text, a bare document, broken JSON', async t => {
  const good = JSON.stringify({ openapi: '3.0.3', info: { title: 'T' }, paths: {} })
  for (const [payload, loc, msg] of [
    [JSON.stringify({ definition: good }), ['body', 'definition'], 'Input should be a valid dictionary'],
    [good, ['body', 'definition'], 'Field required'],
    ['{"definition": {\n  "openapi": "3.0.3"\n  "info": {}}}', ['body', 40], "Expected ',' or '}' at line 3, column 3"],
  ] as const) {
    const headers = { authorization: `Bearer ${admin}`, 'content-type': 'application/json' }
    const answer = await app.inject({ method: 'POST', url: VALIDATE, payload, headers })
    t.match([answer.statusCode, answer.json().detail], [422, [{ loc, msg }]], payload)
  }
})

t.test('200 complete=true: the completed definition, its methods and every edit; nothing is stored', async t => {
  const before = await database.db.selectFrom('tool_definition').selectAll().execute()
  const { status, body } = await validate('?complete=true&server=https://given.example.com')
  t.equal(status, 200)
  t.match(body.methods, [{ name: 'items_id_get' }, { name: 'add', summary: 'POST /items/{id}' }])
  const id = { name: 'id', in: 'path', required: true, schema: { type: 'string' } }
  const path = ['body', 'definition', 'paths', '/items/{id}']
  t.match(body.completed.edits, [
    { op: 'add', loc: ['body', 'definition', 'servers'], type: 'server_added' },
    { op: 'add', loc: [...path, 'get', 'operationId'], after: 'items_id_get', type: 'operation_id_added' },
    { op: 'add', loc: [...path, 'get', 'parameters'], after: [id], type: 'parameters_added' },
    { op: 'add', loc: [...path, 'post', 'summary'], type: 'summary_added' },
    { op: 'add', loc: [...path, 'post', 'parameters'], msg: /undeclared placeholders of the path: "id"/ },
  ])
  t.same(body.completed.definition.servers, [{ url: 'https://given.example.com' }])
  const again = await validate('?complete=true', body.completed.definition)
  t.same(again.body.completed.edits, [])
  t.same(await database.db.selectFrom('tool_definition').selectAll().execute(), before)
})

t.test('422 complete=true: faults stand at their places in the completed definition, which the answer has', async t => {
  const swagger = {
    swagger: '2.0',
    info: { title: 'T', version: '1' },
    paths: { '/x': { post: { parameters: [{ name: 'b', in: 'body', schema: { $ref: '#/definitions/Gone' } }] } } },
  }
  for (const title of ['T', 'T'.repeat(20_000)]) {
    const { status, body } = await validate('?complete=true', { ...swagger, info: { title, version: '1' } })
    t.equal(status, 422)
    const schema = ['paths', '/x', 'post', 'requestBody', 'content', 'application/json', 'schema', '$ref']
    t.match(body.detail, [
      { loc: ['body', 'definition', 'servers'], type: 'servers_missing' },
      { loc: ['body', 'definition', ...schema], type: 'ref_unresolved' },
    ])
    t.match(body.completed, {
      definition: { openapi: '3.0.4', paths: { '/x': { post: { operationId: 'x_post' } } } },
      edits: [{ op: 'replace', loc: ['body', 'definition'], type: 'swagger_converted' }, {}, {}],
    })
  }
  t.same(Object.keys((await validate('', swagger)).body), ['detail'])
})

t.test('422: a server that calls must not go to, or that would be without effect', async t => {
  for (const server of ['http://169.254.169.254', 'https://u:p@h.example.com/']) {
    const bad = await validate(`?complete=true&server=${server}`)
    t.match([bad.status, bad.body.detail], [422, [{ loc: ['query', 'server'], type: 'server_url_invalid' }]], server)
  }
  const faults = async (query: string) =>
    (await validate(query)).body.detail.map(
      ({ loc, type }: { loc: string[]; type: string }) => `${loc.join(' ')} ${type}`,
    )
  t.same(await faults('?server=https://a.example.com'), ['query server extra_forbidden'])
  t.same(await faults('?complete=yes&server=ftp://a'), [
    'query complete bool_parsing',
    'query server server_url_invalid',
  ])
})
