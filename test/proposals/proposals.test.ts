import t from 'tap'
import { eraseUser } from '../../src/admin/erasure.js'
import { untilPublished } from '../eventually.js'
import { ADMIN, ALICE, BOB } from '../fixtures/users.js'
import { historyWorld } from '../history/world.js'
import { DEFINITION } from '../matrix-organisation.js'
import { newPerson, untilLocked } from '../updates/stored-state.js'

const world = await historyWorld(t)
const { call, get, agentOf, toolOf, patch, put, remove, alice, bob, admin } = world
const [carol, manager] = [await world.token('carol@example.com'), await world.token('gcurator@example.com')]

interface Asked {
  token?: string
  query?: string
  headers?: Record<string, string>
}

/** Proposes an update of the current version of an agent or tool. */
async function proposed(
  kind: 'persona' | 'tool',
  id: number,
  body: object,
  { token = bob, query = '', headers }: Asked = {},
) {
  const etag = String((await get(`/${kind}/${id}`, admin)).headers.etag)
  const mask = kind === 'persona' ? `&update_mask=${Object.keys(body)}` : ''
  const [method, path] = kind === 'persona' ? ['PATCH', '/persona'] : ['PUT', '/admin/tool/custom']
  const url = `${path}/${id}?propose=true${mask}${query}`
  return await call(method, url, { token, body, headers: { 'if-match': etag, ...headers } })
}

const propose = async (...asked: Parameters<typeof proposed>): Promise<number> => {
  const answer = await proposed(...asked)
  if (answer.statusCode !== 202) throw new Error(answer.body)
  return answer.json().id
}

async function approve(id: number, token = alice, seenBy = token) {
  const etag = String((await get(`/proposals/${id}`, seenBy)).headers.etag)
  return await call('POST', `/proposals/${id}/approve`, { token, headers: { 'if-match': etag } })
}

const end = (id: number, act: string, token: string) =>
  call('POST', `/proposals/${id}/${act}`, { token, ...(act === 'reject' && { body: { reason: 'not now' } }) })

const open = async () => await agentOf({ is_public: true })
const rowOf = async (id: number) => (await get(`/persona/${id}`, admin)).json()

t.test('202: who sees an agent proposes, its owner approves, and the history names both', async t => {
  const id = await open()
  const answer = await proposed('persona', id, { name: 'Agent', description: 'better' }, { query: '&message=please' })
  const { id: proposal, ...shown } = answer.json()
  t.match(answer, { statusCode: 202, headers: { location: `/proposals/${proposal}` } })
  t.equal(answer.headers.etag, `"proposal-${proposal}-1"`)
  t.match(shown, {
    ...{
      kind: 'persona',
      record: { id, name: 'Agent', version: 1 },
      state: 'open',
      base_version: 1,
      message: 'please',
    },
    ...{ author: { id: BOB, email: 'bob@example.com' }, fields: ['description'], conflicts: [], impact: null },
  })
  const read = await get(`/proposals/${proposal}`, bob)
  t.match(read.headers.etag, new RegExp(`^"proposal-${proposal}-1\\.[0-9a-f]{12}"$`))
  const changes = [{ field: 'description', from: 'An agent', to: 'better' }]
  t.same(read.json(), { ...answer.json(), may_approve: false, changes, impact: null })
  t.equal((await rowOf(id)).description, 'An agent', 'nothing is stored yet')
  const approved = await approve(proposal)
  t.match(approved, { statusCode: 204, headers: { etag: `"persona-${id}-2"` } })
  const ended = { state: 'approved', closed_by: { id: ALICE }, record: { version: 2 } }
  t.match((await get(`/proposals/${proposal}`, bob)).json(), ended)
  t.equal((await rowOf(id)).description, 'better')
  const [entry] = (await get(`/persona/${id}/history`, alice)).json()
  t.match(entry, { version: 2, action: 'updated', actor: { id: ALICE }, fields: ['description'] })
  t.same(entry.proposal, { id: proposal, author: { id: BOB, email: 'bob@example.com' } })
  const [row] = await world.query`select command from audit where resource_kind = 'persona' and resource_id = ${id}
    order by version_after desc limit 1`
  t.same(row, { command: `approve --proposal ${proposal} --author ${BOB}` })
})

t.test('what a proposal is refused, at once', async t => {
  const id = await open()
  const tool = await toolOf({ custom_headers: [{ key: 'X-Key', value: 'secret' }] })
  const secret = { custom_headers: [{ key: 'X-Key', value: 'clear text' }] }
  const cases: [status: number, code: string, answer: Promise<{ statusCode: number; body: string }>][] = [
    [
      428,
      'PRECONDITION_REQUIRED',
      call('PATCH', `/persona/${id}?propose=true&update_mask=name`, { token: bob, body: { name: 'x' } }),
    ],
    [412, 'PRECONDITION_FAILED', proposed('persona', id, { name: 'x' }, { headers: { 'if-match': '"persona-1-1"' } })],
    [404, 'PERSONA_NOT_FOUND', proposed('persona', await agentOf(), { name: 'x' })],
    [422, 'nothing_to_propose', proposed('persona', id, { description: 'An agent' })],
    [422, 'not_found', proposed('persona', id, { tool_ids: [999_999] })],
    [428, 'PRECONDITION_REQUIRED', proposed('persona', id, { name: 'x' }, { headers: { 'if-match': '*' } })],
    [422, 'string_control', proposed('persona', id, { name: 'x' }, { query: '&message=%1b[31m' })],
    [422, 'string_control', proposed('persona', id, { name: 'x' }, { query: '&message=%e2%80%ae' })],
    [422, 'too_long', proposed('persona', id, { name: 'x' }, { query: `&message=${'x'.repeat(513)}` })],
    [403, 'INSUFFICIENT_PERMISSIONS', proposed('tool', tool, { description: 'x' })],
    [422, 'secret_in_proposal', proposed('tool', tool, secret, { token: manager })],
    [422, 'servers_missing', proposed('tool', tool, { definition: { openapi: '3.1.0' } }, { token: manager })],
    [
      422,
      'extra_forbidden',
      call('PATCH', `/persona/${id}?message=x&update_mask=name`, { token: alice, body: { name: 'x' } }),
    ],
    [
      403,
      'read-only',
      proposed('persona', id, { name: 'x' }, { token: await world.token('bob@example.com', { scopes: ['read'] }) }),
    ],
  ]
  for (const [status, code, asked] of cases) {
    const { statusCode, body } = await asked
    t.equal(statusCode, status, body)
    t.match(body, code)
  }
  t.same(await world.query`select from proposal where resource_id in (${id}, ${tool}) and state = 'open'`, [])
})

t.test('a field that the approver may not set is refused, never left out', async t => {
  const id = await agentOf({ is_public: true, users: [BOB] })
  await world.makeBobEditor(id)
  const shut = await propose('persona', id, { is_public: false, description: 'x' }, { token: carol })
  t.match(await approve(shut, bob), { statusCode: 403 }, 'is_public takes the owner')
  t.match(await approve(shut), { statusCode: 204 })
  const other = await propose('persona', id, { is_default_persona: true, is_public: true, name: 'y' }, { token: bob })
  t.match(await approve(other), { statusCode: 403 }, 'is_default_persona takes an administrator')
  t.match(await approve(other, admin), { statusCode: 204 })
  t.match(await rowOf(id), { is_default_persona: true, name: 'y' })
})

t.test('409 with the fields that changed since the base; 412 where the record changed since it was seen', async t => {
  const id = await open()
  const first = await propose('persona', id, { name: 'a' })
  const second = await propose('persona', id, { description: 'b' })
  const { etag } = (await get(`/proposals/${second}`, alice)).headers
  await patch(id, { name: 'c' })
  const refused = (await approve(first)).json()
  t.match(refused, { error_code: 'PROPOSAL_CONFLICT', conflicts: ['name'] })
  t.match((await get(`/proposals/${first}`, bob)).json(), { conflicts: ['name'], changes: [{ from: 'c', to: 'a' }] })
  const rows = await world.query`delete from audit where resource_id = ${id} and version_after > 1 returning *`
  t.match((await get(`/proposals/${second}`, bob)).json(), { conflicts: ['description'] })
  await world.database.db
    .insertInto('audit')
    .values(rows as never)
    .execute()
  const stale = await call('POST', `/proposals/${second}/approve`, {
    token: alice,
    headers: { 'if-match': String(etag) },
  })
  t.match(stale, { statusCode: 412, body: /Send GET \/proposals/ })
  t.match(await call('POST', `/proposals/${second}/approve`, { token: alice }), { statusCode: 428 })
  t.match(await call('POST', `/proposals/${second}/approve`, { token: alice, headers: { 'if-match': '*' } }), {
    statusCode: 428,
  })
  t.match(await approve(second), { statusCode: 204 }, 'another field of the record')
  t.match(await rowOf(id), { name: 'c', description: 'b' })
})

t.test('of two approvals at once one has an effect', async t => {
  const id = await open()
  const proposal = await propose('persona', id, { description: 'x' })
  const answers = await Promise.all([approve(proposal), approve(proposal, admin), approve(proposal)])
  t.same(answers.map(({ statusCode }) => statusCode).sort(), [204, 409, 409])
  t.equal((await get(`/persona/${id}/history`, alice)).json().length, 2)
})

t.test('links: proposed by the sight of the author, approved by the sight of the approver', async t => {
  const id = await open()
  const proposal = await propose('persona', id, { users: [BOB], tool_ids: [10], label_ids: [1] })
  const { changes } = (await get(`/proposals/${proposal}`, alice)).json()
  t.same(
    changes.map(({ field }: { field: string }) => field),
    ['tool_ids', 'users', 'label_ids'],
  )
  t.match(changes[1], { from: [], to: [{ id: BOB, email: 'bob@example.com', level: 'viewer' }] })
  t.match(await approve(proposal), { statusCode: 204 })
  t.match(await rowOf(id), { users: [{ id: BOB }], labels: [{ id: 1 }], tools: [{ id: 10 }] })
  const file = (await world.query<{ id: string }>`select id from user_file where owner_id = ${BOB} limit 1`)[0]?.id
  const private_ = await propose('persona', id, { user_file_ids: [file] })
  t.match((await approve(private_)).json(), { error_code: 'PROPOSAL_UNUSABLE' })
  t.notMatch((await get(`/proposals/${private_}`, alice)).body, String(file), "another's file is not named")
})

t.test('a right that is lost or gained while links wait is judged as it is then', async t => {
  const id = await open()
  await world.query`insert into user_group (id, name) values (91, 'editing')`
  await world.query`insert into persona_group (persona_id, user_group_id, level) values (${id}, 91, 'editor')`
  const join = () => world.query`insert into user_group_member (user_id, user_group_id) values (${BOB}, 91)`
  const leave = () => world.query`delete from user_group_member where user_group_id = 91`
  const whileWaiting = async <Answer>(ask: () => Promise<Answer>, change: () => Promise<unknown>) => {
    const trx = await world.database.db.startTransaction().execute()
    await trx.selectFrom('tool').select('id').where('id', '=', 10).forUpdate().execute()
    const answer = ask()
    await untilLocked(world.database)
    await change()
    await trx.commit().execute()
    return await answer
  }
  const proposal = await propose('persona', id, { tool_ids: [10] }, { token: carol })
  const attach = () => call('PATCH', `/persona/${id}?update_mask=tool_ids`, { token: bob, body: { tool_ids: [10] } })
  await join()
  t.match(await whileWaiting(() => approve(proposal, bob), leave), { statusCode: 404 })
  await join()
  t.match(await whileWaiting(attach, leave), { statusCode: 403 })
  t.match(await rowOf(id), { tools: [] })
  t.match((await get(`/proposals/${proposal}`, alice)).json(), { state: 'open', record: { version: 1 } })
  await join()
  const gain = () => world.query`update user_account set permissions = '{manage:actions}' where id = ${BOB}`
  t.match(await whileWaiting(() => approve(proposal, bob), gain), { statusCode: 204 })
  await world.query`update user_account set permissions = '{}' where id = ${BOB}`
  t.match(await rowOf(id), { tools: [{ id: 10 }] })
})

t.test('a tool: its definition with the impact, masks as they are; secrets stay', async t => {
  const id = await toolOf({ custom_headers: [{ key: 'X-Key', value: 'secret' }] })
  await agentOf({ tool_ids: [id] }, alice)
  const [mask] = (await get(`/tool/${id}`)).json().custom_headers
  const definition = {
    ...DEFINITION,
    info: { title: 'Other', version: '1.0' },
    paths: { '/later': Object.values(DEFINITION.paths)[0] },
  }
  const proposal = await propose('tool', id, { definition, name: 'n', custom_headers: [mask] }, { token: manager })
  const shown = (await get(`/proposals/${proposal}`, admin)).json()
  t.match(shown, {
    fields: ['name', 'definition'],
    changes: [{ field: 'name' }, { field: 'definition', from: DEFINITION, to: definition }],
  })
  t.match(shown.impact, { changes: [{}], agents: { others: 0 } })
  await put(id, { description: 'meanwhile' })
  t.match(await approve(proposal, admin), { statusCode: 204 })
  const tool = (await get(`/tool/${id}`)).json()
  t.match(tool, { name: 'n', definition, custom_headers: [mask], description: 'meanwhile' })
})

t.test('a key stands for one proposal; lists have own ones and those to decide; a deletion closes', async t => {
  const id = await open()
  const headers = { 'idempotency-key': 'k1' }
  const [one, again] = [
    await proposed('persona', id, { name: 'k' }, { headers }),
    await proposed('persona', id, { name: 'k' }, { headers }),
  ]
  t.equal(again.body, one.body)
  t.equal(again.headers['idempotent-replayed'], 'true')
  t.match(await proposed('persona', id, { name: 'z' }, { headers }), {
    statusCode: 422,
    body: /idempotency_key_reused/,
  })
  await propose('persona', id, { name: 'm' }, { token: carol })
  const listed = async (token: string, query = '') => (await get(`/proposals?id=${id}${query}`, token)).json()
  t.equal((await listed(alice)).length, 2)
  t.same(
    (await listed(bob)).map(({ author }: { author: { email: string } }) => author.email),
    ['bob@example.com'],
  )
  t.equal((await listed(alice, '&kind=tool')).length, 0)
  t.match(
    (await get(`/proposals?id=${id}&limit=1&state=open`, alice)).headers.link,
    /<\?id=\d+&limit=1&state=open&after=\d+>/,
  )
  await remove(`/persona/${id}`)
  t.same(await listed(alice), [], 'who is not their author does not see the proposals of a deleted agent')
  await world.restore(`/persona/${id}`, 1)
  t.same(
    (await listed(alice)).map(({ state }: { state: string }) => state),
    ['closed', 'closed'],
  )
})

t.test('the feed of changes has proposals for their author and for those who may decide', async t => {
  const id = await open()
  await untilPublished(world.database.db)
  const { next } = (await get('/changes', alice)).json()
  const proposal = await propose('persona', id, { name: 'k' })
  await end(await propose('persona', id, { name: 'l' }, { token: carol }), 'reject', alice)
  await approve(proposal)
  await untilPublished(world.database.db)
  const changesOf = async (token: string) => {
    const { changes } = (await get(`/changes?after=${next}&kind=proposal`, token)).json()
    return changes.map(({ id, version, action, actor }: Record<string, unknown>) => [
      id,
      version,
      action,
      actor !== undefined,
    ])
  }
  const ofBob = (isTold: boolean) => [
    [proposal, 1, 'proposed', isTold],
    [proposal, 2, 'approved', isTold],
  ]
  t.same(await changesOf(bob), ofBob(false))
  const [first, last] = ofBob(true)
  const all = await changesOf(alice)
  t.same([all[0], all.at(-1), all.length], [first, last, 4])
  t.same(
    (await changesOf(carol)).map((change: unknown[]) => change[2]),
    ['proposed', 'rejected'],
  )
  t.same(await changesOf(await world.token('ext@example.com')), [])
})

t.test('at most 5 open proposals of an author on a record, and 20 of those who cannot update it', async t => {
  const id = await open()
  for (let n = 0; n < 5; n++) await propose('persona', id, { name: `n${n}` })
  const full = { error_code: 'PROPOSALS_FULL', detail: /^You have 5 open proposals for this record/ }
  t.match((await proposed('persona', id, { name: 'more' })).json(), full)
  await world.query`insert into proposal (resource_kind, resource_id, base_version, author_id, message, fields, size_bytes)
    select 'persona', ${id}::integer, 1, ${ADMIN}::uuid, '', '{"name": "x"}', 9 from generate_series(1, 15)`
  const closed = await proposed('persona', id, { name: 'more' }, { token: carol })
  t.match(closed.json(), { error_code: 'PROPOSALS_FULL', detail: /^This record has 20 .* until some are decided\.$/ })
  await propose('persona', id, { name: 'by its owner' }, { token: alice })
})

t.test('a dry run of a proposal has every check, and stores nothing', async t => {
  const id = await open()
  const answer = await proposed('persona', id, { name: 'x' }, { query: '&dry_run=true' })
  t.match(answer, { statusCode: 202, headers: { 'dry-run': 'true', etag: `"persona-${id}-1"` } })
  t.equal(answer.headers.location, undefined)
  t.match(await proposed('persona', id, { tool_ids: [999_999] }, { query: '&dry_run=true' }), { statusCode: 422 })
  t.same((await get(`/proposals?id=${id}`, alice)).json(), [])
})

t.test(
  'an ended proposal says what it proposed, without long values and definitions, which are not stored',
  async t => {
    const id = await open()
    const proposal = await propose('persona', id, { name: 'short', system_prompt: 'x'.repeat(5_000), users: [BOB] })
    await end(proposal, 'withdraw', bob)
    t.match((await get(`/proposals/${proposal}`, alice)).json().changes, [
      { field: 'name', from: null, to: 'short' },
      { field: 'system_prompt', from: null, to: null },
      { field: 'users', from: [], to: [{ id: BOB }] },
    ])
    const tool = await toolOf()
    const definition = { ...DEFINITION, info: { title: 'Withdrawn', version: '1.0' } }
    const other = await propose('tool', tool, { definition }, { token: manager })
    await end(other, 'withdraw', manager)
    t.same((await get(`/proposals/${other}`, admin)).json().changes, [{ field: 'definition', from: null, to: null }])
    const [row] = await world.query`select size_bytes, definition_hash from proposal where id = ${other}`
    t.match(row, { size_bytes: 23, definition_hash: null })
  },
)

t.test('who decides is warned of what an approval would do now', async t => {
  const tool = await toolOf({ custom_headers: [{ key: 'X-Key', value: 'secret' }] })
  const evil = { ...DEFINITION, servers: [{ url: 'https://evil.example.net' }] }
  const [first, second] = [
    await propose('tool', tool, { definition: evil }, { token: manager }),
    await propose('tool', tool, { passthrough_auth: true }, { token: manager }),
  ]
  const warning = async (id: number, token = admin) => String((await get(`/proposals/${id}`, token)).headers.warning)
  t.match(await warning(first), /now also send the stored header values to https:\/\/evil.example.net/)
  t.notMatch(await warning(second), 'evil')
  t.match(await approve(first, admin), { statusCode: 204, headers: { warning: /evil/ } })
  t.match(await warning(second), /callers' own authentication to https:\/\/evil.example.net/)
})

t.test('an erased author leaves no open proposal', async t => {
  const email = 'leaving@example.com'
  await newPerson(world.database, email)
  const proposal = await propose('persona', await open(), { name: 'x' }, { token: await world.token(email) })
  await eraseUser(world.database.db, email)
  t.match((await get(`/proposals/${proposal}`, alice)).json(), { state: 'withdrawn', message: '', closed_by: null })
})

t.test('an author reads and withdraws what they proposed for an agent that they no longer see', async t => {
  const id = await open()
  const fields = { name: 'Mine', users: [BOB] }
  const [first, second] = [await propose('persona', id, fields), await propose('persona', id, { name: 'Again' })]
  await patch(id, { is_public: false, name: 'Secret' })
  const shown = (await get(`/proposals/${first}`, bob)).json()
  const unseen = { record: { id, name: null, version: null }, conflicts: null, impact: null }
  const changes = [
    { field: 'name', from: null, to: 'Mine' },
    { field: 'users', from: [], to: [BOB] },
  ]
  t.match(shown, { ...unseen, state: 'open', changes })
  t.notMatch(JSON.stringify((await get(`/proposals?id=${id}`, bob)).json()), 'Secret')
  t.match((await approve(first, bob)).json(), { error_code: 'OWN_PROPOSAL' })
  t.match(await end(first, 'reject', bob), { statusCode: 403 })
  for (const act of ['reject', 'withdraw']) t.match(await end(first, act, carol), { statusCode: 404 })
  const bound = await world.token('bob@example.com', { personaIds: [id + 1_000] })
  for (const token of [carol, bound]) t.match(await get(`/proposals/${first}`, token), { statusCode: 404 })
  t.match(await end(first, 'withdraw', bob), { statusCode: 204 })
  t.match(await end(second, 'reject', alice), { statusCode: 204 })
  t.match((await get(`/proposals/${second}`, bob)).json(), { ...unseen, state: 'rejected', reason: 'not now' })
})

t.test('the deletion of an agent or tool closes proposals, which their authors and those who saw it learn', async t => {
  const id = await agentOf({ is_public: true, users: [BOB, ADMIN] })
  await world.makeBobEditor(id)
  const tool = await toolOf()
  await untilPublished(world.database.db)
  const { next } = (await get('/changes', alice)).json()
  const ofAgent = await propose('persona', id, { name: 'k' }, { token: carol })
  const ofTool = await propose('tool', tool, { name: 'k' }, { token: manager })
  await patch(id, { is_public: false })
  await remove(`/persona/${id}`)
  await remove(`/admin/tool/custom/${tool}`, admin)
  await untilPublished(world.database.db)
  const actionsOf = async (token: string) => {
    const { changes } = (await get(`/changes?after=${next}&kind=proposal`, token)).json()
    return changes.map(({ id, action }: { id: number; action: string }) => `${id} ${action}`)
  }
  t.same(await actionsOf(carol), [`${ofAgent} proposed`, `${ofAgent} closed`])
  t.same(await actionsOf(manager), [`${ofTool} proposed`, `${ofTool} closed`])
  for (const token of [alice, bob]) t.same(await actionsOf(token), [`${ofAgent} closed`])
  t.same((await actionsOf(admin)).sort(), [`${ofAgent} closed`, `${ofTool} closed`, `${ofTool} proposed`].sort())
  t.same(await actionsOf(await world.token('ext@example.com')), [])
  for (const [proposal, token] of [
    [ofAgent, carol],
    [ofTool, manager],
  ] as const) {
    t.match((await get(`/proposals/${proposal}`, token)).json(), { state: 'closed', changes: [{ to: 'k' }] })
    t.match(await end(proposal, 'withdraw', token), { statusCode: 409 })
    t.match(await get(`/proposals/${proposal}`, admin), { statusCode: 404 })
  }
})
