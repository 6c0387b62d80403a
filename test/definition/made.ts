import { readdirSync, readFileSync } from 'node:fs'
import { parse } from 'yaml'
import type { Json } from './document.js'

interface MadeCase {
  name: string
  /** The purpose of the document. */
  note?: string
  /** Edits of the base: a path of keys separated by spaces, and the new value. Without a value, the member is removed. */
  edits: [place: string, value?: unknown][]
  expect:
    | { ok: true; methods: [name: string, method: string, path: string][] }
    | { ok: false; detail: { loc: (string | number)[]; type: string }[] }
}

// The cast is safe, because the file belongs to these tests.
const { base, cases } = JSON.parse(readFileSync('test/fixtures/definitions.json', 'utf8')) as {
  base: object
  cases: MadeCase[]
}

/** Definitions made by edits of a valid one, with the expected result of the check. */
export const MADE = cases.map(({ name, edits, expect }) => ({ name, expect, definition: edited(edits) }))

export const VENDORS_FOLDER = 'test/fixtures/vendors/'

/** The documents of vendors and generators, with their file names. */
export const VENDORS = readdirSync(VENDORS_FOLDER)
  .filter(file => /\.(json|yaml)$/.test(file))
  .map(name => ({ name, definition: parse(readFileSync(VENDORS_FOLDER + name, 'utf8')) as unknown }))

/** A Swagger 2.0 definition with every convertible part, and the expected conversion. */
export const [SWAGGER, CONVERTED] = ['given', 'converted'].map(
  (name): Json => parse(readFileSync(`test/fixtures/swagger/${name}.yaml`, 'utf8')),
)

function edited(edits: MadeCase['edits']): unknown {
  const root: Record<string, unknown> = { '': structuredClone(base) }
  for (const [place, ...value] of edits) {
    const keys = place === '' ? [''] : ['', ...place.split(' ')]
    const last = keys.pop() ?? ''
    const holder = keys.reduce((at, key) => at[key] as Record<string, unknown>, root)
    if (value.length > 0) holder[last] = structuredClone(value[0])
    else delete holder[last]
  }
  return root['']
}
