import { BlockList, isIP } from 'node:net'
import { type Findings, faultOf } from './findings.js'
import { isObject, parsedUrl, References, type Schema } from './references.js'
import { DEFINITION_LIMITS, type FaultRule } from './rules.js'

const RELATIVE = 'http://relative.invalid/'
const RELATIVE_HOST = 'relative.invalid'
const VARIABLE = /\{([^{}]*)\}/g
/** Characters that URL parsers remove or replace. */
const UNCLEAR = /[\0- \x7f\\]/
/** Matches user info after a scheme or two slashes, even if the rest of the address cannot be parsed. */
const USER_INFO = /^(?:[a-z][\w+.-]*:[/\\]*|[/\\]{2,})[^/\\?#]*@/i
const ADDRESSES_MAX = 256
const ABSOLUTE = /^https?:\/\/[^\0- \x7f\\/]/i
const ORDINARY_PATH = /^\/[\w.~$:{}()*,;=@%!'&+-]+(?:\/|$)/
/** Matches API keys of some vendors in an address or path. Sample keys without digits do not match. */
export const SECRET = /(?<![^/?#&;=:])(?:sk-|ghp_|xoxb-|AKIA|AIza)(?=[\w-]*\d)[\w-]{6,}/

const METADATA_NAMES = ['metadata.google.internal', 'metadata.goog', 'instance-data.ec2.internal']
/** Link-local networks and cloud metadata addresses, in their IPv4 and IPv6 forms. */
const METADATA = new BlockList()
for (const [address, bits, words] of [
  ['169.254.0.0', 16, 'a9fe:0'],
  ['100.100.100.200', 32, '6464:64c8'],
  ['168.63.129.16', 32, 'a83f:8110'],
  ['192.0.0.192', 32, 'c000:c0'],
] as const) {
  METADATA.addSubnet(address, bits)
  for (const prefix of ['::', '::ffff:', '::ffff:0:', '64:ff9b::'])
    METADATA.addSubnet(prefix + words, 96 + bits, 'ipv6')
  METADATA.addSubnet(`2002:${words}::`, 16 + bits, 'ipv6')
}
// The prefix 64:ff9b:1::/48 (local NAT64) can embed IPv4 addresses in several ways, so the whole prefix is blocked.
const NETWORKS = { 'fe80::': 10, 'fd00:ec2::254': 128, 'fd20:ce::254': 128, '64:ff9b:1::': 48 }
for (const [address, bits] of Object.entries(NETWORKS)) METADATA.addSubnet(address, bits, 'ipv6')

export interface Address {
  readonly text: string
  /** The name of the first variable without a default. `text` contains a dummy value for each such variable. */
  readonly unfilled?: string | undefined
}

/**
 * Checks only the first server of a list, because calls go only to this server. Returns its addresses (`addressesOf`), or an empty list if
 * there is a fault.
 */
export function checkServers(servers: unknown, document: object, findings: Findings): readonly Address[] {
  const [server] = Array.isArray(servers) ? servers : []
  const isMissing = servers === undefined || (Array.isArray(servers) && servers.length === 0)
  if (Array.isArray(servers) && servers.length > 1) findings.warn('server_ignored', servers, [1])
  if (isMissing) findings.fault('servers_missing', document, ['servers'])
  else if (!Array.isArray(servers)) findings.fault('list_type', document, ['servers'])
  else if (!isObject(server) || server.$ref !== undefined) findings.fault('dict_type', servers, [0])
  else return checkServer(server, findings)
  return []
}

function checkServer(server: Schema, findings: Findings): readonly Address[] {
  const { url } = server
  const expanded = expand(server)
  const addresses = typeof expanded === 'string' ? [] : expanded
  const [address] = addresses
  const unusable = addresses.find(wrongWith)
  const wrong = unusable && wrongWith(unusable)
  // An empty URL is allowed, because it is a relative URL.
  if (url === undefined || (typeof url === 'string' && /^\s+$/.test(url)))
    findings.fault('server_url_missing', server, ['url'])
  else if (typeof url !== 'string') findings.fault('string_type', server, ['url'])
  else if (expanded === 'server_url_invalid.many') findings.fault(expanded, server, ['url'], ADDRESSES_MAX)
  else if (address === undefined)
    findings.fault('server_url_invalid.length', server, ['url'], DEFINITION_LIMITS.keyCharacters)
  else if (wrong !== undefined) findings.fault(wrong, server, ['url'], UNCLEAR.exec(unusable?.text ?? '')?.[0])
  else {
    if (address.unfilled !== undefined) findings.warn('address_incomplete.variable', server, ['url'], address.unfilled)
    else if (parsed(address.text)?.host === RELATIVE_HOST) findings.warn('address_incomplete.relative', server, ['url'])
    return addresses
  }
  return []
}

/**
 * Returns the addresses of a server, one for each combination of its variables' values. The address with the default values comes first. Returns an
 * empty list if the URL is missing, or if the addresses are too long or too many.
 */
export function addressesOf(server: unknown): readonly Address[] {
  const addresses = expand(server)
  return typeof addresses === 'string' ? [] : addresses
}

function expand(server: unknown): readonly Address[] | FaultRule {
  const { url, variables }: Schema = isObject(server) ? server : {}
  if (typeof url !== 'string' || url.length > DEFINITION_LIMITS.keyCharacters) return []
  const parts = url.split(VARIABLE) // literal text and variable names alternate
  let addresses: Address[] = [{ text: '' }]
  for (const [index, part] of parts.entries()) {
    const ends = index % 2 === 0 ? [{ text: part }] : valuesOf(variables, parts, index)
    if (addresses.length * ends.length > ADDRESSES_MAX) return 'server_url_invalid.many'
    addresses = ends.flatMap(end =>
      addresses.map(({ text, unfilled = end.unfilled }) => ({ text: text + end.text, unfilled })),
    )
    if (addresses.some(({ text }) => text.length > DEFINITION_LIMITS.keyCharacters)) return []
  }
  return addresses
}

/** Returns a variable's values, beginning with its default. A dummy value replaces a missing default. */
function valuesOf(variables: unknown, parts: readonly string[], index: number): Address[] {
  const name = parts[index] ?? ''
  const variable = isObject(variables) && Object.hasOwn(variables, name) ? variables[name] : undefined
  const { default: first, enum: listed }: Schema = isObject(variable) ? variable : {}
  const isText = (value: unknown) => typeof value === 'string' || typeof value === 'number'
  const values = [first, ...(Array.isArray(listed) ? listed : [])].filter(isText).map(String)
  const known = [...new Set(values)].map(text => ({ text }))
  if (isText(first)) return known
  const isScheme = index === 1 && parts[0] === '' && parts[2]?.startsWith(':')
  const text = isScheme ? 'https' : parts[index - 1]?.endsWith(':') ? '443' : 'variable'
  return [{ text, unfilled: name }, ...known]
}

/** Returns the first server's address with all variables set to their defaults. If a default is missing, returns the URL as written. */
export function serverOf(definition: unknown): string {
  const server: unknown = Object(Object(Object(definition).servers)[0])
  const { text = '', unfilled } = addressesOf(server)[0] ?? {}
  return unfilled === undefined ? text : String(Object(server).url)
}

/** Joins a server's address and a path without doubling the slash between them. */
export function joined(address: string, path: string): string {
  return (path.startsWith('/') ? address.replace(/\/+$/, '') : address) + path
}

function wrongWith({ text, unfilled }: Address): FaultRule | undefined {
  if (USER_INFO.test(text)) return 'server_url_invalid.user'
  if (UNCLEAR.test(text)) return 'server_url_invalid.characters'
  if (!/^https?:/i.test(text) && /^[^/?#]*:/.test(text)) return 'server_url_invalid.scheme'
  const url = parsed(text)
  if (url === undefined) return unfilled === undefined ? 'server_url_invalid.url' : undefined
  if (/[?#]/.test(text)) return 'server_url_invalid.query'
  if (SECRET.test(text)) return 'server_url_invalid.secret'
  if (isMetadata(url.hostname)) return 'server_url_invalid.metadata'
  return url.host.includes('{') ? 'server_url_invalid.url' : undefined
}

/** Returns the reason why an absolute address is unusable as a server; undefined if it is usable. */
export function unusableServer(url: string): string | undefined {
  if (!/^https?:\/\//i.test(url)) return 'the url must begin with "https://" or "http://"'
  const rule = wrongWith({ text: url })
  return rule && faultOf(rule, [], [UNCLEAR.exec(url)?.[0]]).msg
}

function isMetadata(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase()
  const version = isIP(host)
  if (version !== 0) return METADATA.check(host, version === 6 ? 'ipv6' : 'ipv4')
  return METADATA_NAMES.some(name => `.${host}`.endsWith(`.${name}`))
}

function parsed(url: string): URL | undefined {
  // Parses without the base first. With an "http" base, the parser would treat "http:host" as a relative URL.
  return parsedUrl(url) ?? parsedUrl(url, RELATIVE)
}

/**
 * True if a call to `path` could go to a host other than that of `address`. Some clients append the path to the address, and other clients
 * resolve the path as a relative reference. URL parsers also remove tabs and line breaks, and treat backslashes as slashes.
 */
export function leadsAway(address: string, path: string): boolean {
  const end = path.slice(0, DEFINITION_LIMITS.keyCharacters).replace(VARIABLE, 'x')
  // The common case: the address is absolute, and the path begins with one slash.
  if (ABSOLUTE.test(address) && (end === '/' || ORDINARY_PATH.test(end))) return false
  // Without a slash before the path, the path would extend the host name. Without `//`, clients could parse the address as relative.
  if (/^https?:(?:\/\/[^/]*$|(?!\/\/))/i.test(address) && !/^(?:[/?#]|$)/.test(end)) return true
  const own = parsed(address)
  const together = parsed(joined(address, end))?.host
  const linked = parsedUrl(end, own?.href)?.host
  const kept = parsed(address + end)?.host
  const isOther = [together, linked].some(host => host !== undefined && host !== own?.host)
  return isOther || (kept !== own?.host && canBeHost(kept))
}

/** True if the host contains a dot or a colon, or is `localhost`. False for hosts like 0.0.0.2, which parsers make from a path segment `2`. */
function canBeHost(host: string | undefined): boolean {
  return host !== undefined && !host.startsWith('0.') && /[.:]|^localhost$/.test(host)
}

/** After this number of addresses, `originsOf` returns URLs with their variables instead of origins. */
const ORIGINS_READ_MAX = 10_000

/** Returns the origins of all servers, including servers of paths and operations, because runtimes can call these servers. */
export function originsOf(definition: unknown): Set<string> {
  const origins = new Set<string>()
  const references = new References(definition)
  let read = 0
  const add = (holder: unknown) => {
    const { servers }: Schema = isObject(holder) ? holder : {}
    for (const server of Array.isArray(servers) ? servers.filter(isObject) : []) {
      const addresses = read > ORIGINS_READ_MAX ? [] : addressesOf(server)
      read += addresses.length
      const { url, variables } = server
      const written = [typeof url === 'string' ? url : '', JSON.stringify(variables)].join(' ').trim()
      for (const address of addresses) origins.add(originOf(address) ?? written)
      if (addresses.length === 0) origins.add(written)
    }
  }
  add(definition)
  const { paths }: Schema = isObject(definition) ? definition : {}
  for (const item of isObject(paths) ? Object.values(paths) : []) {
    for (const layer of new Set([item, references.end(item)])) {
      add(layer)
      if (isObject(layer)) for (const operation of Object.values(layer)) add(operation)
    }
  }
  return origins
}

/** Returns an address's origin, or the text `a relative address`; undefined if a variable has no default or URL parsers could disagree. */
function originOf({ text, unfilled }: Address): string | undefined {
  const at = unfilled !== undefined || UNCLEAR.test(text) ? undefined : parsed(text)
  return at?.host === RELATIVE_HOST ? 'a relative address' : at?.origin
}
