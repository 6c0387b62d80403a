import t from 'tap'
import { ALICE, BOB, CAROL } from '../fixtures/users.js'
import { auditRows, faultsOf, hashOfEverything, storedAgent, warningsOf } from '../updates/stored-state.js'
import { historyWorld } from './world.js'

/* `POST /persona/{id}/restore`: restores an earlier version of an agent with the rights of the caller. */

const world = await historyWorld(t)
const { call, db, query, alice, bob, admin, get, patch, agentOf, apply, makeBobEditor } = world
const remove = (id: number, token = alice) => world.remove(`/persona/${id}`, token)
const restore = (id: number, version: unknown, token = alice, headers: Record<string, string> = {}, query = '') =>
  world.restore(`/persona/${id}`, version, token, headers, query)
const STRICT = { prefer: 'handling=strict' }

t.test('200 with the agent and its tag: every field and relation of the version is back, as a new version', async t => {
  const id = await agentOf({
    ...{ users: [BOB], groups: [1], label_ids: [1], tool_ids: [10, 13], document_set_ids: [2] },
    ...{ starter_messages: [{ name: 'Hi', message: 'Hello' }], search_start_date: '2026-01-01', icon_name: 'x' },
  })
  const { version: _, ...first } = await storedAgent(world, id)
  const shown = (await get(`/persona/${id}`, alice)).json()
  await patch(id, { name: 'Other', users: [], groups: [], label_ids: [], tool_ids: [], starter_messages: null })
  await patch(id, { document_set_ids: [], search_start_date: null, icon_name: null, is_public: true })
  const answer = await restore(id, 1)
  t.equal(answer.statusCode, 200, answer.body)
  const warning = /^299 - "tools 10 [^"]* and 13 [^"]* both have a function get_item_0[^"]*"$/
  t.match(answer.headers, { etag: `"persona-${id}-4"`, warning })
  t.match(shown, answer.json())
  t.same(await storedAgent(world, id), { ...first, version: 4 })
  const [entry] = (await get(`/persona/${id}/history`, alice)).json()
  t.match(entry, { version: 4, action: 'restored', actor: { id: ALICE, email: 'alice@example.com' } })
  t.equal(entry.actor.command, undefined)
  t.match(await restore(id, 4), { statusCode: 200, headers: { etag: `"persona-${id}-4"` } }, 'nothing to change')
})

t.test('422 for bodies that are wrong, 404 and 410 for versions that are not there, with sentences', async t => {
  const id = await agentOf()
  for (let n = 2; n <= 6; n++) await patch(id, { name: `name ${n}` })
  await world.keepVersions(3)
  const before = await hashOfEverything(db)
  t.same(faultsOf(await restore(id, undefined)), ['body.version missing'])
  t.same(faultsOf(await restore(id, 1.5)), ['body.version int_from_float'])
  t.same(faultsOf(await restore(id, 1, alice, {}, '?update_mask=name')), ['query.update_mask extra_forbidden'])
  const none = { error_code: 'VERSION_NOT_FOUND', detail: `No such version. The newest version of agent ${id} is 6.` }
  for (const version of [0, -1, 7, 99_999_999_999, 1e20]) t.match((await restore(id, version)).json(), none)
  t.match((await restore(id, 2)).json(), { error_code: 'VERSION_GONE', reason: 'pruned', detail: /before version 3/ })
  t.same(await hashOfEverything(db), before)
})

t.test('fields that the caller may not change stay, with a Warning; strict handling refuses them', async t => {
  const id = await agentOf({ users: [BOB], is_public: true, groups: [1] })
  await makeBobEditor(id)
  await patch(id, { is_default_persona: true, display_priority: 1 }, admin)
  await patch(id, { is_default_persona: false, display_priority: 2 }, admin)
  await patch(id, { is_public: false, groups: [], name: 'Other', users: [BOB, CAROL] })
  t.match(await restore(id, 2, bob, STRICT), { statusCode: 403 })
  const byEditor = await restore(id, 2, bob)
  t.match(byEditor.json(), { name: 'Agent', is_public: false, is_default_persona: false, display_priority: 2 })
  const kept = ['is_public', 'groups', 'is_default_persona', 'display_priority']
  const told = warningsOf(byEditor).filter(text => text.startsWith('field'))
  t.same(told.join(), kept.map(name => `field ${name} was not restored`).join())
  const byAdmin = (await restore(id, 2, admin)).json()
  t.match(byAdmin, { is_default_persona: true, display_priority: 1, groups: [1] })
  await apply({ agents: [{ id, name: 'Agent', owner: 'carol@example.com', is_visible: false }] })
  t.match(warningsOf(await restore(id, 2, admin)), [/^field is_visible/, /^field owner_id/])
  await remove(id, admin)
  const byOwner = (await restore(id, 2, await world.token('carol@example.com'))).json()
  t.match(byOwner, { is_public: true, is_default_persona: false }, 'nor does its owner after a deletion')
})

t.test('a right of editors that was taken away does not come back by a restoration', async t => {
  const id = await agentOf({ users: [BOB] })
  await makeBobEditor(id)
  await patch(id, { name: 'Other' })
  await patch(id, { users: [] })
  t.match(warningsOf(await restore(id, 2)), [])
  t.match(await storedAgent(world, id), { users: [{ id: BOB, level: 'viewer' }] })
})

t.test('200 of a deleted agent: shares come back without their levels, and a Warning says so', async t => {
  const id = await agentOf({ users: [BOB] })
  await makeBobEditor(id)
  await patch(id, { name: 'Other' })
  await remove(id)
  const left = 'users (only the operator can set permission levels)'
  const strict = await restore(id, 2, admin, STRICT)
  t.match(strict.json(), {
    detail: `You cannot restore ${left}. To restore the other fields, leave out Prefer: handling=strict.`,
  })
  t.same(warningsOf(await restore(id, 2)), [`field ${left} was not restored`])
  t.match(await storedAgent(world, id), { users: [{ id: BOB, level: 'viewer' }] })
})

t.test(
  '422 at the place of what does not exist and of what may not be attached, alike; nothing is changed',
  async t => {
    await query`insert into document_set (id, name) values (50, 'Ours')`
    await query`insert into document_set_user (document_set_id, user_id) values (50, ${ALICE})`
    await query`insert into label (id, name) values (50, 'ours')`
    const id = await agentOf({ label_ids: [50], tool_ids: [15], document_set_ids: [50] })
    await patch(id, { label_ids: [], tool_ids: [], document_set_ids: [] })
    const enable = (enabled: boolean) => query`update tool set enabled = ${enabled} where id = 15`
    await enable(false)
    await query`delete from document_set_user where document_set_id = 50`
    const before = await hashOfEverything(db)
    const refused = async (version = 1, token = alice) => {
      const answer = await restore(id, version, token)
      t.match(faultsOf(answer)[0], /^body\.version /)
      return answer.json().detail.map(({ msg }: { msg: string }) => msg)
    }
    const missing = 'document_set_ids.0: Document set not found'
    t.same(await refused(), [missing, 'tool_ids.0: This tool is disabled and cannot be attached'])
    t.same(await hashOfEverything(db), before)
    await enable(true)
    t.same(await refused(), [missing])
    await query`delete from document_set where id = 50`
    t.same(await refused(), [missing], 'as one that is not shared with them')
    await query`delete from label where id = 50`
    t.same(await refused(), [missing, 'label_ids.0: Label not found'])
    await patch(id, { tool_ids: [10] })
    await patch(id, { tool_ids: [] })
    const bound = await world.token('alice@example.com', { personaIds: [id] })
    t.same(await refused(3, bound), ['tool_ids.0: Tool not found'])
    t.equal((await restore(id, 3)).statusCode, 200)
  },
)

t.test('200 of a deleted agent for its owner and administrators, with all that it had', async t => {
  for (const token of [alice, admin]) {
    const id = await agentOf({ users: [BOB], label_ids: [1], tool_ids: [10], is_public: true })
    const path = `/persona/${id}`
    await patch(id, { name: 'Last' })
    const before = (await get(path, token)).json()
    const forBob = (await get(path, bob)).body
    await remove(id)
    for (const other of [bob, await world.token('carol@example.com')])
      t.match((await restore(id, 2, other)).json(), { error_code: 'PERSONA_NOT_FOUND' })
    const error_code = 'VERSION_NOT_FOUND'
    const detail = `At that version, agent ${id} was deleted. Choose an earlier version.`
    t.match((await restore(id, 3, token)).json(), { error_code, detail })
    const stale = await restore(id, 2, token, { 'if-match': `"persona-${id}-2"` })
    t.match(stale.json(), { reason: 'changed', applied_etag: null })
    t.match(before, (await restore(id, 2, token, {}, '?dry_run=true')).json())
    t.equal((await get(path, alice)).statusCode, 404)
    t.match(before, (await restore(id, 2, token, { 'if-match': `"persona-${id}-3"` })).json())
    t.equal((await get(path, bob)).body, forBob)
    t.match((await auditRows(db, 'persona', id)).at(-1)?.difference, { deleted: { from: true, to: false } })
    const actions = (await get(`${path}/history`, alice)).json().map(({ action }: { action: string }) => action)
    t.same(actions, ['restored', 'deleted', 'updated', 'created'])
    t.match((await restore(id, 3)).json(), { error_code, detail: /was deleted\. Choose another version\.$/ })
  }
})

t.test('a key restores once, whatever became of the agent', async t => {
  const id = await agentOf()
  await patch(id, { name: 'Other' })
  const once = (version = 1) => restore(id, version, alice, { 'idempotency-key': '"restored once"' })
  t.equal((await once()).statusCode, 200)
  await patch(id, { name: 'Later' })
  const again = await once()
  t.match(again, { statusCode: 200, headers: { etag: `"persona-${id}-3"`, 'idempotent-replayed': 'true' } })
  t.equal(again.json().name, 'Later', 'the agent as it is')
  t.same(faultsOf(await once(2)), ['header.idempotency-key idempotency_key_reused'])
  await world.keepVersions(2)
  t.match(await once(), { statusCode: 200 }, 'also where version 1 is no longer kept')
  await remove(id)
  t.match(await once(), { statusCode: 200, headers: { 'idempotent-replayed': 'true' } })
  t.equal((await call('GET', `/persona/${id}`, { token: alice })).statusCode, 404, 'it did not come back')
})
