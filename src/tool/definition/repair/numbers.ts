/** How the texts of numbers outlive an edit: `12345678901234567890` is not what JavaScript makes of it. */
export interface NumberTexts {
  /** Has a copy of an object or list remember the texts that the original does. */
  copied(original: object, copy: object): void
  /** The text of the number at a key of an object or list. */
  textOf(holder: object, key: string | number, value: number): string
  /** For `JSON.stringify` and `JSON.parse`: what one writes the other reads with its texts. */
  replacer(this: unknown, key: string, value: unknown): unknown
  reviver(this: unknown, key: string, value: unknown): unknown
}

/** Numbers as JavaScript reads and writes them. */
export const PLAIN_NUMBERS: NumberTexts = {
  copied: () => undefined,
  textOf: (_holder, _key, value) => String(value),
  replacer: (_key, value) => value,
  reviver: (_key, value) => value,
}
