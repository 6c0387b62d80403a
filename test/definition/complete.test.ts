import t from 'tap'
import { parse } from 'yaml'
import { type Completion, checkDefinition, completeDefinition, toFunctions } from '../../src/definition/index.js'
import type { Loc } from '../../src/errors.js'
import { document as documentOf, type Json } from './document.js'
import { CONVERTED, MADE, SWAGGER } from './made.js'

const SERVER = 'https://given.example.com/base'
const operation = { operationId: 'x', summary: 'X', responses: {} }
const id = (name: string) => ({ name, in: 'path', required: true, schema: { type: 'string' } })

const document = (paths: Json, more: Json = {}) => documentOf({ paths, ...more })

function swagger(paths: Json, more: Json = {}): Json {
  return { swagger: '2.0', info: { title: 'T', version: '1' }, host: 'h.example.com', paths, ...more }
}

const editsOf = ({ edits }: Completion) =>
  edits.map(({ op, type, loc }) => `${op} ${type} at ${loc.slice(2).join(' ')}`.trim())
const faultsOf = ({ check }: Completion) =>
  check.ok ? [] : check.faults.map(({ type, loc }) => `${type} at ${loc.slice(2).join(' ')}`)

function at(value: unknown, path: Loc): unknown {
  return path.reduce((holder, key) => Object(holder)[key], value)
}

t.test('ids are made of path and method, of at most 64 characters; repeated ones are numbered', async t => {
  const idsOf = (paths: Json) => {
    const completed = completeDefinition(document(paths))
    return completed.check.ok ? completed.check.methods.map(each => each.name) : faultsOf(completed)
  }
  const get = { summary: 'S' }
  t.strictSame(idsOf({ '/': { get }, '/a/b': { get, PUT: get }, '/a-b': { get }, '/a_b/': { get } }), [
    ...['root_get', 'a_b_get', 'a_b_put', 'a_b_get_2', 'a_b_get_3'],
  ])
  const taken = {
    '/a': { get: { operationId: ' ', ...get }, post: get },
    '/b': { get: { ...get, operationId: 'a_get' } },
  }
  t.strictSame(idsOf(taken), ['a_get_2', 'a_post', 'a_get'])
  t.strictSame(idsOf({ '/a': { get: operation, put: operation }, '/b': { put: operation } }), ['x', 'x_put', 'x_put_2'])
  const long = Object.fromEntries(['a'.repeat(70), `${'a'.repeat(70)}b`, '天気'].map(name => [`/${name}`, { get }]))
  t.strictSame(idsOf(long), [`${'a'.repeat(57)}_get`, `${'a'.repeat(57)}_get_2`, 'root_get'])
})

t.test('summaries are method and path', async t => {
  const paths = parse(`
    /a: { description: All about a., get: { operationId: a }, put: { operationId: b, description: D } }
    /b: { get: { operationId: c, summary: ' ', description: ~ }, put: { operationId: d, summary: ~, description: E } }`)
  const { check } = completeDefinition(document(paths))
  const summaries = check.ok ? check.methods.map(({ summary }) => summary) : []
  t.strictSame(summaries, ['GET /a', 'D', 'GET /b', 'E'])
})

t.test('placeholders that neither the operation nor its path item declares become texts', async t => {
  const definition = parse(`
    paths:
      /{a}/{b}/{c}:
        parameters: [{ name: a, in: path, required: true, schema: { type: string } }]
        get: { operationId: x, summary: X, parameters: [{ name: b, in: path }] }
        post: { operationId: y, summary: Y }
      '/{+d}/{e*}/{f:[0-9]{4}}':
        put: { operationId: z, summary: Z, parameters: [{ $ref: '#/components/parameters/D' }, { name: e, in: path }] }
      /{g}: { $ref: '#/components/pathItems/G' }
      /again/{g}/{h}: { $ref: '#/components/pathItems/G' }
      /{odd}: { get: { operationId: o, summary: O, parameters: {} } }
    components:
      parameters: { D: { name: d, in: path } }
      pathItems: { G: { parameters: [{ name: g, in: path }], get: { operationId: g, summary: G } } }`)
  const completed = completeDefinition(document({}, definition))
  t.strictSame(editsOf(completed), [
    'replace parameters_added at paths /{a}/{b}/{c} get parameters',
    'add parameters_added at paths /{a}/{b}/{c} post parameters',
    'replace parameters_added at paths /{+d}/{e*}/{f:[0-9]{4}} put parameters',
    'add parameters_added at components pathItems G get parameters',
  ])
  t.strictSame(completed.edits[1]?.after, [id('b'), id('c')])
  t.match(faultsOf(completed), [/^operation_id_duplicate at paths \/again/, /^list_type at paths \/\{odd\}/])
})

t.test('a server is added where none is named, and resolves one that is only a path', async t => {
  const urlOf = (servers: unknown, server?: string) => {
    const given = document({ '/x': { get: operation } }, { servers })
    return at(completeDefinition(given, server ? { server } : {}).definition, ['servers', 0, 'url'])
  }
  t.equal(urlOf(undefined, SERVER), SERVER)
  t.equal(urlOf([], SERVER), SERVER)
  for (const url of ['', '/']) t.equal(urlOf([{ url }], SERVER), SERVER)
  t.equal(urlOf([{ url: '/v2' }], SERVER), 'https://given.example.com/v2')
  const others = ['https://t.example.com', '//b.example.com', '/\\b.example.com', '/\t/b.example.com', '/{v}', 'v1', 7]
  for (const url of others) t.equal(urlOf([{ url }], SERVER), url, 'it stays')
  t.equal(urlOf(undefined), undefined, 'nothing is made up')
  t.strictSame(urlOf({ url: '/' }, SERVER), undefined)
})

t.test('an edit says what was there before and why; the given definition is not changed', async t => {
  const given = document({ '/x': { get: { summary: 'S', operationId: ' ' } } }, { servers: [] })
  const before = structuredClone(given)
  const { edits, definition } = completeDefinition(given, { server: SERVER, at: ['d'] })
  t.strictSame(given, before)
  const loc = ['d', 'paths', '/x', 'get', 'operationId']
  t.match(edits, [
    { op: 'replace', loc: ['d', 'servers'], before: [], after: [{ url: SERVER }], type: 'server_added' },
    { op: 'replace', loc, before: ' ', after: 'x_get', type: 'operation_id_added' },
  ])
  t.equal(edits[1]?.msg, 'the operation had no operationId, so this operationId was made from the path and method')
  t.equal(at(definition, ['paths', '/x', 'get', 'operationId']), 'x_get')
})

t.test('what cannot be completed is given back with the faults of the check', async t => {
  let deep: unknown = {}
  for (let i = 0; i < 200; i++) deep = [deep]
  const forbidden = JSON.parse('{"swagger":"2.0","paths":{"__proto__":{}}}')
  for (const given of [null, 1, [], {}, { swagger: '1.2' }, document({}, { deep }), forbidden]) {
    const completed = completeDefinition(given)
    t.equal(completed.definition, given)
    t.strictSame([completed.edits, completed.check], [[], checkDefinition(given)])
  }
})

t.test('kilobytes that would grow to megabytes are refused, or completed as far as there is room', async t => {
  const numbered = <T>(count: number, each: (i: number) => T) => Array.from({ length: count }, (_, i) => each(i))
  const responses = Object.fromEntries(numbered(550, i => [200 + i, { schema: {} }]))
  const produces = numbered(550, i => `a/${i}`)
  const multiplied = completeDefinition(swagger({ '/a': { get: { ...operation, responses } } }, { produces }))
  t.strictSame([faultsOf(multiplied), multiplied.edits], [['definition_too_large at '], []])
  const B = { in: 'body', name: 'b', schema: { description: 'd'.repeat(10_000) } }
  const users = numbered(500, i => [`/${i}`, { post: { parameters: [{ $ref: '#/parameters/B' }] } }])
  const copied = completeDefinition(swagger(Object.fromEntries(users), { parameters: { B } }))
  t.strictSame(faultsOf(copied), ['definition_too_large at '])
  const holes = numbered(60, i => `{${String.fromCharCode(0x4e00 + i)}}`).join('')
  const methods = { get: {}, put: {}, post: {}, patch: {}, delete: {} }
  const declared = completeDefinition(document(Object.fromEntries(numbered(60, i => [`/${i}${holes}`, methods]))))
  t.ok(declared.edits.length > 100)
  t.ok(JSON.stringify(declared.edits).length < 1_000_000)
})

t.test('Swagger 2.0 is converted: servers, parameters, bodies, responses, schemas, security', async t => {
  const { definition, edits } = completeDefinition(SWAGGER)
  t.strictSame(definition, CONVERTED)
  t.match(edits[0], { op: 'replace', loc: ['body', 'definition'], type: 'swagger_converted' })
})

t.test('Swagger 2.0: forms keep the limits of their fields; files make them multipart', async t => {
  const bodyOf = (parameters: string, more: Json = {}) => {
    const post = { ...operation, parameters: parse(parameters), ...more }
    return at(completeDefinition(swagger({ '/a': { post } })).definition, ['paths', '/a', 'post', 'requestBody'])
  }
  const a = '{ name: a, in: formData, type: string, enum: [x], description: A, required: true }'
  const b = '{ name: b, in: formData, type: array, items: { type: integer }, collectionFormat: csv }'
  const [form, json] = ['application/x-www-form-urlencoded', 'application/json']
  const expected = parse(`
    required: true
    content:
      ${form}:
        schema:
          type: object
          properties: { a: { description: A, type: string, enum: [x] }, b: { type: array, items: { type: integer } } }
          required: [a]
        encoding: { b: { explode: false } }`)
  t.strictSame(bodyOf(`[${a}, ${b}]`, { consumes: [form, json] }), expected)
  t.strictSame(bodyOf(`[${a}, ${b}]`), expected)
  t.match(bodyOf('[{ name: f, in: formData, type: file }]'), { content: { 'multipart/form-data': {} } })
  const odd = bodyOf('[{ name: __proto__, in: formData, type: string }]')
  t.match(JSON.stringify(odd), '"__proto__":', 'it is not lost')
})

t.test('Swagger 2.0: an address without scheme or host takes those given', async t => {
  const urlOf = (more: Json, server?: string) =>
    at(completeDefinition({ ...swagger({}), ...more }, server ? { server } : {}).definition, ['servers', 0, 'url'])
  t.equal(urlOf({}), 'https://h.example.com')
  t.equal(urlOf({ schemes: [] }, 'http://localhost:8080'), 'http://h.example.com')
  t.equal(urlOf({ host: 'http://h.example.com/', basePath: '/' }), 'http://h.example.com')
  t.equal(urlOf({ host: undefined, basePath: '/v1' }, SERVER), 'https://given.example.com/v1')
  t.equal(urlOf({ host: undefined }), undefined)
})

t.test('Swagger 2.0: references into operations keep their targets', async t => {
  const paths = parse(`
    /a/{id}:
      post:
        operationId: x
        summary: X
        parameters:
          - { in: body, name: b, schema: { additionalProperties: false, properties: { n: { type: string, x-nullable: true }, next: { $ref: '#/paths/~1a~1%7Bid%7D/post/parameters/0/schema' } } } }
          - { in: query, name: q, type: integer }
          - { in: path, name: id, required: true, type: string }
    /b:
      post:
        operationId: y
        summary: Y
        parameters: [{ $ref: '#/paths/~1a~1{id}/post/parameters/0' }, { $ref: '#/paths/~1a~1{id}/post/parameters/1' }]`)
  const completed = completeDefinition(swagger(paths))
  t.strictSame(faultsOf(completed), [])
  const [, second] = toFunctions(completed.definition)
  t.match(second?.parameters, { properties: { q: { type: 'integer' }, requestBody: { additionalProperties: false } } })
  const moved = Object.values(Object(at(completed.definition, ['components', 'schemas'])))
  t.match(moved, [{ properties: { n: { nullable: true }, next: { $ref: /^#\/components\/schemas\// } } }])
})

function forEachPart(value: unknown, visit: (part: unknown, path: Loc) => void, path: Loc = []): void {
  if (typeof value === 'object' && value !== null)
    for (const [key, each] of Object.entries(value))
      forEachPart(each, visit, [...path, Array.isArray(value) ? Number(key) : key])
  else visit(value, path)
}

t.test('a second completion adds nothing; faults have their place; nothing that was written is lost', async t => {
  for (const { name, definition: given } of [...MADE, { name: 'swagger', definition: SWAGGER }]) {
    const before = JSON.stringify(given)
    const { definition, edits, check } = completeDefinition(given, { server: SERVER })
    t.equal(JSON.stringify(given), before, `${name} is not changed`)
    t.strictSame(completeDefinition(definition, { server: SERVER }).edits, [], name)
    for (const { loc } of check.ok ? [] : check.faults) t.not(at(definition, loc.slice(2, -1)), undefined, name)
    const replaced = edits.filter(({ op }) => op === 'replace').map(({ loc }) => loc.slice(2).join(' '))
    forEachPart(replaced.includes('') ? {} : given, (each, path) => {
      const isReplaced = replaced.some(place => path.join(' ').startsWith(place))
      if (!isReplaced) t.equal(at(definition, path), each, `${name}: ${path.join(' ')}`)
    })
  }
})
