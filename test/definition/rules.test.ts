import { createHash } from 'node:crypto'
import t from 'tap'
import { checkDefinition, type DefinitionCheck } from '../../src/tool/definition/index.js'

type Json = Record<string, unknown>

const operation = { operationId: 'x', summary: 'X' }

function document(more: Json = {}): Json {
  return {
    openapi: '3.1.0',
    info: { title: 'T' },
    servers: [{ url: 'https://t.example.com' }],
    paths: { '/x': { get: { ...operation, responses: {} } } },
    ...more,
  }
}

function withItem(path: string, item: unknown, more: Json = {}): Json {
  return document({ paths: { [path]: item }, ...more })
}

function withBody(schema: unknown, schemas: Json = {}, more: Json = {}): Json {
  const requestBody = { content: { 'application/json': { schema } } }
  return withItem('/x', { post: { ...operation, responses: {}, requestBody } }, { components: { schemas }, ...more })
}

function withParameters(parameters: unknown, more: Json = {}): Json {
  return withItem('/x', { get: { ...operation, responses: {}, parameters } }, more)
}

function withServer(url: unknown, variables?: Json): Json {
  return document({ servers: [{ url, ...(variables === undefined ? {} : { variables }) }] })
}

/** `type at place` of every fault, the place from the definition on. */
function faultsOf(check: DefinitionCheck): string[] {
  return check.ok ? [] : check.faults.map(fault => `${fault.type} at ${fault.loc.slice(2).join(' ')}`.trim())
}

function warningsOf(check: DefinitionCheck): string[] {
  return check.warnings.map(warning => `${warning.type} at ${warning.loc.slice(2).join(' ')}`)
}

/** A long key as a place shows it. */
function cutKey(key: string): string {
  return `${key.slice(0, 247)}~${createHash('sha256').update(key).digest('hex').slice(0, 8)}`
}

const PX = 'paths /x'
const SCHEMA = 'paths /x post requestBody content application/json schema'
const ref = (to: string) => ({ $ref: to })

const refused: [string, unknown, string[]][] = [
  ['no object', [], ['dict_type at']],
  ['null', null, ['dict_type at']],
  ['empty object', {}, ['missing at openapi']],
  ['openapi 2.0', document({ openapi: '2.0' }), ['openapi_version_unsupported at openapi']],
  ['openapi 3 without a minor version', document({ openapi: '3' }), ['openapi_version_unsupported at openapi']],
  ['info is a list', document({ info: [] }), ['dict_type at info']],
  ['title is null', document({ info: { title: null } }), ['string_type at info title']],
  ['servers null', document({ servers: null }), ['list_type at servers']],
  ['server is a string', document({ servers: ['https://a.example.com'] }), ['dict_type at servers 0']],
  ['url blank', withServer(' '), ['server_url_missing at servers 0 url']],
  ['url is a number', withServer(1), ['string_type at servers 0 url']],
  ['second server is judged too', document({ servers: [{ url: '/a' }, {}] }), ['server_url_missing at servers 1 url']],
  ['url of another scheme', withServer('ws://a.example.com'), ['server_url_invalid at servers 0 url']],
  ['url without scheme but with a port', withServer('localhost:8080/v1'), ['server_url_invalid at servers 0 url']],
  [
    'metadata by a variable',
    withServer('https://{h}/x', { h: { default: '169.254.169.254' } }),
    ['server_url_invalid at servers 0 url'],
  ],
  ...[
    'http://100.100.100.200/latest/meta-data',
    'http://0x646464c8',
    'http://168.63.129.16/machine',
    'http://192.0.0.192',
    'http://metadata.goog.',
    'http://[2002:a9fe:a9fe::1]/',
    'http://[2002:6464:64c8::]/',
    'http://[64:ff9b::a83f:8110]/',
    'http://[64:ff9b:1::a9fe:a9fe]/',
    'http://[::ffff:100.100.100.200]/',
    'http://[fd20:ce::254]/',
  ]
    .filter(url => URL.canParse(url))
    .map((url): [string, unknown, string[]] => [
      `metadata at ${url}`,
      withServer(url),
      ['server_url_invalid at servers 0 url'],
    ]),
  [
    'metadata by another value of a variable',
    withServer('https://{h}/x', { h: { default: 'a.example.com', enum: ['a.example.com', '169.254.169.254'] } }),
    ['server_url_invalid at servers 0 url'],
  ],
  [
    'more values of variables than are looked at',
    withServer('https://{h}.example.com', {
      h: { default: 'a', enum: Array.from({ length: 5000 }, (_, i) => `host${i}`) },
    }),
    ['server_url_invalid at servers 0 url'],
  ],
  ['an identifier of 513 characters', withBody({ $id: 'i'.repeat(513) }), [`string_too_long at ${SCHEMA} $id`]],
  ['an anchor of 513 characters', withBody({ $anchor: 'i'.repeat(513) }), [`string_too_long at ${SCHEMA} $anchor`]],
  ['a $self of 513 characters', document({ $self: 'i'.repeat(513) }), ['string_too_long at $self']],
  [
    'a key of 8,193 characters',
    document({ 'x-a': { [`${'k'.repeat(8192)}1`]: 1, ['k'.repeat(8192)]: 1 } }),
    [`string_too_long at x-a ${cutKey(`${'k'.repeat(8192)}1`)}`],
  ],
  [
    'a reference of 8,193 characters',
    withBody(ref(`#/components/schemas/${'A'.repeat(8192)}`)),
    [`ref_unresolved at ${SCHEMA} $ref`],
  ],
  [
    'two paths that are equal in their first 256 characters',
    document({ paths: { [`/${'p'.repeat(300)}1`]: null, [`/${'p'.repeat(300)}2`]: null } }),
    [`dict_type at paths ${cutKey(`/${'p'.repeat(300)}1`)}`, `dict_type at paths ${cutKey(`/${'p'.repeat(300)}2`)}`],
  ],
  [
    'parameter reference to a part of a schema',
    withParameters([ref('#/components/schemas/A/properties/b')], {
      components: { schemas: { A: { properties: { b: { type: 'string' } } } } },
    }),
    [`ref_target_type at ${PX} get parameters 0 $ref`],
  ],
  [
    'parameter reference to a schema elsewhere',
    withParameters([ref('#/definitions/A')], { definitions: { A: { type: 'string' } } }),
    [`ref_target_type at ${PX} get parameters 0 $ref`],
  ],
  ['only webhooks', document({ paths: undefined, webhooks: { w: { post: operation } } }), ['missing at paths']],
  [
    'more null operations than operations may be',
    document({ paths: Object.fromEntries(Array.from({ length: 5001 }, (_, i) => [`/p${i}`, { get: null }])) }),
    [...Array.from({ length: 100 }, (_, i) => `dict_type at paths /p${i} get`)],
  ],
  [
    'a variable whose value names another one',
    withServer('http://{a}/', { a: { default: '{b}' }, b: { default: '169.254.169.254' } }),
    ['server_url_invalid at servers 0 url'],
  ],
  [
    'a path that makes user info of the host',
    withItem('@169.254.169.254/latest', { get: operation }),
    ['server_url_invalid at paths @169.254.169.254/latest'],
  ],
  ['metadata by name', withServer('http://metadata.google.internal/x'), ['server_url_invalid at servers 0 url']],
  [
    'metadata server of an operation',
    withItem('/x', { get: { ...operation, servers: [{ url: 'http://169.254.1.1' }] } }),
    [`server_url_invalid at ${PX} get servers 0 url`],
  ],
  ['paths null', document({ paths: null }), ['dict_type at paths']],
  ['only extensions in paths', document({ paths: { 'x-a': 1 } }), ['operations_missing at paths']],
  ['operation null', withItem('/x', { get: null }), [`dict_type at ${PX} get`]],
  [
    'operationId blank',
    withItem('/x', { get: { operationId: ' ', summary: 'X' } }),
    [`operation_id_missing at ${PX} get operationId`],
  ],
  [
    'summary and description empty',
    withItem('/x', { get: { operationId: 'x', summary: '', description: '' } }),
    [`summary_missing at ${PX} get summary`],
  ],
  ['placeholder broken: closed only', withItem('/x}', { get: operation }), ['path_template_invalid at paths /x}']],
  ['placeholder broken: nested', withItem('/{a{b}}', { get: operation }), ['path_template_invalid at paths /{a{b}}']],
  ['placeholder broken: empty', withItem('/{}', { get: operation }), ['path_template_invalid at paths /{}']],
  [
    'two placeholders undeclared',
    withItem('/{a}/{b}', { get: operation }),
    [
      'path_parameter_undeclared at paths /{a}/{b} get parameters',
      'path_parameter_undeclared at paths /{a}/{b} get parameters',
    ],
  ],
  [
    'placeholder declared as a query parameter',
    withItem('/{a}', { get: { ...operation, parameters: [{ name: 'a', in: 'query' }] } }),
    ['path_parameter_undeclared at paths /{a} get parameters'],
  ],
  ['parameters null', withParameters(null), [`list_type at ${PX} get parameters`]],
  ['parameter name empty', withParameters([{ name: '', in: 'query' }]), [`missing at ${PX} get parameters 0 name`]],
  [
    'parameter name a number',
    withParameters([{ name: 1, in: 'query' }]),
    [`string_type at ${PX} get parameters 0 name`],
  ],
  [
    'parameter reference to a schema',
    withParameters([ref('#/components/schemas/A')], { components: { schemas: { A: {} } } }),
    [`ref_target_type at ${PX} get parameters 0 $ref`],
  ],
  [
    'parameter reference to a string',
    withParameters([ref('#/info/title')]),
    [`ref_target_type at ${PX} get parameters 0 $ref`],
  ],
  [
    'path-level parameters after the methods are reported there',
    withItem('/x', { get: { summary: 'X' }, parameters: 1, psot: {} }),
    [
      `operation_id_missing at ${PX} get operationId`,
      `list_type at ${PX} parameters`,
      `method_unsupported at ${PX} psot`,
    ],
  ],
  [
    'a fault in a component stands there, once',
    document({
      paths: {
        '/x': { get: { ...operation, parameters: [ref('#/components/parameters/P')] } },
        '/y': { get: { operationId: 'y', summary: 'Y', parameters: [ref('#/components/parameters/P')] } },
      },
      components: { parameters: { P: { in: 'query' } } },
    }),
    ['missing at components parameters P name'],
  ],
  [
    'a broken link in a chain stands at the link',
    withParameters([ref('#/components/parameters/A')], { components: { parameters: { A: ref('#/nowhere') } } }),
    ['ref_unresolved at components parameters A $ref'],
  ],
  [
    'a path item used twice repeats its operationId',
    document({
      paths: { '/x': ref('#/components/pathItems/P'), '/y': ref('#/components/pathItems/P') },
      components: { pathItems: { P: { get: operation } } },
    }),
    ['operation_id_duplicate at paths /y $ref'],
  ],
  ['body null', withItem('/x', { post: { ...operation, requestBody: null } }), [`dict_type at ${PX} post requestBody`]],
  [
    'body without content',
    withItem('/x', { post: { ...operation, requestBody: {} } }),
    [`request_body_media_type_unsupported at ${PX} post requestBody content`],
  ],
  [
    'body of any type',
    withItem('/x', { post: { ...operation, requestBody: { content: { '*/*': {} } } } }),
    [`request_body_media_type_unsupported at ${PX} post requestBody content`],
  ],
  [
    'nested reference dangling, in the component',
    withBody(ref('#/components/schemas/A'), { A: { properties: { b: ref('#/no') } } }),
    ['ref_unresolved at components schemas A properties b $ref'],
  ],
  ['reference of a bare name', withBody(ref('Pet')), [`ref_external at ${SCHEMA} $ref`]],
  ['reference to a parameter as a schema', withBody(ref('#/paths/~1x')), [`ref_target_type at ${SCHEMA} $ref`]],
  ['anchor that nobody has', withBody(ref('#nobody')), [`ref_unresolved at ${SCHEMA} $ref`]],
  [
    'beside $ref in 3.1 everything counts',
    withBody({ ...ref('#/components/schemas/A'), items: ref('#/no') }, { A: {} }),
    [`ref_unresolved at ${SCHEMA} items $ref`],
  ],
  [
    'dynamic reference that leads nowhere',
    withBody({ $dynamicRef: '#nobody' }),
    [`ref_unresolved at ${SCHEMA} $dynamicRef`],
  ],
  ['NUL in a key and a string', document({ 'x-\0': 'a\0b' }), ['string_nul at x-\0', 'string_nul at x-\0']],
  ['half a surrogate pair', document({ 'x-a': ['ok', '\udc00'] }), ['string_unicode at x-a 1']],
]

const accepted: [string, unknown, number][] = [
  ['openapi 3.0', document({ openapi: '3.0' }), 1],
  ['title empty', document({ info: { title: '' } }), 1],
  ['server with unfilled variables everywhere', withServer('{scheme}://{host}:{port}/{base}'), 1],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: this is how such templates look
  ['server of a deployment template', withServer('${{BOT_ENDPOINT}}/api/'), 1],
  ['server host in another script', withServer('https://bücher.example.com'), 1],
  ['server of the empty text, which is where the document stands', withServer(''), 1],
  [
    'operationIds in any script, and those that read the same to a model',
    document({
      paths: Object.fromEntries(
        ['菜谱搜索', '菜谱分类', 'a.b', 'a/b', 'a_b'].map(id => [`/${id}`, { get: { operationId: id, summary: 'X' } }]),
      ),
    }),
    5,
  ],
  ['pointer whose slashes are percent-encoded', withBody(ref('#%2Fcomponents%2Fschemas%2FA'), { A: {} }), 1],
  [
    'reference to the document by its own relative name',
    withBody(ref('api.json#/components/schemas/A'), { A: {} }, { openapi: '3.2.0', $self: '/v1/api.json' }),
    1,
  ],
  ['an identifier, an anchor and a key at their limits', withBody({ $id: 'i'.repeat(512), ['k'.repeat(8192)]: 1 }), 1],
  ['null texts fall back', withItem('/x', { get: { operationId: 'x', summary: null, description: 'D' } }), 1],
  ['operationId constructor', withItem('/x', { get: { operationId: 'constructor', summary: 'X' } }), 1],
  [
    'placeholder {name+}',
    withItem('/{proxy+}', { get: { ...operation, parameters: [{ name: 'proxy', in: 'path' }] } }),
    1,
  ],
  [
    'placeholder declared with its operator',
    withItem('/{+p}', { get: { ...operation, parameters: [{ name: '+p', in: 'path' }] } }),
    1,
  ],
  [
    'reference into another operation',
    document({
      paths: {
        '/a': { get: { ...operation, parameters: [{ name: 'q', in: 'query' }] } },
        '/b': { get: { operationId: 'b', summary: 'B', parameters: [ref('#/paths/~1a/get/parameters/0')] } },
      },
    }),
    2,
  ],
  ['$ref as the name of a property', withBody({ properties: { $ref: { type: 'string' } } }), 1],
  [
    '$ref inside values is no reference',
    withBody({
      example: ref('#/no'),
      default: ref('x.json'),
      enum: [ref('#/no')],
      const: ref('#/no'),
      examples: [ref('#/no')],
    }),
    1,
  ],
  [
    'discriminator mappings are no references',
    withBody({ discriminator: { propertyName: 'a', mapping: { a: '#/no', b: 'b.json' } } }),
    1,
  ],
  ['dangling in an unused component', withBody({}, { Unused: ref('#/no') }), 1],
  ['dangling in a response', withItem('/x', { get: { ...operation, responses: { 200: ref('x.yaml') } } }), 1],
  [
    'dangling in another media type than the one used',
    withItem('/x', {
      post: { ...operation, requestBody: { content: { 'text/xml': { schema: ref('#/no') }, 'application/json': {} } } },
    }),
    1,
  ],
  [
    'dangling in a method that is passed over',
    withItem('/x', { get: operation, head: { parameters: [ref('#/no')] } }),
    1,
  ],
  [
    'beside $ref in 3.0 nothing counts',
    withBody({ ...ref('#/components/schemas/A'), items: ref('#/no') }, { A: {} }, { openapi: '3.0.0' }),
    1,
  ],
  ['boolean schemas', withBody({ properties: { a: true }, additionalProperties: false }), 1],
  ['percent-encoded pointer', withBody(ref('#/components/schemas/A%20b'), { 'A b': {} }), 1],
  ['pointer with escapes', withBody(ref('#/components/schemas/a~1b~0c'), { 'a/b~c': {} }), 1],
  ['anchor', withBody(ref('#a'), { A: { $anchor: 'a' } }), 1],
  [
    'identifier in the document',
    withBody(ref('https://e.example.com/a#/$defs/B'), { A: { $id: 'https://e.example.com/a', $defs: { B: {} } } }),
    1,
  ],
  [
    'pointer inside a schema with an identifier',
    withBody({ $id: 'urn:a', items: ref('#/$defs/B'), $defs: { B: ref('#') } }),
    1,
  ],
  [
    'reference to the document by its own name',
    withBody(
      ref('api.json#/components/schemas/A'),
      { A: {} },
      { openapi: '3.2.0', $self: 'https://e.example.com/api.json' },
    ),
    1,
  ],
  [
    'media type that is a reference, from 3.2',
    withItem(
      '/x',
      { post: { ...operation, requestBody: { content: { 'application/json': ref('#/components/mediaTypes/M') } } } },
      { openapi: '3.2.0', components: { mediaTypes: { M: {} } } },
    ),
    1,
  ],
  [
    'media type null',
    withItem('/x', { post: { ...operation, requestBody: { content: { 'application/json': null } } } }),
    1,
  ],
  [
    'path item beside its reference',
    withItem(
      '/x',
      { $ref: '#/components/pathItems/P', get: operation },
      { components: { pathItems: { P: { get: null, post: { operationId: 'p', summary: 'P' } } } } },
    ),
    2,
  ],
  [
    'path item of another path',
    document({ paths: { '/a': { 'x-y': 1, $ref: '#/webhooks/w' } }, webhooks: { w: { post: operation } } }),
    1,
  ],
  [
    'constructor as the name of a property',
    withBody({ properties: { constructor: { type: 'string' }, prototype: {} } }),
    1,
  ],
]

for (const [name, definition, expected] of refused) {
  t.test(`refused: ${name}`, async t => {
    t.same(faultsOf(checkDefinition(definition)), expected)
  })
}

for (const [name, definition, methods] of accepted) {
  t.test(`accepted: ${name}`, async t => {
    const check = checkDefinition(definition)
    t.same(faultsOf(check), [])
    t.equal(check.ok && check.methods.length, methods)
  })
}

t.test('warned: what is accepted but worth knowing, at its place', async t => {
  const definition = {
    ...document({ servers: [{ url: '/api' }, { url: 'https://{h}.example.com' }], 'x-big': 2 ** 53 + 2 }),
    paths: {
      'x/{a}': {
        get: {
          operationId: `a b${'c'.repeat(70)}`,
          summary: 'X',
          deprecated: true,
          parameters: [
            { name: 'a', in: 'path' },
            { name: 'b', in: 'path' },
            { name: 'X-H', in: 'header' },
            { name: 'Accept', in: 'header' },
            { name: 'c', in: 'cookie', schema: 'string' },
            { name: 'a', in: 'path' },
            { name: 'form', in: 'formData' },
          ],
        },
        HEAD: {},
      },
    },
  }
  const get = 'paths x/{a} get'
  t.same(warningsOf(checkDefinition(definition)), [
    'integer_precision at x-big',
    'server_relative at servers 0 url',
    'server_variable_unfilled at servers 1 url',
    'servers_several at servers',
    'path_without_slash at paths x/{a}',
    `operation_id_long at ${get} operationId`,
    `operation_id_characters at ${get} operationId`,
    `parameter_not_supplied at ${get} parameters 2`,
    `schema_ignored at ${get} parameters 4 schema`,
    `parameter_not_supplied at ${get} parameters 4`,
    `parameter_duplicate at ${get} parameters 5`,
    `parameter_location_unknown at ${get} parameters 6 in`,
    `path_parameter_unused at ${get} parameters 1`,
    `operation_deprecated at ${get} deprecated`,
    `responses_missing at ${get} responses`,
    'method_passed_over at paths x/{a} HEAD',
  ])
  const supplied = warningsOf(checkDefinition(definition, { headerNames: ['x-h', 'Cookie'] }))
  t.notOk(
    supplied.some(warning => warning.startsWith('parameter_not_supplied')),
    'custom headers supply them',
  )
})

t.test('warned: servers of a path or operation on another host, and an API key in the query', async t => {
  const definition = document({
    paths: {
      '/x': {
        servers: [{ url: 'https://other.example.com/v1' }],
        get: { ...operation, responses: {}, servers: [{ url: 'https://t.example.com/v2' }] },
        post: {
          operationId: 'p',
          summary: 'P',
          responses: {},
          servers: [{ url: 'https://{h}.example.com' }, { url: '/v3' }],
        },
      },
    },
    components: {
      securitySchemes: {
        key: { type: 'apiKey', in: 'query', name: 'k' },
        other: { type: 'apiKey', in: 'header', name: 'k' },
      },
    },
  })
  t.same(
    warningsOf(checkDefinition(definition)).filter(each => !/unfilled|relative|several/.test(each)),
    [`server_other_host at ${PX} servers`, 'api_key_in_query at components securitySchemes key'],
  )
})

t.test('msg: what stands in the place of paths is said', async t => {
  const check = checkDefinition(document({ paths: undefined, webhooks: {} }))
  t.match(check.ok ? '' : check.faults[0]?.msg, /only webhooks/)
  const method = checkDefinition(withItem('/x', { psot: {}, get: operation }))
  t.match(method.ok ? '' : method.faults[0]?.msg, /^"psot" is not a method/)
})

t.test('limits: configurable, the last fault says how many more', async t => {
  const paths = Object.fromEntries(Array.from({ length: 130 }, (_, i) => [`/p${i}`, null]))
  const check = checkDefinition(document({ paths }))
  t.equal(check.ok ? 0 : check.faults.length, 100)
  t.match(check.ok ? '' : check.faults.at(-1)?.msg, /\(and 30 more\)$/)
  const few = checkDefinition(document({ paths }), { limits: { faults: 3 }, at: ['body'] })
  t.same(few.ok ? [] : few.faults.map(fault => fault.loc), [
    ['body', 'paths', '/p0'],
    ['body', 'paths', '/p1'],
    ['body', 'paths', '/p2'],
  ])
  t.same(faultsOf(checkDefinition(document(), { limits: { values: 5 } })), ['definition_too_large at'])
  t.same(faultsOf(checkDefinition(document(), { limits: { nestingLevels: 3 } })), ['definition_too_deep at'])
  t.same(faultsOf(checkDefinition(document(), { limits: { operations: 0 } })), ['too_many_operations at paths'])
  const chain = (length: number) =>
    Object.fromEntries(
      Array.from({ length }, (_, i) => [`S${i}`, i === length - 1 ? {} : ref(`#/components/schemas/S${i + 1}`)]),
    )
  t.same(faultsOf(checkDefinition(withBody(ref('#/components/schemas/S0'), chain(64)))), [], '64 hops')
  t.same(
    faultsOf(checkDefinition(withBody(ref('#/components/schemas/S0'), chain(65)))),
    [`ref_cycle at ${SCHEMA} $ref`],
    '65 hops',
  )
})

t.test(
  'long names: cut to 256 characters that end with a hash in loc, to 100 in msg, never inside a surrogate pair',
  async t => {
    const name = `${'a'.repeat(255)}😀${'b'.repeat(50)}`
    const check = checkDefinition(withItem('/x', { get: operation, [name]: {} }))
    const [fault] = check.ok ? [] : check.faults
    t.match(fault?.loc.at(-1), /^a{247}~[0-9a-f]{8}$/)
    t.ok(fault?.msg.startsWith(`"${'a'.repeat(100)}"...`))
  },
)

t.test('spec: the operation object itself, not a copy', async t => {
  const definition = document()
  const check = checkDefinition(definition)
  t.equal(check.ok && check.methods[0]?.spec, (definition.paths as Record<string, Json>)['/x']?.get)
})

const allWarnings = (definition: unknown) => {
  const check = checkDefinition(definition)
  return check.warnings.map(({ type, loc, msg }) => ({ type, at: loc.slice(2).join(' '), msg }))
}

t.test('accepted: a host with letters outside ASCII, however often it was looked at', async t => {
  const definition = withServer('https://bücher.example.com')
  let refused = 0
  for (let i = 0; i < 10_000; i++) if (!checkDefinition(definition).ok) refused++
  t.equal(refused, 0)
})

t.test('refused: a server without its scheme, with what was meant', async t => {
  for (const url of [
    '10.225.26.25:7894',
    '[::1]:8080',
    'localhost:3000',
    'my_host:8080/v1',
    '10.0.0.1',
    'a.example:80',
  ]) {
    const check = checkDefinition(withServer(url))
    t.same(faultsOf(check), ['server_url_invalid at servers 0 url'], url)
    t.match(check.ok ? '' : check.faults[0]?.msg, `did you mean "http://${url}"?`, url)
  }
  t.same(faultsOf(checkDefinition(withServer('10.0.0.1:{port}'))), ['server_url_invalid at servers 0 url'])
  t.same(warningsOf(checkDefinition(withServer('/v1'))), ['server_relative at servers 0 url'])
  t.match(allWarnings(withServer('api.example.com/v1')), [{ msg: 'did you mean "https://api.example.com/v1"?' }])
})

t.test('warned: one slash behind the scheme, a slash at the end, a query or fragment', async t => {
  for (const [url, types] of [
    ['https:/t.example.com', ['server_url_slashes']],
    ['https:t.example.com', ['server_url_slashes']],
    ['https:///t.example.com', ['server_url_slashes']],
    ['https://t.example.com/', ['server_trailing_slash']],
    ['https://t.example.com/v1/', ['server_trailing_slash']],
    ['https://t.example.com/v1', []],
    ['https://t.example.com/v1#x', ['server_query']],
    ['https://t.example.com/v1?api-version=2023-01-01', ['server_query']],
    ['https://t.example.com/v1?key={key}', ['server_variable_unfilled', 'server_query']],
    ['https://t.example.com/v1?key=YOUR_KEY', ['server_query']],
  ] as const) {
    const check = checkDefinition(withServer(url))
    t.same(
      warningsOf(check),
      types.map(type => `${type} at servers 0 url`),
      url,
    )
    t.ok(check.ok, url)
  }
  for (const path of ['/x?beta=true', '/#X-Amz-Target=Svc.Describe', '/x?page_token=abc']) {
    const check = checkDefinition(withItem(path, { get: { ...operation, responses: {} } }))
    t.same(warningsOf(check), [`path_query at paths ${path}`])
    t.ok(check.ok, path)
  }
})

t.test('refused: a secret in a server, in a value of its variables, or in a path', async t => {
  const at = ['server_url_invalid at servers 0 url']
  for (const query of ['?key=abc', '?v=1&api_key=abc', '#access_token=abc', '?x=a1b2c3d4e5f6a1b2c3d4e5f6'])
    t.same(faultsOf(checkDefinition(withServer(`https://t.example.com/v1${query}`))), at, query)
  t.same(faultsOf(checkDefinition(withServer('https://t.example.com?key={k}', { k: { default: 'abc' } }))), at)
  t.same(faultsOf(checkDefinition(withItem('/x?key=abc', { get: operation }))), [
    'server_url_invalid at paths /x?key=abc',
  ])
})

t.test('warned: types that do not exist, with what was meant', async t => {
  const meant = {
    int: 'integer',
    String: 'string',
    float: 'number',
    datetime: 'string',
    str: 'string',
    bool: 'boolean',
    dict: 'object',
  }
  for (const [type, known] of Object.entries(meant)) {
    const [warning] = allWarnings(withParameters([{ name: 'a', in: 'query', schema: { type } }]))
    t.match(warning, { type: 'schema_type_unknown', at: `${PX} get parameters 0 schema type` }, type)
    t.match(warning?.msg, `did you mean \`${known}\`?`)
  }
  t.match(allWarnings(withBody({ type: 'string|null' })), [{ msg: 'did you mean `["string","null"]`?' }])
  t.match(allWarnings(withBody({ type: ['string', 'none'] })), [{ at: `${SCHEMA} type 1` }])
  t.match(allWarnings(withBody({ type: 'array', items: { type: 'thing' } })), [{ at: `${SCHEMA} items type` }])
  t.match(allWarnings(withBody({ typ: 'string' })), [{ type: 'schema_type_unknown', at: `${SCHEMA} typ` }])
  t.same(allWarnings(withBody({ type: ['string', 'null'], properties: { type: { type: 'integer' } } })), [])
})

t.test('warned: a type beside the schema of a parameter, and a place that does not exist', async t => {
  const at = `${PX} get parameters 0`
  t.match(allWarnings(withParameters([{ name: 'a', in: 'query', type: 'int' }])), [
    { type: 'parameter_type_misplaced', at: `${at} type`, msg: '{"type": "integer"}' },
  ])
  for (const [location, meant] of [
    ['querry', 'query'],
    ['Query', 'query'],
    ['haeder', 'header'],
    ['cookies', 'cookie'],
  ])
    t.match(allWarnings(withParameters([{ name: 'a', in: location, schema: {} }])), [
      { type: 'parameter_location_unknown', at: `${at} in`, msg: `did you mean "${meant}"?` },
    ])
  t.match(allWarnings(withParameters([{ name: 'a', in: 'formData' }])), [{ msg: 'requestBody' }])
})

t.test('#/$defs/X of a schema inside the document: the place and what to write', async t => {
  const check = checkDefinition(withBody({ properties: { a: ref('#/$defs/X') }, $defs: { X: { type: 'string' } } }))
  t.same(faultsOf(check), [`ref_unresolved at ${SCHEMA} properties a $ref`])
  t.match(check.ok ? '' : check.faults[0]?.msg, '#/components/schemas/X')
  const other = checkDefinition(withBody({ properties: { a: ref('#/$defs/Y') }, $defs: { X: {} } }))
  t.notMatch(other.ok ? '' : other.faults[0]?.msg, '#/components/schemas/Y')
})

t.test('warned: two templates of one path', async t => {
  const get = (id: string, name: string) => ({
    get: {
      operationId: id,
      summary: 'X',
      responses: {},
      parameters: [{ name, in: 'path', required: true, schema: { type: 'string' } }],
    },
  })
  const paths = { '/order/{id}': get('a', 'id'), '/order/{number}': get('b', 'number'), '/orders/{id}': get('c', 'id') }
  t.same(warningsOf(checkDefinition(document({ paths }))), ['path_template_repeated at paths /order/{number}'])
})

t.test('warned: an allOf of closed objects that nothing satisfies', async t => {
  const closed = (name: string) => ({
    type: 'object',
    additionalProperties: false,
    required: [name],
    properties: { [name]: { type: 'string' } },
  })
  const both = { allOf: [ref('#/components/schemas/A'), closed('b')] }
  t.same(warningsOf(checkDefinition(withBody(both, { A: closed('a') }))), [`schema_unsatisfiable at ${SCHEMA} allOf`])
  const open = { ...closed('b'), additionalProperties: true }
  for (const allOf of [[open, { ...open, required: ['a'] }], [closed('a'), { required: ['a'] }], [closed('a')]])
    t.same(warningsOf(checkDefinition(withBody({ allOf }))), [])
})
