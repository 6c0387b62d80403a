import fc from 'fast-check'
import t from 'tap'
import { worldApp } from '../app.js'
import { agentRequest } from '../update-persona/random-requests.js'
import { hashOfEverything } from './stored-state.js'

interface RandomRequest {
  method: 'PATCH' | 'PUT'
  path: string
  query: string[]
  body: unknown
  headers: Record<string, string>
  by: string
}

const PEOPLE = ['admin', 'alice', 'gcurator', 'curator', 'bob', 'carol', 'svc_basic', 'nobody']

const anything = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.double(),
  fc.string(),
  fc.array(fc.integer()),
  fc.object(),
)

/** A value in one of so many cases, else null. */
const onceIn = <Value>(cases: number, value: fc.Arbitrary<Value>) =>
  fc.oneof({ weight: cases - 1, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: value })

/** Now and then a field of another kind, one that does not exist, or one too few. */
const spoilt = agentRequest.chain(({ body, mask }) =>
  fc
    .record({
      wrong: onceIn(2, fc.tuple(fc.constantFrom(...Object.keys(body), 'unknown_field'), anything)),
      without: onceIn(4, fc.constantFrom(...Object.keys(body), 'nothing')),
    })
    .map(({ wrong, without }) => {
      const changed: Record<string, unknown> = { ...body, ...(wrong && { [wrong[0]]: wrong[1] }) }
      if (without !== null) delete changed[without]
      return { body: changed, mask }
    }),
)

const agentUpdate = fc.record({
  request: fc.oneof({ weight: 3, arbitrary: agentRequest }, spoilt),
  // Editable, visible, deleted, built in or not there.
  id: fc.constantFrom('11', '11', '11', '1', '5', '8', '13', '2', '3', '7', '18', '424242', '0', 'x'),
})

const definition = fc.constantFrom<unknown>(
  {},
  { openapi: '3.1.0', info: { title: 'T' }, servers: [{ url: 'https://example.com' }], paths: {} },
  {
    openapi: '3.0.3',
    info: { title: 'T' },
    servers: [{ url: '/' }],
    paths: { '/x': { get: { operationId: 'x', summary: 'X' } } },
  },
)
const header = fc.record({
  key: fc.constantFrom('X-A', 'X-B', 'X-C', 'Authorization', 'authorization', 'Host'),
  value: fc.constantFrom('1', '2', '3', '4', 'Bearer abc', '****#000000000000', 'a\r\nb'),
})
const toolUpdate = fc.record({
  body: fc.record(
    {
      name: fc.option(fc.string({ minLength: 1, maxLength: 8 })),
      description: fc.option(fc.constantFrom('', 'a', 'b')),
      definition: onceIn(2, definition),
      custom_headers: onceIn(2, fc.array(header, { maxLength: 2 })),
      passthrough_auth: fc.option(fc.boolean()),
      oauth_config_id: fc.option(fc.constantFrom(1, 2, 2, 99, 4_000_000_000)),
      unknown_field: fc.nat(),
    },
    { requiredKeys: [] },
  ),
  id: fc.constantFrom('10', '16', '16', '17', '11', '1', '14', '424242'),
})

const request: fc.Arbitrary<RandomRequest> = fc
  .tuple(
    fc.oneof(
      agentUpdate.map(({ request: { body, mask }, id }) => ({
        method: 'PATCH' as const,
        path: `/persona/${id}`,
        query: mask === null ? [] : [`update_mask=${mask.join(',')}`],
        body,
      })),
      toolUpdate.map(({ body, id }) => ({
        method: 'PUT' as const,
        path: `/admin/tool/custom/${id}`,
        query: [],
        body: { ...body },
      })),
    ),
    fc.record({
      by: fc.oneof({ weight: 3, arbitrary: fc.constantFrom('admin', 'alice') }, fc.constantFrom(...PEOPLE)),
      ifMatch: onceIn(4, fc.constantFrom('*', '"persona-11-1"', '"tool-16-1"', 'W/"x"', 'bad')),
      strict: onceIn(4, fc.constant('handling=strict')),
      query: onceIn(15, fc.constantFrom('dryrun=true', 'update_mask=nam')),
      text: onceIn(15, fc.constantFrom('{', '[]', 'null', '')),
    }),
  )
  .map(([asked, { by, ifMatch, strict, query, text }]) => ({
    ...asked,
    by: asked.method === 'PUT' && by === 'alice' ? 'admin' : by,
    query: [...asked.query, ...(query === null ? [] : [query])],
    body: text ?? asked.body,
    headers: {
      'x-request-id': 'the-same-for-both',
      ...(ifMatch !== null && { 'if-match': ifMatch }),
      ...(strict !== null && { prefer: strict }),
    },
  }))

t.test('a dry run answers as the real request and stores nothing, for 200 random requests', async t => {
  const { call, token, database } = await worldApp(t)
  const tokens: Record<string, string> = { nobody: 'pat_nobody' }
  for (const person of PEOPLE.slice(0, -1)) tokens[person] = await token(`${person}@example.com`)
  const statuses: Record<string, number> = {}
  const send = ({ method, path, query, body, headers, by }: RandomRequest, dry: boolean) => {
    const parameters = [...query, ...(dry ? ['dry_run=true'] : [])].join('&')
    return call(method, `${path}${parameters && '?'}${parameters}`, { token: tokens[by] as string, body, headers })
  }
  let before = await hashOfEverything(database.db)
  await fc.assert(
    fc.asyncProperty(request, async asked => {
      const read = await database.db
        .selectFrom(asked.method === 'PUT' ? 'tool' : 'persona')
        .select('version')
        .where('id', '=', Number(/(\d+)$/.exec(asked.path)?.[1] ?? 0))
        .executeTakeFirst()
      const dry = await send(asked, true)
      const after = await hashOfEverything(database.db)
      if (JSON.stringify(after) !== JSON.stringify(before)) throw new Error(`a dry run stored: ${dry.body}`)
      const real = await send(asked, false)
      const told = `${dry.statusCode} ${dry.body}\n${real.statusCode} ${real.body}`
      if (dry.statusCode !== real.statusCode || dry.body !== real.body) throw new Error(told)
      for (const name of ['warning', 'preference-applied', 'www-authenticate', 'content-type', 'cache-control']) {
        const [one, other] = [dry, real].map(answer => String(answer.headers[name]).replaceAll(/\d+ seconds/g, 's'))
        if (one !== other) throw new Error(`${name}: ${one} ${other}`)
      }
      const ok = dry.statusCode === 200
      if ((dry.headers['dry-run'] === 'true') !== ok || 'dry-run' in real.headers) throw new Error('Dry-Run')
      if (ok && !String(dry.headers.etag).endsWith(`-${read?.version}"`)) throw new Error(`${dry.headers.etag}`)
      const key = `${asked.method} ${dry.statusCode}`
      statuses[key] = (statuses[key] ?? 0) + 1
      // What the real request stored is stored now. A refused one that stored something is found at the next hash.
      if (real.statusCode === 200) before = await hashOfEverything(database.db)
    }),
    { numRuns: 200 },
  )
  t.comment(JSON.stringify(statuses))
  for (const key of ['PATCH 200', 'PATCH 404', 'PATCH 422', 'PUT 200', 'PUT 403', 'PUT 422']) t.ok(statuses[key], key)
})

t.test('200 a dry run of nothing is how the state and its tag are read', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const before = await hashOfEverything(database.db)
  const persona = await call('PATCH', '/persona/11?update_mask=&dry_run=true', { token: admin, body: {} })
  t.equal(persona.statusCode, 200)
  t.match(persona.json(), { id: 11, name: 'Full' })
  t.equal(persona.headers.etag, '"persona-11-1"')
  const tool = await call('PUT', '/admin/tool/custom/16?dry_run=true', { token: admin, body: {} })
  t.equal(tool.statusCode, 200)
  t.equal(tool.headers.etag, '"tool-16-1"')
  t.same(await hashOfEverything(database.db), before)
})

t.test(
  '422 of a reference before 403 of secrets, also once the origins of the stored definition are known',
  async t => {
    const { call, token } = await worldApp(t)
    const [admin, curator] = [await token('admin@example.com'), await token('curator@example.com')]
    const put = (as: string, body: object) => call('PUT', '/admin/tool/custom/16', { token: as, body })
    const operations = { paths: { '/x': { get: { operationId: 'x', summary: 'X' } } } }
    const definition = (url: string) => ({ openapi: '3.0.3', info: { title: 'T' }, servers: [{ url }], ...operations })
    const stored = { passthrough_auth: true, custom_headers: [], definition: definition('https://orders.example.com') }
    t.equal((await put(admin, stored)).statusCode, 200)
    const elsewhere = { definition: definition('https://elsewhere.example.com') }
    t.equal((await put(curator, elsewhere)).statusCode, 403)
    t.equal((await put(curator, { ...elsewhere, oauth_config_id: 424242 })).statusCode, 422)
  },
)

t.test('404, 403 and 400 for a dry run too', async t => {
  const { call, token } = await worldApp(t)
  const bob = await token('bob@example.com')
  const carol = await token('carol@example.com')
  const dry = (id: number, as: string) =>
    call('PATCH', `/persona/${id}?update_mask=&dry_run=true`, { token: as, body: {} })
  t.equal((await dry(1, carol)).statusCode, 404)
  t.equal((await dry(2, bob)).statusCode, 403)
  t.equal((await dry(11, carol)).statusCode, 403)
  const admin = await token('admin@example.com')
  t.equal((await call('PUT', '/admin/tool/custom/1?dry_run=true', { token: admin, body: {} })).statusCode, 400)
})
