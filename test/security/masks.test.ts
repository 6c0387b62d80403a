import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { makeLogger } from '../../src/http/logging.js'
import { decryptSecret, generateDeploymentKey, sealDeploymentKey } from '../../src/secrets/cipher.js'
import { fingerprint } from '../../src/secrets/redaction.js'
import { type WorldApp, worldApp } from '../app.js'
import { saysItsLimit } from '../http/running.js'

interface Header {
  key: string
  value: string
}

const SECRETS: Header[] = [
  { key: 'X-First', value: 'first secret, with , comma and "quotes"' },
  { key: 'X-Second', value: 'zweites Geheimnis: äöü' },
  { key: 'X-Third', value: '-' },
  { key: 'X-Fourth', value: 'first secret, with , comma and "quotes"' },
]

/** What is stored of a tool's headers, opened with the ring: names and secrets in their order. */
async function storedSecrets({ database, vault }: WorldApp, toolId: number): Promise<Header[]> {
  const rows = await database.db
    .selectFrom('tool_header')
    .select(['name', 'key_id', 'nonce', 'ciphertext'])
    .where('tool_id', '=', toolId)
    .orderBy('position')
    .execute()
  return rows.map(({ name, key_id: keyId, nonce, ciphertext }) => {
    const place = { toolId, headerName: name }
    return { key: name, value: decryptSecret(vault.ring, { keyId, nonce, ciphertext }, place) }
  })
}

async function ciphertexts({ database }: WorldApp, toolId: number): Promise<string[]> {
  const rows = await database.db
    .selectFrom('tool_header')
    .select(['nonce', 'ciphertext'])
    .where('tool_id', '=', toolId)
    .orderBy('position')
    .execute()
  return rows.map(row => Buffer.concat([row.nonce, row.ciphertext]).toString('hex'))
}

const shared = await worldApp(t)

/** Gives a tool the secrets and answers the masks that the snapshot shows, with the caller's own requests. */
async function withSecrets(world: WorldApp, toolId = 10, secrets = SECRETS) {
  const admin = await world.token('admin@example.com')
  const put = (body: unknown, id = toolId, headers: Record<string, string> = {}) =>
    world.call('PUT', `/admin/tool/custom/${id}`, { token: admin, body, headers })
  const made = await put({ custom_headers: secrets, passthrough_auth: false })
  return { ...world, admin, put, masks: made.json().custom_headers as Header[], made }
}

const mismatchAt = (index: number) => ({
  detail: [
    {
      loc: ['body', 'custom_headers', index, 'value'],
      msg: 'This value has the shape of a mask but is not the mask of the stored header of this name; send the secret itself or, if the header was changed since it was read, read the tool again',
      type: 'mask_mismatch',
    },
  ],
})

t.test("200: a snapshot's masked headers sent back keep every secret, byte by byte, and change nothing", async t => {
  const world = await withSecrets(shared)
  t.match(
    world.masks.map(mask => mask.value),
    SECRETS.map(() => /^\*{4}#[0-9a-f]{12}$/),
  )
  t.equal(new Set(world.masks.map(mask => mask.value)).size, SECRETS.length, 'equal values under two names differ')
  const before = await ciphertexts(world, 10)
  const again = await world.put({ custom_headers: world.masks })
  t.equal(again.statusCode, 200)
  t.equal(again.headers.etag, world.made.headers.etag)
  t.strictSame(again.json(), world.made.json())
  for (const body of [world.made.json(), { custom_headers: SECRETS }])
    t.equal(
      (await world.put(body)).headers.etag,
      world.made.headers.etag,
      'nor the whole snapshot, or the same secrets',
    )
  t.strictSame(await storedSecrets(world, 10), SECRETS)
  t.strictSame(await ciphertexts(world, 10), before)
  const [kept] = before
  const changed = await world.put({ custom_headers: [world.masks[0], { key: 'X-Second', value: 'another' }] })
  t.not(changed.headers.etag, world.made.headers.etag)
  t.equal((await ciphertexts(world, 10))[0], kept, 'what is kept beside a change is not sealed anew')
})

t.test('200: masks keep their secrets when headers are reordered, dropped, added, or renamed in case only', async t => {
  const world = await withSecrets(shared)
  const [first, second, third, fourth] = world.masks as [Header, Header, Header, Header]
  const reordered = await world.put({ custom_headers: [fourth, second, first, third] })
  t.equal(reordered.statusCode, 200)
  t.strictSame(
    await storedSecrets(world, 10),
    [3, 1, 0, 2].map(index => SECRETS[index]),
  )
  const renamed = await world.put({ custom_headers: [{ ...first, key: 'x-FIRST' }, fourth] })
  t.equal(renamed.statusCode, 200)
  t.strictSame(renamed.json().custom_headers, [{ key: 'x-FIRST', value: first.value }, fourth])
  t.strictSame(await storedSecrets(world, 10), [{ ...SECRETS[0], key: 'x-FIRST' }, SECRETS[3]])
  const added = await world.put({
    custom_headers: [{ key: 'X-New', value: 'new' }, fourth, { ...first, key: 'X-First' }],
  })
  t.equal(added.statusCode, 200)
  t.strictSame(await storedSecrets(world, 10), [{ key: 'X-New', value: 'new' }, SECRETS[3], SECRETS[0]])
})

t.test('200: two values swapped as plaintext are stored swapped; as masks they are refused', async t => {
  const world = await withSecrets(shared, 10, SECRETS.slice(0, 2))
  const [first, second] = world.masks as [Header, Header]
  const [one, two] = SECRETS as [Header, Header]
  const swappedMasks = await world.put({
    custom_headers: [
      { key: first.key, value: second.value },
      { key: second.key, value: first.value },
    ],
  })
  t.equal(swappedMasks.statusCode, 422)
  t.strictSame(swappedMasks.json(), { detail: [...mismatchAt(0).detail, ...mismatchAt(1).detail] })
  t.strictSame(await storedSecrets(world, 10), SECRETS.slice(0, 2))
  const swapped = [
    { key: one.key, value: two.value },
    { key: two.key, value: one.value },
  ]
  t.equal((await world.put({ custom_headers: swapped })).statusCode, 200)
  t.strictSame(await storedSecrets(world, 10), swapped)
})

t.test('422 mask_mismatch: the digits of a stored mask in capitals, or in part, inside a value', async t => {
  const world = await withSecrets(shared, 10, SECRETS.slice(0, 1))
  const [{ value: mask }] = world.made.json().custom_headers
  const digits = mask.slice('****#'.length)
  for (const value of [digits.toUpperCase(), `Bearer ${digits.toUpperCase()}`, `key-${digits}-1`]) {
    const answer = await world.put({ custom_headers: [{ key: SECRETS[0]?.key, value }] })
    t.equal(answer.json().detail?.[0].type, 'mask_mismatch', value)
  }
  t.strictSame(await storedSecrets(world, 10), SECRETS.slice(0, 1))
})

t.test('422: a value that shows nothing replaces no stored one; a header that is left out is removed', async t => {
  const world = await withSecrets(shared, 10, SECRETS.slice(0, 2))
  for (const value of ['', ' ', '\t', '\u00a0', '\u00ad', ' \u00ad ']) {
    const answer = await world.put({ custom_headers: [{ key: SECRETS[0]?.key, value }] })
    t.equal(answer.statusCode, 422, JSON.stringify(value))
    const msg = 'Header value should not be empty: leave the header out of the list to remove it'
    t.strictSame(answer.json().detail, [
      { loc: ['body', 'custom_headers', 0, 'value'], msg, type: 'header_value_invalid' },
    ])
  }
  t.strictSame(await storedSecrets(world, 10), SECRETS.slice(0, 2))
})

t.test('422 mask_mismatch: a mask moved to another header, tool or deployment', async t => {
  const world = await withSecrets(shared)
  const [first] = world.masks as [Header]
  const otherHeader = await world.put({ custom_headers: [{ key: 'X-Other', value: first.value }] })
  t.equal(otherHeader.statusCode, 422)
  t.strictSame(otherHeader.json(), mismatchAt(0))
  await world.put({ custom_headers: SECRETS }, 13)
  const otherTool = await world.put({ custom_headers: [first] }, 13)
  t.equal(otherTool.statusCode, 422)
  t.strictSame(otherTool.json(), mismatchAt(0))
  t.strictSame(await storedSecrets(world, 13), SECRETS)
})

t.test('422 mask_mismatch: a mask of the same tool, name and value in another deployment', async t => {
  const one = await withSecrets(shared)
  const other = await withSecrets(await worldApp(t))
  // Both copies of the template share its deployment key: the other gets one of its own, as a new deployment would.
  const key = generateDeploymentKey()
  const sealed = sealDeploymentKey(other.vault.ring, key)
  const { db } = other.database
  await db.updateTable('deployment_key').set({ nonce: sealed.nonce, ciphertext: sealed.ciphertext }).execute()
  for (const [position, secret] of SECRETS.entries()) {
    const mark = fingerprint(key, 10, secret.key, secret.value)
    await db
      .updateTable('tool_header')
      .set({ fingerprint: mark })
      .where('tool_id', '=', 10)
      .where('position', '=', position)
      .execute()
  }
  const answer = await other.put({ custom_headers: one.masks.slice(0, 1) })
  t.equal(answer.statusCode, 422)
  t.strictSame(answer.json(), mismatchAt(0))
})

t.test('422 mask_mismatch: damaged masks are never stored as secrets', async t => {
  const world = await withSecrets(shared)
  const [{ key, value }] = world.masks as [Header]
  const damaged = [
    `${value.slice(0, -1)}${value.endsWith('0') ? '1' : '0'}`,
    value.slice(0, -1),
    `${value}0`,
    value.toUpperCase(),
    ` ${value}`,
    `${value} `,
    `${value}\t`,
    '****#',
    '****#000000000000',
    ...['**#', '#', '', 'Bearer **#', 'xxxx#', '* * * *#', '\\*\\*\\*\\*#', '%2A%2A%2A%2A%23'].map(
      front => `${front}${value.slice('****#'.length)}`,
    ),
    '<unchanged>',
    '(sensitive value)',
    `****#${'0'.repeat(64)}`,
  ].filter(text => text !== value)
  for (const text of damaged) {
    const answer = await world.put({ custom_headers: [{ key, value: text }] })
    t.equal(answer.statusCode, 422, JSON.stringify(text))
    t.strictSame(answer.json(), mismatchAt(0), JSON.stringify(text))
  }
  t.strictSame(await storedSecrets(world, 10), SECRETS)
})

t.test('422: a mask of a header that was removed or whose secret was replaced since', async t => {
  const world = await withSecrets(shared)
  const [first] = world.masks as [Header]
  await world.put({ custom_headers: [{ key: first.key, value: 'a newer secret' }] })
  const stale = await world.put({ custom_headers: [first] })
  t.equal(stale.statusCode, 422)
  t.strictSame(stale.json(), mismatchAt(0))
  t.strictSame(await storedSecrets(world, 10), [{ key: first.key, value: 'a newer secret' }])
  await world.put({ custom_headers: [] })
  t.equal((await world.put({ custom_headers: [first] })).statusCode, 422)
  t.strictSame(await storedSecrets(world, 10), [])
})

t.test('422: a dry run judges masks like the real request and stores nothing', async t => {
  const world = await withSecrets(shared)
  const before = await ciphertexts(world, 10)
  const dry = await world.call('PUT', '/admin/tool/custom/10?dry_run=true', {
    token: world.admin,
    body: { custom_headers: [{ key: 'X-First', value: 'never stored' }] },
  })
  t.equal(dry.statusCode, 200)
  t.equal(dry.headers.etag, world.made.headers.etag)
  t.strictSame(await ciphertexts(world, 10), before)
  const shown = dry.json().custom_headers as Header[]
  const replayed = await world.put({ custom_headers: shown })
  t.equal(replayed.statusCode, 422, 'the mask that a dry run showed stands for nothing stored')
})

t.test(
  'in the tools of an agent custom_headers are masks for callers that may manage them, null for others',
  async t => {
    const world = await withSecrets(shared, 10, SECRETS.slice(0, 1))
    const { call, token, masks } = world
    const seenBy = async (email: string, scopes?: ['basic']) => {
      const answer = await call('GET', '/persona/13', { token: await token(email, scopes && { scopes }) })
      const tools = answer.statusCode === 200 ? answer.json().tools : []
      return tools.map((tool: { id: number; custom_headers: unknown }) => [tool.id, tool.custom_headers])
    }
    const attach = async (agent: number, tool_ids: number[]) => {
      const sent = { token: world.admin, body: { tool_ids } }
      t.equal((await call('PATCH', `/persona/${agent}?update_mask=tool_ids`, sent)).statusCode, 200)
    }
    // Agent 13: owned by alice, shared with Engineering, whose manager is curator.
    await attach(8, [])
    await attach(11, [])
    await attach(13, [1, 10])
    const [hidden, shown] = [null, masks].map(headers => [
      [1, null],
      [10, headers],
    ])
    t.strictSame(await seenBy('alice@example.com'), hidden, 'the owner of the agent')
    t.strictSame(await seenBy('curator@example.com'), shown, 'the manager of its only group')
    t.strictSame(await seenBy('gcurator@example.com'), shown, 'manage:actions')
    t.strictSame(await seenBy('admin@example.com'), shown, 'an administrator')
    t.strictSame(await seenBy('gcurator@example.com', ['basic']), hidden, 'a token of scope basic')
    t.strictSame(await seenBy('admin@example.com', ['basic']), [], 'which sees by share only')
    await attach(14, [10])
    t.strictSame(await seenBy('curator@example.com'), hidden, 'another group uses the tool too: out of scope')
    const sent = { token: await token('alice@example.com'), body: { name: 'Mine' } }
    const answer = await call('PATCH', '/persona/13?update_mask=name', sent)
    t.match(
      answer.json().tools,
      [{ custom_headers: null }, { custom_headers: null }],
      'the answer to an update likewise',
    )
  },
)

/*
 * A manager of a tool could try guesses of its stored header values: the answer to a dry run, or to a stale If-Match, tells
 * whether a guess is right. Each different one is counted and logged (DECISIONS section 5).
 */
const TOOL = 10
const log: string[] = []
const world = await worldApp(t, { HEADER_TRIALS_PER_HOUR: '11' }, makeLogger('info', { write: line => log.push(line) }))
const admin = await world.token('admin@example.com')
const other = await world.token('admin@example.com')
const second = await world.token('gcurator@example.com')
const stranger = await world.token('alice@example.com')

interface Sent {
  query?: string
  headers?: Record<string, string>
  token?: string
  tool?: number
}

const guess = (value: string, { query = '?dry_run=true', headers = {}, token = admin, tool = TOOL }: Sent = {}) =>
  world.call('PUT', `/admin/tool/custom/${tool}${query}`, {
    token,
    headers,
    body: { custom_headers: [{ key: 'X-Key', value }] },
  })

const isLimited = ({ statusCode, headers }: LightMyRequestResponse) =>
  statusCode === 429 && Number(headers['retry-after']) > 3_000

t.test('429: a user has eleven different guesses an hour at a tool, in whatever way they are sent', async t => {
  const stored = await guess('the-secret', { query: '' })
  t.equal(stored.statusCode, 200)
  const mask: string = stored.json().custom_headers[0].value
  for (let i = 0; i < 20; i++) t.equal((await guess(`of a stranger ${i}`, { token: stranger })).statusCode, 403)
  for (let i = 0; i < 20; i++) {
    const sets = [
      [{ key: `not a name ${i}`, value: `v${i}` }],
      [{ key: 'Expect', value: `v${i}` }],
      [{ key: 'X-Key', value: `${i} ` }],
    ]
    for (const custom_headers of sets)
      t.equal(
        (await world.call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { custom_headers } })).statusCode,
        422,
      )
    const body = { custom_headers: [{ key: 'X-Key', value: `v${i}` }], definition: {} }
    const refused = await world.call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body })
    t.equal(refused.statusCode, 422, 'what is refused before it is compared is no guess')
  }
  for (let i = 0; i < 5; i++) t.equal((await guess(`guess ${i}`)).statusCode, 200, 'by dry run')
  const stale = { query: '', headers: { 'if-match': '"tool-10-1"' } }
  for (let i = 5; i < 10; i++) t.equal((await guess(`guess ${i}`, stale)).statusCode, 412, 'by a stale precondition')
  const refused = await guess('guess 10')
  t.ok(isLimited(refused), 'another one')
  t.equal(refused.headers['ratelimit-policy'], '"header-values";q=11;w=3600')
  t.match(refused.headers.ratelimit, /^"header-values";r=0;t=\d+$/)
  saysItsLimit(t, refused.headers, refused.json())
  t.ok(isLimited(await guess('guess 11', stale)))
  t.ok(isLimited(await guess('guess 12', { query: '' })), 'also one that would be stored')
  t.ok(isLimited(await guess('guess 13', { token: other })), 'by another token of theirs')
  t.equal((await guess('guess 13', { token: second })).statusCode, 200, 'another user has their own')
  t.equal((await guess('the-secret')).statusCode, 200, 'what was sent before says nothing new')
  t.equal((await guess('guess 1')).statusCode, 200)
  t.equal((await guess(mask)).statusCode, 200, 'a mask is no guess')
  t.equal((await guess('guess 14', { tool: 11 })).statusCode, 200, 'another tool has its own')
  const lines = log.map(line => JSON.parse(line)).filter(({ msg }) => msg === 'header values in clear text')
  t.equal(lines.filter(({ resource_id }) => resource_id === TOOL).length, 14, 'each leaves a line')
  t.match(lines[1], { resource_id: TOOL, sets: 2, dry_run: true, caller: /^[0-9a-f-]{36}$/ })
  t.notMatch(log.join(''), /the-secret|guess 1/)
})
