import { readFileSync } from 'node:fs'
import t from 'tap'
import type { Fault } from '../../src/errors.js'
import { requestFaults } from '../../src/http/request-faults.js'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { parseJsonBody } from '../../src/schema/json-body.js'
import { parsePathId } from '../../src/schema/parameters.js'
import { CustomToolUpdate } from '../../src/tool/schema.js'

interface RecordedCase {
  id: string
  method: 'PATCH' | 'PUT'
  path: string
  raw_body: string
  expect:
    | { verdict: 'reject'; faults: { loc: Fault['loc']; type: string; msg?: string }[] }
    | { verdict: 'strict'; locs: Fault['loc'][] }
    | { verdict: 'accept' }
}

const limitTypes = ['string_too_long', 'string_too_short', 'too_long', 'greater_than_equal', 'less_than_equal']

const agentBody = compileBody(PersonaUpsertRequest)
const toolBody = compileBody(CustomToolUpdate)

const lines = readFileSync('test/fixtures/validation.jsonl', 'utf8').trim().split('\n')
const cases: RecordedCase[] = lines.map(line => JSON.parse(line))

function faultsOf({ method, path, raw_body }: RecordedCase): Fault[] {
  const [compiled, name] = method === 'PATCH' ? ([agentBody, 'persona_id'] as const) : ([toolBody, 'tool_id'] as const)
  const id = parsePathId(path.slice(path.lastIndexOf('/') + 1), name)
  return requestFaults({
    path: 'faults' in id ? id.faults : [],
    body: parseJsonBody(Buffer.from(raw_body)),
    bodyFaults: value => compiled.faults(value),
  })
}

function comparable(found: Fault[], expected: { loc: Fault['loc']; type: string; msg?: string }[]) {
  return found.map(({ loc, type, msg }, index) => ({
    loc: type === 'json_invalid' ? [loc[0]] : loc,
    type,
    ...(expected[index]?.msg === undefined ? {} : { msg }),
  }))
}

t.test('422 with exactly the recorded faults', async t => {
  const rejected = cases.filter(({ expect }) => expect.verdict === 'reject')
  t.equal(rejected.length, 485)
  for (const row of rejected) {
    if (row.expect.verdict !== 'reject') continue
    const found = faultsOf(row)
    for (const { loc, type } of found) if (type === 'json_invalid') t.type(loc[1], 'number', row.id)
    const expected = row.expect.faults.map(one => (one.type === 'json_invalid' ? { ...one, loc: ['body'] } : one))
    t.strictSame(comparable(found, expected), expected, row.id)
  }
})

t.test('422 where the public service coerces', async t => {
  const strict = cases.filter(({ expect }) => expect.verdict === 'strict')
  t.equal(strict.length, 126)
  for (const row of strict) {
    if (row.expect.verdict !== 'strict') continue
    t.strictSame(
      faultsOf(row).map(({ loc }) => loc),
      row.expect.locs,
      row.id,
    )
  }
})

t.test('no fault but a limit where the public service accepts', async t => {
  const accepted = cases.filter(({ expect }) => expect.verdict === 'accept')
  t.equal(accepted.length, 146)
  for (const row of accepted) {
    t.strictSame(
      faultsOf(row).filter(({ type }) => !limitTypes.includes(type)),
      [],
      row.id,
    )
  }
})
