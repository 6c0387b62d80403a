import t from 'tap'
import { listAudit } from '../../src/admin/audit-list.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { pagesOf } from '../app.js'
import { ADMIN, ALICE, BOB, CAROL } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { newPerson, warningsOf } from '../updates/stored-state.js'
import { historyWorld } from './world.js'

/* `GET /persona/{id}/history` and `GET /tool/{id}/history`. */

const world = await historyWorld(t)
const { call, db, query, alice, bob, admin, get, patch, put, agentOf, toolOf, remove, apply } = world

t.test('200, newest first: who changed what of an agent, when, by which request', async t => {
  const id = await agentOf({ users: [BOB] })
  const long = 'p'.repeat(5_000)
  const second = await patch(id, { label_ids: [2], system_prompt: long, tool_ids: [10], document_set_ids: [1] })
  const name = 'of the administrator'
  await patch(id, { is_public: true, groups: [1], name }, admin)
  await apply({ agents: [{ id, name, owner: 'carol@example.com' }] })
  const answer = await get(`/persona/${id}/history`)
  t.equal(answer.statusCode, 200, answer.body)
  const [applied, third, changed, created, ...others] = answer.json()
  t.same(others, [])
  t.match(applied, { version: 4, action: 'applied', actor: { id: null, command: 'agentctl' }, fields: ['owner_id'] })
  const from = { id: ALICE, email: 'alice@example.com' }
  t.same(applied.changes, [{ field: 'owner_id', from, to: { id: CAROL, email: 'carol@example.com' } }])
  t.match(third, { version: 3, action: 'updated', actor: { id: ADMIN, email: 'admin@example.com' } })
  t.match(third.changes, [
    { field: 'name', from: 'Agent', to: name },
    { field: 'is_public', from: false, to: true },
    { field: 'groups', from: [], to: [{ id: 1, name: 'Engineering', level: 'viewer' }] },
  ])
  t.equal(changed.request_id, second.headers['x-request-id'])
  t.same(changed.changes, [
    { field: 'document_set_ids', from: [], to: [{ id: 1, name: 'Public Docs' }] },
    { field: 'tool_ids', from: [], to: [{ id: 10, name: 'items' }] },
    { field: 'system_prompt', from: 'sys' },
    { field: 'label_ids', from: [], to: [{ id: 2, name: 'beta' }] },
  ])
  t.equal((await get(`/persona/${id}?version=2`)).json().system_prompt, long)
  t.match(created, { version: 1, action: 'created', actor: { email: 'alice@example.com' } })
  const shared = created.changes.find(({ field }: { field: string }) => field === 'users')
  t.match(shared, { from: [], to: [{ id: BOB, email: 'bob@example.com', level: 'viewer' }] })
})

t.test('200 in pages, each led to by Link; 304 for what the caller has, and HEAD', async t => {
  const id = await agentOf()
  for (let n = 2; n <= 25; n++) await patch(id, { name: `name ${n}` })
  const headers = { authorization: `Bearer ${alice}` }
  const pages = await pagesOf<{ version: number }>(world, `/persona/${id}/history?limit=10`, headers)
  const versions = pages.map(page => page.map(({ version }) => version).join())
  t.same(versions, ['25,24,23,22,21,20,19,18,17,16', '15,14,13,12,11,10,9,8,7,6', '5,4,3,2,1'])
  const first = await get(`/persona/${id}/history`, alice)
  t.equal(first.json().length, 20)
  t.same(warningsOf(first), ['there are more changes; Link has the address of the next page'])
  t.equal((await get(`/persona/${id}/history`, alice, { 'if-none-match': String(first.headers.etag) })).statusCode, 304)
  t.match(await call('HEAD', `/persona/${id}/history`, { token: alice }), { statusCode: 200, body: '' })
  for (const [query, type] of Object.entries({
    'limit=101': 'less_than_equal',
    'limit=0': 'greater_than_equal',
    'before=x': 'int_parsing',
    'after=1': 'extra_forbidden',
  }))
    t.match((await get(`/persona/${id}/history?${query}`, alice)).json(), { detail: [{ type }] }, query)
})

t.test('200 of a tool: masks of secrets, no long definition', async t => {
  const secret = 'a value that nobody reads'
  const id = await toolOf({ custom_headers: [{ key: 'X-Key', value: secret }] })
  const paths = { '/later': { get: { operationId: 'later', summary: 'x'.repeat(5_000) } } }
  await put(id, { definition: { ...DEFINITION, paths }, oauth_config_id: 1 })
  await put(id, { custom_headers: [], oauth_config_id: null })
  const answer = await get(`/tool/${id}/history`)
  t.equal(answer.statusCode, 200, answer.body)
  t.notMatch(answer.body, secret)
  const [third, second, first] = answer.json()
  t.match(third.changes, [
    { field: 'custom_headers', from: [{ key: 'X-Key', value: /^\*{4}#[0-9a-f]{12}$/ }], to: [] },
    { field: 'oauth_config_id', from: { id: 1, name: 'GitHub OAuth' }, to: null },
  ])
  t.same(second.changes[0], { field: 'definition', from: DEFINITION })
  const [name, defined] = first.changes
  t.match([first.action, name, defined], ['created', { field: 'name', to: 'x' }, { field: 'definition', from: null }])
  t.equal((await get(`/tool/1/history`)).statusCode, 200, 'a built-in tool')
})

t.test(
  '403 for readers, with a sentence; 404 for what is deleted, except for its owner and administrators',
  async t => {
    const id = await agentOf({ is_public: true, users: [BOB] })
    const historyFor = async (token: string, path = `/persona/${id}`) => (await get(`${path}/history`, token)).json()
    t.match(await historyFor(bob), { detail: /^You can see this agent but not its earlier versions/ })
    t.match(await historyFor(bob, '/tool/10'), { detail: /^You can see this tool but not its earlier versions/ })
    await world.makeBobEditor(id)
    t.match(await historyFor(bob), [{ action: 'created' }], 'an editor by a share')
    await remove(`/persona/${id}`)
    t.match(await historyFor(bob), { error_code: 'PERSONA_NOT_FOUND' })
    for (const token of [alice, admin])
      t.match(await historyFor(token), [{ version: 2, action: 'deleted', actor: { email: 'alice@example.com' } }])
  },
)

t.test('no name of a tool or document set that the caller could not read elsewhere', async t => {
  const stranger = await newPerson(world.database, 'stranger@example.com')
  const id = await agentOf({ users: [stranger], tool_ids: [13], document_set_ids: [2] })
  await query`update persona_user set level = 'editor' where persona_id = ${id}`
  await patch(id, { tool_ids: [], document_set_ids: [] })
  const bound = await world.token('alice@example.com', { personaIds: [id] })
  const namesFor = async (token: string) => {
    const [entry] = (await get(`/persona/${id}/history`, token)).json()
    return entry.changes.map(({ from }: { from: [{ name: string | null }] }) => from[0].name)
  }
  t.same(await namesFor(alice), ['Private Docs', 'alice_tool'])
  const forStranger = await namesFor(await world.token('stranger@example.com'))
  t.same(forStranger, [null, 'alice_tool'], 'a document set that is not shared with them')
  t.same(await namesFor(bound), ['Private Docs', null], 'a tool that a bound token sees not')
})

t.test('people who were erased stay erased; a pruned past says from where on it is kept', async t => {
  await newPerson(world.database, 'gone@example.com', 'manage:actions')
  const gone = await world.token('gone@example.com')
  const id = await agentOf({ users: [ALICE] }, gone)
  for (let n = 2; n <= 6; n++) await patch(id, { name: `name ${n}` }, gone)
  await eraseUser(db, 'gone@example.com')
  const erased = await get(`/persona/${id}/history`)
  t.notMatch(erased.body, 'gone@example.com')
  t.match(erased.json()[0].actor, { email: /^erased-.*@erased\.invalid$/ })
  await world.keepVersions(3)
  const pruned = await get(`/persona/${id}/history`)
  const kept = pruned.json().map(({ changes }: { changes: unknown }) => changes !== null)
  t.same(kept, [true, true, true, false, false, false])
  t.same(warningsOf(pruned), ['the contents of versions before 3 are no longer stored'])
  t.equal((await get(`/persona/${id}?version=3`)).statusCode, 200)
  t.equal((await get(`/persona/${id}?version=2`)).statusCode, 410)
  t.same(warningsOf(await get(`/persona/${id}/history?limit=2`)), [])
})

t.test('200 of a tool that was made anew: only what it is since', async t => {
  const id = await toolOf({ name: 'first' })
  await remove(`/admin/tool/custom/${id}`, admin)
  t.equal((await get(`/tool/${id}/history`)).statusCode, 404)
  await apply({ tools: [{ id, name: 'second', definition: DEFINITION }] })
  const entries = (await get(`/tool/${id}/history`)).json()
  t.match(entries, [{ version: 3, action: 'created', changes: [{ to: 'second' }] }])
  const listed = await listAudit(db, { kind: 'tool', subject: String(id) })
  t.same(
    listed.map(({ action }) => action),
    ['created', 'deleted', 'created'],
  )
  t.equal(entries.length, 1)
})
