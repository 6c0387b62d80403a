import { TypeCompiler } from '@sinclair/typebox/compiler'
import fc from 'fast-check'
import t from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { boundFaults, collectFaults, faultsOfMasked, unknownFields } from '../../src/schema/faults.js'
import { CustomToolUpdate } from '../../src/tool/schema.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'

const runs = { numRuns: 2000 }

/** Values near the edges of every rule, so that random bodies are often right and wrong in one place only. */
const value = fc.oneof(
  fc.constantFrom<unknown>(null, true, false, '', ' ', 'a', 'auto', '\0', '\ud800', 'x'.repeat(256), '😀'.repeat(255)),
  fc.constantFrom<unknown>(0, -0, 1, 1.5, 2 ** 31, -(2 ** 31), 1_000_001, 1e300, Infinity, -Infinity),
  fc.constantFrom<unknown>('2024-02-29T00:00:00Z', '2023-02-29', 'a0000000-0000-4000-8000-000000000005', '1'),
  fc.constantFrom<unknown>([], {}, [1], ['1'], [null], new Array(1001).fill(1), new Array(51).fill({}), [[]]),
  fc.array(fc.record({ name: fc.string(), message: fc.string(), key: fc.string(), value: fc.jsonValue() }), {
    maxLength: 3,
  }),
  fc.jsonValue({ maxDepth: 3 }),
  fc.string({ unit: 'binary' }),
)

const subjects = [
  [PersonaUpsertRequest, FULL_AGENT_UPDATE],
  [CustomToolUpdate, { name: 'tool', definition: {}, custom_headers: [{ key: 'a', value: 'b' }], oauth_config_id: 1 }],
] as const

/** A body that is right but for a few fields, or anything at all. */
const body = (fields: string[], right: Record<string, unknown>) => {
  const names = fc.oneof(
    fc.constantFrom(...fields),
    fc.constantFrom('constructor', '__proto__', 'toString'),
    fc.string(),
  )
  const changes = fc.dictionary(names, value, { maxKeys: 4 })
  const nearlyRight = fc
    .tuple(changes, fc.subarray(fields, { maxLength: 2 }), fc.boolean())
    .map(([changed, left, last]) => {
      const whole = Object.entries(last ? { ...right, ...changed } : { ...changed, ...right, ...changed })
      return Object.fromEntries(whole.filter(([name]) => !left.includes(name)))
    })
  return fc.oneof({ weight: 6, arbitrary: nearlyRight }, fc.dictionary(names, value, { maxKeys: 40 }), fc.jsonValue())
}

for (const [schema, right] of subjects) {
  const fields = Object.keys(schema.properties)
  const compiled = TypeCompiler.Compile(schema)

  t.test(`the check of ${schema.$id} says yes exactly when the report has no fault`, async t => {
    let accepted = 0
    fc.assert(
      fc.property(body(fields, right), candidate => {
        const verdict = compiled.Check(candidate)
        if (verdict) accepted++
        return verdict === (collectFaults(schema, candidate, []).length === 0)
      }),
      runs,
    )
    t.ok(
      accepted > runs.numRuns / 20 && accepted < runs.numRuns * 0.95,
      `both verdicts were met, yes ${accepted} times`,
    )
  })

  t.test(`faults of ${schema.$id} come in the declared order, whatever the order of the body`, async t => {
    const place = (name: unknown) => fields.indexOf(String(name))
    t.doesNotThrow(() =>
      fc.assert(
        fc.property(body(fields, right), candidate => {
          const places = collectFaults(schema, candidate, ['body']).map(({ loc }) =>
            loc.length > 1 ? place(loc[1]) : 0,
          )
          return places.every((here, index) => here >= (places[index - 1] ?? 0))
        }),
        runs,
      ),
    )
  })

  t.test(`a mask of ${schema.$id} reports its fields and no other`, async () => {
    fc.assert(
      fc.property(body(fields, right), fc.subarray(fields), (candidate, mask) => {
        const masked = faultsOfMasked(schema, candidate, mask, [])
        if (masked[0]?.loc.length === 0) return masked.length === 1
        const all = collectFaults(schema, candidate, [])
        const expected = all.filter(({ loc }) => mask.includes(String(loc[0])))
        const present = masked.filter(
          ({ loc, type }) => type !== 'missing' || loc.length > 1 || required(schema, loc[0]),
        )
        return masked.every(({ loc }) => mask.includes(String(loc[0]))) && same(present, expected)
      }),
      runs,
    )
  })

  t.test(`unknown fields of ${schema.$id} are those that it does not list, names of Object.prototype too`, async t => {
    t.strictSame(unknownFields(schema, JSON.parse('{"zz":1,"name":2,"constructor":3,"toString":4}')), [
      ['zz'],
      ['constructor'],
      ['toString'],
    ])
    t.strictSame(unknownFields(schema, [1]), [])
  })
}

t.test('at most 100 faults, the last says how many more', async t => {
  const faults = (length: number) =>
    Array.from({ length }, (_, index) => ({ loc: ['body', index], msg: '', type: 'x' }))
  t.strictSame(boundFaults(faults(100)), faults(100))
  const bounded = boundFaults(faults(117))
  t.strictSame(bounded.slice(0, 99), faults(99))
  t.strictSame(bounded.slice(99), [{ loc: ['body'], msg: '18 more faults are not listed', type: 'too_many_faults' }])
})

t.test('a masked field that is absent is missing, required or not', async t => {
  t.strictSame(faultsOfMasked(PersonaUpsertRequest, { users: [1] }, ['users', 'icon_name', 'name']), [
    { loc: ['body', 'name'], msg: 'Field required', type: 'missing' },
    { loc: ['body', 'users', 0], msg: 'UUID input should be a string, bytes or UUID object', type: 'uuid_type' },
    { loc: ['body', 'icon_name'], msg: 'Field required', type: 'missing' },
  ])
  t.strictSame(faultsOfMasked(PersonaUpsertRequest, { name: 1 }, []), [])
  t.equal(faultsOfMasked(PersonaUpsertRequest, [], [])[0]?.type, 'model_attributes_type')
})

function required(schema: { required?: string[] | undefined }, name: unknown): boolean {
  return schema.required?.includes(String(name)) ?? false
}

function same(left: unknown, right: unknown): boolean {
  return JSON.stringify(left) === JSON.stringify(right)
}
