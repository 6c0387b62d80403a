import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { placeholder } from '../../src/admin/apply/placeholders.js'
import { applyOrganisation, countOutcomes } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { rotateKeys } from '../../src/admin/keys.js'
import { InvalidDocument } from '../../src/admin/refusal.js'
import { authenticate } from '../../src/auth/authenticate.js'
import { hashToken } from '../../src/auth/token.js'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'
import { TEST_SECRET_KEYS, worldDatabase, worldFile } from '../world.js'

const { database, ring, token } = await worldDatabase(t)
const { db } = database
const world = () => JSON.parse(readFileSync(worldFile(), 'utf8'))
const options = { ring, env: {} }

t.test('a document applied again changes nothing', async t => {
  const report = await applyOrganisation(database, world(), options)
  t.same(countOutcomes(report), { created: 0, changed: 0, unchanged: 68, removed: 0, kept: 0 })
})

t.test('what is made stands as the document says, at version 1 with one audit row', async t => {
  const agent = await db.selectFrom('persona').selectAll().where('id', '=', 11).executeTakeFirstOrThrow()
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
  t.equal(audit.length, 1)
  t.match(audit[0], { version_before: 0, version_after: 1, actor_id: null, client_address: /^.+@.+$/ })
  t.same(audit[0]?.hash, agent.audit_head)
  const header = await db
    .selectFrom('tool_header')
    .selectAll()
    .where('tool_id', '=', 16)
    .where('position', '=', 0)
    .executeTakeFirstOrThrow()
  const sealed = { keyId: header.key_id, nonce: header.nonce, ciphertext: header.ciphertext }
  t.equal(decryptSecret(ring, sealed, { toolId: 16, headerName: 'Authorization' }), 'Bearer abc')
})

t.test('ids made later continue behind explicit ones', async t => {
  const { rows } = await sql<{ tool: number; persona: number }>`
    select nextval(pg_get_serial_sequence('tool', 'id')) as tool, nextval(pg_get_serial_sequence('persona', 'id')) as persona`.execute(
    db,
  )
  t.match(rows[0], { tool: 21, persona: 19 })
})

t.test('a change of an agent or tool is a new version with one audit row; a plan stores nothing', async t => {
  const document = {
    version: 1,
    tools: [{ id: 16, name: 'full_tool', enabled: true, display_name: 'Whole Tool' }],
    agents: [{ name: 'Full', tools: ['SearchTool'], users: [{ email: 'bob@example.com', level: 'editor' }] }],
  }
  const planned = await applyOrganisation(database, document, { ...options, plan: true })
  t.same((await db.selectFrom('persona').select('version').where('id', '=', 11).executeTakeFirst())?.version, 1)
  const report = await applyOrganisation(database, document, options)
  t.same(
    report.outcomes.map(({ id, action }) => [id, action]),
    planned.outcomes.map(({ id, action }) => [id, action]),
  )
  const [tool, agent] = report.outcomes.filter(outcome => outcome.action === 'changed')
  t.same(
    tool?.fields.map(change => change.field),
    ['display_name', 'enabled'],
  )
  t.same(
    agent?.fields.map(change => change.field),
    ['tools', 'users'],
  )
  const audit = await db
    .selectFrom('audit')
    .select(['resource_kind', 'fields', 'hash'])
    .where('version_after', '=', 2)
    .orderBy('resource_kind')
    .execute()
  t.same(
    audit.map(row => row.fields),
    [
      ['tool_ids', 'users'],
      ['display_name', 'enabled'],
    ],
  )
  const row = await db
    .selectFrom('tool')
    .select(['enabled', 'version', 'audit_head'])
    .where('id', '=', 16)
    .executeTakeFirst()
  t.match(row, { enabled: true, version: 2, audit_head: audit[1]?.hash })
  t.equal(countOutcomes(await applyOrganisation(database, document, options)).changed, 0)
})

t.test('every fault of a document is reported at once, at its place, and nothing is stored', async t => {
  const document = {
    version: 1,
    labels: [{ name: 'new one' }],
    tools: [
      {
        name: 'x',
        definition: { openapi: '3.0.0' },
        custom_headers: [{ key: 'X-Key', value: placeholder('NOWHERE') }],
      },
      { id: 17, name: 'pass_tool', custom_headers: [{ key: 'authorization', value: 'v' }] },
    ],
    agents: [
      { name: 'y', tools: ['items', 'nothing', 999], is_default_persona: true },
      { name: 'z', owner: 'nobody@example.com' },
    ],
  }
  const error = await applyOrganisation(database, document, options).then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  t.ok(error instanceof InvalidDocument)
  const faults = error instanceof InvalidDocument ? error.faults : []
  t.same(
    faults.map(({ loc, type }) => [loc.join('.'), type]),
    [
      ['tools.0.custom_headers.0.value', 'variable_missing'],
      ['tools.0.definition.info', 'missing'],
      ['tools.0.definition.servers', 'servers_missing'],
      ['tools.0.definition.paths', 'missing'],
      ['tools.1.custom_headers.0.key', 'passthrough_auth_conflict'],
      ['agents.0.tools.1', 'not_found'],
      ['agents.0.tools.2', 'not_found'],
      ['agents.1.owner', 'not_found'],
    ],
  )
  t.notOk(await db.selectFrom('label').selectAll().where('name', '=', 'new one').executeTakeFirst())
})

t.test('a token made for a user authenticates that user', async t => {
  const text = await token('alice@example.com', { scopes: ['basic'], requireIfMatch: true })
  const { caller } = await authenticate(database.db, hashToken(text), undefined)
  t.match(caller, { email: 'alice@example.com', permission: 'basic', token: { requiresIfMatch: true } })
})

t.test('an entry with an id changes only what it names; a new one needs a name', async t => {
  const { name } = await db.selectFrom('tool').select('name').where('id', '=', 17).executeTakeFirstOrThrow()
  const tools = [{ id: 17, description: 'without its name' }]
  const agents = [{ id: 9, description: 'without its name' }]
  const { outcomes } = await applyOrganisation(database, { version: 1, tools, agents }, options)
  const changed = outcomes.filter(({ action }) => action === 'changed')
  t.match(changed, [
    { name, fields: [{ field: 'description' }] },
    { name: 'Curator Own', fields: [{ field: 'description' }] },
  ])
  t.equal(changed.flatMap(({ fields }) => fields).length, 2)
  const nameless = { version: 1, labels: [{ id: 990 }], groups: [{}], users: [{ active: true }] }
  const refused = await applyOrganisation(database, nameless, options).catch((error: unknown) => error)
  t.match(refused, {
    faults: [{ loc: ['users', 0, 'email'] }, { loc: ['groups', 0, 'name'] }, { loc: ['labels', 0, 'name'] }],
  })
})

t.test('pruning removes what the lists of the document do not name, and keeps what is still used', async t => {
  const document = {
    ...world(),
    labels: [{ name: 'gamma' }],
    tools: world().tools.filter((tool: { id: number }) => tool.id !== 13 && tool.id !== 16),
    agents: world().agents.filter((agent: { id: number }) => agent.id !== 11),
    users: world().users.filter((user: { email: string }) => user.email !== 'perf@example.com'),
  }
  const report = await applyOrganisation(database, document, { ...options, prune: true })
  const fates = report.outcomes.filter(({ action }) => action === 'removed' || action === 'kept')
  t.same(
    fates.map(({ section, id, action, reason }) => [section, id, action, reason]),
    [
      ['agents', 11, 'removed', undefined],
      ['tools', 13, 'removed', undefined],
      ['tools', 16, 'kept', 'still used by an agent'],
      ['labels', 1, 'removed', undefined],
      ['labels', 2, 'removed', undefined],
      ['users', 'a0000000-0000-4000-8000-000000000014', 'removed', undefined],
    ],
  )
  t.match(await db.selectFrom('persona').select(['deleted', 'version']).where('id', '=', 11).executeTakeFirst(), {
    deleted: true,
    version: 3,
  })
  t.match(
    await db.selectFrom('user_account').select('active').where('email', '=', 'perf@example.com').executeTakeFirst(),
    { active: false },
  )
  t.notOk(await db.selectFrom('tool').select('id').where('id', '=', 13).executeTakeFirst())
  t.same((await verifyAudit(db)).findings, [])
  const again = countOutcomes(await applyOrganisation(database, document, { ...options, prune: true }))
  t.match(again, { created: 0, changed: 0, removed: 0, kept: 1 })
})

t.test('what was pruned and comes back under its id goes on with its audit trail', async t => {
  const tools = world().tools.filter((tool: { id: number }) => tool.id === 13)
  await applyOrganisation(database, { version: 1, tools }, options)
  const tool = await db.selectFrom('tool').select('version').where('id', '=', 13).executeTakeFirst()
  t.same(tool, { version: 3 })
  t.same((await verifyAudit(db)).findings, [])
})

t.test('a rename that is made while apply waits for the row is not undone by an entry that names it', async t => {
  const rename = async (kind: 'persona' | 'tool', id: number, work: () => Promise<unknown>) => {
    let done: Promise<unknown> = Promise.resolve()
    await db.transaction().execute(async trx => {
      await trx.updateTable(kind).set({ name: 'Renamed' }).where('id', '=', id).execute()
      let isDone = false
      done = work()
        .catch((error: Error) => error)
        .finally(() => {
          isDone = true
        })
      const waits = sql<{ n: number }>`
        select count(*)::integer n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      while (!isDone && (await waits.execute(db)).rows[0]?.n === 0) await sleep(20)
    })
    return await done
  }
  for (const [kind, section, id] of [
    ['persona', 'agents', 12],
    ['tool', 'tools', 11],
  ] as const) {
    const { name } = await db.selectFrom(kind).select('name').where('id', '=', id).executeTakeFirstOrThrow()
    const apply = (entry: object) =>
      applyOrganisation(database, { version: 1, [section]: [{ ...entry, description: 'by apply' }] }, options)
    t.match(await rename(kind, id, () => apply({ name })), {
      message: /was renamed to "Renamed" meanwhile; nothing was/,
    })
    await db.updateTable(kind).set({ name }).where('id', '=', id).execute()
    t.match(await rename(kind, id, () => apply({ id })), { outcomes: [{ fields: [{ field: 'description' }] }] })
    t.match(await db.selectFrom(kind).select('name').where('id', '=', id).execute(), [{ name: 'Renamed' }])
    await applyOrganisation(database, world(), options)
  }
})

t.test('a plan that only drops a header says which argument that makes', async t => {
  const get = { operationId: 'g', summary: 'G', parameters: [{ name: 'X-Key', in: 'header', required: true }] }
  const servers = [{ url: 'https://rota.example.com' }]
  const definition = { openapi: '3.1.0', info: { title: 'T' }, servers, paths: { '/x': { get } } }
  const impactOf = async (custom_headers: object[], plan: boolean) => {
    const document = { version: 1, tools: [{ name: 'Keyed', description: 'D', definition, custom_headers }] }
    const { outcomes } = await applyOrganisation(database, document, { ...options, plan })
    return outcomes.flatMap(({ impact }) => impact ?? [])
  }
  await impactOf([{ key: 'X-Key', value: 'v' }], false)
  t.strictSame(await impactOf([], true), ['g: the argument "X-Key" is new and required'])
})

t.test(
  'a secret of the environment: applied again, and planned, it changes nothing; masks stay through a restoration and a rotation',
  async t => {
    const tools = [
      {
        id: 16,
        custom_headers: [{ key: 'authorization', value: placeholder('AGENTS_KEY') }],
        description: 'with a key',
      },
    ]
    const apply = (AGENTS_KEY: string, more = {}) =>
      applyOrganisation(database, { version: 1, tools }, { ring, env: { AGENTS_KEY }, ...more })
    const stored = async () => {
      const [row] = await db.selectFrom('tool_header').selectAll().where('tool_id', '=', 16).execute()
      if (row === undefined) throw new Error('tool 16 has a header')
      const mask = row.mask.toString('hex')
      const value = (by = ring) =>
        decryptSecret(by, { ...row, keyId: row.key_id }, { toolId: 16, headerName: row.name })
      return { mask, value }
    }
    t.match(countOutcomes(await apply('first')), { changed: 1 })
    const first = await stored()
    t.equal(first.value(), 'first')
    for (const plan of [true, false]) t.match(countOutcomes(await apply('first', { plan })), { unchanged: 1 })
    t.match(countOutcomes(await apply('second', { plan: true })), { changed: 1 })
    t.equal((await stored()).mask, first.mask)
    t.match(countOutcomes(await apply('second')), { changed: 1 })
    const second = await stored()
    t.not(second.mask, first.mask)
    t.equal(second.value(), 'second')
    const rotated = parseKeyRing(`${generateKey('new')} ${TEST_SECRET_KEYS}`)
    await rotateKeys(db, rotated)
    t.match(countOutcomes(await apply('second', { ring: rotated })), { unchanged: 1 })
    const last = await stored()
    t.same([last.mask, last.value(rotated)], [second.mask, 'second'])
    t.same((await verifyAudit(db)).findings, [])
  },
)
