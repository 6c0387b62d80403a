import { Kind, type TObject, type TSchema, Type } from '@sinclair/typebox'
import t from 'tap'
import type { Fault } from '../../src/errors.js'
import { PersonaSnapshot } from '../../src/persona/schema.js'
import { ToolSnapshot, ValidateToolResponse } from '../../src/tool/schema.js'
import { collectFaults } from '../../src/validation/faults.js'
import { innerSchema } from '../../src/validation/vocabulary.js'
import { worldApp } from '../app.js'

/* Requests and answers follow the schemas of their routes. */

const { call, token, admin } = await worldApp(t)

t.test('the query parameters that the document lists are those that the service takes', async t => {
  const { paths } = (await call('GET', '/openapi.json')).json()
  const operations = Object.entries(
    paths as Record<string, Record<string, { parameters: { in: string; name: string }[] }>>,
  ).flatMap(([path, item]) => Object.entries(item).map(([method, { parameters }]) => ({ path, method, parameters })))
  const listed = operations.map(({ parameters }) =>
    parameters.filter(one => one.in === 'query').map(({ name }) => name),
  )
  const runtime = await token('admin@example.com', { scopes: ['runtime'] })
  for (const [index, { path, method }] of operations.entries()) {
    const as = /^\/runtime|\/headers$/.test(path) ? runtime : admin
    const url = path.replace(/\{\w+\}/, '1')
    for (const name of new Set(listed.flat())) {
      const answer = await call(method.toUpperCase(), `${url}?${name}=?`, { token: as, body: 'null' })
      // A declared parameter can accept the value `?`, so other statuses than 422 are possible.
      const faults: Fault[] = answer.statusCode === 422 ? answer.json().detail : []
      const unknown = faults.some(({ loc, type }) => loc[0] === 'query' && type === 'extra_forbidden')
      t.equal(unknown, !listed[index]?.includes(name), `${method} ${url} ${name}: ${answer.body}`)
    }
  }
})

/** Describes the objects whose members are not exactly the schema's fields in the schema's order, including optional fields. */
function strangeMembers(schema: TSchema, value: unknown, place = 'answer'): string[] {
  const name = schema[Kind]
  if (name === 'Nullable') return value === null ? [] : strangeMembers(innerSchema(schema), value, place)
  if (name === 'Array') {
    return (value as unknown[]).flatMap((item, index) => strangeMembers(schema.items, item, `${place}.${index}`))
  }
  if (name !== 'Object') return []
  const { properties } = schema as TObject // the kind is Object
  const wanted = Object.keys(properties)
  const record = value as Record<string, unknown> // the answer matches the schema
  const found = Object.keys(record)
  if (found.join() !== wanted.join()) return [`${place} has ${found.join()}`]
  return Object.entries(properties).flatMap(([key, inner]) => strangeMembers(inner, record[key], `${place}.${key}`))
}

t.test('200: every answer fits its schema, with all of its fields in order and no others', async t => {
  const fits = (schema: TSchema, answer: { statusCode: number; body: string; json(): unknown }, title: string) => {
    t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 300)}`)
    t.strictSame(collectFaults(schema, answer.json(), []), [], title)
    t.strictSame(strangeMembers(schema, answer.json()), [], title)
  }
  const own = { tool_ids: [1, 10, 11, 12, 14], document_set_ids: [1, 2, 3], label_ids: [1] }
  for (const id of [1, 2, 5, 8, 11, 13]) {
    const url = `/persona/${id}?update_mask=`
    fits(PersonaSnapshot, await call('PATCH', url, { token: admin, body: {} }), `agent ${id}`)
    const changed = await call('PATCH', url + Object.keys(own), { token: admin, body: own })
    fits(PersonaSnapshot, changed, `agent ${id}, changed`)
  }
  for (const id of [10, 11, 12, 13, 15, 16, 17, 20]) {
    const put = (body: object) => call('PUT', `/admin/tool/custom/${id}`, { token: admin, body })
    fits(ToolSnapshot, await put({}), `tool ${id}`)
    const headers = [{ key: 'X-A', value: '1' }]
    const answer = await put({ name: 'renamed', custom_headers: headers, passthrough_auth: false })
    fits(ToolSnapshot, answer, `tool ${id}, changed`)
    const { definition } = answer.json()
    for (const [query, members] of [
      ['', ['methods']],
      [`?report=full&tool_id=${id}`, ['methods', 'warnings', 'impact']],
      [`?report=full&tool_id=${id}&complete=true`, Object.keys(ValidateToolResponse.properties).filter(isMember)],
    ] as const) {
      const sent = { token: admin, body: { definition } }
      const validated = await call('POST', `/admin/tool/custom/validate${query}`, sent)
      fits(Type.Pick(ValidateToolResponse, [...members] as 'methods'[]), validated, `validation of ${id}${query}`)
    }
  }
})

/** The answer contains `functions` only on request. */
const isMember = (name: string) => name !== 'functions'
