/** Documents made to hurt whoever reads them. Each is built when asked for, so that only one is in memory at a time. */
export interface HostileDocument {
  name: string
  make: () => unknown
  /** The fault type that must be among the answer's; `null` if the document is harmless to us and accepted. */
  type: string | null
}

type Json = Record<string, unknown>

const HEAD = { openapi: '3.1.0', info: { title: 'Hostile' }, servers: [{ url: 'https://h.example.com' }] }
const BOMBS = [
  '(a+)+$',
  '(?:a|aa)+$',
  '^(([a-z])+.)+[A-Z]([a-z])+$',
  '(x+x+)+y',
  '(.*a){30}',
  '\\',
  '(',
  '[',
  '(a{9999}){9999}',
]
const REMOTE = [
  'http://169.254.169.254/latest/meta-data/',
  'http://localhost:22/#/x',
  'https://evil.example.com/schema.json#/A',
  'file:///etc/passwd',
  '/etc/passwd',
  '../../../../etc/shadow#/a',
  '\\\\evil.example.com\\share\\a.json',
  'ftp://evil.example.com/a',
  'data:application/json,{}',
  'jar:file:///a.jar!/b',
  'node:fs',
  'gopher://127.0.0.1:6379/_FLUSHALL',
]
const FORMAT_PATHS = [
  '/{a:>1000000000}',
  '/{a!r:1000000000}',
  '/{0.__class__.__init__.__globals__}',
  '/%s%n%x',
  '/{a.b[c]}',
]

function operation(id: string, more: Json = {}): Json {
  return { operationId: id, summary: id, ...more }
}

function withPaths(paths: Json, more: Json = {}): Json {
  return { ...HEAD, paths, ...more }
}

function withBody(schema: unknown, components: Json = {}): Json {
  return withPaths(
    { '/x': { post: operation('x', { requestBody: { content: { 'application/json': { schema } } } }) } },
    { components },
  )
}

function withParameters(parameters: unknown, components: Json = {}): Json {
  return withPaths({ '/x': { get: operation('x', { parameters }) } }, { components })
}

function withServer(url: string): Json {
  return { ...withPaths({ '/x': { get: operation('x') } }), servers: [{ url }] }
}

function nested(levels: number, wrap: (inner: unknown) => unknown, leaf: unknown = {}): unknown {
  let value = leaf
  for (let i = 0; i < levels; i++) value = wrap(value)
  return value
}

function times<T>(count: number, make: (i: number) => T): T[] {
  return Array.from({ length: count }, (_, i) => make(i))
}

function record(count: number, key: (i: number) => string, value: (i: number) => unknown): Json {
  return Object.fromEntries(times(count, i => [key(i), value(i)]))
}

function cyclicObject(): Json {
  const schema: Json = { type: 'object' }
  schema.properties = { self: schema }
  return withBody(schema)
}

/** Shared objects as YAML aliases make them: a small text, an exponential tree. */
function aliasBomb(): Json {
  return withBody(nested(40, inner => ({ allOf: [inner, inner] })))
}

const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` })

export const hostileDocuments: readonly HostileDocument[] = [
  {
    name: 'nesting of 100,000 objects',
    make: () => withBody(nested(100_000, not => ({ not }))),
    type: 'definition_too_deep',
  },
  {
    name: 'nesting of 100,000 lists',
    make: () => withPaths({ 'x-deep': nested(100_000, inner => [inner]) }),
    type: 'definition_too_deep',
  },
  { name: 'nesting at the limit', make: () => withBody(nested(100, not => ({ not }))), type: null },
  {
    name: 'nesting in an example',
    make: () => withBody({ example: nested(5000, a => ({ a })) }),
    type: 'definition_too_deep',
  },
  { name: 'an object that holds itself', make: cyclicObject, type: 'definition_too_deep' },
  { name: 'aliases that double 40 times', make: aliasBomb, type: 'definition_too_large' },
  {
    name: 'a million and one values in a list',
    make: () => withPaths({ 'x-a': times(1_000_001, () => 0) }),
    type: 'definition_too_large',
  },
  {
    name: 'nine hundred thousand empty lists',
    make: () => withPaths({ 'x-a': times(900_000, () => []) }),
    type: 'operations_missing',
  },
  {
    name: '400,000 keys in one object',
    make: () =>
      withPaths({
        'x-a': record(
          400_000,
          i => `k${i}`,
          () => 0,
        ),
      }),
    type: 'operations_missing',
  },
  { name: 'schema that is itself', make: () => withBody(ref('A'), { schemas: { A: ref('A') } }), type: null },
  {
    name: 'schemas that are each other',
    make: () => withBody(ref('A'), { schemas: { A: ref('B'), B: ref('A') } }),
    type: null,
  },
  {
    name: 'circular properties',
    make: () => withBody(ref('A'), { schemas: { A: { properties: { a: ref('A'), b: ref('A') } } } }),
    type: null,
  },
  {
    name: 'exponential fan-out of references',
    make: () =>
      withBody(ref('S0'), {
        schemas: record(
          200,
          i => `S${i}`,
          i => ({ allOf: times(10, () => ref(`S${Math.min(i + 1, 199)}`)) }),
        ),
      }),
    type: null,
  },
  {
    name: 'every schema refers to every schema',
    make: () =>
      withBody(ref('S0'), {
        schemas: record(
          300,
          i => `S${i}`,
          () => ({ anyOf: times(300, j => ref(`S${j}`)) }),
        ),
      }),
    type: null,
  },
  {
    name: 'chain of 10,000 references between schemas',
    make: () =>
      withBody(ref('S0'), {
        schemas: record(
          10_000,
          i => `S${i}`,
          i => (i === 9999 ? {} : ref(`S${i + 1}`)),
        ),
      }),
    type: 'ref_cycle',
  },
  {
    name: 'chain of 10,000 references between parameters',
    make: () =>
      withParameters([{ $ref: '#/components/parameters/P0' }], {
        parameters: record(
          10_000,
          i => `P${i}`,
          i => ({ $ref: `#/components/parameters/P${i + 1}` }),
        ),
      }),
    type: 'ref_cycle',
  },
  {
    name: 'parameter that is itself',
    make: () => withParameters([{ $ref: '#/paths/~1x/get/parameters/0' }]),
    type: 'ref_cycle',
  },
  {
    name: 'path items that are each other',
    make: () => withPaths({ '/a': { $ref: '#/paths/~1b' }, '/b': { $ref: '#/paths/~1a' } }),
    type: 'ref_cycle',
  },
  {
    name: 'references into every level of one deep tree',
    make: () => {
      const tree = nested(100, items => ({
        items,
        properties: record(
          20,
          i => `p${i}`,
          () => ({ type: 'string' }),
        ),
      }))
      const deep = times(100, i => ({ $ref: `#/components/schemas/T${'/items'.repeat(i)}` }))
      return withBody({ anyOf: times(100, () => ({ anyOf: deep })) }, { schemas: { T: tree } })
    },
    type: null,
  },
  {
    name: 'one pointer with a million steps',
    make: () => withBody({ $ref: `#${'/a'.repeat(1_000_000)}` }),
    type: 'ref_unresolved',
  },
  {
    name: 'pointer of percent signs',
    make: () => withBody({ $ref: `#/${'%'.repeat(1_000_000)}` }),
    type: 'ref_unresolved',
  },
  {
    name: 'pointer to a prototype property',
    make: () => withBody({ $ref: '#/constructor/prototype' }),
    type: 'ref_unresolved',
  },
  { name: 'pointer to __proto__', make: () => withBody({ $ref: '#/components/__proto__' }), type: 'ref_unresolved' },
  {
    name: 'pointer to the length of a list',
    make: () => withBody({ $ref: '#/servers/length' }),
    type: 'ref_unresolved',
  },
  { name: 'pointer to the whole document', make: () => withBody({ $ref: '#' }), type: 'ref_target_type' },
  { name: 'reference that is an object', make: () => withBody({ $ref: { $ref: {} } }), type: 'string_type' },
  ...REMOTE.map(url => ({
    name: `schema reference to ${url}`,
    make: () => withBody({ $ref: url }),
    type: 'ref_external',
  })),
  {
    name: 'remote path item',
    make: () => withPaths({ '/x': { $ref: 'http://169.254.169.254/x' } }),
    type: 'ref_external',
  },
  {
    name: '50,000 remote references',
    make: () => withBody({ allOf: times(50_000, i => ({ $ref: `https://h${i}.example.com/` })) }),
    type: 'ref_external',
  },
  {
    name: '100,000 identifiers and references to them',
    make: () => withBody({ allOf: times(100_000, i => ({ $id: `urn:a:${i}`, $ref: `urn:a:${i + 1}` })) }),
    type: 'ref_cycle',
  },
  {
    name: '100,000 paths',
    make: () =>
      withPaths(
        record(
          100_000,
          i => `/p${i}`,
          i => ({ get: operation(`o${i}`) }),
        ),
      ),
    type: 'too_many_operations',
  },
  {
    name: '100,000 paths without operations',
    make: () =>
      withPaths(
        record(
          100_000,
          i => `/p${i}`,
          () => ({}),
        ),
      ),
    type: 'operations_missing',
  },
  {
    name: '100,000 null paths',
    make: () =>
      withPaths(
        record(
          100_000,
          i => `/p${i}`,
          () => null,
        ),
      ),
    type: 'dict_type',
  },
  {
    name: '50,000 paths of one path item',
    make: () =>
      withPaths(
        record(
          50_000,
          i => `/p${i}`,
          () => ({ $ref: '#/components/pathItems/P' }),
        ),
        {
          components: {
            pathItems: {
              P: record(
                2000,
                i => `bad${i}`,
                () => ({}),
              ),
            },
          },
        },
      ),
    type: 'method_unsupported',
  },
  {
    name: '300,000 unknown methods',
    make: () =>
      withPaths({
        '/x': record(
          300_000,
          i => `m${i}`,
          () => null,
        ),
      }),
    type: 'method_unsupported',
  },
  {
    name: '20,000 parameters',
    make: () => withParameters(times(20_000, i => ({ name: `p${i}`, in: 'query' }))),
    type: 'too_many_parameters',
  },
  {
    name: '5,000 operations that share 500 path parameters and placeholders',
    make: () => {
      const path = (i: number) => `/${i}/${times(499, j => `{p${j}}`).join('')}`
      const methods = times(100, i =>
        [...'delete'].map((letter, bit) => ((i >> bit) & 1 ? letter.toUpperCase() : letter)).join(''),
      )
      const item = {
        parameters: times(499, j => ({ name: `p${j}`, in: 'path' })),
        ...record(
          60,
          i => methods[i] ?? '',
          i => operation(`o${i}`),
        ),
      }
      return withPaths(
        record(84, path, () => ({ $ref: '#/components/pathItems/P' })),
        { components: { pathItems: { P: item } } },
      )
    },
    type: 'operation_id_duplicate',
  },
  {
    name: 'one path item with a large body, used by 5,000 operations',
    make: () => {
      const body = { content: { 'application/json': { schema: { allOf: times(20_000, () => ({ type: 'string' })) } } } }
      const item = { get: operation('a', { requestBody: body }), post: operation('b', { requestBody: body }) }
      return withPaths(
        record(
          2500,
          i => `/p${i}`,
          () => ({ $ref: '#/components/pathItems/P' }),
        ),
        { components: { pathItems: { P: item } } },
      )
    },
    type: 'operation_id_duplicate',
  },
  {
    name: 'a path with 500,000 placeholders',
    make: () => withPaths({ [`/${'{a}'.repeat(500_000)}`]: { get: operation('x') } }),
    type: 'too_many_parameters',
  },
  {
    name: 'a path of 4 MB of open braces',
    make: () => withPaths({ [`/${'{'.repeat(4_000_000)}`]: { get: operation('x') } }),
    type: 'path_template_invalid',
  },
  {
    name: 'an operationId of 4 MB',
    make: () => withPaths({ '/x': { get: operation('ä'.repeat(2_000_000)) } }),
    type: null,
  },
  {
    name: 'a summary of 4 MB',
    make: () => withPaths({ '/x': { get: operation('x', { summary: 'x'.repeat(4_000_000) }) } }),
    type: null,
  },
  {
    name: 'a method of 4 MB',
    make: () => withPaths({ '/x': { ['G'.repeat(4_000_000)]: operation('x') } }),
    type: 'method_unsupported',
  },
  {
    name: 'a media type of 2 MB',
    make: () =>
      withPaths({ '/x': { post: operation('x', { requestBody: { content: { [';'.repeat(2_000_000)]: {} } } }) } }),
    type: 'request_body_media_type_unsupported',
  },
  ...FORMAT_PATHS.map(path => ({
    name: `format string ${path}`,
    make: () => withPaths({ [path]: { get: operation('x') } }),
    type: path.includes('{') ? 'path_parameter_undeclared' : null,
  })),
  ...BOMBS.map(pattern => ({
    name: `pattern ${pattern}`,
    make: () =>
      withBody({ type: 'string', pattern, example: `${'a'.repeat(50)}!`, patternProperties: { [pattern]: {} } }),
    type: null,
  })),
  {
    name: '__proto__ key',
    make: () => JSON.parse(JSON.stringify(withBody({})).replace('"title"', '"__proto__":{"polluted":1},"title"')),
    type: 'key_forbidden',
  },
  {
    name: 'constructor.prototype key',
    make: () => withBody({ constructor: { prototype: { polluted: 1 } } }),
    type: 'key_forbidden',
  },
  {
    name: '100,000 __proto__ keys',
    make: () => withPaths({ 'x-a': times(100_000, () => JSON.parse('{"__proto__":1}')) }),
    type: 'key_forbidden',
  },
  {
    name: 'NUL in a deep long key',
    make: () => withBody(nested(100, inner => ({ ['\0'.repeat(300)]: inner }))),
    type: 'string_nul',
  },
  {
    name: '200,000 lone surrogates',
    make: () => withPaths({ 'x-a': times(200_000, () => '\ud800') }),
    type: 'string_unicode',
  },
  {
    name: '300,000 large integers at a deep place with long names',
    make: () =>
      withBody({
        example: nested(
          100,
          inner => ({ ['k'.repeat(300)]: inner }),
          times(300_000, () => 2 ** 60),
        ),
      }),
    type: null,
  },
  {
    name: '300,000 lone surrogates at a deep place',
    make: () =>
      withBody({
        example: nested(
          100,
          inner => ({ ['k'.repeat(300)]: inner }),
          times(300_000, () => '\ud800'),
        ),
      }),
    type: 'string_unicode',
  },
  { name: 'a number beyond a double', make: () => JSON.parse('{"openapi":"3.1.0","x":1e999}'), type: 'finite_number' },
  {
    name: 'faults with names that grow sixfold as JSON',
    make: () =>
      withPaths(
        record(
          200,
          i => `/${'\u0001'.repeat(300)}${i}`,
          () => null,
        ),
      ),
    type: 'dict_type',
  },
  {
    name: '300,000 servers',
    make: () => ({
      ...HEAD,
      paths: { '/x': { get: operation('x') } },
      servers: times(300_000, () => ({ url: '//a' })),
    }),
    type: null,
  },
  {
    name: 'a server of 1,000,000 variables',
    make: () => withServer('{a}'.repeat(1_000_000)),
    type: 'server_url_invalid',
  },
  {
    name: 'a server whose variable is large and used often',
    make: () => ({
      ...withServer(''),
      servers: times(500, () => ({ url: '{a}'.repeat(2000), variables: { a: { default: 'x'.repeat(8000) } } })),
    }),
    type: null,
  },
  ...[
    'http://169.254.169.254/',
    'http://0xA9FEA9FE/',
    'http://2852039166',
    'http://[::ffff:169.254.169.254]/',
    '//169.254.1.1',
    'http:169.254.169.254/latest',
    'http:/169.254.169.254/',
    'HTTP:metadata.google.internal/',
    'http://[::ffff:0:169.254.169.254]/',
    'http://[64:ff9b:1:a9fe:a9:fe00::]/',
    'http://[64:ff9b:1:a9:fe:a9fe::]/',
    'http://[64:ff9b:1::a9:fea9:fe00:0]/',
    'http://[64:ff9b:1::169.254.169.254]/',
    'https:\\\\169.254.169.254',
    'http://[fd00:ec2::254]/',
    'http://user:pass@h.example.com',
    'javascript:alert(1)',
    'file:///etc',
  ].map(url => ({ name: `server ${url}`, make: () => withServer(url), type: 'server_url_invalid' })),
]
