import { readFileSync } from 'node:fs'
import t from 'tap'
import { checkDefinition, completeDefinition, type DefinitionCheck, toFunctions } from '../../src/definition/index.js'
import { matchesGolden } from '../golden.js'
import { compile } from './ajv.js'
import { VENDORS, VENDORS_FOLDER } from './made.js'

/** The server that completion adds to documents without one. */
const SERVER = 'https://api.example.com'
/** The documents that are invalid even after completion, with the reason. */
const NOT_TAKEN: Record<string, string> = {
  'events-openapi32.yaml': 'its references name the document by "$self"',
  'insurance-schemas31.yaml': 'its references name schemas by "$id" and "$anchor"',
  'references-odd.yaml': 'each of its references is wrong, on purpose',
  'version-bare.yaml': 'its version is "3"',
}
/** The maximum number of functions per document that are compiled with Ajv. */
const COMPILED = 10

/** Formats the faults of a check and its warnings about omitted operations as `type at path`. */
function foundBy(check: DefinitionCheck): string[] {
  const passed = check.warnings.filter(({ type }) => type === 'operation_passed_over')
  const found = [...(check.ok ? [] : check.faults), ...passed]
  return found.map(({ type, loc }) => `${type} at ${loc.slice(2).join(' > ')}`)
}

for (const { name: file, definition } of VENDORS) {
  t.test(`${file}: faults, operations passed over and arguments match the golden file`, async t => {
    const given = checkDefinition(definition)
    const { definition: usable, check } = given.ok
      ? { definition, check: given }
      : completeDefinition(definition, { server: SERVER })
    const functions = check.ok ? toFunctions(usable) : []
    const step = Math.ceil(functions.length / COMPILED)
    for (const each of functions.filter((_, i) => i % step === 0)) t.doesNotThrow(() => compile(each), each.name)
    const lines = [
      ...foundBy(given),
      ...(given.ok ? [] : ['completed:', ...foundBy(check)]),
      ...functions.map(
        each => `${each.name}(${each.arguments.map(({ argument, in: place }) => `${argument} ${place}`).join(', ')})`,
      ),
    ]
    matchesGolden(t, `${VENDORS_FOLDER}${file.replace(/\.\w+$/, '')}.golden.txt`, `${lines.join('\n')}\n`)
    t.equal(check.ok, NOT_TAKEN[file] === undefined, NOT_TAKEN[file] ?? 'is taken')
  })
}

t.test('README.md names every document', async t => {
  const readme = readFileSync(`${VENDORS_FOLDER}README.md`, 'utf8')
  for (const { name } of VENDORS) t.ok(readme.includes(`\`${name}\``), name)
})
