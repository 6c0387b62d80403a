import { isDeepStrictEqual } from 'node:util'

/**
 * Gives values of equal structure equal numbers: two JSON values have the same number exactly if they are written alike, but for
 * the order of keys. Each object is looked at once, however often it is asked for.
 */
export class Structures {
  private readonly numbers = new Map<string, number>()
  private readonly byObject = new Map<object, number>()

  /** The number of `value`, which nests no deeper than a checked definition. */
  numberOf(value: unknown): number {
    if (typeof value !== 'object' || value === null) return this.numbered(`=${plainText(value)}`)
    const known = this.byObject.get(value)
    if (known !== undefined) return known
    const text = Array.isArray(value)
      ? `[${value.map(each => this.numberOf(each)).join()}`
      : `{${Object.keys(value)
          .sort()
          .map(key => `${JSON.stringify(key)}:${this.numberOf((value as Record<string, unknown>)[key])}`)
          .join()}`
    const number = this.numbered(text)
    this.byObject.set(value, number)
    return number
  }

  /** A text that tells a value from every other: of an object or list it is its number. */
  keyOf(value: unknown): string {
    return typeof value === 'object' && value !== null ? `#${this.numberOf(value)}` : plainText(value)
  }

  private numbered(text: string): number {
    const number = this.numbers.get(text) ?? this.numbers.size
    this.numbers.set(text, number)
    return number
  }
}

function plainText(value: unknown): string {
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value)
}

/** True if two JSON values are equal, whatever the order of keys. */
export function areEqual(one: unknown, other: unknown): boolean {
  return isDeepStrictEqual(one, other)
}
