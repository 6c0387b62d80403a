import { readFileSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import t from 'tap'
import type { Fault } from '../../src/errors.js'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { pathId } from '../../src/schema/parameters.js'
import { CustomToolUpdate } from '../../src/tool/schema.js'
import { validatingApp } from '../http/validating-app.js'

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

const lines = readFileSync('test/fixtures/validation.jsonl', 'utf8').trim().split('\n')
const cases: RecordedCase[] = lines.map(line => JSON.parse(line))

/** The routes' schemas behind Fastify's own validation, and nothing else. */
const app = validatingApp(t)
for (const [method, url, params, body] of [
  ['PATCH', '/persona/:persona_id', { persona_id: pathId() }, PersonaUpsertRequest],
  ['PUT', '/admin/tool/custom/:tool_id', { tool_id: pathId() }, CustomToolUpdate],
] as const) {
  app.route({
    method,
    url,
    schema: { operationId: method, params: Type.Object(params), body },
    handler: async () => ({}),
  })
}

async function faultsOf({ method, path, raw_body }: RecordedCase): Promise<Fault[]> {
  const headers = { 'content-type': 'application/json' }
  const answer = await app.inject({ method, url: path, headers, payload: raw_body })
  return answer.statusCode === 422 ? answer.json().detail : []
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
    const found = await faultsOf(row)
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
      (await faultsOf(row)).map(({ loc }) => loc),
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
      (await faultsOf(row)).filter(({ type }) => !limitTypes.includes(type)),
      [],
      row.id,
    )
  }
})
