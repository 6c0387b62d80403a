import { type Static, Type } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import { looksMasked, shownMask } from '../secrets/mask.js'
import { text } from '../validation/vocabulary.js'

/** A header name: `token` of RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** HTTP headers that control messages and connections. Only the HTTP client that calls the tool may set them. */
const FORBIDDEN =
  /^(?:host|content-length|transfer-encoding|connection|keep-alive|expect|upgrade|http2-settings|te|trailer|proxy-.*)$/

export const HEADERS_MAX = 50
const NAME_CHARACTERS_MAX = 256
const VALUE_BYTES_MAX = 8192

export type Header = Static<typeof Header>
/** A custom header. `headerFaults` does most checks of names and values, because the schema cannot report their fault types. */
export const Header = Type.Object(
  {
    key: text({
      maxLength: NAME_CHARACTERS_MAX,
      description: 'ASCII letters, digits and other characters that RFC 9110 allows in header names, but not `***`.',
    }),
    value: text({
      description: `A mask or a new value: Latin-1, no control characters except tabs, at most ${VALUE_BYTES_MAX} bytes in UTF-8.`,
    }),
  },
  { $id: 'Header' },
)

/** Returns the faults of custom headers, in list order (DECISIONS section 4). */
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
  if (!token.test(name) || name.includes('***'))
    return fault(
      `The header name must consist of 1 to ${NAME_CHARACTERS_MAX} ASCII letters, digits and characters from !#$%&'*+-.^_\`|~, and must not contain ***`,
      'invalid',
    )
  // Gateways can replace `_` and other characters with `-` (RFC 3875, section 4.1.18).
  if (FORBIDDEN.test(name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-')))
    return fault(`Remove the header '${name}': only the HTTP client that calls the tool sets it`, 'forbidden')
  return seen.has(name.toLowerCase())
    ? fault(`The header '${name}' is already in the list (case is ignored): remove one entry`, 'duplicate')
    : []
}

/** Matches header values (RFC 9110, section 5.5). They must not begin or end with a space, tab or soft hyphen, because these are invisible. */
const SENDABLE = /^[\x21-\x7e\xa1-\xac\xae-\xff](?:[\t\x20-\x7e\xa0-\xff]*[\x21-\x7e\xa1-\xac\xae-\xff])?$/

function valueFaults(value: string, loc: Loc): Fault[] {
  if (looksMasked(value)) return [] // `redactionFaults` checks masks
  if (SENDABLE.test(value) && Buffer.byteLength(value) <= VALUE_BYTES_MAX) return []
  const msg = `The header value must have 1 to ${VALUE_BYTES_MAX} bytes in UTF-8, only Latin-1 characters, no control characters except tabs, and no space, tab or soft hyphen at the beginning or end`
  return [{ loc, msg, type: 'header_value_invalid' }]
}

/** Returns headers with masks instead of values, as in answers and audit rows. */
export function shownHeaders(headers: readonly { name: string; mask: string }[]): Header[] {
  return headers.map(({ name, mask }) => ({ key: name, value: shownMask(mask) }))
}
