import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { appOver, REQUIRED_FIELDS, worldApp } from '../app.js'
import { connectedTo } from '../mcp/connected.js'
import { worldDatabase } from '../world.js'

/* Two requests with one Idempotency-Key at once, while another session holds the row, by each route that writes one resource. */

const { app, call, token, database, url } = await worldApp(t)
const admin = await token('admin@example.com')
await app.listen({ host: '127.0.0.1', port: 0 })
const { port } = app.server.address() as { port: number } // it listens on TCP

type Place = { table: 'persona' | 'tool'; id: number }

async function madeBy(table: Place['table']): Promise<Place> {
  const [url, body] =
    table === 'persona'
      ? ['/persona', { ...REQUIRED_FIELDS, name: 'Made', tool_ids: [] }]
      : ['/admin/tool/custom', { name: 'made', definition: definitionOf(1), passthrough_auth: false }]
  const { id } = (await call('POST', url, { token: admin, body })).json()
  const path = table === 'persona' ? `/persona/${id}?update_mask=description` : `/admin/tool/custom/${id}`
  const body2 = { token: admin, body: { description: 'second' } }
  t.equal((await call(table === 'persona' ? 'PATCH' : 'PUT', path, body2)).statusCode, 200)
  return { table, id }
}

/** Every route, with the lock that the first request meets. */
const ROUTES: Record<string, (place: Place) => [method: string, url: string, body?: object]> = {
  'persona: an update': ({ id }) => ['PATCH', `/persona/${id}?update_mask=name`, { name: 'renamed' }],
  'persona: a restoration': ({ id }) => ['POST', `/persona/${id}/restore`, { version: 1 }],
  'persona: a deletion': ({ id }) => ['DELETE', `/persona/${id}`],
  'persona: below /api': ({ id }) => ['PATCH', `/api/persona/${id}/share`, { label_ids: [1] }],
  'tool: an update': ({ id }) => ['PUT', `/admin/tool/custom/${id}`, { name: 'renamed' }],
  'tool: a restoration': ({ id }) => ['POST', `/admin/tool/custom/${id}/restore`, { version: 1 }],
  'tool: a deletion': ({ id }) => ['DELETE', `/admin/tool/custom/${id}`],
}

async function send(key: string, [method, url, body]: [string, string, object?], signal?: AbortSignal) {
  const headers = { authorization: `Bearer ${admin}`, 'idempotency-key': key, 'content-type': 'application/json' }
  const sent = { method, headers: body === undefined ? { ...headers, 'content-type': '' } : headers }
  if (body === undefined) Reflect.deleteProperty(sent.headers, 'content-type')
  const answer = await fetch(`http://127.0.0.1:${port}${url}`, {
    ...sent,
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  })
  return { status: answer.status, replayed: answer.headers.get('idempotent-replayed'), body: await answer.text() }
}

/** Until this number of the service's transactions wait for a lock. */
async function untilWaiting(count: number): Promise<void> {
  const waiting = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  while ((await waiting.execute(database.db)).rows.length < count) await sleep(5)
}

async function rowsOf({ table, id }: Place): Promise<number> {
  const rows = database.db.selectFrom('audit').select('hash').where('resource_kind', '=', table)
  return (await rows.where('resource_id', '=', id).execute()).length
}

for (const [name, route] of Object.entries(ROUTES)) {
  for (const leaves of name.endsWith('an update') ? [false, true] : [true]) {
    const title = leaves ? 'whose first client leaves' : 'that both wait'
    t.test(`one effect, and true answers, of two requests ${title}: ${name}`, async t => {
      const place = await madeBy(name.startsWith('tool') ? 'tool' : 'persona')
      const before = await rowsOf(place)
      const held = await database.db.startTransaction().execute()
      await sql`select id from ${sql.table(place.table)} where id = ${place.id} for update`.execute(held)
      const client = new AbortController()
      const key = `"${name} ${title}"`
      const first = send(key, route(place), client.signal).catch(() => undefined)
      await untilWaiting(1)
      if (leaves) client.abort()
      const second = send(key, route(place))
      await untilWaiting(2)
      await held.rollback().execute()
      const [one, two] = [await first, await second]
      t.ok(two.status === 200 || two.status === 204, `${two.status} ${two.body}`)
      t.equal(two.replayed, 'true')
      if (!leaves) t.match(one, { status: two.status, replayed: null })
      t.equal(await rowsOf(place), before + 1)
      const third = await send(key, route(place))
      t.match(third, { status: two.status, replayed: 'true' })
    })
  }
}

t.test('one agent of two creations with one key at once', async t => {
  const held = await database.db.startTransaction().execute()
  await sql`lock table persona in share mode`.execute(held)
  const create = () => send('"create"', ['POST', '/persona', { ...REQUIRED_FIELDS, name: 'Once', tool_ids: [] }])
  const both = [create(), create()]
  await untilWaiting(2)
  await held.rollback().execute()
  const answers = await Promise.all(both)
  t.match(answers, [{ status: 201 }, { status: 201 }])
  t.equal(new Set(answers.map(({ body }) => JSON.parse(body).id)).size, 1)
})

t.test('one effect, and true answers, of one key at once at two services', async t => {
  const other = openUrl(url, readConfig({}))
  t.teardown(() => other.close())
  const calls = [call, (await appOver(t, other)).call]
  const write = (method: string, path: string, body?: object) =>
    Promise.all(
      [0, 1, 2, 3].map(n => {
        const headers = { 'idempotency-key': `"both ${method} ${path}"` }
        return (calls[n % 2] as typeof call)(method, path, { token: admin, headers, ...(body && { body }) })
      }),
    )
  const place = await madeBy('persona')
  const before = await rowsOf(place)
  for (const answers of [
    await write('PATCH', `/persona/${place.id}?update_mask=name`, { name: 'By two' }),
    await write('POST', '/persona', { ...REQUIRED_FIELDS, name: 'Of two', tool_ids: [] }),
    await write('DELETE', `/persona/${place.id}`),
  ]) {
    for (const { statusCode, body } of answers) t.ok(statusCode < 300, `${statusCode} ${body}`)
    t.equal(answers.filter(({ headers }) => headers['idempotent-replayed'] === undefined).length, 1)
    t.equal(new Set(answers.map(({ headers }) => `${headers.etag} ${headers.location}`)).size, 1)
  }
  t.equal(await rowsOf(place), before + 2)
})

t.test('one effect of one call of an MCP tool at once at two services: the etag stands for one version', async t => {
  const services = await Promise.all(
    [await appOver(t, database), await appOver(t, database)].map(({ app }) => connectedTo(app)),
  )
  const place = await madeBy('tool')
  const clients = await Promise.all([0, 1, 2, 3].map(n => (services[n % 2] as (typeof services)[0])(admin)))
  const { etag } = (await (clients[0] as (typeof clients)[0]).call('get_tool', { id: place.id })).content
  const before = await rowsOf(place)
  const update = { id: place.id, etag, fields: { name: 'by_two' } }
  const answers = await Promise.all(clients.map(client => client.call('update_tool', update)))
  t.equal(await rowsOf(place), before + 1)
  const tags = answers.map(({ isError, content, text }) => (isError ? text : content.etag))
  t.equal(new Set(tags).size, 1, JSON.stringify(tags))
})

t.test('409 where another transaction holds the key for longer than LOCK_TIMEOUT_MS, then 200', async t => {
  const own = await worldDatabase(t)
  const impatient = openUrl(own.url, readConfig({ LOCK_TIMEOUT_MS: '100' }))
  t.teardown(() => impatient.close())
  const { call } = await appOver(t, impatient)
  const text = await own.token('admin@example.com')
  const { rows } = await sql<{ id: string }>`select id from user_account where email = 'admin@example.com'`.execute(
    own.database.db,
  )
  const key = createHash('sha256')
    .update(JSON.stringify([rows[0]?.id, 'held']))
    .digest()
  const held = await own.database.db.startTransaction().execute()
  await held.insertInto('request_key').values({ key }).execute()
  const headers = { 'idempotency-key': '"held"' }
  const update = () => call('PATCH', '/persona/1?update_mask=name', { token: text, body: { name: 'n' }, headers })
  const answer = await update()
  t.equal(answer.statusCode, 409, answer.body)
  t.match(answer.json(), { error_code: 'IDEMPOTENCY_KEY_IN_USE' })
  t.equal(answer.headers['retry-after'], '1')
  await held.rollback().execute()
  t.equal((await update()).statusCode, 200)
})

t.test('410 for a repetition whose record is gone, also if another one has its id', async t => {
  const place = await madeBy('tool')
  const update = () => send('"gone"', ['PUT', `/admin/tool/custom/${place.id}`, { name: 'renamed' }])
  const body = { name: 'made', definition: definitionOf(1), passthrough_auth: false }
  const create = () => send('"made"', ['POST', '/admin/tool/custom', body])
  t.equal((await update()).status, 200)
  const { id } = JSON.parse((await create()).body)
  for (const gone of [place.id, id])
    t.equal((await call('DELETE', `/admin/tool/custom/${gone}`, { token: admin })).statusCode, 204)
  t.equal((await update()).status, 410)
  t.equal((await create()).status, 410)
})
