import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { worldApp } from '../app.js'
import { ALICE, BOB } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { SEVEN } from './seven.js'

/* The fields that the models of today's product require of each answer, with their types. */

const world = await worldApp(t)
const { call, database } = world
const admin = await world.token('admin@example.com')
const alice = await world.token('alice@example.com')

const isText = (value: unknown) => typeof value === 'string'
const isId = (value: unknown) => Number.isInteger(value)
const isFlag = (value: unknown) => typeof value === 'boolean'
const isNull = (value: unknown) => value === null
const isLevel = (value: unknown) => value === 'EDITOR' || value === 'VIEWER'
type Check = (value: unknown) => boolean
const orNull =
  (check: Check): Check =>
  value =>
    value === null || check(value)
const listOf =
  (check: Check): Check =>
  value =>
    Array.isArray(value) && value.every(check)
const has =
  (fields: Record<string, Check>): Check =>
  value =>
    Object.entries(fields).every(([name, check]) => check((value as Record<string, unknown> | null)?.[name]))

const USER = { id: isText, email: isText }
const TOOL = {
  ...{ id: isId, name: isText, description: isText, display_name: isText, passthrough_auth: isFlag },
  definition: orNull(value => typeof value === 'object'),
  ...{ in_code_tool_id: orNull(isText), custom_headers: orNull(Array.isArray) },
}
const SET = {
  ...{ id: isId, name: isText, description: orNull(isText), is_up_to_date: isFlag, is_public: isFlag },
  ...{ users: listOf(isText), groups: listOf(isId) },
  cc_pair_summaries: listOf(has({ id: isId, name: orNull(isText), source: isText, access_type: isText })),
}
/** What the short record and the full one have in common. */
const BOTH = {
  ...{ id: isId, name: isText, description: isText, tools: listOf(has(TOOL)), document_sets: listOf(has(SET)) },
  starter_messages: orNull(listOf(has({ name: isText, message: isText }))),
  ...{ uploaded_image_id: orNull(isText), icon_name: orNull(isText), is_public: isFlag, is_listed: isFlag },
  ...{ display_priority: orNull(isId), is_featured: isFlag, builtin_persona: isFlag },
  ...{ labels: listOf(has({ id: isId, name: isText })), owner: orNull(has(USER)), owner_group: isNull },
}
const SHORT = {
  ...{ ...BOTH, hierarchy_node_count: isId, attached_document_count: isId, knowledge_sources: listOf(isText) },
  default_model_configuration_id: isNull,
}
const FULL = {
  ...{ ...BOTH, user_file_ids: listOf(isText), users: listOf(has(USER)), groups: listOf(isId) },
  user_shares: listOf(has({ user: has(USER), permission: isLevel })),
  group_shares: listOf(has({ group_id: isId, group_name: isText, permission: isLevel })),
  ...{
    public_permission: isLevel,
    sharing_status: (value: unknown) => /^(PRIVATE|SHARED|PUBLIC)$/.test(String(value)),
  },
}

t.test('each answer has what the models of today require', async t => {
  const [group] = await database.db.selectFrom('user_group').select('name').orderBy('id').execute()
  const shares = {
    users: [{ email: 'bob@example.com', level: 'editor' }],
    groups: [{ name: group?.name, level: 'viewer' }],
  }
  const whole = { llm_filter_extraction: true, llm_relevance_filter: false, recency_bias: 'auto', is_public: false }
  const agent = { name: 'Shared by levels', description: '', owner: 'alice@example.com', ...whole, ...shares }
  await applyOrganisation(database, { version: 1, agents: [agent] }, { ring: undefined as never, env: {} })
  const created = await call('POST', '/api/persona', { token: alice, body: { ...SEVEN, users: [BOB], tool_ids: [10] } })
  const { id } = created.json()
  const made = { name: 'weather', definition: DEFINITION, passthrough_auth: false }
  const tool = await call('POST', '/api/admin/tool/custom', { token: admin, body: made })
  const read = (path: string, token = admin) => call('GET', `/api${path}`, { token })
  const patch = (path: string, body: object) => call('PATCH', `/api${path}`, { token: admin, body })
  const answers = [
    [created, FULL],
    [await patch(`/persona/${id}`, { ...SEVEN, document_set_ids: [1, 2, 3], label_ids: [1] }), FULL],
    [await patch(`/persona/${id}/share`, { is_public: true }), FULL],
    [await patch(`/admin/persona/${id}/featured`, { is_featured: true }), FULL],
    [await read(`/persona/${id}`, alice), FULL],
    [await read('/persona'), SHORT],
    [await read('/admin/persona'), FULL],
    [tool, TOOL],
    [await read('/tool/10'), TOOL],
    [await read('/tool'), TOOL],
    [await read('/tool/openapi'), TOOL],
    [await read('/persona/labels'), { id: isId, name: isText }],
  ] as const
  for (const [answer, fields] of answers) {
    t.ok(answer.statusCode < 300, answer.body)
    const shown = answer.json()
    for (const record of Array.isArray(shown) ? shown : [shown]) {
      const wrong = Object.entries(fields).filter(([name, check]) => !(check as Check)(record[name]))
      t.strictSame(
        wrong.map(([name]) => `${name}: ${JSON.stringify(record[name])}`),
        [],
      )
    }
  }
  const all = (await read('/admin/persona')).json()
  t.match(
    all.find(({ name }: { name: string }) => name === agent.name),
    {
      user_shares: [{ user: { id: BOB, email: 'bob@example.com' }, permission: 'EDITOR' }],
      group_shares: [{ group_name: group?.name, permission: 'VIEWER' }],
      ...{ owner: { id: ALICE }, sharing_status: 'SHARED', public_permission: 'VIEWER' },
    },
  )
  t.match(
    all.find((one: { id: number }) => one.id === id),
    { sharing_status: 'PUBLIC' },
  )
})

t.test('a dry run shows the groups and levels that it would store; an earlier version only known levels', async t => {
  const id = (
    await call('POST', '/api/persona', { token: admin, body: { ...SEVEN, name: 'Levels', users: [BOB] } })
  ).json().id
  const [group] = await database.db.selectFrom('user_group').select(['id', 'name']).orderBy('id').execute()
  const path = `/api/persona/${id}/share`
  const body = { user_ids: [], group_ids: [group?.id] }
  const dry = await call('PATCH', `${path}?dry_run=true`, { token: admin, body })
  const shared = [{ group_id: group?.id, group_name: group?.name, permission: 'VIEWER' }]
  t.same(dry.json().group_shares, shared)
  t.same((await call('PATCH', path, { token: admin, body })).json().group_shares, shared)
  const past = (await call('GET', `/api/persona/${id}?version=1`, { token: admin })).json()
  t.match(past, { users: [{ id: BOB }], user_shares: [], group_shares: [], sharing_status: 'SHARED' })
})

t.test('503 applied where the shares cannot be read after a change is stored', async t => {
  const id = (
    await call('POST', '/api/persona', { token: admin, body: { ...SEVEN, name: 'Unread', users: [BOB] } })
  ).json().id
  await sql`alter table user_group rename to user_group_gone`.execute(database.db)
  const answer = await call('PATCH', `/api/admin/persona/${id}/featured`, { token: admin, body: { is_featured: true } })
  await sql`alter table user_group_gone rename to user_group`.execute(database.db)
  t.match(answer, { statusCode: 503 })
  t.match(answer.json(), { error_code: 'SERVICE_UNAVAILABLE', outcome: 'applied' })
})

t.test('204 once for return=minimal, also of one-field changes', async t => {
  const id = (await call('POST', '/api/persona', { token: admin, body: { ...SEVEN, name: 'Brief' } })).json().id
  for (const [path, body] of [
    [`/persona/${id}/share`, { is_public: true }],
    [`/admin/persona/${id}/featured`, { is_featured: true }],
  ] as const) {
    const answer = await call('PATCH', `/api${path}`, { token: admin, body, headers: { prefer: 'return=minimal' } })
    t.match(answer, { statusCode: 204, body: '', headers: { 'preference-applied': 'return=minimal' } })
  }
})
