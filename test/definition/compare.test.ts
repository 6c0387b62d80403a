import t from 'tap'
import { compareDefinitions, type DefinitionChange } from '../../src/tool/definition/index.js'

const base = {
  openapi: '3.0.3',
  info: { title: 'Tickets' },
  servers: [{ url: 'https://tickets.example.com' }],
  paths: {
    '/tickets': {
      get: {
        operationId: 'listTickets',
        summary: 'List',
        parameters: [
          { name: 'state', in: 'query', schema: { type: 'string', enum: ['open', 'closed'] } },
          { name: 'limit', in: 'query', schema: { type: 'integer', maximum: 100 } },
        ],
      },
      post: {
        operationId: 'createTicket',
        summary: 'Create',
        requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/Ticket' } } } },
      },
    },
    '/tickets/{id}': {
      parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
      get: { operationId: 'getTicket', summary: 'Get' },
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
          owner: { oneOf: [{ type: 'string' }, { type: 'integer' }] },
        },
      },
    },
  },
}

const PLACES = {
  list: 'paths /tickets get',
  state: 'paths /tickets get parameters 0',
  limit: 'paths /tickets get parameters 1',
  create: 'paths /tickets post',
  body: 'paths /tickets post requestBody',
  id: 'paths /tickets/{id} parameters 0',
  ticket: 'components schemas Ticket',
  owner: 'components schemas Ticket properties owner',
}

type Step = Record<string, unknown>

/** The base with another value at a place that begins with one of the words above; without one nothing stands there. */
function changed(place: string, ...value: unknown[]): unknown {
  const copy: unknown = structuredClone(base)
  const [first = '', ...rest] = place.split(' ')
  const path = [...(Object.hasOwn(PLACES, first) ? PLACES[first as keyof typeof PLACES].split(' ') : [first]), ...rest]
  const holder = path.slice(0, -1).reduce((at, key) => at[key] as Step, copy as Step) // each path below leads through objects
  const key = path.at(-1) as string // and has a step
  if (value.length > 0) holder[key] = value[0]
  else if (Array.isArray(holder)) holder.splice(Number(key), 1)
  else delete holder[key]
  return copy
}

function seen(changes: readonly DefinitionChange[]): string[] {
  return changes.map(change => `${change.class} ${change.kind} ${change.operation}`.trim())
}

const { get, post } = base.paths['/tickets']
const item = base.paths['/tickets/{id}']
const q = { name: 'q', in: 'query' }
const content = (type: string) => ({ content: { [type]: post.requestBody.content['application/json'] } })
const server = (...hosts: string[]) => ({
  url: 'https://{host}',
  variables: { host: { default: hosts[0], enum: hosts } },
})

/** What changes, the definition afterwards, and the changes that are seen. */
const cases: [name: string, after: unknown, changes: string[]][] = [
  ['nothing', structuredClone(base), []],
  ['the order of keys', Object.fromEntries(Object.entries(base).reverse()), []],
  ['only texts', changed('list', { ...get, summary: 'Other', description: 'More', tags: ['x'] }), []],
  ['operation removed', changed('create'), ['breaking operation_removed createTicket']],
  ['operation renamed', changed('list operationId', 'search'), ['breaking operation_renamed listTickets']],
  [
    'operation added',
    changed('paths /tickets/{id} delete', { operationId: 'deleteTicket', summary: 'Delete' }),
    ['safe operation_added deleteTicket'],
  ],
  [
    'operation moved to another path',
    changed('paths', { '/search': { get }, '/tickets': { post }, '/tickets/{id}': item }),
    ['unknown operation_moved listTickets'],
  ],
  ['method in capitals is no change', changed('paths /tickets', { GET: get, post }), []],
  ['another server', changed('servers', [{ url: 'https://new.example.com' }]), ['unknown server_changed']],
  ['a server of an operation', changed('list servers', [{ url: 'https://x.example.com' }]), ['unknown server_changed']],
  ['security of an operation', changed('list security', [{ key: [] }]), ['unknown security_changed listTickets']],
  ['security of the document', changed('security', [{ key: [] }]), ['unknown security_changed']],
  ['parameter removed', changed('limit'), ['breaking parameter_removed listTickets']],
  ['optional parameter added', changed('list parameters 2', q), ['safe parameter_added listTickets']],
  [
    'required parameter added',
    changed('list parameters 2', { ...q, required: true }),
    ['breaking parameter_required listTickets'],
  ],
  ['parameter newly required', changed('state required', true), ['breaking parameter_required listTickets']],
  ['a style that is the default anyway', changed('state style', 'form'), []],
  ['another style', changed('state explode', false), ['unknown parameter_style_changed listTickets']],
  [
    'parameter type changed',
    changed('limit schema', { type: 'string' }),
    ['breaking parameter_type_changed listTickets', 'safe parameter_schema_changed listTickets'],
  ],
  ['parameter type widened', changed('limit schema type', 'number'), ['safe parameter_type_changed listTickets']],
  ['parameter may be null too', changed('limit schema nullable', true), ['safe parameter_type_changed listTickets']],
  [
    'value taken from a list',
    changed('state schema enum', ['open']),
    ['breaking parameter_schema_changed listTickets'],
  ],
  [
    'value added to a list',
    changed('state schema enum', ['open', 'closed', 'new']),
    ['safe parameter_schema_changed listTickets'],
  ],
  ['bound tightened', changed('limit schema maximum', 50), ['breaking parameter_schema_changed listTickets']],
  ['bound loosened', changed('limit schema maximum', 500), ['safe parameter_schema_changed listTickets']],
  ['path-level parameter type', changed('id schema type', 'integer'), ['breaking parameter_type_changed getTicket']],
  ['body removed', changed('body'), ['breaking body_removed createTicket']],
  ['body newly required', changed('body required', true), ['breaking body_required createTicket']],
  ['another media type', changed('body', content('a/b+json')), ['unknown body_media_type_changed createTicket']],
  ['optional body added', changed('list requestBody', content('application/json')), ['safe body_added listTickets']],
  ['body property required', changed('ticket required', ['title', 'note']), ['breaking body_changed createTicket']],
  ['body property no longer required', changed('ticket required', []), ['safe body_changed createTicket']],
  ['body property removed', changed('ticket properties note'), ['breaking body_changed createTicket']],
  ['body property added', changed('ticket properties due', { type: 'string' }), ['safe body_changed createTicket']],
  ['a new pattern', changed('ticket properties note pattern', '^a'), ['breaking body_changed createTicket']],
  ['another format', changed('ticket properties note format', 'uuid'), ['unknown body_changed createTicket']],
  ['alternative taken away', changed('owner oneOf 1'), ['breaking body_changed createTicket']],
  ['a body closed', changed('ticket additionalProperties', false), ['breaking body_changed createTicket']],
  ['a part that requires', changed('ticket allOf', [{ required: ['x'] }]), ['breaking body_changed createTicket']],
  ['schema inlined', changed('body content application/json schema', base.components.schemas.Ticket), []],
  ['refused', {}, ['unknown definition_unreadable']],
]

t.test('each change is seen, and classed by what it means for a caller of the old definition', async t => {
  for (const [name, after, expected] of cases) {
    const { changes } = compareDefinitions(base, after)
    t.same(seen(changes), expected, name)
    for (const { msg } of changes) t.match(msg, /^[^\r\n]+$/)
  }
})

t.test('schemas that contain themselves, by references alone and inside other schemas', async t => {
  const Ticket = { $ref: '#/components/schemas/Ticket' }
  const withParent = (...more: object[]) =>
    changed('ticket properties', {
      parent: { allOf: [Ticket, { description: 'The one above' }] },
      parts: { type: 'array', items: { anyOf: [{ allOf: [Ticket] }, { type: 'null' }] } },
      ...Object.assign({}, ...more),
    })
  const { changes } = compareDefinitions(withParent(), withParent({ note: true }))
  t.match(changes[0], { class: 'safe', msg: 'the request body: note: the property is new and optional' })
  t.ok(changes.length < 10)
  const note = (description: string) => ({ note: { description } })
  t.same(compareDefinitions(withParent(note('a')), withParent(note('b'))).changes, [])
})

t.test('unknown server_changed: the default or a listed value of a variable', async t => {
  const before = changed('servers', [server('a.example.com', 'b.example.com')])
  for (const hosts of [
    ['b.example.com', 'a.example.com'],
    ['a.example.com', 'b.example.com', 'c.example.com'],
  ])
    t.same(seen(compareDefinitions(before, changed('servers', [server(...hosts)])).changes), ['unknown server_changed'])
})

t.test('msg: the steps of a place inside a schema are separated', async t => {
  const withStreet = (type: string) =>
    changed('ticket properties', {
      address: { allOf: [{ properties: { street: { type } } }] },
      tags: { items: { not: { properties: {} }, allOf: [{ items: { type } }] } },
    })
  const { changes } = compareDefinitions(withStreet('string'), withStreet('boolean'))
  t.same(
    changes.map(change => change.msg),
    [
      'the request body: address.street: the type is boolean instead of string',
      'the request body: tags[][]: the type is boolean instead of string',
    ],
  )
})

t.test('unknown comparison_incomplete: the last change says how many are left out', async t => {
  const parameters = [{ $ref: '#/components/parameters/P' }]
  const item = (i: number) => ({ parameters, get: { operationId: `o${i}`, summary: 'S' } })
  const paths = Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`/p${i}`, item(i)]))
  const withTypes = (type: string) => {
    const properties = Object.fromEntries(Array.from({ length: 49 }, (_, i) => [`p${i}`, { type }]))
    return { ...base, paths, components: { parameters: { P: { ...q, schema: { properties } } } } }
  }
  const { changes } = compareDefinitions(withTypes('string'), withTypes('boolean'))
  t.equal(changes.length, 10_001)
  t.match(changes.at(-1), { class: 'unknown', kind: 'comparison_incomplete', msg: '9600 more changes are left out' })
})

t.test('loc: a change is where it stands in the new definition', async t => {
  const { changes } = compareDefinitions(base, changed('list parameters 2', { ...q, required: true }))
  t.same(changes[0]?.loc, ['body', 'definition', 'paths', '/tickets', 'get', 'parameters', 2])
})

t.test('never throws: whatever is compared', async t => {
  const unnamed = { openapi: '3.1.0', paths: { '/x': { get: { operationId: 'x' } } } }
  for (const value of [null, 1, 'x', [], {}, { openapi: '3.1.0' }, unnamed]) {
    t.doesNotThrow(() => compareDefinitions(value, base))
    t.doesNotThrow(() => compareDefinitions(base, value))
  }
})
