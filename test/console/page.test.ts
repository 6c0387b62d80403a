import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse } from 'yaml'
import { worldApp } from '../app.js'

const FILES = fileURLToPath(new URL('../../../src/console/page/', import.meta.url))
const VENDORS = fileURLToPath(new URL('../../../test/fixtures/vendors/', import.meta.url))
const read = (file: string) => readFileSync(FILES + file, 'utf8')

const { call, app, token } = await worldApp(t, { TOOL_BODY_LIMIT_BYTES: '5242880' })
const admin = await token('admin@example.com')
const check = (text: string, query = '', as: string | undefined = admin) =>
  call('POST', `/console/validate${query}`, { ...(as && { token: as }), body: { text } })

t.test('the page is its own files and nothing else: nothing inline, nothing from elsewhere, no cookie', async t => {
  const page = await app.inject({ url: '/console' })
  const named = [...page.body.matchAll(/(?:src|href)="(?!#|docs"|console")([^"]+)"/g)].map(
    ([, address]) => `/${address}`,
  )
  t.strictSame(named.sort(), ['/console/console.css', '/console/console.js', '/console/icon.svg'])
  for (const url of ['/console', ...named]) {
    const { statusCode, headers } = await app.inject({ url, headers: { cookie: 'a=b' } })
    t.equal(statusCode, 200, url)
    const policy = String(headers['content-security-policy'])
    t.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';/)
    t.match(policy, /require-trusted-types-for 'script'; trusted-types 'none'$/)
    t.notMatch(policy, /unsafe|https?:|data:/)
    t.notOk(Object.hasOwn(headers, 'set-cookie'))
    t.match(headers, { 'cache-control': 'no-store', 'x-frame-options': 'DENY', 'referrer-policy': 'no-referrer' })
    t.equal((await app.inject({ method: 'HEAD', url })).statusCode, 200)
  }
  t.notMatch(page.body, /<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)/, 'nothing is inline')
  const script = read('console.js')
  t.notMatch(script, /innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Storage|\.cookie\b|^import /m)
  t.notMatch(`${script}${read('console.css')}`, /https?:\/\/|@import|url\(/, 'nothing is loaded from elsewhere')
})

t.test('303: a browser is led from / to the page, 302: everybody else to the documentation as before', async t => {
  const led = async (url: string, accept?: string, from = app) => {
    const { statusCode, headers } = await from.inject({ url, ...(accept && { headers: { accept } }) })
    return [statusCode, headers.location]
  }
  t.strictSame(await led('/', 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8'), [303, 'console'])
  for (const accept of [undefined, '*/*', 'application/json']) t.strictSame(await led('/', accept), [302, 'docs'])
  t.strictSame(await led('/console/'), [302, '../console'])
  const without = await worldApp(t, { CONSOLE: 'off' })
  t.strictSame(await led('/', 'text/html', without.app), [302, 'docs'])
  for (const url of ['/console', '/console/console.js', '/console/console.css'])
    t.equal((await without.app.inject({ url })).statusCode, 404, url)
  const as = await without.token('admin@example.com')
  t.equal((await without.call('POST', '/console/validate', { token: as, body: { text: '{}' } })).statusCode, 404)
})

t.test('a check of a text takes the rights of a validation, and has its limits', async t => {
  const statuses = async (as?: string, query = '') => {
    const { statusCode } = await check('{}', query, as)
    const body = { definition: {} }
    const validation = await call('POST', `/admin/tool/custom/validate${query}`, { ...(as && { token: as }), body })
    return [statusCode, validation.statusCode === 422 ? 200 : validation.statusCode]
  }
  for (const person of ['admin', 'gcurator', 'curator', 'alice', 'svc_basic']) {
    const as = await token(`${person}@example.com`)
    for (const query of ['', '?tool_id=10', '?tool_id=13', '?tool_id=424242']) {
      const [ofText, ofDefinition] = await statuses(as, query)
      t.equal(ofText, ofDefinition, `${person} ${query}`)
    }
  }
  t.equal((await call('POST', '/console/validate', { body: { text: '{}' } })).statusCode, 401)
  t.equal((await call('POST', '/console/validate', { token: admin, body: { text: 1 } })).statusCode, 422)
  t.equal((await check('{}', '?tool_id=x')).statusCode, 422)
  t.equal((await check('a'.repeat(11 * 2 ** 20))).statusCode, 413)
  const bomb = `a: &a [1,1,1,1,1,1,1,1]\n${[...'bcdefghi'].map((key, i) => `${key}: &${key} [${`*${'abcdefgh'[i]},`.repeat(8)}]`).join('\n')}`
  t.match((await check(bomb)).json(), { verdict: /cannot be read/, notes: [{ line: 1, msg: /alias/i }] })
  const texts = ['- '.repeat(20_000), '['.repeat(10_000), '{a: '.repeat(10_000), '? '.repeat(10_000), '[ '.repeat(1e5)]
  for (const deep of [...texts, ...texts])
    t.match((await check(deep)).json(), { notes: [{ line: 1, msg: /nests more than 256 deep/ }] }, deep.slice(0, 10))
})

t.test('what it finds in documents of vendors, and the functions, are those of the validation', async t => {
  for (const file of readdirSync(VENDORS).filter(name => /\.(json|yaml)$/.test(name) && !name.includes('.golden.'))) {
    const text = readFileSync(VENDORS + file, 'utf8')
    const definition: unknown = file.endsWith('.json') ? JSON.parse(text) : parse(text, { merge: true })
    const query = '?report=full&view=functions'
    const wanted = (
      await call('POST', `/admin/tool/custom/validate${query}`, { token: admin, body: { definition } })
    ).json()
    const { notes, functions } = (await check(text)).json()
    const messages = (found: { msg: string }[]) => found.map(({ msg }) => msg).sort()
    t.strictSame(messages(notes), messages(wanted.detail ?? wanted.warnings), file)
    const names = (found: { name: string }[] = []) => found.map(({ name }) => name)
    t.strictSame(names(functions), names(wanted.functions), file)
  }
})

const YAML = `# The orders of a shop
openapi: 3.0.3
info: { title: Orders }
servers:
  - url: https://orders.example.com # in work
paths:
  /orders/{id}:
    get:
      # what a model reads
      operationId: read_order
      summary: Read an order
      parameters:
        - { name: id, in: path, required: true, schema: { type: string } }
    post:
      summary: Change an order
`

t.test('each fault has its line in JSON and YAML, whatever ends a line, and what a repair does about it', async t => {
  const json = JSON.stringify(parse(YAML), null, 2)
  const lineIn = (text: string, part: string) => text.slice(0, text.indexOf(part)).split('\n').length
  const forms = { YAML, JSON: json, CRLF: YAML.replaceAll('\n', '\r\n'), BOM: `\uFEFF${json}` }
  for (const [form, text] of Object.entries(forms)) {
    const line = lineIn(text, 'post')
    const { verdict, notes, repair } = (await check(text)).json()
    t.match(verdict, /^(YAML|JSON), 2 faults\.$/, form)
    const place = 'paths["/orders/{id}"].post.operationId'
    t.match(notes[0], { kind: 'fault', line, place, remedy: /^adds "orders_id_post"$/ }, form)
    t.equal(repair, true, form)
  }
  for (const [text, line] of [
    ['a: 1\nb: 2\na: 3\n', 3],
    ['{\n  "a": 1,\n}', 3],
    ['a:\n  - b\n c', 3],
  ] as const)
    t.match((await check(text)).json(), { verdict: /^This text cannot be read/, notes: [{ line }] }, text)
  const twice = (await check('{"openapi":"3.0.0",\n"info":{"title":"a"},\n"info":{"title":""},\n"paths":1}')).json()
  t.match(twice.notes, [
    { line: 1, place: 'servers' },
    { line: 4, place: 'paths' },
  ])
  t.match((await check(' \n')).json(), { verdict: /^Paste a definition/, notes: [] })
})

t.test('a repair shows each edit before and after, and keeps the comments and the order of YAML', async t => {
  const { repairNote, edits, repaired, left } = (await check(YAML, '?complete=true')).json()
  t.equal(repairNote, '2 edits.')
  t.match(edits[0], { op: 'add', line: 14, place: 'paths["/orders/{id}"].post.operationId', after: '"orders_id_post"' })
  t.strictSame(left, [])
  for (const comment of ['# The orders of a shop', '# in work', '# what a model reads'])
    t.ok(repaired.includes(comment))
  t.match((await check(repaired)).json(), {
    verdict: /^YAML, no faults/,
    repair: false,
    functions: [{ name: 'read_order', size: /^\d+ tokens$/ }, { name: 'orders_id_post' }],
  })
  const without = YAML.replace(/servers:\n.*\n/, '')
  t.match((await check(without, '?complete=true')).json(), { repairNote: /^No repair/, left: [/^Line \d+: .*server/] })
  const named = await check(without, '?complete=true&server=https%3A%2F%2Forders.example.com')
  t.match(named.json().repaired, /url: https:\/\/orders\.example\.com/)
})

t.test('the impact on a stored tool names what changes for a model and who uses it', async t => {
  const { definition } = (await call('GET', '/tool/10', { token: admin })).json()
  const stored = JSON.stringify(definition)
  const same = (await check(stored, '?tool_id=10')).json()
  t.strictSame(same.changes, ['A model would notice nothing.'])
  t.match(same.use, /^\d+ agents? uses? the tool/)
})

t.test('a definition of 5 MB is answered with its lines, in bounds', async t => {
  const operation = (i: number) =>
    `"/things/${i}":{"get":{"operationId":"read_${i}","summary":"Read ${'x'.repeat(930)}"}}`
  const paths = Array.from({ length: 4_950 }, (_, i) => operation(i)).join(',\n')
  const text = `{"openapi":"3.0.3","info":{"title":"Things"},"servers":[{"url":"https://things.example.com"}],\n"paths":{\n${paths},\n"/last":{"get":{"summary":"x"}}}}`
  t.ok(text.length > 4_800_000)
  const answer = await check(text)
  t.equal(answer.statusCode, 200)
  t.ok(
    answer.json().notes.every(({ line }: { line: number }) => line === 4_953),
    answer.json().verdict,
  )
  t.ok(answer.body.length < 2_000_000)
})
