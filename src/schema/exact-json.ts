import { randomUUID } from 'node:crypto'

/*
 * JSON whose numbers keep their text. JavaScript has doubles: it reads 12345678901234567 as another integer, and writes 1.0 as 1.
 * Here every value is what `JSON.parse` makes of it, so whoever judges it sees plain numbers; the text of a number that
 * JavaScript would write in another way is remembered beside the object or list that holds it, and written again.
 */

/** Stands before a number's text, in a string, on the way through `JSON.parse` and `JSON.stringify`. Nobody can guess it. */
const MARK = `number-${randomUUID()}:`

/** The texts of numbers by the object or list that holds them, then by key. */
const textsOf = new WeakMap<object, Map<string, string>>()
/** What may have such numbers in it: what `parseExact` read, its members, and copies of them. */
const holders = new WeakSet<object>()

/**
 * Reads JSON and remembers how numbers were written. A text without a number to remember goes through `JSON.parse` alone;
 * `isPlain` says that somebody has seen that there is none. Throws the `SyntaxError` of `JSON.parse`.
 */
export function parseExact(text: string, isPlain = false): unknown {
  const marked = isPlain ? undefined : withMarks(text)
  return marked === undefined ? JSON.parse(text) : remembered(JSON.parse(marked, numberReviver))
}

/** A reviver that makes numbers of marked strings, and remembers their texts. Give what it leads to to `remembered`. */
export function numberReviver(this: unknown, key: unknown, value: unknown): unknown {
  if (typeof value !== 'string' || !value.startsWith(MARK)) return value
  const text = value.slice(MARK.length)
  const holder = this as object // what reads JSON or YAML calls it on the object or list
  const texts = textsOf.get(holder) ?? new Map<string, string>()
  textsOf.set(holder, texts.set(String(key), text))
  return Number(text)
}

/** Notes that a value was read with `numberReviver`. */
export function remembered(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  holders.add(value)
  for (const member of Object.values(value)) if (typeof member === 'object' && member !== null) holders.add(member)
  return value
}

/** The string that becomes the number of this text in `numberReviver`; undefined where JavaScript writes that number so by itself. */
export function markedNumber(text: string): string | undefined {
  return isNumber.test(text) && String(Number(text)) !== text ? MARK + text : undefined
}

/** How to write what was made from something that was read: exactly if that held a number to remember, else plainly. */
export function writerFor(read: object): (value: unknown) => string {
  return holders.has(read) ? stringifyExact : JSON.stringify
}

/** Writes JSON with each number as it was read. */
export function stringifyExact(value: unknown, indent?: number): string {
  return withoutMarks(JSON.stringify(value, numberReplacer, indent))
}

/** A replacer that puts a marked string in the place of each remembered number and each BigInt; `withoutMarks` makes the number of it. */
export function numberReplacer(this: unknown, key: unknown, value: unknown): unknown {
  if (typeof value === 'bigint') return MARK + String(value)
  if (typeof value !== 'number') return value
  const text = textsOf.get(this as object)?.get(String(key)) // `JSON.stringify` calls it on the object or list
  return text !== undefined && Number(text) === value ? MARK + text : value
}

/** A text of JSON or YAML with the numbers in the places of the marked strings. */
export function withoutMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(MARKED, '$2') : text
}

const MARKED = new RegExp(`(["']?)${MARK}([-+.\\deE]+)\\1`, 'g')

/**
 * Has a copy of an object or list remember what the original does. They share what is remembered, which nobody changes once it is read:
 * a copy of it for each of thousands that are made of one part would cost the square.
 */
export function rememberNumbers(original: object, copy: object): void {
  const texts = textsOf.get(original)
  if (texts !== undefined) textsOf.set(copy, texts)
  if (holders.has(original)) holders.add(copy)
}

/** A number as it was written, that stands under a key of an object or list. */
export function writtenNumber(holder: object, key: string | number, value: number): string {
  return textsOf.get(holder)?.get(String(key)) ?? String(value)
}

/** Takes the items with these indices out of a list. */
export function removeItems(list: unknown[], indices: ReadonlySet<number>): void {
  const texts = textsOf.get(list)
  const kept = new Map<string, string>()
  let length = 0
  for (const [index, item] of list.entries()) {
    if (indices.has(index)) continue
    const text = texts?.get(String(index))
    if (text !== undefined) kept.set(String(length), text)
    list[length++] = item
  }
  list.length = length
  if (texts !== undefined) textsOf.set(list, kept)
}

/** For who compares numbers: the value with a BigInt for every integer that no double holds; itself where it has none. */
export function withBigInts(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || !holders.has(value)) return value
  return JSON.parse(JSON.stringify(value, numberReplacer), (_, member) => {
    if (typeof member !== 'string' || !member.startsWith(MARK)) return member
    const text = member.slice(MARK.length)
    return /^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text)) ? BigInt(text) : Number(text)
  })
}

/** The JSON of a value of `withBigInts`. */
export function textWithBigInts(value: unknown): string {
  return typeof value === 'bigint' || typeof value === 'object' ? stringifyExact(value) : JSON.stringify(value)
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const MINUS = 0x2d
const COLON = 0x3a
const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const numberAt = /-?\d[\d.eE+-]*/y
const blanksAt = /[ \t\n\r]*/y

/** A JSON text with a marked string in the place of each number to be remembered; undefined where there is none. */
function withMarks(text: string): string | undefined {
  let marked = ''
  let copied = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = endOfString(text, at)
    } else if (unit === MINUS || (unit >= 0x30 && unit <= 0x39)) {
      numberAt.lastIndex = at
      const number = numberAt.exec(text)?.[0] ?? '-'
      const string = isKey(text, at + number.length) ? undefined : markedNumber(number)
      if (string !== undefined) {
        marked += `${text.slice(copied, at)}"${string}"`
        copied = at + number.length
      }
      at += number.length - 1
    }
  }
  return copied === 0 ? undefined : marked + text.slice(copied)
}

/** A number in the place of a key is not JSON; as a string it would be. */
function isKey(text: string, end: number): boolean {
  blanksAt.lastIndex = end
  blanksAt.exec(text)
  return text.charCodeAt(blanksAt.lastIndex) === COLON
}

function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end - 1
    while (text.charCodeAt(before) === BACKSLASH) before--
    if ((end - before) % 2 === 1) return end
  }
  return text.length
}
