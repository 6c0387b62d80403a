import t from 'tap'
import { describeSettings, misspeltWarning, readConfig, settingWarnings } from '../src/config.js'
import { matchesGolden } from './golden.js'

/** The heading of each group of settings, in the order of ops/configuration.md. */
const GROUPS: Record<string, string> = {
  server: 'The port, the log and the times of a connection',
  database: 'The database',
  auth: 'Callers: preconditions and rates',
  limits: 'Sizes and numbers',
  secrets: 'The key ring',
  history: 'How long history is kept',
}

const INTRODUCTION = `# Configuration

Settings are environment variables, read once at the start. An empty value counts as absent. An invalid value ends the start with status
78. \`npm run golden\` makes this page from \`src/config.ts\`.
`

t.test('ops/configuration.md names every setting with its default and what it takes', async t => {
  const settings = describeSettings()
  t.ok(settings.length <= 30, 'at most 30')
  const groups = [...new Set(settings.map(({ group }) => group))]
  const parts = groups.map(name =>
    sectionOf(
      name,
      settings.filter(({ group }) => group === name),
    ),
  )
  matchesGolden(t, 'ops/configuration.md', `${INTRODUCTION}\n${parts.join('\n')}`)
})

t.test('a variable whose name is close to a setting is named; one of another program is not', t => {
  const told = (name: string) => misspeltWarning({ [name]: 'hunter2' }).join()
  const near = { DATABSE_URL: 'DATABASE_URL', database_url: 'DATABASE_URL', DATABASE_URI: 'DATABASE_URL' }
  const others = { SECRET_KEY: 'SECRET_KEYS', LOGLEVEL: 'LOG_LEVEL' }
  const beginnings = { RATE_LIMIT: 'RATE_LIMIT_PER_MINUTE', statement_timeout: 'STATEMENT_TIMEOUT_MS' }
  for (const [name, meant] of Object.entries({ ...near, ...others, ...beginnings }))
    t.equal(told(name), `unknown variables are ignored: ${name} (did you mean ${meant}?)`)
  t.equal(told('CONSOLE'), 'unknown variables are ignored: CONSOLE (removed in 3.0)')
  for (const name of ['PATH', 'HOME', 'HOSTNAME', 'PGHOST', 'NODE_ENV', 'TZ', 'DATA', 'LOGNAME', 'AGENTS_TOOL_1_X'])
    t.equal(told(name), '', name)
  const production = { NODE_ENV: 'production', DATABSE_URL: 'hunter2' }
  t.throws(() => readConfig(production), { message: /DATABSE_URL \(did you mean DATABASE_URL\?\)/ })
  const warnings = (url: string) => settingWarnings({}, readConfig({ DATABASE_URL: url }))
  t.match(warnings('postgresql://u:hunter2@db.example.com/a'), [/^DATABASE_URL names a remote host and no sslmode/])
  t.strictSame(warnings('postgresql://u@db.example.com/a?sslmode=disable'), [])
  t.strictSame(warnings('postgresql://u@127.0.0.1/a'), [])
  t.end()
})

function sectionOf(group: string, settings: ReturnType<typeof describeSettings>): string {
  const rows = settings.map(({ name, default: byDefault, takes, description }) => {
    return `| \`${name}\` | ${byDefault === '' ? '' : `\`${byDefault}\``} | ${takes} | ${description} |`
  })
  const table = ['| Variable | Default | Takes | Meaning |', '|---|---|---|---|', ...rows].join('\n')
  const title = GROUPS[group]
  if (title === undefined) throw new Error(`the group ${group} of settings has no title`)
  return `## ${title}\n\n${table}\n`
}
