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

/** What an accepted case may still be refused for: only what DECISIONS gives. */
const ALLOWED_REFUSALS =
  /^(not_found|string_too_long|string_too_short|too_long|greater_than_equal|less_than_equal|json_too_deep|header_.*|passthrough_auth_conflict|default_persona_private|server_url_invalid|tool_disabled)$/

t.test('every recorded case answers as expected, as a dry run and for real', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  for (const recorded of CASES) {
    for (const query of ['?dry_run=true', '']) {
      const { method, path, headers, raw_body, expect } = recorded
      const request = { token: admin, headers, ...(raw_body !== '' && { body: raw_body }) }
      const answer = await call(method, `${path}${query}`, request)
      const title = `${recorded.id} ${query} ${answer.body.slice(0, 300)}`
      const detail: Fault[] = answer.statusCode === 422 ? answer.json().detail : []
      if (expect.verdict === 'accept') {
        const refused = detail.filter(({ type }) => !ALLOWED_REFUSALS.test(type))
        t.ok(answer.statusCode === 200 || (answer.statusCode === 422 && refused.length === 0), title)
      } else if (expect.verdict === 'strict') {
        t.equal(answer.statusCode, 422, title)
        t.strictSame(
          detail.map(({ loc }) => loc),
          expect.locs,
          title,
        )
      } else {
        t.equal(answer.statusCode, 422, title)
        t.strictSame(detail.map(shapeOf(expect.faults)), expect.faults.map(wantedShape), title)
      }
    }
  }
})

type Shape = { loc: unknown; type: string; msg?: string }

/** A found fault as far as the recorded one says: the offset of broken JSON and some sentences are left open. */
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
