import { sql } from 'kysely'
import t from 'tap'
import { REQUIRED_FIELDS, type WorldApp, worldApp } from '../app.js'
import { ALICE, BOB, CAROL } from '../fixtures/users.js'
import { faultsOf, hashOfEverything, storedAgent, warningsOf } from '../updates/stored-state.js'

const BOB_FILE = 'f0000000-0000-4000-8000-000000000003'
const ALICE_FILE = 'f0000000-0000-4000-8000-000000000001'

/** Sends only these fields, by a mask. */
async function patch(
  { call }: WorldApp,
  token: string,
  id: number,
  body: object,
  headers: Record<string, string> = {},
) {
  const answer = await call('PATCH', `/persona/${id}?update_mask=${Object.keys(body).join(',')}`, {
    token,
    body,
    headers,
  })
  return {
    status: answer.statusCode,
    body: answer.json(),
    warning: answer.headers.warning,
    faults: faultsOf(answer),
  }
}

/** For the tests that touch different agents, or fields that no other looks at. */
const shared = await worldApp(t)

t.test('403: only the owner or an administrator changes is_public and groups; the same value is fine', async t => {
  const world = shared
  // Curator manages Engineering, with which agent 13 of Alice is shared as editor.
  const editor = await world.token('curator@example.com')
  const owner = await world.token('alice@example.com')
  const before = await storedAgent(world, 13)
  for (const body of [{ is_public: true }, { groups: [1, 2] }]) {
    const refused = await patch(world, editor, 13, body)
    t.equal(refused.status, 403, JSON.stringify(body))
    t.equal(refused.body.error_code, 'INSUFFICIENT_PERMISSIONS')
  }
  t.strictSame(await storedAgent(world, 13), before)
  t.equal((await patch(world, editor, 13, { is_public: false, groups: [1, 1], name: 'By an editor' })).status, 200)
  t.equal((await patch(world, editor, 13, { users: [CAROL] })).status, 200, 'users are not guarded')
  t.equal((await patch(world, owner, 13, { is_public: true, groups: [2] })).status, 200)
  t.match(await storedAgent(world, 13), {
    name: 'By an editor',
    is_public: true,
    groups: [{ id: 2, level: 'viewer' }],
    users: [{ id: CAROL, level: 'viewer' }],
  })
})

t.test(
  '200: `groups: []` of an editor keeps the groups with a warning; 403 in strict mode; the owner removes them',
  async t => {
    const world = await worldApp(t)
    const editor = await world.token('curator@example.com')
    const { groups } = await storedAgent(world, 13)
    t.ok(Array.isArray(groups) && groups.length > 0)
    const whole = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [], groups: [] }
    const kept = await world.call('PATCH', '/persona/13', { token: editor, body: whole })
    t.equal(kept.statusCode, 200, kept.body)
    t.match(kept.headers.warning, /^299 - "field groups was kept: only the owner or an administrator may change it"$/)
    t.strictSame((await storedAgent(world, 13)).groups, groups)
    t.match(await patch(world, editor, 13, { groups: [] }), { status: 200, warning: /groups was kept/ })
    t.match(await patch(world, editor, 13, { groups: [] }, { prefer: 'handling=strict' }), {
      status: 403,
      body: { detail: /Only the agent's owner or an administrator may change groups/ },
    })
    t.strictSame((await storedAgent(world, 13)).groups, groups)
    const owner = await world.token('alice@example.com')
    const removed = await patch(world, owner, 13, { groups: [] })
    t.equal(removed.status, 200)
    t.equal(removed.warning, undefined)
    t.strictSame((await storedAgent(world, 13)).groups, [])
  },
)

t.test('200: a file is matched by every form of its UUID; an id stored in another form stays attached', async t => {
  const world = await worldApp(t)
  const alice = await world.token('alice@example.com')
  const bare = ALICE_FILE.replaceAll('-', '').toUpperCase()
  for (const id of [`urn:uuid:${ALICE_FILE}`, `{${ALICE_FILE.toUpperCase()}}`, bare, ALICE_FILE]) {
    await patch(world, alice, 1, { user_file_ids: [] })
    const attached = await patch(world, alice, 1, { user_file_ids: [id, ALICE_FILE] })
    t.strictSame(attached.body.user_file_ids, [ALICE_FILE], id)
  }
  const odd = 'F0000000-0000-4000-8000-00000000ABCD'
  const file = { id: odd, name: 'odd', owner_id: ALICE }
  await world.database.db.insertInto('user_file').values(file).execute()
  await world.database.db.insertInto('persona_user_file').values({ persona_id: 1, user_file_id: odd }).execute()
  for (const id of [odd, odd.toLowerCase()]) {
    t.strictSame((await patch(world, alice, 1, { user_file_ids: [id] })).body.user_file_ids, [odd])
  }
})

t.test(
  '200: `uploaded_image_id: ""` leaves the image, remove_image takes it away, an image that is sent wins',
  async t => {
    const world = await worldApp(t)
    const alice = await world.token('alice@example.com')
    await patch(world, alice, 1, { uploaded_image_id: 'image-1' })
    const image = async () => (await storedAgent(world, 1)).uploaded_image_id
    t.equal((await patch(world, alice, 1, { uploaded_image_id: '' })).status, 200)
    t.equal(await image(), 'image-1')
    const whole = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [], uploaded_image_id: '' }
    t.equal((await world.call('PATCH', '/persona/1', { token: alice, body: whole })).statusCode, 200)
    t.equal(await image(), 'image-1')
    t.equal((await patch(world, alice, 1, { uploaded_image_id: '', remove_image: true })).status, 200)
    t.equal(await image(), null)
    for (const [body, stored] of [
      [{ remove_image: true, uploaded_image_id: 'img-2' }, 'img-2'],
      [{ remove_image: false, uploaded_image_id: 'img-3' }, 'img-3'],
      [{ remove_image: null }, 'img-3'],
      [{ remove_image: true, uploaded_image_id: null }, null],
    ] as const) {
      t.equal((await patch(world, alice, 1, body)).status, 200)
      t.equal(await image(), stored, JSON.stringify(body))
    }
  },
)

t.test('422: a default agent must be public, judged on the merged state', async t => {
  const world = await worldApp(t)
  const admin = await world.token('admin@example.com')
  const alice = await world.token('alice@example.com')
  const at = (field: string) => [`body.${field} default_persona_private`]
  const { body } = await patch(world, admin, 8, { is_public: false })
  t.equal(body.detail[0].msg, 'A default agent must be public')
  t.strictSame((await patch(world, admin, 8, { is_public: false })).faults, at('is_public'))
  t.strictSame((await patch(world, alice, 16, { is_public: false })).faults, at('is_public'))
  t.strictSame((await patch(world, alice, 16, { is_public: false, is_default_persona: false })).faults, at('is_public'))
  t.strictSame((await patch(world, admin, 1, { is_default_persona: true })).faults, at('is_default_persona'))
  t.equal((await patch(world, admin, 1, { is_default_persona: true, is_public: true })).status, 200)
  t.equal((await patch(world, admin, 8, { is_default_persona: false, is_public: false })).status, 200)
})

t.test(
  '200 with Warning: is_default_persona and display_priority are kept for callers who are not administrators',
  async t => {
    const world = await worldApp(t)
    const alice = await world.token('alice@example.com')
    const basic = await world.token('admin@example.com', { scopes: ['basic'] })
    const kept = (field: string) => `299 - "field ${field} was kept: only an administrator may change it"`

    const isDefault = await patch(world, alice, 2, { is_default_persona: true, name: 'Renamed' })
    t.match(isDefault, {
      status: 200,
      warning: kept('is_default_persona'),
      body: { is_default_persona: false, name: 'Renamed' },
    })
    t.equal(
      (await patch(world, alice, 2, { is_default_persona: false })).warning,
      undefined,
      'the same value is no wish',
    )

    t.match(await patch(world, alice, 1, { display_priority: 4 }), { status: 200, warning: undefined })
    t.match(await patch(world, alice, 1, { display_priority: 4 }), { status: 200, warning: undefined })
    t.match(await patch(world, alice, 1, { display_priority: 5 }), {
      status: 200,
      warning: kept('display_priority'),
      body: { display_priority: 4 },
    })
    t.match(await patch(world, alice, 1, { display_priority: null }), {
      status: 200,
      warning: kept('display_priority'),
    })
    t.match(await patch(world, basic, 8, { display_priority: 5 }), { status: 200, warning: kept('display_priority') })
    t.match(await storedAgent(world, 1), { display_priority: 4, version: 2 })

    const strict = await patch(
      world,
      alice,
      1,
      { display_priority: 5, name: 'Not stored' },
      { prefer: 'handling=strict' },
    )
    t.match(strict, { status: 403, body: { error_code: 'INSUFFICIENT_PERMISSIONS' } })
    t.match(await storedAgent(world, 1), { name: 'Alice Private', version: 2 })
  },
)

t.test('422: only what is newly attached is checked for access', async t => {
  const world = await worldApp(t)
  const alice = await world.token('alice@example.com')
  const carol = await world.token('carol@example.com')
  const admin = await world.token('admin@example.com')
  await world.database.db.insertInto('persona_user').values({ persona_id: 11, user_id: EXT, level: 'editor' }).execute()
  const stranger = await world.token('ext@example.com')

  // Agent 11 holds a private document set and two files of Alice: an editor without access re-sends them.
  const resent = { document_set_ids: [2, 1], user_file_ids: [ALICE_FILE, ALICE_FILE], tool_ids: [10, 1] }
  t.equal((await patch(world, stranger, 11, resent)).status, 200)
  t.equal((await patch(world, stranger, 11, { document_set_ids: [1] })).status, 200, 'and may take them away')
  t.strictSame((await patch(world, stranger, 11, { document_set_ids: [3, 2] })).faults, [
    'body.document_set_ids.1 not_found',
  ])

  await world.database.db
    .insertInto('persona_user')
    .values({ persona_id: 1, user_id: CAROL, level: 'editor' })
    .execute()
  t.strictSame((await patch(world, carol, 1, { document_set_ids: [2, 1] })).faults, [
    'body.document_set_ids.0 not_found',
  ])
  t.equal((await patch(world, alice, 1, { document_set_ids: [2] })).status, 200, 'shared with Alice herself')
  t.equal((await patch(world, admin, 3, { document_set_ids: [2] })).status, 200, 'an administrator attaches any')

  t.strictSame((await patch(world, alice, 1, { user_file_ids: [ALICE_FILE, BOB_FILE] })).faults, [
    'body.user_file_ids.1 not_found',
  ])
  t.equal((await patch(world, admin, 1, { user_file_ids: [BOB_FILE] })).status, 200)
  t.equal(
    (await patch(world, alice, 1, { user_file_ids: [BOB_FILE, ALICE_FILE] })).status,
    200,
    'attached by the admin',
  )
  t.equal((await patch(world, alice, 1, { label_ids: [3], users: [BOB], groups: [2] })).status, 200, 'any of these')
  const curator = await world.token('curator@example.com')
  t.equal((await patch(world, curator, 9, { document_set_ids: [2] })).status, 200, 'shared with a group of the caller')
})

t.test('422: a tool that is disabled, or of an MCP server that the caller may not manage, is not attached', async t => {
  const world = shared
  const alice = await world.token('alice@example.com')
  const actions = await world.token('gcurator@example.com')
  const curator = await world.token('curator@example.com')
  t.strictSame((await patch(world, alice, 1, { tool_ids: [10, 16, 14, 999, 16] })).faults, [
    'body.tool_ids.1 tool_disabled',
    'body.tool_ids.2 tool_forbidden',
    'body.tool_ids.3 not_found',
    'body.tool_ids.4 tool_disabled',
  ])
  // Agent 5 holds the disabled tool: an editor may re-send it, and not bring it back once it is gone.
  t.equal((await patch(world, curator, 5, { tool_ids: [16, 10] })).status, 200)
  t.equal((await patch(world, curator, 5, { tool_ids: [10] })).status, 200)
  t.strictSame((await patch(world, curator, 5, { tool_ids: [10, 16] })).faults, ['body.tool_ids.1 tool_disabled'])
  t.equal((await patch(world, actions, 5, { tool_ids: [14] })).status, 200, 'manage:actions manages every MCP server')
  t.equal((await patch(world, curator, 5, { tool_ids: [14, 10] })).status, 200, 'attached already')
  await world.database.db.updateTable('mcp_server').set({ owner_id: ALICE }).where('name', '=', 'Docs MCP').execute()
  t.equal((await patch(world, alice, 1, { tool_ids: [14] })).status, 200, 'the owner of the server')
})

t.test('422: the faults of all references come together, in the declared order', async t => {
  const world = shared
  const admin = await world.token('admin@example.com')
  const nobody = 'a0000000-0000-4000-8000-00000000ffff'
  const body = {
    user_file_ids: ['x'],
    label_ids: [1, 99],
    groups: [98],
    users: [nobody],
    tool_ids: [97, 1],
    document_set_ids: [1, 96, 95],
  }
  t.strictSame((await patch(world, admin, 1, body)).faults, [
    'body.document_set_ids.1 not_found',
    'body.document_set_ids.2 not_found',
    'body.tool_ids.0 not_found',
    'body.users.0 not_found',
    'body.groups.0 not_found',
    'body.label_ids.1 not_found',
    'body.user_file_ids.0 not_found',
  ])
})

t.test('200: ids of files sort by code point, as the database does, so re-sending them changes nothing', async t => {
  const world = await worldApp(t)
  const alice = await world.token('alice@example.com')
  const ids = ['file-\u{1f600}', 'file-\uff5e', 'file-a']
  const files = ids.map(id => ({ id, name: 'file', owner_id: ALICE }))
  await world.database.db.insertInto('user_file').values(files).execute()
  const first = await patch(world, alice, 1, { user_file_ids: ids })
  t.strictSame(first.body.user_file_ids, ['file-a', 'file-\uff5e', 'file-\u{1f600}'])
  const again = await patch(world, alice, 1, { user_file_ids: ids })
  t.strictSame(again.body.user_file_ids, first.body.user_file_ids)
  t.equal((await storedAgent(world, 1)).version, 2)
})

t.test('the rules of the mask itself', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (query: string, body: unknown, headers = {}) =>
    call('PATCH', `/persona/11${query}`, { token: admin, body, headers })
  const before = await hashOfEverything(database.db)

  t.test('422: unknown names each on its own, parameters that are unknown or repeated, values of a flag', async t => {
    const mask = 'query.update_mask enum'
    const notFields = ['id', 'is_visible', '*', 'name;description', 'Name', '__proto__', ',name']
    for (const [query, body, ...faults] of [
      ['update_mask=nam,description,tols', { description: 5, name: 7 }, mask, mask, 'body.description string_type'],
      ...notFields.map(name => [`update_mask=${encodeURIComponent(name)}`, { name: 'x' }, mask] as const),
      ['update_mask=name&update_mask=name', { name: 'x' }, 'query.update_mask parameter_repeated'],
      ['update_mask=name&dry_run=true&dry_run=true', { name: 'x' }, 'query.dry_run parameter_repeated'],
      ['update_mask=name&dryrun=true', { name: 'x' }, 'query.dryrun extra_forbidden'],
      ['update_mask=name&tool_id=1', { name: 'x' }, 'query.tool_id extra_forbidden'],
      ['update_mask=name&dry_run=1', { name: 'x' }, 'query.dry_run bool_parsing'],
      [`update_mask=${Array(250).fill('name')}`, { name: 'x' }, 'query.update_mask string_too_long'],
    ] as const) {
      t.strictSame(faultsOf(await send(`?${query}`, body)), faults, query)
    }
    const messages = async (query: string) =>
      (await send(query, {})).json().detail.map(({ msg }: { msg: string }) => msg)
    t.match(await messages('?update_mask=nam'), [/'nam' is not a field$/])
    t.match(await messages(`?update_mask=${'x'.repeat(100)}`), [/'x{64}\.\.\.' is not a field$/])
    t.match(await messages('?update_mask=&dryrun=1'), ['Extra inputs are not permitted'])
    t.match(await messages('?update_mask=&update_mask='), ['Input should be given once, and was given more than once'])
    for (const body of ['[]', '"x"', '1', 'null', '{'])
      t.equal((await send('?update_mask=', body)).statusCode, 422, body)
  })
  t.test('422: a field that the mask names is missing', async t => {
    const body = { descripton: 'x' }
    const answer = await send('?update_mask=description,tool_ids', body)
    t.same(answer.json().detail, [
      { loc: ['body', 'description'], msg: 'Field required', type: 'missing' },
      { loc: ['body', 'tool_ids'], msg: 'Field required', type: 'missing' },
    ])
    t.same(warningsOf(answer), [])
    t.same(warningsOf(await send('', { nmae: 'x' })), [
      'to change single fields, name them in update_mask, such as ?update_mask=name',
    ])
  })
  t.test('200: what is outside the mask is not looked at, and a Warning names it', async t => {
    const outside = (name: string) => `field ${name} is outside the update_mask and was ignored`
    const empty = await send('?update_mask=', { name: 'ignored', num_chunks: 'not looked at' })
    t.match(empty, { statusCode: 200, headers: { 'dry-run': undefined } })
    t.same(warningsOf(empty).sort(), [outside('name'), outside('num_chunks')])
    const body = { name: 'n', starter_messages: [{ name: 'a', message: 'b', extra: 1 }] }
    const strict = await send('?update_mask=name&dry_run=true', body, { prefer: 'handling=strict' })
    t.equal(strict.statusCode, 200, strict.body)
    t.same(warningsOf(strict), [outside('starter_messages')])
  })
  t.test('nothing of all this was stored', async t => {
    t.same(await hashOfEverything(database.db), before)
  })
})

/** ext@example.com, who has nothing. */
const EXT = 'a0000000-0000-4000-8000-000000000009'

const AGENT = 11

t.test(
  '422 of attaching more tools than an answer may take; 409 where they have grown, and 204 without them',
  async t => {
    const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
    const { db } = world.database
    const admin = await world.token('admin@example.com')
    const attach = (tool_ids: number[]) =>
      world.call('PATCH', `/persona/${AGENT}?update_mask=tool_ids`, { token: admin, body: { tool_ids } })
    const update = (description: string, headers = {}) =>
      world.call('PATCH', `/persona/${AGENT}?update_mask=description`, { token: admin, body: { description }, headers })

    const [beside, large] = [await toolOfBytes(world, 700 * 1024), await toolOfBytes(world, 1100 * 1024)]
    t.equal((await attach([])).statusCode, 200)
    t.equal((await attach([beside])).statusCode, 200)
    const tooLarge = await attach([large])
    t.strictSame(faultsOf(tooLarge), ['body.tool_ids snapshot_too_large'])
    await sql`insert into persona_tool (persona_id, tool_id) values (${AGENT}, ${large})`.execute(db)
    const read = await world.call('GET', `/persona/${AGENT}`, { token: admin })
    t.match(read.json(), { error_code: 'SNAPSHOT_TOO_LARGE' })
    t.equal(read.statusCode, 409)
    const refused = await update('refused')
    t.equal(refused.statusCode, 409)
    t.match(refused.json().detail, /^Nothing was changed\. /)
    const stored = await update('stored', { prefer: 'return=minimal' })
    t.equal(stored.statusCode, 204, stored.body)
    const stale = String(stored.headers.etag).replace(/\d+"$/, '1"')
    const shown = await update('stored', { prefer: 'return=minimal', 'if-match': stale })
    t.equal(shown.statusCode, 409, 'to an old tag what is stored would have to be shown')
  },
)

/** Makes a tool whose definition takes about `bytes`. */
async function toolOfBytes({ database }: Awaited<ReturnType<typeof worldApp>>, bytes: number): Promise<number> {
  const { rows } = await sql<{ id: number }>`
    with stored as (
      insert into tool_definition (hash, content, size_bytes)
      select sha256(text::bytea), text::json, octet_length(text) from (select json_build_object('x', repeat('y', ${bytes}::integer))::text) made (text)
      returning hash
    )
    insert into tool (name, definition_hash) select 'large', hash from stored returning id`.execute(database.db)
  return rows[0]?.id ?? 0
}
