import t from 'tap'
import { parse } from 'yaml'
import { checkDefinition, type FunctionView, toFunctions } from '../../src/definition/index.js'
import { compile } from './ajv.js'
import { document, type Json, many, operation, schemaRef, withBody, withOperation } from './document.js'

/** Returns the first function of a definition. Throws if Ajv cannot compile its arguments schema. */
function functionOf(definition: Json): FunctionView & { parameters: { properties: Record<string, Json> } } {
  const [view] = toFunctions(definition)
  if (view === undefined) throw new Error('no function')
  compile(view)
  return view as ReturnType<typeof functionOf> // every arguments schema has properties
}
const argumentsOf = (definition: Json) => functionOf(definition).arguments.map(each => each.argument)
const propertiesOf = (definition: Json) => Object.values(functionOf(definition).parameters.properties)

t.test('refused: a definition with faults throws all of them, each with its place', async t => {
  const fault = { loc: ['body', 'definition', 'openapi'], msg: 'Field required', type: 'missing' }
  t.throws(() => toFunctions({}), { name: 'Error', faults: [fault] })
})

t.test('schemas: keywords of 2020-12 are copied unchanged, with the schemas inside', async t => {
  const kept = parse(`
    { title: T, description: D, format: uuid, contentEncoding: base64, contentMediaType: a/b, uniqueItems: true,
      deprecated: true, writeOnly: true, const: 1, default: { a: 1 }, examples: [1], enum: [1, 2], minimum: 1, maximum: 2,
      exclusiveMinimum: 1, exclusiveMaximum: 2, multipleOf: 0.5, pattern: ^a, minLength: 1, maxLength: 2, minItems: 1,
      maxItems: 2, minProperties: 1, maxProperties: 2, minContains: 1, maxContains: 2, contains: &text { type: string },
      propertyNames: *text, items: *text, prefixItems: [*text], properties: { a: *text }, required: [a],
      patternProperties: { ^b: *text }, additionalProperties: *text, dependentSchemas: { a: *text },
      dependentRequired: { a: [b] }, unevaluatedProperties: false, allOf: [*text], anyOf: [*text], oneOf: [*text],
      not: *text, if: *text, then: *text, else: *text, contentSchema: *text, unevaluatedItems: *text }`)
  t.strictSame(propertiesOf(withBody(kept)), [kept])
})

/** Schemas of bodies and the expected schemas for the model. Default version: OpenAPI 3.0.3. */
const BODIES: { schema: unknown; given: unknown; openapi?: string; schemas?: Json; what: string }[] = parse(String.raw`
  - { what: null as well, schema: { type: string, nullable: true, enum: [a] }, given: { type: [string, 'null'], enum: [a, ~] } }
  - what: bounds that are flags
    schema: { type: integer, minimum: 1, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false }
    given: { type: integer, exclusiveMinimum: 1, maximum: 9 }
  - what: null beside allOf
    schema: { nullable: true, description: D, allOf: [{ $ref: '#/components/schemas/S' }] }
    given: { description: D, anyOf: [{ allOf: [{ $ref: '#/$defs/S' }] }, { type: 'null' }] }
    schemas: &S { S: { type: string } }
  - what: 3.0 ignores what limits beside $ref
    schema: { $ref: '#/components/schemas/S', description: D, minLength: 3 }
    given: { $ref: '#/$defs/S', description: D }
    schemas: *S
  - what: 3.1 keeps it
    openapi: 3.1.0
    schema: { $ref: '#/components/schemas/S', minLength: 3 }
    given: { $ref: '#/$defs/S', minLength: 3 }
    schemas: *S
  - what: keywords of OpenAPI
    schema: { type: object, example: { a: 1 }, x-y: 1, xml: {}, discriminator: { propertyName: a } }
    given: { type: object, examples: [{ a: 1 }] }
  - what: values that JSON Schema does not allow
    schema: { type: file, enum: [], required: a, minLength: -1, pattern: (?i)a, items: ~, allOf: [] }
    given: { description: 'Pattern: (?i)a' }
  - what: values in place of schemas
    schema: { type: object, properties: { a: { type: string, required: true }, b: string, c: true } }
    given: { type: object, properties: { a: { type: string }, b: {}, c: true } }
  - { what: a pattern as people write it, schema: { pattern: '^[\w-.]+\-$' }, given: { pattern: '^[\w-.]+\-$' } }
  - { what: a list of which nothing is said holds anything, schema: { type: array }, given: { type: array, items: {} } }
  - { what: and null, openapi: 3.1.0, schema: { type: [array, 'null'] }, given: { type: [array, 'null'], items: {} } }
  - { what: any value, openapi: 3.1.0, schema: true, given: {} }
  - { what: no value, openapi: 3.1.0, schema: false, given: { not: {} } }
  - what: properties that only the server sets are left out
    schema:
      type: object
      required: [id, name, at]
      properties:
        id: { $ref: '#/components/schemas/Id' }
        name: { $ref: '#/components/schemas/S' }
        at: { type: string, readOnly: true, required: true }
        inner: { type: object, properties: { id: { readOnly: true } }, required: [id] }
    given:
      type: object
      required: [name]
      properties: { name: { $ref: '#/$defs/S' }, inner: { type: object, properties: {} } }
    schemas: { Id: { type: string, readOnly: true }, S: { type: string } }`)

t.test('schemas: what a model is given of a body', async t => {
  for (const { schema, given, openapi = '3.0.3', schemas = {}, what } of BODIES)
    t.same(propertiesOf(withBody(schema, schemas, { openapi })), [given], what)
})

t.test('parameters and bodies: their own keywords outside the schema, and how they are sent', async t => {
  const view = functionOf(
    withOperation(
      `
      parameters:
        - { name: old, in: query, explode: true, deprecated: true, description: D, schema: { description: S } }
        - { name: deep, in: query, style: deepObject, explode: true, allowReserved: true, schema: { type: object } }
        - { name: list, in: query, explode: false, schema: { type: array } }
        - { name: never, in: query, schema: false }
        - { name: media, in: query, content: { application/json: { $ref: '#/components/mediaTypes/M' } } }
      requestBody: { required: true, description: B, content: { application/x+json: { itemSchema: { type: integer } } } }`,
      '{ openapi: 3.2.0, components: { mediaTypes: { M: { schema: { type: integer } } } } }',
    ),
  )
  t.strictSame(
    view.parameters,
    parse(`
      type: object
      properties:
        old: { description: D, deprecated: true }
        deep: { type: object }
        list: { type: array, items: {} }
        never: { not: {} }
        media: { type: integer }
        requestBody: { type: array, items: { type: integer }, description: B }
      required: [requestBody]`),
  )
  t.strictSame(
    view.arguments,
    parse(`
      - { argument: old, in: query, name: old }
      - { argument: deep, in: query, name: deep, style: deepObject, explode: true, allow_reserved: true }
      - { argument: list, in: query, name: list, explode: false }
      - { argument: never, in: query, name: never }
      - { argument: media, in: query, name: media, media_type: application/json }
      - { argument: requestBody, in: body, media_type: application/x+json }`),
  )
})

t.test('a path: its placeholders have the names of the arguments', async t => {
  const parameters = ['all', '+whole', 'parts'].map(name => ({ name, in: 'path', required: true, schema: {} }))
  const [view] = toFunctions(
    document({ paths: { '/{+all}/{+whole}/{parts*}': { get: { ...operation, parameters } } } }),
  )
  const sent = [{ name: 'all', allow_reserved: true }, { name: '+whole' }, { name: 'parts', allow_reserved: undefined }]
  t.match(view, { path: '/{all}/{+whole}/{parts}', arguments: sent })
})

t.test('parameters: several with one name, and some named like a generated name', async t => {
  const definition = withOperation(`parameters: [{ name: id_, in: header }, { name: query_id, in: header },
    { name: id, in: header }, { name: id, in: query }, { name: id, in: cookie }]`)
  t.strictSame(argumentsOf(definition), ['id_', 'query_id', 'id', 'query_id_', 'cookie_id'])
})

t.test('a form: the encoding of a field is listed only if it is not the usual one', async t => {
  const form = '{ schema: { type: object, properties: { a: {}, b: {} } }, encoding: { b: { explode: false } } }'
  const view = functionOf(withOperation(`requestBody: { content: { application/x-www-form-urlencoded: ${form} } }`))
  t.strictSame(view.arguments[0]?.encoding, { b: { explode: false } })
})

t.test('parameters: those of the path, unless the operation has its own; required, renamed, supplied', async t => {
  const definition = document(
    parse(`
      paths:
        /x/{id}:
          parameters:
            - { $ref: '#/components/parameters/Id' }
            - { name: page, in: query, required: true, schema: { type: integer } }
            - { name: trace, in: header, schema: { type: string } }
          put:
            operationId: x
            summary: Get one
            description: Gets one.
            parameters:
              - { name: page, in: query, description: Page, schema: { type: string } }
              - { name: id, in: query, schema: { type: boolean } }
              - { name: Authorization, in: header, schema: { type: string } }
              - { name: filter, in: query, content: { application/json: { schema: { type: object } } } }
            requestBody: { required: true, content: { application/json: {} } }
      components: { parameters: { Id: { name: id, in: path, schema: { type: string } } } }`),
  )
  const [view] = toFunctions(definition, { headerNames: ['X-Other'] })
  t.same(
    view,
    parse(`
      name: x
      operationId: x
      description: "Get one\\n\\nGets one."
      parameters:
        type: object
        properties:
          id: { type: string }
          trace: { type: string }
          page: { type: string, description: Page }
          query_id: { type: boolean }
          filter: { type: object }
          requestBody: {}
        required: [id, requestBody]
      method: put
      path: /x/{id}
      arguments:
        - { argument: id, in: path, name: id }
        - { argument: trace, in: header, name: trace }
        - { argument: page, in: query, name: page }
        - { argument: query_id, in: query, name: id }
        - { argument: filter, in: query, name: filter, media_type: application/json }
        - { argument: requestBody, in: body, media_type: application/json }`),
  )
  const [supplied] = toFunctions(definition, { headerNames: ['TRACE'] })
  t.notOk(Object.hasOwn(supplied?.parameters.properties as object, 'trace'), 'a custom header supplies it')
})

t.test('arguments: names that some vendor refuses become safe and unique, and map to the wire names', async t => {
  const long = 'x'.repeat(70)
  const names = ['filter[state]', '$top', 'tags[]', 'tags', '2fa', 'a.b', '菜', 'größe', long, '-', 'okay_1']
  const named = (list: string[]) => {
    const parameters = list.map(name => ({ name, in: 'query', schema: { type: 'string' } }))
    return functionOf(document({ paths: { '/x': { get: { ...operation, parameters } } } }))
  }
  const { arguments: made, parameters } = named(names)
  const safe = 'filter_state top tags_265461d1 tags _2fa a_b argument_45f0c2d9 gro_e_d353a267'.split(' ')
  const expected = [...safe, `${'x'.repeat(55)}_c71bd109`, 'argument_3973e022', 'okay_1']
  t.strictSame([made.map(each => each.argument), made.map(each => each.name)], [expected, names])
  t.strictSame(Object.keys(parameters.properties), expected)
  t.strictSame(named(names.toReversed()).arguments.toReversed(), made, 'in any order')
  t.strictSame(named(['requestBody', 'body_requestBody']).arguments.length, 2)
})

t.test('arguments: properties inside a body get safe names everywhere, mapped for each function', async t => {
  const schemas = parse(`
    Base:
      type: object
      properties: { '@type': { type: string }, plain: {} }
      required: ['@type', plain]
      discriminator: { propertyName: '@type' }
    Cat:
      allOf: [{ $ref: '#/components/schemas/Base' }, { properties: { claw.length: { type: integer } } }]
      required: [claw.length]
      example: { '@type': Cat, claw.length: 1, other: [{ claw.length: 2 }] }
      dependentRequired: { claw.length: ['@type'] }`)
  const view = functionOf(withBody(schemaRef('Cat'), schemas))
  t.strictSame(view.wire_names, { type: '@type', claw_length: 'claw.length' })
  t.notMatch(JSON.stringify(view.parameters), /@type|claw\./)
  const accepts = compile(view)
  t.ok(accepts({ requestBody: { type: 'Cat', plain: 1, claw_length: 1 } }))
  t.notOk(accepts({ requestBody: { type: 'Dog', plain: 1, claw_length: 1 } }), 'the selector has its safe name')
  t.notOk(accepts({ requestBody: { type: 'Cat', plain: 1 } }))
  t.strictSame(functionOf(document({ components: { schemas } })).wire_names, undefined, 'only names that it has')
})

t.test('examples: of parameters and media types, by reference, and in the form of 3.2', async t => {
  const definition = withOperation(
    `
    parameters:
      - name: schema
        in: query
        schema: { type: integer, examples: [9] }
        examples: &all
          a: { dataValue: 1, serializedValue: '1' }
          b: { $ref: '#/components/examples/B' }
          c: { value: 3 }
          d: { externalValue: 'https://e.example.com' }
          e: { $ref: '#/nowhere' }
      - { name: content, in: query, content: { application/json: { schema: { type: integer }, examples: *all } } }
      - { name: own, in: query, example: 7, content: { application/json: { schema: { type: integer }, example: 8 } } }
    requestBody: { content: { application/json: { schema: { type: integer }, example: 5 } } }`,
    '{ openapi: 3.2.0, components: { examples: { B: { value: 2 } } } }',
  )
  t.strictSame(
    propertiesOf(definition).map(each => each.examples),
    [[1, 2, 3], [1, 2, 3], [7], [5]],
  )
})

t.test('descriptions: next to a reference they override those of parameters and bodies from 3.1 on', async t => {
  const components = `components:
    parameters: { A: { name: p, in: query, description: there } }
    requestBodies:
      A: { description: there, content: { application/json: { schema: { description: of the schema } } } }`
  const described = (openapi: string, parts: string) =>
    propertiesOf(withOperation(parts, `openapi: ${openapi}\n${components}`)).map(each => each.description)
  const beside = `{ parameters: [{ $ref: '#/components/parameters/A', description: here }],
    requestBody: { $ref: '#/components/requestBodies/A', description: here } }`
  const plain = `{ parameters: [{ $ref: '#/components/parameters/A' }],
    requestBody: { description: own, content: { application/json: {} } } }`
  t.strictSame(described('3.1.0', beside), ['here', 'here'])
  t.strictSame(described('3.0.3', beside), ['there', 'of the schema'])
  t.strictSame(described('3.1.0', plain), ['there', 'own'])
})

t.test('schemas: recursive ones stay references in $defs, and only used ones are included', async t => {
  const view = functionOf(
    withOperation(
      `parameters:
        - { name: n, in: query, schema: { $ref: '#/components/schemas/Node' } }
        - { name: a, in: query, schema: { $ref: '#/components/schemas/A%20b~1c' } }`,
      `components: { schemas: { A b/c: { type: string }, Unused: { type: 'null' },
        Node: { type: object, required: [next], properties: { next: { $ref: '#/components/schemas/Node' } } } } }`,
    ),
  )
  t.same(
    view.parameters,
    parse(`
      type: object
      properties: { n: { $ref: '#/$defs/Node' }, a: { $ref: '#/$defs/A_b_c' } }
      $defs:
        Node: { type: object, required: [next], properties: { next: { $ref: '#/$defs/Node' } } }
        A_b_c: { type: string }`),
  )
  const accepts = compile(view)
  t.ok(!accepts({ n: { next: { next: {} } } }) && accepts({ a: 'x' }), 'and the references work')
})

t.test('names: unique in any script, readable if possible, independent of the rest of the definition', async t => {
  const named = (...ids: string[]) => {
    const item = (operationId: string) => ({
      parameters: [{ name: 'n', in: 'path' }],
      get: { operationId, summary: 'S' },
    })
    const paths = Object.fromEntries(ids.map((id, i) => [`/recipes/{n}${i}`, item(id)]))
    return toFunctions(document({ paths })).map(view => view.name)
  }
  const [search, list, price, ...readable] = named('菜谱搜索', '菜谱分类', '今日油价', 'búsqueda rápida', 'find-it')
  t.match([search, list, price], [/^get_recipes_n_0_[0-9a-f]{8}$/, /^get_recipes_n_1_[0-9a-f]{8}$/, /_[0-9a-f]{8}$/])
  t.strictSame(readable, ['busqueda_rapida', 'find-it'])
  t.equal(new Set([search, list, price].map(each => each?.slice(-8))).size, 3, 'the hash is that of the operationId')
  const [spaced, underscored, dotted] = named('get user', 'get_user', 'get.user')
  t.equal(underscored, 'get_user', 'an operation with a name keeps it')
  t.match([spaced, dotted], [/^get_user_[0-9a-f]{8}$/, /^get_user_[0-9a-f]{8}$/])
  t.same(named('get.user', 'get_user', 'get user'), [dotted, underscored, spaced], 'in any order')
  const [cut, other] = named(`${'a'.repeat(70)}1`, `${'a'.repeat(70)}2`)
  t.match(cut, /^a{55}_[0-9a-f]{8}$/)
  t.not(cut, other)
})

t.test('a parameter called __proto__ is a property like any other', async t => {
  const parameters = [{ name: '__proto__', in: 'query', required: true, schema: { type: 'integer' } }]
  const { parameters: made } = functionOf(document({ paths: { '/x': { get: { ...operation, parameters } } } }))
  t.ok(Object.hasOwn(made.properties, '__proto__'))
  t.equal(Object.getPrototypeOf(made.properties), Object.prototype)
  t.equal(JSON.stringify(made.properties), '{"__proto__":{"type":"integer"}}')
  t.same(made.required, ['__proto__'])
  const component = functionOf(withBody(schemaRef('@@proto@@'), { '@@proto@@': { type: 'integer' } }))
  t.same(Object.values(component.parameters.$defs as object), [{ type: 'integer' }], 'nor is a definition lost')
})

t.test('functions_too_large: the size of all functions together is limited before they are made', async t => {
  // Each function includes every schema that it uses, so the shared schema is repeated 2,000 times.
  const S = { properties: many(5000, i => [`p${i}`, { type: 'string' }]) }
  const requestBody = { content: { 'application/json': { schema: schemaRef('S') } } }
  const paths = many(2000, i => [`/p${i}`, { post: { operationId: `o${i}`, summary: 'S', requestBody } }])
  const definition = document({ paths, components: { schemas: { S } } })
  t.ok(checkDefinition(definition).ok, 'the definition itself is accepted')
  const refused = t.throws(() => toFunctions(definition))
  t.match(refused, { faults: [{ loc: ['body', 'definition'], msg: /than 33554432 /, type: 'functions_too_large' }] })
})
