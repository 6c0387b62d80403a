/**
 * Reads `DATABASE_URL`, in the two forms of libpq (PostgreSQL documentation, "Connection Strings"):
 *
 *     postgresql://user:password@a:5432,b:5432/database?target_session_attrs=primary&sslmode=verify-full
 *     host=a,b port=5432 dbname=database user=user password='pass word'
 *
 * pg knows one host only and takes unknown parameters for anything. What is not supported is named as a fault, with what to
 * write instead. No message holds any part of the password.
 */

export interface DatabaseHost {
  /** A name, an address, or the folder of a Unix socket (it starts with `/`). */
  host: string
  port: number
}

/** How a connection is encrypted. `require` encrypts without checking the server's certificate, as libpq does. */
export type SslMode = 'disable' | 'require' | 'verify-ca' | 'verify-full'

export interface DatabaseUrl {
  hosts: [DatabaseHost, ...DatabaseHost[]]
  user?: string
  /** Not enumerable: printing the object, copying it by spread or turning it into JSON leaves it out. */
  readonly password?: string
  database?: string
  /** `read-write`: only servers that accept writes are used. The default with several hosts; with one it is `any`. */
  targetSessionAttrs: 'any' | 'read-write'
  ssl: { mode: SslMode; rootCertFile?: string; certFile?: string; keyFile?: string }
  applicationName?: string
  /** From `connect_timeout`, which is in seconds. */
  connectTimeoutMs?: number
  /** After so long a silence TCP asks whether the server is there; null: never. From `keepalives` and `keepalives_idle`. */
  keepAliveIdleMs?: number | null
  /** Options for the start of a session, as `-c search_path=agents`. */
  options?: string
}

export type ParsedDatabaseUrl = { ok: true; url: DatabaseUrl } | { ok: false; faults: string[] }

const DEFAULT_PORT = 5432
const MAX_HOSTS = 16
const SCHEME = /^postgres(?:ql)?:\/\//
const PARAMETERS = [
  'host',
  'port',
  'user',
  'password',
  'dbname',
  'target_session_attrs',
  'sslmode',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'application_name',
  'connect_timeout',
  'keepalives',
  'keepalives_idle',
  'options',
] as const
type Parameter = (typeof PARAMETERS)[number]
type Values = Partial<Record<Parameter, string>>

/** Parameters of libpq and of other programs, with what to write instead. */
const INSTEAD: Readonly<Record<string, string>> = {
  hostaddr: 'write the address as host',
  channel_binding: 'leave it out, and write sslmode=verify-full: a checked certificate keeps others out',
  client_encoding: 'leave it out: it is UTF8 always',
  connection_limit: 'leave it out, and set DATABASE_POOL_SIZE',
  gssencmode: 'leave it out: GSSAPI is not used, and sslmode says how the connection is encrypted',
  keepalives_count: 'leave it out: ten questions, one a second, are asked behind keepalives_idle',
  keepalives_interval: 'leave it out: ten questions, one a second, are asked behind keepalives_idle',
  load_balance_hosts: 'leave it out: connections go to the one server that accepts writes',
  passfile: 'write the password, or keep the whole text in a file that DATABASE_URL_FILE names',
  pgbouncer: 'leave it out, and set PREPARED_STATEMENTS=off',
  schema: 'write options=-c%20search_path=... with its name',
  service: 'write host, dbname and user',
  ssl: 'write sslmode=require, or better verify-full',
  tcp_user_timeout: 'leave it out: a server silent for STATEMENT_TIMEOUT_MS and two seconds is given up',
}

/** Reads a connection string. Reports every fault at once, in sentences without secrets. Never throws. */
export function parseDatabaseUrl(given: string): ParsedDatabaseUrl {
  const faults: string[] = []
  const text = given.trim() // a secret that was made with `echo` ends with a new line
  const pairs = SCHEME.test(text) ? urlPairs(text.replace(SCHEME, '')) : dsnPairs(text)
  if (pairs === undefined) {
    return { ok: false, faults: ['it does not start with postgresql:// and is not a list of key=value'] }
  }
  const values = readValues(pairs, faults)
  const hosts = readHosts(values, faults)
  const url: DatabaseUrl = {
    hosts,
    ...optional('user', values.user),
    ...optional('database', values.dbname),
    targetSessionAttrs: readTarget(values.target_session_attrs, hosts.length, faults),
    ssl: readSsl(values, faults),
    ...optional('applicationName', values.application_name),
    ...optional('connectTimeoutMs', readSeconds('connect_timeout', values, faults)),
    ...optional('keepAliveIdleMs', readKeepAlive(values, faults)),
    ...optional('options', values.options),
  }
  if (values.password !== undefined) Object.defineProperty(url, 'password', { value: values.password })
  return faults.length > 0 ? { ok: false, faults } : { ok: true, url }
}

/** The same place in words for a log line: no password, no certificate files. */
export function describeDatabase(url: DatabaseUrl): string {
  const user = url.user === undefined ? '' : `${url.user}@`
  const hosts = url.hosts.map(({ host, port }) => `${host.includes(':') ? `[${host}]` : host}:${port}`)
  const notes = [`sslmode=${url.ssl.mode}`, `target_session_attrs=${url.targetSessionAttrs}`]
  return `postgresql://${user}${hosts.join(',')}/${url.database ?? ''} (${notes.join(', ')})`
}

/** Names and values as they were written; a value that cannot be decoded is undefined. */
type Pairs = [name: string, value: string | undefined][]

/** The parts of a URL, its scheme already gone, under the names of parameters. */
function urlPairs(rest: string): Pairs {
  const [place, query] = cut(rest, rest.indexOf('?'))
  // A password may hold an unencoded "@" or "/" in practice: what comes after the last "@" is the host.
  const at = place.lastIndexOf('@')
  const [user, password] = cut(place.slice(0, Math.max(at, 0)), place.indexOf(':') < at ? place.indexOf(':') : -1)
  const address = place.slice(at + 1)
  const [authority, dbname] = cut(address, address.indexOf('/'))
  const parts = [['user', user], ['password', password], ['dbname', dbname], ...authorityPairs(authority)]
  const pairs: Pairs = parts.flatMap(([name = '', value]) => (value ? [[name, decode(value)]] : []))
  for (const pair of query?.split('&').filter(text => text !== '') ?? []) {
    const [name, value] = cut(pair, pair.indexOf('='))
    // With an "@" in it, the query is rather the tail of a password with an unencoded "?": nothing of it is repeated.
    pairs.push([query?.includes('@') ? '' : name, decode(value ?? '')])
  }
  return pairs
}

/** `a:1,b,[::1]:3` as a list of hosts and one of ports, each as long as the other; without ports only that of hosts. */
function authorityPairs(authority: string): string[][] {
  if (authority === '') return []
  const entries = authority.split(',').map(entry => {
    const [, host = '', port = ''] = /^(\[[0-9A-Fa-f:.%]+\]|[^:[\]]*)(?::([^:]*))?$/.exec(entry) ?? []
    return { host: host.replace(/^\[|\]$/g, ''), port }
  })
  const hosts = ['host', entries.map(({ host }) => host).join(',')]
  if (entries.every(({ port }) => port === '')) return [hosts]
  return [hosts, ['port', entries.map(({ port }) => port).join(',')]]
}

/** `key = value key='quoted \' value'`, as libpq reads it; undefined when it is something else. */
function dsnPairs(text: string): Pairs | undefined {
  const pairs: Pairs = []
  const pair = /\s*([a-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)/gy
  for (let match = pair.exec(text); match !== null; match = pair.exec(text)) {
    pairs.push([match[1] ?? '', (match[2] ?? match[3] ?? '').replaceAll(/\\(.)/g, '$1')])
    if (text.slice(pair.lastIndex).trim() === '') return pairs
  }
  return undefined
}

function readValues(pairs: Pairs, faults: string[]): Values {
  const values: Values = {}
  for (const [name, value] of pairs) {
    const key = PARAMETERS.find(parameter => parameter === name)
    if (key === undefined) faults.push(unsupported(name))
    else if (value === undefined) faults.push(`${key} holds a percent sign that starts no valid code: write %25`)
    else if (values[key] !== undefined) faults.push(`${key} is given twice`)
    else values[key] = value
  }
  return values
}

function unsupported(name: string): string {
  const instead = Object.hasOwn(INSTEAD, name) ? INSTEAD[name] : undefined
  if (instead !== undefined) return `the parameter ${name} is not supported: ${instead}`
  const shown = /^\w{1,40}$/.test(name) ? ` ${name}` : ''
  return `the parameter${shown} is not supported; these are: ${PARAMETERS.join(', ')}`
}

function readHosts({ host = '', port }: Values, faults: string[]): [DatabaseHost, ...DatabaseHost[]] {
  const names = host === '' ? [] : host.split(',')
  const ports = port?.split(',') ?? []
  if (ports.length > 1 && ports.length !== names.length) {
    faults.push(`there are ${names.length} hosts and ${ports.length} ports`)
  }
  if (names.length > MAX_HOSTS) faults.push(`there are ${names.length} hosts, more than ${MAX_HOSTS}`)
  const [first, ...others] = names.map((name, index) => {
    if (name === '') faults.push(`host ${index + 1} is empty`)
    // One port serves all hosts, as with libpq.
    return { host: name, port: readPort(ports.length === 1 ? ports[0] : ports[index], index, faults) }
  })
  if (first) return [first, ...others]
  faults.push('it names no host: write one, or ?host=/folder for a Unix socket')
  return [{ host: 'localhost', port: DEFAULT_PORT }]
}

function readPort(text: string | undefined, index: number, faults: string[]): number {
  if (text === undefined || text === '') return DEFAULT_PORT
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  // The text is not repeated: in "user:secret" without "@host" it would be the password.
  if (port < 1 || port > 65535) faults.push(`the port of host ${index + 1} is not a number from 1 to 65535`)
  return port
}

function readTarget(text: string | undefined, hostCount: number, faults: string[]): 'any' | 'read-write' {
  if (text === undefined) return hostCount > 1 ? 'read-write' : 'any'
  if (text === 'any') return 'any'
  if (text !== 'read-write' && text !== 'primary') {
    faults.push('target_session_attrs must be any, primary or read-write: the service writes')
  }
  return 'read-write'
}

function readSsl(values: Values, faults: string[]): DatabaseUrl['ssl'] {
  const { sslrootcert, sslcert, sslkey } = values
  if ((sslcert === undefined) !== (sslkey === undefined)) faults.push('sslcert and sslkey go together')
  return {
    mode: readSslMode(values, faults),
    ...optional('rootCertFile', sslrootcert),
    ...optional('certFile', sslcert),
    ...optional('keyFile', sslkey),
  }
}

function readSslMode({ sslmode, sslrootcert }: Values, faults: string[]): SslMode {
  switch (sslmode) {
    case undefined:
      if (sslrootcert !== undefined) faults.push('sslrootcert needs an sslmode: write verify-full')
      return 'disable'
    case 'require':
      // With a root certificate, libpq's `require` checks it.
      return sslrootcert === undefined ? 'require' : 'verify-ca'
    case 'no-verify':
      return 'require'
    case 'disable':
    case 'verify-ca':
    case 'verify-full':
      return sslmode
    case 'allow':
    case 'prefer':
      faults.push(`sslmode=${sslmode} is not supported, as it may silently not encrypt: write disable or require`)
      return 'disable'
    default:
      faults.push('sslmode must be disable, require, verify-ca or verify-full')
      return 'disable'
  }
}

function readKeepAlive(values: Values, faults: string[]): number | null | undefined {
  if (values.keepalives !== undefined && !/^[01]$/.test(values.keepalives)) faults.push('keepalives must be 0 or 1')
  const idleMs = readSeconds('keepalives_idle', values, faults)
  return values.keepalives === '0' ? null : idleMs
}

function readSeconds(name: Parameter, values: Values, faults: string[]): number | undefined {
  const { [name]: text } = values
  if (text === undefined) return undefined
  if (/^\d{1,4}$/.test(text) && Number(text) > 0) return Number(text) * 1000
  faults.push(`${name} must be a number of seconds from 1 to 9999`)
  return undefined
}

/** What stands before and behind a delimiter; all of it before, when there is none. */
function cut(text: string, at: number): [string, string | undefined] {
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)]
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

/** `{ [key]: value }`, or nothing when the value is undefined. */
function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  // A computed key widens to string; K is what was given.
  return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V }
}
