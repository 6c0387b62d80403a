import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { UNKNOWN_ATTACHER } from '../../src/auth/access.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { ALICE, BOB, CAROL } from '../fixtures/users.js'
import { auditRows, faultsOf, hashOfEverything, storedAgent, warningsOf } from '../updates/stored-state.js'

/* `POST /persona/{id}/restore`: an agent becomes what it was, by the rights of the caller. */

const world = await worldApp(t)
const { call, database } = world
const { db } = database
const alice = await world.token('alice@example.com')
const bob = await world.token('bob@example.com')
const admin = await world.token('admin@example.com')

async function sent(method: string, url: string, body?: object, token = alice) {
  const answer = await call(method, url, { token, ...(body && { body }) })
  if (answer.statusCode >= 300) throw new Error(answer.body)
  return answer
}
const patch = (id: number, body: object, token = alice) =>
  sent('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, body, token)
const remove = (id: number, token = alice) => sent('DELETE', `/persona/${id}`, undefined, token)
const agentOf = async (token: string, fields: object = {}) =>
  (await sent('POST', '/persona', { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [], ...fields }, token)).json()
    .id as number
const restore = (id: number, version: number, { token = alice, query = '', ...headers }: Record<string, string> = {}) =>
  call('POST', `/persona/${id}/restore${query}`, { token, body: { version }, headers })
const makeEditor = (id: number) =>
  sql`update persona_user set level = 'editor' where persona_id = ${id} and user_id = ${BOB}`.execute(db)
const mentions = (answer: { json(): { detail: string } }) => answer.json().detail

t.teardown(async () => {
  const { findings } = await verifyAudit(db)
  if (findings.length > 0) throw new Error(JSON.stringify(findings))
})

t.test('200 with the agent and its tag: every field and relation of the version is back, as a new version', async t => {
  const id = await agentOf(alice, {
    ...{ users: [BOB], groups: [1], label_ids: [1], tool_ids: [10, 13], document_set_ids: [2] },
    ...{ starter_messages: [{ name: 'Hi', message: 'Hello' }], search_start_date: '2026-01-01', icon_name: 'x' },
  })
  const { version: _, ...first } = await storedAgent(world, id)
  const shown = (await call('GET', `/persona/${id}`, { token: alice })).body
  await patch(id, { name: 'Other', users: [], groups: [], label_ids: [], tool_ids: [], starter_messages: null })
  await patch(id, { document_set_ids: [], search_start_date: null, icon_name: null, is_public: true })
  const answer = await restore(id, 1)
  t.equal(answer.statusCode, 200, answer.body)
  t.match(answer.headers, {
    etag: `"persona-${id}-4"`,
    warning: /^299 - "tools 10 [^"]* and 13 [^"]* both have a function get_item_0[^"]*"$/,
  })
  t.match(JSON.parse(shown), answer.json())
  const { version, ...now } = await storedAgent(world, id)
  t.same(now, first)
  t.equal(version, 4)
  const [entry] = (await call('GET', `/persona/${id}/history`, { token: alice })).json()
  t.match(entry, { version: 4, action: 'restored', actor: { id: ALICE, email: 'alice@example.com' } })
  t.equal(entry.actor.command, undefined)
  t.match(await restore(id, 4), { statusCode: 200, headers: { etag: `"persona-${id}-4"` } }, 'nothing to change')
})

t.test('422 for bodies that are wrong, 404 and 410 for versions that are not there, with sentences', async t => {
  const id = await agentOf(alice)
  for (let n = 2; n <= 6; n++) await patch(id, { name: `name ${n}` })
  await pruneHistory(db, { auditRetentionDays: 400, versionsMax: 3, bytesMax: 2 ** 26 })
  const before = await hashOfEverything(db)
  for (const [body, fault] of [
    [{}, 'body.version missing'],
    [{ version: '1' }, 'body.version int_parsing'],
    [{ version: null }, 'body.version int_type'],
    [{ version: 1.5 }, 'body.version int_from_float'],
  ] as const) {
    t.same(faultsOf(await call('POST', `/persona/${id}/restore`, { token: alice, body })), [fault])
  }
  t.same(faultsOf(await restore(id, 1, { query: '?update_mask=name' })), ['query.update_mask extra_forbidden'])
  for (const version of [0, -1, 7, 99_999_999_999, 1e20]) {
    const answer = await restore(id, version)
    t.match(answer.json(), { error_code: 'VERSION_NOT_FOUND', detail: `The versions of agent ${id} go to 6.` })
  }
  t.match((await restore(id, 2)).json(), { error_code: 'VERSION_GONE', reason: 'pruned', detail: /before version 3/ })
  t.same(await hashOfEverything(db), before)
  const unknown = await call('POST', `/persona/${id}/restore`, { token: alice, body: { version: 3, verison: 1 } })
  t.match(warningsOf(unknown), ['unknown field verison ignored'])
})

t.test('fields that the caller may not change stay, with a Warning; strict handling refuses them', async t => {
  const id = await agentOf(alice, { users: [BOB], is_public: true, groups: [1] })
  await makeEditor(id)
  await patch(id, { is_default_persona: true, display_priority: 1 }, admin)
  await patch(id, { is_default_persona: false, display_priority: 2 }, admin)
  await patch(id, { is_public: false, groups: [], name: 'Other', users: [BOB, CAROL] })
  t.match(await restore(id, 2, { token: bob, prefer: 'handling=strict' }), { statusCode: 403 })
  const byEditor = await restore(id, 2, { token: bob })
  t.match(byEditor.json(), { name: 'Agent', is_public: false, is_default_persona: false, display_priority: 2 })
  t.same(
    warningsOf(byEditor).filter(text => text.startsWith('field')),
    ['is_public', 'groups', 'is_default_persona', 'display_priority'].map(name => `field ${name} was not restored`),
  )
  t.match((await restore(id, 2, { token: admin })).json(), {
    is_default_persona: true,
    display_priority: 1,
    groups: [1],
  })
  const entry = { id, name: 'Agent', owner: 'carol@example.com', is_visible: false }
  await applyOrganisation(database, { version: 1, agents: [entry] }, { ring: world.ring, env: {} })
  t.match(warningsOf(await restore(id, 2, { token: admin })), [/^field is_visible/, /^field owner_id/])
})

t.test('a right of editors that was taken away does not come back by a restoration', async t => {
  const id = await agentOf(alice, { users: [BOB] })
  await makeEditor(id)
  await patch(id, { name: 'Other' })
  await patch(id, { users: [] })
  const answer = await restore(id, 2)
  t.equal(answer.statusCode, 200)
  t.match(warningsOf(answer), [])
  t.match(await storedAgent(world, id), { users: [{ id: BOB, level: 'viewer' }] })
})

t.test('409 names what does not exist and what may not be attached, alike; nothing is changed', async t => {
  await db.insertInto('document_set').values({ id: 50, name: 'Ours' }).execute()
  await db.insertInto('document_set_user').values({ document_set_id: 50, user_id: ALICE }).execute()
  await db.insertInto('label').values({ id: 50, name: 'ours' }).execute()
  const id = await agentOf(alice, { label_ids: [50], tool_ids: [15], document_set_ids: [50] })
  await patch(id, { label_ids: [], tool_ids: [], document_set_ids: [] })
  const enable = (enabled: boolean) => db.updateTable('tool').set({ enabled }).where('id', '=', 15).execute()
  await enable(false)
  await db.deleteFrom('document_set_user').where('document_set_id', '=', 50).execute()
  const before = await hashOfEverything(db)
  const refused = await restore(id, 1)
  t.match(refused, { statusCode: 409 })
  t.equal(refused.json().error_code, 'VERSION_UNUSABLE')
  t.match(mentions(refused), 'now: document set 50 and tool 15 (disabled). A read with ?version=1 leaves it out')
  t.same(await hashOfEverything(db), before)
  await enable(true)
  const hidden = mentions(await restore(id, 1))
  t.match(hidden, 'now: document set 50. A read')
  await db.deleteFrom('document_set').where('id', '=', 50).execute()
  t.equal(mentions(await restore(id, 1)), hidden, 'as one that is not shared with them')
  await db.deleteFrom('label').where('id', '=', 50).execute()
  t.match(mentions(await restore(id, 1)), 'now: document set 50 and label 50. A read')
  const bound = await world.token('alice@example.com', { personaIds: [id] })
  await patch(id, { tool_ids: [10] })
  await patch(id, { tool_ids: [] })
  t.match(mentions(await restore(id, 3, { token: bound })), 'now: tool 10. A read')
  t.equal((await restore(id, 3)).statusCode, 200)
})

t.test('200 of a deleted agent: an owner does not bring back what only an administrator sets', async t => {
  const id = await agentOf(alice, { is_public: true })
  await sent('PATCH', `/persona/${id}?update_mask=is_default_persona`, { is_default_persona: true }, admin)
  await remove(id, admin)
  const strict = await restore(id, 2, { prefer: 'handling=strict' })
  t.match(strict.json(), { detail: 'Only an administrator may change is_default_persona.' })
  const back = await restore(id, 2)
  t.match(back.json(), { is_default_persona: false, is_public: true })
  const told = warningsOf(back).filter(text => text.includes('is_default_persona'))
  t.strictSame(told, ['field is_default_persona was not restored'], 'and nothing that contradicts it')
  t.match(await storedAgent(world, id), { is_default_persona: false, deleted: false })
  await remove(id, admin)
  t.match((await restore(id, 2, { token: admin })).json(), { is_default_persona: true })
})

t.test('403 for readers, 404 for what is invisible, 400 for what is built in', async t => {
  const id = await agentOf(alice, { users: [BOB] })
  t.match((await restore(id, 1, { token: bob })).json(), { detail: /^You can see this agent but not edit it/ })
  t.match((await restore(1, 1, { token: bob })).json(), { error_code: 'PERSONA_NOT_FOUND' })
  await sql`update persona set builtin_persona = true where id = ${id}`.execute(db)
  t.match((await restore(id, 1)).json(), { error_code: 'BUILTIN_READ_ONLY' })
  await sql`update persona set builtin_persona = false where id = ${id}`.execute(db)
  const bound = await world.token('alice@example.com', { personaIds: [id] })
  t.equal((await restore(2, 1, { token: bound })).statusCode, 403)
})

t.test('200 of a deleted agent for its owner and administrators, with all that it had', async t => {
  for (const token of [alice, admin]) {
    const id = await agentOf(alice, { users: [BOB], label_ids: [1], tool_ids: [10], is_public: true })
    await patch(id, { name: 'Last' })
    const before = (await call('GET', `/persona/${id}`, { token })).body
    const forBob = (await call('GET', `/persona/${id}`, { token: bob })).body
    await remove(id)
    for (const other of [bob, await world.token('carol@example.com')])
      t.match((await restore(id, 2, { token: other })).json(), { error_code: 'PERSONA_NOT_FOUND' })
    t.match((await restore(id, 3, { token })).json(), {
      error_code: 'VERSION_NOT_FOUND',
      detail: `In version 3 agent ${id} was deleted: name an earlier one.`,
    })
    const stale = await restore(id, 2, { token, 'if-match': `"persona-${id}-2"` })
    t.match(stale.json(), { reason: 'changed' })
    const dry = await restore(id, 2, { token, query: '?dry_run=true' })
    t.match(JSON.parse(before), dry.json())
    t.equal((await call('GET', `/persona/${id}`, { token: alice })).statusCode, 404)
    const back = await restore(id, 2, { token, 'if-match': `"persona-${id}-3"` })
    t.match(JSON.parse(before), back.json())
    t.equal((await call('GET', `/persona/${id}`, { token: bob })).body, forBob)
    const rows = await auditRows(db, 'persona', id)
    t.match(rows.at(-1)?.difference, { deleted: { from: true, to: false } })
    const actions = (await call('GET', `/persona/${id}/history`, { token: alice })).json()
    t.same(
      actions.map(({ action }: { action: string }) => action),
      ['restored', 'deleted', 'updated', 'created'],
    )
    t.match((await restore(id, 3)).json(), { error_code: 'VERSION_NOT_FOUND', detail: /had been deleted/ })
  }
})

t.test('a tool that a restoration attaches again has no known attacher', async t => {
  const id = await agentOf(alice, { tool_ids: [10], users: [BOB] })
  await makeEditor(id)
  for (const token of [bob, admin]) {
    await patch(id, { tool_ids: [] })
    await restore(id, 1, { token })
    const link = db.selectFrom('persona_tool').select('attached_by').where('persona_id', '=', id)
    t.same(await link.execute(), [{ attached_by: UNKNOWN_ATTACHER }])
  }
})
