import t from 'tap'
import { compareDefinitions, type DefinitionChange } from '../../src/tool/definition/index.js'

type Json = Record<string, unknown>

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

/** The base with one change. */
function changed(change: (definition: typeof base & Json) => void): unknown {
  const copy = structuredClone(base)
  change(copy)
  return copy
}

/** Changes JSON that the type of `base` does not foresee. */
function loose(value: unknown): Json {
  return value as Json
}

function seen(changes: readonly DefinitionChange[]): string[] {
  return changes.map(change => `${change.class} ${change.kind} ${change.operation}`.trim())
}

const list = (definition: typeof base) => definition.paths['/tickets'].get
const ticket = (definition: typeof base) => definition.components.schemas.Ticket

const cases: [string, unknown, string[]][] = [
  ['nothing', changed(() => {}), []],
  ['only texts', changed(d => Object.assign(list(d), { summary: 'Other', description: 'More', tags: ['x'] })), []],
  [
    'operation removed',
    changed(d => delete loose(d.paths['/tickets']).post),
    ['breaking operation_removed createTicket'],
  ],
  [
    'operation renamed',
    changed(d => Object.assign(list(d), { operationId: 'searchTickets' })),
    ['breaking operation_renamed listTickets'],
  ],
  [
    'operation added',
    changed(d =>
      Object.assign(d.paths['/tickets/{id}'], { delete: { operationId: 'deleteTicket', summary: 'Delete' } }),
    ),
    ['safe operation_added deleteTicket'],
  ],
  [
    'operation moved to another path',
    changed(d => {
      Object.assign(d.paths, { '/search': { get: list(d) } })
      delete loose(d.paths['/tickets']).get
    }),
    ['unknown operation_moved listTickets'],
  ],
  [
    'method in capitals is no change',
    changed(d => {
      Object.assign(d.paths['/tickets'], { GET: list(d) })
      delete loose(d.paths['/tickets']).get
    }),
    [],
  ],
  [
    'another server',
    changed(d => Object.assign(d, { servers: [{ url: 'https://new.example.com' }] })),
    ['unknown server_changed'],
  ],
  ['parameter removed', changed(d => void list(d).parameters.pop()), ['breaking parameter_removed listTickets']],
  [
    'optional parameter added',
    changed(d => (list(d).parameters as unknown[]).push({ name: 'q', in: 'query' })),
    ['safe parameter_added listTickets'],
  ],
  [
    'required parameter added',
    changed(d => (list(d).parameters as unknown[]).push({ name: 'q', in: 'query', required: true })),
    ['breaking parameter_required listTickets'],
  ],
  [
    'parameter newly required',
    changed(d => Object.assign(list(d).parameters[0] ?? {}, { required: true })),
    ['breaking parameter_required listTickets'],
  ],
  [
    'parameter type changed',
    changed(d => Object.assign(list(d).parameters[1] ?? {}, { schema: { type: 'string' } })),
    ['breaking parameter_type_changed listTickets', 'safe parameter_schema_changed listTickets'],
  ],
  [
    'parameter type widened',
    changed(d => Object.assign(list(d).parameters[1] ?? {}, { schema: { type: 'number', maximum: 100 } })),
    ['safe parameter_type_changed listTickets'],
  ],
  [
    'parameter may be null too',
    changed(d =>
      Object.assign(list(d).parameters[1] ?? {}, { schema: { type: 'integer', maximum: 100, nullable: true } }),
    ),
    ['safe parameter_type_changed listTickets'],
  ],
  [
    'value taken from a list',
    changed(d => Object.assign(list(d).parameters[0] ?? {}, { schema: { type: 'string', enum: ['open'] } })),
    ['breaking parameter_schema_changed listTickets'],
  ],
  [
    'value added to a list',
    changed(d =>
      Object.assign(list(d).parameters[0] ?? {}, { schema: { type: 'string', enum: ['open', 'closed', 'new'] } }),
    ),
    ['safe parameter_schema_changed listTickets'],
  ],
  [
    'bound tightened',
    changed(d => Object.assign(list(d).parameters[1] ?? {}, { schema: { type: 'integer', maximum: 50 } })),
    ['breaking parameter_schema_changed listTickets'],
  ],
  [
    'bound loosened',
    changed(d => Object.assign(list(d).parameters[1] ?? {}, { schema: { type: 'integer', maximum: 500 } })),
    ['safe parameter_schema_changed listTickets'],
  ],
  [
    'path-level parameter type changed',
    changed(d => Object.assign(d.paths['/tickets/{id}'].parameters[0] ?? {}, { schema: { type: 'integer' } })),
    ['breaking parameter_type_changed getTicket'],
  ],
  [
    'body removed',
    changed(d => delete loose(d.paths['/tickets'].post).requestBody),
    ['breaking body_removed createTicket'],
  ],
  [
    'body newly required',
    changed(d => Object.assign(d.paths['/tickets'].post.requestBody, { required: true })),
    ['breaking body_required createTicket'],
  ],
  [
    'optional body added',
    changed(d => Object.assign(list(d), { requestBody: { content: { 'application/json': {} } } })),
    ['safe body_added listTickets'],
  ],
  [
    'body property required, in a component',
    changed(d => ticket(d).required.push('note')),
    ['breaking body_changed createTicket'],
  ],
  [
    'body property removed',
    changed(d => delete loose(ticket(d).properties).note),
    ['breaking body_changed createTicket'],
  ],
  [
    'optional body property added',
    changed(d => Object.assign(ticket(d).properties, { due: { type: 'string' } })),
    ['safe body_changed createTicket'],
  ],
  [
    'body property with a new pattern',
    changed(d => Object.assign(ticket(d).properties.note, { pattern: '^a' })),
    ['breaking body_changed createTicket'],
  ],
  [
    'body property with another format',
    changed(d => Object.assign(ticket(d).properties.note, { format: 'uuid' })),
    ['unknown body_changed createTicket'],
  ],
  [
    'alternative taken away',
    changed(d => void ticket(d).properties.owner.oneOf.pop()),
    ['breaking body_changed createTicket'],
  ],
  [
    'schema inlined instead of referenced',
    changed(d =>
      Object.assign(d.paths['/tickets'].post.requestBody.content['application/json'], { schema: ticket(d) }),
    ),
    [],
  ],
  ['refused', {}, ['unknown definition_unreadable']],
]

for (const [name, after, expected] of cases) {
  t.test(`classified: ${name}`, async t => {
    const { changes } = compareDefinitions(base, after)
    t.same(seen(changes), expected)
    for (const change of changes) t.ok(change.msg.length > 0)
  })
}

t.test('msg: the steps of a place inside a schema are separated', async t => {
  const withStreet = (type: string) =>
    changed(d => {
      Object.assign(ticket(d).properties, {
        address: { allOf: [{ properties: { street: { type } } }] },
        tags: { items: { not: { properties: {} }, allOf: [{ items: { type } }] } },
      })
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

t.test(
  'unknown comparison_incomplete: the last change says what was not compared, and how many changes are left out',
  async t => {
    const many = (count: number) => ({
      ...base,
      paths: Object.fromEntries(
        Array.from({ length: count }, (_, i) => [
          `/p${i}`,
          { parameters: [{ $ref: '#/components/parameters/P' }], get: { operationId: `o${i}`, summary: 'S' } },
        ]),
      ),
    })
    const withTypes = (type: string) => {
      const properties = Object.fromEntries(Array.from({ length: 49 }, (_, i) => [`p${i}`, { type }]))
      return { ...many(400), components: { parameters: { P: { name: 'q', in: 'query', schema: { properties } } } } }
    }
    const { changes } = compareDefinitions(withTypes('string'), withTypes('boolean'))
    t.equal(changes.length, 10_001)
    t.match(changes.at(-1), { class: 'unknown', kind: 'comparison_incomplete', msg: '9600 more changes are left out' })
    const large = (more: object) => {
      const S = { properties: Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`p${i}`, true])) }
      const allOf = [{ $ref: '#/components/schemas/S' }]
      const paths = Object.fromEntries(
        Array.from({ length: 60 }, (_, i) => [
          `/p${i}`,
          {
            post: {
              operationId: `o${i}`,
              summary: 'S',
              requestBody: { content: { 'application/json': { schema: { allOf, ...more } } } },
            },
          },
        ]),
      )
      return { ...base, paths, components: { schemas: { S } } }
    }
    const short = compareDefinitions(large({}), large({ title: 'T' }))
    t.match(short.changes, [{ kind: 'comparison_incomplete', msg: /too large to be compared to the end/ }])
  },
)

t.test('loc: a change is where it stands in the new definition', async t => {
  const after = changed(d => (list(d).parameters as unknown[]).push({ name: 'q', in: 'query', required: true }))
  const { changes } = compareDefinitions(base, after)
  t.same(changes[0]?.loc, ['body', 'definition', 'paths', '/tickets', 'get', 'parameters', 2])
})

t.test('never throws: whatever is compared', async t => {
  for (const value of [
    null,
    1,
    'x',
    [],
    {},
    { openapi: '3.1.0' },
    { openapi: '3.1.0', paths: { '/x': { get: { operationId: 'x' } } } },
  ]) {
    t.doesNotThrow(() => compareDefinitions(value, base))
    t.doesNotThrow(() => compareDefinitions(base, value))
  }
})
