import { readdirSync, readFileSync } from 'node:fs'
import { parse } from 'yaml'

interface MadeCase {
  name: string
  /** What the document demonstrates. */
  note?: string
  /** Differences from the base: a path with keys separated by blanks, and the new value; without a value the member is removed. */
  edits: [place: string, value?: unknown][]
  expect:
    | { ok: true; methods: [name: string, method: string, path: string][] }
    | { ok: false; detail: { loc: (string | number)[]; type: string }[] }
}

// The cast is safe: the file belongs to these tests.
const { base, cases } = JSON.parse(readFileSync('test/fixtures/definitions.json', 'utf8')) as {
  base: object
  cases: MadeCase[]
}

/** Definitions made for the tests by edits of a valid one, with the expected result of the check. */
export const MADE = cases.map(({ name, edits, expect }) => ({ name, expect, definition: edited(edits) }))

/** Where the vendors' documents are, in the sources. */
export const VENDORS_FOLDER = 'test/fixtures/vendors/'

/** Documents of vendors and of generators, each by the name of its file. */
export const VENDORS = readdirSync(VENDORS_FOLDER)
  .filter(file => /\.(json|yaml)$/.test(file))
  .map(name => ({ name, definition: parse(readFileSync(VENDORS_FOLDER + name, 'utf8')) as unknown }))

/** A definition in Swagger 2.0 with everything that is converted. */
export const SWAGGER: Record<string, unknown> = parse(`
swagger: '2.0'
info: { title: T, version: '1' }
host: h.example.com
basePath: v1/
schemes: [wss, http, https]
paths:
  x-a: { get: 1 }
  /pets/{id}:
    parameters: [{ $ref: '#/parameters/Id' }, { name: shared, in: body, schema: {} }]
    x-b: { parameters: 1 }
    GET:
      operationId: x
      summary: X
      schemes: [http]
      parameters:
        - { name: csv, in: query, type: array, items: { type: string } }
        - { name: multi, in: query, type: array, collectionFormat: multi, required: true }
        - { name: ssv, in: query, type: array, collectionFormat: ssv }
        - { name: tsv, in: query, type: array, collectionFormat: tsv }
        - { name: header, in: header, type: array, collectionFormat: pipes }
        - { name: new, in: query, schema: { type: string } }
      responses:
        200: { description: D, schema: { $ref: '#/definitions/Pet' }, headers: { N: { type: integer } } }
        404: { $ref: '#/responses/R' }
        500: ~
    put:
      consumes: [a/b+json, '*/*']
      produces: [text/csv]
      parameters: [{ $ref: '#/parameters/Body' }]
      responses: { 200: { schema: {}, examples: { text/csv: a } } }
parameters:
  Id: { name: id, in: path, required: true, type: integer, maximum: 12 }
  Body: { name: pet, in: body, required: true, description: A pet, schema: { $ref: '#/definitions/Pet' } }
responses: { R: { description: R, schema: { type: string } } }
definitions:
  Pet:
    discriminator: kind
    properties: { kind: { type: string, x-nullable: true }, example: { $ref: '#/definitions/Pet' }, f: { type: file } }
    example: { type: file, $ref: '#/definitions/Pet' }
  Odd: { discriminator: kind, properties: { kind: { enum: [cat] } } }
securityDefinitions:
  o: { type: oauth2, flow: accessCode, authorizationUrl: 'https://a', tokenUrl: 'https://b', scopes: {} }
  b: { type: basic }
  k: { type: apiKey }`)

function edited(edits: MadeCase['edits']): unknown {
  const root: Record<string, unknown> = { '': structuredClone(base) }
  for (const [place, ...value] of edits) {
    const keys = place === '' ? [''] : ['', ...place.split(' ')]
    const last = keys.pop() ?? ''
    const holder = keys.reduce((at, key) => at[key] as Record<string, unknown>, root)
    if (value.length > 0) holder[last] = structuredClone(value[0])
    else delete holder[last]
  }
  return root['']
}
