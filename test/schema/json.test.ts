import fc from 'fast-check'
import t from 'tap'
import { parseBigInts, parseExact, stringifyExact, withBigInts } from '../../src/schema/exact-json.js'
import { type JsonBounds, parseJsonBody } from '../../src/schema/json-body.js'
import { offsetOfSyntaxError } from '../../src/schema/json-syntax.js'

const WIDE: JsonBounds = { depthMax: 200_000, nodesMax: 1_000_000, keyBytesMax: 1_000_000 }
const parsed = (text: string | Uint8Array) => parseJsonBody(Buffer.from(text), WIDE)
const refusal = (text: string | Uint8Array) => {
  const body = parsed(text)
  return body.kind === 'value' ? undefined : body.faults
}

/** The fault of a bound that a text is beyond, and its type. */
const boundFault = (text: string, bounds: Partial<JsonBounds>) => {
  const body = parseJsonBody(Buffer.from(text), { ...WIDE, ...bounds })
  return body.kind === 'refused' ? body.faults[0] : undefined
}
const beyond = (text: string, bounds: Partial<JsonBounds>) => {
  const type = boundFault(text, bounds)?.type
  return type === 'json_invalid' ? undefined : type
}

t.test('bounds: depth, values, bytes of a key, digits of a number', async t => {
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
  const keyOf = (bytes: number) => `{"a":["${'x'.repeat(50)}"],"${'k'.repeat(bytes)}" \n: 1}`
  t.equal(boundFault(keyOf(10), { keyBytesMax: 10 }), undefined)
  t.strictSame(boundFault(keyOf(11), { keyBytesMax: 10 }), {
    loc: ['body'],
    msg: 'Input holds a key of more than 10 bytes, at byte 61',
    type: 'json_key_too_long',
  })
  t.equal(beyond('{"\\"\\"\\"":1}', { keyBytesMax: 5 }), 'json_key_too_long', 'a quote that is escaped ends nothing')
  const nines = (count: number) => '9'.repeat(count)
  t.equal(boundFault(`[1,${nines(4_096)},-${nines(4_000)}.${nines(96)},"${nines(5_000)}"]`, {}), undefined)
  t.strictSame(boundFault(`[1,${nines(4_097)}]`, {}), {
    loc: ['body'],
    msg: 'Input holds a number of more than 4096 digits, at byte 3',
    type: 'json_number_too_long',
  })
  t.equal(beyond(`-0.${'0'.repeat(4_000)}1e${nines(100)}`, {}), 'json_number_too_long')
})

t.test('422 json_invalid at the offset of the mistake; missing for an empty body and null; else a value', async t => {
  const cases: [string | Uint8Array, number][] = [
    ...Object.entries({
      ' ': 1,
      '{': 1,
      '{"name"': 7,
      '{"name":': 8,
      '{"name":"x"': 11,
      '{"name":"x",}': 12,
      '{} {}': 3,
    }),
    ...Object.entries({
      "{'name':'x'}": 1,
      '{"a":01}': 6,
      '{"a":1.}': 6,
      '{"a":"\n"}': 6,
      '{"a":"\\x"}': 6,
      '[1,]': 3,
    }),
    ...Object.entries({
      '{"a":"\\u12g4"}': 6,
      '[1}': 2,
      ']': 0,
      NaN: 0,
      '{"a":-Infinity}': 5,
      nul: 0,
      '"': 1,
      '\u00a0{}': 0,
    }),
    ['['.repeat(100_000), 100_000],
    [Uint8Array.of(0x22, 0x61, 0xff, 0x22), 2],
    [Uint8Array.of(0x22, 0xed, 0xa0, 0x80, 0x22), 1],
    [Uint8Array.of(0xff, 0xfe, 0x7b, 0, 0x7d, 0), 0],
  ]
  for (const [text, offset] of cases) {
    t.strictSame(refusal(text), [{ loc: ['body', offset], msg: 'JSON decode error', type: 'json_invalid' }])
  }
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

t.test('the syntax check agrees with JSON.parse on every text', async () => {
  const json = fc.json({ maxDepth: 4 })
  const broken = fc
    .tuple(json, fc.nat(), fc.nat(3), fc.constantFrom('', '{', ']', ',', '"', '\\', '0', '-', 'e', '.', '\n', 'u12'))
    .map(([text, place, cut, extra]) => {
      const at = place % (text.length + 1)
      return text.slice(0, at) + extra + text.slice(at + cut)
    })
  const parses = (text: string) => {
    try {
      JSON.parse(text)
      return true
    } catch {
      return false
    }
  }
  fc.assert(
    fc.property(fc.oneof(json, broken, fc.string()), text => {
      const offset = offsetOfSyntaxError(text)
      return parses(text) ? offset === -1 : offset >= 0 && offset <= text.length
    }),
    { numRuns: 3_000 },
  )
})

const NUMBERS = [
  ...'0 -0 0.0 -0.0 1 1.0 -1.50 1e2 1E+2 1e-7 1e21 1e400 -1e400 1e-400 0.1 9007199254740991 9007199254740993'.split(
    ' ',
  ),
  ...['12345678901234567', '-12345678901234567890123', '3.14159265358979323846'],
]

t.test('a number is written as it was read, and is otherwise what JSON.parse makes of it', async t => {
  const keyed = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}":${NUMBERS[i % 7]}`)
  for (const text of [
    ...NUMBERS.flatMap(number => [`[${number},{"b":[${number}]}]`, `{"1":${number},"x y":[0,${number}]}`, number]),
    '[1,1.0]',
    '[[1.0],[1.00],[1.0,1.00],[1]]',
    '{"a":1.0,"b":1.0,"c":2}',
    '{"1.0":2.0,"2.0":1.0}',
    `{${keyed(40)}}`,
    '{"__proto__":{"n":1.0},"n":1}',
    `[${Array.from({ length: 5_000 }, (_, i) => `${i}.0,[${i % 7}.50],"ж${i}"`)}]`,
  ]) {
    const value = parseExact(text)
    t.strictSame(value, JSON.parse(text), text.slice(0, 80))
    if (/^[[{]/.test(text)) t.equal(stringifyExact(value), text)
  }
  t.equal(stringifyExact(parseExact('{"a":[1.0,"\\u0000"]}'), 2), '{\n  "a": [\n    1.0,\n    "\\u0000"\n  ]\n}')
  const changed = parseExact('{"a":1.0,"b":[1.0]}') as { a: number; b: number[] }
  changed.a = 2
  changed.b.push(3)
  t.equal(stringifyExact(changed), '{"a":2,"b":[1.0,3]}', 'a changed value is written as it is now')
  const twice = parseExact('{"a":{"n":12345678901234567},"a":{"n":12345678901234568},"b":[1.0],"b":[1]}')
  t.equal(stringifyExact(twice), '{"a":{"n":12345678901234568},"b":[1]}', 'of equal keys the last counts')
  const text = '{"a":"12345678901234567","b":12345678901234567,"c":1.0,"d":1e20}'
  const values = { a: '12345678901234567', b: 12345678901234567n, c: 1, d: 1e20 }
  t.strictSame([withBigInts(parseExact(text)), parseBigInts(text)], [values, values])
})

t.test('what is not JSON is refused, also where a string in the place of a number would make JSON of it', async t => {
  const texts =
    '{12345678901234567:1}|{1.0 :1}|[1.0"a"]|["a"1.0]|[01.0]|[1.]|[-]|[1.0 2.0]|[.5]|{"a":1.0|1.0.0|[1e]|1.0e|-'
  for (const text of texts.split('|')) t.throws(() => parseExact(text), SyntaxError, text)
})

const scalar = fc.oneof(
  fc.constantFrom(...NUMBERS, 'true', 'false', 'null'),
  fc.bigInt().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(number => JSON.stringify(number)),
  fc.string().map(text => JSON.stringify(text)),
)
const { json } = fc.letrec<{ json: string }>(tie => {
  const member = fc.tuple(
    fc.string().map(key => `k${key}`),
    tie('json'),
  )
  return {
    json: fc.oneof(
      { maxDepth: 4 },
      scalar,
      fc.array(tie('json'), { maxLength: 4 }).map(items => `[${items.join(',')}]`),
      fc
        .uniqueArray(member, { maxLength: 4, selector: ([key]) => key })
        .map(members => `{${members.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}`),
    ),
  }
})

t.test('any JSON comes back as it was, also where the scan of a body saw plain numbers', async t => {
  fc.assert(
    fc.property(json, document => {
      const text = `[${document}]`
      const body = parsed(text)
      if (body.kind !== 'value') return false
      t.strictSame(body.value, JSON.parse(text))
      return stringifyExact(body.value) === text && stringifyExact(parseExact(text)) === text
    }),
    { numRuns: 500 },
  )
})
