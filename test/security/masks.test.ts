import t from 'tap'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { type WorldApp, worldApp } from '../app.js'
import { TEST_SECRET_KEYS } from '../world.js'

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

const ring = parseKeyRing(TEST_SECRET_KEYS)

/** What is stored of a tool's headers, opened with the ring: names and secrets in their order. */
async function storedSecrets({ database }: WorldApp, toolId: number): Promise<Header[]> {
  const rows = await database.db
    .selectFrom('tool_header')
    .select(['name', 'key_id', 'nonce', 'ciphertext'])
    .where('tool_id', '=', toolId)
    .orderBy('position')
    .execute()
  return rows.map(({ name, key_id: keyId, nonce, ciphertext }) => {
    const place = { toolId, headerName: name }
    return { key: name, value: decryptSecret(ring, { keyId, nonce, ciphertext }, place) }
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
  t.equal((await world.put(world.made.json())).headers.etag, world.made.headers.etag, 'nor the whole snapshot')
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

t.test(
  '200: the same value again in clear text is a change with a new mask; a value has a mask of its own in each tool',
  async t => {
    const world = await withSecrets(shared)
    const again = await world.put({ custom_headers: SECRETS })
    t.not(again.headers.etag, world.made.headers.etag)
    const other = await world.put({ custom_headers: SECRETS }, 13)
    const all = [world.made, again, other].flatMap(answer => answer.json().custom_headers as Header[])
    t.equal(new Set(all.map(({ value }) => value)).size, 3 * SECRETS.length)
    t.strictSame(await storedSecrets(world, 10), SECRETS)
    t.equal((await world.put({ custom_headers: world.masks })).statusCode, 422, 'the mask of before stands for nothing')
    t.equal((await world.put({ custom_headers: again.json().custom_headers })).headers.etag, again.headers.etag)
  },
)

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
