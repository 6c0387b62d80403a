import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { checkDefinition, toFunctions } from '../../src/tool/definition/index.js'

/** A document made for this check, with its exact answer. */
interface MadeCase {
  file: string
  expect:
    | { ok: true; methods: [string, string, string][] }
    | { ok: false; detail: { loc: (string | number)[]; type: string }[] }
}

/** A real document with the verdict that the rules give. */
interface RealCase {
  file: string
  recommended: { verdict: 'accept' | 'reject'; methods: number | null; types: string[] | null }
}

/** A document that was accepted before names in any script were: what it gave then, as the beginning of the SHA-256 of its JSON. */
interface AcceptedBefore {
  file: string
  methods: string
  functions: string
  /** Why its functions are others since. */
  changed?: string
}

const fixtures = fileURLToPath(new URL('../../../test/fixtures/', import.meta.url))
const shared = fileURLToPath(new URL('../../../../shared/tool-definitions/', import.meta.url))

function read(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'))
}

// The fixture files are our own: their shape is what the interfaces above say.
const made = read(`${fixtures}faults.json`) as MadeCase[]

t.test('made documents: exact methods, or exact loc and type of every fault in order', async t => {
  t.equal(made.length, 57)
  for (const { file, expect } of made) {
    const definition = read(fixtures + file)
    const before = JSON.stringify(definition)
    const check = checkDefinition(definition)
    if (check.ok) {
      t.ok(expect.ok, file)
      t.same(
        check.methods.map(each => [each.name, each.method, each.path]),
        expect.ok ? expect.methods : [],
        file,
      )
      for (const method of check.methods)
        t.same(Object.keys(method), ['name', 'summary', 'path', 'method', 'spec'], file)
    } else {
      t.same(
        check.faults.map(({ loc, type }) => ({ loc, type })),
        expect.ok ? [] : expect.detail,
        file,
      )
    }
    t.equal(JSON.stringify(definition), before, `${file} is not changed`)
  }
})

t.test('real documents: recommended verdict, number of methods, set of fault types', async t => {
  if (!existsSync(`${shared}index.json`)) {
    t.comment('the collection of real documents is not present: nothing was checked here')
    return
  }
  // As above, for the collection's own index.
  for (const { file, recommended } of read(`${shared}index.json`) as RealCase[]) {
    const definition = read(shared + file)
    const check = checkDefinition(definition)
    const verdict = check.ok ? 'accept' : 'reject'
    const types = check.ok ? [] : [...new Set(check.faults.map(fault => fault.type))].sort()
    t.same({ verdict, types }, { verdict: recommended.verdict, types: recommended.types ?? [] }, file)
    if (check.ok) t.equal(check.methods.length, recommended.methods, file)
  }
})

t.test('what was accepted before gives the same methods and functions, byte for byte', async t => {
  const hashOf = (value: unknown) => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16)
  let count = 0
  for (const { file, methods, functions } of read(`${fixtures}accepted-before.json`) as AcceptedBefore[]) {
    const path = file.startsWith('faults/') ? fixtures + file : shared + file
    if (!existsSync(path)) continue
    count++
    const definition = read(path)
    const check = checkDefinition(definition)
    t.same([check.ok && hashOf(check.methods), hashOf(toFunctions(definition))], [methods, functions], file)
  }
  t.ok(count >= 20, `${count} documents`)
})
