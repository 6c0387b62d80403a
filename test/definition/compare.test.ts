import t from 'tap'
import { parse } from 'yaml'
import { type DefinitionChange, definitionChanges } from '../../src/definition/index.js'
import { type Json, many, schemaRef } from './document.js'

const base = parse(`
  openapi: 3.0.3
  info: { title: Tickets }
  servers: [{ url: 'https://tickets.example.com' }]
  paths:
    /tickets:
      get:
        operationId: list
        summary: List
        parameters:
          - { name: state, in: query, schema: { type: string, enum: [open, closed] } }
          - { name: limit, in: query, schema: { type: integer, maximum: 100 } }
      post:
        operationId: create
        summary: Create
        requestBody: { content: { application/json: { schema: { $ref: '#/components/schemas/Ticket' } } } }
    /tickets/{id}:
      parameters: [{ name: id, in: path, required: true, schema: { type: string } }]
      get: { operationId: read, summary: Read }
  components:
    schemas:
      Ticket:
        type: object
        required: [title]
        properties:
          title: { type: string, maxLength: 100 }
          note: { type: string }
          parent: { $ref: '#/components/schemas/Ticket' }
          owner: { $ref: '#/components/schemas/Owner' }
      Owner: { type: object, properties: { email: { type: string } } }`)

const PLACES: Record<string, string> = {
  list: 'paths /tickets get',
  state: 'paths /tickets get parameters 0',
  limit: 'paths /tickets get parameters 1',
  create: 'paths /tickets post',
  item: 'paths /tickets/{id}',
  ticket: 'components schemas Ticket',
}

/** Returns a copy of the base with another value at a place, or without the place if no value is given. A place can begin with a key of `PLACES`. */
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

/** Formats a change as `kind operation argument`. Adds the change's message after a colon if `expected` has one. */
const shown = ({ kind, operation, argument = '', msg }: DefinitionChange, expected = '') =>
  `${kind} ${operation} ${argument}`.trim() + (expected.includes(': ') ? `: ${msg}` : '')

const OLD = 'https://tickets.example.com'
const { get, post } = base.paths['/tickets']
const OTHER_FORM = 'the location, name or encoding of the argument "state" changed'
const q = { name: 'q', in: 'query' }
const at = (url: string, host?: unknown) =>
  changed('servers', [{ url, variables: { host: { default: host, enum: [host, 'b.example.com'] } } }])
const body = (schema: object, type = 'application/json') =>
  changed('create requestBody', { content: { [type]: { schema } } })
const stateRequired = changed('state required', true)
const note = (schema: object) => changed('ticket properties note', schema)
const ownersEmail = changed('components schemas Owner properties email type', 'integer')
const { title } = base.components.schemas.Ticket.properties

/** Each case has a name, the definition after the change, the expected changes, and the definition before the change (default: the base). */
const cases: [name: string, after: unknown, changes: string[], before?: unknown][] = [
  ['nothing', structuredClone(base), []],
  ['the order of keys', Object.fromEntries(Object.entries(base).reverse()), []],
  ['what no model is given', changed('list', { ...get, tags: ['x'], responses: {} }), []],
  ['a method in capitals', changed('paths /tickets', { GET: get, post }), []],
  ['a style that is the default anyway', changed('state style', 'form'), []],
  ['an operation removed', changed('create'), ['operation_removed create: the operation was removed']],
  ['an operation added', base, ['operation_added create: the operation is new'], changed('create')],
  ['another one', changed('item put', { operationId: 'd', summary: 'D' }), ['operation_added d']],
  ['another id', changed('list operationId', 'search'), ['operation_removed list', 'operation_added search']],
  ['its text', changed('list summary', 'Other'), ['changed list']],
  ['its path', changed('paths', { ...base.paths, '/tickets': { post }, '/search': { get } }), ['changed list']],
  [
    'its method',
    changed('paths /tickets', { put: get, post }),
    ['changed list: the function is "list, PUT /tickets" instead of "list, GET /tickets"'],
  ],
  ['its security', changed('list security', [{ key: [] }]), ['changed list']],
  ['security of all', changed('security', []), ['changed: the security schemes or security requirements changed']],
  ['a security scheme', changed('components securitySchemes', { key: { type: 'http' } }), ['changed']],
  ['another host', at('https://b.example.com'), ['origin_changed']],
  ['another scheme', at('http://tickets.example.com'), ['origin_changed']],
  ['another base path', at(`${OLD}/v2`), ['changed']],
  ['another path alone', at('/b'), ['changed'], at('/a')],
  [
    'a relative address and a variable',
    at('https://{host}/v1'),
    [
      'origin_changed: calls go to "https://{host}/v1" instead of "api.example.com/v2"',
      'origin_changed: calls can also go to "https://b.example.com"',
    ],
    at('api.example.com/v2'),
  ],
  ['another variable as the host', at('https://{a}/v1'), ['origin_changed'], at('https://{b}/v1')],
  ['the default of a variable', at('https://{host}', 'b.x'), ['origin_changed'], at('https://{host}', 'a.x')],
  [
    'another value of a variable',
    at('https://{host}', 'a.x'),
    ['origin_changed: calls can also go to "https://b.example.com"'],
    changed('servers', [{ url: 'https://{host}', variables: { host: { default: 'a.x' } } }]),
  ],
  [
    'a value less',
    changed('servers', [{ url: 'https://{host}', variables: { host: { default: 'a.x' } } }]),
    [],
    at('https://{host}', 'a.x'),
  ],
  ['a second server, which no call goes to', changed('servers', [...base.servers, { url: '/' }]), []],
  ['a server of its own, which no call goes to', changed('list servers', [{ url: 'https://b.example.com' }]), []],
  ['an argument removed', changed('limit'), ['argument_removed list limit: the argument "limit" is gone']],
  ['an argument added', changed('list parameters 2', q), ['argument_added list q']],
  [
    'a required argument added',
    changed('list parameters 2', { ...q, required: true }),
    ['argument_added list q: the argument "q" is new and required'],
  ],
  ['required', stateRequired, ['argument_required list state: the argument "state" is required now']],
  ['no longer required', base, ['changed list state: the argument "state" is optional now'], stateRequired],
  ['another type', changed('limit schema type', 'string'), ['argument_type_changed list limit']],
  [
    'any type, by another keyword',
    changed('limit schema', { oneOf: [{ type: 'integer' }], maximum: 100 }),
    [
      'argument_type_changed list limit: the type of the argument "limit" is "any" instead of "integer"',
      'changed list limit: the oneOf of the argument "limit" changed',
    ],
  ],
  ['null as well', changed('limit schema nullable', true), ['argument_type_changed list limit']],
  ['other values', changed('state schema enum', ['open', 'new']), ['argument_values_changed list state']],
  [
    'values of several types',
    changed('state schema enum', ['open', 7, { a: 1 }]),
    [
      'argument_values_changed list state: the argument "state" no longer lists "closed", and now lists "7", "{\\"a\\":1}"',
    ],
  ],
  ['values in another order', changed('state schema enum', ['closed', 'open']), []],
  ['any value', changed('state schema', { type: 'string' }), ['argument_values_changed list state']],
  ['a bound', changed('limit schema maximum', 50), ['changed list limit']],
  ['sent in another way', changed('state explode', false), [`changed list state: ${OTHER_FORM}`]],
  ['of the path item', changed('item parameters 0 schema type', 'integer'), ['argument_type_changed read id']],
  ['a body removed', changed('create requestBody'), ['argument_removed create requestBody']],
  ['a body of another media type', body(schemaRef('Ticket'), 'a/b+json'), ['changed create requestBody']],
  [
    'a list instead of an object',
    body({ type: 'array', items: { type: 'string' } }),
    ['argument_type_changed create requestBody', 'changed create requestBody'],
  ],
  ['a property required', changed('ticket required', ['title', 'note']), ['argument_required create requestBody.note']],
  [
    'properties, one named like a member of every object',
    changed('ticket properties', { title, constructor: {} }),
    [
      ...['note', 'parent', 'owner'].map(name => `argument_removed create requestBody.${name}`),
      'argument_added create requestBody.constructor',
    ],
  ],
  ['a pattern', note({ type: 'string', pattern: '^a' }), ['changed create requestBody.note']],
  ['deep in a property', note({ type: 'string', items: { items: {} } }), ['changed create requestBody.note']],
  ['a schema that others use', ownersEmail, ['changed create: the schema "Owner", to which arguments refer, changed']],
  ['additional properties', changed('ticket additionalProperties', false), ['changed create requestBody']],
  ['refused', {}, ['changed: no functions can be made from the new definition, so nothing is compared']],
  ['unreadable before', base, ['changed'], []],
]

for (const [name, after, expected, before = base] of cases)
  t.test(`changes: ${name}`, async t => {
    const changes = definitionChanges(before, after)
    t.strictSame(
      changes.map((each, i) => shown(each, expected[i])),
      expected,
    )
  })

t.test('a change has its place in the new definition, and the values before and after', async t => {
  const loc = ['body', 'definition', 'paths', '/tickets', 'get']
  const parameters = [{ name: 'state', in: 'query', schema: { enum: [1] } }]
  t.match(definitionChanges(base, changed('list', { parameters, operationId: 'list', summary: 'List' })), [
    { argument: 'limit', loc },
    { argument: 'state', loc, from: 'string', to: 'any' },
    { argument: 'state', loc, removed: ['open', 'closed'], added: [1] },
  ])
  t.match(definitionChanges(base, changed('servers 0 url', '/')), [
    { from: OLD, to: '/', loc: ['body', 'definition', 'servers', 0, 'url'] },
  ])
  const shared = changed('item', { $ref: '#/components/pathItems/P' }) as { components: Json }
  shared.components.pathItems = { P: { ...base.paths['/tickets/{id}'], get: { operationId: 'read', summary: 'New' } } }
  t.match(definitionChanges(base, shared), [{ loc: ['body', 'definition', 'components', 'pathItems', 'P', 'get'] }])
  t.notOk(Object.hasOwn(definitionChanges(base, changed('create'))[0] ?? {}, 'loc'))
})

t.test('the first 10,000 changes are listed, the others counted; of values the first 100', async t => {
  const all = (type: string) => {
    const parameters = [{ name: 'a', in: 'query', schema: { type } }]
    const get = { summary: type, security: [{ [type]: [] }], parameters }
    return { ...base, paths: many(5000, i => [`/p${i}`, { get: { operationId: `o${i}`, ...get } }]) }
  }
  const changes = definitionChanges(all('string'), all('integer'))
  t.equal(changes.length, 10_001)
  t.equal(changes.at(-1)?.msg, 'changes not listed: 5000')
  const values = Array.from({ length: 1000 }, (_, i) => `v${i}`)
  const listed = changed('state schema enum', values)
  t.match(definitionChanges(base, listed), [{ added: { length: 100 }, msg: /"v4" and more$/ }])
})
