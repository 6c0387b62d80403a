import fc from 'fast-check'
import t from 'tap'
import { JsonScan } from '../../src/schema/json-scan.js'

const faultIn = (
  text: string,
  { depthMax = 1_000, nodesMax = 1_000_000, keyBytesMax = 1_000 } = {},
  pieceBytes = 1_000_000,
) => {
  const scan = new JsonScan({ depthMax, nodesMax, keyBytesMax })
  const bytes = Buffer.from(text)
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const beyond = scan.push(bytes.subarray(at, at + pieceBytes))
    if (beyond !== undefined) return beyond
  }
  return undefined
}
const scanned = (...given: Parameters<typeof faultIn>) => faultIn(...given)?.type

t.test('json_too_deep past the limit, the text itself being depth 1', async t => {
  t.equal(scanned('[[[]]]', { depthMax: 3 }), undefined)
  t.equal(scanned('[[[[', { depthMax: 3 }), 'json_too_deep')
  t.equal(scanned('{"a":[{"b":[]}]}', { depthMax: 3 }), 'json_too_deep')
  t.equal(scanned('[[],[],[]]', { depthMax: 2 }), undefined)
  t.equal(scanned(`["${'['.repeat(100)}\\"[["]`, { depthMax: 1 }), undefined, 'a text holds no lists')
})

t.test('json_too_many_nodes: objects, lists, texts, keys and commas', async t => {
  const countOf = (text: string) => {
    for (let nodesMax = 0; ; nodesMax++) if (scanned(text, { nodesMax }) === undefined) return nodesMax
  }
  t.equal(countOf('1'), 0)
  t.equal(countOf('[1,2,3]'), 3)
  t.equal(countOf('{"a":"b","c":{}}'), 6)
  t.equal(countOf('["a,b\\",[{"]'), 2)
})

t.test('json_key_too_long: more bytes than allowed between the quotes of a key, not of a text', async t => {
  const keyOf = (bytes: number) => `{"a":["${'x'.repeat(50)}"],"${'k'.repeat(bytes)}" \n: 1}`
  t.equal(faultIn(keyOf(10), { keyBytesMax: 10 }), undefined)
  t.strictSame(faultIn(keyOf(11), { keyBytesMax: 10 }), {
    loc: ['body'],
    msg: 'Input holds a key of more than 10 bytes, at byte 61',
    type: 'json_key_too_long',
  })
  t.equal(scanned('{"\\"\\"\\"":1}', { keyBytesMax: 5 }), 'json_key_too_long', 'a quote that is escaped ends nothing')
})

t.test('json_number_too_long: more than 4,096 digits', async t => {
  t.equal(faultIn(`[1,${'9'.repeat(4_096)},-${'9'.repeat(4_000)}.${'9'.repeat(96)},"${'9'.repeat(5_000)}"]`), undefined)
  t.strictSame(faultIn(`[1,${'9'.repeat(4_097)}]`), {
    loc: ['body'],
    msg: 'Input holds a number of more than 4096 digits, at byte 3',
    type: 'json_number_too_long',
  })
  t.equal(scanned(`-0.${'0'.repeat(4_000)}1e${'9'.repeat(100)}`), 'json_number_too_long')
})

t.test('wherever the bytes are cut, the answer is the same', async () => {
  fc.assert(
    fc.property(fc.json(), fc.integer({ min: 1, max: 7 }), fc.integer({ min: 0, max: 20 }), (text, pieceBytes, max) => {
      const bounds = { depthMax: 1 + (max % 4), nodesMax: max, keyBytesMax: max % 7 }
      const whole = scanned(text, bounds)
      return (scanned(text, bounds, pieceBytes) === undefined) === (whole === undefined)
    }),
  )
})

t.test('counts as many lists and objects as there are, none for what stands in texts', async () => {
  const containers = (value: unknown): number =>
    typeof value !== 'object' || value === null
      ? 0
      : 1 + Object.values(value).reduce((sum: number, inner) => sum + containers(inner), 0)
  const texts = (value: unknown): number => {
    if (typeof value === 'string') return 1
    if (typeof value !== 'object' || value === null) return 0
    const keys = Array.isArray(value) ? 0 : Object.keys(value).length
    return keys + Object.values(value).reduce((sum: number, inner) => sum + texts(inner), 0)
  }
  const commas = (value: unknown): number => {
    if (typeof value !== 'object' || value === null) return 0
    const values = Object.values(value)
    return Math.max(0, values.length - 1) + values.reduce((sum: number, inner) => sum + commas(inner), 0)
  }
  fc.assert(
    fc.property(fc.jsonValue(), value => {
      const text = JSON.stringify(value)
      const nodesMax = containers(value) + texts(value) + commas(value)
      return (
        scanned(text, { nodesMax }) === undefined &&
        (nodesMax === 0 || scanned(text, { nodesMax: nodesMax - 1 }) !== undefined)
      )
    }),
  )
})
