import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import type { Fault } from '../src/errors.js'
import { worldApp } from './app.js'

interface RecordedCase {
  id: string
  method: string
  path: string
  headers: Record<string, string>
  raw_body: string
  expect:
    | { verdict: 'reject'; faults: { loc: Fault['loc']; type: string; msg?: string }[] }
    | { verdict: 'strict'; locs: Fault['loc'][] }
    | { verdict: 'accept' }
}

const FILE = fileURLToPath(new URL('../../test/fixtures/validation.jsonl', import.meta.url))
const CASES = readFileSync(FILE, 'utf8')
  .split('\n')
  .filter(line => line !== '')
  .map(line => JSON.parse(line) as RecordedCase)

/** The cases that Onyx accepts and this service refuses, with the faults as `type at place`. DECISIONS gives the reasons. */
const REFUSED_HERE: Record<string, string[]> = {
  ...Object.fromEntries(
    ['1E2', '-0.0', '-2147483648', '-2147483649', '9223372036854775807'].map(id => [
      `persona_validation/int.tool_ids_item/${id}`,
      ['not_found at body tool_ids 1'],
    ]),
  ),
  'persona_validation/label_ids.items/item_int32over': ['not_found at body label_ids 0'],
  'persona_validation/label_ids.items/item_30': ['not_found at body label_ids 0'],
  'tool_update_validation/definition.content/dup_keys': ['json_key_repeated at body definition openapi'],
  'tool_update_validation/custom_headers.items/two': [
    'header_name_duplicate at body custom_headers 1 key',
    'header_value_invalid at body custom_headers 1 value',
  ],
  'tool_update_validation/custom_headers.items/empty_key': ['header_name_invalid at body custom_headers 0 key'],
  'tool_update_validation/custom_headers.items/crlf': [
    'header_name_invalid at body custom_headers 0 key',
    'header_value_invalid at body custom_headers 0 value',
  ],
  'tool_update_validation/custom_headers.items/many': ['too_long at body custom_headers'],
}

t.test('every recorded case answers as expected, as a dry run and for real', async t => {
  const { call, admin } = await worldApp(t)
  for (const recorded of CASES) {
    for (const query of ['?dry_run=true', '']) {
      const { method, path, headers, raw_body, expect } = recorded
      const request = { token: admin, headers, ...(raw_body !== '' && { body: raw_body }) }
      const answer = await call(method, `${path}${query}`, request)
      const title = `${recorded.id} ${query} ${answer.body.slice(0, 300)}`
      const detail: Fault[] = answer.statusCode === 422 ? answer.json().detail : []
      const refusal = REFUSED_HERE[recorded.id]
      const isTaken = expect.verdict === 'accept' && refusal === undefined
      t.equal(answer.statusCode, isTaken ? 200 : 422, title)
      if (expect.verdict === 'accept') {
        const found = detail.map(({ loc, type }) => `${type} at ${loc.join(' ')}`)
        t.strictSame(found, refusal ?? [], title)
      } else if (expect.verdict === 'strict') {
        const places = detail.map(({ loc }) => loc)
        t.strictSame(places, expect.locs, title)
      } else t.strictSame(detail.map(shapeOf(expect.faults)), expect.faults.map(wantedShape), title)
    }
  }
})

type Shape = { loc: unknown; type: string; msg?: string }

/** Returns a function that reduces a fault to the recorded parts. Ignores the offset of invalid JSON, and messages that were not recorded. */
function shapeOf(wanted: Shape[]) {
  return (found: Fault, index: number): Shape => {
    if (found.type === 'json_invalid') return { loc: [found.loc[0], typeof found.loc[1]], type: found.type }
    const { loc, type, msg } = found
    return wanted[index]?.msg === undefined ? { loc, type } : { loc, type, msg }
  }
}

function wantedShape(wanted: Shape): Shape {
  return wanted.type === 'json_invalid' ? { loc: ['body', 'number'], type: wanted.type } : wanted
}
