import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { parseDatabaseUrl } from './db/connection/database-url.js'
import { InvalidKeyRing, parseKeyRing } from './secrets/key-ring.js'
import { suggestion } from './validation/nearest-name.js'

/** One setting: its variable, and how its text becomes a value. `Value` includes undefined if the setting may be absent. */
interface Setting<Value> {
  env: string
  /** The text used if the variable is absent; empty for none. */
  default: string
  /** Description for the documentation: what it does, and its unit if the name lacks it. */
  description: string
  /** Accepted texts for the documentation, such as `0 to 65535`. */
  takes: string
  /** Another variable with the path of a file that has the value, for secrets that should not be in the environment. */
  fileEnv?: string
  /** Parses the value. It reports faults to `refuse`, without quoting a text that may be secret. */
  read(text: string, refuse: (fault: string) => void): Value
}

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

/** All settings by group, with defaults and limits. Names include the unit. ops/configuration.md lists them all. */
const SETTINGS = {
  server: {
    host: text('HOST', '127.0.0.1', 'Address to listen on.'),
    port: count('PORT', 8080, 0, 65535, 'Port; 0 picks a free one.'),
    metricsPort: optional(count('METRICS_PORT', 0, 0, 65535, 'Own port for /metrics and probes; 0 picks a free one.')),
    metricsToken: secret(
      checked('METRICS_TOKEN', 'Bearer token of /metrics; only METRICS_PORT shows them without one.', token =>
        /^[!-~]{16,}$/.test(token) ? [] : ['must be at least 16 characters of visible ASCII'],
      ),
    ),
    logLevel: choice('LOG_LEVEL', LOG_LEVELS, 'info', 'Least level that is logged.'),
    trustedProxies: list(
      'TRUST_PROXY',
      'Proxies whose X-Forwarded-For is believed: addresses, networks, `loopback`; commas between.',
      proxy => (isProxy(proxy) ? undefined : `is not an address, a network (10.0.0.0/8) or one of ${PROXY_NAMES}`),
    ),
    corsOrigins: list(
      'CORS_ORIGINS',
      'Origins whose pages may call from a browser, such as https://console.example.com; commas between.',
      origin => (isOrigin(origin) ? undefined : 'is not an origin such as https://console.example.com'),
    ),
    console: toggle('CONSOLE', true, 'Serve the page for people at /console.'),
    strictHandling: toggle(
      'STRICT_HANDLING',
      false,
      'Handle requests as with Prefer: handling=strict, unless they say handling=lenient: unknown fields are 422.',
    ),
    requestTimeoutMs: count(
      'REQUEST_TIMEOUT_MS',
      30_000,
      100,
      600_000,
      'Time to send a request (its headers: 10 s), and to read its answer.',
    ),
    keepAliveTimeoutMs: count('KEEP_ALIVE_TIMEOUT_MS', 72_000, 0, 600_000, 'Idle time until a connection is closed.'),
    drainDelayMs: count('DRAIN_DELAY_MS', 3_000, 0, 600_000, 'After SIGTERM, how long to serve while readiness fails.'),
    shutdownTimeoutMs: count(
      'SHUTDOWN_TIMEOUT_MS',
      10_000,
      100,
      600_000,
      'Longest time to finish what is in work; then it is answered 503.',
    ),
  },
  database: {
    url: secret(
      checked('DATABASE_URL', 'PostgreSQL 15 or later. Absent: the embedded server.', url => {
        const parsed = parseDatabaseUrl(url)
        return parsed.ok ? [] : parsed.faults
      }),
    ),
    dataDir: text('DATA_DIR', '.data', 'Folder of the embedded database and its key file.'),
    binDir: optional(text('PG_BIN_DIR', '', 'PostgreSQL binaries for the embedded server.')),
    demo: toggle('DEMO', true, 'Load the demo organisation into an empty embedded database.'),
    migrateOnStart: toggle(
      'MIGRATE_ON_START',
      false,
      'Migrate at start, which takes a direct connection; the embedded database always is.',
    ),
    preparedStatements: toggle('PREPARED_STATEMENTS', true, 'Off behind PgBouncer in transaction mode.'),
    poolSize: count(
      'DATABASE_POOL_SIZE',
      16,
      1,
      500,
      'Connections to the database, in addition to one for readiness. One token may have half as many requests at once; 100 more wait, the rest answer 429.',
    ),
    connectTimeoutMs: count('DATABASE_CONNECT_TIMEOUT_MS', 5_000, 100, 120_000, 'Longest wait for a connection.'),
    statementTimeoutMs: count('STATEMENT_TIMEOUT_MS', 10_000, 100, 600_000, 'Longest time of one statement.'),
    lockTimeoutMs: count(
      'LOCK_TIMEOUT_MS',
      5_000,
      50,
      600_000,
      'Longest wait for a row, for longer statements, and for a place among requests.',
    ),
  },
  auth: {
    requireIfMatch: toggle('REQUIRE_IF_MATCH', false, 'Refuse updates without If-Match (428).'),
    takesOnyxHeader: toggle('X_ONYX_AUTHORIZATION', false, 'Look for a token in X-Onyx-Authorization first.'),
    requestsPerMinute: count('RATE_LIMIT_PER_MINUTE', 600, 0, 1_000_000, 'Requests of a token a minute; 0 is off.'),
  },
  limits: {
    toolBodyBytes: count('TOOL_BODY_LIMIT_BYTES', 5 * 2 ** 20, 1024, 64 * 2 ** 20, 'Largest body of a tool operation.'),
    definitionTimeoutMs: count(
      'DEFINITION_TIMEOUT_MS',
      5_000,
      100,
      600_000,
      'Longest wait of a large tool body for a worker, and longest work on it; more answer 503.',
    ),
    concurrentRequestsMax: count(
      'CONCURRENT_REQUESTS_MAX',
      1_000,
      1,
      100_000,
      'Requests at work at once; more answer 503. Those with new or unknown tokens may be a tenth of them.',
    ),
    eventLoopDelayMaxMs: count('EVENT_LOOP_DELAY_MAX_MS', 1_000, 0, 600_000, 'Event-loop delay for a 503; 0 is off.'),
    snapshotBytes: count(
      'SNAPSHOT_BYTES_MAX',
      8 * 2 ** 20,
      2 ** 20,
      128 * 2 ** 20,
      'Bytes of the tools in the answer for one agent; more answer 422, or 409 when they are attached already.',
    ),
  },
  secrets: {
    keys: optional(
      checked('SECRET_KEYS', 'Key ring, `id:base64,...`; the first encrypts, all decrypt.', keyRingFaults),
    ),
    keysFile: optional(text('SECRET_KEYS_FILE', '', 'File with the key ring, one `id:base64` a line.')),
  },
  history: {
    auditRetentionDays: count('AUDIT_RETENTION_DAYS', 400, 1, 100_000, 'Age at which audit rows are pruned.'),
    versionsMax: count('HISTORY_VERSIONS_MAX', 100, 1, 100_000, 'Old contents kept of one agent or tool.'),
  },
} as const satisfies Record<string, Record<string, Setting<unknown>>>

type Groups = typeof SETTINGS

/** The configuration by group: `config.database.poolSize`. Lists are split; `on` and `off` are booleans. */
export type Config = {
  readonly [G in keyof Groups]: {
    readonly [S in keyof Groups[G]]: Groups[G][S] extends Setting<infer Value> ? Value : never
  }
}

/** The environment is invalid. `faults` has all faults, without values that may be secret. */
export class InvalidConfiguration extends Error {
  constructor(readonly faults: string[]) {
    super(`The environment is not usable:\n${faults.map(fault => `  ${fault}`).join('\n')}`)
  }
}

/** Reads the configuration from an environment and the files that it names. Empty variables count as absent. Throws `InvalidConfiguration`. */
export function readConfig(env: Record<string, string | undefined>): Config {
  const faults: string[] = []
  const readGroup = (group: Record<string, Setting<unknown>>) =>
    Object.entries(group).map(([name, setting]) => {
      const text = givenText(env, setting, fault => faults.push(fault))
      const value = setting.read(text || setting.default, fault => faults.push(`${setting.env}: ${fault}`))
      return [name, value]
    })
  const groups = Object.entries(SETTINGS).map(([name, group]) => [name, Object.fromEntries(readGroup(group))])
  const config = Object.fromEntries(groups) as Config // each value was parsed by its setting
  faults.push(...contradictions(config), ...unnamedDatabase(env))
  if (faults.length > 0) throw new InvalidConfiguration([...faults, ...misspeltWarning(env)])
  return config
}

/** The text of a setting, from its variable or from the file in its `fileEnv`. */
function givenText(
  env: Record<string, string | undefined>,
  { env: name, fileEnv }: Setting<unknown>,
  refuse: (fault: string) => void,
): string {
  const { [name]: text = '' } = env
  const path = fileEnv && env[fileEnv]
  if (!path) return text
  if (text !== '') refuse(`${name} and ${fileEnv} exclude each other`)
  if (text !== '') return ''
  try {
    const content = readFileSync(path, 'utf8').trim()
    if (content !== '' && !/[\r\n]/.test(content)) return content
    refuse(`${fileEnv}: the file ${content === '' ? 'is empty' : 'has more than one line'}`)
  } catch (error) {
    // A system error ends with the path, which may be the secret itself by mistake.
    const reason = error instanceof Error ? error.message.split(', ', 1)[0] : 'unknown'
    refuse(`${fileEnv}: the file cannot be read (${reason})`)
  }
  return ''
}

/** Faults of settings in combination. A refused setting is undefined here, and has no further faults. */
function contradictions({ server, secrets }: Config): string[] {
  const faults: string[] = []
  if (secrets.keys !== undefined && secrets.keysFile !== undefined) {
    faults.push('SECRET_KEYS and SECRET_KEYS_FILE exclude each other')
  }
  if (server.metricsPort !== undefined && server.metricsPort !== 0 && server.metricsPort === server.port) {
    faults.push('METRICS_PORT: must not be that of PORT')
  }
  return faults
}

/** In production a missing or misspelt DATABASE_URL must not start an empty demo database. */
function unnamedDatabase(env: Record<string, string | undefined>): string[] {
  if (env.NODE_ENV !== 'production' || env.DATABASE_URL || env.DATABASE_URL_FILE || env.DATA_DIR) return []
  return ['DATABASE_URL is not set: with NODE_ENV=production an embedded database needs a DATA_DIR that is set']
}

/** Warnings about accepted settings, as sentences for the log without values. */
export function settingWarnings(env: Record<string, string | undefined>, { database }: Config): string[] {
  const parsed = database.url === undefined ? undefined : parseDatabaseUrl(database.url)
  const ofUrl = parsed?.ok ? parsed.warnings : []
  return [...misspeltWarning(env), ...ofUrl.map(warning => `DATABASE_URL ${warning}`)]
}

/** A sentence with the misspelt variables of this environment; empty if there are none. */
export function misspeltWarning(env: Record<string, string | undefined>): string[] {
  const misspelt = misspeltSettings(env)
  return misspelt.length > 0 ? [`variables that no setting has are not read: ${misspelt.join('; ')}`] : []
}

/** Variables that resemble a setting: `DATABSE_URL: did you mean 'DATABASE_URL'?`. */
export function misspeltSettings(env: Record<string, string | undefined>): string[] {
  const names = describeSettings().map(({ name }) => name)
  return Object.keys(env).flatMap(name => {
    const meant = names.includes(name) ? '' : suggestion(name, names, NAME_EDITS_MAX)
    return meant === '' ? [] : [`${name.slice(0, 64)}${meant}`]
  })
}

/** Short names allow only one edit, because variables of other programs could be as similar. */
const NAME_EDITS_MAX = (name: string) => (name.length < 8 ? 1 : 2)

/** All settings for the documentation, in order of declaration: default, accepted values and description. */
export function describeSettings() {
  return Object.entries(SETTINGS).flatMap(([group, settings]) =>
    Object.values<Setting<unknown>>(settings).flatMap(({ env, fileEnv, default: byDefault, takes, description }) => {
      const own = { group, name: env, default: byDefault, takes, description }
      if (fileEnv === undefined) return [own]
      return [own, { group, name: fileEnv, default: '', takes: 'text', description: `File that holds ${env}.` }]
    }),
  )
}

function text(env: string, byDefault: string, description: string): Setting<string> {
  return { env, default: byDefault, description, takes: 'text', read: value => value }
}

/** An optional setting that may be in a file named by `..._FILE`. */
function secret<Value>(setting: Setting<Value>): Setting<Value | undefined> {
  return { ...optional(setting), fileEnv: `${setting.env}_FILE` }
}

function checked(env: string, description: string, faultsOf: (text: string) => string[]): Setting<string> {
  const read: Setting<string>['read'] = (value, refuse) => {
    for (const fault of faultsOf(value)) refuse(fault)
    return value
  }
  return { ...text(env, '', description), read }
}

/** A whole number in decimal digits. */
function count(env: string, byDefault: number, minimum: number, maximum: number, description: string): Setting<number> {
  const read: Setting<number>['read'] = (text, refuse) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (!(value >= minimum && value <= maximum)) refuse(`must be a whole number from ${minimum} to ${maximum}`)
    return value
  }
  return { env, default: String(byDefault), description, takes: `${minimum} to ${maximum}`, read }
}

function choice<const Choice extends string>(
  env: string,
  values: readonly Choice[],
  byDefault: NoInfer<Choice>,
  description: string,
): Setting<Choice> {
  const takes = values.join(', ')
  const read: Setting<Choice>['read'] = (text, refuse) => {
    const value = values.find(value => value === text)
    if (value === undefined) refuse(`must be one of ${takes}`)
    return value ?? byDefault
  }
  return { env, default: byDefault, description, takes, read }
}

function toggle(env: string, byDefault: boolean, description: string): Setting<boolean> {
  const words = choice(env, ['on', 'off'], byDefault ? 'on' : 'off', description)
  return { ...words, read: (text, refuse) => words.read(text, refuse) === 'on' }
}

/** A comma-separated list. `faultOf` returns the fault of an entry. Messages show at most 64 characters of it. */
function list(env: string, description: string, faultOf: (entry: string) => string | undefined): Setting<string[]> {
  const read: Setting<string[]>['read'] = (text, refuse) => {
    const entries = text.split(',').map(entry => entry.trim())
    const value = entries.filter(entry => entry !== '')
    for (const entry of value) {
      const fault = faultOf(entry)
      if (fault !== undefined) refuse(`${entry.slice(0, 64)} ${fault}`)
    }
    return value
  }
  return { env, default: '', description, takes: 'a list, commas between', read }
}

function optional<Value>(setting: Setting<Value>): Setting<Value | undefined> {
  return { ...setting, default: '', read: (text, refuse) => (text === '' ? undefined : setting.read(text, refuse)) }
}

function keyRingFaults(text: string): string[] {
  try {
    parseKeyRing(text)
    return []
  } catch (error) {
    if (error instanceof InvalidKeyRing) return [...error.faults]
    throw error
  }
}

function isOrigin(text: string): boolean {
  return /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text
}

/** The names of networks that `trustIn` knows. */
const PROXY_NAMES = ['loopback', 'linklocal', 'uniquelocal']

function isProxy(text: string): boolean {
  if (PROXY_NAMES.includes(text)) return true
  const [address = '', bits, ...rest] = text.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128))
}
