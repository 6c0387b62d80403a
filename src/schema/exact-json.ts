import { randomUUID } from 'node:crypto'
import { inOneGo } from './steps.js'

/*
 * JSON whose numbers keep their text. JavaScript has doubles: it reads 12345678901234567 as another integer, and writes 1.0 as 1.
 * Here every value is what `JSON.parse` makes of it, so whoever judges it sees plain numbers; the text of a number that
 * JavaScript would write in another way is remembered beside the object or list that holds it, and written again.
 *
 * A text of 5 MiB has a million such numbers, and two such are compared: so what is remembered is small. The same text is kept once,
 * and one object or list has a text alone where that says enough, a list of texts else, and a map only where it is large.
 */

/**
 * What is remembered of an object or list: the text of every number of this value in it; of a list, the texts by index; of an object,
 * keys and texts in turn, or the texts by key.
 */
type Texts = string | readonly (string | undefined)[] | ReadonlyMap<string, string>

const textsOf = new WeakMap<object, Texts>()
/** What was read with such a number somewhere in it, and copies of it. */
const holders = new WeakSet<object>()

/**
 * Reads JSON and remembers how numbers were written. A text without a number to remember goes through `JSON.parse` alone;
 * `isPlain` says that somebody has seen that there is none. Throws a `SyntaxError` as `JSON.parse` does.
 */
export function parseExact(text: string, isPlain = false): unknown {
  return inOneGo(exactSteps(text, isPlain))
}

/** `parseExact` in steps, of which `JSON.parse` is one. */
export function* exactSteps(text: string, isPlain = false): Generator<void, unknown> {
  const counted = isPlain ? undefined : yield* withIndices(text)
  return counted === undefined ? JSON.parse(text) : remembered(yield* withNumbers(counted, restoreRemembered))
}

/** Reads JSON that is compared and not written again: `withBigInts` of it, in half the memory. In steps; throws likewise. */
export function* bigIntSteps(text: string): Generator<void, unknown> {
  const counted = yield* withIndices(text)
  return counted === undefined ? JSON.parse(text) : yield* withNumbers(counted, restoreCompared)
}

/** How to write what was made from something that was read: exactly if that held a number to remember, else plainly. */
export function writerFor(read: object): (value: unknown) => string {
  return holders.has(read) ? stringifyExact : JSON.stringify
}

/** Writes JSON with each number as it was read, and each BigInt as a number. */
export function stringifyExact(value: unknown, indent = 0): string {
  const writer = new ExactWriter(indent)
  writer.write(value)
  return writer.end()
}

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
  return rememberedText(holder, key, value) ?? String(value)
}

/** Takes the items with these indices out of a list. */
export function removeItems(list: unknown[], indices: ReadonlySet<number>): void {
  const texts = textsOf.get(list)
  const kept: (string | undefined)[] = []
  let length = 0
  for (const [index, item] of list.entries()) {
    if (indices.has(index)) continue
    if (typeof item === 'number' && texts !== undefined) kept[length] = rememberedText(list, index, item)
    list[length++] = item
  }
  list.length = length
  if (texts !== undefined) textsOf.set(list, kept)
}

/** For who compares numbers: puts a BigInt in the place of every integer that no double holds, and answers the value. In steps. */
export function* withBigInts(value: unknown): Generator<void, unknown> {
  let count = 0
  for (const holder of holdersIn(value)) {
    if (++count % STEP === 0) yield
    if (!textsOf.has(holder)) continue
    const keys = Array.isArray(holder) ? holder.keys() : Object.keys(holder)
    for (const key of keys) {
      const member = holder[key]
      const text = typeof member === 'number' ? rememberedText(holder, key, member) : undefined
      if (text !== undefined) holder[key] = comparedNumber(text)
    }
  }
  return value
}

function comparedNumber(text: string): number | bigint {
  const number = Number(text)
  return !Number.isSafeInteger(number) && /^-?\d+$/.test(text) ? BigInt(text) : number
}

/** The JSON of a value of `withBigInts`. */
export function textWithBigInts(value: unknown): string {
  return typeof value === 'bigint' || typeof value === 'object' ? stringifyExact(value) : JSON.stringify(value)
}

/** Stands before a number's text, in a string, on the way through what reads and writes YAML. Nobody can guess it. */
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
  const texts = textsOf.get(holder)
  textsOf.set(holder, new Map(texts instanceof Map ? texts : []).set(String(key), text))
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
  const text = rememberedText(this as object, String(key), value) // what writes YAML calls it on the object or list
  return text === undefined ? value : MARK + text
}

/** A text of YAML with the numbers in the places of the marked strings. */
export function withoutMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(MARKED, '$2') : text
}

/** The text of a number, as long as it is the one that was read. */
function rememberedText(holder: object, key: string | number, value: number): string | undefined {
  const texts = textsOf.get(holder)
  if (texts === undefined) return undefined
  const text = typeof texts === 'string' ? texts : textUnder(texts, holder, key)
  return text !== undefined && Number(text) === value ? text : undefined
}

function textUnder(texts: Exclude<Texts, string>, holder: object, key: string | number): string | undefined {
  if (texts instanceof Map) return texts.get(String(key))
  const list = texts as readonly (string | undefined)[]
  if (Array.isArray(holder)) return list[Number(key)]
  for (let at = 0; at < list.length; at += 2) if (list[at] === key) return list[at + 1]
  return undefined
}

/* Reading: each number to be remembered goes through `JSON.parse` as its index, in the shape of a number that is hardly ever written. */

const INDEX_UNIT = 1e-300
const INDEX_EXPONENT = 'e-300'
/** Numbers between these are indices; one that is written in a text is given an index as well. */
const INDEX_MIN = 0.5 * INDEX_UNIT
const INDEX_MAX = 1e-290

/** Different texts of numbers that are kept once; more are kept as often as they are written. */
const SHARED_TEXTS_MAX = 1000
/** Texts of one object that are found by going through them all. */
const LISTED_TEXTS_MAX = 8
/** Numbers, or objects and lists, that are looked at in one step. */
const STEP = 1000
/** JavaScript keeps what is put together in pieces until somebody wants a character: then it is one text. */
const PIECES_MAX = 1000

const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const QUOTE = 0x22
const PLUS = 0x2b
const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const NINE = 0x39
const UPPER_E = 0x45
const BACKSLASH = 0x5c
const LOWER_E = 0x65
/** A double holds every integer of so many digits. */
const PLAIN_DIGITS = 15

/** A JSON text with an index in the place of each number to be remembered, from 1, and the texts of these. */
interface Counted {
  text: string
  numbers: readonly string[]
}

/** Undefined where there is no number to be remembered. */
function* withIndices(text: string): Generator<void, Counted | undefined> {
  const numbers: string[] = []
  const shared = new Map<string, string>()
  const pieces = new Pieces()
  let copied = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = endOfString(text, at)
    } else if (unit === MINUS || (unit >= ZERO && unit <= NINE)) {
      const end = endOfNumber(text, at)
      if (!isPlainInteger(text, at, end)) {
        const number = text.slice(at, end)
        if (isToRemember(number)) {
          numbers.push(sharedText(shared, number))
          pieces.add(`${text.slice(copied, at)}${numbers.length}${INDEX_EXPONENT}`)
          copied = end
          if (numbers.length % STEP === 0) yield
        }
      }
      at = end - 1
    }
  }
  if (numbers.length === 0) return undefined
  pieces.add(text.slice(copied))
  return { text: pieces.text(), numbers }
}

function endOfNumber(text: string, start: number): number {
  let end = start + 1
  for (;;) {
    const unit = text.charCodeAt(end)
    const goesOn =
      (unit >= ZERO && unit <= NINE) ||
      unit === POINT ||
      unit === LOWER_E ||
      unit === UPPER_E ||
      unit === MINUS ||
      unit === PLUS
    if (!goesOn) return end
    end++
  }
}

function isPlainInteger(text: string, start: number, end: number): boolean {
  if (end - start > PLAIN_DIGITS || (text.charCodeAt(start) === ZERO && end - start > 1)) return false
  for (let at = start; at < end; at++) {
    const unit = text.charCodeAt(at)
    if (unit < ZERO || unit > NINE) return false
  }
  return true
}

function isToRemember(text: string): boolean {
  if (!isNumber.test(text)) return false // nor is it JSON
  const value = Number(text)
  return isIndex(value) || String(value) !== text
}

function isIndex(value: unknown): value is number {
  return typeof value === 'number' && value > INDEX_MIN && value < INDEX_MAX
}

function sharedText(shared: Map<string, string>, text: string): string {
  const found = shared.get(text)
  if (found !== undefined) return found
  if (shared.size < SHARED_TEXTS_MAX) shared.set(text, text)
  return text
}

function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end - 1
    while (text.charCodeAt(before) === BACKSLASH) before--
    if ((end - before) % 2 === 1) return end
  }
  return text.length
}

type TextOf = (index: number) => string

/** What the text says, with the numbers in the places of their indices. */
function* withNumbers(
  counted: Counted,
  restore: (holder: Holder | unknown[], textOf: TextOf) => void,
): Generator<void, unknown> {
  const { numbers } = counted
  const textOf = (index: number) => numbers[Math.round(index / INDEX_UNIT) - 1] as string // whoever is an index was counted
  const outermost = [JSON.parse(counted.text)]
  let count = 0
  for (const holder of holdersIn(outermost)) {
    if (++count % STEP === 0) yield
    restore(holder, textOf)
  }
  return outermost[0]
}

/** Remembers texts in the shortest form. */
function restoreRemembered(holder: Holder | unknown[], textOf: TextOf): void {
  const texts = Array.isArray(holder) ? restoreItems(holder, textOf) : restoreMembers(holder, textOf)
  if (texts !== undefined) textsOf.set(holder, texts)
}

function restoreCompared(holder: Holder | unknown[], textOf: TextOf): void {
  const keys = Array.isArray(holder) ? holder.keys() : Object.keys(holder)
  for (const key of keys) {
    const member = (holder as Holder)[key]
    if (isIndex(member)) (holder as Holder)[key] = comparedNumber(textOf(member))
  }
}

function restoreItems(list: unknown[], textOf: TextOf): Texts | undefined {
  let texts: string[] | undefined
  for (let at = 0; at < list.length; at++) {
    const item = list[at]
    if (!isIndex(item)) continue
    const text = textOf(item)
    list[at] = Number(text)
    if (String(list[at]) === text) continue
    if (list.length === 1) return text
    texts ??= new Array(list.length)
    texts[at] = text
  }
  return texts && (onlyText(list, texts) ?? texts)
}

function restoreMembers(object: Holder, textOf: TextOf): Texts | undefined {
  const texts: string[] = [] // keys and texts in turn
  for (const key in object) {
    const member = object[key]
    if (!isIndex(member)) continue
    const text = textOf(member)
    object[key] = Number(text)
    if (String(object[key]) !== text) texts.push(key, text)
  }
  if (texts.length === 0) return undefined
  const only = onlyText(Object.values(object), texts.filter(isText))
  if (only !== undefined) return only
  if (texts.length <= 2 * LISTED_TEXTS_MAX) return texts.slice() // without the room to grow
  const byKey = new Map<string, string>()
  for (let at = 0; at < texts.length; at += 2) byKey.set(texts[at] as string, texts[at + 1] as string)
  return byKey
}

const isText = (_: string, at: number) => at % 2 === 1

/** The one text, where there is no other, and no number of its value is written otherwise. */
function onlyText(values: readonly unknown[], texts: readonly (string | undefined)[]): string | undefined {
  const only = texts.find(text => text !== undefined)
  const value = Number(only)
  let written = 0
  for (const text of texts) {
    if (text === undefined) continue
    if (text !== only) return undefined
    written++
  }
  for (const each of values) if (each === value) written--
  return written === 0 ? only : undefined
}

/** An object or a list of JSON: every enumerable key is its own. */
type Holder = Record<string | number, unknown>

/** Every object and list in a value. Nesting costs no stack, and what waits is no more than what lies side by side on the way. */
function* holdersIn(value: unknown): Generator<Holder> {
  const pending: Holder[] = []
  const add = (each: unknown) => {
    if (typeof each === 'object' && each !== null) pending.push(each as Holder)
  }
  add(value)
  for (let holder = pending.pop(); holder !== undefined; holder = pending.pop()) {
    yield holder
    if (Array.isArray(holder)) for (const item of holder) add(item)
    else for (const key in holder) add(holder[key])
  }
}

/** A text that is put together from many pieces. */
class Pieces {
  readonly #parts: string[] = []
  #last = ''
  #count = 0

  add(piece: string): void {
    this.#last += piece
    if (++this.#count % PIECES_MAX !== 0) return
    this.#last.charCodeAt(0) // see PIECES_MAX
    this.#parts.push(this.#last)
    this.#last = ''
  }

  text(): string {
    this.#parts.push(this.#last)
    return this.#parts.join('')
  }
}

/** Writes as `JSON.stringify` does, but for the numbers. It recurses as deep as the value nests, as that does. */
class ExactWriter {
  readonly #pieces = new Pieces()
  readonly #indent: string

  constructor(indent: number) {
    this.#indent = ' '.repeat(indent)
  }

  end(): string {
    return this.#pieces.text()
  }

  write(value: unknown, margin = this.#indent === '' ? '' : '\n'): void {
    if (Array.isArray(value)) this.#writeList(value, margin)
    else if (typeof value === 'object' && value !== null) this.#writeObject(value as Holder, margin)
    else this.#pieces.add(typeof value === 'bigint' ? String(value) : (JSON.stringify(value) ?? 'null'))
  }

  #writeList(list: readonly unknown[], margin: string): void {
    const inner = margin + this.#indent
    const texts = textsOf.get(list)
    let before = `[${inner}`
    for (let index = 0; index < list.length; index++) {
      this.#pieces.add(before)
      this.#writeMember(list, texts, index, list[index], inner)
      before = `,${inner}`
    }
    this.#pieces.add(list.length === 0 ? '[]' : `${margin}]`)
  }

  #writeObject(object: Holder, margin: string): void {
    const inner = margin + this.#indent
    const texts = textsOf.get(object)
    const colon = this.#indent === '' ? ':' : ': '
    let before = `{${inner}`
    for (const key of Object.keys(object)) {
      const member = object[key]
      if (member === undefined) continue
      this.#pieces.add(`${before}${JSON.stringify(key)}${colon}`)
      this.#writeMember(object, texts, key, member, inner)
      before = `,${inner}`
    }
    this.#pieces.add(before.startsWith('{') ? '{}' : `${margin}}`)
  }

  #writeMember(holder: object, texts: Texts | undefined, key: string | number, member: unknown, margin: string): void {
    const text = texts !== undefined && typeof member === 'number' ? rememberedText(holder, key, member) : undefined
    if (text === undefined) this.write(member, margin)
    else this.#pieces.add(text)
  }
}
