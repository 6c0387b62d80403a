import type { ClientConfig } from 'pg'
import { parse, toClientConfig } from 'pg-connection-string'

export interface DatabaseAddress {
  config: ClientConfig
  description: string
  writesOnly: boolean
  /** Limits the time to open a connection, and the time to wait for a free one. */
  connectTimeoutMs: number
}

/** `warnings` tell the operator about risks of an accepted URL. */
export type ParsedDatabaseUrl =
  | { ok: true; address: DatabaseAddress; warnings: string[] }
  | { ok: false; faults: string[] }

/** The accepted parameters. `form` matches valid values. `otherwise` states what the value must be. */
const PARAMETERS: Readonly<Record<string, readonly [form: RegExp, otherwise: string] | null>> = {
  host: [/^[^,]+$/, 'must be one address, such as the address of the primary'],
  port: [/^[1-9]\d{0,4}$/, 'must be from 1 to 65535'],
  user: null,
  password: null,
  // `require` encrypts without verifying the server's certificate, as in libpq.
  sslmode: [/^(disable|require|verify-ca|verify-full)$/, 'must be disable, require, verify-ca or verify-full'],
  sslrootcert: null,
  sslcert: null,
  sslkey: null,
  channel_binding: [/^(disable|prefer|require)$/, 'must be disable, prefer or require'],
  target_session_attrs: [/^(any|primary|read-write)$/, 'must be any, primary or read-write (the service writes)'],
  application_name: null,
  connect_timeout: [/^[1-9]\d{0,3}$/, 'must be a number of seconds from 1 to 9999'],
  options: null,
}

const CONNECT_TIMEOUT_S = 5

const NOT_A_URL =
  'it is not a URL like postgresql://user:password@host:5432/database with one host; ' +
  'in a password, write "/" as %2F, "?" as %3F, "#" as %23, "@" as %40 and "%" as %25'

/** Parses `DATABASE_URL` and reads the certificate files that it names. Faults are sentences without secrets. Never throws. */
export function parseDatabaseUrl(given: string): ParsedDatabaseUrl {
  const text = given.trim() // text from `echo` ends with a newline
  const url = /^postgres(?:ql)?:\/\/[^#]*$/.test(text) && URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || url.pathname.slice(1).includes('/')) return { ok: false, faults: [NOT_A_URL] }
  const { searchParams } = url
  const faults = [...searchParams].flatMap(([name, value]) => {
    const [form, otherwise] = PARAMETERS[name] ?? []
    if (!Object.hasOwn(PARAMETERS, name)) return [unsupported(name, url)]
    return form?.test(value) === false ? [`${name} ${otherwise}`] : []
  })
  const sslmode = searchParams.get('sslmode')
  const binding = searchParams.get('channel_binding') ?? 'disable'
  if (!url.hostname && !searchParams.get('host'))
    faults.push('it has no host: add a host, or ?host=/folder for a Unix socket')
  if (url.hostname.includes(',')) faults.push(`host ${PARAMETERS.host?.[1]}`)
  if ((sslmode ?? 'disable') === 'disable' && (searchParams.has('sslrootcert') || binding === 'require'))
    faults.push('sslrootcert and channel_binding=require need TLS: set sslmode=verify-full')
  if (sslmode === 'verify-ca' && !searchParams.has('sslrootcert')) faults.push('sslmode=verify-ca needs sslrootcert')
  if (faults.length > 0) return { ok: false, faults }
  if (searchParams.get('sslrootcert') === 'system') searchParams.delete('sslrootcert') // without the parameter, Node uses its own certificates
  try {
    const parsed = toClientConfig(parse(url.href, { useLibpqCompat: true }))
    const config = { port: 5432, ssl: false, ...parsed, enableChannelBinding: binding !== 'disable' }
    const { user, host = '', port, database = '' } = config
    const at = `${user ? `${user}@` : ''}${host.includes(':') ? `[${host}]` : host}:${port}`
    const description = `postgresql://${at}/${database} (sslmode=${sslmode ?? 'disable'})`
    const isLocal = /^(localhost|::1|127\..*|\/.*)$/.test(host)
    const warnings = sslmode === null && !isLocal ? [UNENCRYPTED] : []
    const writesOnly = (searchParams.get('target_session_attrs') ?? 'any') !== 'any'
    const connectTimeoutMs = 1_000 * Number(searchParams.get('connect_timeout') ?? CONNECT_TIMEOUT_S)
    return { ok: true, address: { config, description, writesOnly, connectTimeoutMs }, warnings }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const isFile = code?.startsWith('E') && !code.startsWith('ERR_')
    return { ok: false, faults: [isFile ? `a certificate or key cannot be read: ${message}` : NOT_A_URL] }
  }
}

const UNENCRYPTED =
  'names a remote host and no sslmode, so nothing is encrypted: set sslmode=verify-full, or, to accept this, sslmode=disable'

/** Returns the fault of an unknown parameter. Omits the parameter's name if it can be the rest of a password that contains `?`. */
function unsupported(name: string, url: URL): string {
  const shown = /^\w{1,40}$/.test(name) && !url.search.includes('@') ? `the parameter ${name}` : 'a parameter'
  return `${shown} is not supported; use only these parameters: ${Object.keys(PARAMETERS).join(', ')}`
}
