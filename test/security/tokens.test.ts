import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { revokeToken } from '../../src/admin/tokens.js'
import { hashToken, mintToken, parseToken } from '../../src/auth/token.js'
import { eventually } from '../eventually.js'
import { DEFINITION } from '../matrix-organisation.js'
import { comparable, type Observed, observedWorld } from './observed.js'

const READ = '/persona/1?update_mask=&dry_run=true'
const INVALID = 'This token is not valid. Make one with: agentctl token create.'
const EXPIRED = 'This token has expired. Make one with: agentctl token create.'

const idOf = async ({ database }: Observed, token: string): Promise<number> => {
  const row = await database.db
    .selectFrom('token')
    .select('id')
    .where('hash', '=', hashToken(token))
    .executeTakeFirstOrThrow()
  return row.id
}

/** The statement that writes a token's last use; nobody waits for it, so it may be an earlier request's. */
const isUseRecord = (text: string) => /\bupdate "?token"?/.test(text)

const read = (world: Observed, token: string) => world.call('PATCH', READ, { token, body: {} })

const world = await observedWorld(t)
const port = await world.listen()

t.test('two tokens written down once are read: the form never changes; a new one has it', async t => {
  // Checksums and hashes computed with another implementation (Python's zlib and hashlib).
  const known = {
    pat_0123456789ABCDEFGHabcd4AnPqb: ['person', 'e69a41364fda1a72d2e581dcc89f94c75494dd7fe23f01794d0032b0894e9ce7'],
    sa_0123456789ABCDEFGHabcd0VPA9Q: [
      'service_account',
      'bbc8ee9cbda1d5b0b6700cbd2492e31c4d1faf36f3b08cfaa202eb9c5f0ccdc2',
    ],
  }
  for (const [token, [kind, hash = '']] of Object.entries(known))
    t.strictSame(parseToken(token), { ok: true, kind, hash: Buffer.from(hash, 'hex') })
  for (const [kind, prefix] of [
    ['person', 'pat'],
    ['service_account', 'sa'],
    ['read_only', 'ro'],
  ] as const) {
    const { token, hash } = mintToken(kind)
    t.match(token, new RegExp(`^${prefix}_[0-9A-Za-z]{28}$`))
    t.strictSame(parseToken(token), { ok: true, kind, hash })
  }
  const { token } = mintToken('person')
  const refused = [`sa_${token.slice(4)}`, `PAT_${token.slice(4)}`, ` ${token}`, `${token}\n`, 'x'.repeat(1_000_000)]
  for (let i = 0; i < token.length; i++) {
    refused.push(token.slice(0, i) + (token[i] === 'x' ? 'y' : 'x') + token.slice(i + 1))
    const swapped = token.slice(0, i) + (token[i + 1] ?? '') + token[i] + token.slice(i + 2)
    if (swapped !== token) refused.push(swapped)
  }
  for (const text of refused) t.strictSame(parseToken(text), { ok: false }, text.slice(0, 40))
})

const SEND = 'Send a token: Authorization: Bearer <token>.'
const FORM = 'The Authorization header must have the form: Bearer <token>.'

t.test('401 without a single statement: no header, another scheme, another form, a wrong checksum', async t => {
  const token = await world.token('alice@example.com')
  const other = token.endsWith('0') ? '1' : '0'
  const bodies: [code: string, detail: string, values: (string | undefined)[]][] = [
    ['UNAUTHENTICATED', SEND, [undefined]],
    [
      'UNAUTHENTICATED',
      FORM,
      ['', 'Bearer', 'Bearer ', `Basic ${token}`, token, `Bearer ${token} x`, `Bearer\t${token}`],
    ],
    [
      'INVALID_TOKEN',
      INVALID,
      ['x', token.slice(0, -1), `${token}0`, token.slice(0, -1) + other, `sa_${token.slice(4)}`]
        .concat(token.toLowerCase(), 'A'.repeat(10_000))
        .map(text => `Bearer ${text}`),
    ],
  ]
  world.statements.length = 0
  for (const [code, detail, values] of bodies) {
    for (const value of values) {
      const headers = value === undefined ? {} : { authorization: value }
      requireRefused(t, await world.call('PATCH', READ, { body: {}, headers }), code, detail)
    }
  }
  t.strictSame(world.statements, [])
})

function requireRefused(t: Test, answer: LightMyRequestResponse, error_code: string, detail: string): void {
  t.equal(answer.statusCode, 401)
  t.strictSame(answer.json(), { error_code, detail, request_id: answer.headers['x-request-id'] })
  const error = error_code === 'UNAUTHENTICATED' ? '' : `, error="invalid_token", error_description="${detail}"`
  t.equal(answer.headers['www-authenticate'], `Bearer realm="agents"${error}`)
  t.equal(answer.headers['token-expires-at'], undefined)
}

t.test('401 alike, after the same statement: unknown, revoked, of an inactive user', async t => {
  const revoked = await world.token('alice@example.com')
  await revokeToken(world.database.db, await idOf(world, revoked))
  const inactive = await world.token('inactive@example.com')
  const unknown = mintToken('person').token
  const answers: unknown[] = []
  const texts: string[][] = []
  for (const token of [unknown, revoked, inactive]) {
    world.statements.length = 0
    answers.push(comparable(await read(world, token)))
    texts.push(world.statements.filter(text => !isUseRecord(text)))
  }
  t.strictSame(answers[1], answers[0])
  t.strictSame(answers[2], answers[0])
  const setActive = (active: boolean) =>
    world.database.db.updateTable('user_account').set({ active }).where('email', '=', 'inactive@example.com').execute()
  await setActive(true)
  t.equal((await world.call('GET', '/me', { token: inactive })).statusCode, 200, 'once active')
  await setActive(false)
  t.equal((await read(world, inactive)).statusCode, 401)
  world.statements.length = 0
  t.equal((await read(world, await world.token('alice@example.com'))).statusCode, 200)
  const [first] = world.statements.filter(text => !isUseRecord(text))
  t.strictSame(texts, [[first], [first], [first]], 'one statement, the one that a valid token is looked up with')
})

t.test('401 TOKEN_EXPIRED: from the very second on; 401 INVALID_TOKEN when it was also revoked', async t => {
  const token = await world.token('alice@example.com', { expiresInS: 1 })
  const { headers } = await read(world, token)
  const expiresAt = Date.parse(String(headers['token-expires-at']))
  await eventually(async () => {
    const askedAt = Date.now()
    const { statusCode } = await read(world, token)
    // The header has whole seconds.
    t.ok(statusCode === 200 ? askedAt < expiresAt + 1_000 : Date.now() >= expiresAt, `${statusCode}`)
    return statusCode === 401
  })
  requireRefused(t, await read(world, token), 'TOKEN_EXPIRED', EXPIRED)
  await revokeToken(world.database.db, await idOf(world, token))
  requireRefused(t, await read(world, token), 'INVALID_TOKEN', INVALID)
})

t.test('403: a bound token reaches its resources only, and learns nothing of others', async t => {
  const token = await world.token('admin@example.com', { personaIds: [1, 3] })
  const patch = (id: number | string) =>
    world.call('PATCH', `/persona/${id}?update_mask=&dry_run=true`, { token, body: {} })
  t.strictSame([(await patch(1)).statusCode, (await patch(3)).statusCode], [200, 200])
  const others = await Promise.all([2, 7, 999, 2_147_483_648, 'x'].map(patch))
  for (const other of others) t.strictSame(comparable(other), comparable(others[0] ?? other), 'there or not: alike')
  t.equal(others[0]?.statusCode, 403)
  const definition = { definition: {} }
  const bound = await world.token('admin@example.com', { toolIds: [10] })
  const validate = (query: string) =>
    world.call('POST', `/admin/tool/custom/validate${query}`, { token: bound, body: definition })
  t.strictSame([(await validate('?tool_id=10')).statusCode, (await validate('?tool_id=11')).statusCode], [422, 403])
  t.strictSame(comparable(await validate('?tool_id=11')), comparable(await validate('?tool_id=999')))
})

t.test('a token that is bound to an agent sees the tools that are on it and no other, in no answer', async t => {
  const put = (id: number, body: object) => world.call('PUT', `/admin/tool/custom/${id}`, { token: admin, body })
  const admin = await world.token('admin@example.com')
  const patch = (token: string, body: object, query = '', headers: Record<string, string> = {}) =>
    world.call('PATCH', `/persona/1?update_mask=${Object.keys(body)}${query}`, { token, body, headers })
  await put(11, { description: 'of another tool', custom_headers: [{ key: 'X-Other', value: 'other' }] })
  await put(10, { description: 'of its tool', custom_headers: [{ key: 'X-Own', value: 'own' }] })
  const was = String((await patch(admin, { tool_ids: [10, 11] })).headers.etag)
  await patch(admin, { tool_ids: [10], description: 'one tool' })
  const bound = await world.token('admin@example.com', { personaIds: [1] })
  const both = await world.token('admin@example.com', { personaIds: [1], toolIds: [12] })
  const get = (path: string) => world.call('GET', path, { token: bound })
  for (const id of [11, 10, 999]) t.equal((await get(`/tool/${id}`)).statusCode, 403)
  const absent = await patch(bound, { tool_ids: [10, 999] })
  t.match(absent.json().detail, [{ loc: ['body', 'tool_ids', 1], type: 'not_found' }])
  for (const token of [bound, both]) {
    for (const [query, headers] of [
      ['', {}],
      ['&dry_run=true', {}],
      ['', { prefer: 'return=minimal' }],
    ] as [string, Record<string, string>][]) {
      const refused = await patch(token, { tool_ids: headers.prefer ? [10, 11, 13] : [10, 11] }, query, headers)
      t.equal(refused.statusCode, 422, `${query} ${JSON.stringify(headers)}`)
      const [fault] = refused.json().detail
      t.strictSame({ ...fault, loc: [] }, { ...absent.json().detail[0], loc: [] }, 'as one that does not exist')
      t.notMatch(refused.body, /of another tool|X-Other/)
    }
  }
  for (const answer of [await get('/persona/1'), await patch(bound, { tool_ids: [10] })]) {
    const { tools } = answer.json()
    t.match(tools, [{ id: 10, description: 'of its tool', custom_headers: null }], 'no masks: it manages none')
    t.equal(tools.length, 1)
  }
  t.match((await patch(admin, { tool_ids: [10] })).json().tools, [{ custom_headers: [{ key: 'X-Own' }] }])
  const past = await get(`/persona/1?version=${/-(\d+)"$/.exec(was)?.[1]}`)
  t.match(past, { statusCode: 200, headers: { warning: /left out, deleted since or not visible to you: tool 11"/ } })
  t.notMatch(past.body, /of another tool|X-Other|cur_tool/)
  t.match(past.json().tools, [{ id: 10 }])
  t.equal((await patch(both, { tool_ids: [10, 12] })).statusCode, 200, 'what it is bound to it attaches')
  await patch(admin, { tool_ids: [10] })
  const toTool = await world.token('admin@example.com', { toolIds: [10] })
  const impact = await world.call('POST', '/admin/tool/custom/validate?tool_id=10', {
    token: toTool,
    body: { definition: DEFINITION },
  })
  t.strictSame(impact.json().impact.agents.ids, [], 'nor does one that is bound to a tool see its agents')
  t.ok(impact.json().impact.agents.others > 0)
  await patch(admin, { tool_ids: [] })
})

t.test(
  'Token-Expires-At on every answer to a token that expires, refusals included; never for one that does not',
  async t => {
    const token = await world.token('alice@example.com', { expiresInS: 3_600 })
    const forever = await world.token('alice@example.com', { expiresInS: null })
    const stored = await world.database.db
      .selectFrom('token')
      .select('expires_at')
      .where('hash', '=', hashToken(token))
      .executeTakeFirstOrThrow()
    const seconds = new Date(Math.floor(Date.parse(String(stored.expires_at)) / 1000) * 1000)
    const wanted = seconds.toISOString().replace('.000Z', 'Z')
    for (const [method, url, body, status] of [
      ['PATCH', READ, '{}', 200],
      ['PATCH', '/persona/3', '{}', 422],
      ['PATCH', '/persona/999?update_mask=', '{}', 404],
      ['PATCH', '/persona/1', '{', 422],
      ['PUT', '/admin/tool/custom/10', '{}', 403],
    ] as const) {
      const answer = await world.call(method, url, { token, body })
      t.equal(answer.statusCode, status, url)
      t.equal(answer.headers['token-expires-at'], wanted, url)
      t.equal((await world.call(method, url, { token: forever, body })).headers['token-expires-at'], undefined, url)
    }
  },
)

t.test('last_used_at is written at most once a minute, and nobody waits for it', async t => {
  const token = await world.token('alice@example.com')
  const { db } = world.database
  const own = db.selectFrom('token').select('last_used_at').where('hash', '=', hashToken(token))
  const usedAt = async () => (await own.executeTakeFirstOrThrow()).last_used_at
  const writes = () => world.statements.filter(isUseRecord).length
  await db.transaction().execute(async trx => {
    await sql`select from token where hash = ${hashToken(token)} for update`.execute(trx)
    const before = writes()
    t.equal((await read(world, token)).statusCode, 200)
    await eventually(() => writes() > before)
  })
  t.equal(await usedAt(), null, 'left as it is while somebody has the row')
  await read(world, token)
  await eventually(async () => (await usedAt()) !== null)
  const [first, written] = [await usedAt(), writes()]
  await Promise.all(Array.from({ length: 30 }, () => read(world, token)))
  t.equal(writes(), written, 'thirty more uses within the minute write nothing')
  const aged = db.updateTable('token').set({ last_used_at: sql<string>`now() - interval '61 seconds'` })
  await aged.where('hash', '=', hashToken(token)).execute()
  await read(world, token)
  await eventually(async () => String(await usedAt()) > String(first))
})

t.test('a read-only token sees what its user sees, tries changes and stores none', async t => {
  const token = await world.token('admin@example.com', { scopes: ['read'] })
  t.match((await world.call('GET', '/me', { token })).json(), { permission: 'admin', token: { scopes: ['read'] } })
  const patch = (query: string) => world.call('PATCH', `/persona/1${query}`, { token, body: { name: 'Read' } })
  t.match(await patch('?update_mask=name&dry_run=true'), { statusCode: 200, headers: { 'dry-run': 'true' } })
  for (const query of ['', '&dry_run=false', '&dry_run=1', '&dry_run=true&dry_run=true', '&dry_run=TRUE']) {
    const { statusCode, body } = await patch(`?update_mask=name${query}`)
    t.same([statusCode, JSON.parse(body).error_code], [403, 'INSUFFICIENT_PERMISSIONS'], query)
  }
  const narrowed = await world.token('admin@example.com', { scopes: ['read', 'basic'] })
  t.equal((await world.call('GET', '/me', { token: narrowed })).json().permission, 'basic')
  // What an older program does with it: it looks for a hash of 32 bytes, and would copy the scopes.
  const copy = sql`
    insert into token (hash, user_id, scopes)
    select ${Buffer.alloc(32)}, user_id, scopes from token where hash = ${hashToken(token)}`
  await t.rejects(copy.execute(world.database.db), /token_read_hash/)
})

t.test('a token is in no log line, no error and no answer, wherever a client puts it', async t => {
  const token = await world.token('alice@example.com')
  const unknown = mintToken('person').token
  for (const one of [token, unknown]) {
    const misplaced = [
      ['PATCH', READ, { token: one, body: {} }],
      ['PATCH', `/persona/${one}`, { token: one, body: {} }],
      ['PATCH', `/persona/1?token=${one}`, { token: one, body: {} }],
      ['PATCH', `/persona/1?update_mask=&access_token=${one}`, { body: {} }],
      ['GET', `/${one}`, {}],
      ['GET', `/docs/${one}`, {}],
      ['PATCH', '/persona/1', { token: one, body: `{"a": ${one}` }],
      ['PATCH', '/persona/1', { token: one, body: {}, headers: { cookie: `token=${one}`, 'x-api-key': one } }],
      ['PATCH', '/persona/1', { body: {}, headers: { authorization: `Basic ${one}` } }],
      ['PATCH', '/persona/1', { body: {}, headers: { authorization: `Bearer ${one}${one}` } }],
      ['PATCH', '/persona/1', { token: one, body: {}, headers: { 'if-match': one, prefer: one, traceparent: one } }],
      ['PATCH', '/persona/1', { token: one, body: {}, headers: { 'content-type': one } }],
      ['PATCH', '/persona/1', { token: one, body: { name: one, tool_ids: [one] } }],
    ] as const
    for (const [method, url, call] of misplaced) await world.call(method, url, call)
    await fetch(`http://127.0.0.1:${port}/persona/%zz${one}`, { headers: { authorization: `Bearer ${one}` } })
  }
  t.ok(world.log.length > 20, 'there was a log')
  const kept = [...world.log, ...world.answers, ...world.statements]
  for (const one of [token, unknown])
    t.notOk(
      kept.some(text => text.includes(one.slice(4))),
      'in nothing that was kept',
    )
})
