import { Kind, type TObject, type TSchema, Type } from '@sinclair/typebox'
import fastify, { type FastifyInstance } from 'fastify'
import t from 'tap'
import type { Fault } from '../../src/errors.js'
import { registerBodyParser } from '../../src/http/body.js'
import { registerConnections } from '../../src/http/connections.js'
import { handleError } from '../../src/http/error-handler.js'
import { DryRun, IfMatch, Prefer, updateMask } from '../../src/http/parameters.js'
import { registerRequestValidation, type SchemaTypes } from '../../src/http/validation.js'
import { PersonaSnapshot } from '../../src/persona/schema.js'
import { ToolSnapshot, ValidateToolResponse } from '../../src/tool/schema.js'
import { collectFaults } from '../../src/validation/faults.js'
import { pathId } from '../../src/validation/parameters.js'
import { flag, innerSchema, int32, text } from '../../src/validation/vocabulary.js'
import { worldApp } from '../app.js'
import { faultsOf } from '../updates/stored-state.js'

/* The schema of a route is what acts: another schema refuses something else. */

/** An application that only validates, as the service does it: no caller, no database. It ends with the test. */
function validatingApp(t: { teardown(fn: () => Promise<void>): unknown }) {
  const app: FastifyInstance = fastify({ bodyLimit: 10_000_000 })
  app.decorateRequest('refusal', undefined)
  app.setErrorHandler(handleError)
  const onCut = () => undefined
  registerConnections(app, { service: { isDraining: false }, shutdownTimeoutMs: 1, onCut })
  registerBodyParser(app)
  registerRequestValidation(app)
  t.teardown(() => app.close())
  return app.withTypeProvider<SchemaTypes>()
}

const Body = Type.Object({ name: text(), size: int32(), inner: Type.Optional(Type.Object({ on: flag() })) })
const RIGHT = { name: 'n', size: 1 }

/** The parts of a route such as those of the service have it. */
const SCHEMA = {
  params: Type.Object({ item_id: pathId() }),
  querystring: Type.Object({ update_mask: updateMask(Body), dry_run: DryRun }),
  headers: Type.Object({ 'if-match': IfMatch, prefer: Prefer }),
  body: Body as TObject,
}

interface Sent {
  id?: string
  query?: string
  headers?: Record<string, string>
  body?: unknown
}

/** Sends requests to one route with these schemas; answers what its handler got, or the faults as `place type`. */
function route(t: { teardown(fn: () => Promise<void>): unknown }, schema: Record<string, TSchema>) {
  const app = validatingApp(t)
  app.decorateRequest('policy', { getter: () => ({ permission: 'basic', resource: 'tool' }) as const }) // may nest deeper
  app.patch('/items/:item_id', { schema: { operationId: 'update_item', ...schema } }, async request => {
    const { 'if-match': ifMatch, prefer } = request.headers
    return { params: request.params, query: request.query, ifMatch, prefer, body: request.body }
  })
  return async ({ id = '1', query = '', headers = {}, body = RIGHT }: Sent = {}) => {
    const answer = await app.inject({
      method: 'PATCH',
      url: `/items/${id}${query}`,
      headers: { ...headers, 'content-type': 'application/json' },
      payload: JSON.stringify(body),
    })
    return answer.statusCode === 422 ? faultsOf(answer) : answer.json()
  }
}

t.test('200: a handler gets typed values, and a body as it was sent', async t => {
  const send = route(t, SCHEMA)
  const headers = { 'if-match': 'W/"a", "b"', prefer: 'respond-async, handling=strict' }
  t.strictSame(await send({ query: '?dry_run=true&update_mask=size,name', headers }), {
    params: { item_id: 1 },
    query: { dry_run: true, update_mask: ['name', 'size'] },
    ifMatch: { kind: 'tags', tags: ['"b"'] },
    prefer: { strict: true, minimal: false },
    body: RIGHT,
  })
  const other = { ...RIGHT, more: { b: null, a: [] } }
  t.strictSame((await send({ body: other })).body, other, 'nothing is coerced, filled in or left out')
})

t.test('422: all faults of all parts in the order path, query, header, body, whichever part is wrong', async t => {
  const send = route(t, SCHEMA)
  const wrong = { id: 'a', query: '?x=1', headers: { 'if-match': 'x' }, body: { name: 1, size: 1 } }
  const all = {
    id: 'path.item_id int_parsing',
    query: 'query.x extra_forbidden',
    headers: 'header.if-match string_pattern_mismatch',
    body: 'body.name string_type',
  }
  const names = Object.keys(all) as (keyof typeof all)[]
  for (let chosen = 1; chosen < 16; chosen++) {
    const these = names.filter((_, index) => chosen & (1 << index))
    t.strictSame(
      await send(Object.fromEntries(these.map(name => [name, wrong[name]]))),
      these.map(name => all[name]),
    )
  }
})

t.test('the query parameters that the document lists are those that the service takes', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const { paths } = (await call('GET', '/openapi.json')).json()
  const operations = Object.entries(
    paths as Record<string, Record<string, { parameters: { in: string; name: string }[] }>>,
  ).flatMap(([path, item]) => Object.entries(item).map(([method, { parameters }]) => ({ path, method, parameters })))
  const listed = operations.map(({ parameters }) =>
    parameters.filter(one => one.in === 'query').map(({ name }) => name),
  )
  for (const [index, { path, method }] of operations.entries()) {
    const url = path.replace(/\{\w+\}/, '1')
    for (const name of new Set(listed.flat())) {
      const answer = await call(method.toUpperCase(), `${url}?${name}=?`, { token: admin, body: 'null' })
      // A value that every text fits, such as a name, is answered with what it finds.
      const found = (answer.json().detail ?? []).filter(({ loc }: Fault) => loc[0] === 'query')
      const unknown = found.some(({ type }: Fault) => type === 'extra_forbidden')
      t.equal(unknown, !listed[index]?.includes(name), `${method} ${url} ${name}: ${answer.body}`)
    }
  }
})

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

t.test('200: every answer fits its schema, with all of its fields in order and no others', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
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

/** `functions` come only when they are asked for. */
const isMember = (name: string) => name !== 'functions'
