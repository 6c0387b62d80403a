import { hash, randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { CommandLine, nameOf } from '../../src/admin/commands/command.js'
import { allCommands, programOf } from '../../src/admin/commands/run.js'
import { generateKey } from '../../src/secrets/key-ring.js'
import { withClient } from '../postgres.js'
import { versionOf, warningsOf } from '../updates/stored-state.js'
import { TEST_SECRET_KEYS } from '../world.js'
import { runEveryCommand } from './every-command.js'
import { type Observed, observedWorld } from './observed.js'

/*
 * Sends a thousand secrets through everything that handles secrets. Each secret contains the same marker at its beginning, middle and end, so that
 * any part of a secret is found, in plain text and in every likely encoding.
 */
const MARKER = randomBytes(9).toString('base64url')
const TOOLS = [10, 11, 13, 15]
const HEADERS = 50
const ROUNDS = 5

let planted = 0
const secrets: string[] = []

function plant(): string {
  const random = randomBytes(12).toString('base64url')
  const decoration = ['', 'Bearer ', 'clé-', '"quoted\\" ', '{"token":"', 'a=b&c=%20', '£'][planted++ % 7]
  const secret = `${decoration}${MARKER}${random}${MARKER}${'x'.repeat(planted % 40)}${MARKER}`
  secrets.push(secret)
  return secret
}

const headers = (count = HEADERS) =>
  Array.from({ length: count }, (_, index) => ({ key: `X-Secret-${index}`, value: plant() }))

t.test('1,000 planted secrets are in no answer, no log line, no metric and nowhere in the database', async t => {
  const world = await observedWorld(t)
  await spread(t, world)
  const ran = await runEveryCommand(world.url, plant)
  for (const { args, status, expected, stderr } of ran) t.equal(status, expected, `${args.join(' ')}: ${stderr}`)
  const silent = { print: () => undefined, remark: () => undefined }
  const names = allCommands(programOf(new CommandLine({}, silent))).map(nameOf)
  const known = names.filter(name => !ran.some(({ args }) => args.join(' ').startsWith(name)))
  t.strictSame(known, [], 'no command is left out')

  const places = {
    'the answers': world.answers.join('\n'),
    'the command line': ran.map(({ stdout, stderr }) => stdout + stderr).join('\n'),
    'the log': world.log.join('\n'),
    'the statements': world.statements.join('\n'),
    'the rows as text': await rowsAsText(world.url),
    'the bytes of the rows': await bytesOfRows(world.url),
  }
  for (const [place, content] of Object.entries(places)) {
    t.strictSame(encodingsFoundIn(content, MARKER), [], `${place}: ${content.length} characters`)
  }
  const hashes = secrets.flatMap(text => ['md5', 'sha1', 'sha256'].map(name => hash(name, text)))
  const guessable = hashes.filter(digest => places['the rows as text'].includes(digest))
  t.strictSame(guessable, [], 'no plain hash either: it could be guessed from')
})

t.test('the search itself finds a marker in every encoding, wherever in a value it stands', async t => {
  for (const before of ['', 'a', 'ab', 'abc']) {
    for (const after of ['', '!', '!!']) {
      const bytes = Buffer.from(`${before}${MARKER}${after}`)
      for (const encoding of ['utf8', 'base64', 'base64url', 'hex'] as const) {
        const found = encodingsFoundIn(`x ${bytes.toString(encoding)} x`, MARKER)
        t.not(found.length, 0, `${encoding} between "${before}" and "${after}"`)
      }
    }
  }
})

const shared = await observedWorld(t)
const token = await shared.token('admin@example.com')

t.test('a rollback touches no header: the values of now stay, those of then are gone for good', async t => {
  const stored = () =>
    shared.database.db.selectFrom('tool_header').selectAll().where('tool_id', '=', 10).orderBy('position').execute()
  const put = async (custom_headers: unknown[]) => {
    const body = { custom_headers, description: `${custom_headers.length} headers` }
    return versionOf(await shared.call('PUT', '/admin/tool/custom/10', { token, body }))
  }
  const rollback = async (version: number) => {
    const answer = await shared.call('POST', '/admin/tool/custom/10/restore', { token, body: { version } })
    t.match([answer.statusCode, warningsOf(answer).join()], [200, /custom_headers/])
  }
  const first = await put(headers(3))
  const replaced = await stored()
  const second = await put(headers(2))
  const before = await stored()
  await rollback(first)
  t.strictSame(await stored(), before, 'byte for byte')
  await put([])
  await rollback(second)
  t.strictSame(await stored(), [])
  const rows = await rowsAsText(shared.url)
  for (const { ciphertext } of [...replaced, ...before])
    t.notOk(rows.includes(ciphertext.toString('hex')), 'not even its ciphertext is kept')
})

t.test('tokens and keys are nowhere in the database: of a token only its SHA-256', async t => {
  const tokens = [await shared.token('alice@example.com'), await shared.token('svc_admin@example.com')]
  const key = Buffer.from(TEST_SECRET_KEYS.split(':')[1] ?? '', 'base64')
  const text = await rowsAsText(shared.url)
  const bytes = await bytesOfRows(shared.url)
  for (const token of tokens) {
    t.strictSame(encodingsFoundIn(text + bytes, token.slice(4, -6)), [])
    t.ok(text.includes(hash('sha256', token)))
  }
  t.notOk(text.includes(key.toString('hex')) || (text + shared.log.join('')).includes(key.toString('base64')))
  t.notOk(bytes.includes(key.toString('latin1')))
})

/** Sends secrets in updates, dry runs, invalid requests, agents with the tools, misplaced values, and to a service that lacks the key. */
async function spread(t: Test, world: Observed): Promise<void> {
  const admin = await world.token('admin@example.com')
  const put = (tool: number, body: unknown, query = '', headers: Record<string, string> = {}) =>
    world.call('PUT', `/admin/tool/custom/${tool}${query}`, { token: admin, body, headers })
  for (let round = 0; round < ROUNDS; round++) {
    for (const tool of TOOLS)
      t.equal((await put(tool, { custom_headers: headers(), description: `round ${round}` })).statusCode, 200)
  }
  t.ok(secrets.length >= 1_000, `${secrets.length} are stored or replaced`)
  const one = (value: unknown, more: object = {}) => ({ custom_headers: [{ key: 'X-A', value, ...more }] })
  const few = { custom_headers: headers(2) }
  const refused: [body: unknown, headers?: Record<string, string>][] = [
    [{ custom_headers: [...headers(10), { key: 'Host', value: plant() }] }],
    ...[`\r\nX-B: ${plant()}`, 'x'.repeat(9_000), '\u0000', '\ud800'].map((end): [unknown] => [one(plant() + end)]),
    [{ custom_headers: headers(51) }],
    [one([plant()])],
    [one({ a: plant() })],
    [{ ...one(plant(), { extra: plant() }), another: plant() }],
    [{ ...one(plant()), another: plant() }, { prefer: 'handling=strict' }],
    [{ custom_headers: plant() }],
    [{ ...few, definition: { openapi: plant() } }],
    [{ custom_headers: [{ key: 'Authorization', value: plant() }], passthrough_auth: true }],
    [{ ...few, name: 'stale' }, { 'if-match': '"tool-10-1"' }],
    [{ ...few, oauth_config_id: 999 }],
    [`{"custom_headers":[{"key":"X-A","value":"${MARKER}`],
    [JSON.stringify(one(plant())), { 'content-type': 'text/plain' }],
    [{ ...few, filler: 'x'.repeat(6 * 1024 * 1024) }],
  ]
  for (const [body, extra] of refused) await put(10, body, '', extra)
  await put(10, { custom_headers: headers() }, '?dry_run=true')
  for (const tool of [999, 1]) await put(tool, few)
  const alice = await world.token('alice@example.com')
  for (const token of [alice, 'pat_nonsense']) {
    await world.call('PUT', '/admin/tool/custom/10', { token, body: { custom_headers: headers(2) } })
  }
  await world.call('PATCH', '/persona/8?update_mask=tool_ids', { token: admin, body: { tool_ids: TOOLS } })
  for (const token of [admin, alice]) {
    await world.call('PATCH', '/persona/8?update_mask=&dry_run=true', { token, body: {} })
  }
  const authorization = `Bearer ${await world.token('admin@example.com', { scopes: ['runtime'] })}`
  for (const url of ['/runtime/persona/8', ...TOOLS.map(tool => `/tool/${tool}/headers`)]) {
    const { statusCode, body } = await world.app.inject({ url, headers: { authorization } }) // not by `call`, because this answer contains the secrets
    if (statusCode !== 200 || !body.includes(MARKER)) throw new Error(`${url} is ${statusCode}`)
  }
  const shown = (await put(10, {})).json() as object
  await put(10, shown)
  const another = await observedWorld(t, { world, secretKeys: generateKey('another') })
  await another.call('PUT', '/admin/tool/custom/10', { token: admin, body: { custom_headers: headers(5) } })
  await another.call('GET', '/readyz')
  await put(10, { custom_headers: headers(5) }) // replaces values that only the other ring can decrypt
  world.answers.push(...another.answers)
  world.log.push(...another.log)
}

/** Returns all rows of all tables as text. Bytes are in hexadecimal. */
const rowsAsText = (url: string) => valuesOf(url, 'row_to_json(r)::text, r::text')

/** Returns all rows of all tables with `bytea` values as their bytes. */
const bytesOfRows = (url: string) => valuesOf(url, '*')

/** Returns the selected expressions of all rows of all tables as text. `bytea` values become their bytes. */
async function valuesOf(url: string, selected: string): Promise<string> {
  return await withClient(url, async client => {
    const { rows } = await client.query<{ name: string }>(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables
       where schemaname not in ('pg_catalog', 'information_schema')`,
    )
    const texts: string[] = []
    for (const { name } of rows) {
      const { rows: read } = await client.query<unknown[]>({
        text: `select ${selected} from ${name} r`,
        rowMode: 'array',
      })
      texts.push(...read.flat().map(value => (Buffer.isBuffer(value) ? value.toString('latin1') : String(value))))
    }
    return texts.join('\n')
  })
}

/** Returns the encodings in which a text contains the marker, at any offset within a longer value. */
function encodingsFoundIn(content: string, marker: string): string[] {
  const bytes = Buffer.from(marker)
  const encodings: Record<string, string> = {
    plain: marker,
    hex: bytes.toString('hex'),
    HEX: bytes.toString('hex').toUpperCase(),
    'utf-16': Buffer.from(marker, 'utf16le').toString('latin1'),
    'utf-16 in hex': Buffer.from(marker, 'utf16le').toString('hex'),
    reversed: [...marker].reverse().join(''),
  }
  for (const offset of [0, 1, 2]) {
    // Only the characters that depend on the marker alone. The first and last also depend on neighbouring bytes.
    const whole = Buffer.concat([Buffer.alloc(offset), bytes])
      .toString('base64')
      .replaceAll('=', '')
    const inner = whole.slice(offset === 0 ? 0 : offset + 1, (offset + bytes.length) % 3 === 0 ? undefined : -1)
    encodings[`base64 at ${offset}`] = inner
    encodings[`base64url at ${offset}`] = inner.replaceAll('+', '-').replaceAll('/', '_')
  }
  return Object.keys(encodings).filter(name => content.includes(encodings[name] ?? ''))
}
