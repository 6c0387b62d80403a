import type { Fault, Loc } from '../errors.js'

/** RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Headers that frame a message or belong to one connection: the caller of a tool sets them, never its configuration. */
const forbidden = /^(?:host|content-length|transfer-encoding|connection|upgrade|te|trailer|proxy-.*)$/i

export interface HeaderLimits {
  nameCharacters: number
  valueBytes: number
}

export const DEFAULT_HEADER_LIMITS: HeaderLimits = { nameCharacters: 256, valueBytes: 8192 }

/**
 * The faults of a tool's custom headers, in order: names that are not a token, may not be set or occur twice (in any
 * case), values that are too long in UTF-8 or hold CR, LF or NUL. `loc` is the place of the list. DECISIONS section 4.
 */
export function headerFaults(
  headers: readonly { key: string; value: string }[],
  loc: Loc = ['body', 'custom_headers'],
  limits: HeaderLimits = DEFAULT_HEADER_LIMITS,
): Fault[] {
  const seen = new Set<string>()
  return headers.flatMap(({ key, value }, index) => [
    ...nameFaults(key, seen, [...loc, index, 'key'], limits),
    ...valueFaults(value, [...loc, index, 'value'], limits),
  ])
}

function nameFaults(name: string, seen: Set<string>, loc: Loc, { nameCharacters }: HeaderLimits): Fault[] {
  if (name.length > nameCharacters || !token.test(name)) {
    const msg = `Header name should be a token of RFC 9110 of at most ${nameCharacters} characters`
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

function valueFaults(value: string, loc: Loc, { valueBytes }: HeaderLimits): Fault[] {
  if (Buffer.byteLength(value) <= valueBytes && !/[\r\n\0]/.test(value)) return []
  const msg = `Header value should have at most ${valueBytes} bytes and no carriage return, line feed or NUL`
  return [{ loc, msg, type: 'header_value_invalid' }]
}
