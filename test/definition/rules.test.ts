import { readFileSync } from 'node:fs'
import t from 'tap'
import { parse } from 'yaml'
import { FAULTS, typeOf, WARNINGS } from '../../src/definition/check/rules.js'
import { checkDefinition, type DefinitionCheck, originsOf, unusableServer } from '../../src/definition/index.js'
import { document, FORM, type Json, many, operation, ref, schemaRef } from './document.js'

const GET = 'paths /x get'
const POST = 'paths /x post'
const CONTENT = `${POST} requestBody content`
const JSON_AT = `${CONTENT} application/json`
const SCHEMA = `${JSON_AT} schema`
const URL_AT = 'servers 0 url'
const A = schemaRef('A')

const at = (path: string, item: unknown, more: Json = {}) => document({ paths: { [path]: item }, ...more })
const get = (more: Json, top: Json = {}) => at('/x', { get: { ...operation, ...more } }, top)
const post = (more: Json, top: Json = {}) => at('/x', { post: { ...operation, ...more } }, top)
const withContent = (content: unknown, top: Json = {}) => post({ requestBody: { content } }, top)
const withBody = (schema: unknown, schemas: Json = {}, top: Json = {}) =>
  withContent({ 'application/json': { schema } }, { components: { schemas }, ...top })
const withForm = (properties: Json, encoding?: Json) =>
  withContent({ [FORM]: { schema: { type: 'object', properties }, encoding } })
const withParameters = (parameters: unknown, components: Json = {}) => get({ parameters }, { components })
const withServer = (url: unknown, variables: Json = {}) => document({ servers: [{ url, variables }] })
const itemRef = () => ref('#/components/pathItems/P')
const long = (count: number) => 'k'.repeat(count)

const shown = (found: DefinitionCheck['warnings']) =>
  found.map(({ type, loc }) => `${type} at ${loc.slice(2).join(' ')}`.trim())
const faultsOf = (definition: unknown) => {
  const check = checkDefinition(definition)
  return check.ok ? [] : shown(check.faults as DefinitionCheck['warnings'])
}
const warningsOf = (definition: unknown) => shown(checkDefinition(definition).warnings)
const messagesOf = (definition: unknown) => {
  const check = checkDefinition(definition)
  return [...(check.ok ? [] : check.faults), ...check.warnings].map(({ msg }) => msg)
}

const P = ref('#/components/parameters/P')
const NO = ref('#/no')
const LONG = long(8193)

/** Refused definitions and all their faults, in document order. */
const REFUSED: [name: string, definition: unknown, ...faults: string[]][] = [
  ['no object', [], 'dict_type at'],
  ['openapi 2.0', document({ openapi: '2.0' }), 'openapi_version_unsupported at openapi'],
  ['openapi 3 without a minor version', document({ openapi: '3' }), 'openapi_version_unsupported at openapi'],
  ['Swagger', { swagger: { toString: 1 } }, 'openapi_version_unsupported at swagger'],
  ['info is a list', document({ info: [] }), 'dict_type at info'],
  ['info is a reference', document({ info: ref('#/x-info') }), 'dict_type at info'],
  ['title is null', document({ info: { title: null } }), 'string_type at info title'],
  ['servers null', document({ servers: null }), 'list_type at servers'],
  ['server is a string', document({ servers: ['https://a.example.com'] }), 'dict_type at servers 0'],
  ['url blank', withServer(' '), `server_url_missing at ${URL_AT}`],
  ['url is a number', withServer(1), `string_type at ${URL_AT}`],
  ['url too long', withServer(`https://a.example.com/${long(8192)}`), `server_url_invalid at ${URL_AT}`],
  ['only webhooks', document({ paths: undefined, webhooks: { w: { post: operation } } }), 'missing at paths'],
  ['only extensions in paths', document({ paths: { 'x-a': 1 } }), 'operations_missing at paths'],
  ['none left', withContent({ 'text/plain': {} }), 'operations_missing at paths'],
  ['operation is a reference', at('/x', { get: ref('#/x-a') }), `dict_type at ${GET}`],
  ['operationId blank', get({ operationId: ' ' }), `operation_id_missing at ${GET} operationId`],
  ['both texts blank', get({ summary: ' ', description: '\t\u00a0' }), `summary_missing at ${GET} summary`],
  ['placeholder closed only', at('/x}', { get: operation }), 'path_template_invalid at paths /x}'],
  ['placeholder nested', at('/{a{b}}', { get: operation }), 'path_template_invalid at paths /{a{b}}'],
  ['placeholder empty', at('/{}', { get: operation }), 'path_template_invalid at paths /{}'],
  [
    'a placeholder declared in the query, and another',
    at('/{a}/{b:[0-9]{4}}', { get: { ...operation, parameters: [{ name: 'a', in: 'query' }] } }),
    ...Array(2).fill('path_parameter_undeclared at paths /{a}/{b:[0-9]{4}} get parameters'),
  ],
  ['parameter name empty', withParameters([{ name: '', in: 'query' }]), `missing at ${GET} parameters 0 name`],
  ['parameter name a number', withParameters([{ name: 1, in: 'query' }]), `string_type at ${GET} parameters 0 name`],
  ['parameter: a schema', withParameters([A], { schemas: { A: {} } }), `ref_target_type at ${GET} parameters 0 $ref`],
  ['parameter: a text', withParameters([ref('#/info/title')]), `ref_target_type at ${GET} parameters 0 $ref`],
  ['parameter: of two letters', withParameters([{ $ref: 12 }]), `string_type at ${GET} parameters 0 $ref`],
  [
    'a fault in a component, once',
    document({
      paths: many(2, i => [`/${i}`, { get: { ...operation, operationId: `o${i}`, parameters: [P] } }]),
      components: { parameters: { P: { in: 'query' } } },
    }),
    'missing at components parameters P name',
  ],
  ['a broken chain', withParameters([P], { parameters: { P: NO } }), 'ref_unresolved at components parameters P $ref'],
  [
    'a path item used twice',
    document({ paths: { '/x': itemRef(), '/y': itemRef() }, components: { pathItems: { P: { get: operation } } } }),
    'operation_id_duplicate at paths /y $ref',
  ],
  ['media type a list', withContent({ 'application/json': [] }), `dict_type at ${JSON_AT}`],
  ['dangling there', withBody(A, { A: { not: NO } }), 'ref_unresolved at components schemas A not $ref'],
  ['a bare name', withBody(ref('Pet')), `ref_external at ${SCHEMA} $ref`],
  ['an anchor', withBody(ref('#a'), { A: { $anchor: 'a' } }), `ref_unresolved at ${SCHEMA} $ref`],
  ['a member of every object', withBody(ref('#/components/constructor')), `ref_unresolved at ${SCHEMA} $ref`],
  ['the whole document', withBody(ref('#')), `ref_unresolved at ${SCHEMA} $ref`],
  ['an identifier', withBody(ref('urn:a'), { A: { $id: 'urn:a' } }), `ref_external at ${SCHEMA} $ref`],
  ['a dynamic reference', withBody({ $dynamicRef: '#a' }), `ref_unresolved at ${SCHEMA} $dynamicRef`],
  ['a schema that is itself', withBody(A, { A }), `ref_cycle at ${SCHEMA} $ref`],
  ['beside $ref in 3.1', withBody({ ...A, items: ref('#/no') }, { A: {} }), `ref_unresolved at ${SCHEMA} items $ref`],
  [
    'a subtype',
    withBody(A, { A: { discriminator: { propertyName: 'k' } }, B: { allOf: [A, NO] } }),
    'ref_unresolved at components schemas B allOf 1 $ref',
  ],
  ['a long reference', withBody(ref(`#/${long(8192)}`)), `ref_unresolved at ${SCHEMA} $ref`],
  ['a key too long', document({ 'x-a': { [LONG]: 1, [long(8192)]: 1 } }), `string_too_long at x-a ${LONG}`],
  ['half a surrogate pair', document({ 'x-a': ['ok', '\udc00'] }), 'string_unicode at x-a 1'],
  ['NUL in a key and a text', document({ 'x-\0': 'a\0b' }), 'string_nul at x-\0', 'string_nul at x-\0'],
  ['infinity', document({ 'x-a': Number.POSITIVE_INFINITY }), 'finite_number at x-a'],
  ['a prototype', JSON.parse(JSON.stringify(document()).replace('{', '{"__proto__":1,')), 'key_forbidden at __proto__'],
  ['a constructor', document({ 'x-a': { constructor: { prototype: 1 } } }), 'key_forbidden at x-a constructor'],
  [
    'in document order, what is missing first',
    at('/x', { get: { summary: 'X' }, parameters: 1, psot: {} }, { servers: undefined }),
    'servers_missing at servers',
    `operation_id_missing at ${GET} operationId`,
    'list_type at paths /x parameters',
    'method_unsupported at paths /x psot',
  ],
]

/** Refused server addresses, with a part of the message and the default of the variable. */
const BAD_SERVERS: [url: string, why: string, variable?: string][] = parse(String.raw`[['https://', is not valid],
  ['localhost:8080/v1', be relative], ['10.0.0.1:80', be relative], ['ws://a.example.com', be relative], ['https://a.example.com /', 'remove or percent-encode " " in the url'],
  ["/\t", percent-encode], ['https://a.example.com\b', percent-encode], ['https://u:p@a.example.com', user name],
  ['https://a.example.com/v1?a=1', query], ['https://{h}', fragment, 'a.example.com/#x'], ['http://{h}/', is not valid, '{b}'],
  ['https://a.example.com/sk-abc123def456', secret], ['https://a.example.com/ghp_${'a1'.repeat(18)}/x', secret],
  ['http://metadata.google.internal/x', metadata], ['https://{h}/x', metadata, 169.254.169.254]]`)
const METADATA_HOSTS =
  `100.100.100.200/latest/meta-data 0x646464c8 168.63.129.16/machine 192.0.0.192 metadata.goog. a.metadata.goog METADATA.google.internal
  [2002:a9fe:a9fe::1]/ [2002:6464:64c8::]/ [64:ff9b::a83f:8110]/ [64:ff9b:1::a9fe:a9fe]/ [::ffff:100.100.100.200]/
  [fd20:ce::254]/ [fd00:ec2::254]/ [fe80::1]`.split(/\s+/)
const GOOD_SERVERS = `https://bücher.example.com http://localhost:8080 http://10.0.0.1/v1 /v1 https:a.example.com
  https://a.example.com/sk-sk/sk-learn https://a.example.com/AKIA/{k} https://metadata.googleapis.com
  https://mymetadata.google.com https://metadata.goog.example.com /@scope/x`.split(/\s+/)

t.test('refused: every fault at its place, in document order', async t => {
  for (const [name, definition, ...faults] of REFUSED) t.same(faultsOf(definition), faults, name)
})

t.test('refused: addresses that no call can go to, or that carry secrets, which no message repeats', async t => {
  for (const host of METADATA_HOSTS) BAD_SERVERS.push([`http://${host}`, 'link-local'])
  for (const [url, why, value] of BAD_SERVERS) {
    const definition = withServer(url, { h: { default: value } })
    t.same(faultsOf(definition), [`server_url_invalid at ${URL_AT}`], url)
    t.match(messagesOf(definition)[0], why, url)
    if (value === undefined) continue
    const listed = withServer(url, { h: { default: 'a.example.com', enum: ['a.example.com', value] } })
    t.same(faultsOf(listed), [`server_url_invalid at ${URL_AT}`], `${url} as one of its values`)
  }
  const ports = Array.from({ length: 17 }, (_, port) => port)
  const many = withServer('http://a:{p}{q}/', { p: { default: 1, enum: ports }, q: { default: 1, enum: ports } })
  t.match(messagesOf(many), [/make more than 256 urls/])
  t.match(messagesOf(withServer('http://{a}.{b}', { a: { enum: ['169.254'] }, b: { enum: ['169.254'] } })), [
    /metadata/,
  ])
  for (const url of [...GOOD_SERVERS, ''])
    t.same(faultsOf(document({ servers: [{ url }, { url: 'ws://not-judged' }] })), [], url)
  t.match(unusableServer('http://169.254.169.254'), /link-local/)
  t.match(unusableServer('/v1'), /must begin/)
  t.equal(unusableServer('https://a.example.com'), undefined)
  const paths = { [`/x/AIza${'b2'.repeat(10)}`]: { get: operation } }
  t.same(faultsOf(document({ paths })).length, 1)
  for (const definition of [
    withServer('https://user:hunter2@a.example.com'),
    withServer('https://a.example.com/v1?token=hunter2'),
    withServer('https://a.example.com/xoxb-1-hunter2'),
    ...['sk-hunter2-/ x', 'sk-hunter2-?a=1', '{b}'].map(end =>
      withServer(`https://a.example.com/${end}`, { b: { default: 'sk-hunter2-\\' } }),
    ),
    at('/sk-hunter2-/{x', { get: operation }),
    document({ paths: { '/sk-hunter2-': { get: operation }, '/x': { get: operation } } }),
    at('//sk-hunter2-', { get: operation }),
    withParameters([ref('https://u:hunter2@a.example.com/p.json?v=hunter2#/P')]),
  ])
    t.notMatch(messagesOf(definition).join(), 'hunter2')
  for (const url of parse(String.raw`['https://u:hunter2@h:99999', 'ftp://u:hunter2@h', 'https://u:hunt er2@h', '//u:p@h',
    'https:\\u:p@h', 'https:u:p@h', 'https://@h']`)) {
    t.match(messagesOf(withServer(url)), [/user name/], url)
    t.notMatch(messagesOf(withServer(url)).join(), 'hunt', url)
  }
})

t.test('refused: a path that changes the host when it is joined to the server', async t => {
  const parameters = [{ name: 'h', in: 'path' }]
  const faultsAt = (url: string, path: string, first?: string) =>
    faultsOf(
      at(
        path,
        { get: { ...operation, parameters } },
        { servers: [{ url, variables: { v: { default: first }, w: { default: '/', enum: ['/', ''] } } }] },
      ),
    )
  const refused: [url: string, path: string, first?: string][] = parse(String.raw`[[/, /evil.example/x],
    ['', //evil.example/x], [/, '/\evil.example/x'], [/, "/\t/evil.example/x"], [/, '/127.0.0.1:80/x'], [/, /localhost/x],
    ['{v}', //evil.example/x, ''], ['https://t.example.com{w}', .evil.example/x, ''], ['http:/', /evil.example/x], ['https://t.example.com', .evil.example/x],
    ['https://t.example.com/v1', //evil.example/x], ['https://t.example.com/v1', 'https://evil.example/x'],
    ['https://t.example.com', '@evil.example/x'], ['https://t.example.com', '\@evil.example/x'],
    ['https://t.example.com', '{h}/x'], [http, '://evil.example/x']]`)
  for (const each of refused) t.match(faultsAt(...each).join(), 'server_url_invalid at paths', each.join(' '))
  const accepted: [url: string, path: string][] = parse(`[[/, /pets], ['', /evil.example/x], [/, /2/pets],
    [/v1, /evil.example/x], ['https://t.example.com/', /evil.example/x], ['https://t.example.com/v1', pets],
    ['https://t.example.com', ?action=list], ['https:t.example.com', /x]]`)
  for (const each of accepted) t.same(faultsAt(...each), [], each.join(' '))
})

const M = ref('#/components/mediaTypes/M')
const ACCEPTED: Record<string, unknown> = {
  'title empty': document({ info: { title: '' } }),
  'server with unfilled variables everywhere': withServer('{scheme}://{host}:{port}/{base}'),
  'a pointer whose slashes are percent-encoded': withBody(ref('#%2Fcomponents%2Fschemas%2FA'), { A: {} }),
  'null texts fall back': get({ summary: null, description: 'D' }),
  'placeholder {name+}': at('/{proxy+}', { get: { ...operation, parameters: [{ name: 'proxy', in: 'path' }] } }),
  'placeholder with its operator': at('/{+p}', { get: { ...operation, parameters: [{ name: '+p', in: 'path' }] } }),
  '$ref as the name of a property': withBody({ properties: { $ref: { type: 'string' } } }),
  '$ref inside values is no reference': withBody({ example: NO, default: NO, enum: [NO], const: NO, examples: [NO] }),
  'dangling in an unused component': withBody({}, { Unused: NO }),
  'dangling in a response': get({ responses: { 200: ref('x.yaml') } }),
  'dangling in another media type': withContent({ 'text/xml': { schema: NO }, 'application/json': {} }),
  'dangling in a method that is passed over': at('/x', { get: operation, head: { parameters: [NO] } }),
  'dangling in a field that only the server sets': withBody({ properties: { a: { readOnly: true, items: NO } } }),
  'beside $ref in 3.0 nothing counts': withBody({ ...A, items: NO }, { A: {} }, { openapi: '3.0.0' }),
  'boolean schemas': withBody({ properties: { a: true }, additionalProperties: false }),
  'pointer with escapes': withBody(ref('#/components/schemas/a~1b~0c%20d'), { 'a/b~c d': {} }),
  'a key with a percent sign': withBody(ref('#/components/schemas/50%'), { '50%': {} }),
  'media type that is a reference': withContent({ 'application/json': M }, { components: { mediaTypes: { M: {} } } }),
  'path item of another path': at('/a', { 'x-y': 1, $ref: '#/webhooks/w' }, { webhooks: { w: { post: operation } } }),
  'path item beside its reference': at(
    '/x',
    { $ref: '#/components/pathItems/P', get: operation },
    { components: { pathItems: { P: { get: null } } } },
  ),
}

t.test('accepted', async t => {
  for (const [name, definition] of Object.entries(ACCEPTED)) {
    const check = checkDefinition(definition)
    t.same(faultsOf(definition), [], name)
    t.equal(check.ok && check.methods.length, 1, name)
  }
})

const parameter = (more: Json) => withParameters([{ name: 'a', in: 'query', ...more }])
const P0 = `${GET} parameters 0`
const Q = { name: 'a', in: 'query' }
const KEY = { components: { securitySchemes: { k: { ...Q, type: 'apiKey' } } } }
const cat = { type: 'object', properties: { kind: { type: 'string' } } }

const bodyOfGet = (type: string, schema: Json) =>
  get({ requestBody: { content: { [type]: { schema } } } }, { openapi: '3.0.3' })

/** Accepted definitions and all their warnings, in document order. */
const WARNED: [name: string, definition: unknown, ...warnings: string[]][] = [
  ['a relative server', withServer('/api'), `address_incomplete at ${URL_AT}`],
  ['a variable without a default', withServer('https://{h}.example.com'), `address_incomplete at ${URL_AT}`],
  ['a second server', document({ servers: [{ url: 'https://t.example.com' }, {}] }), 'server_ignored at servers 1'],
  ['a server of an operation', get({ servers: [{ url: '/o' }] }), `server_ignored at ${GET} servers`],
  ['a server of a path', at('/x', { get: operation, servers: [{ url: '/v2' }] }), 'server_ignored at paths /x servers'],
  ['the same server again', get({ servers: [{ url: 'https://t.example.com' }] })],
  ['a key in the query', get({}, KEY), 'address_incomplete at components securitySchemes k'],
  ['a key that is a parameter', get({ parameters: [Q] }, KEY)],
  ['a fragment in a path', at('/#Action=A', { get: operation }), 'address_incomplete at paths /#Action=A'],
  [
    'HEAD and QUERY',
    at('/x', { get: operation, HEAD: {}, query: {} }),
    'method_passed_over at paths /x HEAD',
    'method_passed_over at paths /x query',
  ],
  ['a parameter of no place', parameter({ in: 'formData' }), `parameter_ignored at ${P0} in`],
  ['a parameter twice', withParameters([Q, Q]), `parameter_ignored at ${GET} parameters 1`],
  ['a parameter without placeholder', parameter({ in: 'path' }), `parameter_ignored at ${GET} parameters`],
  ['a value where a schema is expected', parameter({ schema: 'string' }), `value_ignored at ${P0} schema`],
  [
    'flags as texts',
    parameter({ required: 'yes', explode: 1, style: {}, content: [] }),
    ...['required', 'explode', 'style', 'content'].map(key => `value_ignored at ${P0} ${key}`),
  ],
  ['a type beside the schema', parameter({ type: 'string' }), `key_unknown at ${P0} type`],
  ['a body of GET in 3.0', bodyOfGet('application/json', cat), `body_ignored at ${GET} requestBody`],
  ['an empty body of GET in 3.0', bodyOfGet(FORM, { type: 'object' })],
  [
    'an optional body of DELETE of no known type',
    at('/x', { delete: { ...operation, requestBody: { content: { 'text/csv': { schema: { type: 'string' } } } } } }),
    'body_ignored at paths /x delete requestBody',
  ],
  ['a media type without schema', withContent({ 'application/json': {} }), `schema_missing at ${JSON_AT}`],
  ['a media type of null', withContent({ 'application/json': null }), `schema_missing at ${JSON_AT}`],
  ...parse(`[[nullable, 'yes'], [readOnly, 'true'], [minimum, '1.5'], [exclusiveMaximum, 'true'], [minLength, '20'],
    [maxItems, -1], [maxItems, 1.5], [multipleOf, 0], [enum, []], [enum, { A: happy }], [required, [a, 1]], [pattern, 7],
    [type, file], [type, [string, none]], [properties, 1], [allOf, {}], [additionalProperties, 'false'], [items, string],
    [items, [{}]], [required, true]]`).map(([key, value]: [string, unknown]) => [
    `${key} ${value}`,
    withBody({ [key]: value }),
    `value_ignored at ${SCHEMA} ${key}`,
  ]),
  ['null is absent', withBody({ minimum: null, required: [], nullable: null, exclusiveMinimum: true })],
  ['an extension', withBody({ 'x-a': 1, properties: { anything: {} } })],
  [
    'fields that only the server sets',
    withBody({ properties: { a: { readOnly: true, type: 'thing' }, b: A } }, { A: { readOnly: true, typ: 1 } }),
  ],
]

t.test('warned: what neither the model nor the call gets, at its place', async t => {
  for (const [name, definition, ...warnings] of WARNED) {
    t.same(faultsOf(definition), [], name)
    t.same(warningsOf(definition), warnings, name)
  }
})

const CAPITAL_KEYS =
  `a post requestBody Required|b get parameters 0 Name|c get operationid|d get Summary|d get Parameters
  |e get params|e get parameter|f post body|g post requestbody`.split(/\s*[|]/)

t.test('warned: keys that OpenAPI does not define, where the input is read', async t => {
  const read = (name: string) => JSON.parse(readFileSync(`test/fixtures/keys/${name}.json`, 'utf8'))
  const media = (path: string) => `paths ${path} post requestBody content application/json`
  t.same(warningsOf(read('capital-keys')), [
    ...['Type', 'Properties', 'Required'].map(key => `key_unknown at ${media('/a')} schema ${key}`),
    ...CAPITAL_KEYS.map(place => `key_unknown at paths /${place}`),
  ])
  t.same(warningsOf(read('media-type-without-schema')), [
    `schema_missing at ${media('/x')}`,
    ...['type', 'required', 'properties'].map(key => `key_unknown at ${media('/x')} ${key}`),
  ])
  t.same(warningsOf(read('nested-schema')), ['key_unknown at components schemas DocumentContent schema'])
})

t.test('passed over: what no argument can carry, also behind a reference; a required body of DELETE too', async t => {
  const text = { type: 'string' }
  const list = { type: 'array', items: text }
  const pair = { type: 'object', properties: { a: text } }
  const passedOver = { type: 'operation_passed_over', loc: ['body', 'definition', 'paths', '/x', 'post'] }
  const lost: [string, unknown][] = [
    ['text', withContent({ 'text/plain': { schema: text } })],
    ['any type', withContent({ '*/*': {} })],
    ['no type', post({ requestBody: {} })],
    [
      'by reference',
      post(
        { requestBody: ref('#/components/requestBodies/B') },
        { components: { requestBodies: { B: { content: { 'multipart/form-data': {} } } } } },
      ),
    ],
    ['a form that is a list', withContent({ [FORM]: { schema: list } })],
    ['XML in a form', withForm({ a: pair }, { a: { contentType: 'application/xml' } })],
    ['lists in a list', withForm({ a: { type: 'array', items: list } })],
    ['objects in a list', withForm({ a: { type: 'array', items: pair } })],
    ['lists in an object', withForm({ a: { properties: { b: list } } })],
    ['an object by pipes', withForm({ a: pair }, { a: { style: 'pipeDelimited' } })],
    ['a style that does not exist', withForm({ a: list }, { a: { style: 'tabDelimited' } })],
    ['a parameter in such a style', post({ parameters: [{ name: 'a', in: 'query', style: 'tabDelimited' }] })],
    ['one of the path', at('/x', { parameters: [{ name: 'a', in: 'query', style: 'tabDelimited' }], post: operation })],
  ]
  for (const [name, definition] of lost) {
    const { paths, ...others } = definition as { paths: Json }
    const check = checkDefinition({ ...others, paths: { ...paths, '/y': { get: { operationId: 'y', summary: 'Y' } } } })
    t.match(check, { ok: true, methods: [{ name: 'y' }], warnings: [passedOver] }, name)
    t.equal(check.warnings.filter(({ type }) => type === passedOver.type).length, 1)
    t.same(faultsOf(definition), ['operations_missing at paths'], name)
  }
  const deep = { type: 'object', properties: { list: { type: 'array', items: pair } } }
  for (const form of [
    withForm({ a: list, b: pair, c: { anyOf: [text, list] } }),
    withForm({ a: { allOf: [pair] }, b: { type: 'object', additionalProperties: text } }),
    withForm({ a: text }, { a: { contentType: 'text/plain' } }),
    withForm({ a: deep, b: deep }, { a: { style: 'deepObject' }, b: { contentType: 'application/json' } }),
  ])
    t.same(warningsOf(form), [])
  const wanted = { required: true, content: { 'text/csv': {} } }
  t.match(warningsOf(at('/x', { get: operation, delete: { ...operation, operationId: 'd', requestBody: wanted } })), [
    'operation_passed_over at paths /x delete',
  ])
  t.match(
    faultsOf(post({ operationId: undefined, requestBody: wanted })),
    [`operation_id_missing at ${POST} operationId`],
    'a malformed operation is a fault',
  )
})

t.test('origins: those of all servers, also of paths and operations, and behind a reference', async t => {
  const server = (host: string) => ({ servers: [{ url: `https://${host}.example.com/v1` }] })
  const item = { ...server('b'), get: { ...operation, ...server('c') } }
  const definition = document({
    paths: { '/x': ref('#/components/pathItems/P') },
    components: { pathItems: { P: item } },
  })
  t.same(
    [...originsOf(definition)],
    ['t', 'b', 'c'].map(host => `https://${host}.example.com`),
  )
})

t.test('limits: at each one accepted, beyond it refused; the last fault gives the number left out', async t => {
  const check = checkDefinition(document({ paths: many(130, i => [`/p${i}`, null]) }), { at: ['body'] })
  t.equal(check.ok ? 0 : check.faults.length, 100)
  t.match(check.ok ? {} : check.faults.at(-1), { loc: ['body', 'paths', '/p99'], msg: '(faults not listed: 30)' })
  const deep = (levels: number) => document({ 'x-a': JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`) })
  t.same([faultsOf(deep(127)), faultsOf(deep(128))], [[], ['definition_too_deep at']])
  const operations = (count: number) =>
    document({ paths: many(count, i => [`/p${i}`, { get: { operationId: `o${i}`, summary: 'X' } }]) })
  t.same([faultsOf(operations(5000)), faultsOf(operations(5001))], [[], ['too_many_operations at paths']])
  const parameters = (count: number) => Array.from({ length: count }, (_, i) => ({ name: `p${i}`, in: 'query' }))
  t.same(faultsOf(withParameters(parameters(500))), [])
  t.same(faultsOf(withParameters(parameters(501))), [`too_many_parameters at ${GET} parameters`])
  const both = at('/x', { parameters: parameters(500), get: { ...operation, parameters: [Q] } })
  t.same(faultsOf(both), [`too_many_parameters at ${GET} parameters`])
  const chain = (hops: number) =>
    withBody(
      ref('#/components/schemas/S0'),
      many(hops, i => [`S${i}`, i === hops - 1 ? {} : ref(`#/components/schemas/S${i + 1}`)]),
    )
  t.same([faultsOf(chain(64)), faultsOf(chain(65))], [[], [`ref_cycle at ${SCHEMA} $ref`]])
  t.match([messagesOf(chain(65)), messagesOf(withBody(A, { A }))], [[/through more than 64/], [/into a circle/]])
})

t.test('a sentence names what stands there; a spec is the operation itself', async t => {
  t.match(messagesOf({ swagger: '1.2' }), [/^Swagger "1.2" is not supported/])
  t.match(messagesOf(document({ openapi: '4.0' })), ['"openapi" must be a version of OpenAPI 3, such as "3.1.0"'])
  t.same(messagesOf(document({ openapi: '3.9.0' })), [])
  const csv = { requestBody: { content: { 'text/csv': { schema: { type: 'string' } } } } }
  t.match(messagesOf(at('/x', { delete: { ...operation, ...csv } })), [/body of delete, because it is neither JSON/])
  t.match(messagesOf(at('/x', { psot: {} })), [/^a path cannot have the key "psot"/])
  t.match(messagesOf(at('/{a}', { get: operation })), [
    'the placeholder "a" of the path is not declared: add {"name": "a", "in": "path"',
  ])
  t.match(messagesOf(at('/x', { get: operation, [long(101)]: {} })), [
    new RegExp(`have the key "${long(100)}"\\.\\.\\.:`),
  ])
  const definition = document()
  const check = checkDefinition(definition)
  t.equal(check.ok && check.methods[0]?.spec, (definition.paths as Record<string, Json>)['/x']?.get)
})

t.test('DECISIONS section 12 shows the faults and at most ten kinds of warnings', async t => {
  const page = readFileSync('openapi/DECISIONS.md', 'utf8')
  for (const [heading, rules] of [
    ['fault', FAULTS],
    ['warning', WARNINGS],
  ] as const) {
    const start = page.indexOf(`| ${heading} | sentence |`)
    const rows = page.slice(start, page.indexOf('\n\n', start)).split('\n').slice(2)
    t.same(
      rows,
      Object.entries(rules).map(([rule, sentence]) => `| \`${typeOf(rule)}\` | ${sentence} |`),
      heading,
    )
  }
  t.ok(new Set(Object.keys(WARNINGS).map(typeOf)).size <= 10)
})
