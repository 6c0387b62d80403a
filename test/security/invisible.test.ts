import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { matrixCallers, matrixOrganisation } from '../matrix-organisation.js'
import { comparable, observedWorld } from './observed.js'

/*
 * What the caller cannot see answers like what does not exist: in status, body without the request id, and headers, after
 * the same statements.
 */
const world = await observedWorld(t)
const alice = await world.token('alice@example.com')
const NOWHERE = 999_999

const patch = (id: number, body: unknown, query = '', headers: Record<string, string> = {}, token = alice) =>
  world.call('PATCH', `/persona/${id}${query}`, { token, body, headers })

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
        // its owner may restore 7
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
        const one = comparable(await patch(1, { [field]: [unseen] }, query, headers))
        const other = comparable(await patch(1, { [field]: [missing] }, query, headers))
        t.strictSame(one, other, `${field} ${missing} ${query} ${JSON.stringify(headers)}`)
        t.match(one, { status: 422, body: { detail: [{ loc: ['body', field, 0], type: 'not_found' }] } })
      }
    }
  }
})

t.test('403 for a tool out of scope: tools are no secret, so it is not hidden, and nothing of it is shown', async t => {
  const put = (id: number) => world.call('PUT', `/admin/tool/custom/${id}`, { token: alice, body: {} })
  const [known, missing] = [await put(10), await put(NOWHERE)]
  t.equal(known.statusCode, 403)
  t.strictSame(comparable(known), comparable(missing), 'without the permission, there or not is all one')
})

/* The rule for managers of a tool is asked of one tool by an update, and of all the tools of an agent by a read. */

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

  /** Which tools each caller may update, by the statuses of dry runs, which a read-only token may send too. */
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
    const records = (await Promise.all(read))
      .filter(({ statusCode }) => statusCode === 200)
      .map(answer => answer.json())
    const ids = records.map(({ id }) => id)
    t.strictSame(shownIn(records), await managedBy(authorization, ids), caller)
    shown += shownIn(records).length
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
