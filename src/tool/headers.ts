import { type Static, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { looksMasked, shownMask } from '../secrets/mask.js'
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
