import { readFileSync } from 'node:fs'
import type { ConnectionOptions } from 'node:tls'

/** The parsed `DATABASE_URL`. */
export interface DatabaseUrl {
  /** A name, an address, or the folder of a Unix socket (it starts with `/`). */
  host: string
  port: number
  user?: string
  /** Not enumerable, so that printing, spreading or serializing the object leaves it out. */
  readonly password?: string
  database?: string
  /** True if a server that accepts no writes is refused. */
  writesOnly: boolean
  ssl: { mode: (typeof SSL_MODES)[number]; rootCertFile?: string; certFile?: string; keyFile?: string }
  /** True if the login is bound to the encrypted connection, provided that the server offers it. */
  channelBinding: boolean
  applicationName?: string
  /** From `connect_timeout`, which is in seconds. */
  connectTimeoutMs?: number
  /** Options for the start of a session, such as `-c search_path=agents`. */
  options?: string
}

/** The supported values of `sslmode`. `require` encrypts without checking the server's certificate, as in libpq. */
const SSL_MODES = ['disable', 'require', 'verify-ca', 'verify-full'] as const

/** `warnings` are sentences for the operator about an accepted URL. */
export type ParsedDatabaseUrl = { ok: true; url: DatabaseUrl; warnings: string[] } | { ok: false; faults: string[] }

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
  'channel_binding',
  'application_name',
  'connect_timeout',
  'options',
] as const

const NOT_A_URL =
  'it is not a URL like postgresql://user:password@host:5432/database with one host; ' +
  'characters such as / ? # @ and % in a password are written as %2F %3F %23 %40 and %25'

/** Parses `DATABASE_URL`. Returns all faults as sentences without secrets. Never throws. */
export function parseDatabaseUrl(given: string): ParsedDatabaseUrl {
  const url = urlOf(given.trim()) // a secret written with `echo` ends with a newline
  if (url === undefined) return { ok: false, faults: [NOT_A_URL] }
  const faults: string[] = []
  const values: Partial<Record<string, string>> = {}
  const put = (name: string, value: string): void => {
    if (value === '') return
    if (values[name] !== undefined) faults.push(`${name} is given twice`)
    values[name] = value
  }
  const parts = { user: url.username, password: url.password, host: url.hostname, port: url.port }
  for (const [name, value] of Object.entries({ ...parts, dbname: url.pathname.slice(1) })) {
    put(name, decoded(value.replace(/^\[(.*)\]$/, '$1')) ?? '')
    if (decoded(value) === undefined) faults.push(`${name} holds a percent sign that starts no valid code: write %25`)
  }
  for (const [name, value] of url.searchParams) {
    if (PARAMETERS.some(known => known === name)) put(name, value)
    else faults.push(unsupported(name, url))
  }
  const { host = '', port = '5432', password, sslmode = 'disable', connect_timeout: timeout } = values
  const { target_session_attrs: target = 'any', sslrootcert, sslcert, sslkey, channel_binding: binding } = values
  if (host === '') faults.push('it names no host: write one, or ?host=/folder for a Unix socket')
  if (host.includes(',')) faults.push('it names several hosts: name one address that leads to the server in use')
  if (!/^\d{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65535)
    faults.push('the port is not from 1 to 65535')
  if (!['any', 'primary', 'read-write'].includes(target)) {
    faults.push('target_session_attrs must be any, primary or read-write: the service writes')
  }
  const mode = SSL_MODES.find(mode => mode === sslmode)
  if (mode === undefined) faults.push(`sslmode must be ${SSL_MODES.join(', ')}: others may silently not encrypt`)
  if (sslrootcert !== undefined && sslmode === 'disable') faults.push('sslrootcert needs an sslmode: write verify-full')
  if ((sslcert === undefined) !== (sslkey === undefined)) faults.push('sslcert and sslkey go together')
  if (binding !== undefined && !['disable', 'prefer', 'require'].includes(binding))
    faults.push('channel_binding must be disable, prefer or require')
  if (binding === 'require' && sslmode === 'disable') faults.push('channel_binding=require needs an sslmode')
  if (timeout !== undefined && !/^[1-9]\d{0,3}$/.test(timeout)) {
    faults.push('connect_timeout must be a number of seconds from 1 to 9999')
  }
  if (faults.length > 0 || mode === undefined) return { ok: false, faults }
  const read: DatabaseUrl = {
    host,
    port: Number(port),
    ...(values.user !== undefined && { user: values.user }),
    ...(values.dbname !== undefined && { database: values.dbname }),
    writesOnly: target !== 'any',
    ssl: {
      // If a root certificate is given, libpq's `require` checks it.
      mode: mode === 'require' && sslrootcert !== undefined ? 'verify-ca' : mode,
      ...(sslrootcert !== undefined && { rootCertFile: sslrootcert }),
      ...(sslcert !== undefined && { certFile: sslcert }),
      ...(sslkey !== undefined && { keyFile: sslkey }),
    },
    channelBinding: sslmode !== 'disable' && binding !== undefined && binding !== 'disable',
    ...(values.application_name !== undefined && { applicationName: values.application_name }),
    ...(timeout !== undefined && { connectTimeoutMs: Number(timeout) * 1_000 }),
    ...(values.options !== undefined && { options: values.options }),
  }
  if (password !== undefined) Object.defineProperty(read, 'password', { value: password })
  const warnings: string[] = []
  if (values.sslmode === undefined && !isLocal(host))
    warnings.push('names another host without sslmode, so nothing is encrypted: set sslmode=verify-full, or disable')
  if (binding === 'require')
    warnings.push('channel_binding=require is used where the server offers it, and not enforced where it does not')
  return { ok: true, url: read, warnings }
}

/** True if the connection does not leave this machine. */
function isLocal(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.') || host.startsWith('/')
}

/** The URL for a log line, without password and certificate files. */
export function describeDatabase({ user, host, port, database = '', ssl }: DatabaseUrl): string {
  const at = user === undefined ? '' : `${user}@`
  return `postgresql://${at}${host.includes(':') ? `[${host}]` : host}:${port}/${database} (sslmode=${ssl.mode})`
}

/** The TLS options for pg. Reads the certificate files, and throws if one is unreadable. */
export function sslOptions({ ssl }: DatabaseUrl): false | ConnectionOptions {
  if (ssl.mode === 'disable') return false
  return {
    rejectUnauthorized: ssl.mode !== 'require',
    ...(ssl.mode === 'verify-ca' && { checkServerIdentity: () => undefined }),
    // `system` means the certificates that the runtime trusts, as in libpq.
    ...(ssl.rootCertFile && ssl.rootCertFile !== 'system' && { ca: readFileSync(ssl.rootCertFile) }),
    ...(ssl.certFile && { cert: readFileSync(ssl.certFile) }),
    ...(ssl.keyFile && { key: readFileSync(ssl.keyFile) }),
  }
}

function urlOf(text: string): URL | undefined {
  if (!/^postgres(?:ql)?:\/\//.test(text) || text.includes('#') || !URL.canParse(text)) return undefined
  const url = new URL(text)
  return url.pathname.slice(1).includes('/') ? undefined : url
}

/** Shows an unknown name only if it cannot be part of a password with an unencoded `?`. */
function unsupported(name: string, url: URL): string {
  const shown = /^\w{1,40}$/.test(name) && !url.search.includes('@') ? ` ${name}` : ''
  return `the parameter${shown} is not supported; these are: ${PARAMETERS.join(', ')}`
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
