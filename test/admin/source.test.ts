import t from 'tap'
import { parseSource } from '../../src/admin/source.js'

t.test('pasted JSON whose closing brace stands at the column of its key is read: nothing of it is lost', async t => {
  const { value } = parseSource('tools:\n  - name: x\n    definition: {\n      "openapi": "3.1.0"\n    }\n')
  t.strictSame(value, { tools: [{ name: 'x', definition: { openapi: '3.1.0' } }] })
})

t.test('what YAML would leave out with a warning is a fault, and is not quoted', async t => {
  for (const [text, fault] of [
    ['value: !s3cr3t word', 'line 1: Unresolved tag'],
    ['%s3cr3t word\n---\na: 1', 'line 1: Unusable directive'],
    ['%YAML 7.s3cr3t\n---\na: 1', 'line 1: Unusable directive'],
  ] as const) {
    t.throws(() => parseSource(text), { message: `the text is neither JSON nor YAML:\n  ${fault}` }, text)
  }
})

t.test('a byte order mark is passed over; what begins as JSON must be JSON, and the fault has a place', async t => {
  t.strictSame(parseSource('\uFEFF{"a": 1}').value, { a: 1 })
  t.strictSame(parseSource('\uFEFFa: 1\n').value, { a: 1 })
  t.strictSame(parseSource('{a: 1, }').value, { a: 1 }, 'YAML may have a comma there')
  t.throws(() => parseSource('{\n  "a": 1,\n}'), {
    message: /line 3: it begins as JSON, and is not JSON from column 1 on/,
  })
})

t.test('merge keys of YAML take over what the map has not itself', async t => {
  const text =
    'x-p: &p { a: 1, b: { c: 2 } }\nx-q: &q { a: 3, d: 1.10 }\none:\n  <<: *p\n  a: 0\ntwo:\n  <<: [*q, *p]\n'
  const { value, lineOf } = parseSource(text)
  t.match(value, { one: { a: 0, b: { c: 2 } }, two: { a: 3, b: { c: 2 }, d: 1.1 } })
  t.equal(lineOf(['one', 'b', 'c']), 3)
  t.throws(() => parseSource('a: { <<: 1 }'), { message: 'a merge key (<<) takes a map, or a list of maps' })
  t.throws(() => parseSource('a: &a { <<: *a }'), { message: /lead into themselves/ })
  t.throws(() => parseSource('a: &a { b: *a }'), { message: /leads into itself/ })
  const bomb = ['l0: &l0 { a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h: 8, i: 9 }']
  for (let i = 1; i < 9; i++)
    bomb.push(
      `l${i}: &l${i} { <<: [${Array(9)
        .fill(`*l${i - 1}`)
        .join(', ')}] }`,
    )
  t.throws(() => parseSource(bomb.join('\n')), { message: /copy too much/ })
})

t.test('a key that stands twice is a fault at its line, also among thousands', async t => {
  const keys = Array.from({ length: 20_000 }, (_, i) => `k${i}: 1\n`).join('')
  t.throws(() => parseSource(`${keys}k7: 2\n`), { message: /line 20001: Map keys must be unique/ })
})

t.test('an alias is the last anchor of its name before it; how many there may be is bounded', async t => {
  t.strictSame(parseSource('- &a 1\n- *a\n- &a 2\n- [*a]\n').value, [1, 1, 2, [2]])
  const aliases = (count: number) => Array.from({ length: count }, (_, i) => `- &a${i} v\n- *a${i}\n`).join('')
  t.equal((parseSource(aliases(5_000)).value as unknown[]).length, 10_000)
  t.throws(() => parseSource(aliases(5_001)), { message: 'the text has more than 5000 YAML aliases (*name)' })
})
