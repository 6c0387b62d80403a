import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { placeholder } from '../../src/admin/apply/tools.js'
import { type ApplyOptions, applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import type { Fault } from '../../src/errors.js'
import { appOver } from '../app.js'
import { worldDatabase } from '../world.js'

const { database, ring, token } = await worldDatabase(t)
const { db } = database
const options = { ring, env: {} }

async function faultsOf(document: object, given: ApplyOptions = options): Promise<Fault[]> {
  try {
    await applyOrganisation(database, { version: 1, ...document }, given)
    return []
  } catch (error) {
    if (error instanceof InvalidDocument) return error.faults
    throw error
  }
}

/** Runs `work` while another transaction, which does `change`, holds its locks, until `work` waits for one of them. */
async function whileAnother(change: (sqlOf: typeof db) => Promise<unknown>, work: () => Promise<unknown>) {
  const other = await db.startTransaction().execute()
  await change(other)
  let isDone = false
  const done = work()
    .catch((error: Error) => error)
    .finally(() => {
      isDone = true
    })
  const waits = sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  while (!isDone && (await waits.execute(db)).rows.length === 0) await sleep(20)
  await other.commit().execute()
  return await done
}

t.test('files whose ids UTF-16 and UTF-8 order differently: applied again, nothing changes', async t => {
  const files = ['\uFFFDa', '\u{1F600}'].map(id => ({ id, name: id, owner: 'alice@example.com' }))
  const agents = [{ id: 11, name: 'Full', user_files: files.map(file => file.id) }]
  const document = { version: 1, user_files: files, agents }
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 1)
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 0)
})

t.test('a variable is read only under the prefix AGENTS_', async t => {
  const env = { AGENTS_KEY: 'allowed', AGENTS_EMPTY: '', SECRET_KEYS: 'the ring' }
  const found = async (variable: string) => {
    const tools = [{ id: 16, custom_headers: [{ key: 'Authorization', value: placeholder(variable) }] }]
    return (await faultsOf({ tools }, { ring, env, plan: true })).map(({ type, msg }) => `${type}: ${msg}`)
  }
  t.same(await found('AGENTS_KEY'), [])
  for (const name of ['AGENTS_EMPTY', 'AGENTS_NONE'])
    t.same(await found(name), [`variable_missing: ${name} must be set in the environment and not be empty`])
  t.same(await found('SECRET_KEYS'), ['variable_missing: SECRET_KEYS is not read: a variable begins with AGENTS_'])
})

t.test('an id near the end of its sequence is refused; later ids continue after given ones', async t => {
  const last = { labels: [{ id: 2_147_483_647, name: 'last' }] }
  t.match(await faultsOf(last), [{ loc: ['labels', 0, 'id'], type: 'less_than_equal' }])
  const faulty = { labels: [{ id: 900, name: 'x' }], agents: [{ id: 950, name: 'z', tools: ['none'] }] }
  t.match(await faultsOf(faulty), [{ type: 'not_found' }])
  const made = async (labels: object[]) => {
    const { outcomes } = await applyOrganisation(database, { version: 1, labels }, options)
    return outcomes.map(({ id }) => Number(id))
  }
  const [first = 0] = await made([{ name: 'next' }])
  t.ok(first < 900, 'a refused document takes no id')
  const [given, second] = await made([{ id: first + 1, name: 'given' }, { name: 'beside' }])
  t.same([given, second], [first + 1, first + 2])
  t.same(await made([{ name: 'after' }]), [first + 3])
})

t.test('two applies at once make each row once', async t => {
  const agents = Array.from({ length: 20 }, (_, index) => ({ name: `twin ${index}`, owner: 'bob@example.com' }))
  const document = { version: 1, agents }
  const reports = await Promise.all([1, 2, 3, 4].map(() => applyOrganisation(database, document, options)))
  const created = reports.map(report => countOutcomes(report).created)
  t.same(created.sort(), [0, 0, 0, 20])
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).unchanged, 20)
})

t.test('an id that somebody else took meanwhile is refused, nothing is stored, and again it is applied', async t => {
  const document = { version: 1, agents: [{ id: 970, name: 'mine' }], labels: [{ name: 'beside another' }] }
  const took = await whileAnother(
    other =>
      sql`insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
        values (970, 'another', '', 'auto', true, true)`.execute(other),
    () => applyOrganisation(database, document, options),
  )
  t.match(took, { message: 'agent 970 was changed meanwhile; nothing was stored. Apply it again' })
  t.same((await sql`select from label where name = 'beside another'`.execute(db)).rows, [])
  t.match(countOutcomes(await applyOrganisation(database, document, options)), { created: 1, changed: 1 })
})

t.test('a row that changes while apply waits for it is refused, and nothing is stored', async t => {
  for (const [kind, section, id] of [
    ['persona', 'agents', 12],
    ['tool', 'tools', 11],
  ] as const) {
    const document = { version: 1, [section]: [{ id, description: 'by apply' }] }
    const changed = await whileAnother(
      other =>
        sql`update ${sql.table(kind)} set name = 'Renamed', version = version + 1 where id = ${id}`.execute(other),
      () => applyOrganisation(database, document, options),
    )
    t.match(changed, { message: /^(agent|tool) \d+ was changed meanwhile; nothing was stored\. Apply it again$/ })
    const { rows } = await sql`select name, description from ${sql.table(kind)} where id = ${id}`.execute(db)
    t.match(rows, [{ name: 'Renamed', description: /^(?!by apply)/ }])
    t.match(countOutcomes(await applyOrganisation(database, document, options)), { changed: 1 })
  }
})

t.test('a name finds only a row of the owner that the entry names, regardless of who gave the name', async t => {
  const { call } = await appOver(t, database)
  const rename = async (method: 'PATCH' | 'PUT', path: string, name: string, email: string) => {
    const renamed = await call(method, method === 'PUT' ? path : `${path}?update_mask=name`, {
      token: await token(email),
      body: { name },
    })
    t.equal(renamed.statusCode, 200, renamed.body)
  }
  await rename('PATCH', '/persona/1', 'Release notes', 'alice@example.com')
  await rename('PATCH', '/persona/6', 'Ownerless', 'admin@example.com')
  await rename('PUT', '/admin/tool/custom/15', 'crm', 'gcurator@example.com')
  await sql`delete from audit where resource_kind = 'persona' and resource_id = 6`.execute(db)
  await sql`insert into oauth_config (name, owner_id) select 'CRM login', id from user_account where email = 'bob@example.com'`.execute(
    db,
  )
  const [admin, alice, manager] = ['admin@example.com', 'alice@example.com', 'gcurator@example.com']
  const refused: [document: object, loc: (string | number)[], said: RegExp][] = [
    [{ agents: [{ name: 'Release notes' }] }, ['agents', 0, 'owner'], /^callers can rename agents: give the owner/],
    [{ agents: [{ name: 'Ownerless', owner: null }] }, ['agents', 0, 'owner'], /give the owner/],
    [{ tools: [{ name: 'crm' }] }, ['tools', 0, 'owner'], /^callers can rename tools: give the owner/],
    [{ agents: [{ id: 1, tools: ['crm'] }] }, ['agents', 0, 'tools', 0], /tool "crm" not found in this document/],
    [
      { oauth_configs: [{ name: 'CRM login', owner: admin }] },
      ['oauth_configs', 0, 'name'],
      /has this name: give that id to mean it, or its owner/,
    ],
    [
      { oauth_configs: [{ name: 'CRM login' }] },
      ['oauth_configs', 0, 'name'],
      /has this name: give that id to mean it, or its owner/,
    ],
    [{ labels: [{ id: 77, name: 'alpha' }] }, ['labels', 0, 'name'], /label 1 has this name: give that id/],
    [{ labels: [{ name: 'a' }, { name: 'a' }] }, ['labels', 1], /another entry means the same row/],
    [
      { agents: [{ id: 1 }, { name: 'Release notes', owner: alice }] },
      ['agents', 1],
      /another entry means the same row/,
    ],
  ]
  for (const [document, loc, msg] of refused)
    t.match(await faultsOf(document), [{ loc, msg }], JSON.stringify(document))
  const found: [document: object, outcome: object][] = [
    [{ agents: [{ name: 'Release notes', owner: alice, task_prompt: 'mine' }] }, { id: 1, action: 'changed' }],
    [{ agents: [{ name: 'Release notes', owner: admin }] }, { action: 'created' }],
    [{ agents: [{ id: 1, name: 'Release notes', task_prompt: 'claimed' }] }, { id: 1, action: 'changed' }],
    [{ tools: [{ name: 'crm', owner: manager, enabled: false }] }, { id: 15, action: 'changed' }],
    [{ oauth_configs: [{ name: 'CRM login', owner: 'bob@example.com' }] }, { action: 'unchanged' }],
    [{ tools: [{ id: 15, name: 'crm' }], agents: [{ id: 1, tools: ['crm', 'SearchTool'] }] }, { id: 15 }],
  ]
  for (const [document, outcome] of found) {
    const { outcomes } = await applyOrganisation(database, { version: 1, ...document }, { ...options, plan: true })
    t.match(outcomes[0], outcome, JSON.stringify(document))
  }
})
