import { BlockList, isIP } from 'node:net'
import { type Findings, type Place, placeUnder, quote, show } from './findings.js'
import type { Reader } from './reader.js'
import { isObject, parsedUrl } from './references.js'

const RELATIVE_HOST = 'relative.invalid'
/** An address without its scheme: a host with a port, or an IP address. */
const SCHEMELESS = /^(?:[^\s/?#@\\:[\]]+:\d+|\[[\da-f:.%]+\](?::\d+)?|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?)(?:[/?#]|$)/i
const HOST_LIKE = /^[a-z\d-]+(?:\.[a-z\d-]+)*\.[a-z]{2,}(?:[/?#]|$)/i
const SECRET_NAME =
  /^(?:x[_-]|ocp-apim-)?(?:api|app|access|auth|client|private|secret|service|subscription|user)?[_-]?(?:key|token|secret)$|^(?:password|passwd|pwd|sig|signature|authorization|credentials?)$/i
const SECRET_VALUE = /^(?:[\w+/=%-]{24,}|(?:sk|pk|ghp|xox[bp])[_-].+)$/
/** What stands for a value that is not there: a placeholder, an example. */
const STAND_IN = /^(?:[{<$%[*]|your|my[_-]|x{3}|\.{3}|example|changeme|variable$)/i
/** Addresses of whose host every client thinks alike: no variable, user info, backslash, space or control character in or before it. */
const PLAIN = /^(?:https?:\/\/[\w.:[\]-]+(?:[/?#][^\\\s]*)?|(?:\/(?![/\\])[^\\\s]*)?)$/i
const CLOSED_END = /^https?:\/\/[\w.:[\]-]+[/?#]/i

/** Only the first is ever used. */
const SERVERS_JUDGED = 1000
const URL_CHARACTERS = 8192
/** Characters of all addresses that the values of a server's variables give together, each counted as at least 32. */
const VARIANT_CHARACTERS = 64 * 1024
const SHORT_CHARACTERS = 32
/** How often values that name other variables are filled in. */
const NESTED_ROUNDS = 8
const VARIABLE = /\{([^}]*)(\}|$)/g

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
  // The same inside IPv6: compatible, mapped, translated, NAT64 and 6to4.
  for (const prefix of ['::', '::ffff:', '::ffff:0:', '64:ff9b::'])
    FORBIDDEN.addSubnet(`${prefix}${groups}`, 96 + bits, 'ipv6')
  FORBIDDEN.addSubnet(`2002:${groups}::`, 16 + bits, 'ipv6')
}
for (const [address, bits] of [
  ['fe80::', 10],
  ['fd00:ec2::254', 128],
  ['fd20:ce::254', 128],
  ['64:ff9b:1::', 48], // the local NAT64 prefix, which holds IPv4 addresses in several ways
] as const)
  FORBIDDEN.addSubnet(address, bits, 'ipv6')

/** The rules for a list of servers. Every entry is judged, the first is used; a missing or empty list is at fault only where it is `required`. */
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
  // The empty text is a relative address: where the document stands, as "/" is in a document without servers.
  if (server.url === undefined || (typeof server.url === 'string' && /^\s+$/.test(server.url))) {
    findings.fault('server_url_missing', 'the server has no url', place, 'url')
    return
  }
  const url = reader.text({ value: server, place }, 'url')
  if (url === undefined) return
  const { variables } = server
  const reason =
    url.length > URL_CHARACTERS ? `is longer than ${URL_CHARACTERS} characters` : unusableByAnyValue(url, variables)
  if (reason !== undefined) findings.fault('server_url_invalid', `the url ${quote(url)} ${reason}`, place, 'url')
  else warnUrl(url, variables, place, findings)
  if (url.length > 1 && url.endsWith('/')) {
    const msg = 'the url ends with a slash, as paths begin with one: calls go to addresses with two slashes'
    findings.warn('server_trailing_slash', msg, place, 'url')
  }
}

function warnUrl(url: string, variables: unknown, place: Place, findings: Findings): void {
  const { text, unfilled } = filled(url, variables)
  const [variable] = unfilled
  if (variable !== undefined) {
    const msg = `the url has a variable without a default: ${quote(variable)}; it must be filled in before a call`
    findings.warn('server_variable_unfilled', msg, place, 'url')
  } else if (parse(text)?.host === RELATIVE_HOST) {
    const hint = HOST_LIKE.test(url) ? `; did you mean ${quote(`https://${url}`)}?` : ''
    const msg = `the url ${quote(url)} is relative: calls need an absolute address such as https://api.example.com${hint}`
    findings.warn('server_relative', msg, place, 'url')
  } else if (/^https?:(?!\/\/(?![/\\]))/i.test(text)) {
    const msg = `the url ${quote(url)} has not two slashes behind its scheme: not every client mends that`
    findings.warn('server_url_slashes', msg, place, 'url')
  }
  const behind = partBehindPath(text)
  if (behind === undefined) return
  const msg = `the url has a ${behind.name}: the path of each call is put behind it and becomes part of it`
  findings.warn('server_query', msg, place, 'url')
}

/** The query or fragment of an address or a path, and whether it holds what looks like a secret. */
export function partBehindPath(text: string): { name: string; hasSecret: boolean } | undefined {
  const at = text.search(/[?#]/)
  if (at === -1) return undefined
  const pairs = text.slice(at + 1, URL_CHARACTERS).split(/[?&;#]/)
  return { name: text[at] === '?' ? 'query' : 'fragment', hasSecret: pairs.some(isSecret) }
}

/** True for `key=value` where the name says that a secret follows, or the value looks like a random one. */
function isSecret(pair: string): boolean {
  const [name = '', ...rest] = pair.split('=')
  const value = rest.join('=')
  if (value === '' || STAND_IN.test(value)) return false
  if (SECRET_NAME.test(name)) return !/^(?:true|false|\d{1,2})$/.test(value)
  return SECRET_VALUE.test(value) && /\d/.test(value) && /[a-z]/i.test(value) && !/^\d{4}-\d\d-\d\d/.test(value)
}

/** Why calls cannot go to an absolute address that somebody names beside a definition, or undefined. */
export function unusableServer(url: string): string | undefined {
  // A client leaves some of these out, and would send others.
  return /[\0- \x7f]/.test(url) ? 'holds a space or a control character' : unusable(url, parse(url), false)
}

/** Why calls cannot go to an address, by the defaults of its variables or by a listed value of one of them, or undefined. */
function unusableByAnyValue(url: string, variables: unknown): string | undefined {
  for (const { text, isOpen, chosen, problem } of addressesOf(url, variables)) {
    const reason = problem ?? unusable(text, parse(text), isOpen)
    if (reason !== undefined)
      return chosen === undefined ? reason : `${reason} when ${quote(chosen[0])} is ${quote(chosen[1])}`
  }
  return undefined
}

/** One of the addresses that a server may stand for. */
interface Address {
  readonly text: string
  /** True if a variable has no value, so that a word stands for it that is legal there. */
  readonly isOpen: boolean
  readonly chosen: Chosen | undefined
  /** Why there are more addresses than are looked at. */
  readonly problem?: string
}

/** The name of a variable, and one of the values that are listed for it. */
type Chosen = [name: string, value: string]

/** The address by the defaults of its variables, then by each listed value of one of them, and what a client gets that fills in values again. */
function* addressesOf(url: string, variables: unknown): Generator<Address> {
  let characters = 0
  for (const chosen of [undefined, ...listedValues(url, variables)]) {
    let { text, unfilled } = filled(url, variables, chosen)
    let isOpen = unfilled.length > 0
    yield { text, isOpen, chosen }
    characters += Math.max(text.length, SHORT_CHARACTERS)
    for (let round = 0; round < NESTED_ROUNDS && text.includes('{') && characters <= VARIANT_CHARACTERS; round++) {
      const next = filled(text.slice(0, URL_CHARACTERS), variables)
      if (next.text === text) break
      characters += text.length + next.text.length + SHORT_CHARACTERS
      text = next.text
      isOpen ||= next.unfilled.length > 0
      yield { text, isOpen, chosen }
    }
    if (characters <= VARIANT_CHARACTERS) continue
    yield { text, isOpen, chosen: undefined, problem: 'has variables with too many values to look at' }
    return
  }
}

function listedValues(url: string, variables: unknown): Chosen[] {
  return [...variablesIn(url)].flatMap(name => {
    const listed = variableOf(variables, name)?.enum
    const values = Array.isArray(listed)
      ? listed.filter(each => typeof each === 'string' || typeof each === 'number')
      : []
    return values.map<Chosen>(value => [name, String(value).slice(0, URL_CHARACTERS)])
  })
}

/** The names of the variables of an address. */
function variablesIn(url: string): Set<string> {
  return new Set(Array.from(url.matchAll(VARIABLE), ([, name = '', close]) => (close === '' ? '' : name)))
}

/** The address with the defaults of its variables filled in, but for one with a chosen value, and the names of those that have none. */
function filled(url: string, variables: unknown, chosen?: Chosen): { text: string; unfilled: string[] } {
  const unfilled: string[] = []
  let length = 0
  const text = url.replace(VARIABLE, (whole, name: string, close: string, at: number) => {
    if (length > URL_CHARACTERS || close === '') return whole
    const known = name === chosen?.[0] ? chosen[1] : defaultOf(variables, name)
    if (known === undefined) unfilled.push(name)
    const isScheme = at === 0 && url[whole.length] === ':'
    const value = known ?? (isScheme ? 'https' : url[at - 1] === ':' ? '443' : 'variable')
    length += value.length
    return value
  })
  return { text, unfilled }
}

function variableOf(variables: unknown, name: string): Record<string, unknown> | undefined {
  const variable = isObject(variables) && Object.hasOwn(variables, name) ? variables[name] : undefined
  return isObject(variable) ? variable : undefined
}

function defaultOf(variables: unknown, name: string): string | undefined {
  const value = variableOf(variables, name)?.default
  return typeof value === 'string' || typeof value === 'number' ? String(value).slice(0, URL_CHARACTERS) : undefined
}

/** The URL parser reads odd spellings (numbers, escapes, backslashes, tabs) as a client would. */
function parse(url: string): URL | undefined {
  // "http:host" names a host only where nothing of that scheme stands around it: no client has what is relative here.
  return parsedUrl(url) ?? parsedUrl(url, `http://${RELATIVE_HOST}/`)
}

/** Why nothing may be sent to `url`, or undefined. A URL that only fails to parse with a stand-in for a value is not refused. */
function unusable(url: string, parsed: URL | undefined, hasUnfilled: boolean): string | undefined {
  if (SCHEMELESS.test(url)) return `is neither http(s) nor relative; did you mean ${quote(`http://${url}`)}?`
  if (parsed === undefined) return hasUnfilled ? undefined : 'is not a usable URL'
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') return 'is neither http(s) nor relative'
  if (parsed.username !== '' || parsed.password !== '') return 'carries user info: put secrets into custom headers'
  if (partBehindPath(url)?.hasSecret) return 'carries a secret: put secrets into custom headers'
  if (isForbiddenHost(parsed.hostname)) return 'is a link-local or metadata address'
  return undefined
}

function isForbiddenHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase()
  const version = isIP(host)
  if (version !== 0) return FORBIDDEN.check(host, version === 6 ? 'ipv6' : 'ipv4')
  return METADATA_NAMES.some(name => host.includes(name))
}

/** Why a path that does not begin with a slash cannot follow these servers' first, with whose host it goes on, or undefined. */
export function unusableEnd(servers: unknown, path: string): string | undefined {
  const [server] = Array.isArray(servers) ? servers : []
  if (!hasOpenEnd(server)) return undefined
  const { text, unfilled } = filled(server.url.slice(0, URL_CHARACTERS), server.variables)
  const joined = `${text}${path.slice(0, URL_CHARACTERS)}`
  const parsed = parse(joined)
  // A placeholder may stand for anything: only what is wrong for each of its values counts.
  return parsed === undefined ? undefined : unusable(joined, parsed, unfilled.length > 0)
}

/** Whether a path that does not begin with a slash would go on with the host of this server. */
function hasOpenEnd(server: unknown): server is { url: string; variables?: unknown } {
  return isObject(server) && typeof server.url === 'string' && !CLOSED_END.test(server.url)
}

/** The host that calls go to by a list of servers, if its first one is an absolute address without open questions. */
export function hostOf(servers: unknown): string | undefined {
  const [server] = Array.isArray(servers) ? servers : []
  if (!isObject(server) || typeof server.url !== 'string' || server.url.length > URL_CHARACTERS) return undefined
  const { text, unfilled } = filled(server.url, server.variables)
  const host = unfilled.length > 0 ? undefined : parse(text)?.host
  return host === RELATIVE_HOST ? undefined : host
}

/** The address of the first server of a definition, its variables by their defaults; empty without one. */
export function firstAddress(definition: unknown): string {
  const [server] = isObject(definition) && Array.isArray(definition.servers) ? definition.servers : []
  if (!isObject(server) || typeof server.url !== 'string') return ''
  return filled(server.url.slice(0, URL_CHARACTERS), server.variables).text
}

/**
 * The origins to which calls by a checked definition may go, wherever a list of servers stands in it, as a reference may lead there.
 * A client joins server and path as texts: behind a server that ends with its host, a path that does not begin with a slash goes on
 * with the host (`https://good.example.com` and `@evil.example.net/a`). Each such path, and each such server, is an origin of its own.
 */
export function originsOf(definition: unknown): Set<string> {
  const origins = new Set<string>()
  const open = new Set<string>()
  const pending: unknown[] = [definition]
  while (pending.length > 0) {
    const node = pending.pop()
    if (typeof node !== 'object' || node === null) continue
    for (const value of Object.values(node)) pending.push(value)
    if (!isObject(node) || !Array.isArray(node.servers)) continue
    for (const server of node.servers) {
      for (const origin of originsOfServer(server)) origins.add(origin)
      if (hasOpenEnd(server)) open.add(server.url)
    }
  }
  const [first] = open
  const paths = isObject(definition) && isObject(definition.paths) ? Object.keys(definition.paths) : []
  const goingOn = first === undefined ? [] : paths.filter(path => path !== '/' && !/^\/(?![/\\])/.test(path))
  for (const path of goingOn) origins.add(`${first}${path}`)
  if (goingOn.length > 0) for (const url of open) origins.add(`${url} and paths that go on with it`)
  return origins
}

/**
 * The origin of a server by each address that it may stand for. Where the host is not plain to see (a variable, a backslash), the address as it is written, with all values, is one more.
 */
function originsOfServer(server: unknown): string[] {
  if (!isObject(server) || typeof server.url !== 'string') return []
  const { variables } = server
  const url = server.url.slice(0, URL_CHARACTERS)
  const texts = Array.from(addressesOf(url, variables), ({ text }) => text)
  const origins = texts.map(text => {
    const parsed = parse(text)
    return parsed === undefined || parsed.host === RELATIVE_HOST ? 'a relative address' : parsed.origin
  })
  return [url, ...texts].every(text => PLAIN.test(text)) ? origins : [...origins, written(server.url, variables)]
}

/** The address, and each value of the variables that it has or that a value of one leads to. */
function written(url: string, variables: unknown): string {
  const names = variablesIn(url)
  const values: string[] = []
  // Names that values add are met in turn.
  for (const name of names) {
    const { default: byDefault, enum: listed } = variableOf(variables, name) ?? {}
    const all = [byDefault, ...(Array.isArray(listed) ? listed : [])].map(each =>
      typeof each === 'string' ? each : show(each),
    )
    values.push(JSON.stringify([name, ...all]))
    for (const value of all) for (const inner of variablesIn(value)) names.add(inner)
  }
  return `${url} ${values.join()}`
}
