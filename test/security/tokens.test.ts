import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { revokeToken } from '../../src/admin/tokens.js'
import { hashToken, mintToken, parseToken } from '../../src/auth/token.js'
import { eventually } from '../eventually.js'
import { DEFINITION } from '../matrix-organisation.js'
import { comparable, observedWorld } from './observed.js'

const READ = '/persona/1?update_mask=&dry_run=true'
const INVALID = 'This token is not valid. Ask the operator for a new token (agentctl token create).'
const EXPIRED = 'This token has expired. Ask the operator for a new token (agentctl token create).'

/** True for the statement that records a token's last use. It runs in the background, so it can belong to an earlier request. */
const isUseRecord = (text: string) => /\bupdate "?token"?/.test(text)

const world = await observedWorld(t)
const port = await world.listen()
const { db } = world.database

const read = (token: string) => world.call('PATCH', READ, { token, body: {} })
const rowOf = (token: string) =>
  db.selectFrom('token').selectAll().where('hash', '=', hashToken(token)).executeTakeFirstOrThrow()
const revoke = async (token: string) => await revokeToken(db, (await rowOf(token)).id)

/** Sends a request. Returns the answer with the request's statements, except the record of the token's last use. */
async function counted(request: () => Promise<LightMyRequestResponse>) {
  world.statements.length = 0
  const answer = await request()
  return { answer, texts: world.statements.filter(text => !isUseRecord(text)) }
}

t.test('two tokens written down once are read: the form never changes; a new one has it', async t => {
  // Checksums and hashes computed with another implementation (Python's zlib and hashlib).
  const known = {
    pat_0123456789ABCDEFGHabcd4AnPqb: 'e69a41364fda1a72d2e581dcc89f94c75494dd7fe23f01794d0032b0894e9ce7',
    sa_0123456789ABCDEFGHabcd0VPA9Q: 'bbc8ee9cbda1d5b0b6700cbd2492e31c4d1faf36f3b08cfaa202eb9c5f0ccdc2',
  }
  for (const [token, hash] of Object.entries(known)) {
    t.strictSame(parseToken(token), Buffer.from(hash, 'hex'))
  }
  const prefixes = { person: 'pat', service_account: 'sa', read_only: 'ro', runtime: 'rt', proposals_only: 'pp' }
  for (const [kind, prefix] of Object.entries(prefixes)) {
    const { token, hash } = mintToken(kind as 'person') // one of the kinds
    t.match(token, new RegExp(`^${prefix}_[0-9A-Za-z]{28}$`))
    t.strictSame(parseToken(token), hash)
  }
  const { token } = mintToken('person')
  const refused = [`sa_${token.slice(4)}`, `PAT_${token.slice(4)}`, ` ${token}`, `${token}\n`, 'x'.repeat(1_000_000)]
  for (let i = 0; i < token.length; i++) {
    refused.push(token.slice(0, i) + (token[i] === 'x' ? 'y' : 'x') + token.slice(i + 1))
    const swapped = token.slice(0, i) + (token[i + 1] ?? '') + token[i] + token.slice(i + 2)
    if (swapped !== token) refused.push(swapped)
  }
  for (const text of refused) t.equal(parseToken(text), undefined, text.slice(0, 40))
})

const SEND = 'Send a token in the header Authorization: Bearer <token>.'
const FORM = 'The header with the token must have the form: Bearer <token>.'

t.test('401 without a single statement: no header, another scheme, another form, a wrong checksum', async t => {
  const token = await world.token('alice@example.com')
  const other = token.endsWith('0') ? '1' : '0'
  const malformed = ['', 'Bearer', 'Bearer ', `Basic ${token}`, token, `Bearer ${token} x`, `Bearer\t${token}`]
  const damaged = ['x', token.slice(0, -1), `${token}0`, token.slice(0, -1) + other, `sa_${token.slice(4)}`]
  damaged.push(token.toLowerCase(), 'A'.repeat(10_000))
  const refusals: [code: string, detail: string, values: (string | undefined)[]][] = [
    ['UNAUTHENTICATED', SEND, [undefined]],
    ['UNAUTHENTICATED', FORM, malformed],
    ['INVALID_TOKEN', INVALID, damaged.map(text => `Bearer ${text}`)],
  ]
  for (const [code, detail, values] of refusals) {
    for (const value of values) {
      const headers = value === undefined ? {} : { authorization: value }
      const { answer, texts } = await counted(() => world.call('PATCH', READ, { body: {}, headers }))
      requireRefused(t, answer, code, detail)
      t.strictSame(texts, [])
    }
  }
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
  await revoke(revoked)
  const inactive = await world.token('inactive@example.com')
  const valid = await world.token('alice@example.com')
  const { answer, texts } = await counted(() => read(valid))
  t.equal(answer.statusCode, 200)
  const unknown = comparable(await read(mintToken('person').token))
  for (const token of [mintToken('person').token, revoked, inactive]) {
    const refused = await counted(() => read(token))
    t.strictSame(comparable(refused.answer), unknown)
    t.strictSame(refused.texts, texts.slice(0, 1), 'one statement, the one that a valid token is looked up with')
  }
  const setActive = (active: boolean) =>
    db.updateTable('user_account').set({ active }).where('email', '=', 'inactive@example.com').execute()
  await setActive(true)
  t.equal((await world.call('GET', '/me', { token: inactive })).statusCode, 200, 'once active')
  await setActive(false)
  t.equal((await read(inactive)).statusCode, 401)
})

t.test('401 TOKEN_EXPIRED: from the very second on; 401 INVALID_TOKEN when it was also revoked', async t => {
  const token = await world.token('alice@example.com', { expiresInS: 5 })
  const { headers } = await read(token)
  const expiresAt = Date.parse(String(headers['token-expires-at']))
  await eventually(async () => {
    const askedAt = Date.now()
    const { statusCode } = await read(token)
    // The header `Token-Expires-At` is rounded to whole seconds.
    t.ok(statusCode === 200 ? askedAt < expiresAt + 1_000 : Date.now() >= expiresAt, `${statusCode}`)
    return statusCode === 401
  })
  requireRefused(t, await read(token), 'TOKEN_EXPIRED', EXPIRED)
  await revoke(token)
  requireRefused(t, await read(token), 'INVALID_TOKEN', INVALID)
})

t.test('a token that is bound to an agent sees the tools that are on it and no other, in no answer', async t => {
  const admin = await world.token('admin@example.com')
  const put = (id: number, body: object) => world.call('PUT', `/admin/tool/custom/${id}`, { token: admin, body })
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
    for (const [query, prefer] of [[''], ['&dry_run=true'], ['', 'return=minimal']] as [string, string?][]) {
      const refused = await patch(token, { tool_ids: [10, 11] }, query, prefer === undefined ? {} : { prefer })
      t.equal(refused.statusCode, 422, `${query} ${prefer}`)
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
  t.match(past, { statusCode: 200, headers: { warning: /deleted or hidden from you are omitted: tool 11"/ } })
  t.notMatch(past.body, /of another tool|X-Other|cur_tool/)
  t.match(past.json().tools, [{ id: 10 }])
  t.equal((await patch(both, { tool_ids: [10, 12] })).statusCode, 200, 'what it is bound to it attaches')
  await patch(admin, { tool_ids: [10] })
  const asked = { token: await world.token('admin@example.com', { toolIds: [10] }), body: { definition: DEFINITION } }
  const { agents } = (await world.call('POST', '/admin/tool/custom/validate?tool_id=10', asked)).json().impact
  t.strictSame(agents.ids, [], 'nor does one that is bound to a tool see its agents')
  t.ok(agents.others > 0)
  await patch(admin, { tool_ids: [] })
})

t.test('Token-Expires-At on every answer to a token that expires, refusals too; on no answer to another', async t => {
  const token = await world.token('alice@example.com', { expiresInS: 3_600 })
  const forever = await world.token('alice@example.com', { expiresInS: null })
  const seconds = Math.floor(Date.parse(String((await rowOf(token)).expires_at)) / 1000)
  const wanted = new Date(seconds * 1000).toISOString().replace('.000Z', 'Z')
  for (const [method, url, body, status] of [
    ['PATCH', READ, '{}', 200],
    ['PATCH', '/persona/3', '{}', 422],
    ['PATCH', '/persona/999?update_mask=', '{}', 404],
    ['PATCH', '/persona/1', '{', 422],
    ['PUT', '/admin/tool/custom/10', '{}', 403],
  ] as const) {
    const answer = await world.call(method, url, { token, body })
    t.strictSame([answer.statusCode, answer.headers['token-expires-at']], [status, wanted], url)
    t.equal((await world.call(method, url, { token: forever, body })).headers['token-expires-at'], undefined, url)
  }
})

t.test('last_used_at is written at most once a minute, and nobody waits for it', async t => {
  const token = await world.token('alice@example.com')
  const usedAt = async () => (await rowOf(token)).last_used_at
  const writes = () => world.statements.filter(isUseRecord).length
  await db.transaction().execute(async trx => {
    await sql`select from token where hash = ${hashToken(token)} for update`.execute(trx)
    const before = writes()
    t.equal((await read(token)).statusCode, 200)
    await eventually(() => writes() > before)
  })
  t.equal(await usedAt(), null, 'left as it is while somebody has the row')
  await read(token)
  await eventually(async () => (await usedAt()) !== null)
  const [first, written] = [await usedAt(), writes()]
  await Promise.all(Array.from({ length: 30 }, () => read(token)))
  t.equal(writes(), written, 'thirty more uses within the minute write nothing')
  const aged = db.updateTable('token').set({ last_used_at: sql<string>`now() - interval '61 seconds'` })
  await aged.where('hash', '=', hashToken(token)).execute()
  await read(token)
  await eventually(async () => String(await usedAt()) > String(first))
})

t.test(
  'tokens that are read-only, of runtimes or for proposals see what their user sees, and store no change',
  async t => {
    const readOnly = 'This token is read-only.'
    let token = ''
    for (const [prefix, scope, reason] of [
      ['pp_', 'propose', 'This token allows only proposals (propose=true).'],
      ['rt_', 'runtime', readOnly],
      ['ro_', 'read', readOnly],
    ] as const) {
      token = await world.token('admin@example.com', { scopes: [scope] })
      t.equal(token.slice(0, 3), prefix)
      t.match((await world.call('GET', '/me', { token })).json(), { permission: 'admin', token: { scopes: [scope] } })
      const patch = (query: string) => world.call('PATCH', `/persona/1${query}`, { token, body: { name: 'Read' } })
      t.match(await patch('?update_mask=name&dry_run=true'), { statusCode: 200, headers: { 'dry-run': 'true' } })
      const refused = {
        error_code: 'INSUFFICIENT_PERMISSIONS',
        detail: `${reason} A dry run is allowed (dry_run=true).`,
      }
      for (const query of ['', '&dry_run=false', '&dry_run=1', '&dry_run=true&dry_run=true', '&dry_run=TRUE'])
        t.match((await patch(`?update_mask=name${query}`)).json(), refused, query)
      for (const act of ['approve', 'reject'])
        t.equal(
          (await world.call('POST', `/proposals/1/${act}`, { token })).json().detail,
          reason.replace(' (propose=true)', ''),
          `it has no dry run: ${act}`,
        )
    }
    const narrowed = await world.token('admin@example.com', { scopes: ['read', 'basic'] })
    t.equal((await world.call('GET', '/me', { token: narrowed })).json().permission, 'basic')
    // Imitates an older program, which would store a 32-byte hash with the copied scopes. A constraint prevents this.
    const copy = sql`
    insert into token (hash, user_id, scopes)
    select ${Buffer.alloc(32)}, user_id, scopes from token where hash = ${hashToken(token)}`
    await t.rejects(copy.execute(db), /token_read_hash/)
  },
)

t.test('a token is in no log line, no error and no answer, wherever a client puts it', async t => {
  const token = await world.token('alice@example.com')
  const unknown = mintToken('person').token
  for (const one of [token, unknown]) {
    for (const url of [`/${one}`, `/docs/${one}`]) await world.call('GET', url)
    await world.call('PATCH', `/persona/1?update_mask=&access_token=${one}`, { body: {} })
    for (const url of [READ, `/persona/${one}`, `/persona/1?token=${one}`])
      await world.call('PATCH', url, { token: one, body: {} })
    for (const headers of [
      { cookie: `token=${one}`, 'x-api-key': one },
      { authorization: `Basic ${one}` },
      { authorization: `Bearer ${one}${one}` },
      { 'if-match': one, prefer: one, traceparent: one },
      { 'content-type': one },
    ])
      await world.call('PATCH', '/persona/1', { token: one, body: {}, headers: headers as Record<string, string> })
    for (const body of [`{"a": ${one}`, { name: one, tool_ids: [one] }])
      await world.call('PATCH', '/persona/1', { token: one, body })
    await fetch(`http://127.0.0.1:${port}/persona/%zz${one}`, { headers: { authorization: `Bearer ${one}` } })
  }
  t.ok(world.log.length > 20, 'there was a log')
  const kept = [...world.log, ...world.answers, ...world.statements]
  const held = kept.filter(text => [token, unknown].some(one => text.includes(one.slice(4))))
  t.strictSame(held, [], 'in nothing that was kept')
})
