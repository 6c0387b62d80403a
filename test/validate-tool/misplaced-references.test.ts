import t from 'tap'
import { worldApp } from '../app.js'

type Json = Record<string, unknown>

const { call, token } = await worldApp(t)
const admin = await token('admin@example.com')
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

/** The document with a reference in place of what stands, or does not stand yet, at `path`. */
function withReference(path: (string | number)[], ref: string, openapi?: string): Json {
  const document = documentOf(openapi)
  let at = document
  for (const key of path.slice(0, -1)) at = at[key] as Json // each path below leads through objects
  at[path.at(-1) as string] = { $ref: ref }
  return document
}

async function faultsOf(definition: unknown, query = ''): Promise<{ status: number; faults: unknown }> {
  const path = `/admin/tool/custom/validate${query}`
  const answer = await call('POST', path, { token: admin, body: { definition } })
  const { detail } = answer.json()
  return {
    status: answer.statusCode,
    faults: detail?.map(({ loc, type }: { loc: unknown[]; type: string }) => ({ loc, type })),
  }
}

const OPERATION = ['paths', '/things/{id}', 'put']
const BODY = [...OPERATION, 'requestBody', 'content']
const SCHEMA = [...BODY, 'application/json', 'schema']

const FORBIDDEN = [
  ['info'],
  ['info', 'title'],
  ['info', 'contact'],
  ['servers'],
  ['servers', 0],
  ['servers', 0, 'url'],
  ['servers', 0, 'variables'],
  ['servers', 0, 'variables', 'region'],
  ['servers', 0, 'variables', 'region', 'default'],
  ['tags'],
  ['tags', 0],
  ['externalDocs'],
  ['security'],
  ['paths'],
  ['components'],
  ['components', 'schemas'],
  ['components', 'parameters'],
  ['paths', '/things/{id}', 'parameters'],
  ['paths', '/things/{id}', 'servers'],
  ['paths', '/things/{id}', 'head'],
  OPERATION,
  [...OPERATION, 'operationId'],
  [...OPERATION, 'summary'],
  [...OPERATION, 'description'],
  [...OPERATION, 'tags'],
  [...OPERATION, 'parameters'],
  [...OPERATION, 'parameters', 0, 'name'],
  [...OPERATION, 'parameters', 0, 'in'],
  [...OPERATION, 'parameters', 0, 'content'],
  [...OPERATION, 'responses'],
  [...OPERATION, 'responses', '200', 'headers'],
  [...OPERATION, 'responses', '200', 'content'],
  [...OPERATION, 'responses', '200', 'content', 'application/json'],
  [...OPERATION, 'callbacks'],
  [...OPERATION, 'servers'],
  BODY,
  [...BODY, 'application/json'],
  [...BODY, 'application/json', 'encoding'],
  [...SCHEMA, 'properties'],
  [...SCHEMA, 'required'],
  [...SCHEMA, 'allOf'],
  [...SCHEMA, 'description'],
]

t.test('422 a reference where OpenAPI allows none: one fault at its place, and nothing is completed', async t => {
  for (const path of FORBIDDEN) {
    const name = path.join(' ')
    const loc = [...AT, ...path, '$ref']
    for (const query of ['', '?complete=true&server=https://given.example.com&drop=unsupported'])
      t.same(
        await faultsOf(withReference(path, FILE), query),
        { status: 422, faults: [{ loc, type: 'ref_external' }] },
        `${name} ${query}`,
      )
    t.same(
      await faultsOf(withReference(path, '#/components/x-parts/one')),
      { status: 422, faults: [{ loc, type: 'ref_not_allowed' }] },
      name,
    )
  }
  t.same(await faultsOf({ $ref: FILE }, '?complete=true'), {
    status: 422,
    faults: [{ loc: [...AT, '$ref'], type: 'ref_external' }],
  })
})

t.test('422 an operation of a shared path item that is a reference', async t => {
  const document = documentOf()
  document.paths = { '/things': { $ref: '#/components/x-items/things' } }
  document.components = { 'x-items': { things: { get: { $ref: FILE } } } }
  t.same(await faultsOf(document, '?complete=true'), {
    status: 422,
    faults: [{ loc: [...AT, 'components', 'x-items', 'things', 'get', '$ref'], type: 'ref_external' }],
  })
})

t.test('422 Swagger 2.0: neither the operation nor the paths are made up', async t => {
  const operation = { operationId: 'a', summary: 'A', responses: {} }
  const swagger = { swagger: '2.0', info: { title: 'Probe', version: '1' }, host: 'api.example.com' }
  const parts = ['get', 'get parameters', 'get consumes', 'get produces', 'get schemes', 'parameters']
  const top = ['paths', 'info', 'host', 'basePath', 'schemes', 'consumes', 'produces', 'parameters']
  for (const path of [...top.map(key => [key]), ...parts.map(part => ['paths', '/a', ...part.split(' ')])]) {
    const document: Json = structuredClone({ ...swagger, paths: { '/a': { get: operation } } })
    let at = document
    for (const key of path.slice(0, -1)) at = at[key] as Json // as above
    at[path.at(-1) as string] = { $ref: FILE }
    t.same(
      await faultsOf(document, '?complete=true'),
      { status: 422, faults: [{ loc: [...AT, ...path, '$ref'], type: 'ref_external' }] },
      path.join(' '),
    )
  }
})

t.test('200 references where they may stand, members named $ref, and data that holds one', async t => {
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
  t.equal((await faultsOf(document)).status, 200)
  const media = withReference([...BODY, 'application/json'], '#/components/mediaTypes/one', '3.2.0')
  media.components = { mediaTypes: { one: { schema: { type: 'object' } } } }
  t.equal((await faultsOf(media)).status, 200, 'a media type, from 3.2')
})
