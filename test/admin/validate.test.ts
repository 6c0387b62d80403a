import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { editedText } from '../../src/admin/edited-text.js'
import { parseSource } from '../../src/admin/source.js'
import { completeDefinition } from '../../src/tool/definition/index.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { url } = await worldDatabase(t)
const folder = mkdtempSync(join(tmpdir(), 'validate-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const agentctl = (...args: string[]) => agentctlOf({ url, args })

const INCOMPLETE = `# Our shop
openapi: 3.1.0
info: { title: Shop, version: '1' } # flow style stays
paths:
  # The items
  /items/{id}:
    get:
      description: Gets one. # why
      responses: {}
    post:
      summary: Puts a form
      operationId: form
      parameters: [{ name: id, in: path }]
      requestBody: { content: { multipart/form-data: {} } }
`

function file(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

t.test('--complete -o: YAML keeps its comments, order and style; the text is what the edits lead to', async t => {
  const out = join(folder, 'out.yaml')
  const { status, stdout, stderr } = await agentctl(
    'validate',
    file('in.yaml', INCOMPLETE),
    '--complete',
    '--server',
    'https://shop.example.com',
    '--drop',
    'unsupported',
    '-o',
    out,
  )
  t.equal(status, 0)
  t.match(stderr, `wrote ${out}`)
  t.match(stdout, /operation_id_added[\s\S]*4 edits, 1 operation left out/)
  const text = readFileSync(out, 'utf8')
  t.equal(
    text,
    `# Our shop
openapi: 3.1.0
info: { title: Shop, version: '1' } # flow style stays
paths:
  # The items
  /items/{id}:
    get:
      description: Gets one. # why
      responses: {}
      operationId: items_id_get
      parameters:
        - name: id
          in: path
          required: true
          schema:
            type: string
servers:
  - url: https://shop.example.com
`,
  )
  t.equal((await agentctl('validate', out)).status, 0)
  const given = parse(INCOMPLETE) as unknown
  const expected = completeDefinition(given, { server: 'https://shop.example.com', dropsUnsupported: true })
  t.same(parse(text), expected.definition)
  t.equal(editedText(text, [], given), text, 'without edits nothing changes')
})

t.test('--complete -o -: the definition alone on standard output; JSON stays JSON in its indentation', async t => {
  const json = JSON.stringify(
    { ...(parse(INCOMPLETE) as object), servers: [{ url: 'https://shop.example.com' }] },
    null,
    4,
  )
  const { status, stdout } = await agentctl(
    'validate',
    file('in.json', json),
    '--complete',
    '--drop',
    'unsupported',
    '-o',
    '-',
  )
  t.equal(status, 0)
  t.match(stdout, /^\{\n {4}"openapi"/)
  t.match(JSON.parse(stdout), { paths: { '/items/{id}': { get: { operationId: 'items_id_get' } } } })
})

t.test('--complete: what cannot be repaired ends with 1 and writes nothing; --json lists the edits', async t => {
  const out = join(folder, 'none.yaml')
  const refused = await agentctl('validate', file('in.yaml', INCOMPLETE), '--complete', '-o', out, '--json')
  t.equal(refused.status, 1)
  t.throws(() => readFileSync(out))
  const answer = JSON.parse(refused.stdout)
  t.same(
    answer.faults.map((each: { type: string }) => each.type),
    ['servers_missing', 'request_body_media_type_unsupported'],
  )
  t.match(answer.edits[0], {
    op: 'add',
    loc: ['paths', '/items/{id}', 'get', 'operationId'],
    type: 'operation_id_added',
  })
})

t.test('an alias in YAML becomes a copy where it is edited, and Swagger 2.0 is written anew', async t => {
  const text = `openapi: 3.1.0
info: { title: T }
servers: [{ url: https://t.example.com }]
paths:
  /a: &item
    get: { summary: The same }
  /b: *item
`
  const { value } = parseSource(text)
  const completed = completeDefinition(value)
  t.ok(completed.check.ok)
  const edited = editedText(text, completed.edits, completed.definition)
  t.same(parse(edited), completed.definition)
  t.match(parse(edited), {
    paths: { '/a': { get: { operationId: 'a_get' } }, '/b': { get: { operationId: 'b_get' } } },
  })
  const swagger =
    'swagger: "2.0"\ninfo: { title: T, version: "1" }\nhost: t.example.com\npaths:\n  /x: { get: { responses: {} } }\n'
  const converted = completeDefinition(parse(swagger))
  t.same(parse(editedText(swagger, converted.edits, converted.definition)), converted.definition)
})

t.test('--complete -o: numbers, comments, merges and line ends stay as they are written', async t => {
  const text = `openapi: 3.0   # number
info: { title: T, version: 1.10, x-id: 12345678901234567890 }
servers:
- url: /v2 # relative
x-base: &base
  parameters:
  - { name: page, in: query, schema: { type: integer, maximum: 12345678901234567890, example: 1145141919810114514 } }
  summary: Lists
paths:
  /a:
    get:
      <<: *base
      x-hex: [0x1F, 012, 1.0, 1e3, ~]
    post:
      operationId: 20230101000000000001 # a date
      <<: [*base]
      parameters:
      - { name: 1.10, in: query }
`
  const edited = (given: string) => {
    const { value } = parseSource(given)
    const completed = completeDefinition(value, { server: 'https://t.example.com' })
    t.ok(completed.check.ok, JSON.stringify(completed.check))
    const written = editedText(given, completed.edits, completed.definition)
    t.same(parseSource(written).value, completed.definition)
    return written
  }
  const expected = text
    .replace('3.0   # number', '3.0.0 # number')
    .replace('/v2 #', 'https://t.example.com/v2 #')
    .replace('~]\n', '~]\n      operationId: a_get\n')
    .replace('20230101000000000001 #', '"20230101000000000001" #')
    .replace('name: 1.10', 'name: "1.10"')
  // Blanks inside of brackets are those of the writer.
  const [flat, wanted] = [edited(text), expected].map(each =>
    each
      .replace(/ +|(?<=\[) | (?=\])/g, ' ')
      .replace(/\[ /g, '[')
      .replace(/ \]/g, ']'),
  )
  t.equal(flat, wanted)
  t.match(edited(text), '"20230101000000000001"')
  t.equal(edited(text.replaceAll('\n', '\r\n')), edited(text).replaceAll('\n', '\r\n'))

  const merged = text.replace('summary: Lists', 'summary: 1.10')
  t.match(
    parse(edited(merged), { merge: true }),
    { paths: { '/a': { get: { summary: '1.10' } } } },
    'an edit of what a merge gives',
  )
  const shared = text
    .replace('parameters:\n  - {', 'parameters: &list\n  - {')
    .replace('schema:', 'x-s: *list, schema:')
  t.throws(() => parseSource(shared))

  const swagger = `swagger: "2.0"
info: { title: T, version: "1" }
host: t.example.com
paths: { /x: { get: { summary: X, operationId: x, parameters: [{ $ref: "#/parameters/P" }], responses: {} } } }
parameters: { P: { name: p, in: query, type: integer, maximum: 12345678901234567890, default: 1.0 } }
`
  t.match(edited(swagger), /default: 1\.0\n *maximum: 12345678901234567890\n/)
  const body = '{ in: body, name: b, schema: { type: string, enum: [a, b] } }'
  const many = Array.from(
    { length: 150 },
    (_, i) => `  /p${i}: { put: { summary: X, parameters: [{ $ref: "#/parameters/B" }] } }`,
  )
  const large = `${swagger.replace(/paths:.*\nparameters: .*/, `parameters: { B: ${body} }`)}paths:\n${many.join('\n')}\n`
  t.notMatch(edited(large), /[&*]a1/, 'what stands in many places is written in each')
})

t.test('a JSON file with a byte order mark stays JSON', async t => {
  const json = `\uFEFF${JSON.stringify({ ...(parse(INCOMPLETE) as object), 'x-id': 0 }, null, 2).replace(/("x-id": )0/, '$112345678901234567890')}`
  const out = join(folder, 'mark.json')
  const { status } = await agentctl(
    'validate',
    file('mark-in.json', json),
    ...['--complete', '--drop', 'unsupported', '--server', 'https://t.example.com', '-o', out],
  )
  t.equal(status, 0)
  const text = readFileSync(out, 'utf8')
  t.match(JSON.parse(text), { openapi: '3.1.0' })
  t.match(text, '"x-id": 12345678901234567890')
})

t.test('--complete: what is found stands at a line and place of the text that there is', async t => {
  const swagger = `swagger: "2.0"
info: { title: Shop, version: "1" }
host: shop.example.com
paths:
  /form:
    post:
      operationId: form
      parameters:
        - { name: f, in: formData, type: string }
`
  const path = file('swagger.yaml', swagger)
  const out = join(folder, 'not-written.yaml')
  const refused = await agentctl('validate', path, '--complete', '-o', out, '--github')
  t.equal(refused.status, 1)
  t.match(refused.stdout, `::error file=${path},line=6,title=request_body_media_type_unsupported::`)
  t.match(refused.stdout, '--drop unsupported leaves the operation out')
  t.match(refused.stderr, `${out} was not written`)

  const warned = `${swagger.replace('formData, type: string', 'query, type: string')}      x-id: 1\n`
  const written = join(folder, 'written.yaml')
  const sarif = await agentctl('validate', file('warned.yaml', warned), '--complete', '-o', written, '--sarif')
  const [{ physicalLocation: at }] = JSON.parse(sarif.stdout).runs[0].results[0].locations
  t.equal(decodeURIComponent(at.artifactLocation.uri), written)
  t.match(readFileSync(written, 'utf8').split('\n')[at.region.startLine - 1], /post:|form/)

  const piped = await agentctl('validate', path, '--complete', '--drop', 'unsupported', '-o', '-')
  t.match(piped.stderr, /replace the document: .*\(swagger_converted\)/, 'the edits stand beside standard output')
})

t.test('--sarif and --github: findings at their lines, as code hosts read them', async t => {
  const path = file('bad.yaml', INCOMPLETE)
  const sarif = await agentctl('validate', path, '--sarif')
  t.equal(sarif.status, 1)
  const log = JSON.parse(sarif.stdout)
  t.match(log, { version: '2.1.0', runs: [{ tool: { driver: { name: 'agentctl validate' } } }] })
  const missing = log.runs[0].results.find((each: { ruleId: string }) => each.ruleId === 'operation_id_missing')
  t.match(missing, { level: 'error', locations: [{ physicalLocation: { region: { startLine: 7 } } }] })
  t.equal(log.runs[0].tool.driver.rules[missing.ruleIndex].id, 'operation_id_missing')
  for (const rule of log.runs[0].tool.driver.rules)
    for (const text of ['shortDescription', 'fullDescription', 'help'])
      t.ok(rule[text].text.length >= 10, `${rule.id} has the ${text} that GitHub demands`)
  const github = await agentctl('validate', path, '--github')
  t.equal(github.status, 1)
  t.match(github.stdout, new RegExp(`::error file=${path},line=7,title=operation_id_missing::the operation needs`))
})

t.test('--sarif and --github: a finding that many operations share stands once', async t => {
  const operations = Array.from({ length: 5 }, (_, i) => `  /p${i}: { get: *shared }\n`)
  const path = file(
    'shared.yaml',
    'openapi: 3.1.0\ninfo: { title: T }\nservers: [{ url: https://t.example.com }]\n' +
      `x-op: &shared { summary: Finds all of them }\npaths:\n${operations.join('')}`,
  )
  const results = JSON.parse((await agentctl('validate', path, '--sarif')).stdout).runs[0].results
  t.equal(new Set(results.map((each: unknown) => JSON.stringify(each))).size, results.length)
  const lines = (await agentctl('validate', path, '--github')).stdout.trimEnd().split('\n')
  t.equal(lines.length, results.length)
  t.equal(new Set(lines).size, lines.length)
})

t.test('1: what cannot be read is a finding at its line too', async t => {
  const path = file('broken.yaml', 'openapi: 3.1.0\ninfo: { title: T\npaths: {}\n')
  const sarif = await agentctl('validate', path, '--sarif')
  t.equal(sarif.status, 1)
  t.match(JSON.parse(sarif.stdout).runs[0].results[0], {
    ruleId: 'text_unreadable',
    level: 'error',
    locations: [{ physicalLocation: { region: { startLine: 3 } } }],
  })
  t.match(sarif.stderr, /neither JSON nor YAML/)
  const github = await agentctl('validate', path, '--github')
  t.equal(github.status, 1)
  t.match(github.stdout, `::error file=${path},line=3,title=text_unreadable::`)
  const atTerminal = await agentctlOf({ url, args: ['validate', path, '--github'], columns: 80 })
  t.equal(atTerminal.stdout, github.stdout)
  const none = await agentctl('validate', join(folder, 'none'), '--github')
  t.equal(none.status, 1)
  t.match(none.stdout, /^::error .*line=1,title=text_unreadable::.*cannot be read \(ENOENT\)/)
  t.equal((await agentctl('validate', path)).stdout, '', 'nobody else is told on standard output')
})

t.test('no line of plain output is a command to a runner of continuous integration', async t => {
  const path = file(
    'commands.yaml',
    `openapi: 3.1.0
info: { title: T }
servers: [{ url: https://t.example.com }]
paths:
  /a:
    get: { operationId: '::stop-commands::tok', summary: '::error::pwn' }
    post: { operationId: '##[error]x', summary: 'Ends with ##[group]' }
`,
  )
  for (const more of [[], ['--json'], ['--complete', '-o', '-']] as const) {
    const { status, stdout, stderr } = await agentctl('validate', path, ...more)
    t.equal(status, 0)
    if (more[1] !== '-o') t.notMatch(stdout, /^\s*::|##\[/m, `${more.join(' ')}: standard output`)
    t.notMatch(stderr, /^\s*::|##\[/m, `${more.join(' ')}: standard error`)
  }
  const plain = (await agentctl('validate', path)).stdout
  t.match(plain, '\\x3a:stop-commands::tok')
  t.match(plain, '#\\x23[error]x')
  t.equal(JSON.parse((await agentctl('validate', path, '--json')).stdout).methods[1].name, '##[error]x')
})

t.test('2: options that would be without effect', async t => {
  const path = file('in.yaml', INCOMPLETE)
  for (const [args, said] of [
    [['validate', path, '-o', 'x'], '--output goes together with --complete'],
    [['validate', path, '--server', 'https://a'], '--server goes together with --complete'],
    [['validate', path, '--complete', '-o', '-', '--json'], '--json excludes --output -'],
    [['validate', path, '--json', '--sarif'], '--json excludes --sarif'],
    [['validate', path, '--complete', '--server', 'a'], '--server must be an absolute'],
  ] as const) {
    const { status, stderr } = await agentctl(...args)
    t.equal(status, 2)
    t.match(stderr, said)
  }
})
