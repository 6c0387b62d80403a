import fs from 'node:fs'
import { Socket } from 'node:net'
import t from 'tap'
import { checkDefinition, definitionChanges } from '../../src/definition/index.js'
import { document, type Json, many as record, schemaRef as ref, withBody, operation as X } from './document.js'

const HEAD = document({ paths: undefined })
const METHODS = ['get', 'put', 'post', 'patch', 'delete']

function nested(levels: number, wrap: (inner: unknown) => unknown): unknown {
  let value: unknown = {}
  for (let i = 0; i < levels; i++) value = wrap(value)
  return value
}

function itself(): Json {
  const schema: Json = { type: 'object' }
  schema.properties = { self: schema }
  return withBody(schema)
}

function meshed(): Json {
  const properties = record(300, i => [`p${i}`, ref(`s${i}`)])
  return withBody(
    ref('s0'),
    record(300, i => [`s${i}`, { properties: { ...properties } }]),
  )
}

function sharedParameters(): Json {
  const parameters = Array.from({ length: 499 }, (_, i) => ({ name: `p${i}`, in: 'path' }))
  const item = { parameters, ...Object.fromEntries(METHODS.map(method => [method, X])) }
  const paths = record(1000, i => [`/p${i}`, { $ref: '#/components/pathItems/p' }])
  return { ...HEAD, paths, components: { pathItems: { p: item } } }
}

const remote = () => withBody({ properties: record(50_000, i => [`p${i}`, { $ref: `file:///etc/passwd#${i}` }]) })
const manyPaths = () => record(100_000, i => [`/p${i}`, { get: { operationId: `o${i}`, summary: 'X' } }])
const chain = () => record(10_000, i => [`s${i}`, ref(`s${i + 1}`)])

/** Returns a definition with strings that cause quadratic time in careless regular expressions. */
function longTexts(): Json {
  const [dots, blanks, slashes] = ['.'.repeat(4000), ' '.repeat(500_000), '/'.repeat(4000)]
  const paths = record(500, i => [`p${i}{${dots}x${dots}}`, { get: { operationId: `o${i}`, summary: 'X' } }])
  const servers = [{ url: `a${slashes}x${slashes}` }]
  const schema = { minimum: `${'1'.repeat(500_000)}x`, enum: `${blanks}x${blanks}`, required: '1'.repeat(500_000) }
  return { ...withBody(schema), servers, paths: { ...paths, ...(withBody(schema).paths as Json) } }
}

/** Returns a definition with thousands of schemas that all combine the same long lists. */
function sharedLists(): Json {
  const values = record(50, i => [
    `c${i}`,
    { enum: Array.from({ length: 1000 }, (_, j) => i + j), additionalProperties: false },
  ])
  const allOf = Array.from({ length: 50 }, (_, i) => ref(`c${i}`))
  const users = record(2000, i => [`s${i}`, { allOf, required: ['a'], maximum: 5 }])
  return withBody({ properties: record(2000, i => [`p${i}`, ref(`s${i}`)]) }, { ...values, ...users })
}

/** Documents that are large or could be slow to check, with the expected type of fault, or `null` if the document is accepted. */
const HOSTILE: [name: string, make: () => unknown, type: string | null][] = [
  ['100,000 levels', () => withBody(nested(100_000, not => ({ not }))), 'definition_too_deep'],
  ['levels at the limit', () => withBody(nested(100, not => ({ not }))), null],
  ['an object that holds itself', itself, 'definition_too_deep'],
  ['aliases that double 40 times', () => withBody(nested(40, one => ({ allOf: [one, one] }))), 'definition_too_large'],
  ['a million values', () => ({ ...HEAD, paths: {}, x: Array(1_000_001).fill(0) }), 'definition_too_large'],
  ['every schema refers to every schema', meshed, null],
  ['a chain of 10,000 references', () => withBody(ref('s0'), chain()), 'ref_cycle'],
  ['50,000 remote references', remote, 'ref_external'],
  ['100,000 paths', () => ({ ...HEAD, paths: manyPaths() }), 'too_many_operations'],
  ['5,000 operations with 499 parameters of their path', sharedParameters, 'operation_id_duplicate'],
  ['500,000 placeholders', () => ({ ...HEAD, paths: { [`/${'{a}'.repeat(5e5)}`]: { get: {} } } }), 'string_too_long'],
  ['long texts', longTexts, 'path_parameter_undeclared'],
  ['long lists that thousands share', sharedLists, null],
  ['keys that change a prototype', () => JSON.parse('{"openapi":"3.1.0","__proto__":{"polluted":1}}'), 'key_forbidden'],
]

/** Counts the attempts to open a file or connection during `run`, and prevents them. */
function outsideCalls(run: () => void): number {
  let calls = 0
  const watched = [
    [fs, 'openSync'],
    [fs, 'readFileSync'],
    [Socket.prototype, 'connect'],
    [globalThis, 'fetch'],
  ] as const
  const originals = watched.map(([owner, name]) => Reflect.get(owner, name))
  for (const [owner, name] of watched) Reflect.set(owner, name, () => calls++)
  try {
    run()
  } finally {
    for (const [i, [owner, name]] of watched.entries()) Reflect.set(owner, name, originals[i])
  }
  return calls
}

t.test('hostile documents: a small answer, no file or connection opened', async t => {
  for (const [name, make, type] of HOSTILE) {
    const definition = make()
    let check = checkDefinition(null)
    const calls = outsideCalls(() => {
      check = checkDefinition(definition)
    })
    t.equal(calls, 0, `${name}: nothing is opened`)
    const types: (string | null)[] = check.ok ? [null] : check.faults.map(fault => fault.type)
    t.ok(types.includes(type), `${name}: ${types[0]}`)
    t.ok(check.ok || check.faults.length <= 100, `${name}: faults`)
    t.ok(check.warnings.length <= 1000, `${name}: warnings`)
    const changes = definitionChanges(definition, definition)
    // A definition that cannot be read is reported as one change, without an operation.
    const said = changes.map(({ kind, operation }) => `${kind} ${operation}`)
    t.ok(said.length === 0 || said.join() === 'changed ', `${name}: compared with itself`)
  }
  t.equal(Reflect.get({}, 'polluted'), undefined, 'no prototype was changed')
})
