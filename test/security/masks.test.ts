import t from 'tap'
import { openSecret } from '../../src/secrets/cipher.js'
import { worldApp } from '../app.js'

type Header = Record<'key' | 'value', string>

const SECRETS: [Header, Header, Header, Header] = [
  { key: 'X-First', value: 'first secret, with , comma and "quotes"' },
  { key: 'X-Second', value: 'zweites Geheimnis: äöü' },
  { key: 'X-Third', value: '-' },
  { key: 'X-Fourth', value: 'first secret, with , comma and "quotes"' },
]
const [ONE, TWO] = SECRETS

const world = await worldApp(t)
const admin = await world.token('admin@example.com')
const put = (custom_headers: unknown, id = 10, query = '') =>
  world.call('PUT', `/admin/tool/custom/${id}${query}`, { token: admin, body: { custom_headers } })

const rowsOf = (id: number) =>
  world.database.db.selectFrom('tool_header').selectAll().where('tool_id', '=', id).orderBy('position').execute()

/** Returns the names and decrypted values of a tool's stored headers, in order. */
async function secretsOf(toolId = 10): Promise<Header[]> {
  return (await rowsOf(toolId)).map(({ name, key_id: keyId, nonce, ciphertext }) => {
    return {
      key: name,
      value: String(openSecret(world.ring, { keyId, nonce, ciphertext, toolId, headerName: name }).value),
    }
  })
}

/** Stores `SECRETS` in tool 10. Returns the answer and its masks. */
async function withSecrets() {
  const made = await put(SECRETS)
  return { made, masks: made.json().custom_headers as [Header, Header, Header, Header] }
}

const mismatchAt = (index: number) => ({
  loc: ['body', 'custom_headers', index, 'value'],
  msg: 'This value looks like a mask, but it is not the current mask of a header with this name: send the secret itself, or read the tool again to get the current mask',
  type: 'mask_mismatch',
})

t.test("200: a snapshot's masked headers sent back keep every secret, byte by byte, and change nothing", async t => {
  const { made, masks } = await withSecrets()
  for (const { value } of masks) t.match(value, /^\*{4}#[0-9a-f]{12}$/)
  t.equal(new Set(masks.map(mask => mask.value)).size, SECRETS.length, 'equal values under two names differ')
  const before = await rowsOf(10)
  const again = await put(masks)
  t.match(again, { statusCode: 200, headers: { etag: made.headers.etag }, body: made.body })
  const whole = await world.call('PUT', '/admin/tool/custom/10', { token: admin, body: made.json() })
  t.equal(whole.headers.etag, made.headers.etag, 'nor does the whole snapshot')
  t.strictSame(await rowsOf(10), before)
  t.strictSame(await secretsOf(), SECRETS)
  t.not((await put([masks[0], { ...TWO, value: 'another' }])).headers.etag, made.headers.etag)
  t.strictSame((await rowsOf(10))[0], before[0], 'what is kept beside a change is not sealed anew')
})

t.test('200: masks keep their secrets when headers are reordered, dropped, added, or renamed in case only', async t => {
  const [first, second, third, fourth] = (await withSecrets()).masks
  const isKept = async (sent: Header[], secrets: Header[]) => {
    t.match(await put(sent), { statusCode: 200 })
    t.strictSame(await secretsOf(), secrets)
  }
  await isKept([fourth, second, first, third], [SECRETS[3], TWO, ONE, SECRETS[2]])
  await isKept([{ ...first, key: 'x-FIRST' }, fourth], [{ ...ONE, key: 'x-FIRST' }, SECRETS[3]])
  const added = { key: 'X-New', value: 'new' }
  await isKept([added, fourth, first], [added, SECRETS[3], ONE])
})

t.test('422: a value that shows nothing replaces no stored one', async t => {
  await withSecrets()
  for (const value of ['', ' ', '\t', '\u00a0', '\u00ad', ' \u00ad ']) {
    const msg =
      'The header value must have 1 to 8192 bytes in UTF-8, only Latin-1 characters, no control characters except tabs, and no space, tab or soft hyphen at the beginning or end'
    const fault = { loc: ['body', 'custom_headers', 0, 'value'], msg, type: 'header_value_invalid' }
    t.strictSame((await put([{ ...ONE, value }])).json().detail, [fault])
  }
  t.strictSame(await secretsOf(), SECRETS)
})

t.test('422 mask_mismatch: masks that are damaged, moved or stale are never stored as secrets', async t => {
  const { masks } = await withSecrets()
  const [{ key, value }, second] = masks
  const digits = value.slice('****#'.length)
  const fronts = ['**#', '#', '', 'Bearer **#', 'xxxx#', '* * * *#', '\\*\\*\\*\\*#', '%2A%2A%2A%2A%23', 'key-']
  const damaged = [
    `${value.slice(0, -1)}${value.endsWith('0') ? '1' : '0'}`,
    ...[value.slice(0, -1), `${value}0`, ` ${value}`, `${value} `, `${value}\t`, `key-${digits}-1`],
    ...['****#', '****#000000000000', `****#${'0'.repeat(64)}`],
    ...fronts.map(front => front + digits),
    ...(/[a-f]/.test(digits) ? [value, digits, `Bearer ${digits}`].map(text => text.toUpperCase()) : []),
  ]
  const isRefused = async (sent: Header[], title: string, id = 10) => {
    const answer = await put(sent, id)
    t.strictSame([answer.statusCode, answer.json().detail], [422, sent.map((_, index) => mismatchAt(index))], title)
  }
  for (const text of damaged) await isRefused([{ key, value: text }], JSON.stringify(text))
  await isRefused([{ key: 'X-Other', value }], 'of another header')
  const swapped = (a: Header, b: Header) => [
    { key: a.key, value: b.value },
    { key: b.key, value: a.value },
  ]
  await isRefused(swapped(masks[0], second), 'swapped')
  t.strictSame(await secretsOf(), SECRETS)
  await put(SECRETS, 13)
  await isRefused([masks[0]], 'of another tool', 13)
  const dry = await put([{ key, value: 'never stored' }], 10, '?dry_run=true')
  await isRefused(dry.json().custom_headers, 'what a dry run showed')
  t.strictSame([await secretsOf(), await secretsOf(13)], [SECRETS, SECRETS])
  t.equal((await put(swapped(ONE, TWO))).statusCode, 200, 'in clear text they are swapped')
  t.strictSame(await secretsOf(), swapped(ONE, TWO))
  await isRefused([masks[0]], 'of a value that was replaced')
  await put([])
  await isRefused([masks[0]], 'of a header that was removed')
})

t.test('200: the same value again in clear text is a change with a new mask, one of its own in each tool', async t => {
  const { made, masks } = await withSecrets()
  const again = await put(SECRETS)
  t.not(again.headers.etag, made.headers.etag)
  const all = [made, again, await put(SECRETS, 13)].flatMap(answer => answer.json().custom_headers as Header[])
  t.equal(new Set(all.map(({ value }) => value)).size, 3 * SECRETS.length)
  t.strictSame(await secretsOf(), SECRETS)
  t.equal((await put(masks)).statusCode, 422, 'the mask of before stands for nothing')
})
