import { TypeCompiler } from '@sinclair/typebox/compiler'
import fc from 'fast-check'
import t from 'tap'
import { PersonaSnapshot, PersonaUpsertRequest } from '../../src/persona/schema.js'
import { boundFaults, collectFaults, faultsOfMasked, unknownFields } from '../../src/schema/faults.js'
import { parseId } from '../../src/schema/parameters.js'
import { parseDateTime } from '../../src/schema/vocabulary.js'
import { CustomToolUpdate, ToolSnapshot } from '../../src/tool/schema.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'

/** The fields as the interface document lists them: what clients of the public product send and read. */
const INTERFACE_DOCUMENT = [
  [
    PersonaUpsertRequest,
    `name description document_set_ids num_chunks is_public recency_bias llm_filter_extraction llm_relevance_filter tool_ids
      system_prompt task_prompt datetime_aware`,
    `llm_model_provider_override llm_model_version_override starter_messages users groups remove_image uploaded_image_id
      icon_name search_start_date label_ids is_default_persona display_priority user_file_ids replace_base_system_prompt`,
  ],
  [
    PersonaSnapshot,
    `id name description is_public is_visible uploaded_image_id icon_name user_file_ids display_priority is_default_persona
      builtin_persona starter_messages llm_relevance_filter llm_filter_extraction tools labels owner users groups
      document_sets llm_model_provider_override llm_model_version_override num_chunks`,
    'system_prompt replace_base_system_prompt task_prompt datetime_aware',
  ],
  [CustomToolUpdate, '', 'name description definition custom_headers passthrough_auth oauth_config_id'],
  [
    ToolSnapshot,
    'id name description definition display_name in_code_tool_id custom_headers passthrough_auth',
    `mcp_server_id user_id oauth_config_id oauth_config_name enabled chat_selectable agent_creation_selectable
      default_enabled`,
  ],
] as const

t.test('every field of the interface document, in its order; a request demands no other', async t => {
  const words = (text: string) => text.split(/\s+/).filter(Boolean)
  for (const [schema, ...listed] of INTERFACE_DOCUMENT) {
    const [required = [], optional = []] = listed.map(words)
    const published = [...required, ...optional]
    const fields = Object.keys(schema.properties).filter(name => published.includes(name))
    t.strictSame(fields, published, String(schema.$id))
    const demanded: readonly string[] = schema.required ?? []
    const isRequest = schema === PersonaUpsertRequest || schema === CustomToolUpdate
    t.strictSame(isRequest ? demanded : demanded.filter(name => published.includes(name)), required, String(schema.$id))
  }
})

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

/** A body that is right but for a few fields, or anything at all. */
const bodyOf = (fields: string[], right: Record<string, unknown>) => {
  const names = fc.oneof(fc.constantFrom(...fields, 'constructor', '__proto__', 'toString'), fc.string())
  const nearlyRight = fc
    .tuple(fc.dictionary(names, value, { maxKeys: 4 }), fc.subarray(fields, { maxLength: 2 }), fc.boolean())
    .map(([changed, left, last]) => {
      const whole = Object.entries(last ? { ...right, ...changed } : { ...changed, ...right, ...changed })
      return Object.fromEntries(whole.filter(([name]) => !left.includes(name)))
    })
  return fc.oneof({ weight: 6, arbitrary: nearlyRight }, fc.dictionary(names, value, { maxKeys: 40 }), fc.jsonValue())
}

for (const [schema, right] of [
  [PersonaUpsertRequest, FULL_AGENT_UPDATE],
  [CustomToolUpdate, { name: 'tool', definition: {}, custom_headers: [{ key: 'a', value: 'b' }], oauth_config_id: 1 }],
] as const) {
  t.test(
    `${schema.$id}: check and report agree, faults come in the declared order, a mask reports its own`,
    async t => {
      const fields = Object.keys(schema.properties)
      const compiled = TypeCompiler.Compile(schema)
      const required: readonly string[] = schema.required ?? []
      const verdicts = { yes: 0, no: 0 }
      fc.assert(
        fc.property(bodyOf(fields, right), fc.subarray(fields), (body, mask) => {
          const faults = collectFaults(schema, body, [])
          const verdict = compiled.Check(body)
          verdicts[verdict ? 'yes' : 'no']++
          const places = faults.map(({ loc }) => (loc.length > 0 ? fields.indexOf(String(loc[0])) : 0))
          const isOrdered = places.every((here, index) => here >= (places[index - 1] ?? 0))
          const masked = faultsOfMasked(schema, body, mask, [])
          const ofMask = faults.filter(({ loc }) => mask.includes(String(loc[0])))
          const beyond = masked.filter(
            ({ loc, type }) => type !== 'missing' || loc.length > 1 || required.includes(String(loc[0])),
          )
          const isMasked =
            masked[0]?.loc.length === 0
              ? masked.length === 1
              : masked.every(({ loc }) => mask.includes(String(loc[0]))) &&
                JSON.stringify(beyond) === JSON.stringify(ofMask)
          return verdict === (faults.length === 0) && isOrdered && isMasked
        }),
        { numRuns: 2_000 },
      )
      t.ok(verdicts.yes > 100 && verdicts.no > 100, JSON.stringify(verdicts))
      t.strictSame(unknownFields(schema, JSON.parse('{"zz":1,"name":2,"constructor":3,"toString":4}')), [
        ['zz'],
        ['constructor'],
        ['toString'],
      ])
    },
  )
}

t.test('at most 100 faults, the last says how many more', async t => {
  const faults = (length: number) =>
    Array.from({ length }, (_, index) => ({ loc: ['body', index], msg: '', type: 'x' }))
  t.strictSame(boundFaults(faults(100)), faults(100))
  const bounded = boundFaults(faults(117))
  t.strictSame(bounded.slice(0, 99), faults(99))
  t.strictSame(bounded.slice(99), [{ loc: ['body'], msg: '18 more faults are not listed', type: 'too_many_faults' }])
})

t.test(
  '422 int_parsing for an id that is no integer in plain decimal; one that no row can have is no fault',
  async t => {
    for (const text of ['abc', '1e3', '1.5', '1.0', 'true', '', ' 1', '+1', '0x1', '１', '1_0', '-', '1\n'])
      t.match(parseId(text, ['path', 'id']), { faults: [{ loc: ['path', 'id'], type: 'int_parsing' }] }, text)
    for (const text of ['0', '-1', '-0', '2147483648', '9'.repeat(400)])
      t.strictSame(parseId(text, []), { value: undefined })
    t.strictSame(parseId('2147483647', []), { value: 2147483647 })
  },
)

t.test('a date is stored in UTC with microseconds', async t => {
  for (const [text, expected] of Object.entries({
    '2024-01-02': '2024-01-02T00:00:00.000000Z',
    '2024-01-02 03:04:05.1': '2024-01-02T03:04:05.100000Z',
    '2024-01-02t03:04:05.1234569z': '2024-01-02T03:04:05.123456Z',
    '1969-12-31T23:59:59.999999Z': '1969-12-31T23:59:59.999999Z',
    '2024-01-02T03:04:05.123456+05:30': '2024-01-01T21:34:05.123456Z',
    '0000-12-31T23:59:00-00:01': '0001-01-01T00:00:00.000000Z',
    '0050-06-07': '0050-06-07T00:00:00.000000Z',
    '9999-12-31T23:59:59.9999999Z': '9999-12-31T23:59:59.999999Z',
  }))
    t.equal(parseDateTime(text), expected, text)
  for (const text of [
    ...[
      '0001-01-01T00:00:00+00:01',
      '9999-12-31T23:59:59-00:01',
      '2023-02-29',
      '1900-02-29',
      '2024-13-01',
      '2024-00-01',
    ],
    ...['2024-01-00', '2024-01-02T24:00:00Z', '2024-01-02T23:60:00Z', '2024-01-02T23:59:60Z', '2024-01-02T03:04Z'],
    ...['2024-01-02T03:04:05.Z', '2024-01-02T03:04:05+24:00', '2024-01-02T03:04:05+05', '2024-01-02T03:04:05+0500'],
    ...['2024-01-02_03:04:05', '2024-01-02T03:04:05Z\n', '2024-01-02Z'],
  ])
    t.equal(parseDateTime(text), undefined, JSON.stringify(text))
  const [min, max] = [new Date('0001-01-02T00:00:00Z'), new Date('9999-12-30T00:00:00Z')]
  fc.assert(
    fc.property(
      fc.date({ min, max, noInvalidDate: true }),
      fc.integer({ min: -1439, max: 1439 }),
      (instant, offset) => {
        const two = (part: number) => String(part).padStart(2, '0')
        const shifted = new Date(instant.getTime() + offset * 60_000).toISOString().slice(0, -1)
        const size = Math.abs(offset)
        const text = `${shifted}${offset < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`
        return parseDateTime(text) === `${instant.toISOString().slice(0, -1)}000Z`
      },
    ),
    { numRuns: 1_000 },
  )
})
