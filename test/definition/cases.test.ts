import t from 'tap'
import { checkDefinition, toFunctions } from '../../src/definition/index.js'
import { matchesGolden } from '../golden.js'
import { compile } from './ajv.js'
import { MADE } from './made.js'

t.test('made documents: exact methods, or exact loc and type of every fault in order', async t => {
  for (const { name, definition, expect } of MADE) {
    const before = JSON.stringify(definition)
    const check = checkDefinition(definition)
    const found = check.ok
      ? { ok: true, methods: check.methods.map(each => [each.name, each.method, each.path]) }
      : { ok: false, detail: check.faults.map(({ loc, type }) => ({ loc, type })) }
    t.strictSame(found, expect, name)
    for (const method of check.ok ? check.methods : [])
      t.strictSame(Object.keys(method), ['name', 'summary', 'path', 'method', 'spec'], name)
    t.equal(JSON.stringify(definition), before, `${name} is not changed`)
  }
})

t.test('made documents: whole functions, each listed under the first document that has it', async t => {
  const known = new Set<string>()
  const lines = MADE.filter(({ expect }) => expect.ok).flatMap(({ name, definition }) => {
    const functions = toFunctions(definition).map(view => JSON.stringify(view))
    const fresh = functions.filter(text => !known.has(text))
    for (const text of fresh) t.doesNotThrow(() => compile(JSON.parse(text)), name)
    for (const text of fresh) known.add(text)
    return [`# ${name}: ${functions.length}`, ...fresh]
  })
  matchesGolden(t, 'test/golden/made-functions.txt', `${lines.join('\n')}\n`)
})
