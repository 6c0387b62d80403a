import { sql } from 'kysely'
import t from 'tap'
import { placeholder } from '../../src/admin/apply/tools.js'
import { type ApplyOptions, countOutcomes } from '../../src/admin/apply.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import type { Fault } from '../../src/errors.js'
import { appOver } from '../app.js'
import { untilWaiting } from '../eventually.js'
import { worldDatabase } from '../world.js'

const { database, token, apply, query } = await worldDatabase(t)
const { db } = database
const counts = async (document: object) => countOutcomes(await apply(document))

async function faultsOf(document: object, options: Partial<ApplyOptions> = {}): Promise<Fault[]> {
  const error = await apply(document, options).catch((error: unknown) => error)
  if (error instanceof Error && !(error instanceof InvalidDocument)) throw error
  return error instanceof InvalidDocument ? error.faults : []
}

/** Applies a document that must wait for a transaction with `change`, and then commits the transaction. Returns the error. */
async function overtaken(document: object, change: ReturnType<typeof sql>): Promise<unknown> {
  const other = await db.startTransaction().execute()
  await change.execute(other)
  const applied = apply(document).catch((error: unknown) => error)
  await untilWaiting(db)
  await other.commit().execute()
  return await applied
}

t.test('files whose ids UTF-16 and UTF-8 order differently: applied again, nothing changes', async t => {
  const files = ['\uFFFDa', '\u{1F600}'].map(id => ({ id, name: id, owner: 'alice@example.com' }))
  const document = { user_files: files, agents: [{ id: 11, name: 'Full', user_files: files.map(file => file.id) }] }
  for (const changed of [1, 0]) t.match(await counts(document), { changed })
})

t.test('a variable is read only under the prefix AGENTS_', async t => {
  const env = { AGENTS_KEY: 'allowed', AGENTS_EMPTY: '', SECRET_KEYS: 'the ring' }
  const found = async (variable: string) => {
    const tools = [{ id: 16, custom_headers: [{ key: 'Authorization', value: placeholder(variable) }] }]
    return (await faultsOf({ tools }, { env, plan: true })).map(({ type, msg }) => `${type}: ${msg}`)
  }
  t.same(await found('AGENTS_KEY'), [])
  for (const name of ['AGENTS_EMPTY', 'AGENTS_NONE'])
    t.same(await found(name), [`variable_missing: the environment variable ${name} must be set and must not be empty`])
  t.same(await found('SECRET_KEYS'), [
    'variable_missing: the environment variable SECRET_KEYS cannot be used: its name must begin with AGENTS_',
  ])
})

t.test('a document accepts the same emails as agentctl user create', async t => {
  for (const email of ['abc', '@', 'a b@example.com', `${'a'.repeat(400)}@example.com`, 'a@b\u001b']) {
    const msg = 'must be an email address such as alice@example.com'
    const found = [{ loc: ['users', 0, 'email'], msg, type: 'email_invalid' }]
    t.same(await faultsOf({ users: [{ email }] }), found, email)
  }
})

t.test('an id near the end of its sequence is refused; later ids continue after given ones', async t => {
  const last = { labels: [{ id: 2_147_483_647, name: 'last' }] }
  t.match(await faultsOf(last), [{ loc: ['labels', 0, 'id'], type: 'less_than_equal' }])
  const faulty = { labels: [{ id: 900, name: 'x' }], agents: [{ id: 950, name: 'z', tools: ['none'] }] }
  t.match(await faultsOf(faulty), [{ type: 'not_found' }])
  const made = async (labels: object[]) => (await apply({ labels })).outcomes.map(({ id }) => Number(id))
  const [first = 0] = await made([{ name: 'next' }])
  t.ok(first < 900, 'a refused document takes no id')
  const [given, second] = await made([{ id: first + 1, name: 'given' }, { name: 'beside' }])
  t.same([given, second], [first + 1, first + 2])
  t.same(await made([{ name: 'after' }]), [first + 3])
})

t.test('two concurrent applies create each row once', async t => {
  const agents = Array.from({ length: 20 }, (_, index) => ({ name: `twin ${index}`, owner: 'bob@example.com' }))
  const reports = await Promise.all([1, 2, 3, 4].map(() => counts({ agents })))
  t.same(reports.map(({ created }) => created).sort(), [0, 0, 0, 20])
  t.match(await counts({ agents }), { unchanged: 20 })
})

t.test('an id that somebody else took meanwhile is refused, nothing is stored, and again it is applied', async t => {
  const document = { agents: [{ id: 970, name: 'mine' }], labels: [{ name: 'beside another' }] }
  const taking = sql`insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
    values (970, 'another', '', 'auto', true, true)`
  const message = 'agent 970 was created meanwhile, so nothing was stored: run apply again'
  t.match(await overtaken(document, taking), { message })
  t.same(await query`select from label where name = 'beside another'`, [])
  t.match(await counts(document), { created: 1, changed: 1 })
})

t.test('a row that changes while apply waits for it is refused, and nothing is stored', async t => {
  for (const [kind, section, id] of [
    ['persona', 'agents', 12],
    ['tool', 'tools', 11],
  ] as const) {
    const document = { [section]: [{ id, description: 'by apply' }] }
    const change = sql`update ${sql.table(kind)} set name = 'Renamed', version = version + 1 where id = ${id}`
    const message = /^(agent|tool) \d+ was changed meanwhile, so nothing was stored: run apply again$/
    t.match(await overtaken(document, change), { message })
    const rows = await query`select name, description from ${sql.table(kind)} where id = ${id}`
    t.match(rows, [{ name: 'Renamed', description: /^(?!by apply)/ }])
    t.match(await counts(document), { changed: 1 })
  }
})

t.test('a name finds only a row of the owner that the entry names, regardless of who gave the name', async t => {
  const { call } = await appOver(t, database)
  const [admin, alice, bob] = ['admin@example.com', 'alice@example.com', 'bob@example.com']
  const manager = 'gcurator@example.com'
  for (const [method, path, name, email] of [
    ['PATCH', '/persona/1?update_mask=name', 'Release notes', alice],
    ['PATCH', '/persona/6?update_mask=name', 'Ownerless', admin],
    ['PUT', '/admin/tool/custom/15', 'crm', manager],
  ] as const)
    t.equal((await call(method, path, { token: await token(email), body: { name } })).statusCode, 200)
  await query`delete from audit where resource_kind = 'persona' and resource_id = 6`
  await query`insert into oauth_config (name, owner_id) select 'CRM login', id from user_account where email = ${bob}`
  const unowned = /^a name alone does not identify the \w+, because users can rename (agents|tools): add the id or/
  const another = /two entries match this \w+: remove one/
  const oauth = /^OAuth config \d+ already has this name: choose another name, or give this entry the id \d+/
  const refused: [document: object, loc: (string | number)[], said: RegExp][] = [
    [{ agents: [{ name: 'Release notes' }] }, ['agents', 0, 'owner'], unowned],
    [{ agents: [{ name: 'Ownerless', owner: null }] }, ['agents', 0, 'owner'], unowned],
    [{ tools: [{ name: 'crm' }] }, ['tools', 0, 'owner'], unowned],
    [{ agents: [{ id: 1, tools: ['crm'] }] }, ['agents', 0, 'tools', 0], /tool "crm" not found in this document/],
    [{ oauth_configs: [{ name: 'CRM login', owner: admin }] }, ['oauth_configs', 0, 'name'], oauth],
    [{ oauth_configs: [{ name: 'CRM login' }] }, ['oauth_configs', 0, 'name'], oauth],
    [
      { labels: [{ id: 77, name: 'alpha' }] },
      ['labels', 0, 'name'],
      /label 1 already has this name: choose another name, or give this entry the id 1/,
    ],
    [{ labels: [{ name: 'a' }, { name: 'a' }] }, ['labels', 1], another],
    [{ agents: [{ id: 1 }, { name: 'Release notes', owner: alice }] }, ['agents', 1], another],
  ]
  for (const [document, loc, msg] of refused)
    t.match(await faultsOf(document), [{ loc, msg }], JSON.stringify(document))
  const found: [document: object, outcome: object][] = [
    [{ agents: [{ name: 'Release notes', owner: alice, task_prompt: 'mine' }] }, { id: 1, action: 'changed' }],
    [{ agents: [{ name: 'Release notes', owner: admin }] }, { action: 'created' }],
    [{ agents: [{ id: 1, name: 'Release notes', task_prompt: 'claimed' }] }, { id: 1, action: 'changed' }],
    [{ tools: [{ name: 'crm', owner: manager, enabled: false }] }, { id: 15, action: 'changed' }],
    [{ oauth_configs: [{ name: 'CRM login', owner: bob }] }, { action: 'unchanged' }],
    [{ tools: [{ id: 15, name: 'crm' }], agents: [{ id: 1, tools: ['crm', 'SearchTool'] }] }, { id: 15 }],
  ]
  for (const [document, outcome] of found)
    t.match((await apply(document, { plan: true })).outcomes[0], outcome, JSON.stringify(document))
})
