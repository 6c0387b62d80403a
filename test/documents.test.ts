import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse } from 'yaml'
import { CommandLine, nameOf } from '../src/admin/commands/command.js'
import { allCommands, programOf } from '../src/admin/commands/run.js'
import { describeSettings } from '../src/config.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const NOT_OURS = /(?:^|\/)(?:node_modules|build|generated|fixtures|golden|\.[^/]+)(?:\/|$)/

/** Returns the paths of the matching files below `folder`, relative to the root of the repository. */
function filesBelow(folder: string, kind: RegExp): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .map(name => join(folder, name))
    .filter(path => kind.test(path) && !NOT_OURS.test(path))
}

interface Document {
  path: string
  text: string
  /** Inline code and the lines of code blocks. In a configuration file, all lines. */
  code: string[]
}

const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

const DOCUMENTS: Document[] = readdirSync(ROOT)
  .filter(name => name.endsWith('.md') && name !== 'CHANGELOG.md') // CHANGELOG names removed files and settings
  .concat(['bench', 'docs', 'openapi', 'ops', 'src'].flatMap(folder => filesBelow(folder, /\.md$/)))
  .map(path => {
    const text = read(path)
    const blocks = [...text.matchAll(/^```\w*\n(.*?)^```/gms)].flatMap(([, block = '']) => block.split('\n'))
    const spans = [...text.replaceAll(/^```.*?^```/gms, '').matchAll(/`([^`]+)`/g)].map(([, span = '']) => span)
    return { path, text, code: [...blocks, ...spans] }
  })

/** Configuration files that name settings, commands or metrics. */
const CONFIGURATIONS: Document[] = [...filesBelow('ops', /\.(?!md)\w+$/), 'docker-compose.yml', '.env.example'].map(
  path => ({ path, text: read(path), code: read(path).split('\n') }),
)

const wordsOf = (texts: string[]) => new Set(texts.join('\n').match(/\w+/g))
const SOURCES = ['src', 'migrations', 'test', 'bench'].flatMap(folder => filesBelow(folder, /\.ts$/))
const CODE_WORDS = wordsOf([...SOURCES, 'test/golden/schema.sql', 'openapi/openapi.json'].map(read))
const CONFIGURED_WORDS = wordsOf(CONFIGURATIONS.map(({ text }) => text))

/** Files that example commands create or read. */
const READERS_FILES = 'api.yaml completed.yaml crm.openapi.yaml orders.json organisation.yaml values.yaml'.split(' ')

/** Invented names in examples. */
const MADE_UP = ['AGENTS_CRM_KEY', 'DATABSE_URL', 'transfer_encoding']

/** Finds `pattern` in the documents' code. Returns the matches for which `exists` is false, as `document: match`. */
function missing(
  documents: readonly Document[],
  pattern: RegExp,
  exists: (what: string, document: Document) => boolean,
) {
  return documents.flatMap(document =>
    document.code.flatMap(code =>
      [...code.matchAll(pattern)]
        .map(([all, what = all]) => what)
        .filter(what => !exists(what, document))
        .map(what => `${document.path}: ${what}`),
    ),
  )
}

t.test('every file that a document names exists, and every heading that a link names', t => {
  const headings = (path: string) => [...read(path).matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => slugOf(title))
  const broken = DOCUMENTS.flatMap(({ path, text }) =>
    [...text.matchAll(/\]\((?!https?:)([^)#]*)#?([^)]*)\)/g)]
      .filter(([, file = '', heading = '']) => {
        const target = file === '' ? path : normalize(join(dirname(path), file))
        return !existsSync(join(ROOT, target)) || (heading !== '' && !headings(target).includes(heading))
      })
      .map(([link]) => `${path}: ${link}`),
  )
  t.strictSame(broken, [], 'links')
  const FILE =
    /(?<![\w/.:$~@*-])((?:[\w.-]+\/)*[\w.-]+\.(?:ts|js|json|md|sql|ya?ml|cfg|conf|txt|ini|service))(?![\w*])/g
  const isThere = (name: string, { path }: Document) =>
    ['', 'src', 'test', 'ops', dirname(path)].some(folder => existsSync(join(ROOT, folder, name)))
  const isFile = (file: string, document: Document) =>
    isThere(file.replace(/^build\/(.*)\.js$/, '$1.ts'), document) ||
    SOURCES.some(path => path.endsWith(`/${file}`)) || // the text can name the folder elsewhere
    READERS_FILES.includes(file)
  t.strictSame(missing([...DOCUMENTS, ...CONFIGURATIONS], FILE, isFile), [], 'files')
  t.strictSame(missing(DOCUMENTS, /^((?:[\w-]+\/)+)$/g, isThere), [], 'folders')
  t.end()
})

function slugOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
}

t.test('the chart has the version of the package, and sets nothing but settings', t => {
  const { version } = JSON.parse(read('package.json'))
  t.match(parse(read('ops/helm/Chart.yaml')), { version, appVersion: version })
  const tags = [...DOCUMENTS, ...CONFIGURATIONS].flatMap(({ text }) => text.match(/(?<=management:)\d[\d.]+/g) ?? [])
  t.ok(tags.length > 5 && tags.every(tag => tag === version), `images: ${tags}`)
  const values = filesBelow('ops/helm', /values\.yaml$/).flatMap(path => Object.keys(parse(read(path)).settings ?? {}))
  const templates = filesBelow('ops/helm/templates', /./).flatMap(path => read(path).match(/\b[A-Z]+_[A-Z_]+\b/g) ?? [])
  const named = [...values, ...templates]
  t.ok(named.includes('DATABASE_URL') && named.includes('DRAIN_DELAY_MS'))
  const settings = describeSettings().map(({ name }) => name)
  t.strictSame(
    named.filter(name => !settings.includes(name)),
    [],
  )
  t.end()
})

t.test('every test that SECURITY.md names exists', t => {
  const rows = read('SECURITY.md').matchAll(/^\|.*\|.*\|((?: `[\w/-]+`,?)+) \|$/gm)
  const named = [...rows].flatMap(([, cell = '']) => cell.match(/[\w/-]+/g) ?? [])
  t.ok(named.length > 20)
  const gone = named.filter(name => !existsSync(join(ROOT, 'test', `${name}.test.ts`)))
  t.strictSame(gone, [])
  t.end()
})

t.test('every package that is installed has its reason in DECISIONS', t => {
  const { dependencies, optionalDependencies, devDependencies } = JSON.parse(read('package.json'))
  const obvious = /^(?:@types\/.*|@biomejs\/biome|typescript)$/
  const reasons = read('openapi/DECISIONS.md')
  for (const name of Object.keys({ ...dependencies, ...optionalDependencies, ...devDependencies }))
    t.ok(obvious.test(name) || reasons.includes(`\`${name}\``), name)
  t.end()
})

t.test('every script, command and option that a document names exists', t => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
  const isScript = (name: string) => Object.hasOwn(scripts, name)
  const unknown = missing([...DOCUMENTS, ...CONFIGURATIONS], /\bnpm run (?:--silent )?([\w:]+)/g, isScript)
  t.strictSame(unknown, [], 'scripts')
  const program = programOf(new CommandLine({}, { print: () => undefined, remark: () => undefined }))
  const commands = allCommands(program)
  const byName = new Map(commands.map(command => [nameOf(command), command]))
  const groups = program.commands.filter(({ commands }) => commands.length > 0).map(group => group.name())
  const optionsOf = (command: (typeof commands)[number]) => [
    ...command.options.map(({ long }) => long),
    ...['--help', '--version'],
  ]
  const isCommand = (call: string) => {
    const [first = '', second = ''] = call.split(/\s+/)
    if (first === 'help' || first === 'COMMAND' || /^-/.test(first)) return true
    const command = byName.get(`${first} ${second}`) ?? byName.get(first)
    if (command === undefined) return groups.includes(first) && !/^[a-z]/.test(second)
    const words = call.split(/[|;&#>]/)[0]?.match(/(?<=\s)--[\w-]+/g) ?? []
    return words.every(word => optionsOf(command).includes(word))
  }
  const call = /(?<=^|\s|")agentctl ((?:help|COMMAND|--?\w|[a-z]+)(?: .*)?)/g
  t.strictSame(missing([...DOCUMENTS, ...CONFIGURATIONS], call, isCommand), [], 'commands')
  const scriptOptions = ['bench/run.ts', 'test/all.ts'].flatMap(path => read(path).match(/--[a-z]+/g) ?? [])
  const known = new Set([...commands.flatMap(optionsOf), ...scriptOptions])
  const unknownOptions = missing(DOCUMENTS, /^(--[a-z][\w-]*)/g, option => known.has(option))
  t.strictSame(unknownOptions, [], 'options')
  t.end()
})

t.test('every setting, metric, code and name of the code that a document names exists', t => {
  const settings = new Set(describeSettings().map(({ name }) => name))
  const VARIABLE = /(?<![\w$-])([A-Z][A-Z\d]*(?:_[A-Z\d]+)+)(?![\w-])/g
  const isForDevelopers = ({ path }: Document) => !/^(?:README|SECURITY|ops)/.test(path)
  const isVariable = (name: string, document: Document) =>
    settings.has(name) ||
    CONFIGURED_WORDS.has(name) ||
    MADE_UP.includes(name) ||
    (isForDevelopers(document) && CODE_WORDS.has(name))
  const documents = [...DOCUMENTS, ...CONFIGURATIONS]
  t.strictSame(missing(DOCUMENTS, VARIABLE, isVariable), [], 'settings')
  const METRIC = /(?<![\w.-])(agents_\w*[a-z])(?!\w)/g
  const isMetric = (name: string) => CODE_WORDS.has(name.replace(/_(?:bucket|sum|count)$/, ''))
  t.strictSame(missing(documents, METRIC, isMetric), [], 'metrics')
  const isName = (name: string) => CODE_WORDS.has(name) || CONFIGURED_WORDS.has(name) || MADE_UP.includes(name)
  t.strictSame(missing(DOCUMENTS, /^([a-z]+(?:_[a-z\d]+)+)$/g, isName), [], 'codes and fields')
  const names = missing(DOCUMENTS.filter(isForDevelopers), /^([a-zA-Z]+[a-z][A-Z]\w*)$/g, isName)
  t.strictSame(names, [], 'names of the code')
  t.end()
})
