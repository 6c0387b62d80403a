import fc from 'fast-check'
import t from 'tap'
import { parseBigInts, parseExact, stringifyExact, withBigInts } from '../../src/schema/exact-json.js'
import { parseJsonBody } from '../../src/schema/json-body.js'

const NUMBERS = [
  '0',
  '-0',
  '0.0',
  '-0.0',
  '1',
  '1.0',
  '-1.50',
  '1e2',
  '1E+2',
  '1e-7',
  '1e21',
  '1e400',
  '-1e400',
  '1e-400',
  '0.1',
  '9007199254740991',
  '9007199254740993',
  '12345678901234567',
  '-12345678901234567890123',
  '3.14159265358979323846',
] // prettier-ignore

t.test('a number is written as it was read, and is otherwise what JSON.parse makes of it', t => {
  for (const number of NUMBERS) {
    for (const text of [`{"a":${number}}`, `[${number},{"b":[${number}]}]`, `{"1":${number},"x y":[0,${number}]}`]) {
      const value = parseExact(text)
      t.strictSame(value, JSON.parse(text), text)
      t.equal(stringifyExact(value), text)
    }
    t.equal(parseExact(number), Number(number), 'a number alone')
  }
  t.equal(stringifyExact(parseExact('{"a":[1.0,"\\u0000"]}'), 2), '{\n  "a": [\n    1.0,\n    "\\u0000"\n  ]\n}')
  t.end()
})

t.test('what is not JSON is refused, also where a string in the place of a number would make JSON of it', t => {
  for (const text of [
    '{12345678901234567:1}',
    '{1.0 :1}',
    '[1.0"a"]',
    '["a"1.0]',
    '[01.0]',
    '[1.]',
    '[-]',
    '[1.0 2.0]',
    '[.5]',
    '{"a":1.0',
    '1.0.0',
    '[1e]',
    '1.0e',
    '-',
  ]) {
    t.throws(() => parseExact(text), SyntaxError, text)
  }
  t.end()
})

t.test('a changed value is written as it is now', t => {
  const value = parseExact('{"a":1.0,"b":[1.0]}') as { a: number; b: number[] }
  value.a = 2
  value.b.push(3)
  t.equal(stringifyExact(value), '{"a":2,"b":[1.0,3]}')
  t.end()
})

t.test('one number in several writings, in every form that remembers them', t => {
  const writings = ['1', '1.0', '1.00', '1e0', '-0', '0', '0.0']
  const keyed = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}":${writings[i % writings.length]}`)
  for (const text of [
    '[1,1.0]',
    '[1.0,1.0,2]',
    '[[1.0],[1.00],[1.0,1.00],[1]]',
    '{"a":1,"b":1.0}',
    '{"a":1.0,"b":1.0,"c":2}',
    '{"1.0":2.0,"2.0":1.0}',
    `[${writings}]`,
    `{${keyed(8)}}`,
    `{${keyed(40)}}`,
    '{"__proto__":{"n":1.0},"n":1}',
    `[${Array.from({ length: 5_000 }, (_, i) => `${i}.0,[${i % 7}.50],"ж${i}"`)}]`,
  ]) {
    const value = parseExact(text)
    t.strictSame(value, JSON.parse(text), text.slice(0, 80))
    t.equal(stringifyExact(value), text)
  }
  t.end()
})

t.test('of equal keys the last counts, with the writing of its own numbers', t => {
  const value = parseExact('{"a":{"n":12345678901234567},"a":{"n":12345678901234568},"b":[1.0],"b":[1]}')
  t.equal(stringifyExact(value), '{"a":{"n":12345678901234568},"b":[1]}')
  t.end()
})

t.test('texts that look like numbers stay texts; a BigInt stands for integers that no double holds', t => {
  const text = '{"a":"12345678901234567","b":12345678901234567,"c":1.0,"d":1e20}'
  t.equal(stringifyExact(parseExact(text)), text)
  t.strictSame(withBigInts(parseExact(text)), { a: '12345678901234567', b: 12345678901234567n, c: 1, d: 1e20 })
  t.strictSame(parseBigInts(text), { a: '12345678901234567', b: 12345678901234567n, c: 1, d: 1e20 })
  t.end()
})

const token = fc.oneof(
  fc.constantFrom(...NUMBERS),
  fc.bigInt().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(number => JSON.stringify(number)),
)
const scalar = fc.oneof(
  token,
  fc.string().map(text => JSON.stringify(text)),
  fc.constantFrom('true', 'false', 'null'),
)
const { json } = fc.letrec<{ json: string }>(tie => ({
  json: fc.oneof(
    { maxDepth: 4 },
    scalar,
    fc.array(tie('json'), { maxLength: 4 }).map(items => `[${items.join(',')}]`),
    fc
      .uniqueArray(
        fc.tuple(
          fc.string().map(key => `k${key}`),
          tie('json'),
        ),
        { maxLength: 4, selector: ([key]) => key },
      )
      .map(members => `{${members.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}`),
  ),
}))

t.test('any JSON comes back as it was, also where the scan of a body saw plain numbers', t => {
  const bounds = { depthMax: 100, nodesMax: 100_000, keyBytesMax: 1_000 }
  fc.assert(
    fc.property(json, document => {
      const text = `[${document}]`
      const body = parseJsonBody(Buffer.from(text), bounds)
      if (body.kind !== 'value') return false
      t.strictSame(body.value, JSON.parse(text))
      return stringifyExact(body.value) === text && stringifyExact(parseExact(text)) === text
    }),
    { numRuns: 2_000 },
  )
  t.end()
})
