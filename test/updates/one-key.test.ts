import { hash } from 'node:crypto'
import { sql } from 'kysely'
import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { appOver, REQUIRED_FIELDS, worldApp } from '../app.js'
import { ask } from '../faults/service.js'
import { ADMIN } from '../fixtures/users.js'
import { connectedTo } from '../mcp/connected.js'
import { opened } from '../postgres.js'
import { listening } from '../test-service.js'
import { worldDatabase } from '../world.js'
import { auditRows, untilLocked } from './stored-state.js'

/* Sends two concurrent requests with the same Idempotency-Key while another session locks the row. Covers each route that writes one resource. */

const { app, call, database, url, admin } = await worldApp(t)
const port = await listening(app)

type Place = { table: 'persona' | 'tool'; id: number }

const NEW_TOOL = { name: 'made', definition: definitionOf(1), passthrough_auth: false }
const KINDS = {
  persona: { url: '/persona', body: { ...REQUIRED_FIELDS, name: 'Made', tool_ids: [] }, method: 'PATCH' },
  tool: { url: '/admin/tool/custom', body: NEW_TOOL, method: 'PUT' },
}

async function madeBy(table: Place['table']): Promise<Place> {
  const { url, body, method } = KINDS[table]
  const { id } = (await call('POST', url, { token: admin, body })).json()
  const second = { token: admin, body: { description: 'second' } }
  const mask = table === 'persona' ? '?update_mask=description' : ''
  t.equal((await call(method, `${url}/${id}${mask}`, second)).statusCode, 200)
  return { table, id }
}

/** The routes that write one resource. Each key begins with the table of the locked row. */
const ROUTES: Record<string, (place: Place) => [method: string, url: string, body?: object]> = {
  'persona: an update': ({ id }) => ['PATCH', `/persona/${id}?update_mask=name`, { name: 'renamed' }],
  'persona: a restoration': ({ id }) => ['POST', `/persona/${id}/restore`, { version: 1 }],
  'persona: a deletion': ({ id }) => ['DELETE', `/persona/${id}`],
  'persona: below /api': ({ id }) => ['PATCH', `/api/persona/${id}/share`, { label_ids: [1] }],
  'tool: an update': ({ id }) => ['PUT', `/admin/tool/custom/${id}`, { name: 'renamed' }],
  'tool: a restoration': ({ id }) => ['POST', `/admin/tool/custom/${id}/restore`, { version: 1 }],
  'tool: a deletion': ({ id }) => ['DELETE', `/admin/tool/custom/${id}`],
}

function send(key: string, [method, url, body]: [string, string, object?], signal: AbortSignal | null = null) {
  const sent = { headers: { 'idempotency-key': key }, signal, ...(body && { body }) }
  return ask({ port }, admin, method, url, sent)
}

const rowsOf = async ({ table, id }: Place) => (await auditRows(database.db, table, id)).length

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
      await untilLocked(database)
      if (leaves) client.abort()
      const second = send(key, route(place))
      await untilLocked(database, 2)
      await held.rollback().execute()
      const [one, two] = [await first, await second]
      t.ok(two.status === 200 || two.status === 204, JSON.stringify(two))
      t.equal(two.replayed, 'true')
      if (!leaves) t.match(one, { status: two.status, replayed: undefined })
      t.equal(await rowsOf(place), before + 1)
      const third = await send(key, route(place))
      t.match(third, { status: two.status, replayed: 'true' })
    })
  }
}

t.test('one agent from two concurrent creations with one key', async t => {
  const held = await database.db.startTransaction().execute()
  await sql`lock table persona in share mode`.execute(held)
  const create = () => send('"create"', ['POST', '/persona', KINDS.persona.body])
  const both = [create(), create()]
  await untilLocked(database, 2)
  await held.rollback().execute()
  const answers = await Promise.all(both)
  t.match(answers, [{ status: 201 }, { status: 201 }])
  t.equal(new Set(answers.map(({ body }) => body.id)).size, 1)
})

t.test('one effect, and true answers, of one key at once at two services', async t => {
  const calls = [call, (await appOver(t, opened(t, url))).call]
  const write = (method: string, path: string, body?: object) => {
    const sent = { token: admin, headers: { 'idempotency-key': `"both ${method} ${path}"` }, ...(body && { body }) }
    return Promise.all([...calls, ...calls].map(each => each(method, path, sent)))
  }
  const place = await madeBy('persona')
  const before = await rowsOf(place)
  for (const answers of [
    await write('PATCH', `/persona/${place.id}?update_mask=name`, { name: 'By two' }),
    await write('POST', '/persona', KINDS.persona.body),
    await write('DELETE', `/persona/${place.id}`),
  ]) {
    for (const { statusCode, body } of answers) t.ok(statusCode < 300, `${statusCode} ${body}`)
    t.equal(answers.filter(({ headers }) => headers['idempotent-replayed'] === undefined).length, 1)
    t.equal(new Set(answers.map(({ headers }) => `${headers.etag} ${headers.location}`)).size, 1)
  }
  t.equal(await rowsOf(place), before + 2)
})

t.test('one effect of one call of an MCP tool at once at two services: the etag stands for one version', async t => {
  const services = [await appOver(t, database), await appOver(t, database)]
  const connect = await Promise.all(services.map(({ app }) => connectedTo(app)))
  const place = await madeBy('tool')
  const clients = await Promise.all([...connect, ...connect].map(each => each(admin)))
  const etag = `"tool-${place.id}-2"`
  const before = await rowsOf(place)
  const update = { id: place.id, etag, fields: { name: 'by_two' } }
  const answers = await Promise.all(clients.map(client => client.call('update_tool', update)))
  t.equal(await rowsOf(place), before + 1)
  const tags = answers.map(({ isError, content, text }) => (isError ? text : content.etag))
  t.equal(new Set(tags).size, 1, JSON.stringify(tags))
})

t.test('409 where another transaction holds the key for longer than LOCK_TIMEOUT_MS, then 200', async t => {
  const own = await worldDatabase(t)
  const impatient = opened(t, own.url, { LOCK_TIMEOUT_MS: '100' })
  const { call } = await appOver(t, impatient)
  const key = Buffer.from(hash('sha256', JSON.stringify([ADMIN, 'held'])), 'hex')
  const held = await own.database.db.startTransaction().execute()
  await held.insertInto('request_key').values({ key }).execute()
  const token = await own.token('admin@example.com')
  const sent = { token, body: { name: 'n' }, headers: { 'idempotency-key': '"held"' } }
  const update = () => call('PATCH', '/persona/1?update_mask=name', sent)
  const answer = await update()
  t.match(answer, { statusCode: 409, headers: { 'retry-after': '1' } }, answer.body)
  t.match(answer.json(), { error_code: 'IDEMPOTENCY_KEY_IN_USE' })
  await held.rollback().execute()
  t.equal((await update()).statusCode, 200)
})

t.test('410 for a repetition whose record was deleted, even if another record has its id', async t => {
  const place = await madeBy('tool')
  const update = () => send('"gone"', ['PUT', `/admin/tool/custom/${place.id}`, { name: 'renamed' }])
  const create = () => send('"made"', ['POST', '/admin/tool/custom', NEW_TOOL])
  t.equal((await update()).status, 200)
  const { id } = (await create()).body
  for (const gone of [place.id, id])
    t.equal((await call('DELETE', `/admin/tool/custom/${gone}`, { token: admin })).statusCode, 204)
  t.equal((await update()).status, 410)
  t.equal((await create()).status, 410)
})
