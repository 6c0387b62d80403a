import { readFileSync } from 'node:fs'
import { type Static, type StringOptions, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { parseDatabaseUrl } from './db/connection/database-url.js'
import { InvalidKeyRing, parseKeyRing } from './secrets/key-ring.js'

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

/** Matches an address, a network or a network name, as Fastify's `trustProxy` accepts them. */
const PEER = String.raw`(?:loopback|linklocal|uniquelocal|[\da-fA-F]*[.:][\da-fA-F.:]*(?:/\d{1,3})?)`

const MIB = 2 ** 20

/** All settings by group, with defaults and limits. ops/configuration.md documents them. */
const SETTINGS = Type.Object({
  server: Type.Object({
    host: text('HOST', 'Address to listen on.', { default: '127.0.0.1' }),
    port: count('PORT', 8080, 0, 65_535, 'Port to listen on; 0 picks a free port.'),
    metricsPort: Type.Optional(
      count('METRICS_PORT', undefined, 0, 65_535, 'Second port, for /metrics and probes; 0 picks a free port.'),
    ),
    logLevel: choice('LOG_LEVEL', LOG_LEVELS, 'info', 'Least severe level that is logged.'),
    trustProxy: text(
      'TRUST_PROXY',
      'Proxies whose X-Forwarded-For is trusted: a comma-separated list of addresses, networks or `loopback`.',
      { default: '', pattern: `^(?:${PEER}(?:\\s*,\\s*${PEER})*)?$`, form: 'addresses or networks such as 10.0.0.0/8' },
    ),
    corsOrigins: Type.Array(
      text('CORS_ORIGINS', '', {
        pattern: String.raw`^https?://[\w.:[\]-]+$`,
        form: 'origins such as https://console.example.com, without a path',
      }),
      {
        env: 'CORS_ORIGINS',
        default: [],
        takes: 'a comma-separated list',
        description: 'Origins of web pages that may call this service.',
      },
    ),
    drainDelayMs: count('DRAIN_DELAY_MS', 3_000, 0, 600_000, 'How long requests are still accepted after SIGTERM.'),
    shutdownTimeoutMs: count('SHUTDOWN_TIMEOUT_MS', 10_000, 100, 600_000, 'Time limit of requests during a shutdown.'),
  }),
  database: Type.Object({
    url: Type.Optional(text('DATABASE_URL', 'Address of PostgreSQL 15 or later. Absent: the embedded server.')),
    urlFile: Type.Optional(text('DATABASE_URL_FILE', 'File that contains the value of DATABASE_URL.')),
    dataDir: text('DATA_DIR', 'Folder of the embedded database and its key file.', { default: '.data' }),
    binDir: Type.Optional(text('PG_BIN_DIR', 'Folder of PostgreSQL binaries for the embedded server.')),
    demo: toggle('DEMO', true, 'Load the demo organisation into an empty embedded database.'),
    preparedStatements: toggle('PREPARED_STATEMENTS', true, 'Must be off behind a pooler such as PgBouncer.'),
    poolSize: count('DATABASE_POOL_SIZE', 30, 1, 500, 'Database connections; one token can use half of them.'),
    statementTimeoutMs: count('STATEMENT_TIMEOUT_MS', 10_000, 100, 600_000, 'Time limit of each SQL statement.'),
    lockTimeoutMs: count('LOCK_TIMEOUT_MS', 5_000, 50, 600_000, 'Longest wait for a lock or for earlier requests.'),
  }),
  auth: Type.Object({
    requireIfMatch: toggle('REQUIRE_IF_MATCH', false, 'Refuse updates without If-Match (428).'),
    requireApproval: choice(
      'REQUIRE_APPROVAL',
      ['none', 'tools', 'all'],
      'none',
      'Which changes require an administrator or an approved proposal. Creations never do.',
    ),
    approval: choice(
      'APPROVAL',
      ['another', 'anyone'],
      'another',
      'Who can approve a proposal. `anyone`: every user with update rights; `another`: the same users, except the author.',
    ),
    requestsPerMinute: count('RATE_LIMIT_PER_MINUTE', 600, 0, 1_000_000, 'Requests per token and minute; 0 is off.'),
  }),
  limits: Type.Object({
    concurrentRequestsMax: count('CONCURRENT_REQUESTS_MAX', 1_000, 1, 100_000, 'Concurrent requests; more get 503.'),
    eventLoopDelayMaxMs: count('EVENT_LOOP_DELAY_MAX_MS', 1_000, 0, 600_000, 'Event-loop delay for a 503; 0 is off.'),
    snapshotBytes: count('SNAPSHOT_BYTES_MAX', 8 * MIB, MIB, 128 * MIB, 'Maximum size of the tools in an answer.'),
  }),
  secrets: Type.Object({
    keys: Type.Optional(text('SECRET_KEYS', 'Key ring (`id:base64,...`). The first key encrypts; all decrypt.')),
    keysFile: Type.Optional(text('SECRET_KEYS_FILE', 'File with the key ring, one `id:base64` per line.')),
  }),
  history: Type.Object({
    auditRetentionDays: count('AUDIT_RETENTION_DAYS', 400, 1, 100_000, 'Age at which audit rows are pruned.'),
    versionsMax: count('HISTORY_VERSIONS_MAX', 100, 1, 100_000, 'Old contents kept per agent or tool, at most 64 MiB.'),
  }),
})

/** Settings of version 2.1 that were removed. CHANGELOG.md describes the replacements. */
const REMOVED = `METRICS_TOKEN METRICS_TOKEN_FILE STRICT_HANDLING MIGRATE_ON_START DATABASE_CONNECT_TIMEOUT_MS CONSOLE
  X_ONYX_AUTHORIZATION REQUEST_TIMEOUT_MS KEEP_ALIVE_TIMEOUT_MS DEFINITION_TIMEOUT_MS TOOL_BODY_LIMIT_BYTES
  FAILED_AUTH_LIMIT_PER_MINUTE TRANSFER_BYTES_MAX HEADER_TRIALS_PER_HOUR`.split(/\s+/)

/** The configuration by group, for example `config.database.poolSize`. `on` and `off` become booleans. */
export type Config = Static<typeof SETTINGS>

type Environment = Readonly<Record<string, string | undefined>>

/** The environment is invalid. `faults` lists all faults without the values, because values can be secret. */
export class InvalidConfiguration extends Error {
  constructor(readonly faults: string[]) {
    super(`The environment variables have faults:\n${faults.map(fault => `  ${fault}`).join('\n')}`)
  }
}

/** Reads the configuration from the environment and from DATABASE_URL_FILE. Empty variables are ignored. Throws `InvalidConfiguration`. */
export function readConfig(env: Environment): Config {
  const groups = Object.entries(SETTINGS.properties).map(([group, { properties }]) => {
    const values = Object.entries<TSchema>(properties).map(([name, schema]) => [
      name,
      settingValue(schema, env[schema.env]),
    ])
    return [group, Object.fromEntries(values.filter(([, value]) => value !== undefined))]
  })
  const config = Object.fromEntries(groups) as Config // the next line checks the values
  const malformed = [...Value.Errors(SETTINGS, config)].map(({ schema }) => `${schema.env}: must be ${schema.form}`)
  const faults = [...new Set(malformed), ...secretFaults(config), ...databaseFaults(config, env)] // several wrong entries of a list are one fault
  const { port, metricsPort } = config.server
  if (metricsPort !== 0 && metricsPort === port) faults.push('METRICS_PORT: must differ from PORT')
  if (faults.length > 0) throw new InvalidConfiguration([...faults, ...misspeltWarning(env)])
  return config
}

/** Returns the value of a variable. Returns a malformed value unchanged, because the schema then refuses it. */
function settingValue({ type, default: byDefault }: TSchema, text = ''): unknown {
  if (text === '') return byDefault
  if (type === 'integer' && /^\d{1,15}$/.test(text)) return Number(text)
  if (type === 'boolean' && (text === 'on' || text === 'off')) return text === 'on'
  if (type === 'array') return text.split(',').map(entry => entry.trim())
  return text
}

function secretFaults({ secrets: { keys, keysFile } }: Config): string[] {
  if (keys !== undefined && keysFile !== undefined) return ['set either SECRET_KEYS or SECRET_KEYS_FILE, not both']
  try {
    if (keys !== undefined) parseKeyRing(keys)
    return []
  } catch (error) {
    if (error instanceof InvalidKeyRing) return error.faults.map(fault => `SECRET_KEYS: ${fault}`)
    throw error
  }
}

/** Returns the faults of the database settings. Also sets `database.url` from DATABASE_URL_FILE. */
function databaseFaults({ database }: Config, env: Environment): string[] {
  const { url, urlFile } = database
  // Without this check, a missing or misspelt DATABASE_URL would start the service with a new embedded database.
  if (env.NODE_ENV === 'production' && !(url || urlFile || env.DATA_DIR))
    return ['with NODE_ENV=production, set DATABASE_URL, or DATA_DIR for the embedded database']
  if (url !== undefined && urlFile !== undefined) return ['set either DATABASE_URL or DATABASE_URL_FILE, not both']
  try {
    if (urlFile !== undefined) database.url = readFileSync(urlFile, 'utf8').trim()
  } catch (error) {
    // Omits the path at the end of the error message, because the variable may contain a URL with a password by mistake.
    return [`DATABASE_URL_FILE: the file cannot be read (${(error as Error).message.split(', ', 1)[0]})`]
  }
  const parsed = database.url === undefined ? undefined : parseDatabaseUrl(database.url)
  return parsed?.ok === false ? parsed.faults.map(fault => `DATABASE_URL: ${fault}`) : []
}

/** Returns warnings about unknown variables and about DATABASE_URL. The warnings contain no values. */
export function settingWarnings(env: Environment, { database }: Config): string[] {
  const parsed = database.url === undefined ? undefined : parseDatabaseUrl(database.url)
  const ofUrl = parsed?.ok ? parsed.warnings : []
  return [...misspeltWarning(env), ...ofUrl.map(warning => `DATABASE_URL ${warning}`)]
}

/** Returns one warning about all removed and misspelt settings, or an empty list. */
export function misspeltWarning(env: Environment): string[] {
  const names = describeSettings().map(({ name }) => name)
  const misspelt = Object.keys(env).flatMap(name => {
    if (names.includes(name)) return []
    if (REMOVED.includes(name)) return [`${name} (removed in 3.0)`]
    const written = name.toUpperCase()
    const distances = name.length < 8 ? [1] : [1, 2] // with two edits, short variable names of other programs would match
    const near = distances.flatMap(edits => names.filter(each => isWithin(edits, written, each)))
    const longer = names.filter(each => name.includes('_') && each.startsWith(`${written}_`))
    const [meant] = [...near, ...longer]
    return meant === undefined ? [] : [`${name.slice(0, 64)} (did you mean ${meant}?)`]
  })
  return misspelt.length > 0 ? [`unknown variables are ignored: ${misspelt.join(', ')}`] : []
}

/** True if at most `edits` insertions, deletions and replacements of letters turn `a` into `b`. */
function isWithin(edits: number, a: string, b: string): boolean {
  if (a === b || edits === 0) return a === b
  const [x, y] = [a.slice(1), b.slice(1)]
  if (a[0] === b[0]) return isWithin(edits, x, y)
  return isWithin(edits - 1, x, b) || isWithin(edits - 1, a, y) || isWithin(edits - 1, x, y)
}

/** Returns all settings in order, for the documentation. */
export function describeSettings() {
  return Object.entries(SETTINGS.properties).flatMap(([group, { properties }]) =>
    Object.values<TSchema>(properties).map(({ env, type, default: byDefault, takes, description }) => {
      const shown = type === 'boolean' ? (byDefault ? 'on' : 'off') : String(byDefault ?? '')
      return { group, name: String(env), default: shown, takes: String(takes), description: String(description) }
    }),
  )
}

function text(env: string, description: string, more: StringOptions & { takes?: string; form?: string } = {}) {
  return Type.String({ env, takes: 'text', description, ...more })
}

function choice<const Word extends string>(env: string, words: readonly Word[], byDefault: Word, description: string) {
  const takes = words.join(', ')
  const [pattern, form] = [`^(?:${words.join('|')})$`, `one of ${takes}`]
  return Type.Unsafe<Word>(Type.String({ env, default: byDefault, takes, pattern, form, description }))
}

function count(env: string, byDefault: number | undefined, minimum: number, maximum: number, description: string) {
  const takes = `${minimum} to ${maximum}`
  const form = `a whole number from ${takes}`
  return Type.Integer({ env, default: byDefault, minimum, maximum, takes, form, description })
}

function toggle(env: string, byDefault: boolean, description: string) {
  return Type.Boolean({ env, default: byDefault, takes: 'on, off', form: 'on or off', description })
}
