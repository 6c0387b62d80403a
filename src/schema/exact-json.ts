import { randomUUID } from 'node:crypto'

/*
 * JSON whose numbers keep their text. JavaScript reads 12345678901234567 as another integer and writes 1.0 as 1. Here every value is
 * what `JSON.parse` makes of it; the text of a number that JavaScript would write in another way is remembered beside the object or
 * list that holds it, and written again.
 */

/** The texts of the numbers to remember in an object or list, by key or index. */
type Texts = Map<string, string>

const textsOf = new WeakMap<object, Texts>()
/** What was read with such a number somewhere in it, and copies of it. */
const holders = new WeakSet<object>()

/** An object or a list of JSON: every enumerable key is its own. */
type Holder = Record<string | number, unknown>

/**
 * Reads JSON and remembers how numbers were written. A text without a number to remember goes through `JSON.parse` alone;
 * `isPlain` says that there is none. Throws a `SyntaxError` as `JSON.parse` does.
 */
export function parseExact(text: string, isPlain = false): unknown {
  const { counted, numbers } = isPlain ? { counted: text, numbers: [] } : withIndices(text)
  if (numbers.length === 0) return JSON.parse(text)
  const outermost = [JSON.parse(counted)]
  const shared = new Map<string, Texts>()
  forEachHolder(outermost, holder => restore(holder, numbers, shared))
  return remembered(outermost[0])
}

/** Reads JSON that is compared and not written again: `withBigInts` of it. Throws likewise. */
export function parseBigInts(text: string): unknown {
  return withBigInts(parseExact(text))
}

/** How to write what was made from something that was read: exactly if that held a number to remember, else plainly. */
export function writerFor(read: object): (value: unknown) => string {
  return holders.has(read) ? stringifyExact : JSON.stringify
}

/** Writes JSON with each number as it was read, and each BigInt as a number. */
export function stringifyExact(value: unknown, indent = 0): string {
  const [first = '', ...marked] = (JSON.stringify(value, numberReplacer, indent) ?? 'null').split(`"${MARK}`)
  return marked.reduce((text, piece) => {
    const end = piece.indexOf('"')
    return text + piece.slice(0, end) + piece.slice(end + 1)
  }, first)
}

/** Has a copy of an object or list remember what the original does. */
export function rememberNumbers(original: object, copy: object): void {
  const texts = textsOf.get(original)
  if (texts !== undefined) textsOf.set(copy, texts) // nobody changes it once it is read
  if (holders.has(original)) holders.add(copy)
}

/** A number as it was written, that stands under a key of an object or list. */
export function writtenNumber(holder: object, key: string | number, value: number): string {
  return rememberedText(holder, key, value) ?? String(value)
}

/** Takes the items with these indices out of a list. */
export function removeItems(list: unknown[], indices: ReadonlySet<number>): void {
  const texts = textsOf.get(list)
  const kept: Texts = new Map()
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

/** For comparisons: puts a BigInt in the place of every integer that no double holds, and answers the value. */
export function withBigInts(value: unknown): unknown {
  forEachHolder(value, holder => {
    for (const key of textsOf.get(holder)?.keys() ?? []) {
      const member = holder[key]
      const text = typeof member === 'number' ? rememberedText(holder, key, member) : undefined
      if (text !== undefined && !Number.isSafeInteger(member) && /^-?\d+$/.test(text)) holder[key] = BigInt(text)
    }
  })
  return value
}

/** The JSON of a value of `withBigInts`. */
export function textWithBigInts(value: unknown): string {
  return typeof value === 'bigint' || typeof value === 'object' ? stringifyExact(value) : JSON.stringify(value)
}

/** Stands before a number's text, in a string, on the way through what reads and writes JSON and YAML. Nobody can guess it. */
const MARK = `number-${randomUUID()}:`
const MARKED = new RegExp(`(["']?)${MARK}([-+.\\deE]+)\\1`, 'g')

/** The string that becomes the number of this text in `numberReviver`; undefined where JavaScript writes that number so by itself. */
export function markedNumber(text: string): string | undefined {
  return isNumber.test(text) && String(Number(text)) !== text ? MARK + text : undefined
}

/** A reviver that makes numbers of marked strings, and remembers their texts. Give what it leads to to `remembered`. */
export function numberReviver(this: unknown, key: unknown, value: unknown): unknown {
  if (typeof value !== 'string' || !value.startsWith(MARK)) return value
  const text = value.slice(MARK.length)
  const holder = this as object // what reads YAML calls it on the object or list
  textsOf.set(holder, new Map(textsOf.get(holder)).set(String(key), text))
  return Number(text)
}

/** Notes that a value was read with `numberReviver`. */
export function remembered(value: unknown): unknown {
  if (typeof value === 'object' && value !== null) holders.add(value)
  return value
}

/** A replacer that puts a marked string in the place of each remembered number and each BigInt; `withoutMarks` makes the number of it. */
export function numberReplacer(this: unknown, key: unknown, value: unknown): unknown {
  if (typeof value === 'bigint') return MARK + String(value)
  if (typeof value !== 'number') return value
  const text = rememberedText(this as object, String(key), value) // it is called on the object or list
  return text === undefined ? value : MARK + text
}

/** A text of JSON or YAML with the numbers in the places of the marked strings. */
export function withoutMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(MARKED, '$2') : text
}

/** The text of a number, as long as it is the one that was read. */
function rememberedText(holder: object, key: string | number, value: number): string | undefined {
  const text = textsOf.get(holder)?.get(String(key))
  return text !== undefined && Number(text) === value ? text : undefined
}

/* Reading: each number to be remembered goes through `JSON.parse` as its index, in the shape of a number that is hardly ever written. */

const INDEX_UNIT = 1e-300
const INDEX_EXPONENT = 'e-300'
/** Numbers between these are indices; one that is written in a text is given an index as well. */
const INDEX_MIN = 0.5 * INDEX_UNIT
const INDEX_MAX = 1e-290

/** Different single numbers of an object or list whose memory is shared. */
const SHARED_MAX = 1_000

const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const numberAt = /-?\d[\d.eE+-]*/y
const QUOTE = 0x22
const MINUS = 0x2d
const ZERO = 0x30
const NINE = 0x39
const BACKSLASH = 0x5c

/** A JSON text with an index in the place of each number to be remembered, from 1, and the texts of these. */
function withIndices(text: string): { counted: string; numbers: string[] } {
  const numbers: string[] = []
  const pieces: string[] = []
  let copied = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = endOfString(text, at)
    } else if (unit === MINUS || (unit >= ZERO && unit <= NINE)) {
      numberAt.lastIndex = at
      const number = numberAt.exec(text)?.[0] ?? text.charAt(at)
      if (isToRemember(number)) {
        numbers.push(number)
        pieces.push(text.slice(copied, at), `${numbers.length}${INDEX_EXPONENT}`)
        copied = at + number.length
      }
      at += number.length - 1
    }
  }
  return { counted: pieces.join('') + text.slice(copied), numbers }
}

function isToRemember(text: string): boolean {
  if (!isNumber.test(text)) return false // nor is it JSON
  const value = Number(text)
  return isIndex(value) || String(value) !== text
}

function isIndex(value: unknown): value is number {
  return typeof value === 'number' && value > INDEX_MIN && value < INDEX_MAX
}

function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end - 1
    while (text.charCodeAt(before) === BACKSLASH) before--
    if ((end - before) % 2 === 1) return end
  }
  return text.length
}

/** Puts numbers in the places of their indices, and remembers their texts; one of a kind is `shared`, for there may be a million. */
function restore(holder: Holder, numbers: readonly string[], shared: Map<string, Texts>): void {
  const found: [string, string][] = []
  for (const key in holder) {
    const member = holder[key]
    if (!isIndex(member)) continue
    const text = numbers[Math.round(member / INDEX_UNIT) - 1] as string // every index was counted
    holder[key] = Number(text)
    if (String(holder[key]) !== text) found.push([key, text])
  }
  if (found.length === 0) return
  const kind = found.length === 1 ? found.join(' ') : ''
  const texts = shared.get(kind) ?? new Map(found)
  if (kind !== '' && shared.size < SHARED_MAX) shared.set(kind, texts)
  textsOf.set(holder, texts)
}

/** Every object and list in a value. Nesting costs no stack. */
function forEachHolder(value: unknown, visit: (holder: Holder) => void): void {
  const pending = [value]
  while (pending.length > 0) {
    const holder = pending.pop()
    if (typeof holder !== 'object' || holder === null) continue
    visit(holder as Holder)
    for (const member of Array.isArray(holder) ? holder : Object.values(holder)) {
      if (typeof member === 'object' && member !== null) pending.push(member)
    }
  }
}
