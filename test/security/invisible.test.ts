import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { matrixCallers, matrixOrganisation } from '../matrix-organisation.js'
import { comparable, observedWorld } from './observed.js'

/* A hidden resource gets the same answer as a missing one: the same status, headers and body (except the request id), after the same statements. */
const world = await observedWorld(t)
const alice = await world.token('alice@example.com')
const NOWHERE = 999_999

const NAME = { name: 'x' }
const REQUESTS: [method: string, query: string, body?: unknown, headers?: Record<string, string>][] = [
  ['GET', ''],
  ['HEAD', ''],
  ['GET', '', undefined, { 'if-none-match': '*' }],
  ['GET', '?version=1'],
  ['DELETE', ''],
  ['DELETE', '?dry_run=true'],
  ['DELETE', '', undefined, { 'if-match': '"persona-3-1"' }],
  ['DELETE', '', undefined, { 'idempotency-key': '"one"' }],
  ['PATCH', '', REQUIRED_FIELDS],
  ['PATCH', '', { ...REQUIRED_FIELDS, tool_ids: [NOWHERE] }],
  ['PATCH', '', { ...REQUIRED_FIELDS, is_public: true, groups: [1] }],
  ['PATCH', '', { ...REQUIRED_FIELDS, unknown: 1 }],
  ['PATCH', '?update_mask=', {}],
  ['PATCH', '?update_mask=&dry_run=true', {}],
  ['PATCH', '?dry_run=true', REQUIRED_FIELDS, { prefer: 'handling=strict' }],
  ['PATCH', '', REQUIRED_FIELDS, { 'if-match': '*' }],
  ['PATCH', '', REQUIRED_FIELDS, { 'if-match': '"persona-3-1"' }],
  ['PATCH', '', REQUIRED_FIELDS, { 'if-match': '"persona-3-99"' }],
  ['PATCH', '?update_mask=name', NAME, { 'idempotency-key': '"one"' }],
  ['PATCH', '?update_mask=name', NAME, { 'if-match': '"persona-3-1"' }],
  ['PATCH', '', { name: 1 }],
  ['PATCH', '', '{'],
  ['GET', '/history'],
  ['POST', '/restore', { version: 1 }],
  ['POST', '/restore', { version: 99 }],
]

t.test("alike: somebody else's private agent, a deleted one, a hidden id, one that no row can have", async t => {
  const careful = await world.token('alice@example.com', { requireIfMatch: true })
  for (const token of [alice, await world.token('curator@example.com'), careful]) {
    await world.call('GET', '/me', { token }) // the first request of a token authenticates twice
    for (const [method, query, body, headers = {}] of REQUESTS) {
      const ask = async (id: number) => {
        world.statements.length = 0
        const sent = { token, headers, ...(body !== undefined && { body }) }
        const answer = await world.call(method, `/persona/${id}${query}`, sent)
        const { 'token-expires-at': _, ...others } = answer.headers
        const asked = world.statements.filter(text => !/update "?token"?/.test(text))
        t.notMatch(String(answer.statusCode), /^[25]/)
        return { answer: comparable(Object.assign(answer, { headers: others })), asked }
      }
      const reference = await ask(NOWHERE)
      for (const id of /^.(history|restore)/.test(query) ? [3, 10 ** 9] : [3, 7, 10 ** 9]) {
        // The owner of the deleted agent 7 may read its history and restore it.
        t.strictSame(await ask(id), reference, `agent ${id}: ${method} ${query} ${JSON.stringify(headers)}`)
      }
      t.strictSame((await ask(2_147_483_648)).answer, reference.answer, `${method} ${query}, beyond all ids`)
    }
  }
})

t.test("422 alike: a document set that the caller cannot see, another's file, and ones that do not exist", async t => {
  const hidden = await world.database.db
    .insertInto('document_set')
    .values({ name: 'Board papers', is_public: false })
    .returning('id')
    .executeTakeFirstOrThrow()
  const file = (end: string) => `f0000000-0000-4000-8000-00000000${end}`
  for (const [field, unseen, missing] of [
    ['document_set_ids', hidden.id, NOWHERE],
    ['document_set_ids', hidden.id, -1],
    ['document_set_ids', hidden.id, 2 ** 40],
    ['user_file_ids', file('0003'), file('ffff')],
    ['user_file_ids', file('0004'), 'no such file'],
  ] as const) {
    for (const query of [`?update_mask=${field}`, `?update_mask=${field}&dry_run=true`]) {
      for (const headers of [{}, { 'if-match': '*' }, { 'if-match': '"persona-1-0"' }]) {
        const ask = (id: number | string) =>
          world.call('PATCH', `/persona/1${query}`, { token: alice, body: { [field]: [id] }, headers })
        const [one, other] = [comparable(await ask(unseen)), comparable(await ask(missing))]
        t.strictSame(one, other, `${field} ${missing} ${query} ${JSON.stringify(headers)}`)
        t.match(one, { status: 422, body: { detail: [{ loc: ['body', field, 0], type: 'not_found' }] } })
      }
    }
  }
})

t.test('403 alike without the permission, or with a token bound to others: what is there, and what is not', async t => {
  const toAgents = await world.token('admin@example.com', { personaIds: [1, 3] })
  const toTool = await world.token('admin@example.com', { toolIds: [10] })
  const validate = '/admin/tool/custom/validate?tool_id='
  for (const [token, status, method, url, own, ...others] of [
    [alice, 403, 'PUT', '/admin/tool/custom/', 10, 999],
    [toAgents, 200, 'PATCH', '/persona/', 1, 2, 7, 999, 2_147_483_648, 'x'],
    [toTool, 422, 'POST', validate, 10, 11, 999],
  ] as const) {
    const ask = (id: number | string) => {
      const query = method === 'PATCH' ? '?update_mask=&dry_run=true' : ''
      return world.call(method, `${url}${id}${query}`, { token, body: method === 'POST' ? { definition: {} } : {} })
    }
    t.equal((await ask(own)).statusCode, status, `${url}${own}`)
    const missing = await ask(others[0])
    t.equal(missing.statusCode, 403)
    for (const id of others) t.strictSame(comparable(await ask(id)), comparable(missing), `${url}${id}`)
  }
})

/* The right to manage a tool is checked for one tool by an update, and for all tools of an agent by a read. */

const PUBLIC = 1_000

t.test('headers are shown, alone and in an agent, exactly to callers that may update the tool', async t => {
  const world = await worldApp(t)
  const { db } = world.database
  await applyOrganisation(world.database, matrixOrganisation(), { ring: world.ring, env: {} })
  const callers: [string, string][] = []
  for (const [caller, authorization = ''] of await matrixCallers(world)) {
    const known = await world.call('GET', '/me', { headers: { authorization } })
    if (known.statusCode === 200) callers.push([caller, authorization])
  }
  const tools = (await db.selectFrom('tool').select('id').orderBy('id').execute()).map(({ id }) => id)

  /** Returns the tools that a caller may update, according to dry runs, which read-only tokens can also send. */
  const managedBy = async (authorization: string, ids: number[]) => {
    const headers = { authorization }
    const asked = ids.map(id => world.call('PUT', `/admin/tool/custom/${id}?dry_run=true`, { headers, body: {} }))
    const answers = await Promise.all(asked)
    return ids.filter((_, i) => answers[i]?.statusCode === 200)
  }
  const shownIn = (records: { id: number; custom_headers: unknown }[]) =>
    records.filter(one => one.custom_headers !== null).map(({ id }) => id)

  let shown = 0
  for (const [caller, authorization] of callers) {
    const read = tools.map(id => world.call('GET', `/tool/${id}`, { headers: { authorization } }))
    const seen = (await Promise.all(read)).filter(({ statusCode }) => statusCode === 200)
    const records = seen.map(answer => answer.json())
    const ids = records.map(({ id }) => id)
    const managed = await managedBy(authorization, ids)
    t.strictSame(shownIn(records), managed, caller)
    shown += managed.length
  }
  t.ok(shown > 50, `${shown} shown`)

  await sql`insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, is_public)
    overriding system value values (${PUBLIC}, 'public', '', 'auto', false, false, true)`.execute(db)
  await sql`insert into persona_group select ${PUBLIC}, id, 'viewer' from user_group where name = 'Managed'`.execute(db)
  await sql`insert into persona_tool (persona_id, tool_id) select ${PUBLIC}, id from tool`.execute(db)
  for (const [caller, authorization] of callers) {
    const read = await world.call('GET', `/persona/${PUBLIC}`, { headers: { authorization } })
    if (read.statusCode !== 200) continue
    t.strictSame(shownIn(read.json().tools), await managedBy(authorization, tools), `${caller}, in an agent`)
  }
})
