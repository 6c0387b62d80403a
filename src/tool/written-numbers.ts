import { parseExact, writerFor, writtenNumber } from '../validation/exact-json.js'

/* Clients in JavaScript send back 1 for a stored 1.0, which is equal, and 12345678901234568 for 12345678901234567, which is not. */

/** A stored number that a client's JavaScript sent back rounded. */
export interface RoundedNumber {
  path: (string | number)[]
  stored: string
  sent: string
}

const ROUNDED_MAX = 100

/**
 * Compares a definition with the JSON text it was made from. `isPlain`: JavaScript writes all numbers of that text unchanged, so nothing
 * was compared. `isSame`: both differ at most in how numbers are written.
 */
export function compareNumbers(stored: string, sent: object) {
  const before = parseExact(stored)
  const rounded: RoundedNumber[] = []
  if (!isHolder(before) || writerFor(before) === JSON.stringify) return { isPlain: true, isSame: false, rounded }
  return { isPlain: false, isSame: isSameBut(before, sent as Holder, [], rounded), rounded }
}

type Holder = Readonly<Record<string | number, unknown>>

/** True if two objects or lists differ at most in how numbers are written. Collects rounded numbers. */
function isSameBut(before: Holder, after: Holder, path: RoundedNumber['path'], rounded: RoundedNumber[]): boolean {
  if (Array.isArray(before) !== Array.isArray(after)) return false
  const [keys, others] = [Object.keys(before), Object.keys(after)]
  let isSame = keys.length === others.length
  for (const [index, name] of keys.entries()) {
    if (name !== others[index]) isSame = false
    if (!Object.hasOwn(after, name)) continue
    const key = Array.isArray(before) ? index : name
    const [from, to] = [before[key], after[key]]
    if (isHolder(from) && isHolder(to)) {
      if (!isSameBut(from, to, [...path, key], rounded)) isSame = false
    } else if (typeof from === 'number' && typeof to === 'number') {
      const [stored, sent] = [writtenNumber(before, key, from), writtenNumber(after, key, to)]
      if (isSameNumber(stored, sent)) continue
      isSame = false
      if (String(from) === sent && rounded.length < ROUNDED_MAX) rounded.push({ path: [...path, key], stored, sent })
    } else if (from !== to) isSame = false
  }
  return isSame
}

function isHolder(value: unknown): value is Holder {
  return typeof value === 'object' && value !== null
}

/** True if two JSON numbers are exactly equal, however they are written; not compared as doubles. */
export function isSameNumber(one: string, other: string): boolean {
  return one === other || decimal(one) === decimal(other)
}

/** Returns a canonical text: the sign, the digits without zeros at either end, and the exponent of the last digit. */
function decimal(text: string): string {
  const [, sign, whole = '', fraction = '', power = '0'] = NUMBER.exec(text) ?? []
  const all = whole + fraction
  let [start, end] = [0, all.length]
  while (start < end && all[start] === '0') start++
  while (end > start && all[end - 1] === '0') end--
  if (start === end) return '0'
  return `${sign}${all.slice(start, end)}e${BigInt(power) + BigInt(all.length - end - fraction.length)}`
}

const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/
