import { type Static, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { looksRedacted, redactionOf } from '../secrets/redaction.js'
import { text } from '../validation/vocabulary.js'

/** A header name: `token` of RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Headers of framing or of one connection: only the client that calls a tool sets them. */
const FORBIDDEN =
  /^(?:host|content-length|transfer-encoding|connection|keep-alive|expect|upgrade|http2-settings|te|trailer|proxy-.*)$/

/** Normalises a name as gateways do: many turn `_` and other signs into `-` (RFC 3875, section 4.1.18). */
function folded(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-')
}

const NAME_CHARACTERS_MAX = 256
const VALUE_BYTES_MAX = 8192

export type Header = Static<typeof Header>
/** A custom header. `headerFaults` checks names and values, because their faults have types of their own. */
export const Header = Type.Object(
  {
    key: text({ description: `A token of RFC 9110 of at most ${NAME_CHARACTERS_MAX} characters.` }),
    value: text({ description: `At most ${VALUE_BYTES_MAX} bytes of Latin-1 without controls but tab; or a mask.` }),
  },
  { $id: 'Header' },
)

/** Returns the faults of custom headers, in order (DECISIONS section 4). `loc` is the path of the list. */
export function headerFaults(headers: readonly Header[], loc: Loc = ['body', 'custom_headers']): Fault[] {
  const seen = new Set<string>()
  return headers.flatMap(({ key, value }, index) => [
    ...nameFaults(key, seen, [...loc, index, 'key']),
    ...valueFaults(value, [...loc, index, 'value']),
  ])
}

function nameFaults(name: string, seen: Set<string>, loc: Loc): Fault[] {
  if (name.length > NAME_CHARACTERS_MAX || !token.test(name) || name.includes('***')) {
    const msg = `Header name should be a token of RFC 9110 of at most ${NAME_CHARACTERS_MAX} characters`
    return [{ loc, msg, type: 'header_name_invalid' }]
  }
  if (FORBIDDEN.test(folded(name))) {
    return [{ loc, msg: `Header '${name}' belongs to the connection and cannot be set`, type: 'header_name_forbidden' }]
  }
  const lower = name.toLowerCase()
  if (seen.has(lower)) {
    return [
      { loc, msg: `Header '${name}' is already in the list (case does not matter)`, type: 'header_name_duplicate' },
    ]
  }
  seen.add(lower)
  return []
}

/**
 * Matches a character that a header value must not contain: all except tab, printable ASCII and the upper half of Latin-1 (RFC 9110,
 * section 5.5).
 */
const UNSENDABLE = /[^\t\x20-\x7e\xa0-\xff]/u

/** Matches an empty value: only blanks and soft hyphens. */
const INVISIBLE = /^[\s\xad]*$/

function valueFaults(value: string, loc: Loc): Fault[] {
  if (looksRedacted(value)) return [] // reported as `mask_mismatch` elsewhere
  const fault = (msg: string): Fault[] => [{ loc, msg: `Header value should ${msg}`, type: 'header_value_invalid' }]
  if (INVISIBLE.test(value)) return fault('not be empty: leave the header out of the list to remove it')
  if (Buffer.byteLength(value) > VALUE_BYTES_MAX) return fault(`have at most ${VALUE_BYTES_MAX} bytes`)
  const unsendable = UNSENDABLE.exec(value)
  if (unsendable !== null) {
    const code = unsendable[0].codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')
    const place = [...value.slice(0, unsendable.index)].length + 1
    return fault(`have characters that a client can send: character ${place} is U+${code}`)
  }
  if (/^\s/.test(value)) return fault('begin without a blank: character 1 is one')
  if (/\s$/.test(value)) return fault(`end without a blank: character ${value.length} is one`)
  return []
}

const SCHEME = '(?:bearer|basic|digest|token|apikey|api-key)'
const TWO_SCHEMES = new RegExp(`^${SCHEME}[ :=]+${SCHEME}(?:[ :=]|$)`, 'i')
const SCHEME_ALONE = new RegExp(`^${SCHEME}:?$`, 'i')
/** Placeholders in brackets or as a variable: `<token>`, `{{API_KEY}}`, `$TOKEN`. */
const SLOT = String.raw`<[^<>]+>|\[[^[\]",]+\]|\$?\{{1,2}[^{}":,]+\}{1,2}|\$\([^()]+\)|\$[a-z_]\w*|%[a-z_]\w*%|__\w+__`
/** Placeholders made only of listed words, with at least one of these: `YOUR_API_KEY`, `insert-token-here`, `change me`. */
const TELLING_WORDS = 'your|my|insert|enter|put|paste|replace|change|here|example|dummy|sample|fake'
const WORDS =
  `${TELLING_WORDS}|the|a|an|some|add|with|me|this|actual|real|new|test|api|access|auth|bearer|client|secret|private|app|user|` +
  'token|key|password|credentials?|value|goes'
const LAST_WORD = 'key|token|secret|password|credentials?|value|me|this|here'
/** Texts that programs write for a missing value. */
const NOTHING = String.raw`todo|tbd|fixme|placeholder|example|string|null|undefined|none|nil|nan|\[object object\]`
const PLACEHOLDER = new RegExp(
  `^(?:${SCHEME}[ :=]+)?["']?(?:${SLOT}|(?=.*(?:${TELLING_WORDS}))(?:(?:${WORDS})[-_. ]*)*(?:${LAST_WORD})|${NOTHING})["']?$`,
  'i',
)
/** Placeholders such as `API_KEY`. */
const CONSTANT = /^(?:[A-Z]+_)*(?:KEY|TOKEN|SECRET|PASSWORD)$/
const PLACEHOLDER_CHARACTERS_MAX = 100

/** Matches a whole header line or an option of curl. */
const HEADER_LINE = /^(?:-H\s*)?["']?([!#$%&'*+\-.^_`|~0-9a-z]+)\s*:\s*\S/i

/** Returns warnings about suspicious values, without the values. They are stored unchanged. */
export function headerNotes(headers: readonly Header[]): string[] {
  return headers.flatMap(({ key, value }) => {
    const doubt = looksRedacted(value) ? undefined : doubtOf(key, value)
    return doubt === undefined ? [] : [`the value of the header ${key} ${doubt}; it is sent as it is`]
  })
}

function doubtOf(name: string, value: string): string | undefined {
  if (TWO_SCHEMES.test(value)) return 'begins with two authentication schemes'
  if (SCHEME_ALONE.test(value)) return 'is an authentication scheme without credentials'
  const isShort = value.length <= PLACEHOLDER_CHARACTERS_MAX
  if (isShort && (PLACEHOLDER.test(value) || CONSTANT.test(value))) return 'looks like a placeholder'
  const line = HEADER_LINE.exec(value)?.[1]
  const isLine =
    line !== undefined && (folded(line) === folded(name) || /^(?:authorization|cookie|x-.*|api-?key)$/i.test(line))
  return isLine ? 'looks like a whole header line with its name' : undefined
}

/** Returns the redaction of a stored header. */
export function shownRedaction(header: { fingerprint: string }): string {
  return redactionOf(Buffer.from(header.fingerprint, 'hex'))
}

/** Returns headers as answers and audit rows show them: name and redaction. */
export function shownHeaders(headers: { name: string; fingerprint: string }[]): Header[] {
  return headers.map(header => ({ key: header.name, value: shownRedaction(header) }))
}
