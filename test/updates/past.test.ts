import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { pruneHistory } from '../../src/updates/prune.js'
import { linked, type WorldApp, worldApp } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { deleteAgent, deleteTool } from '../deletion.js'
import { AGENT_FIELD_ROWS, AGENT_FIELDS, REQUIRED_AGENT_FIELDS } from '../fixtures/agent-fields.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldFile } from '../world.js'
import { auditRows, newPerson, sequence } from './stored-state.js'

const { call, token, database, vault, url } = await worldApp(t)
const alice = await token('admin@example.com')

const INSTANTS = 30
const AGENT = '/persona/1'
const TOOL = '/admin/tool/custom/10'

async function get(url: string, headers: Record<string, string> = {}) {
  return await call('GET', url, { token: alice, headers })
}

async function update(method: string, url: string, body: object) {
  const answer = await call(method, url, { token: alice, body })
  if (answer.statusCode !== 200) throw new Error(answer.body)
  return answer
}

const patch = (body: object) => update('PATCH', `${AGENT}?update_mask=${Object.keys(body)}`, body)
const put = (body: object) => update('PUT', TOOL, body)

/** The version that a tag names, of an update or of a read. */
const versionIn = ({ headers }: { headers: Record<string, unknown> }) =>
  Number(/-(\d+)["'.]/.exec(String(headers.etag))?.[1])

/** The database's clock, with audit rows before and after it in other milliseconds. */
async function instant(): Promise<string> {
  await sleep(2)
  const { rows } = await sql<{ at: string }>`select clock_timestamp() as at`.execute(database.db)
  await sleep(2)
  return String(rows[0]?.at)
}

function definition(title: string) {
  return { ...DEFINITION, paths: { '/a': { get: { operationId: title.replaceAll(' ', '_'), summary: title } } } }
}

t.test(`at any of ${INSTANTS} instants the answer is what was answered then, and so by version`, async t => {
  const pick = sequence(17)
  const seen: { at: string; agent: string; tool: string; tags: unknown[] }[] = []
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
  for (let i = 0; i < INSTANTS; i++) {
    await edits[pick(edits.length)]?.(i)
    const [agent, tool] = [await get(AGENT), await get('/tool/10')]
    seen.push({
      at: await instant(),
      agent: agent.body,
      tool: tool.body,
      tags: [agent, tool].map(({ headers }) => headers.etag),
    })
  }
  const asked = seen.map(one => ({ one, place: pick(seen.length) })).sort((a, b) => a.place - b.place)
  for (const { one } of asked) {
    const [agent, tool] = [await get(`${AGENT}?at=${one.at}`), await get(`/tool/10?at=${one.at}`)]
    t.match([agent.statusCode, tool.statusCode], [200, 200], agent.body)
    t.equal(agent.body, one.agent)
    t.equal(tool.body, one.tool)
    t.same(
      [agent, tool].map(({ headers }) => headers.etag),
      one.tags,
    )
    const version = /-(\d+)\./.exec(String(one.tags[1]))?.[1]
    t.equal((await get(`/tool/10?version=${version}`)).body, one.tool)
  }
})

t.test('the last version is the present one and the answer of its update, under one tag', async t => {
  const tool = await put({ name: 'of bytes', custom_headers: [{ key: 'X', value: 'a secret' }] })
  const agent = await patch({ tool_ids: [10, 11, 12], name: 'of three tools' })
  for (const [path, update] of [['/tool/10', tool] as const, [AGENT, agent] as const]) {
    const version = versionIn(update)
    const [present, last] = [await get(path), await get(`${path}?version=${version}`)]
    t.match(present.json(), update.json())
    t.equal(last.body, present.body)
    t.equal(last.headers.etag, present.headers.etag)
    t.equal((await get(path, { 'if-none-match': String(last.headers.etag) })).statusCode, 304)
    const ofVersion = await get(path, { 'if-none-match': String(update.headers.etag) })
    t.equal(ofVersion.statusCode, 200, 'the tag of a version says nothing of what a snapshot shows beside it')
    const head = await call('HEAD', `${path}?version=${version}`, { token: alice })
    t.match(head, { statusCode: 200, body: '', headers: { etag: last.headers.etag } })
  }
})

t.test('404 for a version that is not there, 422 for nonsense and the future', async t => {
  for (const version of ['99999', '0', '99999999999']) {
    t.match((await get(`${AGENT}?version=${version}`)).json(), { error_code: 'VERSION_NOT_FOUND' }, version)
  }
  const before = await get(`${AGENT}?at=2001-01-01T00:00:00Z`)
  t.match(before, { statusCode: 404 })
  t.match(before.json(), { error_code: 'VERSION_NOT_FOUND', detail: 'There was no agent 1 at that time.' })
  const refused = {
    'version=x': 'int_parsing',
    'at=x': 'datetime_from_date_parsing',
    'at=2999-01-01': 'datetime_past',
    'at=2026-01-01&version=1': 'as_of_conflict',
  }
  for (const [query, type] of Object.entries(refused)) {
    t.match(await get(`${AGENT}?${query}`), { statusCode: 422 }, query)
    t.match((await get(`${AGENT}?${query}`)).json(), { detail: [{ type }] }, query)
  }
  t.match((await get('/persona/4711?version=1')).json(), { error_code: 'PERSONA_NOT_FOUND' })
  const messageOf = async (at: string) => (await get(`${AGENT}?at=${at}`)).json().detail?.[0].msg
  t.match(await messageOf('2026-01-31T12:00:00+02:00'), /write it as %2B, or the time in UTC with Z$/, 'a blank came')
  t.match(await messageOf('2026-01-31T12:00:00.5+02:00'), /%2B/)
  t.match(await messageOf('2026-01-31+12:00'), /in UTC$/, 'no offset would mend it')
  const encoded = await get(`${AGENT}?at=2026-01-31T12:00:00%2B02:00`)
  t.equal(encoded.json().error_code, 'VERSION_NOT_FOUND', 'it is read')
})

t.test('404: a caller who does not see the agent now does not see it as it was', async t => {
  await patch({ is_public: true })
  const tag = String((await patch({ is_public: false, users: [], groups: [] })).headers.etag)
  const version = Number(/-(\d+)"$/.exec(tag)?.[1]) - 1
  const email = 'stranger@example.com'
  await newPerson(database, email)
  const stranger = await token(email)
  const answer = await call('GET', `${AGENT}?version=${version}`, { token: stranger })
  t.equal(answer.statusCode, 404)
  t.match(answer.json(), { error_code: 'PERSONA_NOT_FOUND' })
})

t.test('403: a reader of what was private before does not read its past', async t => {
  const secret = 'a prompt of when it was private'
  const version = versionIn(await patch({ system_prompt: secret, is_public: false }))
  await patch({ system_prompt: 'of today', is_public: true })
  const share = { persona_id: 1, user_id: await newPerson(database, 'editor@example.com'), level: 'editor' as const }
  await newPerson(database, 'reader@example.com')
  await newPerson(database, 'builder@example.com', 'manage:actions')
  await database.db.insertInto('persona_user').values(share).execute()
  const past = async (email: string, address: string) => call('GET', address, { token: await token(email) })
  for (const query of [`version=${version}`, `at=${await instant()}`, 'version=99999', 'version=1&view=update']) {
    for (const [reader, address, sentence] of [
      [
        'reader',
        AGENT,
        'You can see this agent but not its earlier versions: that takes its owner, an editor share or an ',
      ],
      ['builder', AGENT, 'You can see this agent'],
      ['reader', '/tool/10', 'You can see this tool but not its earlier versions: that takes the right to update it.'],
      ['editor', '/tool/10', 'You can see this tool'],
    ] as const) {
      const refused = await past(`${reader}@example.com`, `${address}?${query}`)
      t.equal(refused.statusCode, 403, `${reader} ${address} ${query}`)
      t.match(refused.json(), { error_code: 'INSUFFICIENT_PERMISSIONS' })
      t.ok(refused.json().detail.startsWith(sentence), refused.body)
      t.notMatch(refused.body, secret)
    }
    t.equal((await past('reader@example.com', `/persona/3?${query}`)).statusCode, 404, 'an invisible one stays 404')
  }
  for (const email of ['alice@example.com', 'editor@example.com', 'admin@example.com']) {
    t.match((await past(email, `${AGENT}?version=${version}`)).json(), { system_prompt: secret }, email)
  }
  for (const email of ['builder@example.com', 'admin@example.com']) {
    t.equal((await past(email, '/tool/10?version=1')).statusCode, 200, email)
    t.equal(
      (await past(email, '/tool/1?version=0')).json().error_code,
      'VERSION_NOT_FOUND',
      `${email}: a built-in tool`,
    )
  }
  t.equal((await past('alice@example.com', '/tool/1?version=1')).statusCode, 403, 'a built-in tool')
})

t.test('an audit row ahead of the database’s clock: its version, its time and its repetition are answered', async t => {
  const keyed = async () => {
    const asked = { token: alice, body: { description: 'ahead' }, headers: { 'idempotency-key': 'ahead' } }
    return await call('PATCH', `${AGENT}?update_mask=description`, asked)
  }
  const first = await keyed()
  await sql`update audit set at = clock_timestamp() + interval '1 hour'
    where idempotency_key is not null and resource_kind = 'persona' and fields = '{description}'`.execute(database.db)
  const version = versionIn(first)
  const [read, replayed] = [await get(AGENT), await keyed()]
  t.match(replayed, { statusCode: 200, headers: { 'idempotent-replayed': 'true' } })
  t.equal(replayed.body, first.body)
  t.match((await get(`${AGENT}?version=${version}`)).json(), first.json())
  t.equal((await get(`${AGENT}?at=${await madeAt()}`)).body, read.body)
  t.equal((await get(`${AGENT}?at=${new Date(Date.now() + 7_200_000).toISOString()}`)).statusCode, 422)
  const before = await madeAt()
  await patch({ description: 'after it' })
  t.ok((await madeAt()) > before, 'times of versions only grow')
  await sql`update audit set at = at - interval '2 hours' where at > clock_timestamp()`.execute(database.db)
})

/** When the stored version of the agent was made. */
async function madeAt(): Promise<string> {
  const { rows } = await sql<{ at: string }>`select at from audit where resource_kind = 'persona' and resource_id = 1
    order by version_after desc limit 1`.execute(database.db)
  return String(rows[0]?.at)
}

t.test('view=update of an earlier version is the body that makes the agent and the tool what they were', async t => {
  const old = {
    recency_bias: 'no_decay',
    search_start_date: '2020-01-01T00:00:00.000000Z',
    system_prompt: 'old',
    tool_ids: [10],
  }
  const was = await patch(old)
  const wasAt = await instant()
  const before = await get(`${AGENT}?view=update`)
  await patch({ ...old, recency_bias: 'auto', search_start_date: null, system_prompt: 'new', tool_ids: [11] })
  const version = versionIn(was)
  for (const asked of [`version=${version}`, `at=${wasAt}`]) {
    const view = await get(`${AGENT}?view=update&${asked}`)
    t.equal(view.body, before.body)
    t.match(view.headers.link, /^<1>; rel="edit"$/)
  }
  const restored = await call('PATCH', AGENT, { token: alice, body: before.body })
  t.equal(restored.statusCode, 200, restored.body)
  t.equal((await get(`${AGENT}?view=update`)).body, before.body)

  await put({ name: 'was', description: 'was', custom_headers: [{ key: 'X', value: 'one' }] })
  const toolAt = await instant()
  await put({ name: 'is', description: 'is', custom_headers: [{ key: 'X', value: 'two' }] })
  const view = await get(`/tool/10?view=update&at=${toolAt}`)
  t.match(view.headers.warning, /custom_headers are left out/)
  const back = await call('PUT', TOOL, { token: alice, body: view.body })
  t.match(back.json(), { name: 'was', description: 'was' })
})

t.test('where there was nothing, nothing is answered: 404 between deletion and return', async t => {
  const deleted = await sql<{ version: number }>`select version from persona where id = 2`.execute(database.db)
  await deleteAgent(database, 2)
  const gone = await instant()
  const version = Number(deleted.rows[0]?.version)
  const back = await agentctl({ url, args: ['agent', 'restore', '2', '--version', String(version)] })
  t.equal(back.status, 0, back.stderr)
  t.equal((await get('/persona/2')).statusCode, 200)
  for (const asked of [`at=${gone}`, `version=${version + 1}`]) {
    const answer = await get(`/persona/2?${asked}`)
    t.match(answer, { statusCode: 404 }, asked)
    t.match(answer.json(), { error_code: 'VERSION_NOT_FOUND', detail: /had been deleted/ })
  }
})

t.test('a tool that was deleted and made anew: 404 between, 410 before', async t => {
  const before = await instant()
  const version = Number(/-(\d+)\./.exec(String((await get('/tool/13')).headers.etag))?.[1])
  const world = JSON.parse(readFileSync(worldFile(), 'utf8'))
  const tools = world.tools.filter((tool: { id: number }) => tool.id === 13)
  await deleteTool(database, 13)
  const between = await instant()
  await applyOrganisation(database, { version: 1, tools }, { vault, env: {} })
  t.equal((await get('/tool/13')).statusCode, 200)
  for (const asked of [`at=${between}`, `version=${version + 1}`]) {
    t.match(await get(`/tool/13?${asked}`), { statusCode: 404 }, asked)
    t.match((await get(`/tool/13?${asked}`)).json(), { error_code: 'VERSION_NOT_FOUND', detail: /had been deleted/ })
  }
  for (const asked of [`at=${before}`, `version=${version}`]) {
    t.match(await get(`/tool/13?${asked}`), { statusCode: 410 }, asked)
    t.match((await get(`/tool/13?${asked}`)).json(), { error_code: 'VERSION_GONE', reason: 'deleted' })
  }
})

t.test('what was deleted since is left out and named, and the rest of the agent is shown', async t => {
  const tag = String(
    (await patch({ tool_ids: [12], label_ids: [1], document_set_ids: [2], name: 'had twelve' })).headers.etag,
  )
  const version = /-(\d+)"$/.exec(tag)?.[1]
  await patch({ tool_ids: [], label_ids: [], document_set_ids: [], name: 'has none' })
  const address = `${AGENT}?version=${version}`
  await sql`delete from persona_tool where tool_id = 12`.execute(database.db)
  await sql`delete from tool_header where tool_id = 12`.execute(database.db)
  await sql`delete from tool where id = 12`.execute(database.db)
  await sql`delete from persona_label where label_id = 1`.execute(database.db)
  for (const links of ['persona', 'cc_pair', 'federated_connector', 'user', 'group']) {
    const table = sql.table(links === 'persona' ? 'persona_document_set' : `document_set_${links}`)
    await sql`delete from ${table} where document_set_id = 2`.execute(database.db)
  }
  await sql`delete from label where id = 1`.execute(database.db)
  await sql`delete from document_set where id = 2`.execute(database.db)
  const deleted = await get(address)
  t.match(deleted, { statusCode: 200 })
  t.match(deleted.json(), { name: 'had twelve', tools: [], labels: [], document_sets: [] })
  t.match(deleted.headers.warning, /left out, deleted since: document set 2, tool 12, label 1"/)
  t.match((await get(`${address}&view=update`)).json(), { tool_ids: [], label_ids: [], document_set_ids: [] })
})

t.test(
  '410 with the reason: pruned contents, pruned rows; the present version is shown without the tools that are not kept',
  async t => {
    const address = `${AGENT}?version=1`
    await patch({ tool_ids: [10], name: 'kept', description: 'kept' })
    const kept = await patch({ name: 'newest' })
    await pruneHistory(database.db, { auditRetentionDays: 400, versionsMax: 1, bytesMax: 2 ** 26 })
    const gone = await get(address)
    t.match(gone, { statusCode: 410 })
    t.match(gone.json(), {
      error_code: 'VERSION_GONE',
      reason: 'pruned',
      detail: /before version \d+ .*HISTORY_VERSIONS_MAX/,
    })
    const current = versionIn(kept)
    t.match((await get(`${AGENT}?version=${current - 1}`)).json(), { name: 'kept' })
    for (let i = 0; i < 3; i++) await put({ name: `pruned ${i}` })
    await pruneHistory(database.db, { auditRetentionDays: 400, versionsMax: 1, bytesMax: 2 ** 26 })
    const present = await get(`${AGENT}?version=${current}`)
    t.match(present.json(), { name: 'newest', tools: [] })
    t.match(present.headers.warning, /no longer kept \(HISTORY_VERSIONS_MAX\): tool 10"/)

    await sql`update audit set at = at - interval '500 days' where resource_kind = 'persona' and resource_id = 1`.execute(
      database.db,
    )
    await pruneHistory(database.db, { auditRetentionDays: 400, versionsMax: 100, bytesMax: 2 ** 26 })
    t.match((await get(`${AGENT}?version=${current - 1}`)).json(), { error_code: 'VERSION_GONE', reason: 'pruned' })
    t.match((await get(`${AGENT}?at=2001-01-01T00:00:00Z`)).json(), { error_code: 'VERSION_GONE', reason: 'pruned' })
    t.match(
      (await get(`${AGENT}?at=${await instant()}`)).json(),
      { name: 'newest' },
      'the last one is known by its anchor',
    )
  },
)

t.test(
  '409 for an earlier version whose definitions are larger than an answer, of a tool and of its agent',
  async t => {
    const world = await worldApp(t, { SNAPSHOT_BYTES_MAX: String(2 ** 20) })
    const admin = await world.token('admin@example.com')
    const send = (method: string, url: string, body?: object) => world.call(method, url, { token: admin, body })
    const large = { ...definition('large'), 'x-large': 'x'.repeat(2 ** 20) }
    const minimal = { token: admin, body: { definition: large }, headers: { prefer: 'return=minimal' } }
    const tool = versionIn(await world.call('PUT', TOOL, minimal))
    await send('PUT', TOOL, { definition: definition('small') })
    await send('PATCH', `${AGENT}?update_mask=tool_ids`, { tool_ids: [] })
    t.equal((await send('GET', '/tool/10')).statusCode, 200)
    for (const address of [`/tool/10?version=${tool}`, `/tool/10?version=${tool}&view=update`]) {
      const refused = await send('GET', address)
      t.equal(refused.statusCode, 409, address)
      t.match(refused.json(), { error_code: 'SNAPSHOT_TOO_LARGE' })
    }
    await world.call('PUT', TOOL, minimal)
    await sql`insert into persona_tool (persona_id, tool_id) values (2, 10)`.execute(world.database.db)
    const at = await instant()
    await send('PUT', TOOL, { definition: definition('small again') })
    t.equal((await send('GET', '/persona/2')).statusCode, 200)
    t.match((await send('GET', `/persona/2?at=${at}`)).json(), { error_code: 'SNAPSHOT_TOO_LARGE' })
  },
)

/* Read, edit, write back: what `view=update` answers is an update that changes nothing, and with one edit changes that. */

const AGENTS = 30
const TOOLS = 20

/** Sends a body to where the read says; answers the status, and what the audit trail says was changed by it. */
async function writeBack({ call, database }: WorldApp, token: string, path: string, edit: (body: string) => string) {
  const read = await call('GET', `${path}?view=update`, { token })
  if (read.statusCode !== 200) throw new Error(`${path}: ${read.body}`)
  const url = linked(`/agents${path}?view=update`, read.headers.link, 'edit').replace('/agents/', '/')
  const [, name, id] = path.split('/')
  const kind = name === 'tool' ? 'tool' : 'persona'
  const before = (await auditRows(database.db, kind, Number(id))).length
  const answer = await call(kind === 'tool' ? 'PUT' : 'PATCH', url, {
    token,
    body: edit(read.body),
    headers: { 'if-match': String(read.headers.etag) },
  })
  const added = (await auditRows(database.db, kind, Number(id))).slice(before)
  return {
    status: answer.statusCode,
    warning: answer.headers.warning,
    text: answer.body,
    changed: added.flatMap(row => row.fields),
  }
}

const FIELDS = Object.fromEntries(AGENT_FIELD_ROWS.map(([name, { random }]) => [name, random]))
const wholeAgent = fc.record(FIELDS, { requiredKeys: REQUIRED_AGENT_FIELDS })

t.test(`${AGENTS} random agents: sent back unchanged they stay, with one edit that changes`, async t => {
  const world = await worldApp(t)
  const { call, database } = world
  const token = await world.token('admin@example.com')
  const editable = Object.entries(AGENT_FIELDS).filter(([name]) => name !== 'remove_image')
  const edit = fc.constantFrom(...editable).chain(([name, { random }]) => random.map(value => ({ name, value })))
  const columns = fc.subarray(['num_chunks', 'system_prompt', 'task_prompt'])
  let edits = 0
  await fc.assert(
    fc.asyncProperty(wholeAgent, columns, edit, async (body, empty, { name, value }) => {
      await call('PATCH', '/persona/1', { token, body })
      // What only the operator leaves empty.
      const nulls = Object.fromEntries(empty.map(column => [column, null]))
      if (empty.length > 0) await database.db.updateTable('persona').set(nulls).where('id', '=', 1).execute()
      const back = await writeBack(world, token, '/persona/1', body => body)
      if (back.status !== 200 || back.changed.length > 0 || back.warning) throw new Error(JSON.stringify(back))
      const edited = await writeBack(world, token, '/persona/1', text => {
        const read = JSON.parse(text) as Record<string, unknown>
        if (Object.hasOwn(read, name)) read[name] = value
        return JSON.stringify(read)
      })
      if (edited.changed.some(field => field !== name)) throw new Error(`${name}: ${JSON.stringify(edited)}`)
      if (edited.status === 200) edits += edited.changed.length
    }),
    { numRuns: AGENTS },
  )
  t.ok(edits > AGENTS / 4, `${edits} edits changed their field`)
})

const number = fc.constantFrom('1', '1.0', '-0', '12345678901234567', '1e3', '0.10')
const title = fc.string({ maxLength: 8 }).filter(text => !text.includes('\0') && text.isWellFormed())
const tool = fc.record({
  name: title.filter(text => text.length > 0),
  description: title,
  passthrough: fc.boolean(),
  number,
  secret: fc.stringMatching(/^[a-z0-9]{1,8}$/),
})

t.test(`${TOOLS} random tools: sent back unchanged they stay, secrets too, with one edit that changes`, async t => {
  const world = await worldApp(t)
  const { call } = world
  const token = await world.token('admin@example.com')
  const definition = (value: string) => JSON.stringify(DEFINITION).replace('{', `{"x-n":[${value}],`)
  let edits = 0
  await fc.assert(
    fc.asyncProperty(
      tool,
      fc.constantFrom('name', 'description', 'definition', 'custom_headers'),
      number,
      async (made, name, other) => {
        const { number: value, secret, passthrough, ...texts } = made
        const headers = [{ key: 'X-Key', value: secret }]
        const rest = JSON.stringify({
          ...texts,
          passthrough_auth: passthrough,
          custom_headers: headers,
          oauth_config_id: passthrough ? 1 : null,
        })
        const body = `${rest.slice(0, -1)},"definition":${definition(value)}}`
        const stored = await call('PUT', '/admin/tool/custom/10', { token, body })
        if (stored.statusCode !== 200) throw new Error(stored.body)
        const back = await writeBack(world, token, '/tool/10', body => body)
        if (back.status !== 200 || back.changed.length > 0) throw new Error(JSON.stringify(back))
        const edited = await writeBack(world, token, '/tool/10', text => {
          if (name === 'definition') return text.replace(`"x-n":[${value}]`, `"x-n":[${other}]`)
          if (name === 'custom_headers')
            return text.replace('"X-Key"', '"X-Other"').replace(/"\*{4}#[0-9a-f]{12}"/, '"new"')
          return text.replace(`"${name}":${JSON.stringify(texts[name as 'name'])}`, `"${name}":"edited"`)
        })
        if (edited.status !== 200 || edited.changed.some(field => field !== name))
          throw new Error(`${name}: ${JSON.stringify(edited)}`)
        edits += edited.changed.length
      },
    ),
    { numRuns: TOOLS },
  )
  t.ok(edits > TOOLS / 2, `${edits} edits changed their field`)
})

t.test(
  '200: a caller who may not manage a tool reads a body without its headers; a viewer reads an agent; 304 and 422',
  async t => {
    const { call, token } = await worldApp(t)
    const alice = await token('alice@example.com', { scopes: ['basic'] })
    const tool = await call('GET', '/tool/10?view=update', { token: alice })
    t.strictSame(Object.keys(tool.json()), ['name', 'description', 'definition', 'passthrough_auth', 'oauth_config_id'])
    t.equal(tool.headers.link, '<../admin/tool/custom/10>; rel="edit"')
    const agent = await call('GET', '/persona/1?view=update', { token: alice })
    t.ok(agent.json().recency_bias, 'what the snapshot does not show')
    const tag = String(agent.headers.etag)
    t.equal(
      (await call('GET', '/persona/1?view=update', { token: alice, headers: { 'if-none-match': tag } })).statusCode,
      304,
    )
    t.equal((await call('GET', '/persona/1', { token: alice, headers: { 'if-none-match': tag } })).statusCode, 200)
    t.equal((await call('GET', '/persona/1?view=update&version=1', { token: alice })).statusCode, 200, 'of their own')
    t.equal((await call('GET', '/persona/1?view=all', { token: alice })).statusCode, 422)
  },
)
