import { BlockList, isIP } from 'node:net'
import { type Findings, type Place, placeOf, placeUnder, quote } from './findings.js'
import type { Reader } from './reader.js'
import { isObject, parsedUrl } from './references.js'
import { hasSecret, quoteAddress } from './secrets.js'

const RELATIVE_HOST = 'relative.invalid'
/** Matches an address without its scheme: a host with a port, or an IP address. */
const SCHEMELESS =
  /^(?:localhost|[^\s/?#@\\:[\]]+:\d+|\[[\da-f:.%]+\](?::\d+)?|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?)(?:[/?#]|$)/i
const HOST_LIKE =
  /^[a-z\d-]+(?:\.[a-z\d-]+)*\.(?!(?:json|ya?ml|php|aspx?|jsp|svc|html?|xml)(?![a-z]))[a-z]{2,}(?:[/?#]|$)/i
/** Matches an address whose scheme is misspelt or repeated: `http//`, `htps://`, `://`. */
const MISSPELT = /^(?!https?:\/\/(?!https?:\/\/))(?:[ht]{1,6}[pt]{1,3}(s*)[\s:;.,]*|[:;])\/\/(?=[^/\\])/i
/** Addresses whose host all clients read alike: no variable, user info, backslash, space or control character in or before it. */
const PLAIN = /^(?:https?:\/\/[\w.:[\]-]+(?:[/?#][^\\\s]*)?|(?:\/(?![/\\])[^\\\s]*)?)$/i
/** Addresses whose host cannot change when a path is appended. */
const CLOSED = /^(?:https?:\/\/[^\0- /?#\\]+[/?#]|\/[^\0- /\\])/i
/** Paths that change the host only if the address consists of slashes. */
const ORDINARY_PATH = /^\/(?![/\\\0- ])/

/** The most servers that are checked. Only the first is used. */
const SERVERS_JUDGED = 1000
const URL_CHARACTERS = 8192
/** The most characters of all addresses that the variables of one server produce, each address counted as at least 32. */
const VARIANT_CHARACTERS = 64 * 1024
const SHORT_CHARACTERS = 32
const VARIABLE = /\{([^{}]*)\}/g

const METADATA_NAMES = ['metadata.google.internal', 'metadata.goog', 'instance-data.ec2.internal']
/** Link-local networks and the metadata addresses of Alibaba, Azure, Oracle, Amazon and Google. */
const FORBIDDEN = new BlockList()
for (const [address, bits] of [
  ['169.254.0.0', 16],
  ['100.100.100.200', 32],
  ['168.63.129.16', 32],
  ['192.0.0.192', 32],
] as const) {
  FORBIDDEN.addSubnet(address, bits)
  const groups = address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)/, (_, ...octets) =>
    [0, 2].map(i => (octets[i] * 256 + Number(octets[i + 1])).toString(16)).join(':'),
  )
  // The same networks inside IPv6: compatible, mapped, translated, NAT64 and 6to4.
  for (const prefix of ['::', '::ffff:', '::ffff:0:', '64:ff9b::'])
    FORBIDDEN.addSubnet(`${prefix}${groups}`, 96 + bits, 'ipv6')
  FORBIDDEN.addSubnet(`2002:${groups}::`, 16 + bits, 'ipv6')
}
for (const [address, bits] of [
  ['fe80::', 10],
  ['fd00:ec2::254', 128],
  ['fd20:ce::254', 128],
  ['64:ff9b:1::', 48], // the local NAT64 prefix, which embeds IPv4 addresses in several ways
] as const)
  FORBIDDEN.addSubnet(address, bits, 'ipv6')

/** True for an address that is not relative and lacks its scheme, or has it misspelt: `localhost:8080`, `http//api.example.com`. */
export function lacksScheme(url: string): boolean {
  return SCHEMELESS.test(url) || MISSPELT.test(url)
}

/** Returns the absolute address that is meant by one that lacks its scheme or, like `api.example.com/v1`, may lack it. */
export function addressMeant(url: string): string | undefined {
  const [start, letters] = MISSPELT.exec(url) ?? ['']
  const isPort = SCHEMELESS.test(url)
  if (start === '' && !isPort && !HOST_LIKE.test(url)) return undefined
  const isPlain = isPort ? !/^[^/?#]*443(?:[/?#]|$)/.test(url) : letters === ''
  const rest = url.slice(start.length)
  const meant = /^https?:\/\//i.test(rest) ? rest : `${isPlain ? 'http' : 'https'}://${rest}`
  return unusable({ text: meant.replace(VARIABLE, 'variable'), unfilled: [] }) === undefined ? meant : undefined
}

function hintAt(url: string): string {
  const meant = addressMeant(url)
  return meant === undefined ? '' : `; did you mean ${quoteAddress(meant)}?`
}

/** Checks a list of servers. All entries are checked, only the first is used. A missing or empty list is a fault only if `required`. */
export function checkServers(servers: unknown, required: boolean, place: Place, reader: Reader): void {
  const { findings } = reader
  if (servers === undefined) {
    const msg = 'the definition names no server: add "servers": [{"url": "https://..."}]'
    if (required) findings.fault('servers_missing', msg, place)
    return
  }
  const list = reader.list(servers, place, 'servers')
  if (list === undefined) return
  if (list.length === 0 && required)
    findings.fault('servers_missing', 'the list of servers is empty: add {"url": "https://..."}', place)
  for (const [i, server] of list.slice(0, SERVERS_JUDGED).entries()) checkServer(server, placeUnder(place, i), reader)
  if (list.length > 1) findings.warn('servers_several', `${list.length} servers are named; the first is used`, place)
}

function checkServer(entry: unknown, place: Place, reader: Reader): void {
  const { findings } = reader
  const server = reader.object(entry, place, 'server')
  if (server === undefined) return
  // The empty text is a relative address, like "/", the default of a document without servers.
  if (server.url === undefined || (typeof server.url === 'string' && /^\s+$/.test(server.url))) {
    findings.fault('server_url_missing', 'the server has no url', place, 'url')
    return
  }
  const url = reader.text({ value: server, place }, 'url')
  if (url === undefined) return
  const { addresses, isWhole } = addressesOf(server)
  const wrong = isWhole ? addresses.find(each => unusable(each) !== undefined) : undefined
  if (url.length > URL_CHARACTERS) {
    findings.fault('server_url_invalid', `the url is longer than ${URL_CHARACTERS} characters`, place, 'url')
  } else if (!isWhole) {
    const msg = `the url ${quoteAddress(url)} has variables with too many values to check`
    findings.fault('server_url_invalid', msg, place, 'url')
  } else if (wrong !== undefined) {
    const chosen = wrong.chosen && ` when ${quote(wrong.chosen[0])} is ${quoteAddress(wrong.chosen[1])}`
    findings.fault(
      'server_url_invalid',
      `the url ${quoteAddress(url)} ${unusable(wrong)}${chosen ?? ''}${lacksScheme(url) ? hintAt(url) : ''}`,
      place,
      'url',
    )
  } else if (addresses[0] !== undefined) warnUrl(url, addresses[0], place, findings)
  if (url.length > 1 && url.endsWith('/')) {
    const msg = 'the url ends with a slash, as paths begin with one: calls go to addresses with two slashes'
    findings.warn('server_trailing_slash', msg, place, 'url')
  }
}

function warnUrl(url: string, { text, unfilled: [variable] }: Address, place: Place, findings: Findings): void {
  if (variable !== undefined) {
    const msg = `the url has a variable without a default: ${quote(variable)}; it must be filled in before a call`
    findings.warn('server_variable_unfilled', msg, place, 'url')
  } else if (parse(text)?.host === RELATIVE_HOST) {
    const msg = `the url ${quoteAddress(url)} is relative: calls need an absolute address such as https://api.example.com${hintAt(url)}`
    findings.warn('server_relative', msg, place, 'url')
  } else if (/^https?:(?!\/\/(?![/\\]))/i.test(text)) {
    const msg = `the url ${quoteAddress(url)} lacks the two slashes after its scheme: some clients refuse it`
    findings.warn('server_url_slashes', msg, place, 'url')
  }
  const after = partAfterPath(text)
  if (after === undefined) return
  const msg = `the url has a ${after}: the path of each call is put after it and becomes part of it`
  findings.warn('server_query', msg, place, 'url')
}

/** Returns what an address or a path has after its path. */
export function partAfterPath(text: string): 'query' | 'fragment' | undefined {
  const mark = /[?#]/.exec(text)?.[0]
  return mark === undefined ? undefined : mark === '?' ? 'query' : 'fragment'
}

/** Returns why calls cannot go to an absolute address given outside a definition, or undefined. */
export function unusableServer(url: string): string | undefined {
  // Some clients drop these characters and would call another address.
  return /[\0- \x7f]/.test(url) ? 'holds a space or a control character' : unusable({ text: url, unfilled: [] })
}

/** One possible address of a server. */
interface Address {
  readonly text: string
  /** The variables without a value. The text has a harmless word in their place. */
  readonly unfilled: readonly string[]
  /** The variable with a value other than its default, and that value. */
  readonly chosen?: readonly [name: string, value: string]
}

/** Returns a server's address with all defaults, then one for each listed value of each variable. `isWhole`: none is omitted. */
function addressesOf({ url, variables }: Record<string, unknown>): { addresses: Address[]; isWhole: boolean } {
  if (typeof url !== 'string') return { addresses: [], isWhole: true }
  const named = isObject(variables) ? variables : {}
  const template = url.slice(0, URL_CHARACTERS)
  const addresses = [filled(template, named)]
  let characters = 0
  for (const name of new Set(Array.from(template.matchAll(VARIABLE), ([, name = '']) => name))) {
    const listed = isObject(named[name]) ? named[name].enum : undefined
    for (const each of Array.isArray(listed) ? listed : []) {
      const value = wordOf(each)
      if (value === undefined) continue
      const address = { ...filled(template, named, [name, value]), chosen: [name, value] as const }
      characters += Math.max(address.text.length, SHORT_CHARACTERS)
      if (characters > VARIANT_CHARACTERS) return { addresses, isWhole: false }
      addresses.push(address)
    }
  }
  return { addresses, isWhole: true }
}

/** Fills in the defaults of the variables, or the chosen value of one. */
function filled(url: string, variables: Record<string, unknown>, chosen?: readonly [string, string]): Address {
  const unfilled: string[] = []
  const text = url.replace(VARIABLE, (whole, name: string, at: number) => {
    const variable = Object.hasOwn(variables, name) ? variables[name] : undefined
    const known = name === chosen?.[0] ? chosen[1] : wordOf(isObject(variable) ? variable.default : undefined)
    if (known !== undefined) return known
    unfilled.push(name)
    const isScheme = at === 0 && url[whole.length] === ':'
    return isScheme ? 'https' : url[at - 1] === ':' ? '443' : 'variable'
  })
  return { text: text.slice(0, URL_CHARACTERS), unfilled }
}

function wordOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value).slice(0, URL_CHARACTERS) : undefined
}

/** Parses an address. The URL parser reads odd spellings (numbers, escapes, backslashes, tabs) as a client would. */
function parse(url: string): URL | undefined {
  // "http:host" is absolute unless it is resolved against an address with the same scheme, so it is parsed alone first.
  return parsedUrl(url) ?? parsedUrl(url, `http://${RELATIVE_HOST}/`)
}

/** Returns why an address must not be called, or undefined. An address that fails to parse only because of an unfilled variable is accepted. */
function unusable({ text, unfilled }: Address): string | undefined {
  if (lacksScheme(text)) return 'is neither http(s) nor relative'
  const parsed = parse(text)
  if (parsed === undefined) return unfilled.length > 0 ? undefined : 'is not a usable URL'
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') return 'is neither http(s) nor relative'
  if (parsed.username !== '' || parsed.password !== '') return 'carries user info: put secrets into custom headers'
  if (hasSecret(text)) return 'carries a secret: put secrets into custom headers'
  if (isForbiddenHost(parsed.hostname)) return 'is a link-local or metadata address'
  if (parsed.host.includes('{')) return 'has a variable in a value of a variable'
  return undefined
}

function isForbiddenHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase()
  const version = isIP(host)
  if (version !== 0) return FORBIDDEN.check(host, version === 6 ? 'ipv6' : 'ipv4')
  return METADATA_NAMES.some(name => host.includes(name))
}

/** Returns the addresses of a server list whose host a path may change. */
export function openAddresses(servers: unknown): string[] {
  const texts = (Array.isArray(servers) ? servers.slice(0, SERVERS_JUDGED) : [])
    .filter(isObject)
    .flatMap(server => addressesOf(server).addresses.map(({ text }) => text))
  return [...new Set(texts)].filter(text => !CLOSED.test(text))
}

/**
 * Returns why a path would change the host of one of these open addresses, or undefined. Address and path are joined as texts with one
 * slash between. Some clients keep two slashes and some resolve the path as a link; for them "//a.example" is a host.
 */
export function leadsAway(open: readonly string[], path: string): string | undefined {
  const end = path.slice(0, URL_CHARACTERS)
  const isOrdinary = ORDINARY_PATH.test(end)
  if (!isOrdinary && canBeHost(parse(end)?.host)) return 'names a host'
  const address = open.find(text => {
    if (/^https?:\/\//i.test(text)) return !/^(?:[/?#]|$)/.test(end)
    const isOnlySlashes = /^(?:https?:)?[/\\\0- ]*$/i.test(text)
    if (isOrdinary && !isOnlySlashes) return false
    let length = text.length
    while (end.startsWith('/') && /[/\\\0- ]/.test(text.charAt(length - 1))) length--
    const start = text.slice(0, length)
    const [own, joined, kept] = [text, start + end, text + end].map(url => parse(url)?.host)
    return (joined !== undefined && joined !== own) || (kept !== own && canBeHost(kept))
  })
  return address === undefined ? undefined : `after the server ${quoteAddress(address)} names another host`
}

/** True for a host name that can exist. An address such as 0.0.0.2, parsed from a path segment "2", cannot. */
function canBeHost(host: string | undefined): boolean {
  return host !== undefined && host !== RELATIVE_HOST && !host.startsWith('0.') && /[.:]|^localhost$/.test(host)
}

/** Returns the host of the first server if that is an absolute address with only ordinary characters. */
export function hostOf(servers: unknown): string | undefined {
  const [server] = Array.isArray(servers) ? servers : []
  const [address] = isObject(server) ? addressesOf(server).addresses : []
  const host = address === undefined || address.unfilled.length > 0 ? undefined : parse(address.text)?.host
  return host === RELATIVE_HOST ? undefined : host
}

/** Returns the address of the first server, with the defaults of its variables; empty if there is none. */
export function firstAddress(definition: unknown): string {
  const [server] = isObject(definition) && Array.isArray(definition.servers) ? definition.servers : []
  return (isObject(server) ? addressesOf(server).addresses[0]?.text : undefined) ?? ''
}

/** Returns the origins that calls may go to. */
export function originsOf(definition: unknown): Set<string> {
  return new Set(originPlaces(definition, placeOf(['definition'])).keys())
}

/**
 * Returns the origins that calls may go to, each with the place of the first address that has it. They come from every list of servers
 * anywhere in the definition, because a reference may lead to any. If the host is unclear (a variable, a backslash), the address as
 * written, with the values of its variables, is included too.
 */
export function originPlaces(definition: unknown, root: Place): Map<string, Place> {
  const origins = new Map<string, Place>()
  const pending = [{ node: definition, place: root }]
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { node, place } = next
    if (typeof node !== 'object' || node === null) continue
    const isList = Array.isArray(node)
    const keys = Object.keys(node)
    // The first key is on top of the stack.
    for (let i = keys.length - 1; i >= 0; i--) {
      const value = (node as Record<string, unknown>)[keys[i] ?? '']
      const key = isList ? i : (keys[i] ?? '')
      if (typeof value === 'object') pending.push({ node: value, place: placeUnder(place, key) })
    }
    const { servers } = node as { servers?: unknown }
    for (const [i, server] of Array.isArray(servers) ? servers.entries() : [])
      if (isObject(server)) addOrigins(server, placeUnder(placeUnder(placeUnder(place, 'servers'), i), 'url'), origins)
  }
  return origins
}

function addOrigins(server: Record<string, unknown>, place: Place, origins: Map<string, Place>): void {
  const add = (origin: string) => origins.has(origin) || origins.set(origin, place)
  const { url, variables } = server
  if (typeof url !== 'string') return
  const texts = addressesOf(server).addresses.map(({ text }) => text)
  for (const text of texts) {
    const parsed = parse(text)
    add(parsed === undefined || parsed.host === RELATIVE_HOST ? 'a relative address' : parsed.origin)
  }
  if ([url, ...texts].every(text => PLAIN.test(text))) return
  const names = isObject(variables) ? [...Object.keys(variables), 'default', 'enum'] : []
  add(`${url} ${JSON.stringify(variables, names) ?? ''}`)
}
