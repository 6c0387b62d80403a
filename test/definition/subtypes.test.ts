import t from 'tap'
import { parse } from 'yaml'
import { checkDefinition, completeDefinition, toFunctions } from '../../src/definition/index.js'
import { compile } from './ajv.js'
import { schemaRef as ref, withBody } from './document.js'

const PET = {
  type: 'object',
  required: ['kind'],
  properties: { kind: { type: 'string' } },
  discriminator: { propertyName: 'kind' },
}
const MAPPED = {
  ...PET,
  discriminator: { propertyName: 'kind', mapping: { cat: ref('Cat').$ref, tom: 'Cat', dog: 'Dog' } },
}
const SUBTYPES = {
  Cat: { allOf: [ref('Pet'), { type: 'object', required: ['meow'], properties: { meow: { type: 'integer' } } }] },
  Dog: { allOf: [ref('Pet')], properties: { size: { type: 'integer' } }, required: ['size'] },
}
const plain = (field: string) => ({
  ...{ type: 'object', required: [field, 'kind'] },
  properties: { kind: { type: 'string' }, [field]: { type: 'integer' } },
})
const PLAIN = { Cat: plain('meow'), Dog: plain('size') }
const ALTERNATIVES = { oneOf: [ref('Cat'), ref('Dog')], discriminator: MAPPED.discriminator }

/** Returns a validator for the body, compiled from the arguments schema of the function. */
function accepts(body: object, schemas: object, openapi = '3.0.3') {
  return functionOf(withBody(body, schemas, { openapi }))
}

function functionOf(definition: unknown) {
  const [view] = toFunctions(definition)
  const validate = compile(view ?? { parameters: {} })
  return (requestBody: unknown) => validate({ requestBody })
}

const [CAT, DOG] = [
  { kind: 'cat', meow: 1 },
  { kind: 'dog', size: 1 },
]

const WRONG = [{ kind: 'cat' }, { kind: 'bird' }, { kind: 'dog', meow: 1 }, { kind: 'Cat', meow: 1 }, { meow: 1 }]

for (const openapi of ['3.0.3', '3.1.0']) {
  t.test(`${openapi}: subtypes replace their parent everywhere, each with its discriminator value`, async t => {
    const forms: [string, object, (pet: object) => unknown][] = [
      ['alone', ref('Pet'), pet => pet],
      ['in a list', { type: 'array', items: ref('Pet') }, pet => [pet]],
      ['inside an object', { type: 'object', properties: { pet: ref('Pet') } }, pet => ({ pet })],
      ['in allOf', { allOf: [ref('Pet'), { type: 'object', properties: { age: { type: 'integer' } } }] }, pet => pet],
      ['as a map', { type: 'object', additionalProperties: ref('Pet') }, pet => ({ any: pet })],
    ]
    const kinds: [string, object][] = [
      ['parent alone', { Pet: MAPPED, ...SUBTYPES }],
      ['mapping to schemas without allOf', { Pet: MAPPED, ...PLAIN }],
      ['oneOf', { Pet: ALTERNATIVES, ...PLAIN }],
      ['anyOf', { Pet: { anyOf: ALTERNATIVES.oneOf, discriminator: ALTERNATIVES.discriminator }, ...PLAIN }],
      ['parent with oneOf', { Pet: { ...MAPPED, oneOf: ALTERNATIVES.oneOf }, ...SUBTYPES }],
    ]
    for (const [kind, schemas] of kinds) {
      for (const [form, body, wrap] of forms) {
        const accept = accepts(body, schemas, openapi)
        const name = `${kind}, ${form}`
        for (const pet of [CAT, DOG, { kind: 'tom', meow: 1 }]) t.ok(accept(wrap(pet)), `${name}: ${pet.kind}`)
        for (const pet of WRONG) t.notOk(accept(wrap(pet)), `${name}: ${JSON.stringify(pet)}`)
      }
    }
  })
}

t.test('without a mapping the discriminator value is the name of the schema or its own constant', async t => {
  const accept = accepts(ref('Pet'), { Pet: PET, ...SUBTYPES })
  t.ok(accept({ kind: 'Cat', meow: 1 }) && accept({ kind: 'Dog', size: 1 }))
  t.notOk(accept({ kind: 'cat', meow: 1 }) || accept({ kind: 'Dog', meow: 1 }) || accept({ kind: 'Pet' }))
  const direct = accepts(ref('Dog'), { Pet: MAPPED, ...SUBTYPES })
  t.ok(direct(DOG))
  t.notOk(direct({ kind: 'cat', size: 1 }), 'a subtype alone fixes its selector too')
})

t.test('an undeclared discriminator property gets a safe name too', async t => {
  const parent = { type: 'object', discriminator: { propertyName: '@kind' } }
  const accept = accepts(ref('Pet'), { Pet: parent, Cat: { allOf: [ref('Pet')], required: ['meow'] } })
  t.ok(accept({ kind: 'Cat', meow: 1 }))
  t.notOk(accept({ kind: 'Dog', meow: 1 }) || accept({ '@kind': 'Cat', meow: 1 }))
})

t.test('subtypes of subtypes, and a subtype that refers to its parent', async t => {
  const schemas = {
    Pet: PET,
    ...SUBTYPES,
    Lion: { allOf: [ref('Cat'), { required: ['roar'], properties: { roar: { type: 'integer' }, cub: ref('Pet') } }] },
  }
  const accept = accepts(ref('Pet'), schemas)
  t.ok(accept({ kind: 'Cat', meow: 1 }) && accept({ kind: 'Lion', meow: 1, roar: 1, cub: { kind: 'Dog', size: 1 } }))
  t.notOk(accept({ kind: 'Lion', meow: 1 }) || accept({ kind: 'Lion', meow: 1, roar: 1, cub: { kind: 'Dog' } }))
})

t.test('Swagger 2.0: the subtypes of a parent after conversion', async t => {
  const schemas = JSON.stringify({ Pet: { ...PET, discriminator: 'kind' }, ...SUBTYPES })
  const { definition, check } = completeDefinition(
    parse(`
      swagger: '2.0'
      info: { title: Pets, version: '1' }
      host: pets.example.com
      consumes: [application/json]
      paths:
        /pets:
          post:
            operationId: add
            summary: Adds a pet
            parameters: [{ name: body, in: body, required: true, schema: { $ref: '#/definitions/Pet' } }]
      definitions: ${schemas.replaceAll('components/schemas', 'definitions')}`),
  )
  t.ok(check.ok)
  const accept = functionOf(definition)
  t.ok(accept({ kind: 'Cat', meow: 1 }))
  t.ok(accept({ kind: 'Pet' }), 'the parent itself')
  t.notOk(accept({ kind: 'Cat' }) || accept({ kind: 'bird' }))
})

t.test('discriminator_unresolved: accepted with a warning at each lost value or subtype', async t => {
  const validated = (body: object, schemas: object) => {
    const { ok, warnings } = checkDefinition(withBody(body, schemas, { openapi: '3.0.3' }))
    t.ok(ok)
    const prefix = 'body definition paths /x post requestBody content application/json'
    const unresolved = warnings.filter(each => each.type === 'discriminator_unresolved').map(({ loc }) => loc.join(' '))
    return unresolved.map(each => each.replace(prefix, 'media').replace('body definition components schemas ', ''))
  }
  const discriminator = (mapping?: object) => ({ propertyName: 'kind', ...(mapping && { mapping }) })
  const inline = (value?: string) => ({ type: 'object', properties: { kind: value ? { enum: [value] } : {}, a: {} } })
  const by = (mapping?: object) => ({ discriminator: discriminator(mapping) })
  const oneOf = [ref('Cat'), ref('Dog')]
  const lost = by({ cow: 'cow.yaml#/Cow', cat: 'Cat', fox: 'Fox', owl: 1 })
  const outside = by({ cow: 'https://pets.example.com/cow.json' })
  const limited = { kind: { enum: ['Cat', 'c', 'd'] } }
  const mapping = 'Pet discriminator mapping'
  const cases: [string, string[], object, object][] = [
    ['a parent with subtypes', [], ref('Pet'), { Pet: MAPPED, ...SUBTYPES }],
    ['a subtype alone', [], ref('Cat'), { Pet: PET, ...SUBTYPES }],
    ['alternatives', [], ref('Pet'), { Pet: ALTERNATIVES, ...PLAIN }],
    ['inline alternatives that say it themselves', [], { oneOf: [inline('a')], ...by() }, {}],
    ['an alternative that is null', [], { anyOf: [ref('Cat'), { type: 'null' }], ...by() }, PLAIN],
    [
      'a mapping that leads outside or nowhere',
      [`${mapping} cow`, `${mapping} fox`, `${mapping} owl`],
      ref('Pet'),
      { Pet: { ...PET, ...lost }, ...SUBTYPES },
    ],
    ['no subtype', ['Pet discriminator'], ref('Pet'), { Pet: PET }],
    ['only outside', [`${mapping} cow`, 'Pet discriminator'], ref('Pet'), { Pet: { ...PET, ...outside } }],
    ['an unnamed alternative', ['media schema oneOf 1'], { oneOf: [ref('Cat'), inline()], ...by() }, PLAIN],
    [
      'a mapping beside',
      ['media schema discriminator mapping dog'],
      { oneOf: [ref('Cat')], ...by({ dog: 'Dog' }) },
      PLAIN,
    ],
    ['no property', ['media schema discriminator'], { oneOf, discriminator: {} }, PLAIN],
    ['no value names it', ['Pet discriminator'], ref('Pet'), { Pet: { ...PET, properties: limited }, ...SUBTYPES }],
  ]
  for (const [name, expected, body, schemas] of cases) t.same(validated(body, schemas), expected, name)
  const broken = { ...SUBTYPES.Cat, properties: { a: { $ref: '#/no' } } }
  const refused = checkDefinition(withBody(ref('Pet'), { Pet: PET, Cat: broken }))
  t.match(refused, { faults: [{ type: 'ref_unresolved' }] }, 'what is offered is looked into')
  t.same(validated(ref('Dog'), { Pet: PET, ...SUBTYPES, Cat: broken }), [], 'its parent alone offers nothing else')
})

t.test('below two discriminators: each level fixes its own value', async t => {
  const nested = {
    Pet: MAPPED,
    Dog: SUBTYPES.Dog,
    Cat: { ...SUBTYPES.Cat, discriminator: { propertyName: 'breed' } },
    Persian: { allOf: [ref('Cat'), { required: ['fur'], properties: { fur: { type: 'integer' } } }] },
  }
  const good = { kind: 'cat', breed: 'Persian', meow: 1, fur: 1 }
  for (const body of [ref('Cat'), ref('Pet')]) {
    const accept = accepts(body, nested)
    t.ok(accept(good), `${body.$ref}: both`)
    const { kind: _, ...unnamed } = good
    for (const bad of [{ ...good, kind: 'dog' }, { ...good, breed: 'Siam' }, unnamed])
      t.notOk(accept(bad), `${body.$ref}: ${JSON.stringify(bad)}`)
  }
  t.notOk(accepts(ref('Persian'), nested)({ kind: 'cat', meow: 1, fur: 1 }), 'no breed')
})

t.test('a schema with several subtypes at once can be sent', async t => {
  const schemas = { Pet: PET, ...SUBTYPES }
  t.ok(accepts({ allOf: [ref('Cat'), ref('Dog')] }, schemas)({ kind: 'both', meow: 1, size: 1 }))
})

t.test('alternatives whose parent has a discriminator by the same property', async t => {
  const mapping = (prefix: string) => ({ [`${prefix}cat`]: 'Cat', [`${prefix}dog`]: 'Dog' })
  const by = (mapping?: object) => ({ discriminator: { propertyName: 'kind', ...(mapping && { mapping }) } })
  const forms: [string, object, object, string][] = [
    ['the parent maps', by(), by(mapping('')), 'cat'],
    ['the union maps', by(mapping('')), by(), 'cat'],
    ['both map, differently', by(mapping('u-')), by(mapping('')), 'u-cat'],
    ['neither maps', by(), by(), 'Cat'],
  ]
  for (const key of ['oneOf', 'anyOf']) {
    for (const [name, union, parent, kind] of forms) {
      const body = { [key]: [ref('Cat'), ref('Dog')], ...union }
      const schemas = { Pet: { ...PET, ...parent }, ...SUBTYPES }
      for (const accept of [accepts(body, schemas), accepts(ref('Either'), { ...schemas, Either: body })]) {
        t.ok(accept({ kind, meow: 1 }), `${key}, ${name}`)
        t.notOk(accept({ kind, size: 1 }) || accept({ kind: 'other', meow: 1 }), `${key}, ${name}: no other`)
      }
    }
  }
  const cars = {
    Car: { type: 'object', ...by(), properties: { kind: { type: 'string' } } },
    Limo: { allOf: [ref('Car')] },
    Boat: { type: 'object' },
  }
  const union = { oneOf: [ref('Car'), ref('Boat')], ...by({ car: 'Car', boat: 'Boat' }) }
  t.ok(accepts(union, cars)({ kind: 'Limo' }), 'an alternative with subtypes of its own')
  t.ok(accepts(union, cars)({ kind: 'boat' }))
})

t.test('alternatives that are unions by the same property keep their own values', async t => {
  const schemas = { ...PLAIN, Pet: { oneOf: [ref('Cat'), ref('Dog')], discriminator: { propertyName: 'kind' } } }
  const accept = accepts({ oneOf: [ref('Pet')], discriminator: { propertyName: 'kind' } }, schemas)
  t.ok(accept({ kind: 'Cat', meow: 1 }))
  t.notOk(accept({ kind: 'Pet', meow: 1 }))
})
