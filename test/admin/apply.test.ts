import { readFileSync } from 'node:fs'
import t from 'tap'
import { placeholder } from '../../src/admin/apply/tools.js'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { rotateKeys } from '../../src/admin/keys.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { TEST_SECRET_KEYS, worldDatabase, worldFile } from '../world.js'

const { database, ring } = await worldDatabase(t)
const { db } = database
const world = () => JSON.parse(readFileSync(worldFile(), 'utf8'))
const options = { ring, env: {} }
const toolRow = (id: number) => db.selectFrom('tool').selectAll().where('id', '=', id).executeTakeFirst()
const agentRow = (id: number) => db.selectFrom('persona').selectAll().where('id', '=', id).executeTakeFirst()

/** The first header of a tool, with its value as these keys open it. */
async function storedHeader(toolId: number, by = ring) {
  const row = await db.selectFrom('tool_header').selectAll().where('tool_id', '=', toolId).executeTakeFirstOrThrow()
  const value = decryptSecret(by, { ...row, keyId: row.key_id }, { toolId, headerName: row.name })
  return { mask: row.mask.toString('hex'), value }
}

t.test('a document applied again changes nothing', async t => {
  const report = await applyOrganisation(database, world(), options)
  t.same(countOutcomes(report), { created: 0, changed: 0, unchanged: 68, removed: 0, kept: 0 })
})

t.test('what is made is as the document says, at version 1 with one audit row', async t => {
  const agent = await agentRow(11)
  t.match(agent, {
    name: 'Full',
    num_chunks: 10,
    search_start_date: '2024-01-02T03:04:05.000000Z',
    starter_messages: [{ name: 'hi', message: 'Hello there' }],
    version: 1,
  })
  const audit = await db
    .selectFrom('audit')
    .selectAll()
    .where('resource_id', '=', 11)
    .where('resource_kind', '=', 'persona')
    .execute()
  t.match(audit, [{ version_before: 0, version_after: 1, actor_id: null, client_address: /^.+@.+$/ }])
  t.equal(audit.length, 1)
  t.same(audit[0]?.hash, agent?.audit_head)
  t.equal((await storedHeader(16)).value, 'Bearer abc')
})

t.test('a change of an agent or tool is a new version with one audit row; a plan stores nothing', async t => {
  const document = {
    version: 1,
    tools: [{ id: 16, name: 'full_tool', enabled: true, display_name: 'Whole Tool' }],
    agents: [
      {
        name: 'Full',
        owner: 'ALICE@example.com',
        tools: ['SearchTool'],
        users: [{ email: 'bob@example.com', level: 'editor' }],
      },
    ],
  }
  const planned = await applyOrganisation(database, document, { ...options, plan: true })
  t.equal((await agentRow(11))?.version, 1)
  const report = await applyOrganisation(database, document, options)
  t.same(
    report.outcomes.map(({ id, action }) => [id, action]),
    planned.outcomes.map(({ id, action }) => [id, action]),
  )
  t.match(report.outcomes, [
    { id: 16, fields: [{ field: 'display_name' }, { field: 'enabled' }] },
    { id: 11, fields: [{ field: 'tools' }, { field: 'users' }] },
  ])
  const audit = await db
    .selectFrom('audit')
    .select(['fields', 'hash'])
    .where('version_after', '=', 2)
    .orderBy('resource_kind')
    .execute()
  t.match(audit, [{ fields: ['tool_ids', 'users'] }, { fields: ['display_name', 'enabled'] }])
  t.match(await toolRow(16), { enabled: true, version: 2, audit_head: audit[1]?.hash })
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 0)
})

t.test('every fault of a document is reported at once, at its place, and nothing is stored', async t => {
  const document = {
    version: 1,
    labels: [{ name: 'new one' }],
    tools: [
      {
        ...{ name: 'x', owner: 'alice@example.com', definition: { openapi: '3.0.0' } },
        custom_headers: [{ key: 'X-Key', value: placeholder('NOWHERE') }, { key: 'X-None' }],
      },
      { id: 17, name: 'pass_tool', custom_headers: [{ key: 'authorization', value: 'v' }] },
      { id: 12, passthrough_auth: true, custom_headers: [{ key: 'authorization', value: 'v' }] },
    ],
    agents: [
      { id: 901, name: 'y', tools: ['x', 'items', 'nothing', 999], is_default_persona: true },
      { name: 'z', owner: 'nobody@example.com' },
    ],
  }
  const error = await applyOrganisation(database, document, options).catch((thrown: unknown) => thrown)
  const faults = error instanceof InvalidDocument ? error.faults : []
  t.same(
    faults.map(({ loc, type }) => [loc.join('.'), type]),
    [
      ['tools.0.custom_headers.0.value', 'variable_missing'],
      ['tools.0.custom_headers.1.value', 'missing'],
      ['tools.0.definition.info', 'missing'],
      ['tools.0.definition.servers', 'servers_missing'],
      ['tools.0.definition.paths', 'missing'],
      ['tools.1.custom_headers.0.key', 'passthrough_auth_conflict'],
      ['tools.2.passthrough_auth', 'passthrough_auth_conflict'],
      ['agents.0.tools.1', 'not_found'],
      ['agents.0.tools.2', 'not_found'],
      ['agents.0.tools.3', 'not_found'],
      ['agents.1.owner', 'not_found'],
    ],
  )
  t.notOk(await db.selectFrom('label').selectAll().where('name', '=', 'new one').executeTakeFirst())
})

t.test('an entry with an id changes only what it names; a new one needs a name', async t => {
  const tools = [{ id: 17, description: 'without its name' }]
  const agents = [{ id: 9, description: 'without its name' }]
  const { outcomes } = await applyOrganisation(database, { version: 1, tools, agents }, options)
  t.match(outcomes, [
    { name: 'pass_tool', fields: [{ field: 'description' }] },
    { name: 'Curator Own', fields: [{ field: 'description' }] },
  ])
  t.equal(outcomes.flatMap(({ fields }) => fields).length, 2)
  const nameless = { version: 1, labels: [{ id: 990 }], groups: [{}], users: [{ active: true }] }
  t.match(await applyOrganisation(database, nameless, options).catch((error: unknown) => error), {
    faults: [{ loc: ['users', 0, 'email'] }, { loc: ['groups', 0, 'name'] }, { loc: ['labels', 0, 'name'] }],
  })
})

t.test('pruning removes what the lists of the document do not name, and keeps what is still used', async t => {
  const agents: { id: number; tools?: string[] }[] = world().agents
  const byId = (tool: string) => (tool === 'full_tool' ? 16 : tool) // the document has no entry of this name
  const document = {
    ...world(),
    labels: [{ name: 'gamma' }],
    tools: world().tools.filter((tool: { id: number }) => tool.id !== 13 && tool.id !== 16),
    agents: agents
      .filter(({ id }) => id !== 11)
      .map(agent => (agent.tools ? { ...agent, tools: agent.tools.map(byId) } : agent)),
    users: world().users.filter((user: { email: string }) => user.email !== 'perf@example.com'),
  }
  const report = await applyOrganisation(database, document, { ...options, prune: true })
  const fates = report.outcomes.filter(({ action }) => action === 'removed' || action === 'kept')
  t.same(
    fates.map(({ section, id, action, reason }) => [section, id, action, reason]),
    [
      ['agents', 11, 'removed', undefined],
      ['tools', 13, 'removed', undefined],
      ['tools', 16, 'kept', 'still used in persona_tool'],
      ['labels', 1, 'removed', undefined],
      ['labels', 2, 'removed', undefined],
      ['users', 'a0000000-0000-4000-8000-000000000014', 'removed', undefined],
    ],
  )
  t.match(await agentRow(11), { deleted: true, version: 3 })
  const shut = db.selectFrom('user_account').select('active').where('email', '=', 'perf@example.com')
  t.same(await shut.executeTakeFirst(), { active: false })
  t.notOk(await toolRow(13))
  t.same((await verifyAudit(db)).findings, [])
  const again = countOutcomes(await applyOrganisation(database, document, { ...options, prune: true }))
  t.match(again, { created: 0, changed: 0, removed: 0, kept: 1 })
  const tools = world().tools.filter((tool: { id: number }) => tool.id === 13)
  await applyOrganisation(database, { version: 1, tools }, options)
  t.match(await toolRow(13), { version: 3 }, 'what comes back goes on with its audit trail')
  t.same((await verifyAudit(db)).findings, [])
})

t.test('a plan that only drops a header says which argument that makes', async t => {
  const get = { operationId: 'g', summary: 'G', parameters: [{ name: 'X-Key', in: 'header', required: true }] }
  const servers = [{ url: 'https://rota.example.com' }]
  const definition = { openapi: '3.1.0', info: { title: 'T' }, servers, paths: { '/x': { get } } }
  const impactOf = async (custom_headers: object[], plan: boolean) => {
    const tool = { name: 'Keyed', owner: 'alice@example.com', description: 'D', definition, custom_headers }
    const { outcomes } = await applyOrganisation(database, { version: 1, tools: [tool] }, { ...options, plan })
    return outcomes.flatMap(({ impact }) => impact ?? [])
  }
  t.strictSame(await impactOf([{ key: 'X-Key', value: 'v' }], false), ['g: GET /x'])
  t.strictSame(await impactOf([], true), ['g: the argument "X-Key" is new and required'])
})

t.test('a header without a value, or with the stored one, stays; masks stay through a rotation', async t => {
  const apply = (value: string | undefined, AGENTS_KEY = 'first', more = {}) => {
    const header = { key: 'authorization', ...(value !== undefined && { value }) }
    const tools = [{ id: 16, custom_headers: [header] }]
    return applyOrganisation(database, { version: 1, tools }, { ring, env: { AGENTS_KEY }, ...more })
  }
  const variable = placeholder('AGENTS_KEY')
  t.match(countOutcomes(await apply(variable)), { changed: 1 })
  const first = await storedHeader(16)
  t.equal(first.value, 'first')
  for (const plan of [true, false])
    for (const value of [variable, 'first', undefined])
      t.match(countOutcomes(await apply(value, 'first', { plan })), { unchanged: 1 })
  t.match(countOutcomes(await apply(variable, 'second', { plan: true })), { changed: 1 })
  t.same(await storedHeader(16), first)
  t.match(countOutcomes(await apply(variable, 'second')), { changed: 1 })
  const second = await storedHeader(16)
  t.equal(second.value, 'second')
  t.not(second.mask, first.mask)
  const rotated = parseKeyRing(`${generateKey('new')} ${TEST_SECRET_KEYS}`)
  await rotateKeys(db, rotated)
  t.match(countOutcomes(await apply(variable, 'second', { ring: rotated })), { unchanged: 1 })
  t.same(await storedHeader(16, rotated), second)
  t.same((await verifyAudit(db)).findings, [])
})
