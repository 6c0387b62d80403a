import fc from 'fast-check'
import t from 'tap'
import { parse } from 'yaml'
import { PersonaSnapshot, PersonaUpsertRequest } from '../../src/persona/schema.js'
import { definitionTextIn } from '../../src/tool/definition-text.js'
import { CustomToolUpdate, ToolSnapshot } from '../../src/tool/schema.js'
import { boundFaults, collectFaults, faultsOfMasked, unknownFields } from '../../src/validation/faults.js'
import { parseJsonBody, sourceOf } from '../../src/validation/json-body.js'
import { type JsonBounds, JsonRefused, scanJson } from '../../src/validation/json-scanner.js'
import { parseId } from '../../src/validation/parameters.js'
import { parseDateTime } from '../../src/validation/vocabulary.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'

/** The fields in the order of the interface document, which clients of Onyx send and read. */
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

/** Generates values near the limits of every rule, so that most random bodies are wrong in one place only. */
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

/** Generates bodies that are right except for a few fields, and arbitrary values. */
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
  t.test(`${schema.$id}: faults come in the declared order, a mask reports its own`, async t => {
    const fields = Object.keys(schema.properties)
    const required: readonly string[] = schema.required ?? []
    const verdicts = { yes: 0, no: 0 }
    fc.assert(
      fc.property(bodyOf(fields, right), fc.subarray(fields), (body, mask) => {
        const faults = collectFaults(schema, body, [])
        verdicts[faults.length === 0 ? 'yes' : 'no']++
        const places = faults.map(({ loc }) => (loc.length > 0 ? fields.indexOf(String(loc[0])) : 0))
        const isOrdered = places.every((here, index) => here >= (places[index - 1] ?? 0))
        const masked = faultsOfMasked(schema, body, mask).map(each => ({ ...each, loc: each.loc.slice(1) }))
        const ofMask = faults.filter(({ loc }) => mask.includes(String(loc[0])))
        const beyond = masked.filter(
          ({ loc, type }) => type !== 'missing' || loc.length > 1 || required.includes(String(loc[0])),
        )
        const isMasked =
          masked[0]?.loc.length === 0
            ? masked.length === 1
            : masked.every(({ loc }) => mask.includes(String(loc[0]))) &&
              JSON.stringify(beyond) === JSON.stringify(ofMask)
        return isOrdered && isMasked
      }),
      { numRuns: 2_000 },
    )
    t.ok(verdicts.yes > 100 && verdicts.no > 100, JSON.stringify(verdicts))
    t.strictSame(unknownFields(schema, JSON.parse('{"zz":1,"name":2,"constructor":3,"toString":4}')), [
      ['zz'],
      ['constructor'],
      ['toString'],
    ])
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

t.test('422 int_parsing for an id that is no plain decimal integer; none for one that no row has', async t => {
  for (const text of ['abc', '1e3', '1.5', '1.0', 'true', '', ' 1', '+1', '0x1', '１', '1_0', '-', '1\n'])
    t.match(parseId(text, ['path', 'id']), { faults: [{ loc: ['path', 'id'], type: 'int_parsing' }] }, text)
  for (const text of ['0', '-1', '-0', '2147483648', '9'.repeat(400)])
    t.strictSame(parseId(text, []), { value: undefined })
  t.strictSame(parseId('2147483647', []), { value: 2147483647 })
})

t.test('a date with any offset is the instant in UTC, with microseconds', async () => {
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

const WIDE: JsonBounds = { depthMax: 256, nodesMax: 1_000_000 }
const parsed = (text: string | Uint8Array) => parseJsonBody(Buffer.from(text), WIDE)
const refusal = (text: string | Uint8Array) => {
  const body = parsed(text)
  return body.kind === 'value' ? undefined : body.faults
}

/** Returns the type of the fault if a text exceeds a limit; undefined otherwise. */
const beyond = (text: string, bounds: Partial<JsonBounds>) => {
  const body = parseJsonBody(Buffer.from(text), { ...WIDE, ...bounds })
  const type = body.kind === 'refused' ? body.faults[0]?.type : undefined
  return type === 'json_invalid' ? undefined : type
}

t.test('422 beyond a bound: depth, values', async t => {
  t.equal(beyond('[[[]]]', { depthMax: 3 }), undefined, 'the text itself is depth 1')
  for (const text of ['[[[[', '{"a":[{"b":[]}]}']) t.equal(beyond(text, { depthMax: 3 }), 'json_too_deep', text)
  t.equal(beyond('[[],[],[]]', { depthMax: 2 }), undefined)
  t.equal(beyond(`["${'['.repeat(100)}\\"[["]`, { depthMax: 1 }), undefined, 'a text holds no lists')
  for (const [text, count] of [
    ['1', 0],
    ['[1,2,3]', 3],
    ['{"a":"b","c":{}}', 6],
    ['["a,b\\",[{"]', 2],
  ] as const) {
    t.equal(beyond(text, { nodesMax: count }), undefined, text)
    if (count > 0) t.equal(beyond(text, { nodesMax: count - 1 }), 'json_too_many_nodes', text)
  }
})

t.test('422 json_invalid at the offset of the mistake; missing for an empty body and null; else a value', async t => {
  const written: [text: string, offset: number][] =
    parse(String.raw`[[' ', 1], ['{', 1], ['{"name"', 7], ['{"name":', 8],
    ['{"name":"x"', 11], ['{"name":"x",}', 12], ['{} {}', 3], ["{'name':'x'}", 1], ['{"a":01}', 6], ['{"a":1.}', 7],
    ["{\"a\":\"\n\"}", 6], ['{"a":"\x"}', 7], ['[1,]', 3], ['{"a":"\u12g4"}', 10], ['[1}', 2], [']', 0], [NaN, 0],
    ['{"a":-Infinity}', 6], [nul, 0], ['"', 1], ["\u00a0{}", 0]]`)
  const cases: [text: string | Uint8Array, offset: number][] = [
    ...written,
    ['['.repeat(200), 200],
    [Uint8Array.of(0x22, 0x61, 0xff, 0x22), 2],
    [Uint8Array.of(0x22, 0xef, 0xbf, 0xbd, 0xff, 0x22), 2],
    [Uint8Array.of(0x22, 0xed, 0xa0, 0x80, 0x22), 1],
    [Uint8Array.of(0xff, 0xfe, 0x7b, 0, 0x7d, 0), 0],
  ]
  const fault = { msg: /^JSON decode error: ./, type: 'json_invalid' }
  for (const [text, offset] of cases)
    t.match(refusal(text), [{ ...fault, loc: ['body', offset] }], String(text).slice(0, 20))
  for (const [text, msg] of Object.entries({
    '{"a": 1,\n "b" 2}': "JSON decode error: Expected ':' after property name at line 2, column 6",
    '{\n"a": [1,]}': "JSON decode error: Expected a value and not ']' at line 2, column 9",
    '{"a": ': 'JSON decode error: Unexpected end of JSON input at line 1, column 7',
  }))
    t.match(refusal(text), [{ msg }])
  for (const text of ['', 'null', ' null\n']) {
    t.strictSame(parsed(text), { kind: 'absent', faults: [{ loc: ['body'], msg: 'Field required', type: 'missing' }] })
  }
  t.strictSame(parsed('\ufeff{"a":1,"a":1e400}'), { kind: 'value', value: { a: Infinity }, forbidden: [] })
  t.strictSame(parsed('false'), { kind: 'value', value: false, forbidden: [] })
})

t.test('the places of forbidden keys, however they are written', async t => {
  for (const [text, ...forbidden] of [
    ['{"__proto__":1}', ['__proto__']],
    ['{"a":[0,{"\\u005f_pr\\u006Fto__" : {}}]}', ['a', 1, '__proto__']],
    ['{"constructor":{"prototype":1}}', ['constructor', 'prototype']],
    ['{"a":{"constr\\u0075ctor":{"\\u0070rototype":1}}}', ['a', 'constructor', 'prototype']],
    ['{"constructor":1,"prototype":2}'],
    ['{"a":"__proto__"}'],
    ['{"a":"\\"__proto__\\":1"}'],
    ['{"constructor":[{"prototype":1}]}'],
  ] as [string, ...unknown[]][]) {
    const body = parsed(text)
    t.strictSame(body.kind === 'value' && body.forbidden, forbidden, text)
  }
})

t.test('no body takes much stack, however it is nested, and no bytes make it throw', async t => {
  for (const text of [
    '['.repeat(2_000_000) + ']'.repeat(2_000_000),
    `${'{"__proto__":'.repeat(300_000)}1${'}'.repeat(300_000)}`,
    `${'['.repeat(200)}${'{"prototype":"\\u0000"},'.repeat(150_000)}1${']'.repeat(200)}`,
    ' '.repeat(4_000_000),
    `"${'a'.repeat(4_000_000)}`,
    '1'.repeat(4_000_000),
  ])
    t.ok(parseJsonBody(Buffer.from(text), { ...WIDE, depthMax: 256 }).kind, text.slice(0, 20))
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), bytes => parsed(bytes).kind !== undefined),
    { numRuns: 2_000 },
  )
})

const scanned = (text: string) => {
  try {
    return scanJson(text, WIDE, 'definition')
  } catch (error) {
    if (error instanceof JsonRefused) return error
    throw error
  }
}

t.test('json_invalid where JSON.parse throws and nowhere else, where the text before can go on', async () => {
  const json = fc.json({ maxDepth: 4 })
  const broken = fc
    .tuple(json, fc.nat(), fc.nat(3), fc.constantFrom('', '{', ']', ',', '"', '\\', '0', '-', 'e', '.', '\n', 'u12'))
    .map(([text, place, cut, extra]) => {
      const at = place % (text.length + 1)
      return text.slice(0, at) + extra + text.slice(at + cut)
    })
  const isJson = (text: string) => {
    try {
      JSON.parse(text)
      return true
    } catch {
      return false
    }
  }
  fc.assert(
    fc.property(fc.oneof(broken, fc.string(), json), text => {
      const found = scanned(text)
      if (!(found instanceof JsonRefused)) return isJson(text)
      const before = scanned(text.slice(0, found.offset))
      return !isJson(text) && (!(before instanceof JsonRefused) || before.offset >= found.offset - 5)
    }),
    { numRuns: 5_000 },
  )
})

t.test('the text of a definition: as it was sent, without whitespace, and the places of repeated keys', async t => {
  const textOf = (text: string) => {
    const body = parsed(text)
    if (body.kind !== 'value') return undefined
    const source = sourceOf(body.value as object)
    return { text: definitionTextIn(source.text), repeated: source.repeated }
  }
  const definition =
    '{"a" : 1.0,\t"b":[ 0 , {"c":"{ \\"x\\": 1 }","c" : 1e400, "\\u0063":"\\u00e9\\/\\ud83d\\ude00\\ud800"}]\r\n} '
  t.strictSame(textOf(`{"x":{"a":1,"a":2},"definition":1,"definition": ${definition},"y":[1,2]}`), {
    text: '{"a":1.0,"b":[0,{"c":"{ \\"x\\": 1 }","c":1e400,"c":"é/😀\\ud800"}]}',
    repeated: [
      ['definition', 'b', 1, 'c'],
      ['definition', 'b', 1, 'c'],
    ],
  })
  t.strictSame(textOf('{"definition":{"a":{"b":1},"b":[{"a":1},{"a":"a:b"}]}}')?.repeated, [])
  t.equal(textOf('{"a":{"definition":{}}}')?.text, '', 'only the outermost object has the definition')
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(2), (value, indent) => {
      const text = JSON.stringify({ definition: value, after: 1 }, null, indent)
      return textOf(text)?.text === JSON.stringify(value)
    }),
    { numRuns: 500 },
  )
})
