import { Kind, type TObject, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import t from 'tap'
import { PersonaSnapshot } from '../../src/persona/schema.js'
import { innerSchema } from '../../src/schema/vocabulary.js'
import { ToolSnapshot, ValidateToolResponse } from '../../src/tool/schema.js'
import { worldApp } from '../app.js'

/** Where an object's members are not exactly the schema's fields in the schema's order; the optional ones are given too. */
function strangeMembers(schema: TSchema, value: unknown, place = 'answer'): string[] {
  const name = schema[Kind]
  if (name === 'Nullable') return value === null ? [] : strangeMembers(innerSchema(schema), value, place)
  if (name === 'Array') {
    return (value as unknown[]).flatMap((item, index) => strangeMembers(schema.items, item, `${place}.${index}`))
  }
  if (name !== 'Object') return []
  const { properties } = schema as TObject // the kind says so
  const wanted = Object.keys(properties)
  const record = value as Record<string, unknown> // the answer passed the schema
  const found = Object.keys(record)
  if (found.join() !== wanted.join()) return [`${place} has ${found.join()}`]
  return Object.entries(properties).flatMap(([key, inner]) => strangeMembers(inner, record[key], `${place}.${key}`))
}

/** The other parts come only when they are asked for. */
const PlainValidation = Type.Pick(ValidateToolResponse, ['methods'])
const FullReport = Type.Pick(ValidateToolResponse, ['methods', 'warnings', 'impact'])

t.test('200: every answer fits its schema, with all of its fields in order and no others', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const alice = await token('alice@example.com')
  const fits = (schema: TSchema, answer: { statusCode: number; body: string; json(): unknown }, title: string) => {
    t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 300)}`)
    t.strictSame([...Value.Errors(schema, answer.json())], [], title)
    t.strictSame(strangeMembers(schema, answer.json()), [], title)
  }
  const agents = await database.db
    .selectFrom('persona')
    .select(['id', 'owner_id'])
    .where('deleted', '=', false)
    .execute()
  for (const { id } of agents) {
    const read = await call('PATCH', `/persona/${id}?update_mask=&dry_run=true`, { token: admin, body: {} })
    fits(PersonaSnapshot, read, `agent ${id}`)
    const body = { tool_ids: [1, 10, 11, 12, 14], document_set_ids: [1, 2, 3], label_ids: [1] }
    const url = `/persona/${id}?update_mask=${Object.keys(body)}`
    fits(PersonaSnapshot, await call('PATCH', url, { token: admin, body }), `agent ${id}, changed`)
  }
  fits(PersonaSnapshot, await call('PATCH', '/persona/11?update_mask=', { token: alice, body: {} }), 'by its owner')
  const tools = await database.db
    .selectFrom('tool')
    .select('id')
    .where('id', 'in', [10, 11, 12, 13, 15, 16, 17, 20])
    .execute()
  for (const { id } of tools) {
    fits(ToolSnapshot, await call('PUT', `/admin/tool/custom/${id}`, { token: admin, body: {} }), `tool ${id}`)
    const body = { name: 'renamed', custom_headers: [{ key: 'X-A', value: '1' }], passthrough_auth: false }
    const answer = await call('PUT', `/admin/tool/custom/${id}`, { token: admin, body })
    fits(ToolSnapshot, answer, `tool ${id}, changed`)
    const { definition } = answer.json()
    const validated = await call('POST', '/admin/tool/custom/validate', { token: admin, body: { definition } })
    fits(PlainValidation, validated, `validation of ${id}`)
    const url = `/admin/tool/custom/validate?report=full&tool_id=${id}`
    fits(FullReport, await call('POST', url, { token: admin, body: { definition } }), `full report of ${id}`)
    const all = await call('POST', `${url}&complete=true`, { token: admin, body: { definition } })
    fits(ValidateToolResponse, all, `completed and reported, ${id}`)
  }
})
