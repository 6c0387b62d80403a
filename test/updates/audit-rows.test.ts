import { type Kysely, sql } from 'kysely'
import t from 'tap'
import type { Database, ResourceKind } from '../../src/db/tables.js'
import { BLANK_AGENT } from '../../src/persona/fields.js'
import { auditedPersona } from '../../src/persona/resource.js'
import { BLANK_TOOL } from '../../src/tool/fields.js'
import { auditedTool } from '../../src/tool/resource.js'
import { auditHash, commitment, GENESIS_HASH, sha256 } from '../../src/updates/audit.js'
import { worldApp } from '../app.js'
import { auditRows, only, versionOf } from './stored-state.js'

/** The first row of a resource whose hash, place or difference is not what the chain says, or `null`. */
async function firstBrokenLink(db: Kysely<Database>, kind: ResourceKind, id: number): Promise<number | null> {
  const { rows: differences } = await sql<{ version_after: number; text: string }>`
    select version_after, difference::text as text from audit
    where resource_kind = ${kind} and resource_id = ${id}`.execute(db)
  const texts = new Map(differences.map(({ version_after, text }) => [version_after, text]))
  let previous = GENESIS_HASH
  for (const row of await auditRows(db, kind, id)) {
    const entry = {
      ...row,
      difference_hash: row.difference_hash.toString('hex'),
      definition_before: row.definition_before?.toString('hex') ?? null,
      identity_hash: row.identity_hash?.toString('hex') ?? null,
      content_hash: row.content_hash?.toString('hex') ?? null,
      previous_hash: row.previous_hash.toString('hex'),
    }
    const whole =
      entry.previous_hash === previous &&
      auditHash(entry) === row.hash.toString('hex') &&
      commitment(row.salt ?? '', row.actor, row.client_address) === entry.identity_hash &&
      sha256(texts.get(row.version_after) ?? '') === entry.difference_hash
    if (!whole) return row.version_after
    previous = row.hash.toString('hex')
  }
  const head = await db
    .selectFrom(kind)
    .select(['audit_head', 'audit_count', 'version'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow()
  const rows = await auditRows(db, kind, id)
  const agrees = head.audit_head.toString('hex') === previous && Number(head.audit_count) === rows.length
  return agrees && rows.at(-1)?.version_after === head.version ? null : Number.POSITIVE_INFINITY
}

t.test('one row for each effective change of an agent', async t => {
  const { call, token, database } = await worldApp(t)
  const alice = await token('alice@example.com')
  const edit = (body: Record<string, unknown>, headers = {}) =>
    call('PATCH', `/persona/11?update_mask=${Object.keys(body).join(',')}`, { token: alice, body, headers })
  const before = await auditRows(database.db, 'persona', 11)
  const answer = await edit(
    { icon_name: null, tool_ids: [13, 1], name: 'Next', users: [], search_start_date: '2025-01-01', description: 'd' },
    { 'x-request-id': 'request-1' },
  )
  t.equal(answer.statusCode, 200, answer.body)
  const row = only((await auditRows(database.db, 'persona', 11)).slice(before.length))
  const { id } = await database.db
    .selectFrom('user_account')
    .select('id')
    .where('email', '=', 'alice@example.com')
    .executeTakeFirstOrThrow()
  const { id: tokenId } = await database.db
    .selectFrom('token')
    .select('id')
    .where('user_id', '=', id)
    .executeTakeFirstOrThrow()
  t.match(row, {
    version_before: versionOf(answer) - 1,
    version_after: versionOf(answer),
    actor: 'alice@example.com',
    actor_id: id,
    token_id: tokenId,
    request_id: /^request-1\.[\w-]{16}$/,
    client_address: '127.0.0.1',
    at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/,
  })
  t.ok(Math.abs(Date.parse(row.at) - Date.now()) < 60_000)
  t.same(row.fields, ['name', 'description', 'tool_ids', 'users', 'icon_name', 'search_start_date'])
  t.same(row.difference, {
    name: { from: 'Full', to: 'Next' },
    description: { from: 'Full description', to: 'd' },
    tool_ids: { from: [1, 10], to: [1, 13] },
    users: {
      from: [
        { id: 'a0000000-0000-4000-8000-000000000005', level: 'viewer' },
        { id: 'a0000000-0000-4000-8000-000000000010', level: 'viewer' },
      ],
      to: [],
    },
    icon_name: { from: 'Star', to: null },
    search_start_date: { from: '2024-01-02T03:04:05.000000Z', to: '2025-01-01T00:00:00.000000Z' },
  })
  t.equal(await firstBrokenLink(database.db, 'persona', 11), null)

  t.test('none for what is refused, dry or without effect', async t => {
    const rows = (await auditRows(database.db, 'persona', 11)).length
    for (const [expected, ask] of [
      [200, () => edit({ name: 'Next' })],
      [422, () => edit({ name: '' })],
      [422, () => edit({ name: 'x', tool_ids: [424242] })],
      [412, () => edit({ name: 'x' }, { 'if-match': '"persona-11-1"' })],
      [200, () => call('PATCH', '/persona/11?update_mask=name&dry_run=true', { token: alice, body: { name: 'x' } })],
      [200, () => edit({ display_priority: 77 })],
    ] as const) {
      t.equal((await ask()).statusCode, expected)
    }
    t.equal((await auditRows(database.db, 'persona', 11)).length, rows)
  })
})

t.test('the chain of 100 changes, and what breaks it', async t => {
  const { call, token, database } = await worldApp(t)
  const people = [await token('alice@example.com'), await token('admin@example.com')]
  for (let i = 0; i < 100; i++) {
    const body = i % 7 === 0 ? { label_ids: [1 + ((i / 7) % 3)], name: `é"\\ ${i}\n\u2028` } : { task_prompt: `${i}` }
    const url = `/persona/1?update_mask=${Object.keys(body).join(',')}`
    const answer = await call('PATCH', url, { token: people[i % 2] as string, body })
    if (answer.statusCode !== 200) t.fail(answer.body)
  }
  const { db } = database
  const rows = await auditRows(db, 'persona', 1)
  t.equal(rows.length, 101, 'its making and 100 changes')
  t.equal(await firstBrokenLink(db, 'persona', 1), null)
  const times = rows.map(row => row.at)
  t.same([...times].sort(), times, 'times do not run back')

  const broken = async (change: (trx: Kysely<Database>) => Promise<unknown>) => {
    const trx = await db.startTransaction().execute()
    try {
      await change(trx)
      return await firstBrokenLink(trx, 'persona', 1)
    } finally {
      await trx.rollback().execute()
    }
  }
  const where = sql`resource_kind = 'persona' and resource_id = 1`
  t.equal(await broken(trx => sql`update audit set actor = 'x' where ${where} and version_after = 50`.execute(trx)), 50)
  t.equal(
    await broken(trx => sql`update audit set difference = '{}' where ${where} and version_after = 51`.execute(trx)),
    51,
  )
  t.equal(
    await broken(trx =>
      sql`update audit set at = at + interval '1 microsecond' where ${where} and version_after = 52`.execute(trx),
    ),
    52,
  )
  t.equal(await broken(trx => sql`delete from audit where ${where} and version_after = 53`.execute(trx)), 54)
  t.equal(await broken(trx => sql`delete from audit where ${where} and version_after > 90`.execute(trx)), Infinity)
})

t.test("a tool's rows hold masks and hashes, no secret, and its definition's order", async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const put = (body: object) => call('PUT', '/admin/tool/custom/16', { token: admin, body })
  const before = await auditRows(database.db, 'tool', 16)
  const definition = {
    openapi: '3.1.0',
    info: { title: 'T' },
    servers: [{ url: 'https://example.com' }],
    paths: { '/b': { get: { summary: 'B', operationId: 'b' } }, '/a': { get: { operationId: 'a', summary: 'A' } } },
  }
  const first = await put({
    custom_headers: [{ key: 'X-B', value: 'top-secret-1' }],
    definition,
    oauth_config_id: null,
    name: 'n',
  })
  t.equal(first.statusCode, 200, first.body)
  await put({ custom_headers: [{ key: 'X-B', value: 'top-secret-2' }], passthrough_auth: true })
  const rows = (await auditRows(database.db, 'tool', 16)).slice(before.length)
  t.same(
    rows.map(row => row.fields),
    [
      ['name', 'definition', 'custom_headers', 'oauth_config_id'],
      ['custom_headers', 'passthrough_auth'],
    ],
  )
  t.match(rows[0]?.difference, {
    custom_headers: {
      from: [
        { key: 'Authorization', value: /^\*{4}#[0-9a-f]{12}$/ },
        { key: 'X-B', value: /^\*{4}#/ },
      ],
      to: [{ key: 'X-B', value: /^\*{4}#/ }],
    },
    definition: { from: /^[0-9a-f]{64}$/, to: /^[0-9a-f]{64}$/ },
  })
  t.equal(rows[0]?.definition_before?.toString('hex'), rows[0]?.difference?.definition?.from)
  t.equal(rows[1]?.definition_before, null)
  const everything = await sql<{ text: string }>`select string_agg(a::text, '') as text from audit a`.execute(
    database.db,
  )
  t.notMatch(everything.rows[0]?.text, /top-secret|Bearer abc/)
  t.equal(await firstBrokenLink(database.db, 'tool', 16), null)
  const read = await put({})
  t.match(read.body, JSON.stringify(definition), 'the definition comes back with its keys in order')
})

t.test('a field that a later version adds changes no stored hash of a content: what is blank is not in it', async t => {
  t.strictSame(auditedPersona(BLANK_AGENT), [])
  t.strictSame(auditedTool(BLANK_TOOL, []), [[], null, []])
  const agent = { ...BLANK_AGENT, name: 'Agent', is_visible: false, tool_ids: [1], starter_messages: [] }
  t.strictSame(auditedPersona(agent), [
    ['name', 'Agent'],
    ['tool_ids', [1]],
    ['starter_messages', []],
    ['is_visible', false],
  ])
  t.strictSame(auditedTool({ ...BLANK_TOOL, name: 'tool' }, [{ name: 'x-key', fingerprint: '00' }]), [
    [['name', 'tool']],
    null,
    [['x-key', '00']],
  ])
})
