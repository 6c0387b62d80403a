import type { ConnectionOptions } from 'node:tls'
import { parse } from 'pg-connection-string'

/** The parsed `DATABASE_URL`. */
export interface DatabaseUrl {
  /** A name, an address, or the folder of a Unix socket (it starts with `/`). */
  host: string
  port: number
  user?: string
  database?: string
  /** True if a server that accepts no writes is refused. */
  writesOnly: boolean
  sslmode: string
  /** True if the login is bound to the encrypted connection, provided that the server offers it. */
  channelBinding: boolean
  applicationName?: string
  /** From `connect_timeout`, which is in seconds. */
  connectTimeoutMs?: number
  /** Options for the start of a session, such as `-c search_path=agents`. */
  options?: string
  /** These two are not enumerable, so that printing, spreading or serializing the object leaves them out. */
  readonly password?: string
  readonly ssl: false | ConnectionOptions
}

/** `warnings` are sentences for the operator about an accepted URL. */
export type ParsedDatabaseUrl = { ok: true; url: DatabaseUrl; warnings: string[] } | { ok: false; faults: string[] }

/** The accepted parameters. Those with a form have the end of a sentence about other values. */
const PARAMETERS: Readonly<Record<string, readonly [form: RegExp, otherwise: string] | null>> = {
  host: [/^[^,]+$/, 'must name one address, which leads to the server in use'],
  port: [/^[1-9]\d{0,4}$/, 'must be from 1 to 65535'],
  user: null,
  password: null,
  target_session_attrs: [/^(any|primary|read-write)$/, 'must be any, primary or read-write: the service writes'],
  // `require` encrypts without checking the server's certificate, as in libpq.
  sslmode: [
    /^(disable|require|verify-ca|verify-full)$/,
    'must be disable, require, verify-ca or verify-full: others may silently not encrypt',
  ],
  sslrootcert: null,
  sslcert: null,
  sslkey: null,
  channel_binding: [/^(disable|prefer|require)$/, 'must be disable, prefer or require'],
  application_name: null,
  connect_timeout: [/^[1-9]\d{0,3}$/, 'must be a number of seconds from 1 to 9999'],
  options: null,
}

const NOT_A_URL =
  'it is not a URL like postgresql://user:password@host:5432/database with one host; ' +
  'characters such as / ? # @ and % in a password are written as %2F %3F %23 %40 and %25'

/** Parses `DATABASE_URL` and reads the certificates that it names. Returns the faults as sentences without secrets. Never throws. */
export function parseDatabaseUrl(given: string): ParsedDatabaseUrl {
  const text = given.trim() // a secret written with `echo` ends with a newline
  const url = /^postgres(?:ql)?:\/\/[^#]*$/.test(text) && URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || url.pathname.slice(1).includes('/')) return { ok: false, faults: [NOT_A_URL] }
  const values: Record<string, string | undefined> = Object.fromEntries(url.searchParams)
  const { sslmode = 'disable', channel_binding: binding = 'disable', connect_timeout: timeout } = values
  const faults = [...url.searchParams].flatMap(([name, value]) => {
    const [form, otherwise] = PARAMETERS[name] ?? []
    if (!Object.hasOwn(PARAMETERS, name)) return [unsupported(name, url)]
    return form?.test(value) === false ? [`${name} ${otherwise}`] : []
  })
  if (url.hostname === '' && !values.host)
    faults.push('it names no host: write one, or ?host=/folder for a Unix socket')
  if (url.hostname.includes(',')) faults.push(`host ${PARAMETERS.host?.[1]}`)
  if (sslmode === 'disable' && (values.sslrootcert || binding === 'require'))
    faults.push('sslrootcert and channel_binding=require need an sslmode: write verify-full')
  if (faults.length > 0) return { ok: false, faults }
  if (values.sslrootcert === 'system') url.searchParams.delete('sslrootcert') // Node's own, as in libpq
  try {
    const { host, port, user, password, database, ssl } = parse(url.href, { useLibpqCompat: true })
    const read = {
      host: host ?? '',
      port: Number(port || 5432),
      ...(user && { user }),
      ...(database && { database }),
      writesOnly: (values.target_session_attrs ?? 'any') !== 'any',
      sslmode,
      channelBinding: sslmode !== 'disable' && binding !== 'disable',
      ...(values.application_name && { applicationName: values.application_name }),
      ...(timeout && { connectTimeoutMs: Number(timeout) * 1_000 }),
      ...(values.options && { options: values.options }),
    }
    const secrets = { ...(password && { password: { value: password } }), ssl: { value: ssl || false } }
    return { ok: true, url: Object.defineProperties(read, secrets) as DatabaseUrl, warnings: warningsOf(read, values) }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code?.startsWith('E') && !code.startsWith('ERR_'))
      return { ok: false, faults: [`a certificate or key cannot be read: ${message}`] }
    return { ok: false, faults: [message.startsWith('SECURITY') ? 'sslmode=verify-ca needs sslrootcert' : NOT_A_URL] }
  }
}

function warningsOf(
  { host }: { host: string },
  { sslmode, channel_binding: binding }: Partial<Record<string, string>>,
) {
  const warnings: string[] = []
  const isLocal = host === 'localhost' || host === '::1' || host.startsWith('127.') || host.startsWith('/')
  if (sslmode === undefined && !isLocal)
    warnings.push('names another host without sslmode, so nothing is encrypted: set sslmode=verify-full, or disable')
  if (binding === 'require')
    warnings.push('channel_binding=require is used where the server offers it, and not enforced where it does not')
  return warnings
}

/** The URL for a log line, without password and certificate files. */
export function describeDatabase({ user, host, port, database = '', sslmode }: DatabaseUrl): string {
  const at = user === undefined ? '' : `${user}@`
  return `postgresql://${at}${host.includes(':') ? `[${host}]` : host}:${port}/${database} (sslmode=${sslmode})`
}

/** Shows an unknown name only if it cannot be part of a password with an unencoded `?`. */
function unsupported(name: string, url: URL): string {
  const shown = /^\w{1,40}$/.test(name) && !url.search.includes('@') ? ` ${name}` : ''
  return `the parameter${shown} is not supported; these are: ${Object.keys(PARAMETERS).join(', ')}`
}
