import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { listHistory, restorePersona, restoreTool } from '../../src/admin/history.js'
import { OPERATOR } from '../../src/auth/viewer.js'
import { VersionNotFound, VersionUnusable } from '../../src/errors.js'
import { personaResource } from '../../src/persona/resource.js'
import { contentOf } from '../../src/persona/rules.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { worldDatabase } from '../world.js'

const { database, ring } = await worldDatabase(t)
const { db } = database
const options = { ring, env: {} }

const KEEP_ALL = { auditRetentionDays: 400, versionsMax: 100, bytesMax: 2 ** 26 }

/** A definition whose keys stand in no usual order, with a number that only its own text keeps. */
function definition(round: number) {
  const get = { summary: `Round ${round}`, operationId: `op_${round}`, responses: { 200: { description: 'ok' } } }
  return {
    paths: { '/a': { get } },
    servers: [{ url: 'https://api.example.com' }],
    info: { title: 't' },
    openapi: '3.1.0',
  }
}

async function storedDefinition(id: number): Promise<string | undefined> {
  const { rows } = await sql<{ text: string }>`
    select d.content::text as text from tool t join tool_definition d on d.hash = t.definition_hash where t.id = ${id}`.execute(
    db,
  )
  return rows[0]?.text
}

async function changeTool(id: number, fields: object): Promise<void> {
  const { name } = await db.selectFrom('tool').select('name').where('id', '=', id).executeTakeFirstOrThrow()
  await applyOrganisation(database, { version: 1, tools: [{ id, name, ...fields }] }, options)
}

async function changeAgent(id: number, fields: object): Promise<void> {
  const { name } = await db.selectFrom('persona').select('name').where('id', '=', id).executeTakeFirstOrThrow()
  await applyOrganisation(database, { version: 1, agents: [{ id, name, ...fields }] }, options)
}

t.test('a rollback gives the definition of any version text for text, as a new version', async t => {
  const texts = [await storedDefinition(10)]
  for (let round = 2; round <= 21; round++) {
    await changeTool(10, { definition: definition(round), description: `round ${round}` })
    texts.push(await storedDefinition(10))
  }
  for (const version of [1, 7, 20, 3]) {
    const before = await db.selectFrom('tool').select('version').where('id', '=', 10).executeTakeFirstOrThrow()
    const result = await restoreTool(database, ring, 10, version)
    t.equal(result.version, before.version + 1)
    t.equal(await storedDefinition(10), texts[version - 1])
  }
})

t.test('a rollback leaves secrets as they are now and says so', async t => {
  await changeTool(16, { custom_headers: [{ key: 'X-New', value: 'another value' }], description: 'changed' })
  const { version, changes, left } = await restoreTool(database, ring, 16, 1)
  t.same([version, changes.map(({ field }) => field), left], [3, ['description'], ['custom_headers']])
  const headers = await db.selectFrom('tool_header').select('name').where('tool_id', '=', 16).execute()
  t.same(headers, [{ name: 'X-New' }])
})

t.test('a rollback of an agent gives every field and relation of the version back', async t => {
  const stored = async () => {
    const state = await personaResource.read(db, 11, OPERATOR)
    return state && contentOf(state)
  }
  const first = await stored()
  await changeAgent(11, {
    name: 'Full',
    tools: [],
    users: [],
    labels: ['beta'],
    system_prompt: 'Other',
    search_start_date: null,
  })
  await changeAgent(11, { groups: [], starter_messages: null })
  const { version } = await restorePersona(database, 11, 1)
  t.equal(version, 4)
  t.same(await stored(), first)
})

t.test('a rollback to what is gone or not kept is refused', async t => {
  await changeAgent(4, { tools: ['items'] })
  await changeAgent(4, { tools: [] })
  await changeTool(10, { enabled: false })
  await t.rejects(restorePersona(database, 4, 2), new VersionUnusable(2, ['tool 10 (disabled)']))
  await t.rejects(restorePersona(database, 4, 9), new VersionNotFound('The versions of agent 4 go to 3.'))
  await changeTool(10, { enabled: true })
})

t.test('old contents are pruned by number and size, rows by age; the chains still verify', async t => {
  t.same(await pruneHistory(db, KEEP_ALL), { auditRows: 0, differences: 0, definitions: 0 })
  const pruned = await pruneHistory(db, { ...KEEP_ALL, versionsMax: 5 })
  t.ok(pruned.differences >= 20)
  t.ok(pruned.definitions > 0)
  const tool = await listHistory(db, 'tool', 10)
  t.equal(tool.kept_from, tool.current - 5)
  t.equal((await restoreTool(database, ring, 10, tool.kept_from)).version, tool.current + 1)
  await t.rejects(restoreTool(database, ring, 10, tool.kept_from - 1), /no longer kept/)
  t.same((await verifyAudit(db)).findings, [])

  const bySize = await pruneHistory(db, { ...KEEP_ALL, bytesMax: 1024 })
  t.ok(bySize.differences > 0)
  const newest = await db
    .selectFrom('audit')
    .select('difference')
    .where('resource_kind', '=', 'tool')
    .where('resource_id', '=', 10)
    .orderBy('version_after', 'desc')
    .executeTakeFirst()
  t.ok(newest?.difference)

  await sql`update audit set at = at - interval '401 days' where resource_kind = 'persona' and resource_id = 4 and version_after < 3`.execute(
    db,
  )
  const { auditRows } = await pruneHistory(db, KEEP_ALL)
  t.equal(auditRows, 2)
  const agent = await db
    .selectFrom('persona')
    .select(['audit_anchor_version', 'audit_count'])
    .where('id', '=', 4)
    .executeTakeFirst()
  t.same(agent, { audit_anchor_version: 2, audit_count: 3 })
  t.same((await verifyAudit(db)).findings, [])
  await changeAgent(4, { description: 'after' })
  t.same((await verifyAudit(db)).findings, [])
})
