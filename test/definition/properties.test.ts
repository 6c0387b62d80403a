import fc from 'fast-check'
import t from 'tap'
import {
  checkDefinition,
  completeDefinition,
  type DefinitionCheck,
  DefinitionRefused,
  definitionChanges,
  originsOf,
  toFunctions,
} from '../../src/definition/index.js'
import type { Loc } from '../../src/errors.js'
import { repetitions } from '../updates/stored-state.js'
import { document, type Json, schemaRef } from './document.js'
import { MADE, SWAGGER } from './made.js'

/** Parses JSON values separated by whitespace. */
const parsed = (text: string): unknown[] => text.split(/\s+/).map(each => JSON.parse(each))

const AT: Loc = ['body', 'definition']
const TOOL_METHODS = new Set(['get', 'post', 'put', 'patch', 'delete'])

/** Generates a schema with valid references. */
const schema: fc.Arbitrary<unknown> = fc.letrec(tie => ({
  schema: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom({ type: 'string' }, { type: 'integer', format: 'int64' }, {}, schemaRef('Node')),
    fc.record({ type: fc.constant('array'), items: tie('schema') }),
    fc.record({
      type: fc.constant('object'),
      properties: fc.dictionary(
        fc.constantFrom('a', 'b', '$ref', 'constructor', 'toString'),
        fc.record({ anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }) }),
      ),
    }),
    fc.record({ allOf: fc.array(tie('schema'), { minLength: 1, maxLength: 3 }), nullable: fc.boolean() }),
  ),
})).schema

/** Generates the parts of one operation. `build` adds ids and paths with a number, so that they are unique. */
const operation = fc.record({
  method: fc.constantFrom('get', 'post', 'put', 'patch', 'delete', 'GET', 'Post'),
  text: fc.constantFrom('summary', 'description'),
  own: fc.array(schema, { maxLength: 2 }),
  declares: fc.constantFrom('operation', 'path', 'reference'),
  body: fc.option(fc.tuple(schema, fc.constantFrom('inline', 'reference'))),
  isShared: fc.boolean(),
})

const validDocument = fc
  .tuple(fc.constantFrom('3.0.3', '3.1.0', '3.2.0'), fc.array(operation, { minLength: 1, maxLength: 5 }))
  .map(([openapi, operations]) => build(openapi, operations))

type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never

function build(openapi: string, operations: readonly Operation[]): Json {
  const paths: Json = { 'x-note': 1 }
  const pathItems: Json = {}
  const requestBodies: Json = {}
  operations.forEach((each, i) => {
    const declaration = { name: 'id', in: 'path', required: true, schema: { type: 'string' } }
    const declared = each.declares === 'reference' ? { $ref: '#/components/parameters/Id' } : declaration
    const own = each.own.map((one, j) => ({ name: `q${j}`, in: 'query', schema: one }))
    const made: Json = { operationId: `op${i}`, [each.text]: `Does ${i}`, responses: {} }
    made.parameters = each.declares === 'path' ? own : [declared, ...own]
    if (each.body !== null) {
      const body = { content: { 'application/json': { schema: each.body[0] } } }
      requestBodies[`B${i}`] = body
      made.requestBody = each.body[1] === 'inline' ? body : { $ref: `#/components/requestBodies/B${i}` }
    }
    const item = { [each.method]: made, ...(each.declares === 'path' ? { parameters: [declared] } : {}) }
    pathItems[`P${i}`] = item
    paths[`/r${i}/{id}`] = each.isShared ? { $ref: `#/components/pathItems/P${i}` } : item
  })
  const components = {
    parameters: { Id: { name: 'id', in: 'path', required: true } },
    schemas: { Node: { properties: { next: schemaRef('Node') } } },
    ...{ requestBodies, pathItems },
  }
  const definition = document({ openapi, paths, components })
  // Copies the definition through JSON, so that its parts are not shared.
  return JSON.parse(JSON.stringify(definition))
}

function listed(check: DefinitionCheck): string[] {
  return check.ok ? check.methods.map(each => `${each.name} ${each.method} ${each.path}`) : []
}

/** Returns the methods of a valid document. Independent of the tested implementation, and without checks. */
function methodsOf(definition: Json): string[] {
  const found: string[] = []
  for (const [path, item] of Object.entries(definition.paths as Record<string, Json>)) {
    if (path.startsWith('x-')) continue
    const shared = typeof item.$ref === 'string' ? (resolve(definition, item.$ref.slice(2).split('/')) as Json) : {}
    for (const [method, each] of Object.entries({ ...shared, ...item })) {
      if (TOOL_METHODS.has(method.toLowerCase())) found.push(`${(each as Json).operationId} ${method} ${path}`)
    }
  }
  return found.sort()
}

function resolve(value: unknown, steps: readonly (string | number)[]): unknown {
  let at = value
  for (const step of steps) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, step)) return undefined
    at = (at as Record<string | number, unknown>)[step]
  }
  return at
}

/** True if `loc` or its parent exists in the definition. */
function isPlace(definition: unknown, loc: Loc): boolean {
  const steps = loc.slice(AT.length)
  if (steps.length === 0) return true
  return resolve(definition, steps) !== undefined || resolve(definition, steps.slice(0, -1)) !== undefined
}

function placesOf(value: unknown, at: Loc = []): Loc[] {
  if (typeof value !== 'object' || value === null) return [at]
  const inside = Array.isArray(value)
    ? value.flatMap((each, i) => placesOf(each, [...at, i]))
    : Object.entries(value).flatMap(([key, each]) => placesOf(each, [...at, key]))
  return at.length === 0 ? inside : [at, ...inside]
}

function mutate(definition: Json, place: Loc, how: unknown): void {
  const holder = resolve(definition, place.slice(0, -1)) as Record<string | number, unknown>
  const key = place.at(-1) as string | number
  if (how !== REMOVED) holder[key] = how
  else if (Array.isArray(holder)) holder.splice(Number(key), 1)
  else delete holder[key]
}

const REMOVED = Symbol('removed')
const replacement = fc.constantFrom<unknown>(
  REMOVED,
  ...parsed('null 7 true "" "x" "#/nowhere" "file:///etc/passwd" [] [null] {} {"$ref":"#"}'),
  '\0',
  '\ud800',
  Number.POSITIVE_INFINITY,
)
/** Types of faults that can be reported at another place than the mutated part. */
const AT_THE_USE = `ref_unresolved ref_target_type ref_cycle path_parameter_undeclared operation_id_duplicate
  operations_missing summary_missing`.split(/\s+/)

function isNear(one: Loc, other: Loc): boolean {
  const length = Math.min(one.length, other.length)
  return one.slice(0, length).every((step, i) => step === other[i])
}

/** The keys in `documentLike`. With OpenAPI's keywords, random JSON reaches the rules for nested parts. */
const vocabulary = fc.constantFrom(
  ...`openapi info title servers url paths /x /{id} get post head parameters name in schema content application/json
  requestBody $ref $id $anchor items properties allOf components schemas A operationId summary constructor
  prototype variables`.split(/\s+/),
)
const word = fc.constantFrom<unknown>(
  ...parsed(`"3.1.0" "3.0.0" "#/components/schemas/A" "#" "#/paths/~1x" "#A" "path" "query" "id" "A" "/a" "{a}" null true 0
  1e300 ""`),
)
const documentLike = fc.letrec(tie => ({
  value: fc.oneof(
    { maxDepth: 6, depthSize: 'large' },
    word,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(vocabulary, tie('value'), { maxKeys: 6 }),
  ),
})).value

t.test('valid documents: accepted with the right methods, same for functions', async t => {
  fc.assert(
    fc.property(validDocument, definition => {
      const check = checkDefinition(definition)
      if (!check.ok) throw new Error(JSON.stringify(check.faults))
      t.same(listed(check).sort(), methodsOf(definition))
      const [ids, names] = [toFunctions(definition).map(each => each.operationId), check.methods.map(each => each.name)]
      t.same(ids, names)
      t.same(definitionChanges(definition, definition), [])
    }),
    { numRuns: 150 },
  )
})

t.test('one mutation: the methods stay right, or a fault is at its place or at its use', async t => {
  const runs = repetitions(500)
  let refused = 0
  fc.assert(
    fc.property(validDocument, fc.nat(), replacement, (original, pick, how) => {
      const definition = structuredClone(original)
      const places = placesOf(definition)
      const place = places[pick % places.length] as Loc
      mutate(definition, place, how)
      const check = checkDefinition(definition)
      if (check.ok) {
        const lost = check.warnings.filter(({ type }) => type === 'operation_passed_over').length
        const [all, kept] = [methodsOf(definition), new Set(listed(check))]
        return all.filter(each => !kept.has(each)).length <= lost && [...kept].every(each => all.includes(each))
      }
      refused++
      // After a removal, any fault in the parent counts: an object without its `$ref` lacks other fields.
      const near = how === REMOVED ? place.slice(0, -1) : place
      const isNamed = check.faults.some(
        fault => isNear(fault.loc.slice(AT.length), near) || AT_THE_USE.includes(fault.type),
      )
      if (!isNamed) throw new Error(`${place.join(' ')}: ${JSON.stringify(check.faults)}`)
    }),
    { numRuns: runs },
  )
  t.ok(refused > runs / 10, `${refused} mutations were refused`)
})

t.test('any JSON: never throws, every loc resolves or its parent does, the answer is small', async t => {
  const runs = repetitions(500)
  let deep = 0
  const holds = (value: unknown) => {
    const check = checkDefinition(value)
    definitionChanges(value, value)
    try {
      toFunctions(value)
    } catch (error) {
      if (!(error instanceof DefinitionRefused)) throw error
    }
    if (check.ok) return true
    if (check.faults.some(fault => fault.loc.length > 4)) deep++
    return (
      check.faults.length > 0 &&
      check.faults.length <= 100 &&
      [...check.faults, ...check.warnings].every(each => isPlace(value, each.loc))
    )
  }
  fc.assert(fc.property(fc.jsonValue(), holds), { numRuns: 300 })
  const started = fc.record({
    openapi: fc.constantFrom('3.0.0', '3.1.0'),
    info: fc.constant({ title: 'T' }),
    servers: fc.oneof(fc.constant([{ url: '/' }]), documentLike),
    paths: fc.dictionary(fc.constantFrom('/x', '/{id}', '/{', 'x-a'), documentLike),
    components: documentLike,
  })
  fc.assert(fc.property(started, holds), { numRuns: runs })
  t.ok(deep > runs / 30, `${deep} documents had a fault inside paths`)
})

/** A value that breaks code that converts it to a string without checking its type. */
const NO_TEXT = JSON.parse('{"toString":"x","valueOf":"x","toJSON":1,"length":-1}')
const WHOLE = ['ok-base', 'style-subtypes', 'style-expanded-queries']
t.test('an accepted path never changes the host of an accepted server', async t => {
  // Includes tabs, line breaks, backslashes, and all characters that URL parsers remove at the ends.
  const pieces = '/ // \\ .. @ : ? # { } {v} {w} http: https: https:// a.example b.example v1 localhost'.split(' ')
  const blanks = ['', ' ', '\t', '\n', '\r', '\0', '\v', '\f', '\x1f', '\u00a0', '\u2028', '\ufeff']
  const text = fc.array(fc.constantFrom(...pieces, ...blanks), { maxLength: 5 }).map(each => each.join(''))
  const here = 'http://here.invalid/'
  const hostOf = (url: string, base = here) => (URL.canParse(url, base) ? new URL(url, base).host : undefined)
  let accepted = 0
  fc.assert(
    fc.property(text, text, text, (url, path, value) => {
      const variables = { v: { default: value }, w: { default: 'w' } }
      const parameters = ['v', 'w'].map(name => ({ name, in: 'path' }))
      const get = { operationId: 'x', summary: 'X', parameters }
      const info = { title: 'T' }
      const paths = { [path]: { get } }
      if (!checkDefinition({ openapi: '3.0.0', info, servers: [{ url, variables }], paths }).ok) return
      accepted++
      const server = url.replaceAll(/\{[vw]\}/g, name => (name === '{v}' ? value : 'w'))
      const host = hostOf(server)
      const joined = hostOf((path.startsWith('/') ? server.replace(/[/\\]+$/, '') : server) + path)
      const linked = hostOf(path, URL.canParse(server, here) ? new URL(server, here).href : here)
      for (const each of [joined, linked])
        if (each !== undefined && each !== host) throw new Error(`${each} after ${host}`)
    }),
    {
      numRuns: repetitions(3000),
      examples: [
        ['/', '//b.example', ''],
        ['/\t', '/https:', ''],
        ['/', '/\t/b.example', ''],
        ['http:https://', 'https://https://', ''],
      ],
    },
  )
  t.ok(accepted > 100, `${accepted} were accepted`)
})

t.test('an object without toString in the place of each part: nothing throws', async t => {
  const made = MADE.filter(({ name }) => WHOLE.includes(name)).map(({ definition }) => definition)
  for (const whole of [...made, SWAGGER]) {
    const places = placesOf(whole)
    t.ok(places.length > 40, `${places.length} places`)
    for (const place of places) {
      for (const value of [NO_TEXT, [NO_TEXT]]) {
        const definition = structuredClone(whole) as Json
        mutate(definition, place, structuredClone(value))
        const all = () => {
          checkDefinition(definition)
          originsOf(definition)
          const { definition: completed, check } = completeDefinition(definition, { server: 'https://a.example.com' })
          definitionChanges(whole, completed)
          definitionChanges(completed, whole)
          if (check.ok) toFunctions(completed)
        }
        t.doesNotThrow(all, place.join(' '))
      }
    }
  }
})
