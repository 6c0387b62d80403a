import { sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { worldApp } from '../app.js'
import { ALICE, BOB, CAROL } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, versionOf } from './stored-state.js'

const world = await worldApp(t)
const { call, admin, alice } = world
const { db } = world.database

t.afterEach(async () => t.same((await verifyAudit(db)).findings, [], 'each chain is whole'))

t.test('one row for each effective change of an agent, none for what is refused, dry or without effect', async t => {
  const edit = (body: Record<string, unknown>, headers = {}) =>
    call('PATCH', `/persona/11?update_mask=${Object.keys(body)}`, { token: alice, body, headers })
  const before = await auditRows(db, 'persona', 11)
  const asked = new Date().toISOString()
  const answer = await edit(
    { icon_name: null, tool_ids: [13, 1], name: 'Next', users: [], search_start_date: '2025-01-01', description: 'd' },
    { 'x-request-id': 'request-1' },
  )
  t.equal(answer.statusCode, 200, answer.body)
  const [row, ...others] = (await auditRows(db, 'persona', 11)).slice(before.length)
  t.equal(others.length, 0)
  const found = await db.selectFrom('token').select('id').where('user_id', '=', ALICE).executeTakeFirstOrThrow()
  t.match(row, {
    version_before: versionOf(answer) - 1,
    version_after: versionOf(answer),
    actor: 'alice@example.com',
    actor_id: ALICE,
    token_id: found.id,
    request_id: /^request-1\.[\w-]{16}$/,
    client_address: '127.0.0.1',
    at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/,
  })
  const at = String(row?.at).replace(/\d{3}Z$/, 'Z') // without microseconds
  t.ok(asked <= at && at <= new Date().toISOString(), at)
  t.same(row?.fields, ['name', 'description', 'tool_ids', 'users', 'icon_name', 'search_start_date'])
  t.same(row?.difference, {
    name: { from: 'Full', to: 'Next' },
    description: { from: 'Full description', to: 'd' },
    tool_ids: { from: [1, 10], to: [1, 13] },
    users: { from: [BOB, CAROL].map(id => ({ id, level: 'viewer' })), to: [] },
    icon_name: { from: 'Star', to: null },
    search_start_date: { from: '2024-01-02T03:04:05.000000Z', to: '2025-01-01T00:00:00.000000Z' },
  })
  for (const [expected, ask] of [
    [200, () => edit({ name: 'Next' })],
    [422, () => edit({ name: '' })],
    [422, () => edit({ name: 'x', tool_ids: [424242] })],
    [412, () => edit({ name: 'x' }, { 'if-match': '"persona-11-1"' })],
    [200, () => call('PATCH', '/persona/11?update_mask=name&dry_run=true', { token: alice, body: { name: 'x' } })],
    [200, () => edit({ display_priority: 77 })],
  ] as const)
    t.equal((await ask()).statusCode, expected)
  t.equal((await auditRows(db, 'persona', 11)).length, before.length + 1)
})

t.test('each of 63 sets of columns, more than there are prepared statements for, stores all its values', async t => {
  const names = ['name', 'description', 'system_prompt', 'num_chunks', 'starter_messages', 'task_prompt']
  for (let set = 1; set < 64; set++) {
    const messages = set % 5 ? [{ name: `m${set}`, message: 'hi' }] : null
    const values = [`n${set}`, `d${set}`, `s${set}`, set, messages, `t${set}`]
    const body = Object.fromEntries(names.map((name, i) => [name, values[i]]).filter((_, i) => set & (1 << i)))
    const before = (await call('GET', '/persona/4', { token: admin })).json()
    const answer = await call('PATCH', `/persona/4?update_mask=${Object.keys(body)}`, { token: admin, body })
    t.equal(answer.statusCode, 200, answer.body)
    t.same((await call('GET', '/persona/4', { token: admin })).json(), { ...before, ...body })
  }
})

t.test('a chain of changes by two people, with texts that JSON escapes; times do not run back', async t => {
  const people = [alice, admin]
  for (let i = 0; i < 21; i++) {
    const body = i % 7 === 0 ? { label_ids: [1 + ((i / 7) % 3)], name: `é"\\ ${i}\n\u2028` } : { task_prompt: `${i}` }
    const url = `/persona/1?update_mask=${Object.keys(body)}`
    t.equal((await call('PATCH', url, { token: people[i % 2] as string, body })).statusCode, 200)
  }
  const rows = await auditRows(db, 'persona', 1)
  t.equal(rows.length, 22, 'its making and 21 changes')
  const times = rows.map(row => row.at)
  t.same([...times].sort(), times)
})

t.test("a tool's rows hold masks and hashes, no secret, and its definition's order", async t => {
  const put = (body: object) => call('PUT', '/admin/tool/custom/16', { token: admin, body })
  const before = await auditRows(db, 'tool', 16)
  const paths = { '/b': { get: { summary: 'B', operationId: 'b' } }, '/a': { get: { operationId: 'a', summary: 'A' } } }
  const definition = { ...DEFINITION, paths }
  const custom_headers = [{ key: 'X-B', value: 'top-secret-1' }]
  const first = await put({ custom_headers, definition, oauth_config_id: null, name: 'n' })
  t.equal(first.statusCode, 200, first.body)
  await put({ custom_headers: [{ key: 'X-B', value: 'top-secret-2' }], passthrough_auth: true })
  const rows = (await auditRows(db, 'tool', 16)).slice(before.length)
  t.same(rows[0]?.fields, ['name', 'definition', 'custom_headers', 'oauth_config_id'])
  t.same(rows[1]?.fields, ['custom_headers', 'passthrough_auth'])
  const masked = (key: string) => ({ key, value: /^\*{4}#[0-9a-f]{12}$/ })
  t.match(rows[0]?.difference, {
    custom_headers: { from: [masked('Authorization'), masked('X-B')], to: [masked('X-B')] },
    definition: { from: /^[0-9a-f]{64}$/, to: /^[0-9a-f]{64}$/ },
  })
  t.equal(rows[0]?.definition_before?.toString('hex'), rows[0]?.difference?.definition?.from)
  t.equal(rows[1]?.definition_before, null)
  const everything = await sql<{ text: string }>`select string_agg(a::text, '') as text from audit a`.execute(db)
  t.notMatch(everything.rows[0]?.text, /top-secret|Bearer abc/)
  t.match((await put({})).body, JSON.stringify(definition), 'the definition comes back with its keys in order')
})
