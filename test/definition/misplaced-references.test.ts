import t from 'tap'
import { checkDefinition, completeDefinition, type DefinitionCheck, toFunctions } from '../../src/definition/index.js'

type Json = Record<string, unknown>

const AT = ['body', 'definition']
const FILE = './parts/one.yaml'

function documentOf(openapi = '3.0.3'): Json {
  return {
    openapi,
    info: { title: 'Probe', version: '1' },
    servers: [{ url: 'https://{region}.example.com', variables: { region: { default: 'eu' } } }],
    tags: [{ name: 'things' }],
    paths: {
      '/things/{id}': {
        put: {
          operationId: 'put_thing',
          summary: 'Puts a thing',
          parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
          requestBody: {
            content: { 'application/json': { schema: { type: 'object', properties: { a: {} }, required: ['a'] } } },
          },
          responses: { '200': { description: 'Done', headers: {}, content: { 'application/json': {} } } },
        },
      },
    },
    components: { 'x-parts': { one: {} }, schemas: {}, parameters: {} },
  }
}

/** Returns the document with a reference at `path`, whether or not it has a value there. */
function withReference(path: (string | number)[], ref: unknown, openapi?: string): Json {
  const document = documentOf(openapi)
  let at = document
  for (const key of path.slice(0, -1)) {
    at[key] ??= {}
    at = at[key] as Json // each path below leads through objects
  }
  at[path.at(-1) as string] = { $ref: ref }
  return document
}

const faultsOf = (check: DefinitionCheck) => (check.ok ? [] : check.faults.map(({ loc, type }) => ({ loc, type })))

/** Returns the faults left after a completion. */
function leftOf(definition: unknown) {
  return faultsOf(completeDefinition(definition, { server: 'https://given.example.com' }).check)
}

const OPERATION = ['paths', '/things/{id}', 'put']
const BODY = [...OPERATION, 'requestBody', 'content']
const HOLDERS: [holder: (string | number)[], keys: string][] = [
  [[], 'info servers paths'],
  [['info'], 'title'],
  [['servers'], '0'],
  [['servers', 0], 'url variables'],
  [['servers', 0, 'variables'], 'region'],
  [['servers', 0, 'variables', 'region'], 'default'],
  [['paths', '/things/{id}'], 'parameters servers put'],
  [OPERATION, 'operationId summary description parameters servers'],
  [[...OPERATION, 'parameters', 0], 'name in content'],
  [[...OPERATION, 'requestBody'], 'content'],
  [BODY, 'application/json'],
  [[...BODY, 'application/json', 'schema'], 'properties required dependentRequired allOf description'],
  [[...BODY, 'application/json', 'schema', 'required'], '0'],
]
/** Parts that no tool reads. */
const UNREAD: typeof HOLDERS = [
  [[], 'tags externalDocs security components webhooks'],
  [['info'], 'contact license description'],
  [['tags'], '0'],
  [['components'], 'schemas parameters links callbacks'],
  [['paths', '/things/{id}'], 'head TRACE'],
  [OPERATION, 'tags responses callbacks security externalDocs'],
  [[...OPERATION, 'responses', '200'], 'headers content links'],
  [[...OPERATION, 'responses', '200', 'content'], 'application/json'],
  [[...BODY, 'application/json'], 'encoding'],
]
const placesIn = (holders: typeof HOLDERS) =>
  holders.flatMap(([holder, keys]) => keys.split(' ').map(key => [...holder, /^\d$/.test(key) ? Number(key) : key]))

t.test('a reference where OpenAPI allows none: one fault at its place, and nothing is completed', async t => {
  for (const path of placesIn(HOLDERS)) {
    const name = path.join(' ')
    const loc = [...AT, ...path, '$ref']
    const toFile = withReference(path, FILE)
    t.same(faultsOf(checkDefinition(toFile)), [{ loc, type: 'ref_external' }], name)
    t.same(leftOf(toFile), [{ loc, type: 'ref_external' }], `${name}: completed`)
    const inside = withReference(path, '#/components/x-parts/one')
    t.same(faultsOf(checkDefinition(inside)), [{ loc, type: 'ref_not_allowed' }], name)
  }
  t.same(leftOf({ $ref: FILE }), [{ loc: [...AT, '$ref'], type: 'ref_external' }])
})

t.test('a reference in a part that no tool reads: a warning at its place, and the same functions', async t => {
  const without = toFunctions(documentOf())
  for (const path of placesIn(UNREAD)) {
    const document = withReference(path, FILE)
    const { warnings, ...check } = checkDefinition(document)
    t.same(faultsOf({ warnings, ...check } as DefinitionCheck), [], path.join(' '))
    const loc = [...AT, ...path, '$ref']
    t.match(
      warnings.filter(each => each.type === 'ref_not_read'),
      [{ loc }],
      path.join(' '),
    )
    t.same(toFunctions(document), without)
  }
  const schema = withReference([...BODY, 'application/json', 'schema', 'externalDocs'], FILE)
  t.same(faultsOf(checkDefinition(schema)), [])
})

t.test(
  'a reference that leads nowhere, in a part that no tool reads: a warning; none for one that leads somewhere',
  async t => {
    const done = [...OPERATION, 'responses', '200']
    for (const path of [
      [...done, 'content', 'application/json', 'schema'],
      [...done, 'content', 'application/json', 'schema', 'properties', 'title', 'items'],
      [...done, 'headers', 'X'],
      [...done, 'links', 'l'],
      [...OPERATION, 'callbacks', 'c'],
      ['components', 'responses', 'r'],
      ['components', 'schemas', 's'],
      ['paths', '/things/{id}', 'head', 'requestBody'],
    ])
      for (const ref of [FILE, '#/components/callbacks/none']) {
        const loc = [...AT, ...path, '$ref']
        const { warnings, ok } = checkDefinition(withReference(path, ref))
        t.match([ok, warnings.filter(({ type }) => type === 'ref_not_read')], [true, [{ loc, msg: /leads nowhere/ }]])
        const found = checkDefinition(withReference(path, `#/${path[0]}`)).warnings
        t.notOk(
          found.some(({ type }) => type === 'ref_not_read'),
          'it leads somewhere',
        )
      }
    const read = withReference([...BODY, 'application/json', 'schema'], '#/components/schemas/s')
    read.components = { schemas: { s: { $ref: FILE } } }
    const { warnings } = checkDefinition(read)
    t.match(
      [faultsOf(checkDefinition(read)), warnings.some(({ type }) => type === 'ref_not_read')],
      [[{ type: 'ref_external' }], false],
    )
  },
)

t.test('a $ref that is not a text: only its own fault, and nothing is completed', async t => {
  for (const path of [['info'], ['paths'], OPERATION, [...BODY, 'application/json']]) {
    for (const given of [null, ['x'], { a: 1 }]) {
      const expected = [{ loc: [...AT, ...path, '$ref'], type: 'string_type' }]
      const document = withReference(path, given)
      t.same(faultsOf(checkDefinition(document)), expected, `${path.join(' ')} ${JSON.stringify(given)}`)
      t.same(leftOf(document), expected, `${path.join(' ')}: completed`)
    }
  }
})

t.test('an operation of a shared path item that is a reference', async t => {
  const document = documentOf()
  document.paths = { '/things': { $ref: '#/components/x-items/things' } }
  document.components = { 'x-items': { things: { get: { $ref: FILE } } } }
  const loc = [...AT, 'components', 'x-items', 'things', 'get', '$ref']
  t.same(leftOf(document), [{ loc, type: 'ref_external' }])
})

t.test('accepted: references where OpenAPI allows them, members named $ref, and data that holds one', async t => {
  const document = documentOf()
  const { paths } = document as { paths: Record<string, { put: Json }> }
  const put = paths['/things/{id}']?.put as Json // the document above has it
  document.components = {
    parameters: { id: { name: 'id', in: 'path', required: true, schema: { $ref: '#/components/schemas/id' } } },
    schemas: { id: { type: 'string' }, odd: { properties: { $ref: { type: 'string' } }, enum: [{ $ref: FILE }] } },
    requestBodies: { body: { content: { 'application/json': { schema: { $ref: '#/components/schemas/odd' } } } } },
    responses: { done: { description: 'Done' } },
    examples: { one: { value: { $ref: FILE } } },
    'x-parts': { $ref: FILE },
  }
  put.parameters = [{ $ref: '#/components/parameters/id' }]
  put.requestBody = { $ref: '#/components/requestBodies/body' }
  put.responses = { '200': { $ref: '#/components/responses/done' } }
  document.paths = { '/things/{id}': { $ref: '#/components/x-items/things' }, 'x-other': { $ref: FILE } }
  Object.assign(document.components as Json, { 'x-items': { things: { put } } })
  t.same(faultsOf(checkDefinition(document)), [])
  const media = withReference([...BODY, 'application/json'], '#/components/mediaTypes/one', '3.2.0')
  media.components = { mediaTypes: { one: { schema: { type: 'object' } } } }
  t.same(faultsOf(checkDefinition(media)), [], 'a media type, from 3.2')
})
