import t, { type Test } from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { ALICE, BOB, CAROL } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { faultsOf, hashOfEverything, storedAgent, warningsOf } from '../updates/stored-state.js'

const BOB_FILE = 'f0000000-0000-4000-8000-000000000003'
const ALICE_FILE = 'f0000000-0000-4000-8000-000000000001'
const EXT = 'a0000000-0000-4000-8000-000000000009' // a user without permissions
/** Returns a new organisation and a function that updates an agent by mask, as a person or with a token. */
async function fresh(t: Test) {
  const world = await worldApp(t)
  const tokenOf = (name: string) => world.token(`${name}@example.com`)
  const patch = async (by: string, id: number, body: object, headers: Record<string, string> = {}) => {
    const sent = { token: by.includes('_') ? by : await tokenOf(by), body, headers }
    const answer = await world.call('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, sent)
    const { warning } = answer.headers
    return { status: answer.statusCode, body: answer.json(), warning, faults: faultsOf(answer) }
  }
  return { ...world, world, tokenOf, patch }
}

/** Shared by tests that use different agents or different fields. */
const shared = await fresh(t)

t.test('403: only the owner or an administrator changes is_public and groups; the same value is fine', async t => {
  const { world, patch } = shared
  // Curator is an editor of Alice's agent 13 through the group Engineering.
  const before = await storedAgent(world, 13)
  for (const body of [{ is_public: true }, { groups: [1, 2] }])
    t.match(await patch('curator', 13, body), { status: 403, body: { error_code: 'INSUFFICIENT_PERMISSIONS' } })
  t.strictSame(await storedAgent(world, 13), before)
  t.equal((await patch('curator', 13, { is_public: false, groups: [1, 1], name: 'By an editor' })).status, 200)
  t.equal((await patch('curator', 13, { users: [CAROL] })).status, 200, 'users are not guarded')
  t.equal((await patch('alice', 13, { is_public: true, groups: [2] })).status, 200)
  t.match(await storedAgent(world, 13), {
    ...{ name: 'By an editor', is_public: true },
    ...{ groups: [{ id: 2, level: 'viewer' }], users: [{ id: CAROL, level: 'viewer' }] },
  })
})

t.test('200: `groups: []` of an editor keeps the groups with a warning; 403 in strict mode', async t => {
  const { world, patch, tokenOf } = await fresh(t)
  const { groups } = await storedAgent(world, 13)
  t.ok(Array.isArray(groups) && groups.length > 0)
  const body = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [], groups: [] }
  const kept = await world.call('PATCH', '/persona/13', { token: await tokenOf('curator'), body })
  t.equal(kept.statusCode, 200, kept.body)
  t.match(kept.headers.warning, /^299 - "field groups was kept: only the owner or an administrator may change it"$/)
  t.match(await patch('curator', 13, { groups: [] }), { status: 200, warning: /groups was kept/ })
  const detail = /Only the agent's owner or an administrator may change groups/
  const strict = await patch('curator', 13, { groups: [] }, { prefer: 'handling=strict' })
  t.match(strict, { status: 403, body: { detail } })
  t.strictSame((await storedAgent(world, 13)).groups, groups)
  t.match(await patch('alice', 13, { groups: [] }), { status: 200, warning: undefined })
  t.strictSame((await storedAgent(world, 13)).groups, [])
})

t.test('200: a file is matched by every form of its UUID; an id stored in another form stays attached', async t => {
  const { database, patch } = await fresh(t)
  const bare = ALICE_FILE.replaceAll('-', '').toUpperCase()
  for (const id of [`urn:uuid:${ALICE_FILE}`, `{${ALICE_FILE.toUpperCase()}}`, bare, ALICE_FILE]) {
    await patch('alice', 1, { user_file_ids: [] })
    t.same((await patch('alice', 1, { user_file_ids: [id, ALICE_FILE] })).body.user_file_ids, [ALICE_FILE], id)
  }
  const odd = 'F0000000-0000-4000-8000-00000000ABCD'
  const file = { id: odd, name: 'odd', owner_id: ALICE }
  await database.db.insertInto('user_file').values(file).execute()
  await database.db.insertInto('persona_user_file').values({ persona_id: 1, user_file_id: odd }).execute()
  for (const id of [odd, odd.toLowerCase()])
    t.strictSame((await patch('alice', 1, { user_file_ids: [id] })).body.user_file_ids, [odd])
})

t.test('200: `uploaded_image_id: ""` leaves the image, remove_image takes it away, one that is sent wins', async t => {
  const { world, patch, tokenOf } = await fresh(t)
  const image = async () => (await storedAgent(world, 1)).uploaded_image_id
  await patch('alice', 1, { uploaded_image_id: 'image-1' })
  const whole = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [], uploaded_image_id: '' }
  const token = await tokenOf('alice')
  t.equal((await world.call('PATCH', '/persona/1', { token, body: whole })).statusCode, 200)
  t.equal(await image(), 'image-1')
  for (const [body, stored] of [
    [{ uploaded_image_id: '' }, 'image-1'],
    [{ uploaded_image_id: '', remove_image: true }, null],
    [{ remove_image: true, uploaded_image_id: 'img-2' }, 'img-2'],
    [{ remove_image: false, uploaded_image_id: 'img-3' }, 'img-3'],
    [{ remove_image: null }, 'img-3'],
    [{ remove_image: true, uploaded_image_id: null }, null],
  ] as const) {
    t.equal((await patch('alice', 1, body)).status, 200)
    t.equal(await image(), stored, JSON.stringify(body))
  }
})

t.test('422: a default agent must be public, judged on the merged state', async t => {
  const { patch } = await fresh(t)
  const refused = async (by: string, id: number, body: object, field: string) =>
    t.strictSame((await patch(by, id, body)).faults, [`body.${field} default_persona_private`])
  t.match((await patch('admin', 8, { is_public: false })).body.detail, [{ msg: 'A default agent must be public' }])
  await refused('admin', 8, { is_public: false }, 'is_public')
  await refused('alice', 16, { is_public: false }, 'is_public')
  await refused('alice', 16, { is_public: false, is_default_persona: false }, 'is_public')
  await refused('admin', 1, { is_default_persona: true }, 'is_default_persona')
  t.equal((await patch('admin', 1, { is_default_persona: true, is_public: true })).status, 200)
  t.equal((await patch('admin', 8, { is_default_persona: false, is_public: false })).status, 200)
})

t.test('200 with Warning: is_default_persona and display_priority are kept except for administrators', async t => {
  const { world, patch, token } = await fresh(t)
  const basic = await token('admin@example.com', { scopes: ['basic'] })
  const warningOf = (kept?: string) => kept && `299 - "field ${kept} was kept: only an administrator may change it"`
  const isDefault = 'is_default_persona'
  for (const [by, id, body, stored, kept] of [
    ['alice', 2, { [isDefault]: true, name: 'New' }, { [isDefault]: false, name: 'New' }, isDefault],
    ['alice', 2, { [isDefault]: false }, {}], // the stored value is not a change
    ['alice', 1, { display_priority: 4 }, {}],
    ['alice', 1, { display_priority: 4 }, {}],
    ['alice', 1, { display_priority: 5 }, { display_priority: 4 }, 'display_priority'],
    ['alice', 1, { display_priority: null }, { display_priority: 4 }, 'display_priority'],
    [basic, 8, { display_priority: 5 }, {}, 'display_priority'],
  ] as const) {
    const answer = await patch(by, id, body)
    t.match(answer, { status: 200, warning: warningOf(kept), body: stored }, JSON.stringify(body))
  }
  const strict = await patch('alice', 1, { display_priority: 5, name: 'Not' }, { prefer: 'handling=strict' })
  t.match(strict, { status: 403, body: { error_code: 'INSUFFICIENT_PERMISSIONS' } })
  t.match(await storedAgent(world, 1), { name: 'Alice Private', version: 2, display_priority: 4 })
})

t.test('422: only what is newly attached is checked for access', async t => {
  const { database, patch } = await fresh(t)
  const share = (persona_id: number, user_id: string) =>
    database.db.insertInto('persona_user').values({ persona_id, user_id, level: 'editor' }).execute()
  const isStored = async (by: string, id: number, body: object) =>
    t.equal((await patch(by, id, body)).status, 200, `${by} ${JSON.stringify(body)}`)
  const isRefused = async (by: string, id: number, body: object, ...faults: string[]) =>
    t.strictSame((await patch(by, id, body)).faults, faults)
  await share(11, EXT)
  await share(1, CAROL)

  // An editor without access can send the private document set and files that agent 11 already has.
  await isStored('ext', 11, { document_set_ids: [2, 1], user_file_ids: [ALICE_FILE, ALICE_FILE], tool_ids: [10, 1] })
  await isStored('ext', 11, { document_set_ids: [1] })
  await isRefused('ext', 11, { document_set_ids: [3, 2] }, 'body.document_set_ids.1 not_found')
  await isRefused('carol', 1, { document_set_ids: [2, 1] }, 'body.document_set_ids.0 not_found')
  await isStored('alice', 1, { document_set_ids: [2] }) // document set 2 is shared with the caller
  await isStored('admin', 3, { document_set_ids: [2] })
  await isStored('curator', 9, { document_set_ids: [2] }) // document set 2 is shared with a group of the caller
  await isRefused('alice', 1, { user_file_ids: [ALICE_FILE, BOB_FILE] }, 'body.user_file_ids.1 not_found')
  await isStored('admin', 1, { user_file_ids: [BOB_FILE] })
  await isStored('alice', 1, { user_file_ids: [BOB_FILE, ALICE_FILE] })
  await isStored('alice', 1, { label_ids: [3], users: [BOB], groups: [2] })

  // Tool 16 is disabled, and tool 14 belongs to an MCP server that the caller may not manage.
  const [disabled, forbidden] = ['body.tool_ids.1 tool_disabled', 'body.tool_ids.2 tool_forbidden']
  const missing = ['body.tool_ids.3 not_found', 'body.tool_ids.4 tool_disabled']
  await isRefused('alice', 1, { tool_ids: [10, 16, 14, 999, 16] }, disabled, forbidden, ...missing)
  await isStored('curator', 5, { tool_ids: [16, 10] }) // agent 5 already has the disabled tool
  await isStored('curator', 5, { tool_ids: [10] })
  await isRefused('curator', 5, { tool_ids: [10, 16] }, disabled)
  await isStored('gcurator', 5, { tool_ids: [14] }) // with `manage:actions`, the caller manages every MCP server
  await isStored('curator', 5, { tool_ids: [14, 10] }) // tool 14 is already attached
  await database.db.updateTable('mcp_server').set({ owner_id: ALICE }).where('name', '=', 'Docs MCP').execute()
  await isStored('alice', 1, { tool_ids: [14] })
})

t.test('422: the faults of all references come together, in the declared order', async t => {
  const shares = { groups: [98], users: ['a0000000-0000-4000-8000-00000000ffff'] }
  const links = { user_file_ids: ['x'], label_ids: [1, 99], tool_ids: [97, 1], document_set_ids: [1, 96, 95] }
  const { faults } = await shared.patch('admin', 1, { ...links, ...shares })
  const places = 'document_set_ids.1 document_set_ids.2 tool_ids.0 users.0 groups.0 label_ids.1 user_file_ids.0'
  const wanted = places.split(' ').map(place => `body.${place} not_found`)
  t.strictSame(faults, wanted)
})

t.test('200: ids of files sort by code point, as the database does, so re-sending them changes nothing', async t => {
  const { world, patch } = await fresh(t)
  const ids = ['file-\u{1f600}', 'file-\uff5e', 'file-a']
  const files = ids.map(id => ({ id, name: 'file', owner_id: ALICE }))
  await world.database.db.insertInto('user_file').values(files).execute()
  for (let n = 0; n < 2; n++)
    t.strictSame((await patch('alice', 1, { user_file_ids: ids })).body.user_file_ids, ids.toReversed())
  t.equal((await storedAgent(world, 1)).version, 2)
})

t.test('the rules of the mask itself', async t => {
  const { call, database, admin } = await worldApp(t)
  const send = (query: string, body: unknown, headers = {}) =>
    call('PATCH', `/persona/11${query}`, { token: admin, body, headers })
  const before = await hashOfEverything(database.db)

  t.test('422: unknown names each on its own, parameters that are unknown or repeated, values of a flag', async t => {
    const mask = 'query.update_mask enum'
    const notFields = ['id', 'is_visible', '*', 'name;description', 'Name', '__proto__', ',name']
    for (const [query, body, ...faults] of [
      ['update_mask=nam,description,tols', { description: 5, name: 7 }, mask, mask, 'body.description string_type'],
      ...notFields.map(name => [`update_mask=${encodeURIComponent(name)}`, { name: 'x' }, mask] as const),
      ['update_mask=name&dry_run=true&dry_run=true', { name: 'x' }, 'query.dry_run parameter_repeated'],
      ['update_mask=name&dryrun=true', { name: 'x' }, 'query.dryrun extra_forbidden'],
      ['update_mask=name&tool_id=1', { name: 'x' }, 'query.tool_id extra_forbidden'],
      ['update_mask=name&dry_run=1', { name: 'x' }, 'query.dry_run bool_parsing'],
      [`update_mask=${Array(250).fill('name')}`, { name: 'x' }, 'query.update_mask string_too_long'],
    ] as const)
      t.strictSame(faultsOf(await send(`?${query}`, body)), faults, query)
    const messages = async (query: string) =>
      (await send(query, {})).json().detail.map(({ msg }: { msg: string }) => msg)
    t.match(await messages('?update_mask=nam'), [/'nam' is not a field$/])
    t.match(await messages(`?update_mask=${'x'.repeat(100)}`), [/'x{64}\.\.\.' is not a field$/])
    t.match(await messages('?update_mask=&dryrun=1'), ['Extra inputs are not permitted'])
    t.match(await messages('?update_mask=&update_mask='), ['Input should be given once, but was given more than once'])
  })
  t.test('422: a field that the mask names is missing', async t => {
    const body = { descripton: 'x' }
    const fault = (name: string) => ({ loc: ['body', name], msg: 'Field required', type: 'missing' })
    const { detail } = (await send('?update_mask=description,tool_ids', body)).json()
    t.same(detail, [fault('description'), fault('tool_ids')])
  })
  t.test('200: what is outside the mask is not looked at, and a Warning names it', async t => {
    const outside = (name: string) => `field ${name} was ignored, because it is not in update_mask`
    const empty = await send('?update_mask=', { name: 'ignored', num_chunks: 'not looked at', users: 'neither' })
    t.match(empty, { statusCode: 200, headers: { 'dry-run': undefined } })
    t.same(warningsOf(empty).sort(), [outside('name'), outside('num_chunks'), outside('users')])
    const body = { name: 'n', starter_messages: [{ name: 'a', message: 'b', extra: 1 }] }
    const strict = await send('?update_mask=name&dry_run=true', body, { prefer: 'handling=strict' })
    t.equal(strict.statusCode, 200, strict.body)
    t.same(warningsOf(strict), [outside('starter_messages')])
  })
  t.test('nothing of all this was stored', async t => {
    t.same(await hashOfEverything(database.db), before)
  })
})

t.test('422 of attaching more tools than an answer may take; 409 where they have grown, 204 without them', async t => {
  const { call, query, ...world } = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
  const token = await world.token('admin@example.com')
  const minimal = { prefer: 'return=minimal' }
  const update = (body: object, headers = {}) =>
    call('PATCH', `/persona/11?update_mask=${Object.keys(body)}`, { token, body, headers })
  await query`delete from persona_tool`
  for (const [id, kib] of [
    [11, 700],
    [12, 1_100],
  ] as const) {
    const body = { definition: { ...DEFINITION, 'x-note': 'x'.repeat(kib * 1024) } }
    t.equal((await call('PUT', `/admin/tool/custom/${id}`, { token, body, headers: minimal })).statusCode, 204)
  }
  t.equal((await update({ tool_ids: [11] })).statusCode, 200)
  t.strictSame(faultsOf(await update({ tool_ids: [12] })), ['body.tool_ids snapshot_too_large'])
  await query`insert into persona_tool (persona_id, tool_id) values (11, 12)`
  t.match(await call('GET', '/persona/11', { token }), { statusCode: 409, body: /SNAPSHOT_TOO_LARGE/ })
  t.match((await update({ description: 'refused' })).json(), { detail: /^This request changed nothing\. / })
  const stored = await update({ description: 'stored' }, minimal)
  t.equal(stored.statusCode, 204, stored.body)
  const stale = String(stored.headers.etag).replace(/\d+"$/, '1"')
  const shown = await update({ description: 'stored' }, { ...minimal, 'if-match': stale })
  t.equal(shown.statusCode, 409, 'to an old tag what is stored would have to be shown')
  const long = await query<{ id: number }>`
    insert into tool (name, description) select 'Long', repeat('€', 10000) from generate_series(1, 40) returning id`
  const ids = long.map(({ id }) => id)
  t.strictSame(faultsOf(await update({ tool_ids: ids })), ['body.tool_ids snapshot_too_large'], 'by descriptions')
  const described = await update({ tool_ids: ids.slice(0, 30) })
  t.equal(described.statusCode, 200, described.body)
  await query`insert into tool_header (tool_id, position, name, mask, key_id, nonce, ciphertext)
    select ${ids[0]}, n, repeat('n', 250) || n, '\\x00', 'k', '\\x00', '\\x00' from generate_series(1, 600) n`
  t.match(await call('GET', '/persona/11', { token }), { statusCode: 409, body: /SNAPSHOT_TOO_LARGE/ }, 'by headers')
})
