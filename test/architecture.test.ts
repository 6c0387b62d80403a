import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const SOURCES = fileURLToPath(new URL('../../src', import.meta.url))

interface SourceFile {
  /** The path below `src`, such as `persona/store.ts`. */
  path: string
  /** The source without comments. */
  code: string
  /** The imported files of `src`, as paths below `src`. */
  files: string[]
  packages: string[]
}

const files: SourceFile[] = readdirSync(SOURCES, { recursive: true })
  .map(String)
  .filter(path => path.endsWith('.ts') && !path.startsWith('console/page/')) // the page has its own build
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

/** The layers from the bottom. Each layer can import itself and the layers before it, unless `APART` forbids it. */
const LAYERS = [
  ...'errors.ts version.ts definition db secrets validation config.ts'.split(' '),
  ...'auth updates http tool persona runtime proposals changes today mcp admin console lifecycle.ts app.ts cli.ts server.ts'.split(
    ' ',
  ),
]

/** Layers with stricter rules: `knows` lists the only layers that a layer can import, and `isKnownBy` the only layers that can import it. */
const APART: Record<string, { knows?: string[]; isKnownBy?: string[] }> = {
  db: { knows: [] },
  validation: { knows: ['errors.ts', 'db'] },
  definition: { knows: [], isKnownBy: ['tool', 'admin'] },
  tool: { isKnownBy: ['persona', 'runtime', 'proposals', 'today', 'mcp', 'admin', 'console', 'app.ts'] },
  runtime: { isKnownBy: ['app.ts'] },
  proposals: { isKnownBy: ['app.ts'] },
  today: { isKnownBy: ['app.ts'] },
  mcp: { isKnownBy: ['app.ts'] },
  'lifecycle.ts': { isKnownBy: ['app.ts', 'server.ts'] },
  'cli.ts': { knows: ['admin'] },
}

function layerOf(path: string): string {
  return path.includes('/') ? (path.split('/')[0] ?? '') : path
}

t.test('every import goes to a layer below', async t => {
  const unplaced = files.filter(({ path }) => !LAYERS.includes(layerOf(path)))
  t.strictSame(unplaced, [], 'every file belongs to one of LAYERS')
  const wrong = files.flatMap(({ path, files: imported }) =>
    imported.filter(target => !mayKnow(path, target)).map(target => `${path} -> ${target}`),
  )
  t.strictSame(wrong, [])
})

function mayKnow(path: string, target: string): boolean {
  const [layer, below] = [layerOf(path), layerOf(target)]
  if (layer === below) return true
  const isBelow = LAYERS.indexOf(below) < LAYERS.indexOf(layer)
  return isBelow && (APART[layer]?.knows?.includes(below) ?? true) && (APART[below]?.isKnownBy?.includes(layer) ?? true)
}

t.test('the table of modules in CONTRIBUTING.md has the same modules in the same order', async t => {
  const page = readFileSync(join(SOURCES, '../CONTRIBUTING.md'), 'utf8')
  const table = page.slice(page.indexOf('| module |'), page.indexOf('## Words'))
  const cells = [...table.matchAll(/^\| (`.*?`) \|/gm)].map(([, cell = '']) => cell)
  const modules = cells.flatMap(cell => cell.split(', ').map(name => name.replaceAll('`', '').replace(/\/$/, '')))
  t.strictSame(modules, LAYERS)
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

const isDatabase = (name: string) => name === 'pg' || name.startsWith('kysely')
const isWeb = (name: string) => name === 'fastify' || name.startsWith('@fastify/')

t.test('only the web layer, the hook and the operations know Fastify', async t => {
  const allowed =
    /^(http\/.*|auth\/authenticate\.ts|\w+\/(write|validate|read)-[\w-]+\.ts|today\/[\w-]+\.ts|mcp\/serve-mcp\.ts|app\.ts|server\.ts)$/
  for (const { path, packages } of files) t.ok(allowed.test(path) || !packages.some(isWeb), path)
})

t.test('operations, schemas and the web layer hold no SQL; rules decide without a database', async t => {
  const without =
    /^(http\/.*|definition\/.*|(?:persona|tool)\/(?:(?:write|validate|read)-[\w-]+|schema|rules)\.ts|tool\/headers\.ts|app\.ts|cli\.ts|server\.ts)$/
  for (const { path, packages, code } of files.filter(({ path }) => without.test(path))) {
    // `http/logging.ts` may import pg, because it recognises pg's error class.
    const known = packages.filter(name => isDatabase(name) && `${path} ${name}` !== 'http/logging.ts pg')
    t.strictSame(known, [], path)
    t.notMatch(code, /\bsql`|\b(?:select|insert into|update|delete from) \w+ (?:from|set|where|values)\b/, path)
  }
})

t.test('the definition check knows neither database nor network nor files', async t => {
  const others = files.filter(({ path }) => path.startsWith('definition/')).flatMap(({ packages }) => packages)
  const taken = ['node:crypto', 'node:net', 'node:util'] // `node:net` is used only to parse addresses
  for (const name of others) t.ok(taken.includes(name), name)
})

t.test('only the error handler knows error statuses', async t => {
  const status = /\.(?:code|status|writeHead)\(\s*[45]\d\d|status(?:Code)?\s*[:=]\s*[45]\d\d|return [45]\d\d\b/
  const knowing = files.filter(({ code }) => status.test(code)).map(({ path }) => path)
  // The metrics server also answers the readiness probe with 503.
  t.strictSame(knowing.sort(), ['http/error-handler.ts', 'http/metrics.ts'])
})
