/**
 * Reads `DATABASE_URL`. pg knows one host only and reads unknown parameters as anything; this reads what libpq reads
 * (PostgreSQL documentation, "Connection URIs") as far as the service supports it, and names everything else as a fault:
 *
 *     postgresql://user:password@a:5432,b:5432/database?target_session_attrs=read-write&sslmode=verify-full
 *     postgresql:///database?host=/var/run/postgresql
 *
 * No message holds any part of the password.
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
] as const
type Parameter = (typeof PARAMETERS)[number]

/** Reads a connection URL. Reports every fault at once, in sentences without secrets. Never throws. */
export function parseDatabaseUrl(text: string): ParsedDatabaseUrl {
  const faults: string[] = []
  if (!SCHEME.test(text)) return { ok: false, faults: ['it does not start with postgresql://'] }
  const parts = splitUrl(text.replace(SCHEME, ''))
  const values = readValues(parts, faults)
  const hosts = readHosts(parts.hosts, values, faults)
  const url: DatabaseUrl = {
    hosts,
    ...optional('user', values.user),
    ...optional('database', values.dbname),
    targetSessionAttrs: readTarget(values.target_session_attrs, hosts.length, faults),
    ssl: readSsl(values, faults),
    ...optional('applicationName', values.application_name),
    ...optional('connectTimeoutMs', readConnectTimeout(values.connect_timeout, faults)),
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

interface UrlParts {
  user?: string
  password?: string
  hosts: string
  database: string
  query: string
}

/** Cuts the URL, its scheme already gone, at its delimiters. Nothing is decoded yet. */
function splitUrl(rest: string): UrlParts {
  const queryAt = rest.indexOf('?')
  const query = queryAt < 0 ? '' : rest.slice(queryAt + 1)
  const place = queryAt < 0 ? rest : rest.slice(0, queryAt)
  // A password may hold an unencoded "@" or "/" in practice: what comes after the last "@" is the host.
  const at = place.lastIndexOf('@')
  const userInfo = at < 0 ? '' : place.slice(0, at)
  const hostAndPath = place.slice(at + 1)
  const slash = hostAndPath.indexOf('/')
  const colon = userInfo.indexOf(':')
  const user = colon < 0 ? userInfo : userInfo.slice(0, colon)
  return {
    ...(user !== '' && { user }),
    ...(colon >= 0 && { password: userInfo.slice(colon + 1) }),
    hosts: slash < 0 ? hostAndPath : hostAndPath.slice(0, slash),
    database: slash < 0 ? '' : hostAndPath.slice(slash + 1),
    query,
  }
}

type Values = Partial<Record<Parameter, string>>

/** Decodes user, password, database and parameters into one record; a parameter given twice is a fault. */
function readValues(parts: UrlParts, faults: string[]): Values {
  const values: Values = {}
  const set = (key: Parameter, encoded: string) => {
    const value = decode(encoded)
    if (value === undefined) faults.push(`${key} holds a percent sign that starts no valid code: write %25`)
    else if (values[key] !== undefined) faults.push(`${key} is given twice`)
    else values[key] = value
  }
  if (parts.user !== undefined) set('user', parts.user)
  if (parts.password !== undefined) set('password', parts.password)
  if (parts.database !== '') set('dbname', parts.database)
  for (const pair of parts.query.split('&').filter(text => text !== '')) {
    const equals = pair.indexOf('=')
    const name = equals < 0 ? pair : pair.slice(0, equals)
    const key = PARAMETERS.find(parameter => parameter === name)
    if (!key) faults.push(unsupported(name, parts.query))
    else set(key, equals < 0 ? '' : pair.slice(equals + 1))
  }
  return values
}

function unsupported(name: string, query: string): string {
  // With an "@" in it, the query is rather the tail of a password with an unencoded "?": nothing of it is repeated.
  const shown = !query.includes('@') && /^\w{1,40}$/.test(name) ? ` ${name}` : ''
  return `the parameter${shown} is not supported; these are: ${PARAMETERS.join(', ')}`
}

function readHosts(authority: string, values: Values, faults: string[]): [DatabaseHost, ...DatabaseHost[]] {
  if (authority !== '' && values.host !== undefined) faults.push('the host is given twice')
  const hosts = authority === '' ? parameterHosts(values, faults) : authorityHosts(authority, values, faults)
  if (hosts.length > MAX_HOSTS) faults.push(`there are ${hosts.length} hosts, more than ${MAX_HOSTS}`)
  const [first, ...others] = hosts
  if (first) return [first, ...others]
  faults.push('it names no host: write one, or ?host=/folder for a Unix socket')
  return [{ host: 'localhost', port: DEFAULT_PORT }]
}

function authorityHosts(authority: string, values: Values, faults: string[]): DatabaseHost[] {
  if (values.port !== undefined) faults.push('the port is given twice')
  return authority.split(',').map((entry, index) => {
    const match = /^(\[[0-9A-Fa-f:.%]+\]|[^:[\]]*)(?::([^:]*))?$/.exec(entry)
    const host = decode(match?.[1]?.replace(/^\[|\]$/g, '') ?? '')
    if (!host) faults.push(`host ${index + 1} is no host`)
    return { host: host ?? '', port: readPort(match?.[2], index, faults) }
  })
}

function parameterHosts(values: Values, faults: string[]): DatabaseHost[] {
  if (values.host === undefined || values.host === '') return []
  const hosts = values.host.split(',')
  const ports = values.port?.split(',') ?? []
  if (ports.length > 1 && ports.length !== hosts.length) {
    faults.push(`there are ${hosts.length} hosts and ${ports.length} ports`)
  }
  return hosts.map((host, index) => {
    if (host === '') faults.push(`host ${index + 1} is empty`)
    // One port serves all hosts, as with libpq.
    return { host, port: readPort(ports.length === 1 ? ports[0] : ports[index], index, faults) }
  })
}

function readPort(text: string | undefined, index: number, faults: string[]): number {
  if (text === undefined || text === '') return DEFAULT_PORT
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  // The text is not repeated: in "user:secret" without "@host" it would be the password.
  if (port < 1 || port > 65535) faults.push(`the port of host ${index + 1} is no number from 1 to 65535`)
  return port
}

function readTarget(text: string | undefined, hostCount: number, faults: string[]): 'any' | 'read-write' {
  if (text === undefined) return hostCount > 1 ? 'read-write' : 'any'
  if (text === 'any' || text === 'read-write') return text
  faults.push('target_session_attrs must be any or read-write: the service writes')
  return 'any'
}

function readSsl(values: Values, faults: string[]): DatabaseUrl['ssl'] {
  const files = {
    ...optional('rootCertFile', values.sslrootcert),
    ...optional('certFile', values.sslcert),
    ...optional('keyFile', values.sslkey),
  }
  if ((values.sslcert === undefined) !== (values.sslkey === undefined)) {
    faults.push('sslcert and sslkey go together')
  }
  return { mode: readSslMode(values, faults), ...files }
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

function readConnectTimeout(text: string | undefined, faults: string[]): number | undefined {
  if (text === undefined) return undefined
  if (/^\d{1,4}$/.test(text) && Number(text) > 0) return Number(text) * 1000
  faults.push('connect_timeout must be a number of seconds from 1 to 9999')
  return undefined
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
