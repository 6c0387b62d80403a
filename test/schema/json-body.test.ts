import fc from 'fast-check'
import t from 'tap'
import { type JsonBounds, parseJsonBody } from '../../src/schema/json-body.js'
import { offsetOfSyntaxError } from '../../src/schema/json-syntax.js'

const WIDE: JsonBounds = { depthMax: 200_000, nodesMax: 1_000_000, keyBytesMax: 1_000_000 }
const parsed = (text: string | Uint8Array) => parseJsonBody(Buffer.from(text), WIDE)
const refusal = (text: string | Uint8Array) => {
  const body = parsed(text)
  return body.kind === 'value' ? undefined : body.faults
}

const boundFault = (text: string, bounds: Partial<JsonBounds>) => {
  const body = parseJsonBody(Buffer.from(text), { ...WIDE, ...bounds })
  return body.kind === 'refused' ? body.faults[0] : undefined
}
const beyond = (text: string, bounds: Partial<JsonBounds>) => {
  const type = boundFault(text, bounds)?.type
  return type === 'json_invalid' ? undefined : type
}

t.test('json_too_deep past the limit, the text itself being depth 1', async t => {
  t.equal(beyond('[[[]]]', { depthMax: 3 }), undefined)
  t.equal(beyond('[[[[', { depthMax: 3 }), 'json_too_deep')
  t.equal(beyond('{"a":[{"b":[]}]}', { depthMax: 3 }), 'json_too_deep')
  t.equal(beyond('[[],[],[]]', { depthMax: 2 }), undefined)
  t.equal(beyond(`["${'['.repeat(100)}\\"[["]`, { depthMax: 1 }), undefined, 'a text holds no lists')
})

t.test('json_too_many_nodes: objects, lists, texts, keys and commas', async t => {
  const countOf = (text: string) => {
    for (let nodesMax = 0; ; nodesMax++) if (beyond(text, { nodesMax }) === undefined) return nodesMax
  }
  t.equal(countOf('1'), 0)
  t.equal(countOf('[1,2,3]'), 3)
  t.equal(countOf('{"a":"b","c":{}}'), 6)
  t.equal(countOf('["a,b\\",[{"]'), 2)
})

t.test('json_key_too_long: more bytes than allowed between the quotes of a key, not of a text', async t => {
  const keyOf = (bytes: number) => `{"a":["${'x'.repeat(50)}"],"${'k'.repeat(bytes)}" \n: 1}`
  t.equal(boundFault(keyOf(10), { keyBytesMax: 10 }), undefined)
  t.strictSame(boundFault(keyOf(11), { keyBytesMax: 10 }), {
    loc: ['body'],
    msg: 'Input holds a key of more than 10 bytes, at byte 61',
    type: 'json_key_too_long',
  })
  t.equal(beyond('{"\\"\\"\\"":1}', { keyBytesMax: 5 }), 'json_key_too_long', 'a quote that is escaped ends nothing')
})

t.test('json_number_too_long: more than 4,096 digits', async t => {
  t.equal(
    boundFault(`[1,${'9'.repeat(4_096)},-${'9'.repeat(4_000)}.${'9'.repeat(96)},"${'9'.repeat(5_000)}"]`, {}),
    undefined,
  )
  t.strictSame(boundFault(`[1,${'9'.repeat(4_097)}]`, {}), {
    loc: ['body'],
    msg: 'Input holds a number of more than 4096 digits, at byte 3',
    type: 'json_number_too_long',
  })
  t.equal(beyond(`-0.${'0'.repeat(4_000)}1e${'9'.repeat(100)}`, {}), 'json_number_too_long')
})

t.test('422 json_invalid at the offset of the mistake', async t => {
  const cases: [string, number][] = [
    [' ', 1],
    ['{', 1],
    ['{"name"', 7],
    ['{"name":', 8],
    ['{"name":"x"', 11],
    ['{"name":"x",}', 12],
    ['{} {}', 3],
    ["{'name':'x'}", 1],
    ['{"a":01}', 6],
    ['{"a":1.}', 6],
    ['{"a":"\n"}', 6],
    ['{"a":"\\x"}', 6],
    ['{"a":"\\u12g4"}', 6],
    ['[1,]', 3],
    ['[1}', 2],
    [']', 0],
    ['NaN', 0],
    ['{"a":-Infinity}', 5],
    ['nul', 0],
    ['"', 1],
    ['\u00a0{}', 0],
    ['['.repeat(100_000), 100_000],
  ]
  for (const [text, offset] of cases) {
    t.strictSame(
      refusal(text),
      [{ loc: ['body', offset], msg: 'JSON decode error', type: 'json_invalid' }],
      text.slice(0, 20),
    )
  }
})

t.test('422 json_invalid for bytes that are no UTF-8', async t => {
  t.match(refusal(Uint8Array.of(0x22, 0x61, 0xff, 0x22)), [{ loc: ['body', 2], type: 'json_invalid' }])
  t.match(refusal(Uint8Array.of(0x22, 0xed, 0xa0, 0x80, 0x22)), [{ loc: ['body', 1], type: 'json_invalid' }])
  t.match(refusal(Uint8Array.of(0xff, 0xfe, 0x7b, 0, 0x7d, 0)), [{ loc: ['body', 0], type: 'json_invalid' }])
})

t.test('422 missing for an empty body and null', async t => {
  for (const text of ['', 'null', ' null\n']) {
    t.strictSame(parsed(text), { kind: 'absent', faults: [{ loc: ['body'], msg: 'Field required', type: 'missing' }] })
  }
})

t.test('a value for everything else, a byte order mark skipped, the last of duplicate keys kept', async t => {
  t.strictSame(parsed('\ufeff{"a":1,"a":1e400}'), { kind: 'value', value: { a: Infinity }, forbidden: [] })
  t.strictSame(parsed('false'), { kind: 'value', value: false, forbidden: [] })
})

t.test('the places of forbidden keys, however it is written', async t => {
  const cases: [string, unknown[]][] = [
    ['{"__proto__":1}', ['__proto__']],
    ['{"a":[0,{"\\u005f_pr\\u006Fto__" : {}}]}', ['a', 1, '__proto__']],
    ['{"constructor":{"prototype":1}}', ['constructor', 'prototype']],
    ['{"a":{"constr\\u0075ctor":{"\\u0070rototype":1}}}', ['a', 'constructor', 'prototype']],
  ]
  for (const [text, loc] of cases) {
    const body = parsed(text)
    t.strictSame(body.kind === 'value' && body.forbidden, [loc], text)
  }
  for (const text of [
    '{"constructor":1,"prototype":2}',
    '{"a":"__proto__"}',
    '{"a":"\\"__proto__\\":1"}',
    '{"constructor":[{"prototype":1}]}',
  ]) {
    const body = parsed(text)
    t.strictSame(body.kind === 'value' && body.forbidden, [], text)
  }
})

t.test('no body takes much stack, however it is nested', async t => {
  const bodies = [
    '['.repeat(2_000_000) + ']'.repeat(2_000_000),
    `${'{"__proto__":'.repeat(300_000)}1${'}'.repeat(300_000)}`,
    `${'{"prototype":'.repeat(300_000)}1${'}'.repeat(300_000)}`,
    `${'['.repeat(200)}${'{"prototype":"\\u0000"},'.repeat(150_000)}1${']'.repeat(200)}`,
    ' '.repeat(4_000_000),
    `"${'a'.repeat(4_000_000)}`,
    '1'.repeat(4_000_000),
  ]
  for (const text of bodies) {
    t.ok(parseJsonBody(Buffer.from(text), { ...WIDE, depthMax: 256 }).kind, text.slice(0, 20))
  }
})

t.test('the syntax check agrees with JSON.parse on every text', async t => {
  const json = fc.json({ maxDepth: 4 })
  const broken = fc
    .tuple(json, fc.nat(), fc.nat(3), fc.constantFrom('', '{', ']', ',', '"', '\\', '0', '-', 'e', '.', '\n', 'u12'))
    .map(
      ([text, at, cut, extra]) =>
        text.slice(0, at % (text.length + 1)) + extra + text.slice((at % (text.length + 1)) + cut),
    )
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.oneof(json, broken, fc.string()), text => {
        const offset = offsetOfSyntaxError(text)
        return parses(text) ? offset === -1 : offset >= 0 && offset <= text.length
      }),
      { numRuns: 5000 },
    ),
  )
})

t.test('no bytes make it throw', async () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), bytes => parseJsonBody(bytes, WIDE).kind !== undefined),
    { numRuns: 3000 },
  )
})

function parses(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
