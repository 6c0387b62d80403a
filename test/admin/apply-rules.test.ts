import { sql } from 'kysely'
import t from 'tap'
import { placeholder } from '../../src/admin/apply/placeholders.js'
import { type ApplyOptions, applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import type { Fault } from '../../src/errors.js'
import { appOver } from '../app.js'
import { worldDatabase } from '../world.js'

const { database, ring, token } = await worldDatabase(t)
const options = { ring, env: {} }

async function faultsOf(document: unknown, given: ApplyOptions = options): Promise<Fault[]> {
  try {
    await applyOrganisation(database, document, given)
    return []
  } catch (error) {
    if (error instanceof InvalidDocument) return error.faults
    throw error
  }
}

t.test('files whose ids UTF-16 and UTF-8 order differently: applied again, nothing changes', async t => {
  const files = ['\uFFFDa', '\u{1F600}'].map(id => ({ id, name: id, owner: 'alice@example.com' }))
  const agents = [{ id: 11, name: 'Full', user_files: files.map(file => file.id) }]
  const document = { version: 1, user_files: files, agents }
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 1)
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 0)
})

t.test('a variable is read only under the prefix AGENTS_, or where an export names it', async t => {
  const env = {
    AGENTS_KEY: 'allowed',
    AGENTS_EMPTY: '',
    OTHER_KEY: 'other',
    SECRET_KEYS: 'the ring',
    TOOL_16_AUTHORIZATION: 'own',
  }
  const found = async (variable: string) => {
    const tools = [{ id: 16, custom_headers: [{ key: 'Authorization', value: placeholder(variable) }] }]
    return (await faultsOf({ version: 1, tools }, { ring, env, plan: true })).map(({ type, msg }) => `${type}: ${msg}`)
  }
  const missing = (name: string) => [
    `variable_missing: ${name} is not read here: a name begins with AGENTS_, or is TOOL_16_AUTHORIZATION as export writes it`,
  ]
  t.same(await found('AGENTS_KEY'), [])
  t.match(await found('AGENTS_EMPTY'), [
    /^variable_missing: AGENTS_EMPTY must be set in the environment and not be empty/,
  ])
  t.same(await found('OTHER_KEY'), missing('OTHER_KEY'))
  t.same(await found('SECRET_KEYS'), missing('SECRET_KEYS'))
  t.same(await found('TOOL_16_AUTHORIZATION'), [], 'as an export writes it')
  t.same(await found('TOOL_17_AUTHORIZATION'), missing('TOOL_17_AUTHORIZATION'))
})

t.test('a refused document takes no id, and an id near the end of its sequence is refused', async t => {
  const last = { version: 1, labels: [{ id: 2_147_483_647, name: 'last' }] }
  t.match(await faultsOf(last), [{ loc: ['labels', 0, 'id'], type: 'less_than_equal' }])
  const faulty = {
    version: 1,
    labels: [{ id: 900, name: 'x' }, { name: 'y' }],
    agents: [{ name: 'z', tools: ['none'] }],
  }
  t.match(await faultsOf(faulty), [{ type: 'not_found' }])
  const { outcomes } = await applyOrganisation(database, { version: 1, labels: [{ name: 'next' }] }, options)
  t.equal(outcomes.find(outcome => outcome.name === 'next')?.id, 4)
})

t.test('two applies at once make each row once', async t => {
  const agents = Array.from({ length: 20 }, (_, index) => ({ name: `twin ${index}` }))
  const document = { version: 1, agents }
  const reports = await Promise.all([1, 2, 3, 4].map(() => applyOrganisation(database, document, options)))
  t.equal(
    reports.map(report => countOutcomes(report).created).reduce((sum, count) => sum + count),
    20,
  )
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).unchanged, 20)
})

t.test('an id that somebody else took meanwhile is refused, nothing is stored, and again it is applied', async t => {
  const document = { version: 1, agents: [{ name: 'beside another' }], labels: [{ name: 'beside another' }] }
  const other = await database.db.startTransaction().execute()
  await sql`insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
    select 'another', '', 'auto', true, true from generate_series(1, 3)`.execute(other)
  // The sequence does not tell of them: as where they were there before the document was read, and are committed after.
  await sql`select setval('persona_id_seq', (select max(id) from persona) - 3)`.execute(other)
  const applying = applyOrganisation(database, document, options)
  const waiting = sql`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
  while ((await waiting.execute(database.db)).rows.length === 0);
  await other.commit().execute()
  await t.rejects(applying, { message: /another agent got the id \d+ meanwhile; nothing was stored\. Apply it again/ })
  const { rows } = await sql`select from label where name = 'beside another'`.execute(database.db)
  t.equal(rows.length, 0)
  await sql`select setval('persona_id_seq', (select max(id) from persona))`.execute(database.db)
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).created, 2)
})

t.test('an entry finds by its name only a row that the operator named, or whose owner it names', async t => {
  const { call } = await appOver(t, database)
  const rename = async (method: 'PATCH' | 'PUT', path: string, name: string, email: string) => {
    const renamed = await call(method, method === 'PUT' ? path : `${path}?update_mask=name`, {
      token: await token(email),
      body: { name },
    })
    t.equal(renamed.statusCode, 200, renamed.body)
  }
  await rename('PATCH', '/persona/1', 'Release notes', 'alice@example.com')
  await rename('PATCH', '/persona/17', 'Full', 'bob@example.com')
  await rename('PUT', '/admin/tool/custom/15', 'crm', 'gcurator@example.com')
  await rename('PUT', '/admin/tool/custom/11', 'items', 'gcurator@example.com')
  await sql`insert into oauth_config (name, owner_id) select 'CRM login', id from user_account where email = 'bob@example.com'`.execute(
    database.db,
  )
  const key = { custom_headers: [{ key: 'X-Key', value: 'of the operator' }] }
  const refused: [document: object, loc: (string | number)[], said: RegExp][] = [
    [
      { agents: [{ name: 'Release notes', system_prompt: 'secret' }] },
      ['agents', 0, 'name'],
      /agent 1: it belongs to alice@example.com, is private\)/,
    ],
    [
      { agents: [{ name: 'Release notes', owner: 'admin@example.com' }] },
      ['agents', 0, 'name'],
      /give the id to mean that row, or an id that is free/,
    ],
    [
      { tools: [{ name: 'crm', ...key }] },
      ['tools', 0, 'name'],
      /tool 15: it belongs to gcurator@example.com, is used/,
    ],
    [{ agents: [{ name: 'New', tools: ['crm'] }] }, ['agents', 0, 'tools', 0], /tool 15: it belongs to gcurator/],
    [
      { oauth_configs: [{ name: 'CRM login', owner: 'admin@example.com' }] },
      ['oauth_configs', 0, 'name'],
      /it belongs to bob@example.com/,
    ],
  ]
  for (const [document, loc, said] of refused)
    t.match(await faultsOf({ version: 1, ...document }), [{ loc, msg: said, type: 'name_of_another' }])
  const adopted: [document: object, outcome: object][] = [
    [{ agents: [{ name: 'Release notes', owner: 'alice@example.com' }] }, { id: 1, action: 'unchanged' }],
    [{ agents: [{ id: 1, name: 'Release notes', task_prompt: 'claimed' }] }, { id: 1, action: 'changed' }],
    [{ tools: [{ name: 'crm', owner: 'gcurator@example.com', ...key }] }, { id: 15, action: 'changed' }],
    [{ oauth_configs: [{ name: 'CRM login', owner: 'bob@example.com' }] }, { action: 'unchanged' }],
    // A second row of the same name holds nobody up: of them the operator named one.
    [{ agents: [{ name: 'Full', tools: ['items'] }] }, { id: 11, fields: [{ to: [{ id: 10, name: 'items' }] }] }],
    [{ tools: [{ name: 'items', ...key }] }, { id: 10, action: 'changed' }],
    [
      { tools: [{ id: 15, name: 'crm' }], agents: [{ name: 'New', tools: ['crm'] }] },
      { id: 15, action: 'unchanged' },
    ],
  ]
  // Of what is older than the audit trail only a row without an owner, whose name nobody changed, is surely the operator's.
  const pruned = sql`delete from audit where resource_kind = 'persona' and resource_id in (3, 6)`
  await pruned.execute(database.db)
  adopted.push([{ agents: [{ name: 'Ownerless Public' }] }, { id: 6 }])
  t.match(await faultsOf({ version: 1, agents: [{ name: 'Bob Private' }] }), [{ type: 'name_of_another' }])
  for (const [document, outcome] of adopted) {
    const { outcomes } = await applyOrganisation(database, { version: 1, ...document }, { ...options, plan: true })
    t.match(outcomes[0], outcome)
  }
})
