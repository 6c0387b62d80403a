import t from 'tap'
import { REQUIRED_FIELDS } from '../app.js'
import { comparable, observedWorld } from './observed.js'

/*
 * What the caller cannot see answers like what does not exist: in status, body but for the request id, and headers.
 * Time is not compared: one statement answers both, but what it reads differs.
 */
const world = await observedWorld(t)
const alice = await world.token('alice@example.com')
const NOWHERE = 999_999

const patch = (id: number, body: unknown, query = '', headers: Record<string, string> = {}) =>
  world.call('PATCH', `/persona/${id}${query}`, { token: alice, body, headers })

t.test("404 alike: somebody else's private agent, a deleted one, a hidden id, one that no row can have", async t => {
  const requests: [unknown, string, Record<string, string>][] = [
    [REQUIRED_FIELDS, '', {}],
    [{ ...REQUIRED_FIELDS, tool_ids: [NOWHERE] }, '', {}],
    [{ ...REQUIRED_FIELDS, is_public: true, groups: [1] }, '', {}],
    [{}, '?update_mask=', {}],
    [{}, '?update_mask=&dry_run=true', {}],
    [REQUIRED_FIELDS, '?dry_run=true', { prefer: 'handling=strict' }],
    [REQUIRED_FIELDS, '', { 'if-match': '*' }],
    [REQUIRED_FIELDS, '', { 'if-match': '"persona-3-1"' }],
    [REQUIRED_FIELDS, '', { 'if-match': '"persona-3-99"' }],
    [{ name: 1 }, '', {}],
    ['{', '', {}],
    [{ ...REQUIRED_FIELDS, unknown: 1 }, '', {}],
  ]
  for (const [body, query, headers] of requests) {
    const reference = comparable(await patch(NOWHERE, body, query, headers))
    for (const id of [3, 7, 9, 10 ** 9, 2_147_483_648]) {
      t.strictSame(comparable(await patch(id, body, query, headers)), reference, `agent ${id}${query}`)
    }
  }
})

t.test('404, exactly', async t => {
  const answer = await patch(3, REQUIRED_FIELDS)
  t.equal(answer.statusCode, 404)
  t.strictSame(answer.json(), {
    error_code: 'PERSONA_NOT_FOUND',
    detail: 'No agent with this id.',
    request_id: answer.headers['x-request-id'],
  })
})

t.test('404 alike on the refusal that demands If-Match: nothing is said of the agent first', async t => {
  const token = await world.token('alice@example.com', { requireIfMatch: true })
  const ask = (id: number) => world.call('PATCH', `/persona/${id}`, { token, body: REQUIRED_FIELDS })
  t.strictSame(comparable(await ask(3)), comparable(await ask(NOWHERE)))
})

t.test("422 alike: a document set that the caller cannot see, another's file, and ones that do not exist", async t => {
  const { db } = world.database
  const hidden = await db
    .insertInto('document_set')
    .values({ name: 'Board papers', is_public: false })
    .returning('id')
    .executeTakeFirstOrThrow()
  const fields = [
    ['document_set_ids', hidden.id, NOWHERE],
    ['document_set_ids', hidden.id, -1],
    ['document_set_ids', hidden.id, 2 ** 40],
    ['user_file_ids', 'f0000000-0000-4000-8000-000000000003', 'f0000000-0000-4000-8000-00000000ffff'],
    ['user_file_ids', 'f0000000-0000-4000-8000-000000000004', 'no such file'],
  ] as const
  for (const [field, unseen, missing] of fields) {
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

t.test('422 alike: among good references, an unseen one is at its own place only', async t => {
  const query = '?update_mask=document_set_ids,user_file_ids'
  const mine = 'f0000000-0000-4000-8000-000000000001'
  const body = (file: string) => ({ document_set_ids: [1, 2], user_file_ids: [mine, file] })
  const unseen = await patch(1, body('f0000000-0000-4000-8000-000000000003'), query)
  t.strictSame(unseen.json(), {
    detail: [{ loc: ['body', 'user_file_ids', 1], msg: 'File not found', type: 'not_found' }],
  })
  t.strictSame(comparable(unseen), comparable(await patch(1, body('f0000000-0000-4000-8000-00000000ffff'), query)))
})

t.test(
  'what an invisible agent does leaves no trace in the answers of others: the impact counts it and no more',
  async t => {
    const token = await world.token('curator@example.com')
    const document = {
      openapi: '3.0.0',
      info: { title: 'T' },
      servers: [{ url: 'https://api.example.com' }],
      paths: { '/a': { get: { operationId: 'read', summary: 'Read' } } },
    }
    const admin = await world.token('admin@example.com')
    const attached = await world.call('PATCH', '/persona/3?update_mask=tool_ids', {
      token: admin,
      body: { tool_ids: [11] },
    })
    t.equal(attached.statusCode, 200)
    const answer = await world.call('POST', '/admin/tool/custom/validate?tool_id=11', {
      token,
      body: { definition: document },
    })
    t.equal(answer.statusCode, 200)
    t.strictSame(answer.json().impact.agents, { ids: [], others: 1 })
    t.notMatch(answer.body, /Bob|"3"/)
  },
)

t.test('403 for a tool out of scope: tools are no secret, so it is not hidden, and nothing of it is shown', async t => {
  const put = (id: number) => world.call('PUT', `/admin/tool/custom/${id}`, { token: alice, body: {} })
  const [known, missing] = [await put(10), await put(NOWHERE)]
  t.equal(known.statusCode, 403)
  t.strictSame(comparable(known), comparable(missing), 'without the permission, there or not is all one')
})
