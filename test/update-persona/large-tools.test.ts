import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'

const AGENT = 11
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
  await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${tool})`.execute(world.database.db)
  const read = await world.call('GET', `/persona/${AGENT}`, { token: admin })
  t.equal(read.statusCode, 409, read.body)
  t.equal(read.json().error_code, 'SNAPSHOT_TOO_LARGE')
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
