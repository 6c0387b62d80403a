import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { mintToken } from '../../src/auth/token.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { observedWorld } from '../security/observed.js'

/* The statements of an update, and the rows that it writes. */

const ALICES_AGENT = 1
const TOOL = 10
const ITEMS = definitionOf(10)
const VALIDATE = '/admin/tool/custom/validate'

t.test('round trips to the database, authentication included, when nobody else is at the same row', async t => {
  const { call, statements, token } = await observedWorld(t)
  const [alice, admin] = [await token('alice@example.com'), await token('admin@example.com')]
  const updateAgent = (fields: object, query = '', as = alice, headers = {}) =>
    call('PATCH', `/persona/${ALICES_AGENT}${query}`, { token: as, body: { ...REQUIRED_FIELDS, ...fields }, headers })
  const updateTool = (fields: object, query = '') =>
    call('PUT', `/admin/tool/custom/${TOOL}${query}`, { token: admin, body: fields })
  const validate = (definition: unknown) => call('POST', VALIDATE, { token: admin, body: { definition } })

  // Warms up: the first use of a token in a minute is recorded in a separate statement.
  await updateAgent({})
  await updateTool({ definition: ITEMS, custom_headers: [{ key: 'X-Key', value: 'one' }] })
  await validate(ITEMS)

  const counted = async (answer: () => Promise<LightMyRequestResponse>) => {
    statements.length = 0
    const { statusCode } = await answer()
    return { statusCode, statements: statements.length }
  }
  const change = (body: object, query = '', headers = {}) => {
    const url = `/persona/${ALICES_AGENT}?update_mask=${Object.keys(body)}${query}`
    return call('PATCH', url, { token: alice, body, headers })
  }
  await change({}) // reads the definitions into the cache
  const unknown = mintToken('person').token
  const headers = [{ key: 'X-Key', value: 'two' }]
  const cases: [string, () => Promise<LightMyRequestResponse>, status: number, statements: number][] = [
    ['an agent update that changes a column', () => change({ description: 'two' }), 200, 2],
    ['return=minimal', () => change({ description: 'three' }, '', { prefer: 'return=minimal' }), 204, 2],
    ['with a key', () => change({ description: 'four' }, '', { 'idempotency-key': 'one' }), 200, 9],
    ['new labels', () => change({ label_ids: [1, 2] }), 200, 10],
    ['fewer labels', () => change({ label_ids: [1] }), 200, 8],
    ['an agent update that changes nothing', () => change({ label_ids: [1] }), 200, 2],
    ['a dry run', () => change({ description: 'five' }, '&dry_run=true'), 200, 2],
    ['a read of an agent', () => call('GET', `/persona/${ALICES_AGENT}`, { token: alice }), 200, 1],
    ['a tool update', () => updateTool({ name: 'two' }), 200, 2],
    ['a new definition', () => updateTool({ definition: definitionOf(11) }), 200, 3],
    ['another one', () => updateTool({ definition: definitionOf(12) }), 200, 3],
    ['a definition of before', () => updateTool({ definition: definitionOf(11) }), 200, 2],
    ['headers', () => updateTool({ custom_headers: headers }), 200, 9],
    ['a tool update that changes nothing', () => updateTool({}), 200, 2],
    ['a validation', () => validate(ITEMS), 200, 1],
    ['a faulty agent update', () => updateAgent({ num_chunks: 'many' }), 422, 1],
    ['a faulty definition', () => validate({}), 422, 1],
    ['an unknown token', () => updateAgent({}, '', unknown), 401, 1],
    ['a token whose checksum is wrong', () => updateAgent({}, '', `pat_${'0'.repeat(28)}`), 401, 0],
    ['no token', () => call('PATCH', '/persona/1', { body: REQUIRED_FIELDS }), 401, 0],
  ]
  for (const [what, request, statusCode, statements] of cases)
    t.match(await counted(request), { statusCode, statements }, what)
})

t.test('200 for a definition that was stored, and pruned since', async t => {
  const { call, database, admin } = await worldApp(t)
  const update = (definition: unknown) =>
    call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { definition } })
  await update(definitionOf(13))
  await update(ITEMS)
  await sql`update audit set definition_before = null`.execute(database.db)
  await sql`delete from tool_definition where hash not in (select definition_hash from tool where definition_hash is not null)`.execute(
    database.db,
  )
  const { statusCode, body } = await update(definitionOf(13))
  t.equal(statusCode, 200)
  t.match(body, JSON.stringify(definitionOf(13)))
})

t.test('what an update does not change is not written', async t => {
  const { call, database, alice, admin } = await worldApp(t)
  const agent = { ...REQUIRED_FIELDS, tool_ids: [10, 13], label_ids: [1, 2] }
  const tool = { definition: ITEMS, custom_headers: [{ key: 'X-Key', value: 'one' }] }
  const updateAgent = (fields: object) =>
    call('PATCH', `/persona/${ALICES_AGENT}`, { token: alice, body: { ...agent, ...fields } })
  const updateTool = (fields: object) => call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: fields })
  const ofAgent = `persona_id = ${ALICES_AGENT}`
  const links = { persona_tool: ofAgent, persona_document_set: ofAgent, persona_label: ofAgent }
  const ofTool = { tool: `id = ${TOOL}`, tool_header: `tool_id = ${TOOL}`, tool_definition: 'true' }
  const ROWS = { persona: `id = ${ALICES_AGENT}`, ...links, ...ofTool, audit: 'true' }
  /** Returns the location and transaction of each row version. Any write changes them, even with equal values. */
  const places = async () => {
    const lists = Object.entries(ROWS).map(([table, where]) =>
      sql.raw(`(select json_agg(ctid || ' ' || xmin order by ctid) from ${table} where ${where}) as ${table}`),
    )
    const { rows } = await sql<Record<string, unknown>>`select ${sql.join(lists)}`.execute(database.db)
    return rows[0] ?? {}
  }
  const movedBy = async (update: () => Promise<LightMyRequestResponse>) => {
    const before = await places()
    const { statusCode, body } = await update()
    if (statusCode !== 200) throw new Error(body)
    const after = await places()
    return Object.keys(after).filter(name => JSON.stringify(after[name]) !== JSON.stringify(before[name]))
  }
  await updateAgent({})
  const { custom_headers } = (await updateTool(tool)).json()

  t.same(await movedBy(() => updateAgent({})), [], 'an agent update that changes nothing')
  t.same(await movedBy(() => updateTool({ ...tool, custom_headers })), [], 'a tool update that changes nothing')
  t.same(await movedBy(() => updateAgent({ description: 'two' })), ['persona', 'audit'], 'one column of an agent')
  t.same(await movedBy(() => updateAgent({ description: 'two', label_ids: [2] })), [
    'persona',
    'persona_label',
    'audit',
  ])
  t.same(await movedBy(() => updateTool({ name: 'renamed' })), ['tool', 'audit'], 'one column of a tool')
  const sealed = { custom_headers: [{ key: 'X-Key', value: 'two' }] }
  t.same(await movedBy(() => updateTool(sealed)), ['tool', 'tool_header', 'audit'], 'the headers of a tool')
})
