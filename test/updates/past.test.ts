import { readFileSync } from 'node:fs'
import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { worldApp } from '../app.js'
import { deleteAgent, deleteTool } from '../deletion.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldFile } from '../world.js'
import { newPerson, sequence, versionOf } from './stored-state.js'

const { call, token, database, ring, admin: alice } = await worldApp(t)

const VERSIONS = 30
const AGENT = '/persona/1'
const TOOL = '/admin/tool/custom/10'
const FILE = 'f0000000-0000-4000-8000-000000000001'

const get = (url: string) => call('GET', url, { token: alice })

async function update(method: string, url: string, body: object) {
  const answer = await call(method, url, { token: alice, body })
  if (answer.statusCode !== 200) throw new Error(answer.body)
  return answer
}

const patch = (body: object) => update('PATCH', `${AGENT}?update_mask=${Object.keys(body)}`, body)
const put = (body: object) => update('PUT', TOOL, body)
const prune = (versionsMax: number) => pruneHistory(database.db, { auditRetentionDays: 400, versionsMax })

const idsIn = (records: { id: number }[]) => records.map(({ id }) => id)

function definition(title: string) {
  return { ...DEFINITION, paths: { '/a': { get: { operationId: title.replaceAll(' ', '_'), summary: title } } } }
}

t.test(`each of ${VERSIONS} versions: an agent's own fields and its links, a tool byte for byte`, async t => {
  const pick = sequence(17)
  const seen: { agent: LightMyRequestResponse; tool: LightMyRequestResponse }[] = []
  const edits = [
    (i: number) => patch({ name: `agent ${i}` }),
    (i: number) => patch({ starter_messages: pick(3) === 0 ? null : [{ name: `n${i}`, message: `m "${i}" \u00e4` }] }),
    (i: number) => patch({ num_chunks: pick(1_000) / 8, search_start_date: `2026-01-01T00:00:00.${i}Z` }),
    () => patch({ tool_ids: [10, 11, 12].filter(() => pick(2) === 0) }),
    () => patch({ document_set_ids: [1, 2].filter(() => pick(2) === 0), label_ids: [1].filter(() => pick(2) === 0) }),
    (i: number) => put({ name: `tool ${i}`, description: `of ${i}` }),
    (i: number) => put({ definition: definition(`op ${i % 7}`) }),
    (i: number) => put({ custom_headers: pick(3) === 0 ? [] : [{ key: `X-${pick(2)}`, value: `secret ${i}` }] }),
    () => put({ passthrough_auth: pick(2) === 0, oauth_config_id: null }),
  ]
  for (let i = 0; i < VERSIONS; i++) {
    await edits[pick(edits.length)]?.(i)
    seen.push({ agent: await get(AGENT), tool: await get('/tool/10') })
  }
  for (const { agent, tool } of seen) {
    const then = await get(`${AGENT}?version=${versionOf(agent)}`)
    const { tools: was, ...fields } = agent.json()
    const { tools: shown, ...own } = then.json()
    t.strictSame(own, fields)
    t.strictSame(idsIn(shown), idsIn(was))
    for (const one of shown) t.strictSame(one, (await get(`/tool/${one.id}`)).json(), 'a tool as it is now')
    const toolThen = await get(`/tool/10?version=${versionOf(tool)}`)
    t.equal(toolThen.body, tool.body)
    t.equal(toolThen.headers.etag, tool.headers.etag)
  }
})

t.test('403: a reader of what was private before does not read its past', async t => {
  const secret = 'a prompt of when it was private'
  const version = versionOf(await patch({ system_prompt: secret, is_public: false }))
  await patch({ system_prompt: 'of today', is_public: true })
  const share = { persona_id: 1, user_id: await newPerson(database, 'editor@example.com'), level: 'editor' as const }
  await newPerson(database, 'reader@example.com')
  await newPerson(database, 'builder@example.com', 'manage:actions')
  await database.db.insertInto('persona_user').values(share).execute()
  const past = async (email: string, address: string) => call('GET', address, { token: await token(email) })
  const agentTakes = 'You can see this agent but not its earlier versions. Only its owner, its editors and '
  const toolTakes = 'You can see this tool but not its earlier versions. They require the right to manage the tool.'
  const readers = { [AGENT]: ['reader', 'builder'], '/tool/10': ['reader', 'editor'] }
  for (const query of [`version=${version}`, 'version=99999']) {
    for (const [address, names] of Object.entries(readers))
      for (const name of names) {
        const { error_code, detail } = (await past(`${name}@example.com`, `${address}?${query}`)).json()
        t.equal(error_code, 'INSUFFICIENT_PERMISSIONS', `${name} ${address} ${query}`)
        t.ok(detail.startsWith(address === AGENT ? agentTakes : toolTakes), detail)
      }
    t.equal((await past('reader@example.com', `/persona/3?${query}`)).statusCode, 404, 'an invisible one stays 404')
  }
  for (const email of ['alice@example.com', 'editor@example.com', 'admin@example.com']) {
    t.match((await past(email, `${AGENT}?version=${version}`)).json(), { system_prompt: secret }, email)
  }
  for (const email of ['builder@example.com', 'admin@example.com']) {
    t.equal((await past(email, '/tool/10?version=1')).statusCode, 200, email)
    const builtIn = (await past(email, '/tool/1?version=0')).json()
    t.equal(builtIn.error_code, 'VERSION_NOT_FOUND', `${email}: a built-in tool`)
  }
  t.equal((await past('alice@example.com', '/tool/1?version=1')).statusCode, 403, 'a built-in tool')
})

t.test('404 between deletion and return; 410 before that for a tool, which is made anew', async t => {
  const was = versionOf(await get('/persona/2'))
  await deleteAgent(database, 2)
  const back = await call('POST', '/persona/2/restore', { token: alice, body: { version: was } })
  t.equal(back.statusCode, 200, back.body)
  const between = { error_code: 'VERSION_NOT_FOUND', detail: /was deleted\. Choose another version\.$/ }
  t.match((await get(`/persona/2?version=${was + 1}`)).json(), between)

  const version = versionOf(await get('/tool/13'))
  const world = JSON.parse(readFileSync(worldFile(), 'utf8'))
  const tools = world.tools.filter((tool: { id: number }) => tool.id === 13)
  await deleteTool(database, 13)
  await applyOrganisation(database, { version: 1, tools }, { ring, env: {} })
  t.equal((await get('/tool/13')).statusCode, 200)
  const at = async (version: number) => (await get(`/tool/13?version=${version}`)).json()
  t.match(await at(version + 1), between)
  t.match(await at(version), { error_code: 'VERSION_GONE', reason: 'deleted' })
})

t.test('what was deleted since is left out and named, and the rest of the agent is shown', async t => {
  const had = await patch({ tool_ids: [12], label_ids: [1], document_set_ids: [2], name: 'had twelve' })
  const address = `${AGENT}?version=${versionOf(had)}`
  await patch({ tool_ids: [], label_ids: [], document_set_ids: [], name: 'has none' })
  const links = ['document_set_cc_pair', 'document_set_federated_connector', 'document_set_user', 'document_set_group']
  await database.pool.query(`
    delete from persona_tool where tool_id = 12; delete from tool_header where tool_id = 12; delete from tool where id = 12;
    delete from persona_label where label_id = 1; delete from label where id = 1;
    ${['persona_document_set', ...links].map(table => `delete from ${table} where document_set_id = 2;`).join(' ')}
    delete from document_set where id = 2`)
  const deleted = await get(address)
  t.match(deleted.json(), { name: 'had twelve', tools: [], labels: [], document_sets: [] })
  t.match(deleted.headers.warning, /deleted or hidden from you are omitted: document set 2, tool 12, label 1"/)
})

t.test('410 with the reason: pruned contents, pruned rows; the present version is shown with its tools', async t => {
  await patch({ tool_ids: [10], name: 'kept', description: 'kept' })
  const current = versionOf(await patch({ name: 'newest' }))
  await prune(1)
  const gone = await get(`${AGENT}?version=1`)
  t.equal(gone.statusCode, 410)
  const detail = /before version \d+ .*HISTORY_VERSIONS_MAX/
  t.match(gone.json(), { error_code: 'VERSION_GONE', reason: 'pruned', detail })
  t.match((await get(`${AGENT}?version=${current - 1}`)).json(), { name: 'kept' })
  for (let i = 0; i < 3; i++) await put({ name: `pruned ${i}` })
  await prune(1)
  const present = await get(`${AGENT}?version=${current}`)
  t.match(present.json(), { name: 'newest', tools: [{ id: 10, name: 'pruned 2' }] })
  t.equal(present.headers.warning, undefined)

  await sql`update audit set at = at - interval '500 days'`.execute(database.db)
  await prune(100)
  t.match((await get(`${AGENT}?version=${current - 1}`)).json(), { error_code: 'VERSION_GONE', reason: 'pruned' })
  t.match((await get(`${AGENT}?version=${current}`)).json(), { name: 'newest' }, 'known by its anchor')
})

t.test('409 for an earlier version of a tool or agent whose definitions are larger than an answer', async t => {
  const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
  const admin = await world.token('admin@example.com')
  const send = (method: string, url: string, body?: object) => world.call(method, url, { token: admin, body })
  const large = { ...definition('large'), 'x-large': 'x'.repeat(2 ** 20) }
  const minimal = { token: admin, body: { definition: large }, headers: { prefer: 'return=minimal' } }
  const tool = versionOf(await world.call('PUT', TOOL, minimal))
  await send('PUT', TOOL, { definition: definition('small') })
  await send('PATCH', `${AGENT}?update_mask=tool_ids`, { tool_ids: [] })
  t.equal((await send('GET', '/tool/10')).statusCode, 200)
  const refused = await send('GET', `/tool/10?version=${tool}`)
  t.match([refused.statusCode, refused.json()], [409, { error_code: 'SNAPSHOT_TOO_LARGE' }])
  const without = versionOf(await send('GET', '/persona/2'))
  const small = versionOf(await send('PATCH', '/persona/2?update_mask=tool_ids', { tool_ids: [10] }))
  await send('PATCH', '/persona/2?update_mask=tool_ids', { tool_ids: [] })
  await world.call('PUT', TOOL, minimal)
  t.equal((await send('GET', `/persona/2?version=${without}`)).statusCode, 200)
  t.match((await send('GET', `/persona/2?version=${small}`)).json(), { error_code: 'SNAPSHOT_TOO_LARGE' })
})

/* An earlier version shows only what the caller can read now. */

t.test('what an editor may not read is left out with a Warning: sets of documents, files, their ids', async t => {
  const { call, token, database } = await worldApp(t)
  const [alice, admin] = [await token('alice@example.com'), await token('admin@example.com')]
  const editor = await newPerson(database, 'later@example.com')
  const later = await token('later@example.com')
  await database.db.insertInto('persona_user').values({ persona_id: 1, user_id: editor, level: 'editor' }).execute()
  const send = (url: string, token: string, body?: object) => call(body ? 'PATCH' : 'GET', url, { token, body })
  const mask = '?update_mask=document_set_ids,user_file_ids'
  const had = { document_set_ids: [1, 2], user_file_ids: [FILE] }
  const version = versionOf(await send(AGENT + mask, alice, had))
  const shown = { document_sets: [{ id: 1 }, { id: 2 }], user_file_ids: [FILE] }
  t.match((await send(AGENT, later)).json(), shown, 'what the agent has now every reader sees')
  t.match((await send(`${AGENT}?version=${version}`, later)).json(), shown)
  await send(AGENT + mask, alice, { document_set_ids: [], user_file_ids: [] })
  for (const token of [alice, admin]) t.match((await send(`${AGENT}?version=${version}`, token)).json(), shown)
  const past = await send(`${AGENT}?version=${version}`, later)
  t.match(past.json(), { document_sets: [{ id: 1 }], user_file_ids: [] })
  t.match(past.headers.warning, /"records that are deleted or hidden from you are omitted: document set 2, 1 file"/)
  const restored = await call('POST', `${AGENT}/restore`, { token: later, body: { version } })
  const missing = ['document_set_ids.1: Document set not found', 'user_file_ids.0: File not found']
  t.same(
    restored.json().detail.map(({ msg }: { msg: string }) => msg),
    missing,
  )
  const history = await send(`${AGENT}/history`, later)
  for (const { body, headers } of [past, restored, history]) {
    t.notMatch(body + String(headers.warning), /Private Docs|f0000000/)
  }
  t.match((await send(`${AGENT}/history`, alice)).body, FILE)
})

t.test('an OAuth configuration that a group manager may not link is left out of an earlier version', async t => {
  const { call, token } = await worldApp(t)
  const [admin, manager] = [await token('admin@example.com'), await token('curator@example.com')]
  const send = (token: string, oauth_config_id: number | null) =>
    call('PUT', '/admin/tool/custom/11', { token, body: { oauth_config_id } })
  const version = versionOf(await send(admin, 1))
  await send(admin, null)
  const past = await call('GET', `/tool/11?version=${version}`, { token: manager })
  t.match(past.json(), { oauth_config_id: null, oauth_config_name: null })
  t.match(past.headers.warning, /"OAuth configuration 1 is omitted, because it is deleted or hidden from you"/)
  const whole = await call('GET', `/tool/11?version=${version}`, { token: admin })
  t.match(whole.json(), { oauth_config_id: 1, oauth_config_name: 'GitHub OAuth' })
})
