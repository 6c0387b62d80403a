import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'

const AGENT = 11
const TOOL = 10
const SNAPSHOT_BYTES_MAX = 2 ** 20

t.test('200: tools over half of what is left are attached, also where the row is locked at that moment', async t => {
  const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(SNAPSHOT_BYTES_MAX) })
  const { db } = world.database
  const admin = await world.token('admin@example.com')
  const attach = (tool_ids: number[]) =>
    world.call('PATCH', `/persona/${AGENT}?update_mask=tool_ids`, { token: admin, body: { tool_ids } })
  t.equal((await attach([])).statusCode, 200)
  const tool = await toolOfBytes(world, 700 * 1024)
  let underWay: ReturnType<typeof attach> | undefined
  await db.transaction().execute(async trx => {
    await sql`select from persona where id = ${AGENT} for update`.execute(trx)
    underWay = attach([tool])
    await sleep(300)
  })
  const answer = await underWay
  t.equal(answer?.statusCode, 200, String(answer?.body))
  t.equal((await attach([])).statusCode, 200)
  t.equal((await attach([tool])).statusCode, 200)
})

t.test('409 of a read whose tools take more than an answer may; 422 of attaching them', async t => {
  const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(SNAPSHOT_BYTES_MAX) })
  const admin = await world.token('admin@example.com')
  const tool = await toolOfBytes(world, 1100 * 1024)
  const refused = await world.call('PATCH', `/persona/${AGENT}?update_mask=tool_ids`, {
    token: admin,
    body: { tool_ids: [tool] },
  })
  t.equal(refused.statusCode, 422)
  t.equal(refused.json().detail[0].type, 'snapshot_too_large')
  t.match(refused.json().detail[0].msg, new RegExp(`bytes, most of them tool ${tool} \\(\\d+\\)`))
  await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${tool})`.execute(world.database.db)
  const read = await world.call('GET', `/persona/${AGENT}`, { token: admin })
  t.equal(read.statusCode, 409, read.body)
  t.equal(read.json().error_code, 'SNAPSHOT_TOO_LARGE')
  t.notMatch(read.json().detail, 'Nothing was changed')
})

t.test('409 of an update whose tools have grown beyond an answer; with return=minimal it is stored', async t => {
  const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(SNAPSHOT_BYTES_MAX) })
  const { db } = world.database
  const admin = await world.token('admin@example.com')
  const beside = await toolOfBytes(world, 700 * 1024)
  await sql`delete from persona_tool where persona_id = ${AGENT} or tool_id = ${TOOL}`.execute(db)
  await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${beside}), (${AGENT}, ${TOOL}), (1, ${TOOL})`.execute(
    db,
  )
  const enlarge = (bytes: number) =>
    world.call('PUT', `/admin/tool/custom/${TOOL}`, {
      token: admin,
      body: { definition: definitionOfBytes(bytes) },
    })
  const update = (description: string, headers = {}) =>
    world.call('PATCH', `/persona/${AGENT}?update_mask=description`, { token: admin, body: { description }, headers })

  t.equal((await enlarge(500 * 1024)).statusCode, 200)
  const refused = await update('refused')
  t.equal(refused.statusCode, 409)
  t.match(refused.json().detail, /^Nothing was changed\. /)
  t.match(refused.json().detail, new RegExp(`most of them tool ${beside} \\(\\d+\\), tool ${TOOL} \\(\\d+\\)`))
  const minimal = { prefer: 'return=minimal' }
  const stored = await update('stored', minimal)
  t.equal(stored.statusCode, 204, stored.body)
  t.equal((await update('stored', minimal)).statusCode, 204, 'nothing to change')
  const stale = String(stored.headers.etag).replace(/\d+"$/, '1"')
  const shown = await update('stored', { ...minimal, 'if-match': stale })
  t.equal(shown.statusCode, 409, 'to an old tag what is stored would have to be shown')
  const attach = await world.call('PATCH', `/persona/1?update_mask=tool_ids`, {
    token: admin,
    headers: minimal,
    body: { tool_ids: [beside, TOOL] },
  })
  t.equal(attach.json().detail?.[0].type, 'snapshot_too_large', 'no agent is made one that has no answer')
  const { rows } = await sql<{ description: string }>`select description from persona where id = ${AGENT}`.execute(db)
  t.equal(rows[0]?.description, 'stored')
})

t.test('conditional reads and HEADs of a large agent wait for each other: none is refused for memory', async t => {
  const largest = String(2 * SNAPSHOT_BYTES_MAX)
  const world = await worldApp(t, {
    SNAPSHOT_BYTES_MAX: largest,
    TOOL_BODY_LIMIT_BYTES: largest,
    TRANSFER_PER_TOKEN_BYTES_MAX: largest,
  })
  const admin = await world.token('admin@example.com')
  const tool = await toolOfBytes(world, 1100 * 1024)
  await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${tool})`.execute(world.database.db)
  const read = (method: string, headers: Record<string, string> = {}) =>
    world.call(method, `/persona/${AGENT}`, { token: admin, headers })
  const { etag } = (await read('GET')).headers
  const known = await Promise.all(Array.from({ length: 16 }, () => read('GET', { 'if-none-match': String(etag) })))
  t.strictSame(new Set(known.map(({ statusCode }) => statusCode)), new Set([304]))
  const heads = await Promise.all(Array.from({ length: 16 }, () => read('HEAD')))
  t.strictSame(new Set(heads.map(({ statusCode }) => statusCode)), new Set([200]))
})

/** Makes a tool whose definition takes about so many bytes. */
async function toolOfBytes({ database }: Awaited<ReturnType<typeof worldApp>>, bytes: number): Promise<number> {
  const { rows } = await sql<{ id: number }>`
    with stored as (
      insert into tool_definition (hash, content, size_bytes)
      select sha256(text::bytea), text::json, octet_length(text) from (select json_build_object('x', repeat('y', ${bytes}::integer))::text) made (text)
      returning hash
    )
    insert into tool (name, definition_hash) select 'large', hash from stored returning id`.execute(database.db)
  return rows[0]?.id ?? 0
}

/** A definition whose JSON has about so many bytes. */
function definitionOfBytes(bytes: number) {
  return {
    openapi: '3.0.3',
    info: { title: 'Large', version: '1', description: 'x'.repeat(bytes) },
    servers: [{ url: 'https://api.example.com' }],
    paths: {
      '/items': { get: { operationId: 'items', summary: 'Lists items', responses: { 200: { description: 'ok' } } } },
    },
  }
}
