import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { checkDefinition, GivenPlaces, type Repair, repairDefinition, toFunctions } from '../../src/definition/index.js'
import { applied } from './applied.js'
import { MADE } from './made.js'

type Json = Record<string, unknown>

const operation = { operationId: 'x', summary: 'X', responses: {} }

function document(more: Json = {}): Json {
  return {
    openapi: '3.1.0',
    info: { title: 'T', version: '1' },
    servers: [{ url: 'https://t.example.com' }],
    paths: { '/x': { get: operation } },
    ...more,
  }
}

const withPaths = (paths: Json, more: Json = {}) => document({ paths, ...more })

function editsOf({ edits }: Repair): string[] {
  return edits.map(edit => `${edit.op} ${edit.type} at ${edit.path.join(' ')}`.trim())
}

const shared = (item: Json, paths: Json = {}) =>
  document({
    paths: { '/b': { $ref: '#/components/pathItems/P' }, '/c': { $ref: '#/components/pathItems/P' }, ...paths },
    components: { pathItems: { P: item } },
  })

/** Definitions with the expected edits, and sometimes the resulting paths. */
const REPAIRED: { name: string; definition: Json; edits: string[]; paths?: Json }[] = JSON.parse(
  readFileSync('test/fixtures/repairs.json', 'utf8'),
)

t.test('repaired: accepted, changed only at the listed edits, and complete', async t => {
  for (const { name, definition, edits, paths } of REPAIRED) {
    const given = JSON.stringify(definition)
    const same = JSON.parse(given)
    const completed = repairDefinition(same)
    t.same(completed.check.ok ? [] : completed.check.faults, [], name)
    t.same(editsOf(completed), edits, name)
    if (paths !== undefined) t.same((completed.definition as Json).paths, paths, name)
    for (const edit of completed.edits) t.ok(edit.msg.length > 0)
    t.same(applied(JSON.parse(given), completed), completed.definition, name)
    t.same(repairDefinition(completed.definition).edits, [], `${name}: again`)
    t.equal(JSON.stringify(same), given, `${name}: what was given is not changed`)
  }
})

t.test('an ambiguous fault stays, and no edit touches it', async t => {
  const own = [{ url: 'https://uploads.example.net' }]
  const upload = { ...operation, servers: own, requestBody: { description: 'The picture' } }
  const cases: [string, Json, string[]][] = [
    [
      'the server of one operation',
      document({ servers: [], paths: { '/x': { get: { ...operation, servers: own } } } }),
      ['servers_missing at servers'],
    ],
    [
      'a body without content',
      withPaths({ '/x': { post: upload } }),
      ['request_body_media_type_unsupported at paths /x post requestBody content'],
    ],
    ...['gett', 'pst', 'GET ', 'psot', 'connect'].map<[string, Json, string[]]>(method => [
      `the method ${method}`,
      withPaths({ '/x': { put: { ...operation, operationId: 'y' }, [method]: operation } }),
      [`method_unsupported at paths /x ${method}`],
    ]),
    [
      'a misspelt field',
      withPaths({ '/x': { get: operation, paramters: [] } }),
      ['method_unsupported at paths /x paramters'],
    ],
    [
      'parameters whose names are their keys',
      withPaths({ '/x': { get: { ...operation, parameters: { q: { in: 'query' } } } } }),
      ['list_type at paths /x get parameters'],
    ],
    [
      'a placeholder beside a parameter without one',
      withPaths({ '/x/{key}': { parameters: [{ name: 'other', in: 'path' }], get: operation } }),
      ['path_parameter_undeclared at paths /x/{key} get parameters'],
    ],
  ]
  for (const [name, definition, faults] of cases) {
    const { edits, check } = repairDefinition(definition)
    t.strictSame(edits, [], name)
    t.strictSame(
      check.ok ? [] : check.faults.map(({ type, loc }) => `${type} at ${loc.slice(2).join(' ')}`),
      faults,
      name,
    )
  }
  const { check } = repairDefinition(withPaths({ '/x': { pst: operation } }))
  t.match(check.ok ? '' : check.faults[0]?.msg, /did you mean "post"/)
})

t.test('generated operationIds have at most 64 characters and are unique', async t => {
  const idsOf = (...paths: string[]) => {
    const { definition } = repairDefinition(
      withPaths(Object.fromEntries(paths.map(path => [path, { get: { summary: 'S' } }]))),
    )
    return Object.values((definition as { paths: Record<string, { get: Json }> }).paths).map(each =>
      String(each.get.operationId),
    )
  }
  const [fits, longer, other] = idsOf(`/${'a'.repeat(60)}`, `/${'a'.repeat(61)}`, `/${'a'.repeat(61)}b`)
  t.equal(fits, `${'a'.repeat(60)}_get`)
  for (const id of [longer, other]) t.match(id, /^a{51}_get_[0-9a-f]{8}$/)
  t.not(longer, other)
  t.strictSame(idsOf('/', '/a/b', '/a-b', '/a_b'), ['root_get', 'a_b_get', 'a_b_get_2', 'a_b_get_3'])
})

t.test('external references and extensions among the paths do not prevent a repair', async t => {
  const outside = { ...operation, parameters: [{ $ref: 'p.json' }] }
  const { check } = repairDefinition(withPaths({ '/x/{id}': { get: outside } }))
  t.match(check, { ok: false, faults: [{ type: 'ref_external' }] })
  const paths = { 'x-a': { parameters: 1, get: { parameters: 1 } }, '/a': { get: operation } }
  const { definition } = repairDefinition({ ...swagger, paths })
  t.match(definition, { paths: { 'x-a': paths['x-a'] } })
})

t.test('versions other than OpenAPI 3 stay faults; shared parameters of Swagger 2.0 are prepared too', async t => {
  for (const openapi of [2.5, 4, 4.1]) {
    const { edits, check } = repairDefinition(document({ openapi }))
    t.match([edits, check.ok], [[{ type: 'text_quoted', after: String(openapi) }], false], String(openapi))
  }
  const P = { in: 'query', name: 'q', type: 'array', items: { type: 'string' }, collectionFormat: 'tsv' }
  const paths = { '/a': { get: { ...operation, parameters: [{ $ref: '#/parameters/P' }] } } }
  t.match(editsOf(repairDefinition({ ...swagger, paths, parameters: { P } })), [
    'replace swagger_converted at',
    'replace collection_format_replaced at components parameters P',
  ])
  const odd = repairDefinition({ ...swagger, paths, parameters: { P: { ...P, collectionFormat: { a: 'b' } } } })
  t.match(odd.edits.at(-1)?.msg, 'the collectionFormat is an object, which OpenAPI 3 does not have for "query"')
})

t.test('each edit has the value before and after it; a renamed key keeps its position', async t => {
  const { edits, definition } = repairDefinition(
    document({ openapi: 3.1, paths: { '/x': { tags: ['a'], get: operation, put: null, post: { operationId: 'y' } } } }),
  )
  t.strictSame(
    edits.map(({ msg: _, type: __, ...edit }) => edit),
    [
      { op: 'replace', path: ['openapi'], before: 3.1, after: '3.1.0' },
      { op: 'add', path: ['paths', '/x', 'post', 'summary'], after: 'POST /x' },
      { op: 'remove', path: ['paths', '/x', 'put'], before: null },
      { op: 'move', path: ['paths', '/x', 'x-tags'], from: ['paths', '/x', 'tags'] },
    ],
  )
  t.strictSame(Object.keys(((definition as Json).paths as Record<string, Json>)['/x'] as Json), [
    'x-tags',
    'get',
    'post',
  ])
})

t.test(
  'server: the one given is used where none is, where the one named cannot be, and to resolve a relative one',
  async t => {
    const server = 'https://given.example.com/base/'
    const urlOf = (servers: unknown) =>
      ((repairDefinition(document({ servers }), { server }).definition as Json).servers as { url: string }[])[0]?.url
    t.equal(urlOf(undefined), server)
    t.equal(urlOf([{ url: 'file:///etc' }]), server)
    t.equal(urlOf({ url: 'https://t.example.com' }), server, 'servers are a list')
    t.equal(urlOf([{ url: '/v2' }]), 'https://given.example.com/v2')
    t.equal(urlOf([{ url: '' }]), server)
    t.equal(urlOf([{ url: 'https://t.example.com' }]), 'https://t.example.com')
    t.equal(urlOf([{ url: '\\\\other.example.com/x' }]), '\\\\other.example.com/x', 'it names a host')
    t.equal(urlOf([{ url: 'given.example.com/v1' }]), 'https://given.example.com/v1', 'it lacks its scheme')
    t.equal(urlOf([{ url: 'given.example.com' }]), 'https://given.example.com/')
    // What is meant is known: it is never joined under another host, and never replaced by it.
    for (const [url, meant = url] of [
      ['localhost:8080/v1', 'http://localhost:8080/v1'],
      ['other.example.net:8443/v2', 'https://other.example.net:8443/v2'],
      ['http//other.example.com', 'http://other.example.com'],
      ['http//given.example.com/v1', 'http://given.example.com/v1'],
      ['https//{h}/v1', 'https://{h}/v1'],
      ['h ttps://other.example.com'],
      ['htps://other.example.com/v1', 'https://other.example.com/v1'],
      ['other.example.com/v1'],
    ] as const)
      t.equal(urlOf([{ url }]), meant)
    t.equal(urlOf([{ url: 'given.example.com:443/v1' }]), 'https://given.example.com:443/v1')
    t.equal(urlOf([{ url: '169.254.169.254/x' }]), server, 'what cannot be used is replaced')
    const none = repairDefinition(document({ servers: undefined }))
    t.same(
      [none.edits.length, none.check.ok || none.check.faults.map(each => each.type)],
      [0, ['servers_missing']],
      'nothing is made up',
    )
  },
)

t.test('drop=unsupported: operations whose body is not JSON are left out and named, only when asked', async t => {
  const form = { content: { 'multipart/form-data': { schema: {} } } }
  const definition = document({
    paths: {
      '/x': { get: operation, post: { requestBody: form } },
      '/y': { put: { ...operation, operationId: 'y', requestBody: { $ref: '#/components/requestBodies/F' } } },
    },
    components: { requestBodies: { F: form } },
  })
  const kept = repairDefinition(definition)
  t.same(editsOf(kept), [
    'add operation_id_added at paths /x post operationId',
    'add summary_added at paths /x post summary',
  ])
  t.same([kept.dropped, kept.check.ok], [[], false])
  const dropped = repairDefinition(definition, { dropsUnsupported: true })
  t.ok(dropped.check.ok)
  t.same(dropped.dropped, [
    { method: 'post', path: '/x', msg: 'its body is multipart/form-data: a model sends JSON only' },
    { method: 'put', path: '/y', msg: 'its body is multipart/form-data: a model sends JSON only' },
  ])
  // A dropped operation is not repaired first.
  t.same(editsOf(dropped), ['remove operation_dropped at paths /x post', 'remove operation_dropped at paths /y put'])
})

t.test(
  'drop=unsupported: what several paths share is named for each of them, and a body behind references',
  async t => {
    const form = { content: { 'multipart/form-data': { schema: {} } } }
    const definition = shared(
      { post: { ...operation, operationId: 'p', requestBody: form } },
      { '/x': { get: operation } },
    )
    const completed = repairDefinition(definition, { dropsUnsupported: true })
    t.ok(completed.check.ok)
    t.same(editsOf(completed), ['remove operation_dropped at components pathItems P post'])
    t.same(
      completed.dropped.map(({ method, path }) => `${method} ${path}`),
      ['post /b', 'post /c'],
    )
    const requestBodies = { A: { $ref: '#/components/requestBodies/B' }, B: form }
    const user = { ...operation, operationId: 'u', requestBody: { $ref: '#/components/requestBodies/A' } }
    const chained = repairDefinition(
      document({
        paths: { '/a': { $ref: '#/components/pathItems/P' }, '/b': { put: user }, '/x': { get: operation } },
        components: { requestBodies, pathItems: { P: { patch: { ...user, operationId: 'v' } } } },
      }),
      { dropsUnsupported: true },
    )
    t.ok(chained.check.ok)
    t.same(
      chained.dropped.map(({ method, path }) => `${method} ${path}`),
      ['patch /a', 'put /b'],
    )
  },
)

t.test('numbers that become texts; a cut place matches no other key', async t => {
  const text =
    '{"openapi":3.1,"info":{"title":123},"servers":[{"url":"https://t.example.com"}],"paths":{' +
    '"/a":{"get":{"operationId":20230101,"summary":1.5}},"/b":{"get":{"operationId":20230102,"summary":"S"}}}}'
  t.match(repairDefinition(JSON.parse(text)).definition, {
    openapi: '3.1.0',
    info: { title: '123' },
    paths: {
      '/a': { get: { operationId: '20230101', summary: '1.5' } },
      '/b': { get: { operationId: '20230102' } },
    },
  })
  const long = `/${'a'.repeat(299)}`
  const shown = `${long.slice(0, 247)}~${createHash('sha256').update(long).digest('hex').slice(0, 8)}`
  const twins = repairDefinition(withPaths({ [long]: { get: { summary: 'S' } }, [shown]: { get: operation } }))
  t.same(twins.edits, [])
})

t.test('a fault that cannot be repaired is reported as by the check', async t => {
  const definition = document({
    paths: {
      '/{a': { get: operation },
      '/x': { get: { ...operation, operationId: 'y', parameters: [{ in: 'query' }] }, '<<': { put: operation } },
    },
  })
  const late = withPaths({ '/a': { $ref: '#/paths/~1c' }, '/c': { get: operation } })
  for (const each of [definition, shared({ get: operation }), late]) {
    const { edits, check } = repairDefinition(each)
    t.same([edits, check], [[], checkDefinition(each)])
    t.notOk(check.ok)
  }
  for (const value of [null, 1, [], {}, { swagger: '1.2' }]) t.notOk(repairDefinition(value).check.ok)
})

t.test('Swagger 2.0 is converted', async t => {
  const swagger = {
    swagger: '2.0',
    info: { title: 'T', version: '1' },
    host: 'h.example.com',
    basePath: '/v1',
    schemes: ['http', 'https'],
    consumes: ['application/json'],
    paths: {
      '/pets/{id}': {
        parameters: [{ $ref: '#/parameters/Id' }],
        get: {
          summary: 'Get',
          operationId: 'get',
          parameters: [
            {
              name: 'tags',
              in: 'query',
              type: 'array',
              items: { type: 'string' },
              collectionFormat: 'multi',
              required: true,
            },
          ],
          responses: { 200: { description: 'D', schema: { $ref: '#/definitions/Pet' } } },
        },
        put: { summary: 'Put', operationId: 'put', parameters: [{ $ref: '#/parameters/Body' }], responses: {} },
        post: {
          summary: 'Post',
          operationId: 'post',
          consumes: ['multipart/form-data'],
          parameters: [{ name: 'file', in: 'formData', type: 'file', required: true }],
          responses: {},
        },
      },
    },
    parameters: {
      Id: { name: 'id', in: 'path', required: true, type: 'integer', format: 'int64' },
      Body: { name: 'pet', in: 'body', required: true, description: 'A pet', schema: { $ref: '#/definitions/Pet' } },
    },
    definitions: {
      Pet: {
        type: 'object',
        discriminator: 'kind',
        properties: { kind: { type: 'string', 'x-nullable': true }, example: { $ref: '#/definitions/Pet' } },
      },
    },
    securityDefinitions: {
      o: { type: 'oauth2', flow: 'accessCode', authorizationUrl: 'https://a', tokenUrl: 'https://b', scopes: {} },
      b: { type: 'basic' },
    },
  }
  const given = JSON.stringify(swagger)
  const completed = repairDefinition(swagger, { dropsUnsupported: true })
  t.equal(JSON.stringify(swagger), given)
  t.ok(completed.check.ok)
  t.same(editsOf(completed), ['replace swagger_converted at', 'remove operation_dropped at paths /pets/{id} post'])
  t.same(completed.definition, {
    openapi: '3.0.4',
    info: { title: 'T', version: '1' },
    servers: [{ url: 'https://h.example.com/v1' }, { url: 'http://h.example.com/v1' }],
    paths: {
      '/pets/{id}': {
        parameters: [{ $ref: '#/components/parameters/Id' }],
        get: {
          summary: 'Get',
          operationId: 'get',
          parameters: [
            {
              name: 'tags',
              in: 'query',
              required: true,
              schema: { type: 'array', items: { type: 'string' } },
              style: 'form',
              explode: true,
            },
          ],
          responses: {
            200: {
              description: 'D',
              content: { 'application/json': { schema: { $ref: '#/components/schemas/Pet' } } },
            },
          },
        },
        put: {
          summary: 'Put',
          operationId: 'put',
          responses: {},
          requestBody: {
            description: 'A pet',
            required: true,
            content: { 'application/json': { schema: { $ref: '#/components/schemas/Pet' } } },
          },
        },
      },
    },
    components: {
      schemas: {
        Pet: {
          type: 'object',
          discriminator: { propertyName: 'kind', mapping: { Pet: '#/components/schemas/Pet' } },
          properties: { kind: { type: 'string', nullable: true }, example: { $ref: '#/components/schemas/Pet' } },
        },
      },
      parameters: { Id: { name: 'id', in: 'path', required: true, schema: { type: 'integer', format: 'int64' } } },
      securitySchemes: {
        o: {
          type: 'oauth2',
          flows: { authorizationCode: { scopes: {}, authorizationUrl: 'https://a', tokenUrl: 'https://b' } },
        },
        b: { type: 'http', scheme: 'basic' },
      },
    },
  })
  t.same(
    toFunctions(completed.definition).map(each => each.name),
    ['get', 'put'],
  )
})

const swagger = { swagger: '2.0', info: { title: 'T', version: '1' }, host: 'h.example.com', schemes: ['https'] }

t.test('Swagger 2.0: a misspelt scheme in the host is no host', async t => {
  for (const host of ['https//h.example.com', 'htps://h.example.com', 'https://h.example.com', 'h.example.com/'])
    t.match(repairDefinition({ ...swagger, host, paths: {} }).definition, {
      servers: [{ url: 'https://h.example.com' }],
    })
})
const numbered = (count: number, name: (i: number) => string) => Array.from({ length: count }, (_, i) => name(i))

t.test('a small document makes a small answer: parts that multiply are refused or kept', async t => {
  const responses = Object.fromEntries(numbered(550, i => `x${i}`).map(code => [code, { schema: {} }]))
  const produces = numbered(550, i => `a/${i}`)
  const multiplied = repairDefinition({ ...swagger, produces, paths: { '/a': { get: { ...operation, responses } } } })
  t.match(multiplied.check, {
    ok: false,
    faults: [{ loc: ['body', 'definition'], type: 'definition_too_large', msg: /characters.*"produces"/ }],
  })
  t.same([multiplied.edits.length, JSON.stringify(multiplied.definition).length < 20_000], [0, true])

  const holes = numbered(60, i => `{${String.fromCharCode(0x4e00 + i)}}`).join('')
  const methods = { get: {}, put: {}, post: {}, patch: {}, delete: {} }
  const paths = Object.fromEntries(numbered(60, i => `/${i}${holes}`).map(path => [path, methods]))
  const declared = repairDefinition(document({ paths }))
  t.ok(declared.edits.length > 1000, 'some are declared')
  t.ok(JSON.stringify(declared.edits).length < 2_000_000, 'more edits than can be answered are not made')

  const type = 'x'.repeat(8000)
  const body = { content: { [type]: {} } }
  const users = Object.fromEntries(
    numbered(500, i => `/${i}`).map(path => [
      path,
      { post: { ...operation, operationId: path, requestBody: { $ref: '#/components/requestBodies/B' } } },
    ]),
  )
  const dropped = repairDefinition(withPaths(users, { components: { requestBodies: { B: body } } }), {
    dropsUnsupported: true,
  })
  t.equal(dropped.dropped.length, 500)
  t.ok(JSON.stringify([dropped.edits, dropped.dropped]).length < 500_000, 'a long media type is not repeated')
})

t.test('Swagger 2.0: a reference by index keeps its target', async t => {
  const body = { in: 'body', name: 'b', schema: { type: 'object', properties: { name: { type: 'string' } } } }
  const q = { in: 'query', name: 'q', type: 'integer' }
  const r = { in: 'query', name: 'r', type: 'array', items: { type: 'string' } }
  const first = '#/paths/~1a/post'
  const paths = {
    '/a': {
      post: {
        ...operation,
        operationId: 'a',
        parameters: [body, q, r],
        responses: { 200: { description: 'D', schema: { type: 'integer' }, headers: { X: { type: 'string' } } } },
      },
    },
    '/b': {
      post: {
        ...operation,
        operationId: 'b',
        parameters: [
          { in: 'body', name: 'b', schema: { $ref: `${first}/parameters/0/schema` } },
          { $ref: `${first}/parameters/2` },
        ],
        responses: { 200: { description: 'D', schema: { $ref: `${first}/responses/200/schema` } } },
      },
      patch: { ...operation, operationId: 'c', parameters: [{ $ref: `${first}/parameters/0` }], responses: {} },
    },
    '/d': {
      put: {
        ...operation,
        operationId: 'd',
        parameters: [{ in: 'body', name: 'b', schema: { allOf: [{ $ref: `${first}/parameters/2/items` }] } }],
      },
    },
  }
  const completed = repairDefinition({ ...swagger, paths })
  t.ok(completed.check.ok)
  const viewed = toFunctions(completed.definition).map(({ parameters }) => {
    const { properties, $defs = {} } = parameters as { properties: Json; $defs?: Record<string, Json> }
    // What is referred to, in its place.
    return JSON.parse(JSON.stringify(properties), (_, each) =>
      typeof each?.$ref === 'string' ? $defs[each.$ref.slice('#/$defs/'.length)] : each,
    )
  })
  t.same(viewed, [
    { q: { type: 'integer' }, r: { type: 'array', items: { type: 'string' } }, requestBody: body.schema },
    { r: { type: 'array', items: { type: 'string' } }, requestBody: body.schema },
    { requestBody: body.schema },
    { requestBody: { allOf: [{ type: 'string' }] } },
  ])
  t.match(completed.definition, {
    paths: {
      '/b': {
        post: {
          responses: {
            200: {
              content: {
                'application/json': { schema: { $ref: '#/components/schemas/paths_a_post_responses_200_schema' } },
              },
            },
          },
        },
      },
    },
  })

  const form = { in: 'formData', name: 'f', type: 'string' }
  const lost = {
    '/a': { post: { ...operation, parameters: [form, q] } },
    '/b': {
      put: {
        ...operation,
        operationId: 'b',
        'x-a': 1,
        responses: { 200: { schema: { $ref: `${first}/parameters/0` } } },
      },
    },
  }
  const refused = repairDefinition({ ...swagger, paths: lost })
  t.match(refused.check, {
    ok: false,
    faults: [{ type: 'ref_unresolved', msg: /parameters\/0" has a target that OpenAPI 3 cannot reference/ }],
  })
  t.same(refused.edits, [])
})

t.test('Swagger 2.0: methods in capitals, extensions as they are, and every guess is an edit', async t => {
  const extension = { type: 'file', discriminator: 'k', 'x-nullable': true, $ref: '#/definitions/A' }
  const paths = {
    '/a': {
      POST: {
        ...operation,
        'x-upload': extension,
        schemes: ['http'],
        parameters: [
          { in: 'body', name: 'b', required: true, schema: { type: 'string' } },
          { in: 'query', name: 'q', type: 'array', items: { type: 'string' }, collectionFormat: 'tsv' },
          { in: 'header', name: 'H', type: 'array', items: { type: 'string' }, collectionFormat: 'pipes' },
        ],
      },
      get: { ...operation, operationId: 'y', schemes: ['ws'] },
    },
  }
  const given = { ...swagger, schemes: undefined, paths, definitions: { A: {} } }
  const completed = repairDefinition(given)
  t.ok(completed.check.ok)
  t.same(editsOf(completed), [
    'replace swagger_converted at',
    'replace scheme_assumed at servers 0 url',
    'replace collection_format_replaced at paths /a POST parameters 0',
    'replace collection_format_replaced at paths /a POST parameters 1',
    'replace schemes_removed at paths /a get',
  ])
  t.match(completed.definition, {
    servers: [{ url: 'https://h.example.com' }],
    paths: {
      '/a': {
        POST: {
          'x-upload': extension,
          servers: [{ url: 'http://h.example.com' }],
          requestBody: { required: true, content: { 'application/json': { schema: { type: 'string' } } } },
          parameters: [{ schema: { type: 'array' }, style: 'form', explode: false }, { schema: { type: 'array' } }],
        },
      },
    },
  })
  t.same(repairDefinition(completed.definition).edits, [])

  const local = repairDefinition(given, { server: 'http://localhost:8080/x' })
  t.match(local.definition, { servers: [{ url: 'http://h.example.com' }] }, 'the scheme of the server given is taken')
  t.match(local.edits[1], { type: 'scheme_assumed', msg: /that of the server given/ })
  const sockets = { ...swagger, schemes: ['ws'], paths: { '/a': { get: operation } } }
  t.match(repairDefinition(sockets).check, { ok: false, faults: [{ type: 'servers_missing' }] })
  t.match(repairDefinition(sockets, { server: 'https://g.example.com' }).definition, {
    servers: [{ url: 'https://g.example.com' }],
  })
  const proto = JSON.parse(
    '{"swagger":"2.0","info":{"title":"T"},"host":"h.example.com","paths":{"__proto__":{},"/a":{"get":{}}}}',
  )
  t.match(repairDefinition(proto).edits, [], 'a forbidden key does not go in silence')
})

t.test('Swagger 2.0: data, numbers and empty values stay; an operation has its own media types', async t => {
  const text = `{
    "swagger": "2.0", "info": { "title": "T", "version": "1" }, "host": "h.example.com", "schemes": ["https"],
    "produces": ["application/json"], "responses": { "R": { "description": "R", "schema": { "type": "string" } } },
    "paths": { "/a": { "parameters": [{ "in": "body", "name": "b", "schema": { "$ref": "#/definitions/D" } }],
      "post": { "operationId": "a", "summary": "A", "produces": ["text/csv"], "responses": { "200": { "description": "D", "schema": { "type": "string" } }, "404": { "$ref": "#/responses/R" }, "500": null } },
      "get": { "operationId": "g", "summary": "G", "parameters": [
        { "in": "query", "name": "q", "type": "number", "maximum": 12345678901234567890, "enum": [1.0, 2.50] } ] } } },
    "definitions": { "D": { "example": { "type": "file", "$ref": "#/definitions/D", "n": 1.0 }, "default": null } } }`
  const { definition, check } = repairDefinition(JSON.parse(text))
  t.ok(check.ok)
  const written = JSON.parse(JSON.stringify(definition), (_, value) => value)
  t.match(JSON.stringify(definition), /"maximum":12345678901234567000,"enum":\[1,2\.5\]/)
  t.match(JSON.stringify(definition), '"example":{"type":"file","$ref":"#/definitions/D","n":1},"default":null')
  t.match(written.paths['/a'].post, {
    requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/D' } } } },
    responses: { 200: { content: { 'text/csv': {} } }, 404: { $ref: '#/components/responses/R' }, 500: null },
  })
  t.match(written.components.responses.R, { content: { 'application/json': { schema: { type: 'string' } } } })
})

t.test('Swagger 2.0: faults of the conversion have the place and names of the original document', async t => {
  const dangling = (name: string) => ({ $ref: `#/definitions/${name}` })
  const given = {
    ...swagger,
    paths: {
      '/a': {
        parameters: [{ in: 'query', name: 'q', type: 'array', items: { type: 'string' } }],
        post: {
          ...operation,
          parameters: [
            { in: 'query', name: 'r', type: 'string' },
            { in: 'body', name: 'b', schema: { allOf: [dangling('Doc'), dangling('Gone')] } },
            { in: 'query', name: '', type: 'string' },
            { $ref: '#/parameters/None' },
          ],
        },
        put: { ...operation, operationId: 'y', parameters: [{ $ref: '#/parameters/B' }] },
        delete: {
          ...operation,
          operationId: 'd',
          parameters: [
            { in: 'body', name: 'b', required: 'true', schema: { minLength: '1' } },
            { in: 'query', name: 's', type: 'string', required: 'true' },
          ],
        },
        patch: {
          ...operation,
          operationId: 'z',
          consumes: ['text/csv'],
          parameters: [{ in: 'formData', name: 'f', type: 'file' }],
        },
      },
    },
    parameters: { B: { in: 'body', name: 'b', schema: { items: dangling('Lost') } } },
    definitions: { Doc: { type: 'object', properties: { owner: dangling('Owner') } } },
  }
  const { edits, check } = repairDefinition(given)
  const places = new GivenPlaces(given, edits)
  const warned = check.warnings.filter(({ type }) => type === 'value_ignored')
  t.strictSame(
    warned.map(({ loc }) => places.nearestTo(loc.slice(2)).join(' ')),
    ['parameters 1 required', 'parameters 0 required', 'parameters 0 schema minLength'].map(
      each => `paths /a delete ${each}`,
    ),
  )
  t.strictSame(
    (check.ok ? [] : check.faults).map(fault => {
      const { loc, msg } = places.located({ ...fault, loc: fault.loc.slice(2) })
      return `${loc.join(' ')}: ${/"#[^"]+"/.exec(msg)?.[0] ?? fault.type}`
    }),
    [
      'paths /a post parameters 2 name: missing',
      'paths /a post parameters 3 $ref: "#/parameters/None"',
      'definitions Doc properties owner $ref: "#/definitions/Owner"',
      'paths /a post parameters 1 schema allOf 1 $ref: "#/definitions/Gone"',
      'parameters B schema items $ref: "#/definitions/Lost"',
      'paths /a patch consumes: request_body_media_type_unsupported',
    ],
  )
})

t.test('places: earlier renamings and removals are undone in the path', async t => {
  const given = withPaths(
    { '/x': { tags: [1], get: operation } },
    { servers: [{}, {}, { url: 'https://t.example.com' }] },
  )
  const { edits } = repairDefinition(given)
  const places = new GivenPlaces(given, edits)
  t.strictSame(places.nearestTo(['servers', 0, 'url']), ['servers', 2, 'url'])
  t.strictSame(places.nearestTo(['paths', '/x', 'x-tags', 0]), ['paths', '/x', 'tags', 0])
  t.strictSame(places.nearestTo(['paths', '/x', 'get', 'a', 'b']), ['paths', '/x', 'get'])
})

t.test('Swagger 2.0 that breaks its rules is not converted: the fault has its place', async t => {
  const faultOf = (paths: unknown) => {
    const { check, edits } = repairDefinition({ ...swagger, paths })
    t.same(edits, [])
    return check.ok ? [] : check.faults.map(({ loc, type }) => [loc.slice(2).join(' '), type])
  }
  t.same(faultOf({ '/a': { get: { parameters: [{ name: 'q' }] } } }), [['paths /a get parameters 0 in', 'missing']])
  t.same(faultOf({ '/a': { get: { parameters: {} } } }), [['paths /a get parameters', 'list_type']])
  const parameters = [{ name: 'q', in: { $ref: '#/x' }, type: 'string' }]
  t.same(faultOf({ '/a': { get: { parameters } } }), [['paths /a get parameters 0 in $ref', 'ref_not_allowed']])
})

t.test('made documents: an accepted one is not changed; a repaired one is accepted', async t => {
  let count = 0
  for (const { name, definition: made } of MADE) {
    const definition = made as Json
    const options = { server: 'https://given.example.com', dropsUnsupported: true }
    const completed = repairDefinition(definition, options)
    if (checkDefinition(definition).ok && (definition.servers as Json[])[0]?.url !== '/v1')
      t.same(
        editsOf(completed).filter(each => !each.includes('server_resolved')),
        [],
        name,
      )
    if (!completed.check.ok) continue
    count++
    t.same(repairDefinition(completed.definition, options).edits, [], `${name} again`)
    if (completed.edits[0]?.type !== 'swagger_converted')
      t.same(applied(definition, completed), completed.definition, name)
  }
  t.ok(count >= 40, `${count} are accepted`)
})

t.test('a repair stops at 20,000 edits', async t => {
  const many = Object.fromEntries(numbered(30_000, i => `m${i}`).map(name => [name, 1]))
  t.equal(repairDefinition(withPaths({ '/x': many })).edits.length, 20_000)
})

t.test('references of a schema to its own $defs are corrected at any depth', async t => {
  const next = (i: number) => ({ properties: { next: { $ref: `#/$defs/D${(i + 1) % 9}` } } })
  const $defs = Object.fromEntries(numbered(9, i => `D${i}`).map((name, i) => [name, next(i)]))
  const schema = { $defs, type: 'object', properties: { first: { $ref: '#/$defs/D0' } } }
  const requestBody = { content: { 'application/json': { schema } } }
  const given = withPaths({ '/x': { post: { ...operation, requestBody } } })
  t.notOk(checkDefinition(given).ok)
  const { edits, check } = repairDefinition(given)
  t.same([check.ok, edits.length], [true, 10])
})
