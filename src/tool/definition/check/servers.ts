import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { MisplacedReferences } from './misplaced.js'
import { isObject } from './references.js'

const RELATIVE_HOST = 'relative.invalid'
/** Plain absolute addresses with a name for a host need no URL parser; everything else takes the long way. */
const PLAIN_URL = /^https?:\/\/[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?::\d{1,4})?(?:\/[\w.~/-]*)?$/
/** An address without its scheme: a host with a port, or an IP address. */
const SCHEMELESS = /^(?:[^\s/?#@\\:[\]]+:\d+|\[[\da-f:.%]+\](?::\d+)?|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?)(?:[/?#]|$)/i
const HOST_LIKE = /^[a-z\d-]+(?:\.[a-z\d-]+)*\.[a-z]{2,}(?:[/?#]|$)/i
const SECRET_NAME =
  /^(?:x[_-]|ocp-apim-)?(?:api|app|access|auth|client|private|secret|service|subscription|user)?[_-]?(?:key|token|secret)$|^(?:password|passwd|pwd|sig|signature|authorization|credentials?)$/i
const SECRET_VALUE = /^(?:[\w+/=%-]{24,}|(?:sk|pk|ghp|xox[bp])[_-].+)$/
/** What stands for a value that is not there: a placeholder, an example. */
const STAND_IN = /^(?:[{<$%[*]|your|my[_-]|x{3}|\.{3}|example|changeme|variable$)/i
/** Only the first is ever used; a list beyond this is not a list of servers that anybody wrote. */
const SERVERS_JUDGED = 1000
const URL_CHARACTERS = 8192
/** Values of a variable tried in an address, as characters of all addresses that they give together. */
const VARIANT_CHARACTERS = 64 * 1024
/** What an address costs at least, and each variable that is filled in. */
const SHORT_CHARACTERS = 32
/** How often a variable's value is looked at for the name of another variable. */
const NESTED_VARIABLES = 8
/** Variables that are filled in where values name others, for one address: a few hundred bytes of them could lead to thousands. */
const NESTED_FILLED = 64
const METADATA_NAMES = new Set(['metadata.google.internal', 'metadata.goog', 'instance-data.ec2.internal'])
/** Addresses at which clouds answer who asks from inside, beside those of 169.254.0.0/16. */
const METADATA_IPV4 = new Set(['100.100.100.200', '168.63.129.16', '192.0.0.192'])
const METADATA_IPV6 = new Set(['fd00:ec2:0:0:0:0:0:254', 'fd20:ce:0:0:0:0:0:254'])

/**
 * The rules for a list of servers: `list_type`, `servers_missing` (only where one is `required`), `dict_type`,
 * `server_url_missing`, `string_type`, `server_url_invalid`, each at its place; every entry is judged, the first is used.
 *
 * Servers of a path or an operation replace the document's in OpenAPI, so the same addresses are forbidden there; they cannot replace
 * the document's own, because what calls a tool reads those first: another host there is the warning `server_other_host`.
 */
export function checkServers(
  servers: unknown,
  required: boolean,
  place: Place,
  misplaced: MisplacedReferences,
  findings: Findings,
): void {
  if (servers === undefined) {
    if (required)
      findings.fault(
        'servers_missing',
        'the definition names no server: add "servers": [{"url": "https://..."}]',
        place,
      )
    return
  }
  if (misplaced.report(servers, place, 'servers', findings)) return
  if (!Array.isArray(servers)) {
    findings.faultOf('list_type', place)
    return
  }
  if (servers.length === 0 && required) {
    findings.fault('servers_missing', 'the list of servers is empty: add {"url": "https://..."}', place)
  }
  const judged = Math.min(servers.length, SERVERS_JUDGED)
  for (let i = 0; i < judged; i++) {
    checkServer(servers[i], placeUnder(place, i), misplaced, findings)
    // Thousands of values may be tried for one that has variables.
  }
  if (servers.length > 1) {
    findings.warn('servers_several', `${servers.length} servers are named; the first is used`, place)
  }
}

function checkServer(server: unknown, place: Place, misplaced: MisplacedReferences, findings: Findings): void {
  if (misplaced.report(server, place, 'server', findings)) return
  if (!isObject(server)) {
    findings.faultOf('dict_type', place)
    return
  }
  const { url } = server
  // The empty text is a relative address: where the document stands, as "/" is in a document without servers.
  if (url === undefined || (typeof url === 'string' && url !== '' && url.trim() === '')) {
    findings.fault('server_url_missing', 'the server has no url', place, 'url')
    return
  }
  if (misplaced.report(url, placeUnder(place, 'url'), '"url"', findings)) return
  if (typeof url !== 'string') {
    findings.faultOf('string_type', place, 'url')
    return
  }
  if (!PLAIN_URL.test(url) || isForbiddenName(url)) checkUnusualUrl(url, server.variables, place, findings)
  if (url.length > 1 && url.endsWith('/')) {
    const msg = 'the url ends with a slash, as paths begin with one: calls go to addresses with two slashes'
    findings.warn('server_trailing_slash', msg, place, 'url')
  }
}

function checkUnusualUrl(url: string, variables: unknown, place: Place, findings: Findings): void {
  const { text, unfilled } = filled(url.slice(0, URL_CHARACTERS), variables)
  const parsed = parse(text)
  const reason =
    url.length > URL_CHARACTERS
      ? `is longer than ${URL_CHARACTERS} characters`
      : (unusableFilled(text, variables, unfilled.length > 0, { characters: 0 }) ?? unusableVariant(url, variables))
  if (reason !== undefined) {
    findings.fault('server_url_invalid', `the url ${quote(url)} ${reason}`, place, 'url')
    return
  }
  if (unfilled.length > 0) {
    const msg = `the url has a variable without a default: ${quote(unfilled[0] as string)}; it must be filled in before a call`
    findings.warn('server_variable_unfilled', msg, place, 'url')
  } else if (parsed?.host === RELATIVE_HOST) {
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
  const hasSecret = text
    .slice(at + 1, URL_CHARACTERS)
    .split(/[?&;#]/)
    .some(isSecret)
  return { name: text[at] === '?' ? 'query' : 'fragment', hasSecret }
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
  if (/[\0- \x7f]/.test(url)) return 'holds a space or a control character'
  return unusable(url, parse(url), false)
}

/** Why an address that another listed value of a variable gives may not be used, or undefined. One variable is changed at a time. */
function unusableVariant(url: string, variables: unknown): string | undefined {
  if (!url.includes('{') || !isObject(variables)) return undefined
  const tried = { characters: 0 }
  for (const name of variablesIn(url)) {
    const variable = Object.hasOwn(variables, name) ? variables[name] : undefined
    if (!isObject(variable) || !Array.isArray(variable.enum)) continue
    for (const value of variable.enum) {
      if (typeof value !== 'string' && typeof value !== 'number') continue
      const { text, unfilled } = filled(url, variables, { name, value: String(value).slice(0, URL_CHARACTERS) })
      tried.characters += costOf(text)
      if (tried.characters > VARIANT_CHARACTERS) return 'has variables with too many values to look at'
      const reason = unusableFilled(text, variables, unfilled.length > 0, tried)
      if (reason !== undefined) return `${reason} when ${quote(name)} is ${quote(String(value))}`
    }
  }
  return undefined
}

function costOf(address: string): number {
  return Math.max(address.length, SHORT_CHARACTERS)
}

/**
 * `unusable`, also of what a client gets that fills in one variable after the other, so that a value may name another one. What it
 * looks at then is added to `tried`.
 */
function unusableFilled(
  text: string,
  variables: unknown,
  hasUnfilled: boolean,
  tried: { characters: number },
): string | undefined {
  if (PLAIN_URL.test(text) && !isForbiddenName(text)) return undefined
  let reason = unusable(text, parse(text), hasUnfilled)
  let last = text
  let filledIn = 0
  for (let round = 0; reason === undefined && last.includes('{') && round < NESTED_VARIABLES; round++) {
    const next = filled(last.slice(0, URL_CHARACTERS), variables)
    if (next.text === last) break
    filledIn += next.count
    if (filledIn > NESTED_FILLED) return 'has variables whose values lead to too many others'
    last = next.text
    tried.characters += costOf(last) + next.count * SHORT_CHARACTERS
    reason = unusable(last, parse(last), hasUnfilled || next.unfilled.length > 0)
  }
  return reason
}

/** The names of the variables of an address. */
function variablesIn(url: string): Set<string> {
  const names = new Set<string>()
  for (let open = url.indexOf('{'); open !== -1; ) {
    const close = url.indexOf('}', open)
    if (close === -1) break
    names.add(url.slice(open + 1, close))
    open = url.indexOf('{', close)
  }
  return names
}

/**
 * The URL with the defaults of its variables filled in, but for the one that is `chosen`, the names of those that have none, and how
 * many stand in it.
 */
function filled(
  url: string,
  variables: unknown,
  chosen?: { name: string; value: string },
): { text: string; unfilled: string[]; count: number } {
  const unfilled: string[] = []
  let text = ''
  let start = 0
  let count = 0
  while (start < url.length && text.length <= URL_CHARACTERS) {
    const open = url.indexOf('{', start)
    const close = open === -1 ? -1 : url.indexOf('}', open)
    if (close === -1) break
    count++
    const name = url.slice(open + 1, close)
    const value = name === chosen?.name ? chosen.value : defaultOf(variables, name)
    if (value === undefined) unfilled.push(name)
    text += url.slice(start, open) + (value ?? standIn(url, open, close))
    start = close + 1
  }
  return { text: text + url.slice(start), unfilled, count }
}

/** A word that is legal where a variable without a value stands: a scheme, a port, else a piece of a host or path. */
function standIn(url: string, open: number, close: number): string {
  if (open === 0 && url[close + 1] === ':') return 'https'
  return url[open - 1] === ':' ? '443' : 'variable'
}

function defaultOf(variables: unknown, name: string): string | undefined {
  if (!isObject(variables) || !Object.hasOwn(variables, name)) return undefined
  const variable = variables[name]
  if (!isObject(variable)) return undefined
  const value = variable.default
  return typeof value === 'string' || typeof value === 'number' ? String(value).slice(0, URL_CHARACTERS) : undefined
}

/** The URL parser reads odd spellings (numbers, escapes, backslashes, tabs) as a client would. */
function parse(url: string): URL | undefined {
  // "http:host" names a host only where nothing of that scheme stands around it: no client has what is relative here.
  if (URL.canParse(url)) return new URL(url)
  const base = `http://${RELATIVE_HOST}/`
  return URL.canParse(url, base) ? new URL(url, base) : undefined
}

/** Why nothing may be sent to `url`, or undefined. */
function unusable(url: string, parsed: URL | undefined, hasUnfilled: boolean): string | undefined {
  // What a variable will hold is not known, so a URL that only fails to parse with a stand-in is not refused.
  if (SCHEMELESS.test(url)) return `is neither http(s) nor relative; did you mean ${quote(`http://${url}`)}?`
  if (parsed === undefined) return hasUnfilled ? undefined : 'is not a usable URL'
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') return 'is neither http(s) nor relative'
  if (parsed.username !== '' || parsed.password !== '') return 'carries user info: put secrets into custom headers'
  if (partBehindPath(url)?.hasSecret) return 'carries a secret: put secrets into custom headers'
  if (isForbiddenHost(parsed.hostname)) return 'is a link-local or metadata address'
  return undefined
}

/**
 * True for 169.254.0.0/16 and the other metadata addresses of clouds (Alibaba, Azure, Oracle, Google, Amazon) in every notation,
 * also inside IPv6 (mapped, translated, compatible, NAT64, 6to4), for fe80::/10 and for metadata names.
 */
function isForbiddenHost(hostname: string): boolean {
  const host = hostname.replace(/\.$/, '').toLowerCase()
  if (isForbiddenName(host)) return true
  if (!host.startsWith('[')) return /^[\d.]+$/.test(host) && isForbiddenIpv4(host)
  const groups = ipv6Groups(host.slice(1, -1))
  if (((groups[0] ?? 0) & 0xffc0) === 0xfe80 || METADATA_IPV6.has(groups.map(each => each.toString(16)).join(':')))
    return true
  return embeddedIpv4(groups).some(isForbiddenIpv4)
}

/** True if the text, a host or an address, names a metadata service. */
function isForbiddenName(text: string): boolean {
  for (const name of METADATA_NAMES) if (text.includes(name)) return true
  return false
}

function isForbiddenIpv4(address: string): boolean {
  return address.startsWith('169.254.') || METADATA_IPV4.has(address)
}

/** The eight groups of an IPv6 address as the URL parser writes it. */
function ipv6Groups(address: string): number[] {
  const [head = '', tail] = address.split('::')
  const groupsOf = (part: string) => (part === '' ? [] : part.split(':').map(each => Number.parseInt(each, 16)))
  const [start, end] = [groupsOf(head), groupsOf(tail ?? '')]
  return tail === undefined ? start : [...start, ...Array<number>(8 - start.length - end.length).fill(0), ...end]
}

/**
 * The IPv4 addresses that an IPv6 address may carry: ::ffff:0:0/96, ::ffff:0:0:0/96, ::/96, 64:ff9b::/96 and 2002::/16, and in the
 * local 64:ff9b:1::/48 by each length of prefix that RFC 6052 has there.
 */
function embeddedIpv4(groups: readonly number[]): string[] {
  const starts = (...expected: number[]) => expected.every((each, i) => groups[i] === each)
  const octets = groups.flatMap(each => [each >> 8, each & 255])
  const at = (...places: number[]) => places.map(place => octets[place] ?? 0).join('.')
  if (starts(0x2002)) return [at(2, 3, 4, 5)]
  if (starts(0x64, 0xff9b, 1)) return [at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12), at(12, 13, 14, 15)]
  const isLast32 =
    starts(0, 0, 0, 0, 0, 0xffff) ||
    starts(0, 0, 0, 0, 0xffff, 0) ||
    starts(0, 0, 0, 0, 0, 0) ||
    starts(0x64, 0xff9b, 0, 0, 0, 0)
  return isLast32 ? [at(12, 13, 14, 15)] : []
}

/** Addresses of whose host every client thinks alike: no variable, user info, backslash, space or control character in or before it. */
const PLAIN_HOST = /^https?:\/\/[\w.:[\]-]+(?:[/?#][^\\\s]*)?$/i
const PLAIN_RELATIVE = /^(?:\/(?![/\\])[^\\\s]*)?$/
const CLOSED_END = /^https?:\/\/[\w.:[\]-]+[/?#]/i

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
export function hasOpenEnd(server: unknown): server is { url: string; variables?: unknown } {
  return isObject(server) && typeof server.url === 'string' && !CLOSED_END.test(server.url)
}

/**
 * Where a server's calls may go: the origin by the defaults of its variables, and by each of their listed values, one variable
 * at a time. A relative address stands for itself. Where the host is not plain to see (a variable, a backslash), the address as
 * it is written, with all values, is one more.
 */
export function originsOfServer(server: unknown): string[] {
  if (!isObject(server) || typeof server.url !== 'string') return []
  const url = server.url.slice(0, URL_CHARACTERS)
  const { variables } = server
  const texts = [filled(url, variables).text]
  let characters = 0
  for (const name of variablesIn(url)) {
    const variable = isObject(variables) && Object.hasOwn(variables, name) ? variables[name] : undefined
    if (!isObject(variable) || !Array.isArray(variable.enum)) continue
    for (const listed of variable.enum) {
      const { text } = filled(url, variables, { name, value: String(listed).slice(0, URL_CHARACTERS) })
      characters += costOf(text)
      if (characters > VARIANT_CHARACTERS) break // the check refuses such a definition
      texts.push(text)
    }
  }
  const origins = texts.map(text => {
    const parsed = parse(text)
    return parsed === undefined || parsed.host === RELATIVE_HOST ? 'a relative address' : parsed.origin
  })
  return [url, ...texts].every(isPlain) ? origins : [...origins, written(server.url, variables)]
}

function isPlain(text: string): boolean {
  return PLAIN_HOST.test(text) || PLAIN_RELATIVE.test(text)
}

/** The address, and each value of the variables that it has or that a value of one leads to. */
function written(url: string, variables: unknown): string {
  if (!url.includes('{') || !isObject(variables)) return url
  const names = variablesIn(url)
  const values: string[] = []
  for (const name of names) {
    const variable = Object.hasOwn(variables, name) ? variables[name] : undefined
    const listed = isObject(variable) && Array.isArray(variable.enum) ? variable.enum : []
    values.push(`${JSON.stringify(name)}:`)
    for (const value of isObject(variable) ? [variable.default, ...listed] : []) {
      if (typeof value !== 'string' && typeof value !== 'number') continue
      values.push(JSON.stringify(value))
      for (const inner of variablesIn(String(value))) names.add(inner) // and is met here in turn
    }
  }
  return `${url} ${values.join()}`
}

/** The host that calls go to by a list of servers, if its first one is an absolute address without open questions. */
export function hostOf(servers: unknown): string | undefined {
  const [server] = Array.isArray(servers) ? servers : []
  if (!isObject(server) || typeof server.url !== 'string' || server.url.length > URL_CHARACTERS) return undefined
  const { text, unfilled } = filled(server.url, server.variables)
  const host = unfilled.length > 0 ? undefined : parse(text)?.host
  return host === RELATIVE_HOST ? undefined : host
}
