import t from 'tap'
import { type DefinitionChange, definitionChanges } from '../../src/definition/index.js'

type Json = Record<string, unknown>

const base = {
  openapi: '3.0.3',
  info: { title: 'Tickets' },
  servers: [{ url: 'https://tickets.example.com' }],
  paths: {
    '/tickets': {
      get: {
        operationId: 'list',
        summary: 'List',
        parameters: [
          { name: 'state', in: 'query', schema: { type: 'string', enum: ['open', 'closed'] } },
          { name: 'limit', in: 'query', schema: { type: 'integer', maximum: 100 } },
        ],
      },
      post: {
        operationId: 'create',
        summary: 'Create',
        requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/Ticket' } } } },
      },
    },
    '/tickets/{id}': {
      parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
      get: { operationId: 'read', summary: 'Read' },
    },
  },
  components: {
    schemas: {
      Ticket: {
        type: 'object',
        required: ['title'],
        properties: {
          title: { type: 'string', maxLength: 100 },
          note: { type: 'string' },
          parent: { $ref: '#/components/schemas/Ticket' },
          owner: { $ref: '#/components/schemas/Owner' },
        },
      },
      Owner: { type: 'object', properties: { email: { type: 'string' } } },
    },
  },
}

const PLACES: Record<string, string> = {
  list: 'paths /tickets get',
  state: 'paths /tickets get parameters 0',
  limit: 'paths /tickets get parameters 1',
  create: 'paths /tickets post',
  item: 'paths /tickets/{id}',
  ticket: 'components schemas Ticket',
}

/** Returns the base with another value at a place, which may begin with one of the words above; without a value the part is removed. */
function changed(place: string, ...value: unknown[]): Json {
  const copy: Json = structuredClone(base)
  const [first = '', ...rest] = place.split(' ')
  const path = [...(PLACES[first] ?? first).split(' '), ...rest]
  const holder = path.slice(0, -1).reduce((at, key) => at[key] as Json, copy)
  const key = path.at(-1) as string
  if (value.length > 0) holder[key] = value[0]
  else if (Array.isArray(holder)) holder.splice(Number(key), 1)
  else delete holder[key]
  return copy
}

const seen = (changes: readonly DefinitionChange[]) =>
  changes.map(({ kind, operation, msg }) => `${kind} ${operation}: ${msg}`)

const OLD = 'https://tickets.example.com'
const { get } = base.paths['/tickets']
const q = { name: 'q', in: 'query' }
const withHost = (host: unknown, url = 'https://{host}/v1') =>
  changed('servers', [{ url, variables: { host: { default: host, enum: [host, 'b.example.com'] } } }])
const withBody = (schema: object, type = 'application/json') =>
  changed('create requestBody', { content: { [type]: { schema } } })
const note = (schema: object) => changed('ticket properties note', schema)

/** Each row: a name, the definition after the change (and before it, if not the base), and the changes. */
const cases: [name: string, after: unknown, changes: string[], before?: unknown][] = [
  ['nothing', structuredClone(base), []],
  ['the order of keys', Object.fromEntries(Object.entries(base).reverse()), []],
  ['what no model is given', changed('list', { ...get, tags: ['x'], responses: {} }), []],
  ['a method in capitals', changed('paths /tickets', { GET: get, post: base.paths['/tickets'].post }), []],
  ['a style that is the default anyway', changed('state style', 'form'), []],
  [
    'a second server, which no call goes to',
    changed('servers', [...base.servers, { url: 'https://b.example.com' }]),
    [],
  ],

  ['an operation removed', changed('create'), ['operation_removed create: the operation is gone']],
  [
    'an operation added',
    changed('item delete', { operationId: 'd', summary: 'D' }),
    ['operation_added d: the operation is new'],
  ],
  [
    'an operation with another id is another operation',
    changed('list operationId', 'search'),
    ['operation_removed list: the operation is gone', 'operation_added search: the operation is new'],
  ],
  ['its text', changed('list summary', 'Other'), ['changed list: the description of the operation changed']],
  [
    'its path',
    changed('paths', { ...base.paths, '/tickets': { post: base.paths['/tickets'].post }, '/search': { get } }),
    ['changed list: the operation is "list, GET /search" instead of "list, GET /tickets"'],
  ],
  ['its security', changed('list security', [{ key: [] }]), ['changed list: the security of the operation changed']],
  ['all security', changed('security', [{ key: [] }]), ['changed : the security of the definition changed']],
  [
    'a security scheme',
    changed('components securitySchemes', { key: { type: 'http' } }),
    ['changed : the security of the definition changed'],
  ],

  [
    'another host',
    changed('servers', [{ url: 'http://b.example.com' }]),
    [`origin_changed : calls go to "http://b.example.com" instead of "${OLD}"`],
  ],
  [
    'another base path',
    changed('servers', [{ url: `${OLD}/v2` }]),
    [`changed : calls go to "${OLD}/v2" instead of "${OLD}"`],
  ],
  [
    'a relative address, and a variable without a value, as they are written',
    withHost(undefined),
    ['origin_changed : calls go to "https://{host}/v1" instead of "api.example.com/v2"'],
    changed('servers', [{ url: 'api.example.com/v2' }]),
  ],
  [
    'the default of a variable',
    withHost('b.example.com'),
    ['origin_changed : calls go to "https://b.example.com/v1" instead of "https://a.example.com/v1"'],
    withHost('a.example.com'),
  ],
  [
    'another variable as the host',
    changed('servers', [{ url: 'https://{a}/v1' }]),
    ['origin_changed : calls go to "https://{a}/v1" instead of "https://{b}/v1"'],
    changed('servers', [{ url: 'https://{b}/v1' }]),
  ],
  [
    'another path alone',
    changed('servers', [{ url: '/b' }]),
    ['changed : calls go to "/b" instead of "/a"'],
    changed('servers', [{ url: '/a' }]),
  ],
  ['a server of its own, which no call goes to', changed('list servers', [{ url: 'https://b.example.com' }]), []],

  ['an argument removed', changed('limit'), ['argument_removed list: the argument "limit" is gone']],
  ['an argument added', changed('list parameters 2', q), ['argument_added list: the argument "q" is new and optional']],
  [
    'a required one',
    changed('list parameters 2', { ...q, required: true }),
    ['argument_added list: the argument "q" is new and required'],
  ],
  ['required', changed('state required', true), ['argument_required list: the argument "state" is required now']],
  ['no longer required', base, ['changed list: the argument "state" is optional now'], changed('state required', true)],
  [
    'another type',
    changed('limit schema type', 'string'),
    ['argument_type_changed list: the type of the argument "limit" is string instead of integer'],
  ],
  [
    'null as well',
    changed('limit schema nullable', true),
    ['argument_type_changed list: the type of the argument "limit" is integer or null instead of integer'],
  ],
  [
    'a type that other schemas give',
    changed('limit schema', { oneOf: [{ type: 'integer' }], maximum: 100 }),
    [
      'argument_type_changed list: the type of the argument "limit" is that of other schemas instead of integer',
      'changed list: the oneOf of the argument "limit" changed',
    ],
  ],
  [
    'other values',
    changed('state schema enum', ['open', 'new', 7, { a: 1 }]),
    [
      'argument_values_changed list: the argument "state" no longer lists "closed" and now lists "new", "7", "{\\"a\\":1}"',
    ],
  ],
  ['values in another order', changed('state schema enum', ['closed', 'open']), []],
  [
    'any value',
    changed('state schema', { type: 'string' }),
    ['argument_values_changed list: the argument "state" no longer lists "open", "closed"'],
  ],
  ['a bound', changed('limit schema maximum', 50), ['changed list: the maximum of the argument "limit" changed']],
  [
    'sent in another way',
    changed('state explode', false),
    ['changed list: the argument "state" is sent in another form'],
  ],
  [
    'a parameter of the path item',
    changed('item parameters 0 schema type', 'integer'),
    ['argument_type_changed read: the type of the argument "id" is integer instead of string'],
  ],

  ['a body removed', changed('create requestBody'), ['argument_removed create: the argument "requestBody" is gone']],
  [
    'a body of another media type',
    withBody({ $ref: '#/components/schemas/Ticket' }, 'a/b+json'),
    ['changed create: the argument "requestBody" is sent in another form'],
  ],
  [
    'a list instead of an object',
    withBody({ type: 'array', items: { type: 'string' } }),
    [
      'argument_type_changed create: the type of the argument "requestBody" is array instead of object',
      'changed create: the required, properties, items of the argument "requestBody" changed',
    ],
  ],
  [
    'a property required',
    changed('ticket required', ['title', 'note']),
    ['argument_required create: the argument "requestBody.note" is required now'],
  ],
  [
    'properties removed and added, named like members of every object',
    changed('ticket properties', { title: base.components.schemas.Ticket.properties.title, constructor: {} }),
    [
      'argument_removed create: the argument "requestBody.note" is gone',
      'argument_removed create: the argument "requestBody.parent" is gone',
      'argument_removed create: the argument "requestBody.owner" is gone',
      'argument_added create: the argument "requestBody.constructor" is new and optional',
    ],
  ],
  [
    'a pattern',
    note({ type: 'string', pattern: '^a' }),
    ['changed create: the pattern of the argument "requestBody.note" changed'],
  ],
  [
    'deep in a property',
    note({ type: 'string', items: { items: { items: {} } } }),
    ['changed create: the items of the argument "requestBody.note" changed'],
  ],
  [
    'a schema inside a property, by its name',
    changed('components schemas Owner properties email type', 'integer'),
    ['changed create: the schema "Owner" inside the arguments changed'],
  ],
  [
    'additional properties',
    changed('ticket additionalProperties', false),
    ['changed create: the additionalProperties of the argument "requestBody" changed'],
  ],

  ['refused', {}, ['changed : the new definition cannot be read, so nothing can be compared']],
  ['unreadable before', base, ['changed : the old definition cannot be read, so nothing can be compared'], []],
]

for (const [name, after, expected, before = base] of cases)
  t.test(`changes: ${name}`, async t => t.strictSame(seen(definitionChanges(before, after)), expected))

t.test('a change has its place in the new definition, its argument, and the values before and after', async t => {
  const path = ['body', 'definition', 'paths', '/tickets', 'get']
  const other = {
    parameters: [{ name: 'state', in: 'query', schema: { enum: [1] } }],
    operationId: 'list',
    summary: 'List',
  }
  const where = { operation: 'list', argument: 'state', loc: path }
  t.match(definitionChanges(base, changed('list', other)), [
    { ...where, argument: 'limit', kind: 'argument_removed' },
    { ...where, kind: 'argument_type_changed', from: 'string', to: 'any' },
    { ...where, kind: 'argument_values_changed', removed: ['open', 'closed'], added: [1] },
  ])
  t.strictSame(definitionChanges(base, changed('servers 0 url', '/')), [
    {
      ...{
        kind: 'origin_changed',
        operation: '',
        from: OLD,
        to: '/',
        loc: ['body', 'definition', 'servers', 0, 'url'],
      },
      msg: `calls go to "/" instead of "${OLD}"`,
    },
  ])
  const shared = changed('item', { $ref: '#/components/pathItems/P' }) as { components: Json }
  shared.components.pathItems = { P: { ...base.paths['/tickets/{id}'], get: { operationId: 'read', summary: 'New' } } }
  t.match(definitionChanges(base, shared), [
    { kind: 'changed', operation: 'read', loc: ['body', 'definition', 'components', 'pathItems', 'P', 'get'] },
  ])
  t.notOk(Object.hasOwn(definitionChanges(base, changed('create'))[0] ?? {}, 'loc'))
})

t.test('a parameter that a custom header supplies is not an argument', async t => {
  const withKey = changed('list parameters 2', { name: 'X-Key', in: 'header', required: true })
  const added = ['argument_added list: the argument "X-Key" is new and required']
  t.same(seen(definitionChanges(base, withKey)), added)
  t.same(definitionChanges(base, withKey, { headerNames: ['x-key'] }), [])
  t.same(seen(definitionChanges(withKey, withKey, { headerNames: [], headerNamesBefore: ['X-KEY'] })), added)
})

t.test('the first 10,000 changes are listed, the others counted; of values the first 100', async t => {
  const many = (text: string) => ({
    ...base,
    paths: Object.fromEntries(
      Array.from({ length: 5000 }, (_, i) => {
        const parameters = [{ name: 'a', in: 'query', schema: { type: text } }]
        return [`/p${i}`, { get: { operationId: `o${i}`, summary: text, security: [{ [text]: [] }], parameters } }]
      }),
    ),
  })
  const changes = definitionChanges(many('string'), many('integer'))
  t.equal(changes.length, 10_001)
  t.equal(changes.at(-1)?.msg, '5000 more changes are left out')
  const listed = changed(
    'state schema enum',
    Array.from({ length: 1000 }, (_, i) => `v${i}`),
  )
  t.match(definitionChanges(base, listed), [{ added: { length: 100 }, msg: /"v4" and more$/ }])
})

t.test('it never throws, whatever is compared', async t => {
  const unnamed = { openapi: '3.1.0', paths: { '/x': { get: { operationId: 'x' } } } }
  for (const value of [null, 1, 'x', [], {}, { openapi: '3.1.0' }, unnamed]) {
    t.doesNotThrow(() => definitionChanges(value, base))
    t.doesNotThrow(() => definitionChanges(base, value))
  }
})
