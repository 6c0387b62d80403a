import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const SOURCES = fileURLToPath(new URL('../../src', import.meta.url))

interface SourceFile {
  /** From `src`, such as `persona/store.ts`. */
  path: string
  /** Without comments. */
  code: string
  /** Other files of `src`, by path. */
  files: string[]
  packages: string[]
}

const files: SourceFile[] = readdirSync(SOURCES, { recursive: true })
  .map(String)
  .filter(path => path.endsWith('.ts'))
  .map(readSource)

function readSource(path: string): SourceFile {
  const code = readFileSync(join(SOURCES, path), 'utf8')
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/(^|\s)\/\/.*$/gm, '')
  const named = [...code.matchAll(/\b(?:from|import)\s*\(?\s*'([^']+)'/g)].map(([, name]) => name ?? '')
  return {
    path,
    code,
    files: named
      .filter(name => name.startsWith('.'))
      .map(name => normalize(join(dirname(path), name)).replace(/\.js$/, '.ts'))
      .filter(name => !name.startsWith('..')),
    packages: named.filter(name => !name.startsWith('.')),
  }
}

/** The layers, from the bottom; each names what it may import beside itself. Nothing imports upwards. */
const LAYERS: Record<string, readonly string[]> = {
  'errors.ts': [],
  'version.ts': [],
  'database-url': [],
  'key-ring': [],
  'config.ts': ['database-url', 'key-ring'],
  schema: ['errors.ts'],
  db: ['errors.ts', 'config.ts', 'database-url'],
  secrets: ['errors.ts', 'config.ts', 'key-ring', 'db'],
  auth: ['errors.ts', 'schema', 'db'],
  updates: ['errors.ts', 'config.ts', 'db', 'auth'],
  limits: ['errors.ts', 'db', 'updates'],
  http: ['errors.ts', 'config.ts', 'schema', 'db', 'auth', 'updates', 'limits'],
  'tool/definition': [],
  tool: ['errors.ts', 'schema', 'db', 'updates', 'secrets', 'http', 'auth', 'tool/definition'],
  persona: ['errors.ts', 'schema', 'db', 'updates', 'http', 'auth', 'tool'],
  admin: [
    'errors.ts',
    'version.ts',
    'config.ts',
    'schema',
    'db',
    'updates',
    'secrets',
    'key-ring',
    'http',
    'auth',
    'tool/definition',
    'tool',
    'persona',
  ],
  'lifecycle.ts': ['errors.ts', 'config.ts', 'db', 'secrets', 'key-ring'],
  'app.ts': ['errors.ts', 'version.ts', 'config.ts', 'db', 'limits', 'http', 'auth', 'tool', 'persona', 'lifecycle.ts'],
  'cli.ts': ['admin'],
  'server.ts': [
    'version.ts',
    'config.ts',
    'db',
    'updates',
    'secrets',
    'http',
    'admin',
    'persona',
    'lifecycle.ts',
    'app.ts',
  ],
}

function layerOf(path: string): string {
  if (path.startsWith('tool/definition/')) return 'tool/definition'
  // The forms of two settings, which the configuration reads: files without imports of their own.
  if (path === 'db/connection/database-url.ts') return 'database-url'
  if (path === 'secrets/key-ring.ts') return 'key-ring'
  return path.includes('/') ? (path.split('/')[0] ?? '') : path
}

t.test('every import goes to a layer below', async t => {
  for (const { path, files: imported } of files) {
    const layer = layerOf(path)
    const allowed = LAYERS[layer]
    if (allowed === undefined) t.fail(`${path} belongs to no layer: add it to LAYERS`)
    for (const target of imported) {
      const below = layerOf(target)
      t.ok(below === layer || allowed?.includes(below), `${path} may not import ${target}`)
    }
  }
})

t.test('the layers have an order: what one may import stands above it in the list', async t => {
  const names = Object.keys(LAYERS)
  for (const [layer, allowed] of Object.entries(LAYERS)) {
    for (const below of allowed) t.ok(names.indexOf(below) < names.indexOf(layer), `${below} before ${layer}`)
  }
})

t.test('no two files import each other, directly or around', async t => {
  const graph = new Map(files.map(({ path, files }) => [path, files]))
  const done = new Set<string>()
  const visit = (path: string, trail: string[]): void => {
    if (trail.includes(path)) t.fail([...trail, path].join(' -> '))
    if (trail.includes(path) || done.has(path)) return
    for (const next of graph.get(path) ?? []) visit(next, [...trail, path])
    done.add(path)
  }
  for (const path of graph.keys()) visit(path, [])
  t.equal(done.size, files.length)
})

t.test('features meet only where an agent shows its tools', async t => {
  const meetings = files
    .filter(({ path }) => path.startsWith('persona/'))
    .flatMap(({ path, files }) => files.filter(name => name.startsWith('tool/')).map(name => `${path} -> ${name}`))
  t.strictSame(meetings.sort(), [
    'persona/past.ts -> tool/definition-cache.ts',
    'persona/past.ts -> tool/statements.ts',
    'persona/resource.ts -> tool/definition-cache.ts',
    'persona/schema.ts -> tool/schema.ts',
    'persona/snapshot.ts -> tool/snapshot.ts',
    'persona/state.ts -> tool/snapshot.ts',
    'persona/statements.ts -> tool/definition-cache.ts',
  ])
})

const isDatabase = (name: string) => name === 'pg' || name.startsWith('kysely')
const isWeb = (name: string) => name === 'fastify' || name.startsWith('@fastify/')

t.test('only the web layer, the hook and the operations know Fastify', async t => {
  const allowed =
    /^(http\/.*|auth\/(hook|client-address)\.ts|\w+\/(update|validate|read)-[\w-]+\.ts|app\.ts|server\.ts)$/
  const knowing = files.filter(({ packages }) => packages.some(isWeb)).map(({ path }) => path)
  t.strictSame(
    knowing.filter(path => !allowed.test(path)),
    [],
  )
})

t.test('operations, schemas and the web layer hold no SQL; rules decide without a database', async t => {
  const without =
    /^(http\/.*|(?:persona|tool)\/(?:(?:update|validate|read)-[\w-]+|schema|rules)\.ts|tool\/(definition\/.*|headers\.ts)|app\.ts|cli\.ts|server\.ts)$/
  for (const { path, packages, code } of files.filter(({ path }) => without.test(path))) {
    // The log names the class of a database error, which is pg's own.
    t.strictSame(
      packages.filter(name => isDatabase(name) && `${path} ${name}` !== 'http/logging.ts pg'),
      [],
      path,
    )
    t.notMatch(code, /\bsql`|\b(?:select|insert into|update|delete from) \w+ (?:from|set|where|values)\b/, path)
  }
})

t.test('the definition check knows neither database nor network nor files', async t => {
  // Of node:net it takes what an address is; the upgrader turns one value into another.
  const taken = ['node:crypto', 'node:net', 'node:util']
  const upgrader = '@scalar/openapi-upgrader/2.0-to-3.0'
  for (const { path, packages } of files.filter(({ path }) => path.startsWith('tool/definition/'))) {
    t.strictSame(
      packages.filter(name => !taken.includes(name) && !(path.endsWith('complete/swagger.ts') && name === upgrader)),
      [],
      path,
    )
  }
})

/** Beside the handler: bytes that are no request, a probe's answer, and the metrics' own port have no Fastify error. */
const KNOWING_STATUSES = ['http/connections.ts', 'http/error-handler.ts', 'http/probes.ts']

t.test('only the error handler knows error statuses', async t => {
  const status = /\.(?:code|status|writeHead)\(\s*[45]\d\d|status(?:Code)?\s*[:=]\s*[45]\d\d|return [45]\d\d\b/
  const knowing = files.filter(({ code }) => status.test(code)).map(({ path }) => path)
  t.strictSame(knowing.sort(), KNOWING_STATUSES)
})

t.test('names say what a thing is: no file is a manager, helper, util or data', async t => {
  const vague = files.filter(({ path }) => /(manager|helper|util|data|info)s?\.ts$/.test(path))
  t.strictSame(
    vague.map(({ path }) => path),
    [],
  )
  t.strictSame(
    files.filter(({ path }) => !/^[a-z0-9/-]+\.ts$/.test(path)),
    [],
    'kebab-case',
  )
  t.strictSame(
    files.filter(({ code }) => /^export default/m.test(code)),
    [],
    'named exports',
  )
})

const isCovered = process.env._TAPJS_PROCESSINFO_COVERAGE_ === '1'

t.test('what tests start is started as it is, but for coverage', { skip: isCovered && 'the coverage' }, async t => {
  const options = execFileSync(process.execPath, ['-p', 'process.env.NODE_OPTIONS'], { encoding: 'utf8' })
  t.notMatch(options, /processinfo/)
})
