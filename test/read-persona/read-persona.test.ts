import t from 'tap'
import { REQUEST_FIELDS as AGENT_FIELDS } from '../../src/persona/fields.js'
import { CustomToolUpdate } from '../../src/tool/schema.js'
import { pagesOf, REQUIRED_FIELDS, worldApp } from '../app.js'
import { matrixCallers, matrixOrganisation } from '../matrix-organisation.js'
import { faultsOf } from '../updates/stored-state.js'

const AGENT = 11
const PATH = `/persona/${AGENT}`
const shared = await worldApp(t)
const { call, token, database, query } = shared
const admin = await token('admin@example.com')

t.test('200: the agent as an update answers it, with a tag that an update takes as If-Match', async t => {
  const read = await call('GET', PATH, { token: admin })
  t.match(read.json(), (await call('PATCH', `${PATH}?update_mask=&dry_run=true`, { token: admin, body: {} })).json())
  const headers = { 'if-match': String(read.headers.etag) }
  const rename = (name: string) => call('PATCH', `${PATH}?update_mask=name`, { token: admin, body: { name }, headers })
  t.equal((await rename('Read before')).statusCode, 200)
  const stale = await rename('Too late')
  t.match([stale.statusCode, stale.json().changed], [412, [{ field: 'name' }]], 'it says which version was read')
})

t.test('200: a read has all that a whole update replaces, and changes nothing when it is sent back', async t => {
  const agentFields = AGENT_FIELDS.map(([name]) => name).filter(name => name !== 'remove_image')
  const toolFields = Object.keys(CustomToolUpdate.properties)
  const dated = { search_start_date: '2024-01-02T03:04:05.000000Z', recency_bias: 'favor_recent' }
  await call('PATCH', `${PATH}?update_mask=${Object.keys(dated)}`, { token: admin, body: dated })
  const { version } = (await call('GET', `${PATH}/history?limit=1`, { token: admin })).json()[0]
  for (const prefix of ['', '/api'])
    for (const [path, method, write, fields] of [
      [PATH, 'PATCH', PATH, agentFields],
      ['/tool/10', 'PUT', '/admin/tool/custom/10', toolFields],
    ] as const) {
      const read = await call('GET', prefix + path, { token: admin })
      const record = read.json()
      const body = Object.fromEntries(fields.map(name => [name, valueIn(record, name)]))
      for (const name of fields) t.not(body[name], undefined, `${prefix}${path} shows ${name}`)
      const tag = String(read.headers.etag).replace(/\..*/, '"')
      const sent = await call(method, prefix + write, { token: admin, body })
      t.match(sent, { statusCode: 200, headers: { etag: tag } }, `${prefix}${write} ${sent.body}`)
    }
  t.match((await call('GET', PATH, { token: admin })).json(), dated)
  await call('PATCH', `${PATH}?update_mask=search_start_date`, { token: admin, body: { search_start_date: null } })
  t.match((await call('GET', `${PATH}?version=${version}`, { token: admin })).json(), dated, 'also an earlier version')
})

/** Returns the value of a request's field in a record. For users and other fields of ids, returns the ids of the listed records. */
function valueIn(record: Record<string, unknown>, name: string): unknown {
  const value = record[name] ?? record[name.replace(/_ids$/, 's')] ?? (name in record ? null : undefined)
  if (!Array.isArray(value) || !/_ids$|^users$/.test(name)) return value
  return value.map(item => item.id ?? item)
}

t.test('304 while nothing that the answer shows has changed; 200 when only a tool of the agent has', async t => {
  const first = await call('GET', PATH, { token: admin })
  const again = (tag: string) => call('GET', PATH, { token: admin, headers: { 'if-none-match': tag } })
  const tag = String(first.headers.etag)
  for (const sent of [tag, `W/${tag}`, `"other", ${tag}`, '*']) {
    const headers = { etag: tag, 'content-length': undefined, 'content-type': undefined }
    t.match(await again(sent), { statusCode: 304, body: '', headers }, sent)
  }
  const [tool] = first.json().tools
  await database.db.updateTable('tool').set({ description: 'changed beside' }).where('id', '=', tool.id).execute()
  const changed = await again(tag)
  t.match(changed.json().tools, [{ description: 'changed beside' }])
  t.not(changed.headers.etag, tag)
  t.equal((await again('damaged')).statusCode, 422)
})

t.test('200: answers are compact, and a source that the product added is shown as it is stored', async t => {
  await database.db.updateTable('cc_pair').set({ source: 'added_by_the_product' }).execute()
  const sets = await database.db.selectFrom('document_set').select('id').execute()
  const starter_messages = [{ name: 'a "name" : of', message: 'a, {message}' }]
  const body = { document_set_ids: sets.map(({ id }) => id), tool_ids: [10], label_ids: [1], starter_messages }
  const updated = await call('PATCH', `/persona/1?update_mask=${Object.keys(body)}`, { token: admin, body })
  t.equal(updated.statusCode, 200, updated.body)
  t.match(updated.body, '"source":"added_by_the_product"')
  for (const path of ['/persona/1', '/persona', '/tool', '/tool/10', '/me', '/persona/1?version=1']) {
    const { statusCode, body } = await call('GET', path, { token: admin })
    t.equal(statusCode, 200, body)
    t.equal(body, JSON.stringify(JSON.parse(body)), path)
  }
  const read = (await call('GET', '/persona/1', { token: admin })).body
  t.ok(read.startsWith(updated.body.slice(0, -1)))
})

interface Listed {
  id: number
  name: string
  etag: string
}

const ids = (records: readonly Listed[]) => records.map(({ id }) => id)

t.test('200: every kind of caller lists just the agents that they can read, each with its tag', async t => {
  const world = await worldApp(t, { CONCURRENT_REQUESTS_MAX: '5000' })
  await world.apply(matrixOrganisation())
  const all = await world.database.db.selectFrom('persona').select('id').orderBy('id').execute()
  for (const [caller, authorization] of await matrixCallers(world)) {
    const headers: Record<string, string> = authorization === undefined ? {} : { authorization }
    const first = await world.call('GET', '/persona', { headers })
    if (first.statusCode !== 200) {
      t.ok([401, 403].includes(first.statusCode), caller)
      continue
    }
    const reads = await Promise.all(all.map(({ id }) => world.call('GET', `/persona/${id}`, { headers })))
    const pages = await pagesOf<Listed>(world, '/persona?limit=5', headers)
    for (const page of pages.slice(0, -1)) t.equal(page.length, 5, 'full pages before the last')
    const records = pages.flat()
    const readable = reads.filter(({ statusCode }) => statusCode === 200)
    const listed = records.map(({ id, etag }) => [id, etag.slice(0, -1)])
    t.strictSame(
      listed,
      readable.map(read => [read.json().id, String(read.headers.etag).split('.')[0]]),
      caller,
    )
    const [one] = records
    if (one === undefined) continue
    const { id, name } = one
    const named = (await pagesOf<Listed>(world, `/persona?limit=1&name=${encodeURIComponent(name)}`, headers)).flat()
    t.ok(ids(named).includes(id) && named.every(one => one.name === name), `${caller} finds ${name}`)
  }
})

t.test('200: deleted agents are listed to their owner and administrators, with the time of the deletion', async t => {
  const [alice, bob] = [await token('alice@example.com'), await token('bob@example.com')]
  const before = Date.now()
  const body = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [], is_public: true }
  const { id } = (await call('POST', '/persona', { token: alice, body })).json()
  t.equal((await call('DELETE', `/persona/${id}`, { token: alice })).statusCode, 204)
  const deleted = async (of: string) => (await call('GET', '/persona?deleted=true', { token: of })).json()
  const [one] = (await deleted(alice)).filter((each: Listed) => each.id === id)
  t.ok(Date.parse(one.updated_at) >= before - 1_000, 'the clock of PostgreSQL is the same')
  t.ok(ids(await deleted(admin)).includes(id))
  t.notOk(ids(await deleted(bob)).includes(id))
  t.notOk(ids((await call('GET', '/persona', { token: alice })).json()).includes(id))
})

t.test('304, HEAD, and 422 for what a list does not take', async t => {
  const alice = await token('alice@example.com')
  const list = await call('GET', '/persona?limit=2', { token: alice })
  const tag = String(list.headers.etag)
  const shown = { id: Number, name: String, description: String, is_public: Boolean, etag: /^"persona-\d+-\d+"$/ }
  t.match(list.json()[0], shown)
  t.notMatch(Object.keys(list.json()[0]), ['system_prompt'])
  const again = await call('GET', '/persona?limit=2', { token: alice, headers: { 'if-none-match': tag } })
  t.strictSame([again.statusCode, again.body], [304, ''])
  const head = await call('HEAD', '/persona?limit=2', { token: alice })
  t.strictSame([head.statusCode, head.body, head.headers.etag, head.headers.link], [200, '', tag, list.headers.link])
  for (const [query, ...faults] of [
    ['limit=0', 'query.limit greater_than_equal'],
    ['limit=101', 'query.limit less_than_equal'],
    ['after=x&page=2', 'query.after int_parsing', 'query.page extra_forbidden'],
    ['after=2147483648', 'query.after less_than_equal'],
    ['name=%00', 'query.name string_nul'],
  ])
    t.strictSame(faultsOf(await call('GET', `/persona?${query}`, { token: alice })), faults)
  t.strictSame((await call('GET', '/persona?after=2147483647', { token: alice })).json(), [])
})

t.test('200: a token that is bound to tools lists these alone', async t => {
  const tools = await token('admin@example.com', { toolIds: [11, 10] })
  t.strictSame(ids((await call('GET', '/tool?limit=1', { token: tools })).json()), [10])
  t.strictSame(ids((await call('GET', '/tool?after=10', { token: tools })).json()), [11])
})

t.test('200: tools are listed to every signed-in caller, by name too, without anything secret', async t => {
  const headers = { authorization: `Bearer ${await token('alice@example.com', { scopes: ['basic'] })}` }
  const records = (await pagesOf<Listed>(shared, '/tool?limit=3', headers)).flat()
  const stored = await database.db.selectFrom('tool').select(['id', 'name', 'version']).orderBy('id').execute()
  const listed = records.map(({ id, name, etag }) => [id, name, etag])
  t.same(
    listed,
    stored.map(({ id, name, version }) => [id, name, `"tool-${id}-${version}"`]),
  )
  for (const { name } of stored) {
    const named = await call('GET', `/tool?name=${encodeURIComponent(name)}`, { headers })
    t.ok(ids(named.json()).length > 0)
    t.notMatch(named.body, /custom_headers|\*{4}#|definition/)
  }
})

t.test('GET /me: who calls, and what the token allows', async t => {
  const curator = await token('curator@example.com', { scopes: ['manage:actions'], personaIds: [1], toolIds: [10] })
  const me = await call('GET', '/me', { token: curator })
  t.equal(me.statusCode, 200)
  const { token: own, ...person } = me.json()
  const groups = await query`
    select g.id, g.name from user_group_member m join user_group g on g.id = m.user_group_id
    where m.is_manager and m.user_id = ${me.json().user.id} order by g.id`
  t.ok(groups.length > 0)
  const user = { email: 'curator@example.com', kind: 'person' }
  t.match(person, { user, permission: 'basic', managed_groups: groups })
  t.match(own, { scopes: ['manage:actions'], persona_ids: [1], tool_ids: [10], requires_if_match: false })
  t.equal(own.expires_at, me.headers['token-expires-at'])
  const again = await call('GET', '/me', { token: curator, headers: { 'if-none-match': String(me.headers.etag) } })
  t.equal(again.statusCode, 304)
  const admin = await call('GET', '/me', { token: await token('admin@example.com', { expiresInS: null }) })
  t.match(admin.json(), { permission: 'admin', token: { scopes: null, persona_ids: null, expires_at: null } })
})
