/** Keeps the texts of numbers through an edit: JavaScript would round `12345678901234567890`. */
export interface NumberTexts {
  /** Copies the remembered number texts of an object or list to its copy. */
  copied(original: object, copy: object): void
  /** Returns the text of the number at a key of an object or list. */
  textOf(holder: object, key: string | number, value: number): string
  /** For `JSON.stringify` and `JSON.parse`: they keep number texts through a round trip. */
  replacer(this: unknown, key: string, value: unknown): unknown
  reviver(this: unknown, key: string, value: unknown): unknown
}

/** Reads and writes numbers as JavaScript does. */
export const PLAIN_NUMBERS: NumberTexts = {
  copied: () => undefined,
  textOf: (_holder, _key, value) => String(value),
  replacer: (_key, value) => value,
  reviver: (_key, value) => value,
}
