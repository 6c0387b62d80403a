import t from 'tap'
import { worldApp } from '../app.js'

const { app, call, token, database } = await worldApp(t)
const admin = await token('admin@example.com')
const VALIDATE = '/admin/tool/custom/validate'

const incomplete = {
  openapi: '3.0.3',
  info: { title: 'T', version: '1' },
  paths: {
    '/items/{id}': {
      get: { description: 'Gets one item by its id.' },
      post: { requestBody: { content: { 'text/csv': {} } } },
    },
  },
}

async function validate(query: string, definition: unknown = incomplete) {
  const answer = await call('POST', `${VALIDATE}${query}`, { token: admin, body: { definition } })
  return { status: answer.statusCode, body: answer.json() }
}

t.test('422 or a warning, with the remedy, for what people paste', async t => {
  const document = { openapi: '3.0.3', info: { title: 'T' }, servers: [{ url: 'https://a.example.com' }], paths: {} }
  const get = { operationId: 'a', summary: 'A', responses: {} }
  const good = JSON.stringify({ ...document, paths: { '/a': { get } } })
  const post = async (payload: string, method: 'POST' | 'PUT' = 'POST', url = `${VALIDATE}?report=full`) =>
    await app.inject({
      method,
      url,
      payload,
      headers: { authorization: `Bearer ${admin}`, 'content-type': 'application/json' },
    })
  for (const [body, loc, msg] of [
    [JSON.stringify({ definition: good }), ['body', 'definition'], 'send the object itself'],
    [
      JSON.stringify({ definition: 'openapi: 3.0.3\npaths: {}\n' }),
      ['body', 'definition'],
      '`agentctl validate` reads YAML',
    ],
    [good, ['body', 'definition'], 'wrap the document as {"definition": ...}'],
    ['{"swagger": "2.0"}', ['body', 'definition'], 'wrap the document as {"definition": ...}'],
    ['{"definition": {\n  "openapi": "3.0.3"\n  "info": {}}}', ['body', 40], "Expected ',' or '}' at line 3, column 3"],
  ] as const) {
    const answer = await post(body)
    t.equal(answer.statusCode, 422, body)
    t.match(answer.json().detail, [{ loc, msg }])
  }
  t.match((await post(good, 'PUT', '/admin/tool/custom/10')).headers.warning, 'wrap it as')
})

t.test('200 complete=true: the completed definition, its methods and every edit; nothing is stored', async t => {
  const before = await database.db.selectFrom('tool_definition').selectAll().execute()
  const { status, body } = await validate('?complete=true&server=https://given.example.com&drop=unsupported')
  t.equal(status, 200)
  t.match(body.methods, [{ name: 'items_id_get', path: '/items/{id}', method: 'get' }])
  t.same(
    body.completed.edits.map(({ op, loc, type }: { op: string; loc: string[]; type: string }) => [
      op,
      loc.join(' '),
      type,
    ]),
    [
      // What is left out is not repaired before.
      ['remove', 'body definition paths /items/{id} post', 'operation_dropped'],
      ['add', 'body definition servers', 'server_added'],
      ['add', 'body definition paths /items/{id} get operationId', 'operation_id_added'],
      ['add', 'body definition paths /items/{id} get parameters', 'parameter_added'],
    ],
  )
  t.match(body.completed.dropped, [{ method: 'post', path: '/items/{id}' }])
  t.same(body.completed.definition.servers, [{ url: 'https://given.example.com' }])
  const again = await validate('?complete=true', body.completed.definition)
  t.same(again.body.completed.edits, [])
  t.same(await database.db.selectFrom('tool_definition').selectAll().execute(), before)
})

t.test('422 complete=true: what cannot be repaired is said as without it', async t => {
  const { status, body } = await validate('?complete=true&server=https://given.example.com')
  t.equal(status, 422)
  t.match(body.detail, [
    {
      loc: ['body', 'definition', 'paths', '/items/{id}', 'post', 'requestBody', 'content'],
      type: 'request_body_media_type_unsupported',
    },
  ])
  t.equal(body.detail.length, 1)
  t.match(body.detail[0].msg, 'drop=unsupported leaves the operation out')
  for (const server of ['http://169.254.169.254', 'https://u:p@h.example.com/', 'https://h.example.com/%0D%0AX']) {
    const bad = await validate(`?complete=true&server=${server}`)
    t.equal(bad.status, 422)
    t.match(bad.body.detail, [{ loc: ['query', 'server'], type: 'server_url_invalid' }], server)
  }
})

t.test('422 complete=true: what a conversion cannot mend stands at its place in what was sent', async t => {
  const file = { name: 'f', in: 'formData', type: 'file' }
  const { status, body } = await validate('?complete=true', {
    swagger: '2.0',
    info: { title: 'T', version: '1' },
    host: 'h.example.com',
    paths: { '/x': { post: { operationId: 'x', summary: 'X', parameters: [file], responses: {} } } },
  })
  t.equal(status, 422)
  t.match(body.detail, [
    { loc: ['body', 'definition', 'paths', '/x', 'post'], type: 'request_body_media_type_unsupported' },
  ])
})

t.test('422: parameters that would be without effect, or are not what they should be', async t => {
  const faults = async (query: string) =>
    (await validate(query)).body.detail.map(
      ({ loc, type }: { loc: string[]; type: string }) => `${loc.join(' ')} ${type}`,
    )
  t.same(await faults('?server=https://a.example.com&drop=unsupported'), [
    'query server extra_forbidden',
    'query drop extra_forbidden',
  ])
  t.same(await faults('?complete=yes&drop=all&server=ftp://a'), [
    'query complete bool_parsing',
    'query drop enum',
    'query server url_parsing',
  ])
})

t.test('the document names what complete, server and drop do', async t => {
  const { paths } = (await app.inject('/openapi.json')).json()
  const names = paths[VALIDATE].post.parameters.map((each: { name: string }) => each.name)
  for (const name of ['complete', 'server', 'drop']) t.ok(names.includes(name), name)
})
