import { randomBytes } from 'node:crypto'

/* JSON with exact numbers: where JavaScript would write a number differently, its text is kept in a map for its object or list. */

const MARK = `number-${randomBytes(12).toString('base64url')}:`
const MARKED = new RegExp(`(["']?)${MARK}([-+.\\deE]+)\\1`, 'g')

/** The number texts of one object or list, by key or index. The map never changes after parsing. */
type Texts = ReadonlyMap<string, string>

const textsOf = new WeakMap<object, Texts>()
/** Root values, and their copies, that contain a number with a kept text. */
const holders = new WeakSet<object>()

/** An object or a list of JSON: every enumerable key is its own. */
type Holder = Record<string | number, unknown>

/** Parses JSON and keeps number texts. `isPlain`: there are none to keep. Throws a `SyntaxError`. */
export function parseExact(text: string, isPlain = false): unknown {
  const marked = isPlain ? text : withMarks(text)
  const outermost = [JSON.parse(marked)]
  if (marked === text) return outermost[0]
  forEachHolder(outermost, holder => {
    const texts = new Map<string, string>()
    for (const key in holder) {
      if (key.startsWith(MARK)) throw new SyntaxError('a number is not a key')
      const member = holder[key]
      if (typeof member !== 'string' || !member.startsWith(MARK)) continue
      const number = member.slice(MARK.length)
      holder[key] = Number(number)
      texts.set(key, number)
    }
    if (texts.size > 0) textsOf.set(holder, texts)
  })
  return remembered(outermost[0])
}

/** Parses JSON for comparison only, with `withBigInts`. Throws a `SyntaxError`. */
export function parseBigInts(text: string): unknown {
  return withBigInts(parseExact(text))
}

/** Returns the writer for values made from `read`: exact if `read` contains kept texts, else `JSON.stringify`. */
export function writerFor(read: object): (value: unknown) => string {
  return holders.has(read) ? stringifyExact : JSON.stringify
}

/** Writes JSON with kept number texts, and BigInts as numbers. */
export function stringifyExact(value: unknown, indent = 0): string {
  return withoutMarks(JSON.stringify(value, numberReplacer, indent) ?? 'null')
}

function rememberNumbers(original: object, copy: object): void {
  const texts = textsOf.get(original)
  if (texts !== undefined) textsOf.set(copy, texts)
  if (holders.has(original)) holders.add(copy)
}

/** Returns the text of the number under a key of an object or list. */
export function writtenNumber(holder: object, key: string | number, value: number): string {
  return rememberedText(holder, key, value) ?? String(value)
}

/** Replaces every integer beyond a double's precision by a BigInt, for comparisons. Returns the value. */
export function withBigInts(value: unknown): unknown {
  forEachHolder(value, holder => {
    for (const [key, text] of textsOf.get(holder) ?? []) {
      const member = holder[key]
      const isHeld = Number(text) !== member || Number.isSafeInteger(member)
      if (!isHeld && /^-?\d+$/.test(text)) holder[key] = BigInt(text)
    }
  })
  return value
}

/** Returns the marked string that `numberReviver` turns into this number; undefined if JavaScript writes the number unchanged. */
export function markedNumber(text: string): string | undefined {
  return isNumber.test(text) && String(Number(text)) !== text ? MARK + text : undefined
}

/** A reviver that turns marked strings into numbers and keeps their texts. Pass its result to `remembered`. */
export function numberReviver(this: unknown, key: unknown, value: unknown): unknown {
  if (typeof value !== 'string' || !value.startsWith(MARK)) return value
  const text = value.slice(MARK.length)
  const holder = this as object // the YAML reader calls it with the object or list as `this`
  textsOf.set(holder, new Map(textsOf.get(holder)).set(String(key), text))
  return Number(text)
}

/** Records that a value contains a number with a kept text. */
export function remembered(value: unknown): unknown {
  if (typeof value === 'object' && value !== null) holders.add(value)
  return value
}

/** A replacer that turns numbers with kept texts, and BigInts, into marked strings for `withoutMarks`. */
export function numberReplacer(this: unknown, key: unknown, value: unknown): unknown {
  if (typeof value === 'bigint') return MARK + String(value)
  if (typeof value !== 'number') return value
  const text = rememberedText(this as object, String(key), value) // `JSON.stringify` calls it with the object or list as `this`
  return text === undefined ? value : MARK + text
}

/** Replaces the marked strings of a JSON or YAML text by their numbers. */
export function withoutMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(MARKED, '$2') : text
}

/** Keeps number texts while a definition is completed. */
export const numberTexts = {
  copied: rememberNumbers,
  textOf: writtenNumber,
  replacer: numberReplacer,
  reviver: numberReviver,
}

/** Returns the kept text of a number if the number is unchanged. */
function rememberedText(holder: object, key: string | number, value: number): string | undefined {
  const text = textsOf.get(holder)?.get(String(key))
  return text !== undefined && Number(text) === value ? text : undefined
}

const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const numberAt = /-?\d[\d.eE+-]*/y
const [QUOTE, MINUS, ZERO, NINE, BACKSLASH] = [0x22, 0x2d, 0x30, 0x39, 0x5c]

/** Replaces each number to keep in a JSON text by a marked string; returns the same text if there is none. */
function withMarks(text: string): string {
  const pieces: string[] = []
  let copied = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = endOfString(text, at)
    } else if (unit === MINUS || (unit >= ZERO && unit <= NINE)) {
      numberAt.lastIndex = at
      const number = numberAt.exec(text)?.[0] ?? text.charAt(at)
      const marked = markedNumber(number)
      if (marked !== undefined) {
        pieces.push(text.slice(copied, at), `"${marked}"`)
        copied = at + number.length
      }
      at += number.length - 1
    }
  }
  return pieces.length === 0 ? text : pieces.join('') + text.slice(copied)
}

function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end - 1
    while (text.charCodeAt(before) === BACKSLASH) before--
    if ((end - before) % 2 === 1) return end
  }
  return text.length
}

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
