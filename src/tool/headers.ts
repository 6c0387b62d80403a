import { type Static, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { looksMasked, shownMask } from '../secrets/mask.js'
import { text } from '../validation/vocabulary.js'

/** A header name: `token` of RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Headers of framing or of one connection: only the client that calls a tool sets them. */
const FORBIDDEN =
  /^(?:host|content-length|transfer-encoding|connection|keep-alive|expect|upgrade|http2-settings|te|trailer|proxy-.*)$/

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

/** Returns the faults of custom headers, in order (DECISIONS section 4). */
export function headerFaults(headers: readonly Header[]): Fault[] {
  const seen = new Set<string>()
  return headers.flatMap(({ key, value }, index) => {
    const loc = ['body', 'custom_headers', index]
    const faults = [...nameFaults(key, seen, [...loc, 'key']), ...valueFaults(value, [...loc, 'value'])]
    seen.add(key.toLowerCase())
    return faults
  })
}

function nameFaults(name: string, seen: ReadonlySet<string>, loc: Loc): Fault[] {
  const fault = (msg: string, type: string): Fault[] => [{ loc, msg, type: `header_name_${type}` }]
  if (name.length > NAME_CHARACTERS_MAX || !token.test(name) || name.includes('***'))
    return fault(`Header name should be a token of RFC 9110 of at most ${NAME_CHARACTERS_MAX} characters`, 'invalid')
  // Gateways turn `_` and other signs into `-` (RFC 3875, section 4.1.18).
  if (FORBIDDEN.test(name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-')))
    return fault(`Header '${name}' belongs to the connection and cannot be set`, 'forbidden')
  return seen.has(name.toLowerCase())
    ? fault(`Header '${name}' is already in the list (case does not matter)`, 'duplicate')
    : []
}

/**
 * Matches a character that a header value must not contain: all except tab, printable ASCII and the upper half of Latin-1 (RFC 9110,
 * section 5.5).
 */
const UNSENDABLE = /[^\t\x20-\x7e\xa0-\xff]/u

/** Matches an empty value: only blanks and soft hyphens. */
const INVISIBLE = /^[\s\xad]*$/

function valueFaults(value: string, loc: Loc): Fault[] {
  if (looksMasked(value)) return [] // reported as `mask_mismatch` elsewhere
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

/** Returns headers as answers and audit rows show them: name and mask. */
export function shownHeaders(headers: readonly { name: string; mask: string }[]): Header[] {
  return headers.map(({ name, mask }) => ({ key: name, value: shownMask(mask) }))
}
