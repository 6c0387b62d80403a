import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { parseSource } from '../../src/admin/source.js'
import { completeDefinition } from '../../src/definition/index.js'
import { agentctl as agentctlOf } from './agentctl.js'

const folder = t.testdir()
const agentctl = (...args: string[]) => agentctlOf({ url: '', args })

const INCOMPLETE = `# Our shop
openapi: 3.1.0
info: { title: Shop, version: '1' }
paths:
  /items/{id}:
    get:
      description: Gets one.
      responses: {}
    post:
      summary: Adds one
      operationId: add
      parameters: [{ name: id, in: path }]
`
const REPAIR = ['--complete', '--server', 'https://shop.example.com']

function file(name: string, text: string | Buffer): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

t.test('3: the faults with their lines; 0: the methods', async t => {
  const path = file('in.yaml', INCOMPLETE)
  const { status, stdout } = await agentctl('validate', path, '--json')
  t.equal(status, 3)
  const { faults } = JSON.parse(stdout)
  const missing = faults.find((fault: { type: string }) => fault.type === 'operation_id_missing')
  t.match(missing, { line: 6, loc: ['paths', '/items/{id}', 'get', 'operationId'] })
  t.match((await agentctl('validate', path)).stdout, /^line 6 +fault +paths\["\/items\/\{id\}"\]\.get\.operationId /m)
  t.match(await agentctl('validate', file('broken.json', '{"a": ]')), { status: 1, stderr: /line 1/ })
})

t.test('--complete prints plain YAML, or JSON as it came; edits and findings stand on standard error', async t => {
  const { status, stdout, stderr } = await agentctl('validate', file('in.yaml', INCOMPLETE), ...REPAIR)
  t.equal(status, 0, stderr)
  t.match(stderr, /^add +paths.*operationId.* \(operation_id_added\)$/m)
  const { definition } = completeDefinition(parseSource(INCOMPLETE).value, { server: 'https://shop.example.com' })
  t.same(parseSource(stdout).value, definition)
  t.equal((await agentctl('validate', file('out.yaml', stdout))).status, 0)
  const secret = 'servers: [{ url: "https://u:hunter2@a.example.com?key=hunter2" }]'
  const withSecret = file('in.yaml', INCOMPLETE.replace('paths:', `${secret}\npaths:`))
  const masked = await agentctl('validate', withSecret, ...REPAIR)
  t.match(masked, { status: 3, stderr: /fault +servers\[0\]\.url .*server_url_invalid/ })
  t.notMatch(masked.stderr, 'hunter2', 'logs of a pipeline show it')
  const json = file('in.json', `\uFEFF${JSON.stringify(parse(INCOMPLETE))}`)
  const piped = await agentctl('validate', json, ...REPAIR)
  t.match(JSON.parse(piped.stdout), { paths: { '/items/{id}': { get: { operationId: 'items_id_get' } } } })
})

t.test('3 --complete: what is left are faults in the printed definition, beside the nearest line given', async t => {
  const text = 'swagger: "2.0"\ninfo: { title: T }\nhost: a.example.com\npaths:\n  /a: { get: 1 }\n'
  const swagger = file('swagger.yaml', text)
  const { status, stdout } = await agentctl('validate', swagger, '--complete', '--json')
  t.equal(status, 3)
  t.match(JSON.parse(stdout), {
    faults: [{ line: 5, loc: ['paths', '/a', 'get'], type: 'dict_type' }],
    edits: [{ op: 'replace', loc: [], type: 'swagger_converted' }],
    definition: { openapi: '3.0.4', servers: [{ url: 'https://a.example.com' }] },
  })
  const printed = await agentctl('validate', swagger, '--complete')
  t.match(printed.stderr, /swagger_converted\)\nline 5 +fault/)
})

t.test('YAML: merges are taken over, losses and keys that stand twice are faults, nothing is quoted', async t => {
  const merged = 'x-p: &p { a: 1, b: { c: 2 } }\none:\n  <<: *p\n  a: 0\n'
  t.match(parseSource(merged).value, { one: { a: 0, b: { c: 2 } } })
  t.strictSame(parseSource('\uFEFFa: 1\n').value, { a: 1 })
  t.strictSame(parseSource('- &a 1\n- *a\n- &a 2\n- [*a]\n').value, [1, 1, 2, [2]])
  for (const [text, fault] of [
    ['value: !s3cr3t word', 'line 1: tag resolve failed'],
    ['%s3cr3t word\n---\na: 1', 'line 1: bad directive'],
    ['a: 1\nb: 2\na: 3\n', 'line 3: duplicate key'],
    ['{\n  "a": 1\n  "b": s3cr3t }', 'line 2: multiline implicit key; line 2: block in flow'],
    ['a: 1\n---\nb: 2\n', 'line 2: multiple docs'],
    ['a: [1', 'line 1: wrong indent or unclosed bracket'],
  ] as const)
    t.throws(() => parseSource(text), { message: `the text cannot be read as JSON or YAML: ${fault}` }, text)
  t.throws(() => parseSource('['.repeat(100_000)), { message: /^the text cannot be read/ })
  for (const merge of ['<<: *q', '<<: 5', '<<: [1]', 'a: &a [1]\n<<: *a'])
    t.throws(
      () => parseSource(`openapi: 3.0.0\n${merge}\n`),
      { message: /^an alias .* has no anchor|^a merge / },
      merge,
    )
  const [nine, lists] = [(item: string) => Array(9).fill(item).join(', '), ['l0: &l0 [1]']]
  for (let i = 1; i < 9; i++) lists.push(`l${i}: &l${i} [${nine(`*l${i - 1}`)}]`)
  t.throws(
    () => parseSource(lists.join('\n')),
    { message: /^the aliases .* expand to too many values/ },
    'aliases of aliases are bounded',
  )
})

t.test('1: a file that is not UTF-8 is refused, since a guess could store another text', async t => {
  const latin1 = file('latin-1', Buffer.from('{"\u00e9": 1}', 'latin1'))
  const utf16 = file('utf-16', Buffer.from(`\uFEFF${INCOMPLETE}`, 'utf16le'))
  for (const line of [`apply ${latin1}`, `validate ${latin1}`, `validate ${utf16}`])
    t.match(await agentctl(...line.split(' ')), { status: 1, stderr: / is not UTF-8: convert it to UTF-8/ }, line)
})
