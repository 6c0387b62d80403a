import t from 'tap'
import { changeText, type DefinitionChange, definitionChanges } from '../../src/definition/index.js'

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

/** Returns the base with another value at a place, which begins with one of the words above. Without a value the part is removed. */
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

/** Formats a change in one line: kind, operation and details. */
function seen(changes: readonly DefinitionChange[]): string[] {
  return changes.map(change => `${change.kind} ${change.operation}: ${changeText(change)}`)
}

const { get, post } = base.paths['/tickets']
const item = base.paths['/tickets/{id}']
const q = { name: 'q', in: 'query' }
const content = (type: string) => ({ content: { [type]: post.requestBody.content['application/json'] } })
const servers = (...hosts: string[]) =>
  changed('servers', [{ url: 'https://{host}', variables: { host: { default: hosts[0], enum: hosts } } }])
const owner = (...oneOf: object[]) => changed('owner oneOf', oneOf)
const note = (schema: object) => changed('ticket properties note', schema)
const withIds = (...locations: string[]) =>
  changed(
    'list parameters',
    locations.map(location => ({ name: 'id', in: location, schema: { type: 'string' } })),
  )
const named = (...names: string[]) =>
  changed(
    'list parameters',
    names.map(name => ({ name, in: 'query', schema: { type: 'string' } })),
  )
const OLD = 'https://tickets.example.com'
const NEW = 'https://new.example.com'
const [INTEGER, NUMBER, TEXT, NULL] = [{ type: 'integer' }, { type: 'number' }, { type: 'string' }, { type: 'null' }]

/** Each row: a name, the definition after the change (and before it, if not the base), and the expected changes. */
const cases: [name: string, after: unknown, changes: string[], before?: unknown][] = [
  ['nothing', structuredClone(base), []],
  ['the order of keys', Object.fromEntries(Object.entries(base).reverse()), []],
  ['what no model is given', changed('list', { ...get, tags: ['x'], responses: { 200: { description: 'D' } } }), []],
  ['a text', changed('list summary', 'Other'), ['changed listTickets: the description of the operation changed']],
  ['operation removed', changed('create'), ['operation_removed createTicket: the operation is gone']],
  [
    'operation renamed',
    changed('list operationId', 'search'),
    ['operation_renamed listTickets: the operation is called "search" instead of "listTickets"'],
  ],
  [
    'operation added',
    changed('paths /tickets/{id} delete', { operationId: 'deleteTicket', summary: 'Delete' }),
    ['operation_added deleteTicket: the operation is new'],
  ],
  [
    'operation moved to another path',
    changed('paths', { '/search': { get }, '/tickets': { post }, '/tickets/{id}': item }),
    ['changed listTickets: the address of the operation changed from "GET /tickets" to "GET /search"'],
  ],
  ['method in capitals is no change', changed('paths /tickets', { GET: get, post }), []],
  [
    'another server',
    changed('servers', [{ url: NEW }]),
    [
      `origin_changed : no call goes any more to "${OLD}"; calls may go to "${NEW}"`,
      `changed : the address of the definition changed from "${OLD}" to "${NEW}"`,
    ],
  ],
  [
    'the default of a variable',
    servers('b.example.com', 'a.example.com'),
    ['changed : the address of the definition changed from "https://a.example.com" to "https://b.example.com"'],
    servers('a.example.com', 'b.example.com'),
  ],
  [
    'a server of an operation',
    changed('list servers', [{ url: NEW }]),
    [`origin_changed listTickets: calls may go to "${NEW}"`],
  ],
  [
    'security of an operation',
    changed('list security', [{ key: [] }]),
    ['changed listTickets: the security of the operation changed'],
  ],
  [
    'security of the document',
    changed('security', [{ key: [] }]),
    ['changed : the security of the definition changed'],
  ],
  ['argument removed', changed('limit'), ['argument_removed listTickets: the argument "limit" is gone']],
  [
    'argument added',
    changed('list parameters 2', q),
    ['argument_added listTickets: the argument "q" is new and optional'],
  ],
  [
    'required argument added',
    changed('list parameters 2', { ...q, required: true }),
    ['argument_added listTickets: the argument "q" is new and required'],
  ],
  [
    'a parameter in another place that takes the name of one',
    withIds('header', 'query'),
    [
      'argument_renamed listTickets: the argument "id" is called "query_id" now',
      'argument_added listTickets: the argument "id" is new and optional',
    ],
    withIds('query'),
  ],
  [
    'two parameters of one name that change places',
    withIds('query', 'header'),
    [
      'argument_renamed listTickets: the argument "id" is called "header_id" now',
      'argument_renamed listTickets: the argument "query_id" is called "id" now',
    ],
    withIds('header', 'query'),
  ],
  [
    'one of two parameters of one name is gone',
    withIds('query'),
    [
      'argument_removed listTickets: the argument "id" is gone',
      'argument_renamed listTickets: the argument "query_id" is called "id" now',
    ],
    withIds('header', 'query'),
  ],
  [
    'a parameter that is sent in another place',
    withIds('header'),
    ['changed listTickets: the form of the argument "id" changed from "in query, name id" to "in header, name id"'],
    withIds('query'),
  ],
  [
    'a parameter that makes the safe name of another longer',
    named('page[size]', 'page_size'),
    [
      'argument_renamed listTickets: the argument "page_size" is called "page_size_2ee479a6" now',
      'changed listTickets: the title of the argument "page_size_2ee479a6" changed',
      'argument_added listTickets: the argument "page_size" is new and optional',
    ],
    named('page[size]'),
  ],
  [
    'newly required',
    changed('state required', true),
    ['argument_required listTickets: the argument "state" is required now'],
  ],
  [
    'no longer required',
    base,
    ['changed listTickets: the argument "state" is optional now'],
    changed('state required', true),
  ],
  ['a style that is the default anyway', changed('state style', 'form'), []],
  [
    'another style',
    changed('state explode', false),
    [
      'changed listTickets: the form of the argument "state" changed from "in query, name state" to "in query, name state, explode false"',
    ],
  ],
  [
    'another type',
    changed('limit schema', { type: 'string' }),
    [
      'argument_type_changed listTickets: the type of the argument "limit" is string instead of integer',
      'changed listTickets: the maximum of the argument "limit" changed',
    ],
  ],
  [
    'null as well',
    changed('limit schema nullable', true),
    ['argument_type_changed listTickets: the type of the argument "limit" is integer or null instead of integer'],
  ],
  [
    'other values',
    changed('state schema enum', ['open', 'new']),
    ['argument_values_changed listTickets: the argument "state" no longer takes "closed"; takes also "new"'],
  ],
  [
    'any value',
    changed('state schema', { type: 'string' }),
    ['argument_values_changed listTickets: the argument "state" takes any value now, not only "open", "closed"'],
  ],
  [
    'only certain values',
    base,
    ['argument_values_changed listTickets: the argument "state" takes only "open", "closed" now'],
    changed('state schema', { type: 'string' }),
  ],
  [
    'a bound',
    changed('limit schema maximum', 50),
    ['changed listTickets: the maximum of the argument "limit" changed'],
  ],
  ['items that may be anything', note({ type: 'array', items: true }), [], note({ type: 'array' })],
  ['keywords that say nothing', note({ type: 'string', minLength: 0, uniqueItems: false, deprecated: false }), []],
  [
    'of a parameter of the path',
    changed('id schema type', 'integer'),
    ['argument_type_changed getTicket: the type of the argument "id" is integer instead of string'],
  ],
  ['body removed', changed('body'), ['argument_removed createTicket: the argument "requestBody" is gone']],
  [
    'body required',
    changed('body required', true),
    ['argument_required createTicket: the argument "requestBody" is required now'],
  ],
  [
    'another media type',
    changed('body', content('a/b+json')),
    [
      'changed createTicket: the form of the argument "requestBody" changed from "in body, media_type application/json" to "in body, media_type a/b+json"',
    ],
  ],
  [
    'a property required',
    changed('ticket required', ['title', 'note']),
    ['argument_required createTicket: the argument "requestBody.note" is required now'],
  ],
  [
    'a property no longer required',
    changed('ticket required', []),
    ['changed createTicket: the argument "requestBody.title" is optional now'],
  ],
  [
    'a property removed',
    changed('ticket properties note'),
    ['argument_removed createTicket: the argument "requestBody.note" is gone'],
  ],
  [
    'a property added, whatever is in it',
    changed('ticket properties due', { properties: { at: { properties: { day: { properties: { hour: TEXT } } } } } }),
    ['argument_added createTicket: the argument "requestBody.due" is new and optional'],
  ],
  [
    'a pattern',
    note({ type: 'string', pattern: '^a' }),
    ['changed createTicket: the pattern of the argument "requestBody.note" changed'],
  ],
  ['an alternative', owner(TEXT), ['changed createTicket: the oneOf of the argument "requestBody.owner" changed']],
  [
    'an alternative in which another fits twice',
    owner(INTEGER, NUMBER),
    ['changed createTicket: the oneOf of the argument "requestBody.owner" changed'],
    owner(INTEGER),
  ],
  ['null in another form', note({ anyOf: [TEXT, NULL] }), [], note({ type: 'string', nullable: true })],
  [
    'a body closed',
    changed('ticket additionalProperties', false),
    ['changed createTicket: the additionalProperties of the argument "requestBody" changed'],
  ],
  [
    'a part that requires',
    changed('ticket allOf', [{ required: ['x'] }]),
    ['argument_added createTicket: the argument "requestBody.x" is new and required'],
  ],
  ['schema inlined', changed('body content application/json schema', base.components.schemas.Ticket), []],
  ['refused', {}, ['changed : the new definition cannot be read, so nothing can be compared']],
  ['unreadable before', base, ['changed : the old definition cannot be read, so nothing can be compared'], []],
]

for (const [name, after, expected, before = base] of cases) {
  t.test(`changes: ${name}`, async t => t.same(seen(definitionChanges(before, after)), expected))
}

t.test('changes inside alternatives and their references are reported, new names of schemas are not', async t => {
  const withLabel = (name: string, type: string) =>
    changed('components schemas', {
      Ticket: { properties: { label: { oneOf: [{ $ref: `#/components/schemas/${name}` }, INTEGER] } } },
      [name]: { properties: { inner: { $ref: '#/components/schemas/Inner' } } },
      Inner: { properties: { at: { type } } },
    })
  t.same(seen(definitionChanges(withLabel('A', 'string'), withLabel('A', 'boolean'))), [
    'changed createTicket: the oneOf of the argument "requestBody.label" changed',
  ])
})

t.test('recursive schemas, by references alone and inside other schemas', async t => {
  const Ticket = { $ref: '#/components/schemas/Ticket' }
  const withNote = (note: object) =>
    changed('ticket properties', {
      parent: { allOf: [Ticket, { description: 'The one above' }] },
      parts: { type: 'array', items: { anyOf: [{ allOf: [Ticket] }, { type: 'null' }] } },
      note,
    })
  t.same(seen(definitionChanges(withNote(TEXT), withNote(INTEGER))), [
    'argument_type_changed createTicket: the type of the argument "requestBody.note" is integer instead of string',
  ])
})

t.test('places inside a schema: items, members of maps, parts of allOf', async t => {
  const withType = (type: string) =>
    changed('ticket properties', {
      address: { allOf: [{ properties: { street: { type } } }] },
      tags: { items: { items: { type } } },
      more: { additionalProperties: { type } },
    })
  t.same(
    definitionChanges(withType('string'), withType('boolean')).map(change => change.argument),
    ['requestBody.address.street', 'requestBody.more.*', 'requestBody.tags[][]'],
  )
})

t.test('a parameter that a custom header supplies is not an argument: adding it changes nothing', async t => {
  const withKey = changed('list parameters 2', { name: 'X-Key', in: 'header', required: true })
  t.same(seen(definitionChanges(base, withKey)), [
    'argument_added listTickets: the argument "X-Key" is new and required',
  ])
  t.same(definitionChanges(base, withKey, { headerNames: ['x-key'] }), [])
  t.same(seen(definitionChanges(withKey, withKey, { headerNames: [], headerNamesBefore: ['X-KEY'] })), [
    'argument_added listTickets: the argument "X-Key" is new and required',
  ])
})

t.test('left out: the last change counts those beyond 10,000', async t => {
  const operation = (i: number, summary: string) => ({
    get: { operationId: `o${i}`, summary, security: [{ [summary]: [] }] },
  })
  const withTexts = (text: string, more: string[] = []) => ({
    ...base,
    paths: Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`/p${i}`, operation(i, text)])),
    servers: [{ url: OLD }, ...more.map(url => ({ url }))],
  })
  const changes = definitionChanges(withTexts('A'), withTexts('B', [NEW]))
  t.equal(changes.length, 10_001)
  t.equal(changeText(changes.at(-1) as DefinitionChange), '1 more changes are left out')
})

t.test('loc: the operation in the new definition, even if its path item is a reference', async t => {
  const { get } = item
  const shared = changed('paths /tickets/{id}', { $ref: '#/components/pathItems/P' }) as { components: Step }
  shared.components.pathItems = { P: { ...item, get: { ...get, summary: 'G' } } }
  t.same(definitionChanges(base, shared)[0]?.loc, ['body', 'definition', 'components', 'pathItems', 'P', 'get'])
  t.same(definitionChanges(base, changed('create'))[0]?.loc, undefined)
})

t.test('never throws, whatever is compared', async t => {
  const unnamed = { openapi: '3.1.0', paths: { '/x': { get: { operationId: 'x' } } } }
  for (const value of [null, 1, 'x', [], {}, { openapi: '3.1.0' }, unnamed]) {
    t.doesNotThrow(() => definitionChanges(value, base))
    t.doesNotThrow(() => definitionChanges(base, value))
  }
})

t.test('a new origin has the place where it stands, and the operation if it is of one', t => {
  const twice = { ...base, servers: [...base.servers, { url: NEW }] }
  for (const [place, operation, after] of [
    ['servers 1 url', '', twice],
    ['paths /tickets servers 0 url', '', changed('paths /tickets servers', [{ url: NEW }])],
    ['paths /tickets/{id} servers 0 url', 'getTicket', changed('paths /tickets/{id} servers', [{ url: NEW }])],
    ['paths /tickets post servers 1 url', 'createTicket', changed('create servers', [base.servers[0], { url: NEW }])],
    ['servers 0 url', '', changed('servers', [{ url: NEW }])],
  ] as const) {
    const changes = definitionChanges(base, after).filter(({ kind }) => kind === 'origin_changed')
    const found = changes.map(({ operation, loc = [], added }) => [operation, loc.slice(2).join(' '), added])
    t.strictSame(found, [[operation, place, [NEW]]])
  }
  t.match(definitionChanges(twice, base), [
    { kind: 'origin_changed', loc: ['body', 'definition', 'servers', 0, 'url'] },
  ])
  t.end()
})
