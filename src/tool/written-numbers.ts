import { parseExact, writerFor, writtenNumber } from '../schema/exact-json.js'

/*
 * A client that reads a definition with JavaScript and sends it back writes 1 for a stored 1.0, and 12345678901234568 for a stored
 * 12345678901234567. The first is the same number; the second is not what anybody asked for.
 */

/** A number of a stored definition that came back as JavaScript writes it, and is another one so. */
export interface RoundedNumber {
  path: (string | number)[]
  stored: string
  sent: string
}

export interface NumberComparison {
  /** Whether the stored definition has no number that JavaScript would write in another way: then nothing was compared. */
  isStoredPlain: boolean
  /** Whether both are the same but for the writing of their numbers. */
  isSame: boolean
  rounded: RoundedNumber[]
}

/** More rounded numbers are not listed. */
const ROUNDED_MAX = 100

/** Compares a definition that was sent with the stored one, both as JSON texts. */
export function compareNumbers({ stored, sent }: { stored: string; sent: string }): NumberComparison {
  const before = parseExact(stored)
  const isStoredPlain = !isHolder(before) || writerFor(before) === JSON.stringify
  if (isStoredPlain) return { isStoredPlain, isSame: false, rounded: [] }
  const after = parseExact(sent)
  const comparison = new Comparison()
  if (isHolder(after)) comparison.compareHolders(before, after)
  return { isStoredPlain, isSame: comparison.isSame && isHolder(after), rounded: comparison.rounded }
}

type Holder = Readonly<Record<string | number, unknown>>

class Comparison {
  isSame = true
  readonly rounded: RoundedNumber[] = []
  /** Where the holders stand that are being compared. */
  readonly #path: (string | number)[] = []

  /** It recurses no deeper than a definition may nest. */
  compareHolders(before: Holder, after: Holder): void {
    if (Array.isArray(before) !== Array.isArray(after)) {
      this.isSame = false
    } else if (Array.isArray(before) && Array.isArray(after)) {
      if (before.length !== after.length) this.isSame = false
      const length = Math.min(before.length, after.length)
      for (let index = 0; index < length; index++) this.#compareMember(before, after, index)
    } else {
      const [keys, others] = [Object.keys(before), Object.keys(after)]
      if (keys.length !== others.length || keys.some((name, index) => name !== others[index])) this.isSame = false
      for (const name of keys) if (Object.hasOwn(after, name)) this.#compareMember(before, after, name)
    }
  }

  #compareMember(before: Holder, after: Holder, key: string | number): void {
    const [from, to] = [before[key], after[key]]
    if (isHolder(from) && isHolder(to)) {
      this.#path.push(key)
      this.compareHolders(from, to)
      this.#path.pop()
    } else if (typeof from === 'number' && typeof to === 'number') this.#compareNumber(before, after, key, from, to)
    else if (from !== to) this.isSame = false
  }

  #compareNumber(before: Holder, after: Holder, key: string | number, from: number, to: number): void {
    const [stored, sent] = [writtenNumber(before, key, from), writtenNumber(after, key, to)]
    if (isSameNumber(stored, sent)) return
    this.isSame = false
    if (String(from) === sent && this.rounded.length < ROUNDED_MAX)
      this.rounded.push({ path: [...this.#path, key], stored, sent })
  }
}

function isHolder(value: unknown): value is Holder {
  return typeof value === 'object' && value !== null
}

/** Whether two numbers of JSON are mathematically the same, however they are written: exactly, not as doubles. */
export function isSameNumber(one: string, other: string): boolean {
  if (one === other) return true
  const [a, b] = [decimal(one), decimal(other)]
  return a.digits === b.digits && (a.digits === '' || (a.isNegative === b.isNegative && a.exponent === b.exponent))
}

/** The digits of a number without zeros at either end, and the power of ten of the last one; NaN where it is beyond all counting. */
function decimal(text: string): { isNegative: boolean; digits: string; exponent: number } {
  const [, sign, whole = '', fraction = '', power = '0'] = NUMBER.exec(text) ?? []
  const all = whole + fraction
  let [start, end] = [0, all.length]
  while (start < end && all[start] === '0') start++
  while (end > start && all[end - 1] === '0') end--
  const exponent = Number(power) - fraction.length + (all.length - end)
  return {
    isNegative: sign === '-',
    digits: all.slice(start, end),
    exponent: Number.isSafeInteger(Number(power)) ? exponent : Number.NaN,
  }
}

const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/
