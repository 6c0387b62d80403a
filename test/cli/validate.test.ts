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

t.test('--as-functions prints the functions that a model is given, of a completed definition too', async t => {
  const path = file('in.yaml', INCOMPLETE)
  const repaired = await agentctl('validate', path, ...REPAIR, '--as-functions')
  t.match(JSON.parse(repaired.stdout), [{ name: 'items_id_get' }, { name: 'add' }])
  t.match(repaired.stderr, /2 methods:/)
  t.match(await agentctl('validate', path, '--as-functions'), { status: 3, stdout: /operation_id_missing/ })
})

t.test('--complete prints plain YAML, or JSON as it came; edits and findings stand on standard error', async t => {
  const { status, stdout, stderr } = await agentctl('validate', file('in.yaml', INCOMPLETE), ...REPAIR)
  t.equal(status, 0, stderr)
  t.match(stderr, /operation_id_added[\s\S]*3 edits\n/)
  const { definition } = completeDefinition(parseSource(INCOMPLETE).value, { server: 'https://shop.example.com' })
  t.same(parseSource(stdout).value, definition)
  t.equal((await agentctl('validate', file('out.yaml', stdout))).status, 0)
  const secret = INCOMPLETE.replace(
    'paths:',
    'servers: [{ url: "https://u:hunter2@a.example.com?key=hunter2" }]\npaths:',
  )
  const masked = await agentctl('validate', file('in.yaml', secret), ...REPAIR)
  t.match(masked, { status: 3, stderr: /fault +servers\[0\]\.url .*server_url_invalid/ })
  t.notMatch(masked.stderr, 'hunter2', 'logs of a pipeline show it')
  const json = file('in.json', `\uFEFF${JSON.stringify(parse(INCOMPLETE))}`)
  const piped = await agentctl('validate', json, ...REPAIR)
  t.match(JSON.parse(piped.stdout), { paths: { '/items/{id}': { get: { operationId: 'items_id_get' } } } })
})

t.test(
  '3 --complete: what is left are faults in the definition that is printed, beside the nearest line given',
  async t => {
    const swagger = file(
      'swagger.yaml',
      'swagger: "2.0"\ninfo: { title: T }\nhost: a.example.com\npaths:\n  /a: { get: 1 }\n',
    )
    const { status, stdout } = await agentctl('validate', swagger, '--complete', '--json')
    t.equal(status, 3)
    t.match(JSON.parse(stdout), {
      faults: [{ line: 5, loc: ['paths', '/a', 'get'], type: 'dict_type' }],
      edits: [{ op: 'replace', loc: [], type: 'swagger_converted' }],
      definition: { openapi: '3.0.4', servers: [{ url: 'https://a.example.com' }] },
    })
    const printed = await agentctl('validate', swagger, '--complete')
    t.match([printed.status, printed.stdout], [3, /^openapi: "3\.0\.4"$/m])
    t.match(printed.stderr, /1 edit\n.*line 5 +fault/s)
  },
)

t.test('64: options that would be without effect', async t => {
  const path = file('in.yaml', INCOMPLETE)
  for (const [args, said] of [
    [['--server', 'https://a'], '--server goes together with --complete'],
    [['--complete', '--server', 'a'], '--server must be an absolute'],
  ] as const) {
    t.match(await agentctl('validate', path, ...args), { status: 64, stderr: said })
  }
})

t.test('YAML: merges are taken over, losses and keys that stand twice are faults, nothing is quoted', async t => {
  const merged = 'x-p: &p { a: 1, b: { c: 2 } }\none:\n  <<: *p\n  a: 0\n'
  t.match(parseSource(merged).value, { one: { a: 0, b: { c: 2 } } })
  t.strictSame(parseSource('\uFEFFa: 1\n').value, { a: 1 })
  t.strictSame(parseSource('- &a 1\n- *a\n- &a 2\n- [*a]\n').value, [1, 1, 2, [2]])
  for (const [text, fault] of [
    ['value: !s3cr3t word', 'line 1: the tag (!name) of this value is not known'],
    ['%s3cr3t word\n---\na: 1', 'line 1: bad directive'],
    ['a: 1\nb: 2\na: 3\n', 'line 3: this key stands in its mapping twice'],
    [
      '{\n  "a": 1,\n}',
      'line 3: it begins as JSON, and is not JSON from column 1 on: Expected double-quoted property name',
    ],
  ] as const) {
    t.throws(() => parseSource(text), { message: `the text cannot be read: ${fault}` }, text)
  }
  const indented = Array.from({ length: 300 }, (_, i) => `${' '.repeat(i)}a:`).join('\n')
  t.throws(() => parseSource(indented), { message: 'the text cannot be read: line 256: it nests more than 256 deep' })
  for (const merge of ['<<: *q', '<<: 5', '<<: [1]', 'a: &a [1]\n<<: *a'])
    t.throws(
      () => parseSource(`openapi: 3.0.0\n${merge}\n`),
      { message: /^(?:the text has )?a YAML (?:merge|alias) / },
      merge,
    )
  t.throws(() => parseSource('a: 1\n'.repeat(1_000)), {
    message: /; line 101: [^;]+; line 102: more faults follow, which are not listed$/,
  })
  const two = { message: 'the text cannot be read: line 2: a second document begins' }
  t.throws(() => parseSource('a: 1\n---\nb: 2\n'), two)
  const lists = ['l0: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1]']
  for (let i = 1; i < 9; i++)
    lists.push(
      `l${i}: &l${i} [${Array(9)
        .fill(`*l${i - 1}`)
        .join(', ')}]`,
    )
  t.throws(() => parseSource(lists.join('\n')), { message: /YAML alias/ }, 'aliases of aliases are bounded')
})

t.test('1: a file that is not UTF-8, with its first such line; UTF-16 is read by its byte order mark', async t => {
  const latin1 = (text: string) => file(`latin-1-${text.length}`, Buffer.from(text, 'latin1'))
  const utf16 = (order: 'le' | 'be') => {
    const bytes = Buffer.from(`\uFEFF${INCOMPLETE}`, 'utf16le')
    return file(`utf-16${order}`, order === 'le' ? bytes : bytes.swap16())
  }
  t.equal((await agentctl('validate', utf16('le'), ...REPAIR)).status, 0)
  t.equal((await agentctl('validate', utf16('be'), ...REPAIR)).status, 0)
  const document = 'version: 1\nagents:\n  - {id: 3, description: "Gr\u00fc\u00dfe"}\n'
  for (const [args, said] of [
    [['apply', latin1(document)], /line 3 of .*latin-1-\d+ is not UTF-8: save it as UTF-8/],
    [['validate', latin1('{"\u00e9": 1}')], /line 1 of .*latin-1-\d+ is not UTF-8/],
    [['validate', file('unmarked', Buffer.from('a: 1\n', 'utf16le'))], /line 1 of .* has a NUL character/],
    [['validate', file('half', Buffer.from('fffe61', 'hex'))], /has the byte order mark of UTF-16, and is not UTF-16/],
    [['apply', '/dev/zero'], /zero has more than 256 MiB/],
  ] as const) {
    t.match(await agentctl(...args), { status: 1, stderr: said }, args.join(' '))
  }
})
