import t from 'tap'
import { checkDefinition, type FunctionView, toFunctions } from '../../src/definition/index.js'
import { compile } from './ajv.js'

function definitionWith(operation: object, rest: object = {}, openapi = '3.0.3', path = '/x'): object {
  return {
    openapi,
    info: { title: 'T' },
    servers: [{ url: 'https://t.example.com' }],
    paths: { [path]: { post: { operationId: 'x', summary: 'X', ...operation } } },
    ...rest,
  }
}

function bodyOf(schema: unknown, openapi = '3.0.3', schemas: object = {}): Record<string, unknown> {
  const operation = { requestBody: { content: { 'application/json': { schema } } } }
  const [view] = toFunctions(definitionWith(operation, { components: { schemas } }, openapi))
  if (view === undefined) throw new Error('no function')
  compile(view)
  // The property is always an object: InputSchemas turns boolean schemas into objects.
  return (view.parameters.properties as Record<string, Record<string, unknown>>).requestBody ?? {}
}

t.test('refused: a definition with faults throws all of them, each with its place', async t => {
  const fault = { loc: ['body', 'definition', 'openapi'], msg: 'Field required', type: 'missing' }
  t.throws(() => toFunctions({}), { name: 'Error', faults: [fault] })
})

t.test('schemas: keywords of 2020-12 are copied unchanged, with the schemas inside', async t => {
  const [text, THEN] = [{ type: 'string' }, 'then']
  const kept = {
    ...{ title: 'T', description: 'D', format: 'uuid', contentEncoding: 'base64', contentMediaType: 'a/b' },
    ...{
      uniqueItems: true,
      deprecated: true,
      writeOnly: true,
      const: 1,
      default: { a: 1 },
      examples: [1],
      enum: [1, 2],
    },
    ...{ minimum: 1, maximum: 2, exclusiveMinimum: 1, exclusiveMaximum: 2, multipleOf: 0.5, pattern: '^a' },
    ...{ minLength: 1, maxLength: 2, minItems: 1, maxItems: 2, minProperties: 1, maxProperties: 2 },
    ...{ minContains: 1, maxContains: 2, contains: text, propertyNames: text, items: text, prefixItems: [text] },
    ...{ properties: { a: text }, required: ['a'], patternProperties: { '^b': text }, additionalProperties: text },
    ...{ dependentSchemas: { a: text }, dependentRequired: { a: ['b'] }, unevaluatedProperties: false },
    ...{ allOf: [text], anyOf: [text], oneOf: [text], not: text, if: text, else: text },
    [THEN]: text,
    ...{ contentSchema: text, unevaluatedItems: text },
  }
  t.strictSame(bodyOf(kept, '3.1.0'), kept)
})

t.test('parameters and bodies: their own keywords outside the schema, and how they are sent', async t => {
  const parameters = [
    { name: 'old', in: 'query', explode: true, deprecated: true, description: 'D', schema: { description: 'S' } },
    { name: 'deep', in: 'query', style: 'deepObject', explode: true, allowReserved: true, schema: { type: 'object' } },
    { name: 'list', in: 'query', explode: false, schema: { type: 'array' } },
    { name: 'never', in: 'query', schema: false },
    { name: 'media', in: 'query', content: { 'application/json': { $ref: '#/components/mediaTypes/M' } } },
  ]
  const content = { 'application/x+json': { itemSchema: { type: 'integer' } } }
  const operation = { parameters, requestBody: { required: true, description: 'B', content } }
  const components = { mediaTypes: { M: { schema: { type: 'integer' } } } }
  const [view] = toFunctions(definitionWith(operation, { components }, '3.2.0'))
  t.strictSame(view?.parameters, {
    type: 'object',
    properties: {
      old: { description: 'D', deprecated: true },
      deep: { type: 'object' },
      list: { type: 'array', items: {} },
      never: { not: {} },
      media: { type: 'integer' },
      requestBody: { type: 'array', items: { type: 'integer' }, description: 'B' },
    },
    required: ['requestBody'],
  })
  t.strictSame(view?.arguments, [
    { argument: 'old', in: 'query', name: 'old' },
    { argument: 'deep', in: 'query', name: 'deep', style: 'deepObject', explode: true, allow_reserved: true },
    { argument: 'list', in: 'query', name: 'list', explode: false },
    { argument: 'never', in: 'query', name: 'never' },
    { argument: 'media', in: 'query', name: 'media', media_type: 'application/json' },
    { argument: 'requestBody', in: 'body', media_type: 'application/x+json' },
  ])
})

t.test('parameters: several with one name, and some named like a generated name', async t => {
  const parameters = [
    ...['id_', 'query_id'].map(name => ({ name, in: 'header' })),
    ...['header', 'query', 'cookie'].map(place => ({ name: 'id', in: place })),
  ]
  const [view] = toFunctions(definitionWith({ parameters }))
  t.strictSame(
    view?.arguments.map(each => each.argument),
    ['id_', 'query_id', 'id', 'query_id_', 'cookie_id'],
  )
})

t.test(
  'parameters: path level merged, the operation wins by name and place, required kept, collisions renamed',
  async t => {
    const definition = {
      ...definitionWith({}),
      paths: {
        '/x/{id}': {
          parameters: [
            { $ref: '#/components/parameters/Id' },
            { name: 'page', in: 'query', required: true, schema: { type: 'integer' } },
            { name: 'trace', in: 'header', schema: { type: 'string' } },
          ],
          put: {
            operationId: 'x',
            summary: 'Get one',
            description: 'Gets one.',
            parameters: [
              { name: 'page', in: 'query', description: 'Page', schema: { type: 'string' } },
              { name: 'id', in: 'query', schema: { type: 'boolean' } },
              { name: 'Authorization', in: 'header', schema: { type: 'string' } },
              { name: 'filter', in: 'query', content: { 'application/json': { schema: { type: 'object' } } } },
            ],
            requestBody: { required: true, content: { 'application/json': {} } },
          },
        },
      },
      components: { parameters: { Id: { name: 'id', in: 'path', schema: { type: 'string' } } } },
    }
    const [view] = toFunctions(definition, { headerNames: ['X-Other'] })
    t.same(view, {
      name: 'x',
      operationId: 'x',
      description: 'Get one\n\nGets one.',
      parameters: {
        type: 'object',
        properties: {
          id: { type: 'string' },
          trace: { type: 'string' },
          page: { type: 'string', description: 'Page' },
          query_id: { type: 'boolean' },
          filter: { type: 'object' },
          requestBody: {},
        },
        required: ['id', 'requestBody'],
      },
      method: 'put',
      path: '/x/{id}',
      arguments: [
        { argument: 'id', in: 'path', name: 'id' },
        { argument: 'trace', in: 'header', name: 'trace' },
        { argument: 'page', in: 'query', name: 'page' },
        { argument: 'query_id', in: 'query', name: 'id' },
        { argument: 'filter', in: 'query', name: 'filter', media_type: 'application/json' },
        { argument: 'requestBody', in: 'body', media_type: 'application/json' },
      ],
    })
    const [supplied] = toFunctions(definition, { headerNames: ['TRACE'] })
    t.notOk(Object.hasOwn(supplied?.parameters.properties as object, 'trace'), 'a custom header supplies it')
  },
)

t.test('arguments: names that some vendor refuses become safe and unique, and map to the wire names', async t => {
  const query = (...names: string[]) => names.map(name => ({ name, in: 'query', schema: { type: 'string' } }))
  const long = 'x'.repeat(70)
  const parameters = query('filter[state]', '$top', 'tags[]', 'tags', '2fa', 'a.b', '菜', 'größe', long, '-', 'okay_1')
  const named = (list: object[]) => toFunctions(definitionWith({ parameters: list }))[0]
  const view = named(parameters)
  t.strictSame(
    view?.arguments.map(each => each.argument),
    [
      ...['filter_state', 'top', 'tags_265461d1', 'tags', '_2fa', 'a_b', 'argument_45f0c2d9', 'gro_e_d353a267'],
      ...[`${'x'.repeat(55)}_c71bd109`, 'argument_3973e022', 'okay_1'],
    ],
  )
  t.strictSame(
    view?.arguments.map(each => each.name),
    parameters.map(each => each.name),
  )
  t.strictSame(
    Object.keys(view?.parameters.properties as object),
    view?.arguments.map(each => each.argument),
  )
  const reversed = named(parameters.toReversed())
  t.strictSame(reversed?.arguments.toReversed(), view?.arguments, 'in any order')
  t.strictSame(named([...query('requestBody'), ...query('body_requestBody')])?.arguments.length, 2)
})

t.test(
  'arguments: properties inside a body are safe wherever they are named, and mapped for each function',
  async t => {
    const schemas = {
      Base: {
        type: 'object',
        properties: { '@type': { type: 'string' }, plain: {} },
        required: ['@type', 'plain'],
        discriminator: { propertyName: '@type' },
      },
      Cat: {
        allOf: [{ $ref: '#/components/schemas/Base' }, { properties: { 'claw.length': { type: 'integer' } } }],
        required: ['claw.length'],
        example: { '@type': 'Cat', 'claw.length': 1, other: [{ 'claw.length': 2 }] },
        dependentRequired: { 'claw.length': ['@type'] },
      },
    }
    const operation = {
      requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/Cat' } } } },
    }
    const [view] = toFunctions(definitionWith(operation, { components: { schemas } }, '3.1.0'))
    t.strictSame(view?.wire_names, { type: '@type', claw_length: 'claw.length' })
    t.notMatch(JSON.stringify(view?.parameters), /@type|claw\./)
    const validate = compile(view as FunctionView)
    t.ok(validate({ requestBody: { type: 'Cat', plain: 1, claw_length: 1 } }))
    t.notOk(
      validate({ requestBody: { type: 'Dog', plain: 1, claw_length: 1 } }),
      'the selector is fixed by its safe name',
    )
    t.notOk(validate({ requestBody: { type: 'Cat', plain: 1 } }))
    const other = definitionWith({ parameters: [{ name: 'q', in: 'query' }] }, { components: { schemas } })
    t.strictSame(toFunctions(other)[0]?.wire_names, undefined, 'only names that the function has')
  },
)

t.test('examples: of parameters and media types, by reference, and in the form of 3.2', async t => {
  const examples = {
    a: { dataValue: 1, serializedValue: '1' },
    b: { $ref: '#/components/examples/B' },
    c: { value: 3 },
    d: { externalValue: 'https://e.example.com' },
    e: { $ref: '#/nowhere' },
  }
  const media = (more: object) => ({ content: { 'application/json': { schema: { type: 'integer' }, ...more } } })
  const parameters = [
    { name: 'schema', in: 'query', schema: { type: 'integer', examples: [9] }, examples },
    { name: 'content', in: 'query', ...media({ examples }) },
    { name: 'own', in: 'query', example: 7, ...media({ example: 8 }) },
  ]
  const operation = { parameters, requestBody: media({ example: 5 }) }
  const components = { examples: { B: { value: 2 } } }
  const [view] = toFunctions(definitionWith(operation, { components }, '3.2.0'))
  const seen = Object.values(view?.parameters.properties as Record<string, { examples: unknown }>)
  t.strictSame(
    seen.map(each => each.examples),
    [[1, 2, 3], [1, 2, 3], [7], [5]],
  )
})

t.test('descriptions: next to a reference they override those of parameters and bodies from 3.1 on', async t => {
  const refer = (kind: string) => ({ $ref: `#/components/${kind}/A`, description: 'here' })
  const components = {
    parameters: {
      A: { name: 'p', in: 'query', description: 'there' },
    },
    requestBodies: {
      A: { description: 'there', content: { 'application/json': { schema: { description: 'of the schema' } } } },
    },
  }
  const described = (openapi: string, operation: object) => {
    const [view] = toFunctions(definitionWith(operation, { components }, openapi))
    return Object.values(view?.parameters.properties as Record<string, { description: string }>).map(
      each => each.description,
    )
  }
  const operation = { parameters: [refer('parameters')], requestBody: refer('requestBodies') }
  t.strictSame(described('3.1.0', operation), ['here', 'here'])
  t.strictSame(described('3.0.3', operation), ['there', 'of the schema'])
  const plain = {
    parameters: [{ $ref: '#/components/parameters/A' }],
    requestBody: { content: { 'application/json': {} }, description: 'own' },
  }
  t.strictSame(described('3.1.0', plain), ['there', 'own'])
})

t.test('schemas: recursive ones stay references in $defs, and only used ones are included', async t => {
  const schemas = {
    Node: { type: 'object', required: ['next'], properties: { next: { $ref: '#/components/schemas/Node' } } },
    'A b/c': { type: 'string' },
    Unused: { type: 'null' },
  }
  const operation = {
    parameters: [
      { name: 'n', in: 'query', schema: { $ref: '#/components/schemas/Node' } },
      { name: 'a', in: 'query', schema: { $ref: '#/components/schemas/A%20b~1c' } },
    ],
  }
  const [view] = toFunctions(definitionWith(operation, { components: { schemas } }))
  t.same(view?.parameters, {
    type: 'object',
    properties: { n: { $ref: '#/$defs/Node' }, a: { $ref: '#/$defs/A_b_c' } },
    $defs: {
      Node: { type: 'object', required: ['next'], properties: { next: { $ref: '#/$defs/Node' } } },
      A_b_c: { type: 'string' },
    },
  })
  const validate = compile(view as FunctionView)
  t.ok(validate({ n: { next: { next: {} } } }) === false && validate({ a: 'x' }), 'and the references work')
})

t.test('schemas: 3.0 becomes 2020-12', async t => {
  t.same(bodyOf({ type: 'string', nullable: true, enum: ['a'] }), { type: ['string', 'null'], enum: ['a', null] })
  t.same(bodyOf({ type: 'integer', minimum: 1, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false }), {
    type: 'integer',
    exclusiveMinimum: 1,
    maximum: 9,
  })
  t.same(
    bodyOf({ nullable: true, description: 'D', allOf: [{ $ref: '#/components/schemas/S' }] }, '3.0.3', {
      S: { type: 'string' },
    }),
    { description: 'D', anyOf: [{ allOf: [{ $ref: '#/$defs/S' }] }, { type: 'null' }] },
  )
  t.same(
    bodyOf({ $ref: '#/components/schemas/S', description: 'D', minLength: 3 }, '3.0.3', { S: { type: 'string' } }),
    { $ref: '#/$defs/S', description: 'D' },
    '3.0 ignores what limits beside $ref',
  )
  t.same(
    bodyOf({ $ref: '#/components/schemas/S', minLength: 3 }, '3.1.0', { S: { type: 'string' } }),
    { $ref: '#/$defs/S', minLength: 3 },
    '3.1 keeps it',
  )
  t.same(bodyOf({ type: 'object', example: { a: 1 }, 'x-y': 1, xml: {}, discriminator: { propertyName: 'a' } }), {
    type: 'object',
    examples: [{ a: 1 }],
  })
})

t.test('schemas: keywords that JSON Schema does not allow are left out or corrected', async t => {
  t.same(bodyOf({ type: 'file', enum: [], required: 'a', minLength: -1, pattern: '(?i)a', items: null, allOf: [] }), {
    description: 'Pattern: (?i)a',
  })
  t.same(bodyOf({ type: 'object', properties: { a: { type: 'string', required: true }, b: 'string', c: true } }), {
    type: 'object',
    properties: { a: { type: 'string' }, b: {}, c: true },
  })
  t.same(
    bodyOf({ type: 'string', pattern: '^[\\w-.]+\\-$' }),
    { type: 'string', pattern: '^[\\w-.]+\\-$' },
    'as people write it',
  )
  t.same(bodyOf({ type: 'array' }), { type: 'array', items: {} }, 'a list of which nothing is said holds anything')
  t.same(bodyOf({ type: ['array', 'null'] }, '3.1.0'), { type: ['array', 'null'], items: {} })
  t.same(bodyOf(true, '3.1.0'), {})
  t.same(bodyOf(false, '3.1.0'), { not: {} })
})

t.test('schemas: server-set properties are left out of the arguments', async t => {
  const schemas = { Id: { type: 'string', readOnly: true }, Name: { type: 'string' } }
  const body = {
    type: 'object',
    required: ['id', 'name', 'at'],
    properties: {
      id: { $ref: '#/components/schemas/Id' },
      name: { $ref: '#/components/schemas/Name' },
      at: { type: 'string', readOnly: true, required: true },
      inner: { type: 'object', properties: { id: { readOnly: true } }, required: ['id'] },
    },
  }
  t.same(bodyOf(body, '3.0.3', schemas), {
    type: 'object',
    required: ['name'],
    properties: { name: { $ref: '#/$defs/Name' }, inner: { type: 'object', properties: {} } },
  })
})

t.test('names: unique in any script, readable if possible, independent of the rest of the definition', async t => {
  const named = (...ids: string[]) =>
    toFunctions({
      ...definitionWith({}),
      paths: Object.fromEntries(
        ids.map((operationId, i) => [
          `/recipes/{n}${i}`,
          { parameters: [{ name: 'n', in: 'path' }], get: { operationId, summary: 'S' } },
        ]),
      ),
    }).map(view => view.name)
  const [search, list, price, accent, plain] = named('菜谱搜索', '菜谱分类', '今日油价', 'búsqueda rápida', 'find-it')
  t.match(search, /^get_recipes_n_0_[0-9a-f]{8}$/)
  t.match(list, /^get_recipes_n_1_[0-9a-f]{8}$/)
  t.match(price, /_[0-9a-f]{8}$/)
  t.equal(accent, 'busqueda_rapida')
  t.equal(plain, 'find-it')
  t.equal(
    new Set([search?.slice(-8), list?.slice(-8), price?.slice(-8)]).size,
    3,
    'the hash is that of the operationId',
  )
  const [spaced, underscored, dotted] = named('get user', 'get_user', 'get.user')
  t.equal(underscored, 'get_user', 'an operation with a name keeps it')
  t.match([spaced, dotted], [/^get_user_[0-9a-f]{8}$/, /^get_user_[0-9a-f]{8}$/])
  t.same(named('get.user', 'get_user', 'get user'), [dotted, underscored, spaced], 'in any order')
  const [cut, other] = named(`${'a'.repeat(70)}1`, `${'a'.repeat(70)}2`)
  t.match(cut, /^a{55}_[0-9a-f]{8}$/)
  t.not(cut, other)
})

t.test('a parameter called __proto__ is a property like any other', async t => {
  const [view] = toFunctions(
    definitionWith({ parameters: [{ name: '__proto__', in: 'query', required: true, schema: { type: 'integer' } }] }),
  )
  const properties = view?.parameters.properties as object
  t.ok(Object.hasOwn(properties, '__proto__'))
  t.equal(Object.getPrototypeOf(properties), Object.prototype)
  t.equal(JSON.stringify(properties), '{"__proto__":{"type":"integer"}}')
  t.same(view?.parameters.required, ['__proto__'])
  const [component] = toFunctions(
    definitionWith(
      { requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/@@proto@@' } } } } },
      { components: { schemas: { '@@proto@@': { type: 'integer' } } } },
    ),
  )
  t.same(Object.values(component?.parameters.$defs as object), [{ type: 'integer' }], 'nor is a definition lost')
})

t.test('functions_too_large: the size of all functions together is limited before they are made', async t => {
  // Each function includes every schema it needs, so a shared schema is in each of them.
  const properties = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`p${i}`, { type: 'string' }]))
  const body = { content: { 'application/json': { schema: { $ref: '#/components/schemas/S' } } } }
  const post = (i: number) => ({ operationId: `o${i}`, summary: 'S', requestBody: body })
  const paths = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`/p${i}`, { post: post(i) }]))
  const definition = { ...definitionWith({}), paths, components: { schemas: { S: { properties } } } }
  t.ok(checkDefinition(definition).ok, 'the definition itself is accepted')
  try {
    toFunctions(definition)
    t.fail('the functions were made')
  } catch (error) {
    t.match(error, { faults: [{ loc: ['body', 'definition'], type: 'functions_too_large' }] })
  }
})
