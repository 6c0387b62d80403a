import { Kind, type TSchema } from '@sinclair/typebox'
import fc from 'fast-check'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { innerSchema } from '../../src/schema/vocabulary.js'
import { CustomToolUpdate, ValidateToolRequest } from '../../src/tool/schema.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'

/*
 * Requests that nobody sends in good faith, made from the schemas of the three operations and from the bag of tricks.
 */

/** One request as it goes onto the wire. `payload` is the body's bytes. */
export interface HostileRequest {
  method: string
  url: string
  headers: Record<string, string>
  payload: Buffer | undefined
}

/** Texts that hurt whoever puts them into SQL, a path, a regular expression, a template, a header or a prototype. */
export const NASTY_TEXTS: readonly string[] = [
  "'; drop table persona; --",
  "' or '1'='1",
  '1); select pg_sleep(10); --',
  '$1',
  '$$; select 1; $$',
  '%s%n%x',
  '\\',
  '\\x00',
  "E'\\\\'",
  '{"a":1}',
  '{1,2,3}',
  'null',
  'NaN',
  '../../../../etc/passwd',
  '..\\..\\windows\\system.ini',
  'file:///etc/passwd',
  '/dev/stdin',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  '{{7*7}}',
  '$' + '{7*7}',
  '#{7*7}',
  '<script>alert(1)</script>',
  'a\r\nSet-Cookie: x=1',
  '\u0001\u0002\u001f\u007f',
  'a\u0000b',
  '\ud800',
  'a\udc00\ud800b',
  '\ufeff',
  '\ufffe\uffff',
  '\u202egnp.exe',
  'ﷺ'.repeat(20),
  'e\u0301\u0301\u0301',
  'ǅß İ ı K',
  '👩‍👩‍👧‍👦',
  '\u2028\u2029',
  '(a+)+$',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!',
  '****#0123456789ab',
  '****#',
  ' ',
  '',
]

const nastyText = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...NASTY_TEXTS) },
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  {
    weight: 1,
    arbitrary: fc
      .array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 20 })
      .map(units => String.fromCharCode(...units)),
  },
  { weight: 1, arbitrary: fc.integer({ min: 200, max: 12_000 }).map(length => 'x'.repeat(length)) },
)

const nastyNumber = fc.oneof(
  fc.integer({ min: -2, max: 20 }),
  fc.double(),
  fc.constantFrom(0, -0, 2 ** 31 - 1, 2 ** 31, -(2 ** 31) - 1, 2 ** 53, 2 ** 63, 1e20, 1e308, -1e308, 5e-324, 0.1),
)

const nastyValue: fc.Arbitrary<unknown> = fc.oneof(
  nastyText,
  nastyNumber,
  fc.boolean(),
  fc.constant(null),
  fc.constant([]),
  fc.constant({}),
  fc.jsonValue({ maxDepth: 3 }),
  fc.integer({ min: 1, max: 200 }).map(nested),
)

function nested(depth: number): unknown {
  let value: unknown = 1
  for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { a: value }
  return value
}

/** Values for one schema: mostly what it takes, at times what it does not. */
function valueFor(schema: TSchema): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 12, arbitrary: fittingValue(schema) }, { weight: 1, arbitrary: nastyValue })
}

function fittingValue(schema: TSchema): fc.Arbitrary<unknown> {
  switch (schema[Kind]) {
    case 'Text':
      return nastyText
    case 'Integer':
      return fc.oneof(fc.integer({ min: 1, max: 20 }), nastyNumber)
    case 'Number':
      return fc.oneof(fc.double({ min: 0, max: 1e6, noNaN: true }), nastyNumber)
    case 'Boolean':
      return fc.boolean()
    case 'Enumeration':
      return fc.constantFrom(...(schema.enum as string[]))
    case 'Uuid':
      return fc.oneof(fc.uuid(), fc.constant('a0000000-0000-4000-8000-000000000005'))
    case 'DateTime':
      return fc.oneof(
        fc.date({ noInvalidDate: true }).map(date => date.toISOString()),
        fc.constantFrom(
          '2024-02-30',
          '0001-01-01T00:00:00+23:59',
          '9999-12-31T23:59:59.9999999Z',
          '2024-01-01 00:00:00',
        ),
      )
    case 'Nullable':
      return fc.oneof(fc.constant(null), valueFor(innerSchema(schema)))
    case 'Array':
      return fc.array(valueFor(schema.items as TSchema), { maxLength: 6 })
    case 'Object':
      return recordOf(schema)
    case 'FreeForm':
      return definition
    default:
      return nastyValue
  }
}

function recordOf(schema: TSchema): fc.Arbitrary<unknown> {
  const properties = schema.properties as Record<string, TSchema>
  const fields = Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, valueFor(field)]))
  return fc.record(fields, { requiredKeys: (schema.required ?? []) as string[] })
}

const METHODS = [
  'get',
  'put',
  'post',
  'delete',
  'patch',
  'head',
  'options',
  'trace',
  'x-y',
  'GET',
  '__proto__',
  'servers',
]

const operation = fc.record(
  {
    operationId: fc.oneof(fc.string({ unit: 'grapheme-ascii', maxLength: 20 }), nastyText),
    summary: nastyText,
    parameters: fc.array(
      fc.record(
        {
          name: fc.constantFrom('a', 'b', '__proto__', 'constructor', ''),
          in: fc.constantFrom('query', 'path', 'header', 'cookie', 'body'),
          required: fc.boolean(),
          schema: fc.oneof(
            nastyValue,
            fc.constant({ $ref: '#/components/schemas/A' }),
            fc.constant({ type: 'string' }),
          ),
        },
        { requiredKeys: [] },
      ),
      { maxLength: 3 },
    ),
    requestBody: fc.oneof(
      nastyValue,
      fc.constant({ content: { 'application/json': { schema: { $ref: '#/components/schemas/A' } } } }),
    ),
  },
  { requiredKeys: [] },
)

const usableOperation = fc.record({
  operationId: fc.stringMatching(/^[a-z][a-z0-9_]{0,20}$/),
  summary: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }),
})

/** OpenAPI documents, from usable to absurd. */
const definition: fc.Arbitrary<unknown> = fc.oneof(
  fc
    .record({
      openapi: fc.constantFrom('3.0.0', '3.1.0', '3.2.0'),
      info: fc.record({ title: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 30 }) }),
      servers: fc.constant([{ url: 'https://api.example.com' }]),
      paths: fc.dictionary(fc.stringMatching(/^\/[a-z0-9]{1,12}$/), fc.record({ get: usableOperation }), {
        minKeys: 1,
        maxKeys: 4,
      }),
    })
    .map(document => document as unknown),
  fc.record(
    {
      openapi: fc.oneof(fc.constantFrom('3.0.0', '3.1.0', '2.0', '3', ''), nastyValue),
      info: fc.oneof(fc.constant({ title: 'T' }), nastyValue),
      servers: fc.oneof(fc.constant([{ url: 'https://api.example.com' }]), nastyValue),
      paths: fc.oneof(
        fc.dictionary(
          fc.oneof(fc.constantFrom('/a', '/a/{b}', '/{__proto__}', '/a{', 'a', '/..%2f'), nastyText),
          fc.oneof(fc.dictionary(fc.constantFrom(...METHODS), fc.oneof(operation, nastyValue)), nastyValue),
          { maxKeys: 3, noNullPrototype: true },
        ),
        nastyValue,
      ),
      components: fc.oneof(
        fc.constant({ schemas: { A: { $ref: '#/components/schemas/A' } } }),
        fc.constant({ schemas: { A: { type: 'object', properties: { a: { $ref: '#/components/schemas/A' } } } } }),
        nastyValue,
      ),
    },
    { requiredKeys: ['openapi', 'info', 'servers', 'paths'] },
  ),
)

const OPERATIONS = [
  {
    method: 'PATCH',
    path: '/persona/',
    ids: ['1', '2', '5', '8', '11'],
    schema: PersonaUpsertRequest,
    full: FULL_AGENT_UPDATE,
  },
  {
    method: 'PUT',
    path: '/admin/tool/custom/',
    ids: ['10', '11', '16', '17', '1'],
    schema: CustomToolUpdate,
    full: {},
  },
  { method: 'POST', path: '/admin/tool/custom/validate', ids: [''], schema: ValidateToolRequest, full: {} },
] as const

type Operation = (typeof OPERATIONS)[number]

const operationChoice = fc.constantFrom<Operation>(...OPERATIONS)

/** Bodies by the schema: a good one with a few fields replaced, at times with every field made up. */
const schemaBody = (chosen: Operation) => {
  const properties = chosen.schema.properties as Record<string, TSchema>
  const few = fc
    .subarray(Object.keys(properties), { maxLength: Math.min(3, Object.keys(properties).length) })
    .chain(names => fc.record(Object.fromEntries(names.map(name => [name, valueFor(properties[name] as TSchema)]))))
    .map(fields => ({ ...chosen.full, ...fields }))
  const extra = fc.dictionary(nastyText, nastyValue, { maxKeys: 2 })
  return fc.oneof(
    { weight: 4, arbitrary: few.map(body => JSON.stringify(body)) },
    { weight: 1, arbitrary: fc.tuple(few, extra).map(([body, more]) => JSON.stringify({ ...body, ...more })) },
    { weight: 2, arbitrary: recordOf(chosen.schema).map(body => JSON.stringify(body)) },
  )
}

/** A body with a piece of its text replaced, repeated or cut: JSON that is not quite JSON. */
const brokenText = (text: string) =>
  fc
    .tuple(
      fc.nat(text.length),
      fc.nat(8),
      fc.constantFrom(
        '',
        '"',
        '{',
        '[',
        ',',
        ':',
        '1e999',
        '\\u0000',
        '\\ud800',
        '"__proto__":{},',
        '\u0000',
        'NaN',
        '-',
        '/*',
      ),
    )
    .map(([at, cut, piece]) => text.slice(0, at) + piece + text.slice(at + cut))

/** What `JSON.stringify` never writes. */
const RAW_TEXTS = [
  '{"__proto__":{"admin":true}}',
  '{"\\u005f_proto__":{"admin":true}}',
  '{"\\u005F\\u005f\\u0070roto__" \n:1}',
  '{"constructor":{"prototype":{"admin":true}}}',
  '{"constructor":{"protot\\u0079pe":{}}}',
  '{"definition":{"__proto__":{"openapi":"3.0.0"}}}',
  '{"name":"a","name":"b"}',
  '{"definition":{},"definition":null}',
  '{"num_chunks":1e400}',
  '{"num_chunks":-1e400,"tool_ids":[1e1000]}',
  '{"tool_ids":[9007199254740993,18446744073709551616]}',
  '{"name":"\\ud800"}',
  '{"name":"\\u0000"}',
  '\ufeff{}',
  '{}garbage',
  '[]',
  '""',
  '0',
  'null',
  'true',
  ' \n\t ',
  '{"a":01}',
  "{'a':1}",
  '{a:1}',
  '{"a":1,}',
  `${'['.repeat(5_000)}${']'.repeat(5_000)}`,
  `${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}`,
  `{"definition":${'{"a":'.repeat(200)}1${'}'.repeat(200)}}`,
]

const bodyBytes = (chosen: Operation): fc.Arbitrary<Buffer | undefined> => {
  const text = schemaBody(chosen)
  return fc.oneof(
    { weight: 20, arbitrary: text.map(written => Buffer.from(written)) },
    { weight: 3, arbitrary: text.chain(brokenText).map(broken => Buffer.from(broken)) },
    { weight: 2, arbitrary: fc.constantFrom(...RAW_TEXTS).map(raw => Buffer.from(raw)) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map(bytes => Buffer.from(bytes)) },
    { weight: 1, arbitrary: text.map(written => Buffer.from(written, 'latin1')) },
    { weight: 1, arbitrary: text.map(written => Buffer.from(written, 'utf16le')) },
    { weight: 1, arbitrary: fc.constant(undefined) },
  )
}

const PATH_TRICKS = [
  '%31',
  '0',
  '-1',
  '2147483647',
  '2147483648',
  '99999999999999999999',
  '1e1',
  '1.0',
  '0x1',
  '٣',
  '%D9%A3',
  '1%00',
  '%00',
  '1%2f2',
  '..%2f1',
  '%2e%2e',
  '.',
  '..',
  '1;a=b',
  '1%20',
  '%201',
  '+1',
  '1%0d%0aX: y',
  '%',
  '%zz',
  '%c0%af',
  '%ff',
  'null',
  'undefined',
  '__proto__',
  'constructor',
  "1'%20or%201=1",
  '1'.repeat(256),
  '1'.repeat(257),
  'a'.repeat(3_000),
  '',
  '/',
  '//',
  '1/',
  '1//',
  'validate',
  '%E2%80%AE1',
]

const pathEnd = (chosen: Operation) =>
  fc.oneof(
    { weight: 20, arbitrary: fc.constantFrom<string>(...chosen.ids) },
    { weight: 2, arbitrary: fc.constantFrom(...PATH_TRICKS) },
    { weight: 1, arbitrary: nastyText.map(encoded) },
  )

const QUERY_TRICKS = [
  'dry_run=true',
  'dry_run=false',
  'dry_run=TRUE',
  'dry_run',
  'dry_run=',
  'dry_run=true&dry_run=true',
  'update_mask=',
  'update_mask=name',
  'update_mask=name,tool_ids',
  'update_mask=__proto__',
  'update_mask=name,,',
  'update_mask=%00',
  'update_mask=%ff',
  'update_mask[]=name',
  '__proto__=1',
  '__proto__[a]=1',
  'constructor=1',
  'toString',
  '%',
  '%zz',
  '%00=%00',
  '&&&',
  '=',
  '=1',
  'a=1;b=2',
  '+',
  'dry_run=tr%75e',
  'report=full',
  'report=half',
  'tool_id=10',
  'tool_id=16',
  'tool_id=-1',
  'tool_id=99999999999999999999',
  'tool_id=1e1',
  '%F0%9F%98%80=1',
  Array.from({ length: 300 }, (_, index) => `k${index}=1`).join('&'),
]

const queryText = fc.oneof(
  { weight: 16, arbitrary: fc.constant('') },
  { weight: 4, arbitrary: fc.constantFrom(...QUERY_TRICKS).map(query => `?${query}`) },
  {
    weight: 1,
    arbitrary: fc.tuple(nastyText, nastyText).map(([name, value]) => `?${encoded(name)}=${encoded(value)}`),
  },
)

/** Percent-encoded from the UTF-8 bytes; lone surrogates become what they become in UTF-8. */
function encoded(text: string): string {
  return encodeURIComponent(text.toWellFormed()).slice(0, 4_000)
}

const headerText = fc.oneof(
  nastyText.map(text => text.replaceAll(/[^\t\x20-\x7e\x80-\xff]/g, '?').slice(0, 2_000)),
  fc.constantFrom(
    '*',
    '"persona-1-1"',
    'W/"persona-1-1"',
    '"a","b"',
    '"',
    '""',
    ',',
    '"a',
    ' ',
    'handling=strict',
    'respond-async',
    ',,,handling = "strict";x',
  ),
)

const contentType = fc.oneof(
  { weight: 30, arbitrary: fc.constant('application/json') },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      '',
      'application/json; charset=utf-16',
      'application/json;charset=latin1',
      'application/problem+json',
      'APPLICATION/JSON',
      'text/plain',
      'text/json',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/jsonp',
      'application/json,text/html',
      'application/json; ; ;',
      ';',
      '/',
      'application/',
      'a'.repeat(1_000),
      'application/octet-stream',
      'application/__proto__',
      '__proto__/json',
    ),
  },
)

const NAMED_HEADERS = [
  'x-request-id',
  'if-match',
  'if-none-match',
  'prefer',
  'traceparent',
  'x-forwarded-for',
  'forwarded',
  'content-encoding',
  'accept',
  'cookie',
  'x-http-method-override',
  'transfer-x',
  'origin',
]

const extraHeaders = fc.dictionary(fc.constantFrom(...NAMED_HEADERS), headerText, { maxKeys: 3, noNullPrototype: true })

const method = (chosen: Operation) =>
  fc.oneof(
    { weight: 20, arbitrary: fc.constant<string>(chosen.method) },
    {
      weight: 1,
      arbitrary: fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'),
    },
  )

/** Whole requests to the three operations, by the given `Authorization` headers (undefined for none). */
export function hostileRequests(authorizations: readonly (string | undefined)[]): fc.Arbitrary<HostileRequest> {
  return operationChoice.chain(chosen =>
    fc
      .record({
        method: method(chosen),
        end: pathEnd(chosen),
        query: queryText,
        type: contentType,
        extra: extraHeaders,
        payload: bodyBytes(chosen),
        authorization: fc.oneof(
          { weight: 20, arbitrary: fc.constant(authorizations[0]) },
          { weight: 4, arbitrary: fc.constantFrom(...authorizations) },
          { weight: 1, arbitrary: headerText },
        ),
      })
      .map(parts => ({
        method: parts.method,
        url: chosen.path + (chosen.ids.length === 1 ? '' : parts.end) + parts.query,
        headers: {
          ...(parts.payload !== undefined && { 'content-type': parts.type }),
          ...(parts.authorization !== undefined && { authorization: parts.authorization }),
          ...parts.extra,
        },
        payload: parts.payload,
      })),
  )
}

/** Bytes that only look like HTTP, for a socket. */
export const brokenHttp: fc.Arbitrary<Buffer> = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 400 }).map(bytes => Buffer.from(bytes)),
  fc
    .tuple(
      fc.constantFrom('PATCH', 'PUT', 'POST', 'GET', 'CONNECT', 'patch', 'P\u0000', ''),
      fc.oneof(fc.constantFrom('/persona/1', '*', 'http://example.com/persona/1', '//', '\\', '/\u00ff'), headerText),
      fc.constantFrom('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/9.9', ''),
      fc.array(
        fc.oneof(
          fc.constantFrom(
            'Host: x',
            'Content-Length: 5',
            'Content-Length: -1',
            'Content-Length: 99999999999999999999',
            'Transfer-Encoding: chunked',
            'Transfer-Encoding: chunked, identity',
            'Transfer-Encoding: \u000bchunked',
            'Expect: 100-continue',
            'Connection: close',
            'Upgrade: h2c',
            ' folded: x',
            'X-Request-ID: a\u0000b',
            'X-Request-ID: a\rb',
            'If-Match : *',
            ': x',
            'Content-Type: application/json',
          ),
          fc.tuple(headerText, headerText).map(([name, value]) => `${name}: ${value}`),
        ),
        { maxLength: 6 },
      ),
      fc.oneof(
        fc.constantFrom('', '{}', '5\r\n{"a":\r\n0\r\n\r\n', 'ZZ\r\n', '0\r\n\r\n', 'ffffffffffffffff\r\n'),
        headerText,
      ),
      fc.constantFrom('\r\n', '\n', '\r'),
    )
    .map(([verb, target, version, headers, body, end]) =>
      Buffer.from([`${verb} ${target} ${version}`, ...headers, '', body].join(end), 'latin1'),
    ),
)
