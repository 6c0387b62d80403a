import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse } from 'yaml'
import { checkDefinition, completeDefinition, type DefinitionCheck, toFunctions } from '../../src/definition/index.js'
import { matchesGolden } from '../golden.js'
import { compile } from './ajv.js'

const FOLDER = 'test/fixtures/vendors/'
const folder = fileURLToPath(new URL(`../../../${FOLDER}`, import.meta.url))
const documents = readdirSync(folder).filter(file => /\.(json|yaml)$/.test(file) && !file.includes('.golden.'))

/** The server for documents that need one to be completed. */
const SERVER = 'https://api.example.com'
const CHARACTERS_A_LINE = 140
/** The number of functions of each document that Ajv compiles. */
const COMPILED = 10

/** Formats the findings of a check, each with type and path. */
function foundBy(check: DefinitionCheck): string[] {
  const shown = (kind: string, found: { type: string; loc: readonly (string | number)[] }) =>
    `${kind} ${found.type} at ${found.loc.slice(2).join(' > ')}`
  const faults = check.ok ? [] : check.faults.map(fault => shown('fault', fault))
  return [...faults, ...check.warnings.map(warning => shown('warning', warning))]
}

/** Integers beyond a double's precision become BigInts, as in the service. */
function withBigInts(text: string): unknown {
  const plain = (_: unknown, value: unknown) =>
    typeof value === 'bigint' && Number.isSafeInteger(Number(value)) ? Number(value) : value
  return parse(text, plain, { intAsBigInt: true })
}

/** Formats JSON with each value on one line if it fits. */
function written(value: unknown, indent = ''): string {
  if (typeof value === 'bigint') return String(value)
  const flat = JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? '#'.repeat(CHARACTERS_A_LINE) : each))
  if (typeof value !== 'object' || value === null || flat.length + indent.length <= CHARACTERS_A_LINE) return flat
  const inner = `${indent} `
  const [open, close] = Array.isArray(value) ? '[]' : '{}'
  const members = Array.isArray(value)
    ? value.map(each => written(each, inner))
    : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${written(each, inner)}`)
  return `${open}\n${inner}${members.join(`,\n${inner}`)}\n${indent}${close}`
}

for (const file of documents) {
  t.test(`${file}: findings, completion and functions match the golden file`, async t => {
    const text = readFileSync(folder + file, 'utf8')
    const isJson = file.endsWith('.json')
    const definition: unknown = isJson ? JSON.parse(text) : parse(text)
    const check = checkDefinition(definition)
    const completion = check.ok ? undefined : completeDefinition(definition, { server: SERVER })
    const usable = completion?.definition ?? (isJson ? definition : withBigInts(text))
    const functions = (completion?.check ?? check).ok ? toFunctions(usable) : []
    const step = Math.ceil(functions.length / COMPILED)
    for (const each of functions.filter((_, i) => i % step === 0))
      t.doesNotThrow(() => compile(JSON.parse(written(each))), each.name)
    const record = {
      check: foundBy(check),
      ...(completion && {
        edits: completion.edits.map(
          ({ op, loc, type, after }) =>
            `${op} ${type} at ${loc.slice(2).join(' > ')}${typeof after === 'string' ? `: ${after}` : ''}`,
        ),
        completed: foundBy(completion.check),
      }),
      functions,
    }
    matchesGolden(t, `${FOLDER}${file.replace(/\.\w+$/, '')}.golden.json`, `${written(record)}\n`)
  })
}

t.test('every document has its line in README.md', async t => {
  const readme = existsSync(`${folder}README.md`) ? readFileSync(`${folder}README.md`, 'utf8') : ''
  for (const file of documents) t.ok(readme.includes(`| ${file} |`), file)
})
