import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { faultsOf } from '../updates/stored-state.js'

const AGENT = 11
const TOOL = 10

t.test(
  '422 of attaching more tools than an answer may take; 409 where they have grown, and 204 without them',
  async t => {
    const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
    const { db } = world.database
    const admin = await world.token('admin@example.com')
    const attach = (tool_ids: number[], id = AGENT, headers = {}) =>
      world.call('PATCH', `/persona/${id}?update_mask=tool_ids`, { token: admin, body: { tool_ids }, headers })
    const update = (description: string, headers = {}) =>
      world.call('PATCH', `/persona/${AGENT}?update_mask=description`, { token: admin, body: { description }, headers })
    const minimal = { prefer: 'return=minimal' }

    const [beside, large] = [await toolOfBytes(world, 700 * 1024), await toolOfBytes(world, 1100 * 1024)]
    t.equal((await attach([])).statusCode, 200)
    t.equal((await attach([beside])).statusCode, 200)
    const tooLarge = await attach([large])
    t.strictSame(faultsOf(tooLarge), ['body.tool_ids snapshot_too_large'])
    t.match(tooLarge.json().detail[0].msg, new RegExp(`bytes, most of them tool ${large} \\(\\d+\\)`))
    await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${large})`.execute(db)
    const read = await world.call('GET', `/persona/${AGENT}`, { token: admin })
    t.match(read.json(), { error_code: 'SNAPSHOT_TOO_LARGE' })
    t.equal(read.statusCode, 409)
    t.notMatch(read.json().detail, 'Nothing was changed')

    await sql`delete from persona_tool where persona_id = ${AGENT} or tool_id = ${TOOL}`.execute(db)
    await sql`insert into persona_tool (persona_id, tool_id)
    values (${AGENT}, ${beside}), (${AGENT}, ${TOOL}), (1, ${TOOL})`.execute(db)
    const body = { definition: definitionOfBytes(500 * 1024) }
    t.equal((await world.call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body })).statusCode, 200)
    const refused = await update('refused')
    t.equal(refused.statusCode, 409)
    t.match(refused.json().detail, /^Nothing was changed\. /)
    t.match(refused.json().detail, new RegExp(`most of them tool ${beside} \\(\\d+\\), tool ${TOOL} \\(\\d+\\)`))
    const stored = await update('stored', minimal)
    t.equal(stored.statusCode, 204, stored.body)
    t.equal((await update('stored', minimal)).statusCode, 204, 'nothing to change')
    const stale = String(stored.headers.etag).replace(/\d+"$/, '1"')
    const shown = await update('stored', { ...minimal, 'if-match': stale })
    t.equal(shown.statusCode, 409, 'to an old tag what is stored would have to be shown')
    const unshown = await attach([beside, TOOL], 1, minimal)
    t.strictSame(faultsOf(unshown), ['body.tool_ids snapshot_too_large'], 'no agent is made one that has no answer')
    const { rows } = await sql<{ description: string }>`select description from persona where id = ${AGENT}`.execute(db)
    t.equal(rows[0]?.description, 'stored')
  },
)

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
