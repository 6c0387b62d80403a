import { createHash } from 'node:crypto'
import t from 'tap'
import { inspection } from '../../src/definition/check/check.js'
import { checkDefinition, type DefinitionCheck } from '../../src/definition/index.js'

type Json = Record<string, unknown>

const operation = { operationId: 'x', summary: 'X' }
const GET = 'paths /x get'
const POST = 'paths /x post'
const SCHEMA = `${POST} requestBody content application/json schema`
const ref = ($ref: string) => ({ $ref })
const A = ref('#/components/schemas/A')

function document(more: Json = {}): Json {
  const paths = { '/x': { get: { ...operation, responses: {} } } }
  return { openapi: '3.1.0', info: { title: 'T' }, servers: [{ url: 'https://t.example.com' }], paths, ...more }
}

const at = (path: string, item: unknown, more: Json = {}) => document({ paths: { [path]: item }, ...more })
/** The operations of `GET /x` and `POST /x`. */
const get = (more: Json, top: Json = {}) => at('/x', { get: { ...operation, responses: {}, ...more } }, top)
const post = (more: Json, top: Json = {}) => at('/x', { post: { ...operation, responses: {}, ...more } }, top)
const withContent = (content: unknown, top: Json = {}) => post({ requestBody: { content } }, top)
const withBody = (schema: unknown, schemas: Json = {}, top: Json = {}) =>
  withContent({ 'application/json': { schema } }, { components: { schemas }, ...top })
const withParameters = (parameters: unknown, components: Json = {}, top: Json = {}) =>
  get({ parameters }, { components, ...top })
const withServer = (url: unknown, variables: Json = {}) => document({ servers: [{ url, variables }] })
const many = (count: number, member: (i: number) => [string, unknown]) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => member(i)))

/** Formats every fault as `type at path`, with the path from the definition's root. */
function faultsOf(check: DefinitionCheck): string[] {
  return check.ok ? [] : check.faults.map(fault => `${fault.type} at ${fault.loc.slice(2).join(' ')}`.trim())
}

function warningsOf(check: DefinitionCheck): string[] {
  return check.warnings.map(warning => `${warning.type} at ${warning.loc.slice(2).join(' ')}`)
}

/** A long key as it is cut in a `loc`. */
function cutKey(key: string): string {
  return `${key.slice(0, 247)}~${createHash('sha256').update(key).digest('hex').slice(0, 8)}`
}

const LONG_KEY = `${'k'.repeat(8192)}1`
const LONG_PATHS = ['1', '2'].map(end => `/${'p'.repeat(300)}${end}`)
const P = ref('#/components/parameters/P')
const twoUsers = {
  '/x': { get: { ...operation, parameters: [P] } },
  '/y': { get: { operationId: 'y', summary: 'Y', parameters: [P] } },
}
const sharedItem = { paths: { '/x': ref('#/components/pathItems/P'), '/y': ref('#/components/pathItems/P') } }

const NO_PARAMETER = `ref_target_type at ${GET} parameters 0 $ref`
const NO_JSON = `request_body_media_type_unsupported at ${POST} requestBody content`

const METADATA = '169.254.169.254'
/** Refused servers with their variables: other schemes, and metadata addresses in every form. */
const BAD_SERVERS: [url: string, variables?: Json][] = [
  ['ws://a.example.com'],
  ['localhost:8080/v1'],
  ['http://metadata.google.internal/x'],
  ['https://{h}/x', { h: { default: METADATA } }],
  ['http://{a}/', { a: { default: '{b}' }, b: { default: METADATA } }],
  ['https://{h}/x', { h: { default: 'a.example.com', enum: ['a.example.com', METADATA] } }],
  ['https://{h}.example.com', { h: { default: 'a', enum: Array.from({ length: 5000 }, (_, i) => `host${i}`) } }],
  ...`100.100.100.200/latest/meta-data 0x646464c8 168.63.129.16/machine 192.0.0.192 metadata.goog. [2002:a9fe:a9fe::1]/
  [2002:6464:64c8::]/ [64:ff9b::a83f:8110]/ [64:ff9b:1::a9fe:a9fe]/ [::ffff:100.100.100.200]/ [fd20:ce::254]/ [fd00:ec2::254]/ [fe80::1]`
    .split(/\s+/)
    .map<[string]>(host => [`http://${host}`]),
]

/** Definitions with one fault. */
const REFUSED: [name: string, fault: string, definition: unknown][] = [
  ['no object', 'dict_type at', []],
  ['null', 'dict_type at', null],
  ['empty object', 'missing at openapi', {}],
  ['openapi 2.0', 'openapi_version_unsupported at openapi', document({ openapi: '2.0' })],
  ['openapi 3 without a minor version', 'openapi_version_unsupported at openapi', document({ openapi: '3' })],
  ['info is a list', 'dict_type at info', document({ info: [] })],
  ['title is null', 'string_type at info title', document({ info: { title: null } })],
  ['servers null', 'list_type at servers', document({ servers: null })],
  ['server is a string', 'dict_type at servers 0', document({ servers: ['https://a.example.com'] })],
  ['url blank', 'server_url_missing at servers 0 url', withServer(' ')],
  ['url is a number', 'string_type at servers 0 url', withServer(1)],
  ['second server', 'server_url_missing at servers 1 url', document({ servers: [{ url: '/a' }, {}] })],
  [
    'server of an operation',
    `server_url_invalid at ${GET} servers 0 url`,
    get({ servers: [{ url: 'http://169.254.1.1' }] }),
  ],
  [
    'path behind user info',
    'server_url_invalid at paths @169.254.169.254/latest',
    at('@169.254.169.254/latest', { get: operation }),
  ],
  ['an identifier of 513 characters', `string_too_long at ${SCHEMA} $id`, withBody({ $id: 'i'.repeat(513) })],
  ['an anchor of 513 characters', `string_too_long at ${SCHEMA} $anchor`, withBody({ $anchor: 'i'.repeat(513) })],
  ['a $self of 513 characters', 'string_too_long at $self', document({ $self: 'i'.repeat(513) })],
  [
    'a key of 8,193 characters',
    `string_too_long at x-a ${cutKey(LONG_KEY)}`,
    document({ 'x-a': { [LONG_KEY]: 1, ['k'.repeat(8192)]: 1 } }),
  ],
  [
    'a reference of 8,193 characters',
    `ref_unresolved at ${SCHEMA} $ref`,
    withBody(ref(`#/components/schemas/${'A'.repeat(8192)}`)),
  ],
  ['anchor that nobody has', `ref_unresolved at ${SCHEMA} $ref`, withBody(ref('#nobody'))],
  [
    'parameter: part of a schema',
    NO_PARAMETER,
    withParameters([ref('#/components/schemas/A/properties/b')], {
      schemas: { A: { properties: { b: { type: 'string' } } } },
    }),
  ],
  ['parameter: schema', NO_PARAMETER, withParameters([A], { schemas: { A: {} } })],
  [
    'parameter: schema elsewhere',
    NO_PARAMETER,
    withParameters([ref('#/definitions/A')], {}, { definitions: { A: {} } }),
  ],
  ['parameter: string', NO_PARAMETER, withParameters([ref('#/info/title')])],
  ['only webhooks', 'missing at paths', document({ paths: undefined, webhooks: { w: { post: operation } } })],
  ['paths null', 'dict_type at paths', document({ paths: null })],
  ['only extensions in paths', 'operations_missing at paths', document({ paths: { 'x-a': 1 } })],
  ['operation null', `dict_type at ${GET}`, at('/x', { get: null })],
  ['operationId blank', `operation_id_missing at ${GET} operationId`, get({ operationId: ' ' })],
  ['summary and description empty', `summary_missing at ${GET} summary`, get({ summary: '', description: '' })],
  [
    'summary and description blank',
    `summary_missing at ${GET} summary`,
    get({ summary: '  ', description: '\t\u00a0' }),
  ],
  ['placeholder closed only', 'path_template_invalid at paths /x}', at('/x}', { get: operation })],
  ['placeholder nested', 'path_template_invalid at paths /{a{b}}', at('/{a{b}}', { get: operation })],
  ['placeholder empty', 'path_template_invalid at paths /{}', at('/{}', { get: operation })],
  [
    'declared in the query',
    'path_parameter_undeclared at paths /{a} get parameters',
    at('/{a}', { get: { ...operation, parameters: [{ name: 'a', in: 'query' }] } }),
  ],
  ['parameters null', `list_type at ${GET} parameters`, withParameters(null)],
  ['parameter name empty', `missing at ${GET} parameters 0 name`, withParameters([{ name: '', in: 'query' }])],
  ['parameter name a number', `string_type at ${GET} parameters 0 name`, withParameters([{ name: 1, in: 'query' }])],
  [
    'a fault in a component, once',
    'missing at components parameters P name',
    document({ paths: twoUsers, components: { parameters: { P: { in: 'query' } } } }),
  ],
  [
    'a broken link in a chain',
    'ref_unresolved at components parameters A $ref',
    withParameters([ref('#/components/parameters/A')], { parameters: { A: ref('#/nowhere') } }),
  ],
  [
    'a path item used twice',
    'operation_id_duplicate at paths /y $ref',
    document({ ...sharedItem, components: { pathItems: { P: { get: operation } } } }),
  ],
  ['body null', `dict_type at ${POST} requestBody`, post({ requestBody: null })],
  ['body without content', NO_JSON, post({ requestBody: {} })],
  ['body of any type', NO_JSON, withContent({ '*/*': {} })],
  [
    'dangling in the component',
    'ref_unresolved at components schemas A properties b $ref',
    withBody(A, { A: { properties: { b: ref('#/no') } } }),
  ],
  ['reference of a bare name', `ref_external at ${SCHEMA} $ref`, withBody(ref('Pet'))],
  ['reference to a path item as a schema', `ref_target_type at ${SCHEMA} $ref`, withBody(ref('#/paths/~1x'))],
  ['beside $ref in 3.1', `ref_unresolved at ${SCHEMA} items $ref`, withBody({ ...A, items: ref('#/no') }, { A: {} })],
  ['dynamic reference', `ref_unresolved at ${SCHEMA} $dynamicRef`, withBody({ $dynamicRef: '#nobody' })],
  ['half a surrogate pair', 'string_unicode at x-a 1', document({ 'x-a': ['ok', '\udc00'] })],
]

/** Definitions with several faults, in order. */
const REFUSED_TWICE: [name: string, definition: unknown, faults: string[]][] = [
  [
    'two paths that are equal in their first 256 characters',
    document({ paths: Object.fromEntries(LONG_PATHS.map(path => [path, null])) }),
    LONG_PATHS.map(path => `dict_type at paths ${cutKey(path)}`),
  ],
  [
    'more null operations than operations may be',
    document({ paths: many(5001, i => [`/p${i}`, { get: null }]) }),
    Array.from({ length: 100 }, (_, i) => `dict_type at paths /p${i} get`),
  ],
  [
    'two placeholders undeclared',
    at('/{a}/{b}', { get: operation }),
    Array(2).fill('path_parameter_undeclared at paths /{a}/{b} get parameters'),
  ],
  [
    'path-level parameters after the methods are reported there',
    at('/x', { get: { summary: 'X' }, parameters: 1, psot: {} }),
    [
      `operation_id_missing at ${GET} operationId`,
      'list_type at paths /x parameters',
      'method_unsupported at paths /x psot',
    ],
  ],
  ['NUL in a key and a string', document({ 'x-\0': 'a\0b' }), ['string_nul at x-\0', 'string_nul at x-\0']],
]

const NO = ref('#/no')
const noReference = { example: NO, default: ref('x.json'), enum: [NO], const: NO, examples: [NO] }
const named = ['菜谱搜索', '菜谱分类', 'a.b', 'a/b', 'a_b'].map(id => [
  `/${id}`,
  { get: { operationId: id, summary: 'X' } },
])
const P0 = ref('#/paths/~1a/get/parameters/0')

const ACCEPTED: Record<string, unknown> = {
  'openapi 3.0': document({ openapi: '3.0' }),
  'title empty': document({ info: { title: '' } }),
  'server with unfilled variables everywhere': withServer('{scheme}://{host}:{port}/{base}'),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: this is how such templates look
  'server of a deployment template': withServer('${{BOT_ENDPOINT}}/api/'),
  'server host in another script': withServer('https://bücher.example.com'),
  'server of the empty text, which is where the document stands': withServer(''),
  'pointer whose slashes are percent-encoded': withBody(ref('#%2Fcomponents%2Fschemas%2FA'), { A: {} }),
  'an identifier, an anchor and a key at their limits': withBody({ $id: 'i'.repeat(512), ['k'.repeat(8192)]: 1 }),
  'null texts fall back': get({ summary: null, description: 'D' }),
  'operationId constructor': get({ operationId: 'constructor' }),
  'placeholder {name+}': at('/{proxy+}', { get: { ...operation, parameters: [{ name: 'proxy', in: 'path' }] } }),
  'placeholder with its operator': at('/{+p}', { get: { ...operation, parameters: [{ name: '+p', in: 'path' }] } }),
  '$ref as the name of a property': withBody({ properties: { $ref: { type: 'string' } } }),
  '$ref inside values is no reference': withBody(noReference),
  'discriminator mappings are no references': withBody({
    discriminator: { propertyName: 'a', mapping: { a: '#/no', b: 'b.json' } },
  }),
  'dangling in an unused component': withBody({}, { Unused: ref('#/no') }),
  'dangling in a response': get({ responses: { 200: ref('x.yaml') } }),
  'dangling in another media type': withContent({ 'text/xml': { schema: ref('#/no') }, 'application/json': {} }),
  'dangling in a method that is passed over': at('/x', { get: operation, head: { parameters: [ref('#/no')] } }),
  'beside $ref in 3.0 nothing counts': withBody({ ...A, items: ref('#/no') }, { A: {} }, { openapi: '3.0.0' }),
  'boolean schemas': withBody({ properties: { a: true }, additionalProperties: false }),
  'percent-encoded pointer': withBody(ref('#/components/schemas/A%20b'), { 'A b': {} }),
  'pointer with escapes': withBody(ref('#/components/schemas/a~1b~0c'), { 'a/b~c': {} }),
  anchor: withBody(ref('#a'), { A: { $anchor: 'a' } }),
  'identifier in the document': withBody(ref('https://e.example.com/a#/$defs/B'), {
    A: { $id: 'https://e.example.com/a', $defs: { B: {} } },
  }),
  'pointer inside a schema with an identifier': withBody({
    $id: 'urn:a',
    items: ref('#/$defs/B'),
    $defs: { B: ref('#') },
  }),
  ...Object.fromEntries(
    ['https://e.example.com/api.json', '/v1/api.json'].map($self => [
      `reference to the document by its own name ${$self}`,
      withBody(ref('api.json#/components/schemas/A'), { A: {} }, { openapi: '3.2.0', $self }),
    ]),
  ),
  'media type that is a reference, from 3.2': withContent(
    { 'application/json': ref('#/components/mediaTypes/M') },
    { openapi: '3.2.0', components: { mediaTypes: { M: {} } } },
  ),
  'media type null': withContent({ 'application/json': null }),
  'path item of another path': at('/a', { 'x-y': 1, $ref: '#/webhooks/w' }, { webhooks: { w: { post: operation } } }),
  'constructor as the name of a property': withBody({ properties: { constructor: { type: 'string' }, prototype: {} } }),
}

/** Definitions with more than one method. */
const ACCEPTED_WITH: [name: string, definition: unknown, methods: number][] = [
  ['operationIds in any script, alike to a model', document({ paths: Object.fromEntries(named) }), 5],
  [
    'reference into another operation',
    document({
      paths: {
        '/a': { get: { ...operation, parameters: [{ name: 'q', in: 'query' }] } },
        '/b': { get: { operationId: 'b', summary: 'B', parameters: [P0] } },
      },
    }),
    2,
  ],
  [
    'path item beside its reference',
    at(
      '/x',
      { $ref: '#/components/pathItems/P', get: operation },
      { components: { pathItems: { P: { get: null, post: { operationId: 'p', summary: 'P' } } } } },
    ),
    2,
  ],
]

t.test('refused: every fault at its place, in order', async t => {
  for (const [url, variables] of BAD_SERVERS)
    t.same(faultsOf(checkDefinition(withServer(url, variables))), ['server_url_invalid at servers 0 url'], url)
  for (const [name, fault, definition] of REFUSED) t.same(faultsOf(checkDefinition(definition)), [fault], name)
  for (const [name, definition, faults] of REFUSED_TWICE) t.same(faultsOf(checkDefinition(definition)), faults, name)
})

t.test('accepted', async t => {
  const one = Object.entries(ACCEPTED).map(([name, definition]) => [name, definition, 1] as const)
  for (const [name, definition, methods] of [...one, ...ACCEPTED_WITH]) {
    const check = checkDefinition(definition)
    t.same(faultsOf(check), [], name)
    t.equal(check.ok && check.methods.length, methods, name)
  }
})

t.test('warned: what is accepted, but with a warning at its place', async t => {
  const parameters = [
    { name: 'a', in: 'path' },
    { name: 'b', in: 'path' },
    { name: 'X-H', in: 'header' },
    { name: 'Accept', in: 'header' },
    { name: 'c', in: 'cookie', schema: 'string' },
    { name: 'a', in: 'path' },
    { name: 'form', in: 'formData' },
  ]
  const get = { operationId: `a b${'c'.repeat(70)}`, summary: 'X', deprecated: true, parameters }
  const servers = [{ url: '/api' }, { url: 'https://{h}.example.com' }]
  const definition = { ...document({ servers, 'x-big': 2 ** 53 + 2 }), paths: { 'x/{a}': { get, HEAD: {} } } }
  const place = 'paths x/{a} get'
  t.same(warningsOf(checkDefinition(definition)), [
    'integer_precision at x-big',
    'server_relative at servers 0 url',
    'server_variable_unfilled at servers 1 url',
    'servers_several at servers',
    'path_without_slash at paths x/{a}',
    `operation_id_long at ${place} operationId`,
    `operation_id_characters at ${place} operationId`,
    `parameter_not_supplied at ${place} parameters 2`,
    `schema_ignored at ${place} parameters 4 schema`,
    `parameter_not_supplied at ${place} parameters 4`,
    `parameter_duplicate at ${place} parameters 5`,
    `parameter_location_unknown at ${place} parameters 6 in`,
    `path_parameter_unused at ${place} parameters 1`,
    `operation_deprecated at ${place} deprecated`,
    `responses_missing at ${place} responses`,
    'method_passed_over at paths x/{a} HEAD',
  ])
  const supplied = warningsOf(checkDefinition(definition, { headerNames: ['x-h', 'Cookie'] }))
  t.notMatch(supplied.join(), 'parameter_not_supplied', 'custom headers supply them')
})

t.test('warned: servers of a path or operation on another host, and an API key in the query', async t => {
  const serversOf = (...urls: string[]) => ({ responses: {}, servers: urls.map(url => ({ url })) })
  const post = { operationId: 'p', summary: 'P', ...serversOf('https://{h}.example.com', '/v3') }
  const get = { ...operation, ...serversOf('https://t.example.com/v2') }
  const { servers } = serversOf('https://other.example.com/v1')
  const schemeIn = (place: string) => ({ type: 'apiKey', in: place, name: 'k' })
  const definition = at(
    '/x',
    { servers, get, post },
    { components: { securitySchemes: { key: schemeIn('query'), other: schemeIn('header') } } },
  )
  t.same(
    warningsOf(checkDefinition(definition)).filter(each => !/unfilled|relative|several/.test(each)),
    ['server_other_host at paths /x servers', 'api_key_in_query at components securitySchemes key'],
  )
})

t.test('msg: the message names the wrong key, or what the document has instead of paths', async t => {
  const check = checkDefinition(document({ paths: undefined, webhooks: {} }))
  t.match(check.ok ? '' : check.faults[0]?.msg, /only webhooks/)
  const method = checkDefinition(at('/x', { psot: {}, get: operation }))
  t.match(method.ok ? '' : method.faults[0]?.msg, /^"psot" is not a method/)
})

t.test('limits: at each one accepted, beyond it refused; the last fault gives the number left out', async t => {
  const check = checkDefinition(document({ paths: many(130, i => [`/p${i}`, null]) }), { at: ['body'] })
  t.equal(check.ok ? 0 : check.faults.length, 100)
  t.match(check.ok ? {} : check.faults.at(-1), { loc: ['body', 'paths', '/p99'], msg: '(and 30 more)' })
  const deep = (levels: number) =>
    checkDefinition(document({ 'x-a': JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`) }))
  t.same([faultsOf(deep(127)), faultsOf(deep(128))], [[], ['definition_too_deep at']])
  const operations = (count: number) => many(count, i => [`/p${i}`, { get: { operationId: `o${i}`, summary: 'X' } }])
  t.same(faultsOf(checkDefinition(document({ paths: operations(5000) }))), [])
  t.same(faultsOf(checkDefinition(document({ paths: operations(5001) }))), ['too_many_operations at paths'])
  const parameters = (count: number) => Array.from({ length: count }, (_, i) => ({ name: `p${i}`, in: 'query' }))
  t.same(faultsOf(checkDefinition(withParameters(parameters(500)))), [])
  t.same(faultsOf(checkDefinition(withParameters(parameters(501)))), [`too_many_parameters at ${GET} parameters`])
  const chain = (hops: number) =>
    many(hops, i => [`S${i}`, i === hops - 1 ? {} : ref(`#/components/schemas/S${i + 1}`)])
  t.same(faultsOf(checkDefinition(withBody(ref('#/components/schemas/S0'), chain(64)))), [])
  t.same(faultsOf(checkDefinition(withBody(ref('#/components/schemas/S0'), chain(65)))), [
    `ref_cycle at ${SCHEMA} $ref`,
  ])
})

t.test('long names: cut with a hash in loc, cut in msg, never inside a surrogate pair', async t => {
  const name = `${'a'.repeat(255)}😀${'b'.repeat(50)}`
  const check = checkDefinition(at('/x', { get: operation, [name]: {} }))
  const [fault] = check.ok ? [] : check.faults
  t.match(fault?.loc.at(-1), /^a{247}~[0-9a-f]{8}$/)
  t.ok(fault?.msg.startsWith(`"${'a'.repeat(100)}"...`))
})

t.test('spec: the operation object itself, not a copy', async t => {
  const definition = document()
  const check = checkDefinition(definition)
  t.equal(check.ok && check.methods[0]?.spec, (definition.paths as Record<string, Json>)['/x']?.get)
})

const allWarnings = (definition: unknown) => {
  const check = checkDefinition(definition)
  return check.warnings.map(({ type, loc, msg }) => ({ type, at: loc.slice(2).join(' '), msg }))
}

t.test('accepted: a host with non-ASCII letters, on every repeated check', async t => {
  const definition = withServer('https://bücher.example.com')
  let refused = 0
  for (let i = 0; i < 10_000; i++) if (!checkDefinition(definition).ok) refused++
  t.equal(refused, 0)
})

t.test('refused: a server without its scheme; the message suggests the address', async t => {
  const urls =
    '10.225.26.25:7894 [::1]:8080 localhost localhost/v1 localhost:3000 my_host:8080/v1 10.0.0.1 a.example:80'
  const meant = Object.fromEntries(urls.split(' ').map(url => [url, `http://${url}`]))
  for (const url of ['a.example:443/v2', 'a.example:8443']) meant[url] = `https://${url}`
  for (const scheme of ['http', 'htp:', 'ttp:', 'http;', 'http::'])
    meant[`${scheme}//a.example.com`] = 'http://a.example.com'
  for (const scheme of ['https', 'htps:', 'hhtps:', ':', 'http://https:'])
    meant[`${scheme}//a.example.com/v1`] = 'https://a.example.com/v1'
  for (const [url, hint] of Object.entries(meant)) {
    const check = checkDefinition(withServer(url))
    t.same(faultsOf(check), ['server_url_invalid at servers 0 url'], url)
    t.match(check.ok ? '' : check.faults[0]?.msg, `did you mean "${hint}"?`, url)
  }
  for (const url of ['169.254.169.254/latest', 'htps://u:p@a.example.com']) {
    const check = checkDefinition(withServer(url))
    t.match(check, { ok: false, faults: [{ msg: /neither http\(s\) nor relative$/ }] }, url)
  }
  t.same(faultsOf(checkDefinition(withServer('10.0.0.1:{port}'))), ['server_url_invalid at servers 0 url'])
  t.match(checkDefinition(withServer('{h}:80/v1')), {
    ok: false,
    faults: [{ msg: 'did you mean "http://{h}:80/v1"?' }],
  })
  t.same(warningsOf(checkDefinition(withServer('/v1'))), ['server_relative at servers 0 url'])
  t.match(allWarnings(withServer('api.example.com/v1')), [{ msg: 'did you mean "https://api.example.com/v1"?' }])
  t.match(allWarnings(withServer('openapi.json')), [{ msg: /such as https:\S+$/ }], 'a file is no host')
})

t.test('warned: one slash after the scheme, a trailing slash, a query or fragment', async t => {
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
  const published = [
    '/#Action=GetAssociatedIpv6PoolCidrs',
    '/soap?method=getCustomerAccountBalanceV2',
    '/x?v=a1b2c3d4e5f6a1b2c3d4e5f6',
  ]
  for (const path of ['/x?beta=true', '/#X-Amz-Target=Svc.Describe', '/x?page_token=abc', ...published]) {
    const check = checkDefinition(at(path, { get: { ...operation, responses: {} } }))
    t.same(warningsOf(check), [`path_query at paths ${path}`])
    t.ok(check.ok, path)
  }
})

t.test('refused: a secret in a server, in a value of its variables, or in a path', async t => {
  const there = ['server_url_invalid at servers 0 url']
  const known = [
    '?key=abc',
    '?v=1&api_key=abc',
    '#access_token=abc',
    `?x=ghp_${'a'.repeat(36)}`,
    `?AKIA${'A'.repeat(16)}`,
  ]
  for (const query of known)
    t.same(faultsOf(checkDefinition(withServer(`https://t.example.com/v1${query}`))), there, query)
  t.same(faultsOf(checkDefinition(withServer('https://t.example.com?key={k}', { k: { default: 'abc' } }))), there)
  t.same(faultsOf(checkDefinition(at('/x?key=abc', { get: operation }))), ['server_url_invalid at paths /x?key=abc'])
  const steps = [
    'v1/sk_live_51HabcdefGHIJKLmnopqrSTUV',
    `x/ghp_${'a'.repeat(36)}`,
    'bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage',
    'x/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmnop',
    `x/AKIA${'A'.repeat(16)}`,
    'services/T00000000/B00000000/abcdefABCDEF1234567890ab',
    `api/webhooks/123456789012345678/${'a-B'.repeat(20)}`,
  ]
  for (const step of steps) {
    const [inServer, inPath] = [withServer(`https://t.example.com/${step}`), at(`/${step}`, { get: operation })].map(
      each => checkDefinition(each),
    )
    t.same(inServer && faultsOf(inServer), there, step)
    t.match(inPath, { ok: false, faults: [{ type: 'server_url_invalid', msg: /^the path carries a secret/ }] }, step)
    const secret = step.split('/').findLast(each => each.length > 15) ?? ''
    t.notMatch(inServer && !inServer.ok && inServer.faults[0]?.msg, secret, 'the secret is not repeated')
  }
  const words = 'asiapacificregions ASIAPACIFICREGIONSET sk-testing xapp-descriptor-list SG.Something bot123:analyze'
  for (const word of [...words.split(' '), 'bot{token}/sendMessage'])
    t.same(faultsOf(checkDefinition(withServer(`https://t.example.com/${word}`))), [], word)
})

t.test('no message repeats user info or a query of an address', async t => {
  const path = { '/x': { get: { ...operation, responses: {} } } }
  for (const definition of [
    withServer('https://user:hunter2@a.example.com/v1?token=hunter2'),
    withServer('user:hunter2@a.example.com/v1'),
    withServer('https://a.example.com/v1?token=hunter2'),
    withServer('https:/a.example.com/v1?v=hunter2'),
    withServer('/v1?v=hunter2'),
    withServer('localhost:8080/v1?v=hunter2'),
    withServer('https://{h}', { h: { default: 'a', enum: ['u:hunter2@a'] } }),
    withParameters([ref('https://u:hunter2@a.example.com/p.json?v=hunter2#/P')]),
    document({ paths: path, servers: ref('https://u:hunter2@a.example.com/p.json?v=hunter2') }),
    at('//a.example.com?v=hunter2', { get: operation }),
  ]) {
    const check = checkDefinition(definition)
    const said = [...(check.ok ? [] : check.faults), ...check.warnings].map(({ msg }) => msg)
    t.match(said.join(), /\*\*\*|carries a secret/, JSON.stringify(definition))
    t.notMatch(said.join(), 'hunter2')
  }
})

t.test(
  'a body of GET, HEAD or DELETE: ignored by 3.0 or an argument, and a warning where it says something',
  async t => {
    const form = (schema: Json, required?: boolean) => ({
      required,
      content: { 'application/x-www-form-urlencoded': { schema } },
    })
    const json = (schema: Json) => ({ required: true, content: { 'application/json': { schema } } })
    const [empty, full] = [{ type: 'object', properties: {} }, { properties: { a: { type: 'string' } } }]
    const UNSUPPORTED = 'request_body_media_type_unsupported'
    for (const [method, requestBody, in30, in31] of [
      ['get', form(empty), [], []],
      ['get', form(empty, true), [], []],
      ['get', ref('#/components/requestBodies/Form'), [], []],
      ['get', { content: {} }, [], []],
      ['get', form(full), ['body_ignored'], ['body_ignored']],
      ['get', form(full, true), ['body_ignored'], ['body_discouraged', UNSUPPORTED]],
      ['GET', json(full), ['body_ignored'], ['body_discouraged', 'argument']],
      ['get', json(empty), [], ['body_discouraged', 'argument']],
      ['get', ref('#/no'), ['body_ignored'], ['ref_unresolved']],
      ['delete', form(empty), [], []],
      ['delete', form(full), ['body_ignored'], ['body_ignored']],
      ['delete', json(full), ['body_discouraged', 'argument'], ['body_discouraged', 'argument']],
      ['delete', { content: { '*/*': {} } }, ['body_discouraged', UNSUPPORTED], ['body_discouraged', UNSUPPORTED]],
      ['post', form(full), [UNSUPPORTED], [UNSUPPORTED]],
      ['post', form(empty), [UNSUPPORTED], [UNSUPPORTED]],
    ] as [string, Json, string[], string[]][])
      for (const [openapi, expected] of [
        ['3.0.3', in30],
        ['3.1.0', in31],
      ] as const) {
        const components = { requestBodies: { Form: form(ref('#/components/schemas/E')) }, schemas: { E: empty } }
        const definition = at('/x', { [method]: { ...operation, requestBody, responses: {} } }, { openapi, components })
        const { check, operations } = inspection(definition, {})
        const found = [...check.warnings, ...(check.ok ? [] : check.faults)].map(({ type }) => type)
        if (operations.some(({ body }) => body !== undefined)) found.push('argument')
        t.same(found, expected, `${openapi} ${method} ${JSON.stringify(requestBody)}`)
      }
  },
)

t.test('refused: placeholders of other dialects and spellings; the message suggests the name', async t => {
  const id = { name: 'id', in: 'path' }
  const undeclared = (path: string, parameters: Json[] = [id]) => {
    const { faults } = inspection(at(path, { get: { ...operation, parameters } }), {})
    t.match(faults, [{ type: 'path_parameter_undeclared' }], path)
    const { name, placeholder, meant } = faults[0]?.data ?? {}
    const renamed = placeholder && path.replace(placeholder, meant ?? '')
    return { msg: faults[0]?.msg, data: { name, renamed } }
  }
  for (const [path, renamed] of Object.entries({
    '/x/{id:int}': '/x/{id}',
    '/x/{int:id}': '/x/{id}',
    '/x/{id:[0-9]+}/y': '/x/{id}/y',
    '/x/{id:\\d{4}}': '/x/{id}',
    '/x/{id?}': '/x/{id}',
    '/x/{ id }': '/x/{id}',
    '/x/{id=projects/*/locations/*}': '/x/{id}',
    '/x/{**id}': '/x/{id}',
    '/x/{id...}': '/x/{id}',
    '/x{/id}': '/x/{id}',
    '/x{.id}': '/x.{id}',
    '/x/{;id}': '/x/{id}',
    '/x/{Id}': '/x/{id}',
    '/x/{I_D}': '/x/{id}',
  })) {
    const fault = undeclared(path)
    t.match(fault.data, { renamed, name: undefined }, path)
    t.match(fault.msg, /means "id": write "[/.]?\{id\}"/)
  }
  t.match(
    undeclared('/x{?q,r}', [
      { name: 'q', in: 'query' },
      { name: 'r', in: 'query' },
    ]).data,
    { renamed: '/x' },
  )
  t.match(undeclared('/x{?q,r}', [{ name: 'q', in: 'query' }]), {
    data: { name: undefined, renamed: undefined },
    msg: /declare/,
  })
  t.match(undeclared('/x/{no:id2}', [id]).data, { name: undefined, renamed: undefined }, 'either could be the name')
  t.match(undeclared('/x/{pet:[a-z]+}', []).data, { renamed: '/x/{pet}' })
  t.match(undeclared('/x/{pet}').data, { name: 'pet' }, 'an ordinary name is to be declared')
  for (const step of [':id', ':id(\\d+)', ':id.json', ':id?', '<id>', '<int:id>', '[id]']) {
    const declared = at(`/x/${step}`, { get: { ...operation, responses: {}, parameters: [id] } })
    const [unused, ...others] = allWarnings(declared).filter(({ type }) => type !== 'path_query')
    t.match([unused, others.length], [{ type: 'path_parameter_unused', msg: /write "\{id\}(\.json)?" for/ }, 0])
    t.match(allWarnings(at(`/x/${step}/y`, { get: { ...operation, responses: {} } })).slice(-1), [
      {
        type: 'path_parameter_undeclared',
        msg: `the path has ${JSON.stringify(step)}, which is sent as it is: write "{id}`,
      },
    ])
  }
  for (const path of ['/x:verb', '/:8080', '/$count', '/x/a:b', '/<>'])
    t.same(allWarnings(at(path, { get: { ...operation, responses: {} } })), [], path)
})

t.test('refused: a path that changes the host when it is appended to a server', async t => {
  const empty = { v: { default: '' } }
  for (const [url, path, variables] of [
    ['/', '/evil.example/x'],
    ['', '//evil.example/x'],
    ['/', '/\\evil.example/x'],
    ['/', '/127.0.0.1:80/x'],
    ['/', '/localhost/x'],
    ['/{v}', '/evil.example/x', empty],
    ['{v}', '//evil.example/x', empty],
    ['/{v}', '/evil.example/x', { v: { default: 'v1', enum: ['v1', ''] } }],
    ['http:/', '/evil.example/x'],
    ['//', '/evil.example'],
    ['https://t.example.com', '.evil.example/x'],
    ['https://t.example.com/v1', '//evil.example/x'],
    ['https://t.example.com', '@evil.example/x'],
    ['https://t.example.com', '\\@evil.example/x'],
    ['https://t.example.com', '{h}/x'],
    ['http', '://evil.example/x'],
  ] as [string, string, Json?][]) {
    const parameters = [{ name: 'h', in: 'path' }]
    const definition = at(path, { get: { ...operation, parameters } }, { servers: [{ url, variables }] })
    const faults = faultsOf(checkDefinition(definition))
    t.match(faults.join(), 'server_url_invalid', `${url} ${path}`)
  }
  for (const [url, path] of [
    ['/', '/pets'],
    ['', '/evil.example/x'],
    ['/', '/2/pets'],
    ['/v1', '/evil.example/x'],
    ['https://t.example.com/', '/evil.example/x'],
    ['https://t.example.com', '/evil.example/x'],
    ['https://t.example.com/v1', 'pets'],
    ['https://t.example.com', '?action=list'],
  ] as const)
    t.same(faultsOf(checkDefinition(at(path, { get: operation }, { servers: [{ url }] }))), [], `${url} ${path}`)
})

t.test('warned: unknown types; the message suggests one', async t => {
  const meant = 'int integer String string float number datetime string str string bool boolean dict object'
  for (const [, type = '', known] of meant.matchAll(/(\S+) (\S+)/g)) {
    const [warning] = allWarnings(withParameters([{ name: 'a', in: 'query', schema: { type } }]))
    t.match(warning, { type: 'schema_type_unknown', at: `${GET} parameters 0 schema type` }, type)
    t.match(warning?.msg, `did you mean \`${known}\`?`)
  }
  t.match(allWarnings(withBody({ type: 'string|null' })), [{ msg: 'did you mean `["string","null"]`?' }])
  t.match(allWarnings(withBody({ type: ['string', 'none'] })), [{ at: `${SCHEMA} type 1` }])
  t.match(allWarnings(withBody({ type: 'array', items: { type: 'thing' } })), [{ at: `${SCHEMA} items type` }])
  t.match(allWarnings(withBody({ typ: 'string' })), [{ type: 'schema_type_unknown', at: `${SCHEMA} typ` }])
  t.same(allWarnings(withBody({ type: ['string', 'null'], properties: { type: { type: 'integer' } } })), [])
})

t.test('warned: a type next to the schema of a parameter, and an unknown location', async t => {
  const at = `${GET} parameters 0`
  t.match(allWarnings(withParameters([{ name: 'a', in: 'query', type: 'int' }])), [
    { type: 'parameter_type_misplaced', at: `${at} type`, msg: '{"type": "integer"}' },
  ])
  const meant = { querry: 'query', Query: 'query', haeder: 'header', cookies: 'cookie' }
  for (const [location, known] of Object.entries(meant))
    t.match(allWarnings(withParameters([{ name: 'a', in: location, schema: {} }])), [
      { type: 'parameter_location_unknown', at: `${at} in`, msg: `did you mean "${known}"?` },
    ])
  t.match(allWarnings(withParameters([{ name: 'a', in: 'formData' }])), [{ msg: 'requestBody' }])
})

/** Formats the warnings of a parameter's schema as `type at path: msg`, with the path from the schema. */
const saidOf = (schema: unknown, openapi = '3.0.3') =>
  allWarnings(withParameters([{ name: 'a', in: 'query', schema }], {}, { openapi })).map(
    ({ type, at, msg }) => `${type} ${at.replace(`${GET} parameters 0 schema`, '').trim()}: ${msg}`,
  )

t.test('warned: values in a form that nothing reads; the message suggests one', async t => {
  for (const [schema, place, meant] of [
    [{ nullable: 'yes' }, 'nullable', 'true'],
    [{ readOnly: 'true' }, 'readOnly', 'true'],
    [{ writeOnly: 0 }, 'writeOnly', 'false'],
    [{ uniqueItems: 'False' }, 'uniqueItems', 'false'],
    [{ deprecated: 1 }, 'deprecated', 'true'],
    [{ minimum: '1.5' }, 'minimum', '1.5'],
    [{ exclusiveMaximum: 'true' }, 'exclusiveMaximum', 'true'],
    [{ minLength: '20' }, 'minLength', '20'],
    [{ multipleOf: '2' }, 'multipleOf', '2'],
    [{ enum: 'hay' }, 'enum', '["hay"]'],
    [{ enum: 'hay, straw' }, 'enum', '["hay", "straw"]'],
    [{ enum: { A: 'happy', B: 'sad' } }, 'enum', '["happy", "sad"]'],
    [{ required: 'name' }, 'required', '["name"]'],
    [{ pattern: 7 }, 'pattern', '"7"'],
    [{ description: 7 }, 'description', '"7"'],
  ] as [Json, string, string][])
    t.match(saidOf(schema), [`value_ignored ${place}: "${place}" is`], `${place} ${meant}`) &&
      t.match(saidOf(schema)[0], `did you mean ${meant}?`)
  for (const schema of [{ enum: [] }, { maxItems: -1 }, { maxItems: 1.5 }, { multipleOf: 0 }, { format: {} }])
    t.match(saidOf(schema), [/^value_ignored/], JSON.stringify(schema))
  t.match(saidOf({ enum: [] }), ['"enum" is an empty list, and a list of values is wanted'])
  t.match(saidOf({ required: ['a', 1] }), ['"required" holds 1, and a list of texts is wanted'])
  t.match(saidOf({ properties: { tag: { required: 'true' } } }), ['"required": ["tag"] in the object around'])
  t.match(
    saidOf({ additionalProperties: 'false' }),
    ['schema_ignored additionalProperties: .*did you mean false?'].map(each => new RegExp(each)),
  )
  t.match(saidOf({ items: 'string' }), [/did you mean \{"type": "string"\}\?/])
  t.same(
    saidOf({
      minimum: null,
      required: [],
      nullable: null,
      exclusiveMinimum: true,
      properties: { a: { required: false } },
    }),
    [],
  )
  const parameter = { name: 'a', in: 'query', required: 'yes', explode: 'true', allowEmptyValue: 1, deprecated: 'no' }
  t.same(warningsOf(checkDefinition(withParameters([parameter]))), [
    ...['required', 'explode', 'allowEmptyValue', 'deprecated'].map(
      key => `value_ignored at ${GET} parameters 0 ${key}`,
    ),
  ])
  const body = post({ deprecated: 'true', requestBody: { required: 'true', content: { 'application/json': {} } } })
  t.same(warningsOf(checkDefinition(body)), [
    `value_ignored at ${POST} requestBody required`,
    `value_ignored at ${POST} deprecated`,
  ])
})

t.test('warned: schemas without a valid value, and defaults outside them', async t => {
  for (const [schema, ...said] of [
    [{ type: 'string', enum: [1, 2] }, 'schema_unsatisfiable enum: .*"1", "2"'],
    [{ type: 'integer', enum: ['a', 'b'] }, 'schema_unsatisfiable enum: .*the type string'],
    [{ type: 'boolean', enum: ['true'] }, 'schema_unsatisfiable enum: .*did you mean true'],
    [{ type: 'string', enum: [1, 'x'] }, 'schema_unsatisfiable enum 0: .*did you mean "1"'],
    [{ type: 'array', items: {}, enum: ['a'] }, 'schema_unsatisfiable enum: .*put "enum" into "items"'],
    [{ type: 'string', const: 1 }, 'schema_unsatisfiable const: '],
    [{ type: 'string', enum: ['a'], maxLength: 0 }, 'schema_unsatisfiable enum: .*"a" is longer than maxLength 0$'],
    [{ type: 'integer', enum: [1], minimum: 3 }, 'schema_unsatisfiable enum: .*1 is below minimum 3$'],
    [
      { type: 'string', enum: ['a'], pattern: '^b$' },
      'schema_unsatisfiable enum: .*does not match the pattern "\\^b\\$"$',
    ],
    [{ type: 'string', enum: ['a', 'b'], pattern: '^(b|c)$' }, 'schema_unsatisfiable enum 0: '],
    [
      { type: 'integer', exclusiveMinimum: 3, exclusiveMaximum: 4 },
      'schema_unsatisfiable exclusiveMinimum: .*3 leaves no integer below exclusiveMaximum 4$',
    ],
    [{ type: 'integer', minimum: 3.2, maximum: 3.8 }, 'schema_unsatisfiable minimum: '],
    [{ type: 'object', required: ['a'], properties: { a: false } }, 'schema_unsatisfiable properties a: '],
    [{ type: 'string', maxLength: 1, default: 'ab' }, 'default_invalid default: .*longer than maxLength 1$'],
    [{ type: 'integer', minimum: 10, maximum: 1 }, 'schema_unsatisfiable minimum: '],
    [{ type: 'number', minimum: 1, maximum: 1, exclusiveMaximum: true }, 'schema_unsatisfiable minimum: '],
    [{ type: 'number', exclusiveMinimum: 1, maximum: 1 }, 'schema_unsatisfiable exclusiveMinimum: '],
    [{ type: 'string', minLength: 1, maxLength: 0 }, 'schema_unsatisfiable minLength: '],
    [{ type: 'array', items: {}, minItems: 3, maxItems: 2 }, 'schema_unsatisfiable minItems: '],
    [{ type: 'object', minProperties: 2, maxProperties: 1 }, 'schema_unsatisfiable minProperties: '],
    [{ not: {} }, 'schema_unsatisfiable not: '],
    [{ allOf: [{ type: 'string' }, { type: 'integer' }] }, 'schema_unsatisfiable allOf: '],
    [{ minimum: 5, type: 'integer', allOf: [{ maximum: 1 }] }, 'schema_unsatisfiable allOf: '],
    [{ allOf: [{ enum: ['a'] }, { enum: ['b'] }] }, 'schema_unsatisfiable allOf: '],
    [{ type: 'object', required: ['a'], additionalProperties: false }, 'schema_unsatisfiable required: '],
    [{ type: 'string', minimum: 2 }, 'value_ignored minimum: .*did you mean "minLength"'],
    [{ type: 'integer', default: '20' }, 'default_invalid default: .*did you mean 20'],
    [{ type: 'integer', default: '20 of them' }, 'default_invalid default: .*the type string'],
    [{ type: 'string', enum: ['a', 'b'], default: 'c' }, 'default_invalid default: '],
    [{ type: 'integer', maximum: 5, default: 6 }, 'default_invalid default: .*above maximum 5'],
    [{ type: 'array', items: {}, default: 'a' }, 'default_invalid default: .*\\["a"\\]'],
    [{ allOf: [{ type: 'integer' }], default: 'a' }, 'default_invalid default: '],
  ] as [Json, ...string[]][]) {
    const found = saidOf(schema)
    t.equal(found.length, said.length, `${JSON.stringify(schema)} ${found}`)
    for (const [i, each] of said.entries()) t.match(found[i], new RegExp(`^${each}`))
  }
  for (const schema of [
    { type: 'number', enum: [1, 2.5] },
    { type: 'string', nullable: true, enum: ['a', null], default: null },
    { type: 'string', default: null },
    { type: ['string', 'null'], enum: ['a', null] },
    { type: ['string', 'integer'], minimum: 2, maximum: 1 },
    { minLength: 2, maxLength: 1 },
    { type: 'thing', minLength: 2, maxLength: 1, enum: [1] },
    { type: 'number', minimum: 1, maximum: 1 },
    { type: 'array', items: {}, enum: [['a']] },
    { allOf: [{ type: 'number' }, { type: 'integer', enum: [1] }] },
    { type: 'string', enum: ['b', 'c'], pattern: '^(b|c)$' },
    { type: 'string', enum: ['a'], pattern: '^[b-d]$' },
    { type: 'integer', exclusiveMinimum: 3, exclusiveMaximum: 5 },
    { type: 'number', exclusiveMinimum: 3, exclusiveMaximum: 4 },
    { type: 'object', required: ['a'], properties: { a: {}, b: false } },
    { type: 'object', required: ['a'], properties: { a: {} }, additionalProperties: false },
  ])
    t.same(
      saidOf(schema).filter(each => !each.startsWith('schema_type_unknown')),
      [],
      JSON.stringify(schema),
    )
})

t.test('no warning about fields that only the server sets: no function has them', async t => {
  const wrong = { type: 'string', enum: [1], nullable: 'yes', properties: { a: { type: 'thing' } } }
  const properties = {
    id: { readOnly: true, ...wrong },
    at: { $ref: '#/components/schemas/At' },
    on: { readOnly: true, allOf: [A] },
  }
  const closed = { type: 'object', required: ['id'], additionalProperties: false }
  const schema = { allOf: [closed, { properties }] }
  const schemas = { At: { readOnly: true, ...wrong }, A: wrong }
  t.same(warningsOf(checkDefinition(withBody(schema, schemas))), [])
  t.equal(warningsOf(checkDefinition(withBody({ allOf: [schema, { properties: { a: A } }] }, schemas))).length, 3)
  const dangling = { properties: { id: { readOnly: true, items: ref('#/no') } } }
  t.same(faultsOf(checkDefinition(withBody(dangling))), [`ref_unresolved at ${SCHEMA} properties id items $ref`])
})

t.test('#/$defs/X of a schema inside the document: the fault has its place and the correct reference', async t => {
  const check = checkDefinition(withBody({ properties: { a: ref('#/$defs/X') }, $defs: { X: { type: 'string' } } }))
  t.same(faultsOf(check), [`ref_unresolved at ${SCHEMA} properties a $ref`])
  t.match(check.ok ? '' : check.faults[0]?.msg, '#/components/schemas/X')
  const other = checkDefinition(withBody({ properties: { a: ref('#/$defs/Y') }, $defs: { X: {} } }))
  t.notMatch(other.ok ? '' : other.faults[0]?.msg, '#/components/schemas/Y')
})

t.test('a sentence names what stands there', async t => {
  const msgOf = (definition: unknown) => {
    const check = checkDefinition(definition)
    return (check.ok ? check.warnings : check.faults).map(({ msg }) => msg)
  }
  t.match(msgOf({ swagger: { toString: 1 } }), [/^"swagger" is an object, which is no version: convert/])
  t.match(msgOf({ swagger: '1.2' }), [/^Swagger "1.2" is not supported/])
  const item = { get: { ...operation, responses: {} } }
  for (const paths of [{ '<<': item }, { '/x': { ...item, '<<': item } }])
    t.match(msgOf(document({ paths })), [/^only YAML merges by the key "<<"/])
  const required = { name: 'q', in: 'query', required: true, schema: false }
  t.match(msgOf(withParameters([required])), ['no value is valid for the schema false'])
  t.match(msgOf(withParameters([{ ...required, required: false }])), [])
  const requestBody = { required: true, content: { 'application/json': { schema: false } } }
  t.match(msgOf(post({ requestBody })), ['no value is valid for the schema false'])
})

t.test('warned: a merge key, which only YAML has', async t => {
  const definition = withParameters([{ '<<': { in: 'query' }, name: 'a', in: 'query', schema: { '<<': {} } }])
  t.same(warningsOf(checkDefinition(definition)), [
    `merge_key_ignored at ${GET} parameters 0 <<`,
    `merge_key_ignored at ${GET} parameters 0 schema <<`,
  ])
})

t.test('warned: two path templates that match the same paths', async t => {
  const get = (id: string, name: string) => ({
    get: { ...operation, operationId: id, responses: {}, parameters: [{ name, in: 'path' }] },
  })
  const paths = { '/order/{id}': get('a', 'id'), '/order/{number}': get('b', 'number'), '/orders/{id}': get('c', 'id') }
  t.same(warningsOf(checkDefinition(document({ paths }))), ['path_template_repeated at paths /order/{number}'])
})

t.test('warned: an allOf of closed objects without a valid value', async t => {
  const closed = (name: string) => ({ additionalProperties: false, required: [name], properties: { [name]: {} } })
  const both = { allOf: [ref('#/components/schemas/A'), closed('b')] }
  t.same(warningsOf(checkDefinition(withBody(both, { A: closed('a') }))), [`schema_unsatisfiable at ${SCHEMA} allOf`])
  const open = { ...closed('b'), additionalProperties: true }
  for (const allOf of [[open, { ...open, required: ['a'] }], [closed('a'), { required: ['a'] }], [closed('a')]])
    t.same(warningsOf(checkDefinition(withBody({ allOf }))), [])
})
