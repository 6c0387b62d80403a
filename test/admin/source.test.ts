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
