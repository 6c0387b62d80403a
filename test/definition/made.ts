import { readFileSync } from 'node:fs'

interface MadeCase {
  name: string
  /** What the document has to teach. */
  note?: string
  /** What differs from the base: places, keys apart by blanks, with the new value; without one the member goes. */
  edits: [place: string, value?: unknown][]
  expect:
    | { ok: true; methods: [name: string, method: string, path: string][] }
    | { ok: false; detail: { loc: (string | number)[]; type: string }[] }
}

// The file is our own: its shape is what is said here.
const { base, cases } = JSON.parse(readFileSync('test/fixtures/definitions.json', 'utf8')) as {
  base: object
  cases: MadeCase[]
}

/** Definitions made for the tests, each some edits away from a good one, with what the check must find. */
export const MADE = cases.map(({ name, edits, expect }) => ({ name, expect, definition: edited(edits) }))

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
