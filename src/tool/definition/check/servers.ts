import type { Findings, Place } from './findings.js'
import { quote } from './findings.js'
import { isObject } from './references.js'

const RELATIVE_HOST = 'relative.invalid'
/** Plain absolute addresses with a name for a host need no URL parser; everything else takes the long way. */
const PLAIN_URL = /^https?:\/\/[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?::\d{1,4})?(?:\/[\w.~/-]*)?$/
/** Only the first is ever used; a list beyond this is no list of servers that anybody wrote. */
const SERVERS_JUDGED = 1000
const URL_CHARACTERS = 8192
const METADATA_NAME = 'metadata.google.internal'

/**
 * The rules for a list of servers: `list_type`, `servers_missing` (only where one is `required`), `dict_type`,
 * `server_url_missing`, `string_type`, `server_url_invalid`, each at its place; every entry is judged, the first is used.
 *
 * Servers of a path or an operation replace the document's, so the same addresses are forbidden there; they cannot replace
 * the document's own, because what calls a tool reads those first.
 */
export function checkServers(servers: unknown, required: boolean, place: Place, findings: Findings): void {
  if (servers === undefined) {
    if (required)
      findings.fault(
        'servers_missing',
        'the definition names no server: add "servers": [{"url": "https://..."}]',
        place,
      )
    return
  }
  if (!Array.isArray(servers)) {
    findings.fault('list_type', 'Input should be a valid list', place)
    return
  }
  if (servers.length === 0 && required) {
    findings.fault('servers_missing', 'the list of servers is empty: add {"url": "https://..."}', place)
  }
  const judged = Math.min(servers.length, SERVERS_JUDGED)
  for (let i = 0; i < judged; i++) checkServer(servers[i], { up: place, key: i }, findings)
  if (servers.length > 1) {
    findings.warn('servers_several', `${servers.length} servers are named; the first is used`, place)
  }
}

function checkServer(server: unknown, place: Place, findings: Findings): void {
  if (!isObject(server)) {
    findings.fault('dict_type', 'Input should be a valid dictionary', place)
    return
  }
  const { url } = server
  if (url === undefined || (typeof url === 'string' && url.trim() === '')) {
    findings.fault('server_url_missing', 'the server has no url', place, 'url')
    return
  }
  if (typeof url !== 'string') {
    findings.fault('string_type', 'Input should be a valid string', place, 'url')
    return
  }
  if (!PLAIN_URL.test(url) || url.includes(METADATA_NAME)) checkUnusualUrl(url, server.variables, place, findings)
}

function checkUnusualUrl(url: string, variables: unknown, place: Place, findings: Findings): void {
  const { text, unfilled } = filled(url.slice(0, URL_CHARACTERS), variables)
  const parsed = parse(text)
  const reason =
    url.length > URL_CHARACTERS
      ? `is longer than ${URL_CHARACTERS} characters`
      : unusable(text, parsed, unfilled.length > 0)
  if (reason !== undefined) {
    findings.fault('server_url_invalid', `the url ${quote(url)} ${reason}`, place, 'url')
    return
  }
  if (unfilled.length > 0) {
    const msg = `the url has a variable without a default: ${quote(unfilled[0] as string)}; it must be filled in before a call`
    findings.warn('server_variable_unfilled', msg, place, 'url')
  } else if (parsed?.host === RELATIVE_HOST) {
    const msg = `the url ${quote(url)} is relative: calls need an absolute address such as https://api.example.com`
    findings.warn('server_relative', msg, place, 'url')
  }
}

/** The URL with the defaults of its variables filled in, and the names of those that have none. */
function filled(url: string, variables: unknown): { text: string; unfilled: string[] } {
  const unfilled: string[] = []
  let text = ''
  let start = 0
  while (start < url.length && text.length <= URL_CHARACTERS) {
    const open = url.indexOf('{', start)
    const close = open === -1 ? -1 : url.indexOf('}', open)
    if (close === -1) break
    const name = url.slice(open + 1, close)
    const value = defaultOf(variables, name)
    if (value === undefined) unfilled.push(name)
    text += url.slice(start, open) + (value ?? standIn(url, open, close))
    start = close + 1
  }
  return { text: text + url.slice(start), unfilled }
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
  try {
    return new URL(url, `http://${RELATIVE_HOST}/`)
  } catch {
    return undefined
  }
}

/** Why nothing may be sent to `url`, or undefined. */
function unusable(url: string, parsed: URL | undefined, hasUnfilled: boolean): string | undefined {
  // What a variable will hold is not known, so a URL that only fails to parse with a stand-in is not refused.
  if (parsed === undefined) return hasUnfilled ? undefined : 'is no usable URL'
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') {
    const hint = /^[\w.-]+:\d/.test(url) ? `; did you mean ${quote(`http://${url}`)}?` : ''
    return `is neither http(s) nor relative${hint}`
  }
  if (parsed.username !== '' || parsed.password !== '') return 'carries user info: put secrets into custom headers'
  if (isForbiddenHost(parsed.hostname)) return 'is a link-local or metadata address'
  return undefined
}

/** 169.254.0.0/16 in every notation, also inside IPv6; fe80::/10; fd00:ec2::254; the metadata name of Google's cloud. */
function isForbiddenHost(hostname: string): boolean {
  const host = hostname.replace(/\.$/, '')
  if (host.startsWith('169.254.')) return /^[\d.]+$/.test(host)
  if (host === METADATA_NAME) return true
  if (!host.startsWith('[')) return false
  const address = host.slice(1, -1)
  return (
    /^fe[89ab]/.test(address) ||
    address === 'fd00:ec2::254' ||
    /^(::ffff:|::|64:ff9b::)a9fe:[0-9a-f]{1,4}$/.test(address)
  )
}
