import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { rollbackTool } from '../../src/admin/rollback.js'
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

t.test(
  'who makes a tool larger than the answers of its agents is told how many; those go on where they want no answer',
  async t => {
    const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(SNAPSHOT_BYTES_MAX) })
    const { db } = world.database
    const admin = await world.token('admin@example.com')
    const beside = await toolOfBytes(world, 700 * 1024)
    await sql`delete from persona_tool where persona_id = ${AGENT} or tool_id = ${TOOL}`.execute(db)
    await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${beside}), (${AGENT}, ${TOOL}), (1, ${TOOL})`.execute(
      db,
    )
    const enlarge = (bytes: number, query = '') =>
      world.call('PUT', `/admin/tool/custom/${TOOL}${query}`, {
        token: admin,
        body: { definition: definitionOfBytes(bytes) },
      })
    const update = (description: string, headers = {}) =>
      world.call('PATCH', `/persona/${AGENT}?update_mask=description`, { token: admin, body: { description }, headers })

    const small = await enlarge(100 * 1024)
    t.equal(small.statusCode, 200, small.body)
    t.notMatch(small.headers.warning, /beyond/, 'every agent with the tool still has an answer')
    const dry = await enlarge(500 * 1024, '?dry_run=true')
    t.match(
      dry.headers.warning,
      /299 - "with this definition 1 agent that has the tool is beyond the 1048576 bytes of one answer/,
    )
    t.equal((await update('still answered')).statusCode, 200)
    const made = await enlarge(500 * 1024)
    t.equal(made.statusCode, 200)
    t.match(
      made.headers.warning,
      /1 agent that has the tool is beyond the 1048576 bytes .*return=minimal are answered"/,
    )
    t.notMatch((await enlarge(400 * 1024)).headers.warning, /beyond/, 'who makes it smaller is not at fault')

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
  },
)

t.test('the operator is told the same of a plan, of what is applied, and of a rollback', async t => {
  const world = await worldApp(t)
  const { database, vault } = world
  const beside = await toolOfBytes(world, 700 * 1024)
  await sql`delete from persona_tool where persona_id = ${AGENT} or tool_id = ${TOOL}`.execute(database.db)
  await sql`insert into persona_tool values (${AGENT}, ${beside}), (${AGENT}, ${TOOL})`.execute(database.db)
  const { rows } = await sql<{ name: string }>`select name from tool where id = ${TOOL}`.execute(database.db)
  const apply = async (bytes: number, plan: boolean) => {
    const tools = [{ id: TOOL, name: rows[0]?.name, definition: definitionOfBytes(bytes) }]
    const options = { vault, env: {}, snapshotBytesMax: SNAPSHOT_BYTES_MAX, plan }
    const report = await applyOrganisation(database, { version: 1, tools }, options)
    return report.outcomes.flatMap(({ notes = [] }) => notes)
  }
  t.match(await apply(500 * 1024, true), [/1 agent that has the tool is beyond the 1048576 bytes/])
  t.match(await apply(500 * 1024, false), [/1 agent that has the tool is beyond the 1048576 bytes/])
  t.strictSame(await apply(100, false), [])
  const large = await rollbackTool(database, vault, TOOL, 2, { plan: true, snapshotBytesMax: SNAPSHOT_BYTES_MAX })
  t.match(large.notes, [/1 agent that has the tool is beyond the 1048576 bytes/])
})

t.test('of the agents with a tool no more are looked at than a look may cost', async t => {
  const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(SNAPSHOT_BYTES_MAX) })
  const { db } = world.database
  const admin = await world.token('admin@example.com')
  const beside = await toolOfBytes(world, 1000 * 1024)
  await sql`
    with made as (
      insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, is_public)
      select 'one of many', '', 'auto', false, false, false from generate_series(1, 1001) returning id)
    insert into persona_tool (persona_id, tool_id)
    select made.id, tool from made cross join (values (${TOOL}::integer), (${beside}::integer)) tools (tool)`.execute(
    db,
  )
  const made = await world.call('PUT', `/admin/tool/custom/${TOOL}?dry_run=true`, {
    token: admin,
    body: { definition: definitionOfBytes(100 * 1024) },
  })
  t.match(made.headers.warning, /at least \d+ agents that have the tool are beyond/)
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
