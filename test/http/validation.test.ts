import { type TObject, type TSchema, Type } from '@sinclair/typebox'
import t from 'tap'
import type { Fault } from '../../src/errors.js'
import { DryRun, IfMatch, Prefer, updateMask } from '../../src/http/parameters.js'
import { pathId, queryChoice, queryFlag, queryId } from '../../src/schema/parameters.js'
import { flag, int32, list, text } from '../../src/schema/vocabulary.js'
import { worldApp } from '../app.js'
import { validatingApp } from './validating-app.js'

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
  const part = { schema: { operationId: 'update_item', ...schema } }
  app.patch('/items/:item_id', part, async ({ params, query, headers, body }) => {
    const { 'if-match': ifMatch, prefer } = headers
    return { params, query, ifMatch, prefer, body }
  })
  return async ({ id = '1', query = '', headers = {}, body = RIGHT }: Sent = {}) => {
    const answer = await app.inject({
      method: 'PATCH',
      url: `/items/${id}${query}`,
      headers: { ...headers, 'content-type': 'application/json' },
      payload: typeof body === 'string' ? body : JSON.stringify(body),
    })
    if (answer.statusCode !== 422) return answer.json()
    return answer.json().detail.map(({ loc, type }: Fault) => `${loc.join('.')} ${type}`)
  }
}

t.test('200 a handler gets typed values, and a body as it was sent', async t => {
  const send = route(t, SCHEMA)
  t.strictSame(await send(), { params: { item_id: 1 }, query: {}, body: RIGHT })
  t.strictSame(
    await send({
      query: '?dry_run=true&update_mask=size,name',
      headers: { 'if-match': 'W/"a", "b"', prefer: 'respond-async, handling=strict' },
    }),
    {
      params: { item_id: 1 },
      query: { dry_run: true, update_mask: ['name', 'size'] },
      ifMatch: { kind: 'tags', tags: ['"b"'] },
      prefer: { strict: true, minimal: false, merges: false },
      body: RIGHT,
    },
  )
  t.strictSame((await send({ id: '2147483648' })).params, {}, 'an id that no row can have is no fault')
  const other = { ...RIGHT, more: { b: null, a: [] } }
  t.strictSame((await send({ body: other })).body, other, 'nothing is coerced, filled in or left out')
})

t.test('422 path: the schema of the params decides', async t => {
  t.strictSame(await route(t, SCHEMA)({ id: 'a' }), ['path.item_id int_parsing'])
  const word = { ...SCHEMA, params: Type.Object({ item_id: queryChoice(['a', 'b'], '') }) }
  t.strictSame((await route(t, word)({ id: 'a' })).params, { item_id: 'a' })
  t.strictSame(await route(t, word)({ id: '1' }), ['path.item_id enum'])
  t.strictSame((await route(t, { body: Body })({ id: 'a' })).params, { item_id: 'a' }, 'without one it is text')
})

t.test('422 query: the schema of the querystring decides', async t => {
  const send = route(t, SCHEMA)
  t.strictSame(await send({ query: '?dry_run=1' }), ['query.dry_run bool_parsing'])
  t.strictSame(await send({ query: '?complete=true' }), ['query.complete extra_forbidden'])
  t.strictSame(await send({ query: '?dry_run=true&dry_run=true' }), ['query.dry_run parameter_repeated'])
  const querystring = Type.Object({ complete: queryFlag(''), near: queryId(''), order: pathId() })
  const changed = route(t, { ...SCHEMA, querystring })
  t.strictSame((await changed({ query: '?complete=true&near=7&order=1' })).query, { complete: true, near: 7, order: 1 })
  t.strictSame(await changed({ query: '?dry_run=true&near=x' }), [
    'query.dry_run extra_forbidden',
    'query.near int_parsing',
    'query.order missing',
  ])
  const { querystring: _, ...none } = SCHEMA
  t.strictSame(await route(t, none)({ query: '?dry_run=true' }), ['query.dry_run extra_forbidden'], 'none takes none')
})

t.test('422 header: the schema of the headers decides', async t => {
  t.strictSame(await route(t, SCHEMA)({ headers: { 'if-match': 'x' } }), ['header.if-match string_pattern_mismatch'])
  const { headers: _, ...none } = SCHEMA
  t.equal((await route(t, none)({ headers: { 'if-match': 'x' } })).ifMatch, 'x', 'what is not declared is not read')
  const numbered = route(t, { ...SCHEMA, headers: Type.Object({ number: pathId() }) })
  t.strictSame(await numbered(), ['header.number missing'])
  t.strictSame(await numbered({ headers: { number: 'x' } }), ['header.number int_parsing'])
})

t.test('422 body: the schema of the body decides', async t => {
  const send = route(t, SCHEMA)
  t.strictSame(await send({ body: { size: '1', inner: { on: 1 } } }), [
    'body.name missing',
    'body.size int_parsing',
    'body.inner.on bool_type',
  ])
  const body = Type.Object({ size: text(), names: list(text(), { maxItems: 1 }) })
  const changed = route(t, { ...SCHEMA, body })
  t.strictSame((await changed({ body: { size: '1', names: [] } })).body, { size: '1', names: [] })
  t.strictSame(await changed({ body: { size: 1, names: ['a', 'b'] } }), [
    'body.size string_type',
    'body.names too_long',
  ])
  t.strictSame(await send({ body: '' }), ['body missing'])
})

t.test('422 strict handling makes unknown fields faults, where prefer is declared', async t => {
  const strict = { headers: { prefer: 'handling=strict' }, body: { ...RIGHT, x: 1, inner: { on: true, y: 2 } } }
  t.strictSame(await route(t, SCHEMA)(strict), ['body.inner.y extra_forbidden', 'body.x extra_forbidden'].reverse())
  const { headers: _, ...none } = SCHEMA
  t.strictSame((await route(t, none)(strict)).body, strict.body)
})

t.test('422 a mask decides what the body must hold, where it is declared, also one that is refused', async t => {
  const send = route(t, SCHEMA)
  t.strictSame((await send({ query: '?update_mask=size', body: { size: 1 } })).body, { size: 1 })
  t.strictSame(await send({ query: '?update_mask=size', body: { name: 1 } }), ['body.size missing'])
  t.strictSame(await send({ query: '?update_mask=size,x', body: { size: 'a' } }), [
    'query.update_mask enum',
    'body.size int_parsing',
  ])
  const unmasked = route(t, { ...SCHEMA, querystring: Type.Object({ dry_run: DryRun }) })
  t.strictSame(await unmasked({ query: '?update_mask=size', body: { size: 1 } }), [
    'query.update_mask extra_forbidden',
    'body.name missing',
  ])
})

t.test('422 all faults of all parts in the order path, query, header, body, whichever part is wrong first', async t => {
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
      these.join(),
    )
  }
})

t.test('422 a body that cannot be read stands alone, whatever else is wrong', async t => {
  const send = route(t, SCHEMA)
  const nested = (depth: number) => `{"inner":${'['.repeat(depth)}${']'.repeat(depth)}}`
  for (const [body, wanted] of [
    ['{', 'body.1 json_invalid'],
    [nested(256), 'body json_too_deep'],
  ] as const) {
    t.strictSame(await send({ body }), [wanted])
    t.strictSame(await send({ body, query: '?x=1', headers: { 'if-match': 'x' } }), [wanted])
    t.strictSame(await send({ body, id: 'a', query: '?x=1' }), [wanted])
  }
  t.strictSame(
    await send({ body: '', query: '?x=1' }),
    ['query.x extra_forbidden', 'body missing'],
    'an absent one does not',
  )
})

t.test('200 a route that declares nothing but its path takes no query, no body and any header', async t => {
  const app = validatingApp(t)
  const schema = { operationId: 'read_item', params: Type.Object({ item_id: pathId() }) }
  app.get('/items/:item_id', { schema }, async ({ params }) => params)
  const get = async (url: string) => await app.inject({ url, headers: { 'if-match': 'x', prefer: 'handling=strict' } })
  t.strictSame((await get('/items/7')).json(), { item_id: 7 })
  t.match((await get('/items/7?dry_run=true')).json(), {
    detail: [{ loc: ['query', 'dry_run'], type: 'extra_forbidden' }],
  })
})

t.test('a parameter whose schema does not say how its text is read keeps the application from starting', async t => {
  const app = validatingApp(t)
  app.get('/items/:item_id', { schema: { params: Type.Object({ item_id: Type.Integer() }) } }, async () => '')
  await t.rejects(async () => await app.ready(), { message: /item_id does not say how its text is read/ })
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
