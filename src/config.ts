import { isIP } from 'node:net'
import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

/**
 * Every setting, as the environment names it, with its default and its bounds. The unit is in the name.
 * `agentctl config` prints them all; the README names the most used.
 */
const Settings = Type.Object({
  HOST: Type.String({ default: '127.0.0.1', description: 'Address to listen on.' }),
  PORT: Type.Integer({ default: 8080, minimum: 0, maximum: 65535, description: 'Port; 0 picks a free one.' }),
  DATABASE_URL: Type.Optional(
    Type.String({ description: 'PostgreSQL 15 or later; may name several hosts. Absent: the embedded server.' }),
  ),
  DATA_DIR: Type.String({ default: '.data', description: 'Folder of the embedded database and its key file.' }),
  PG_BIN_DIR: Type.Optional(Type.String({ description: 'PostgreSQL binaries for the embedded server.' })),
  LOG_LEVEL: choice(
    ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
    'info',
    'Least level that is logged.',
  ),
  DEMO: choice(['on', 'off'], 'on', 'Load the demo organisation into an empty embedded database.'),
  MIGRATE_ON_START: choice(['on', 'off'], 'off', 'Migrate an external database at start; the embedded one always is.'),
  SECRET_KEYS: Type.Optional(
    Type.String({ description: 'Key ring, `id:base64,...`; the first encrypts, all decrypt.' }),
  ),
  SECRET_KEYS_FILE: Type.Optional(Type.String({ description: 'File with the key ring, one `id:base64` a line.' })),
  REQUIRE_IF_MATCH: choice(['on', 'off'], 'off', 'Refuse updates without If-Match (428).'),
  PREPARED_STATEMENTS: choice(['on', 'off'], 'on', 'Off behind PgBouncer in transaction mode.'),
  DATABASE_POOL_SIZE: count(16, 1, 500, 'Connections to the database.'),
  DATABASE_CONNECT_TIMEOUT_MS: count(5_000, 100, 120_000, 'Wait for a connection, new or from the pool.'),
  STATEMENT_TIMEOUT_MS: count(10_000, 100, 600_000, 'Longest time of one statement.'),
  LOCK_TIMEOUT_MS: count(5_000, 50, 600_000, 'Longest wait for a row lock.'),
  IDLE_IN_TRANSACTION_TIMEOUT_MS: count(10_000, 100, 600_000, 'Longest pause inside a transaction.'),
  PERSONA_BODY_LIMIT_BYTES: count(4 * 1024 * 1024, 1024, 64 * 1024 * 1024, 'Largest body of an agent update.'),
  TOOL_BODY_LIMIT_BYTES: count(5 * 1024 * 1024, 1024, 64 * 1024 * 1024, 'Largest body of the two tool operations.'),
  LIST_ITEMS_MAX: count(1_000, 1, 10_000, 'Items of one list of ids in an agent update.'),
  JSON_DEPTH_MAX: count(64, 8, 200, 'Objects and lists inside each other in a body.'),
  DEFINITION_DEPTH_MAX: count(128, 8, 200, 'Objects and lists inside each other in a tool definition.'),
  DEFINITION_OPERATIONS_MAX: count(5_000, 1, 100_000, 'Operations of one tool definition.'),
  RATE_LIMIT_PER_MINUTE: count(600, 0, 1_000_000, 'Requests of one token a minute and process; 0 is off.'),
  FAILED_AUTH_LIMIT_PER_MINUTE: count(20, 0, 1_000_000, 'Failed authentications of one address a minute; 0 is off.'),
  RATE_LIMIT_KEYS_MAX: count(10_000, 100, 1_000_000, 'Tokens, and addresses, that the rate limits count at once.'),
  TRUST_PROXY: Type.String({
    default: '',
    description: 'Proxies whose X-Forwarded-For is believed: addresses, networks, `loopback`; commas between.',
  }),
  CORS_ORIGINS: Type.String({
    default: '',
    description: 'Origins whose pages may call from a browser, such as https://console.example.com; commas between.',
  }),
  METRICS_TOKEN: Type.Optional(
    Type.String({ minLength: 16, description: 'Bearer token of /metrics for other than loopback peers.' }),
  ),
  METRICS_PORT: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 65535, description: 'Own port for /metrics; 0 picks a free one.' }),
  ),
  CONCURRENT_REQUESTS_MAX: count(1_000, 1, 100_000, 'Requests in work at once; more answer 503.'),
  CONNECTIONS_MAX: count(5_000, 1, 1_000_000, 'Open client connections.'),
  HEADERS_TIMEOUT_MS: count(10_000, 100, 600_000, 'Longest time to send the headers of a request.'),
  REQUEST_TIMEOUT_MS: count(30_000, 100, 600_000, 'Longest time to send a whole request.'),
  STALL_TIMEOUT_MS: count(60_000, 100, 600_000, 'Longest silence of a connection with a request in work.'),
  KEEP_ALIVE_TIMEOUT_MS: count(72_000, 0, 600_000, 'Idle time after which a connection is closed.'),
  DRAIN_DELAY_MS: count(
    1_000,
    0,
    600_000,
    'After SIGTERM, how long to serve on while the readiness probe already fails.',
  ),
  SHUTDOWN_TIMEOUT_MS: count(10_000, 100, 600_000, 'Longest time to finish what is in work at the end.'),
  AUDIT_RETENTION_DAYS: count(400, 1, 100_000, 'Age at which audit rows are pruned.'),
  HISTORY_VERSIONS_MAX: count(100, 1, 100_000, 'Old contents kept of one agent or tool.'),
  HISTORY_BYTES_MAX: count(64 * 1024 * 1024, 1024, 1024 ** 4, 'Size of the old contents kept of one agent or tool.'),
})

export type Config = Static<typeof Settings>

/** The environment does not make a configuration. Names every fault, never a value that may be secret. */
export class InvalidConfiguration extends Error {
  constructor(readonly faults: string[]) {
    super(`The environment is not usable:\n${faults.map(fault => `  ${fault}`).join('\n')}`)
  }
}

/**
 * Makes the configuration from an environment. Pure. An empty value counts as absent; whole numbers are read from
 * decimal text and nothing else. Throws `InvalidConfiguration` with every fault at once.
 */
export function readConfig(env: Record<string, string | undefined>): Config {
  const faults: string[] = []
  const entries = Object.entries(Settings.properties).flatMap(([name, schema]: [string, TSchema]) => {
    const text = env[name]
    if (text === undefined || text === '') return schema.default === undefined ? [] : [[name, schema.default]]
    const value = schema.type === 'integer' ? (/^\d{1,15}$/.test(text) ? Number(text) : Number.NaN) : text
    if (!Value.Check(schema, value)) {
      faults.push(`${name}: ${expectation(schema)}`)
      return []
    }
    return [[name, value]]
  })
  if (env.SECRET_KEYS && env.SECRET_KEYS_FILE) faults.push('SECRET_KEYS and SECRET_KEYS_FILE exclude each other')
  if (faults.length === 0) faults.push(...contradictions(Object.fromEntries(entries) as Config)) // checked above
  if (faults.length > 0) throw new InvalidConfiguration(faults)
  return Object.fromEntries(entries) as Config // every entry was checked against its schema above
}

/** What no setting shows by itself. */
function contradictions(config: Config): string[] {
  const faults: string[] = []
  if (config.HEADERS_TIMEOUT_MS > config.REQUEST_TIMEOUT_MS) {
    faults.push('HEADERS_TIMEOUT_MS: must not be more than REQUEST_TIMEOUT_MS')
  }
  if (config.METRICS_PORT !== 0 && config.METRICS_PORT === config.PORT) {
    faults.push('METRICS_PORT: must not be that of PORT')
  }
  for (const proxy of proxiesOf(config).filter(proxy => !isProxy(proxy))) {
    faults.push(`TRUST_PROXY: ${proxy.slice(0, 64)} is no address, no network (10.0.0.0/8) and none of ${PROXY_NAMES}`)
  }
  for (const origin of originsOf(config).filter(origin => !isOrigin(origin))) {
    faults.push(`CORS_ORIGINS: ${origin.slice(0, 64)} is no origin such as https://console.example.com`)
  }
  return faults
}

/** The origins that `CORS_ORIGINS` names, without blanks. */
export function originsOf({ CORS_ORIGINS }: Pick<Config, 'CORS_ORIGINS'>): string[] {
  return listed(CORS_ORIGINS)
}

function isOrigin(text: string): boolean {
  return /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text
}

/** The proxies that `TRUST_PROXY` names, without blanks. */
export function proxiesOf({ TRUST_PROXY }: Pick<Config, 'TRUST_PROXY'>): string[] {
  return listed(TRUST_PROXY)
}

function listed(text: string): string[] {
  return text
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
}

/** Names of networks that Fastify knows: 127.0.0.1/8 and ::1; 169.254.0.0/16; the private networks. */
const PROXY_NAMES = ['loopback', 'linklocal', 'uniquelocal']

function isProxy(text: string): boolean {
  if (PROXY_NAMES.includes(text)) return true
  const [address = '', bits, ...rest] = text.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128))
}

/** The settings for people: name, default and meaning. */
export function describeSettings(): { name: string; default: string; description: string }[] {
  return Object.entries(Settings.properties).map(([name, schema]: [string, TSchema]) => ({
    name,
    default: schema.default === undefined ? '' : String(schema.default),
    description: schema.description ?? '',
  }))
}

function expectation(schema: TSchema): string {
  if (schema.enum) return `must be one of ${schema.enum.join(', ')}`
  if (schema.type === 'integer') return `must be a whole number from ${schema.minimum} to ${schema.maximum}`
  return `must be a text of at least ${schema.minLength} characters`
}

function count(byDefault: number, minimum: number, maximum: number, description: string) {
  return Type.Integer({ default: byDefault, minimum, maximum, description })
}

function choice<const Choice extends string>(
  values: readonly Choice[],
  byDefault: NoInfer<Choice>,
  description: string,
) {
  return Type.Unsafe<Choice>(
    Type.String({ enum: values, pattern: `^(${values.join('|')})$`, default: byDefault, description }),
  )
}
