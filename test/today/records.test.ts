import { readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'
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

type Model = 'full' | 'short' | 'tool' | 'label'
const models: Record<Model, object> = JSON.parse(
  readFileSync(new URL('../../../test/fixtures/today/models.json', import.meta.url), 'utf8'),
)
const ajv = new Ajv2020({ strictTypes: false, allErrors: true })

async function made(name: string): Promise<number> {
  const answer = await call('POST', '/api/persona', { token: admin, body: { ...SEVEN, name, users: [BOB] } })
  return answer.json().id
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
  const answers: [Awaited<ReturnType<typeof read>>, Model][] = [
    [created, 'full'],
    [await patch(`/persona/${id}`, { ...SEVEN, document_set_ids: [1, 2, 3], label_ids: [1] }), 'full'],
    [await patch(`/persona/${id}/share`, { is_public: true }), 'full'],
    [await patch(`/admin/persona/${id}/featured`, { is_featured: true }), 'full'],
    [await read(`/persona/${id}`, alice), 'full'],
    [await read('/persona'), 'short'],
    [await read('/admin/persona'), 'full'],
    [tool, 'tool'],
    [await read('/tool/10'), 'tool'],
    [await read('/tool'), 'tool'],
    [await read('/tool/openapi'), 'tool'],
    [await read('/persona/labels'), 'label'],
  ]
  for (const [answer, model] of answers) {
    t.ok(answer.statusCode < 300, answer.body)
    const isModel = ajv.compile(models[model])
    for (const record of [answer.json()].flat()) t.ok(isModel(record), JSON.stringify(isModel.errors))
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
  const id = await made('Levels')
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
  const id = await made('Unread')
  await sql`alter table user_group rename to user_group_gone`.execute(database.db)
  const answer = await call('PATCH', `/api/admin/persona/${id}/featured`, { token: admin, body: { is_featured: true } })
  await sql`alter table user_group_gone rename to user_group`.execute(database.db)
  t.match(answer, { statusCode: 503 })
  t.match(answer.json(), { error_code: 'SERVICE_UNAVAILABLE', outcome: 'applied' })
})

t.test('204 once for return=minimal, also of one-field changes', async t => {
  const id = await made('Brief')
  for (const [path, body] of [
    [`/persona/${id}/share`, { is_public: true }],
    [`/admin/persona/${id}/featured`, { is_featured: true }],
  ] as const) {
    const answer = await call('PATCH', `/api${path}`, { token: admin, body, headers: { prefer: 'return=minimal' } })
    t.match(answer, { statusCode: 204, body: '', headers: { 'preference-applied': 'return=minimal' } })
  }
})
