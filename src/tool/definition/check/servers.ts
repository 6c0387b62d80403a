import { BlockList, isIP } from 'node:net'
import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { Reader } from './reader.js'
import { isObject, parsedUrl } from './references.js'

const RELATIVE_HOST = 'relative.invalid'
/** An address without its scheme: a host with a port, or an IP address. */
const SCHEMELESS = /^(?:[^\s/?#@\\:[\]]+:\d+|\[[\da-f:.%]+\](?::\d+)?|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?)(?:[/?#]|$)/i
const HOST_LIKE = /^[a-z\d-]+(?:\.[a-z\d-]+)*\.[a-z]{2,}(?:[/?#]|$)/i
const SECRET_NAME =
  /^(?:x[_-]|ocp-apim-)?(?:api|app|access|auth|client|private|secret|service|subscription|user)?[_-]?(?:key|token|secret)$|^(?:password|passwd|pwd|sig|signature|authorization|credentials?)$/i
/** How the secrets of some vendors begin. A value without such a beginning is no secret, however random it looks. */
const SECRET_VALUE =
  /^(?:[sr]k[_-](?:live|test|proj|ant)[_-]|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|shp(?:at|ca|pa|ss)_|AIza|ya29\.|AKIA|ASIA|SG\.|eyJ[\w-]+\.)[\w.+/=-]{12,}/
/** What stands for a value that is not there: a placeholder, an example, a flag. */
const STAND_IN = /^(?:[{<$%[*]|your|my[_-]|x{3}|\.{3}|example|changeme|variable$|true$|false$|\d{1,2}$)/i
/** Addresses whose host every client reads alike: no variable, user info, backslash, space or control character in or before it. */
const PLAIN = /^(?:https?:\/\/[\w.:[\]-]+(?:[/?#][^\\\s]*)?|(?:\/(?![/\\])[^\\\s]*)?)$/i
/** Addresses whose host no path changes that is put after them. */
const CLOSED = /^(?:https?:\/\/[^\0- /?#\\]+[/?#]|\/[^\0- /\\])/i
/** Paths that change the host of an address only if it consists of slashes. */
const ORDINARY_PATH = /^\/(?![/\\\0- ])/

/** Only the first is ever used. */
const SERVERS_JUDGED = 1000
const URL_CHARACTERS = 8192
/** Characters of all addresses that the values of a server's variables give together, each counted as at least 32. */
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

/** True for an address that begins with a host instead of a scheme: `localhost:8080`, `api.example.com/v1`. */
export function lacksScheme(url: string): boolean {
  return SCHEMELESS.test(url) || HOST_LIKE.test(url)
}

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
  const { addresses, isWhole } = addressesOf(server)
  const wrong = isWhole ? addresses.find(each => unusable(each) !== undefined) : undefined
  if (url.length > URL_CHARACTERS) {
    findings.fault('server_url_invalid', `the url is longer than ${URL_CHARACTERS} characters`, place, 'url')
  } else if (!isWhole) {
    const msg = `the url ${quote(url)} has variables with too many values to look at`
    findings.fault('server_url_invalid', msg, place, 'url')
  } else if (wrong !== undefined) {
    const chosen = wrong.chosen && ` when ${quote(wrong.chosen[0])} is ${quote(wrong.chosen[1])}`
    findings.fault('server_url_invalid', `the url ${quote(url)} ${unusable(wrong)}${chosen ?? ''}`, place, 'url')
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
    const hint = HOST_LIKE.test(url) ? `; did you mean ${quote(`https://${url}`)}?` : ''
    const msg = `the url ${quote(url)} is relative: calls need an absolute address such as https://api.example.com${hint}`
    findings.warn('server_relative', msg, place, 'url')
  } else if (/^https?:(?!\/\/(?![/\\]))/i.test(text)) {
    const msg = `the url ${quote(url)} lacks the two slashes after its scheme: not every client repairs that`
    findings.warn('server_url_slashes', msg, place, 'url')
  }
  const after = partAfterPath(text)
  if (after === undefined) return
  const msg = `the url has a ${after.name}: the path of each call is put after it and becomes part of it`
  findings.warn('server_query', msg, place, 'url')
}

/** The query or fragment of an address or a path, and whether it holds a secret by its name or by how its value begins. */
export function partAfterPath(text: string): { name: string; hasSecret: boolean } | undefined {
  const at = text.search(/[?#]/)
  if (at === -1) return undefined
  const pairs = text.slice(at + 1, URL_CHARACTERS).split(/[?&;#]/)
  const hasSecret = pairs.some(pair => {
    const [, name = '', value = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? []
    return SECRET_VALUE.test(value || name) || (SECRET_NAME.test(name) && value !== '' && !STAND_IN.test(value))
  })
  return { name: text[at] === '?' ? 'query' : 'fragment', hasSecret }
}

/** Why calls cannot go to an absolute address that somebody names beside a definition, or undefined. */
export function unusableServer(url: string): string | undefined {
  // A client leaves some of these out, and would send others.
  return /[\0- \x7f]/.test(url) ? 'holds a space or a control character' : unusable({ text: url, unfilled: [] })
}

/** One of the addresses that a server may stand for. */
interface Address {
  readonly text: string
  /** The variables without a value; a word that is legal there stands for each. */
  readonly unfilled: readonly string[]
  /** The variable, and the one of its listed values, that makes it another than the first. */
  readonly chosen?: readonly [name: string, value: string]
}

/** The address of a server by the defaults of its variables, then by each listed value of one of them. `isWhole`: none is left out. */
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

/** The address with the defaults of its variables filled in, except for one with a chosen value. */
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

/** The URL parser reads odd spellings (numbers, escapes, backslashes, tabs) as a client would. */
function parse(url: string): URL | undefined {
  // "http:host" names a host only where nothing of that scheme stands around it: no client has what is relative here.
  return parsedUrl(url) ?? parsedUrl(url, `http://${RELATIVE_HOST}/`)
}

/** Why nothing may be sent to an address, or undefined. One that only fails to parse with a stand-in for a value is not refused. */
function unusable({ text, unfilled }: Address): string | undefined {
  if (SCHEMELESS.test(text)) return `is neither http(s) nor relative; did you mean ${quote(`http://${text}`)}?`
  const parsed = parse(text)
  if (parsed === undefined) return unfilled.length > 0 ? undefined : 'is not a usable URL'
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') return 'is neither http(s) nor relative'
  if (parsed.username !== '' || parsed.password !== '') return 'carries user info: put secrets into custom headers'
  if (partAfterPath(text)?.hasSecret) return 'carries a secret: put secrets into custom headers'
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

/** The addresses of a list of servers whose host a path may change. */
export function openAddresses(servers: unknown): string[] {
  const texts = (Array.isArray(servers) ? servers.slice(0, SERVERS_JUDGED) : [])
    .filter(isObject)
    .flatMap(server => addressesOf(server).addresses.map(({ text }) => text))
  return [...new Set(texts)].filter(text => !CLOSED.test(text))
}

/**
 * Why a path names another host after one of these open addresses, or undefined. A server and a path are joined as texts, with one slash
 * between them. Some clients keep two, and some resolve the path like a link: for them "//a.example" names a host.
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
  return address === undefined ? undefined : `after the server ${quote(address)} names another host`
}

/** True for what a network can look up. An address such as 0.0.0.2, which a step "2" would be, is none. */
function canBeHost(host: string | undefined): boolean {
  return host !== undefined && host !== RELATIVE_HOST && !host.startsWith('0.') && /[.:]|^localhost$/.test(host)
}

/** The host that calls go to by a list of servers, if its first one is an absolute address without open questions. */
export function hostOf(servers: unknown): string | undefined {
  const [server] = Array.isArray(servers) ? servers : []
  const [address] = isObject(server) ? addressesOf(server).addresses : []
  const host = address === undefined || address.unfilled.length > 0 ? undefined : parse(address.text)?.host
  return host === RELATIVE_HOST ? undefined : host
}

/** The address of the first server of a definition, its variables by their defaults; empty without one. */
export function firstAddress(definition: unknown): string {
  const [server] = isObject(definition) && Array.isArray(definition.servers) ? definition.servers : []
  return (isObject(server) ? addressesOf(server).addresses[0]?.text : undefined) ?? ''
}

/**
 * The origins to which calls by a definition may go, wherever a list of servers stands in it, as a reference may lead there. Where the
 * host is not plain to see (a variable, a backslash), the address as it is written, with the values of its variables, is one more.
 */
export function originsOf(definition: unknown): Set<string> {
  const origins = new Set<string>()
  const pending: unknown[] = [definition]
  while (pending.length > 0) {
    const node = pending.pop()
    if (typeof node !== 'object' || node === null) continue
    for (const value of Object.values(node)) pending.push(value)
    if (isObject(node) && Array.isArray(node.servers))
      for (const server of node.servers.filter(isObject)) addOrigins(server, origins)
  }
  return origins
}

function addOrigins(server: Record<string, unknown>, origins: Set<string>): void {
  const { url, variables } = server
  if (typeof url !== 'string') return
  const texts = addressesOf(server).addresses.map(({ text }) => text)
  for (const text of texts) {
    const parsed = parse(text)
    origins.add(parsed === undefined || parsed.host === RELATIVE_HOST ? 'a relative address' : parsed.origin)
  }
  if ([url, ...texts].every(text => PLAIN.test(text))) return
  const names = isObject(variables) ? [...Object.keys(variables), 'default', 'enum'] : []
  origins.add(`${url} ${JSON.stringify(variables, names) ?? ''}`)
}
