import { type Static, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { text } from '../schema/vocabulary.js'
import { looksLikeMask } from '../secrets/mask.js'

/** RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Headers that frame a message or belong to one connection: what calls a tool sets them, never its configuration. */
const forbidden = /^(?:host|content-length|transfer-encoding|connection|upgrade|te|trailer|proxy-.*)$/i

const NAME_CHARACTERS_MAX = 256
const VALUE_BYTES_MAX = 8192

export type Header = Static<typeof Header>
/** A custom header. The rules for names and values have fault types of their own: `headerFaults`. */
export const Header = Type.Object(
  {
    key: text({ description: `A token of RFC 9110 of at most ${NAME_CHARACTERS_MAX} characters.` }),
    value: text({ description: `At most ${VALUE_BYTES_MAX} bytes of Latin-1 without controls but tab; or a mask.` }),
  },
  { $id: 'Header' },
)

/** The faults of a tool's custom headers, in order (DECISIONS section 4). `loc` is the place of the list. */
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
  if (forbidden.test(name)) {
    return [{ loc, msg: `Header '${name}' belongs to the connection and cannot be set`, type: 'header_name_forbidden' }]
  }
  const folded = name.toLowerCase()
  if (seen.has(folded)) {
    return [
      { loc, msg: `Header '${name}' is already in the list (case does not matter)`, type: 'header_name_duplicate' },
    ]
  }
  seen.add(folded)
  return []
}

/** What a field value may not hold: all but tab, printable ASCII, the upper half of Latin-1 (RFC 9110, section 5.5). */
const UNSENDABLE = /[^\t\x20-\x7e\xa0-\xff]/u

function valueFaults(value: string, loc: Loc): Fault[] {
  if (looksLikeMask(value)) return [] // told as `mask_mismatch`
  const fault = (msg: string): Fault[] => [{ loc, msg: `Header value should ${msg}`, type: 'header_value_invalid' }]
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
