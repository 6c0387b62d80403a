import type { Fault } from '../errors.js'

const BLANK = 0x20
const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const NINE = 0x39
const LOWER_E = 0x65
const BACKSLASH = 0x5c
const OPEN_LIST = 0x5b
const CLOSE_LIST = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d

/** A double holds every integer of so many digits. */
const PLAIN_DIGITS = 15

/** Any double is written with fewer, also in full; what has more takes long to read and says nothing. */
const NUMBER_DIGITS_MAX = 4_096

/** What a JSON text may hold at most. */
export interface JsonBounds {
  /** Objects and lists inside each other; the outermost is depth 1. */
  depthMax: number
  /** Objects, lists, texts (keys too) and commas: a measure of how long the text takes to parse. */
  nodesMax: number
  /** Bytes between the quotes of a key. Long keys that differ at their end only are compared whole, each with each. */
  keyBytesMax: number
}

/**
 * Looks at the bytes of a JSON text as they arrive, before anybody parses it: what is refused for its depth, its number of
 * nodes, a key or a number need not be parsed, nor read to its end. `JSON.parse` takes ten times as long for a text of many small values. What
 * is not JSON is not told apart; it is counted as if it were.
 */
export class JsonScan {
  readonly #bounds: JsonBounds
  #depth = 0
  #nodes = 0
  #isInText = false
  #isEscaped = false
  #digits = 0
  #hasPlainNumbers = true
  /** How many bytes came before those that are looked at. */
  #offset = 0
  /** Where the last text began, and how many bytes it has. */
  #textAt = 0
  #textBytes = 0

  constructor(bounds: JsonBounds) {
    this.#bounds = bounds
  }

  /** Whether every number so far is one of at most fifteen digits and nothing else: JavaScript writes it as it was read. */
  get hasPlainNumbers(): boolean {
    return this.#hasPlainNumbers
  }

  /** Objects, lists, texts and commas so far. */
  get nodes(): number {
    return this.#nodes
  }

  /** Takes the next bytes; answers the fault of the text that has passed a bound by now, if it has. */
  push(bytes: Uint8Array): Fault | undefined {
    const { depthMax, nodesMax, keyBytesMax } = this.#bounds
    const offset = this.#offset
    let textAt = this.#textAt
    let textBytes = this.#textBytes
    let depth = this.#depth
    let nodes = this.#nodes
    let isInText = this.#isInText
    let isEscaped = this.#isEscaped
    let digits = this.#digits
    let hasPlainNumbers = this.#hasPlainNumbers
    const end = bytes.length
    for (let at = 0; at < end; at++) {
      let byte = bytes[at]
      if (isInText) {
        if (isEscaped) {
          isEscaped = false
          continue
        }
        // Most bytes of a document stand in texts: they are passed in a loop of their own.
        while (byte !== QUOTE && byte !== BACKSLASH && ++at < end) byte = bytes[at]
        if (at === end) break
        if (byte === BACKSLASH) isEscaped = true
        else {
          isInText = false
          textBytes = offset + at - textAt
        }
        continue
      }
      if (byte === BLANK) continue
      switch (byte) {
        case QUOTE:
          isInText = true
          textAt = offset + at + 1
          nodes++
          break
        case COLON:
          if (textBytes > keyBytesMax)
            return beyond('json_key_too_long', `holds a key of more than ${keyBytesMax} bytes`, textAt)
          break
        case OPEN_LIST:
        case OPEN_OBJECT:
          nodes++
          depth++
          if (depth > depthMax) return beyond('json_too_deep', `is nested more than ${depthMax} deep`, offset + at)
          break
        case CLOSE_LIST:
        case CLOSE_OBJECT:
          depth--
          digits = 0
          break
        case COMMA:
          nodes++
          digits = 0
          break
        case MINUS:
        case POINT:
          hasPlainNumbers = false
          break
        default:
          if (byte === undefined || byte < ZERO) break
          if (byte <= NINE) {
            digits++
            if (digits > PLAIN_DIGITS) {
              hasPlainNumbers = false
              if (digits > NUMBER_DIGITS_MAX)
                return beyond(
                  'json_number_too_long',
                  `holds a number of more than ${NUMBER_DIGITS_MAX} digits`,
                  offset + at - NUMBER_DIGITS_MAX,
                )
            }
          } else if (digits > 0 && (byte | 0x20) === LOWER_E) hasPlainNumbers = false
      }
    }
    this.#depth = depth
    this.#nodes = nodes
    this.#isInText = isInText
    this.#isEscaped = isEscaped
    this.#digits = digits
    this.#hasPlainNumbers = hasPlainNumbers
    this.#offset = offset + bytes.length
    this.#textAt = textAt
    this.#textBytes = textBytes
    return nodes > nodesMax ? tooManyNodes(nodesMax) : undefined
  }
}

/** `at` counts bytes: nobody has read characters yet. */
function beyond(type: string, what: string, at: number): Fault {
  return { loc: ['body'], msg: `Input ${what}, at byte ${at}`, type }
}

/** They are everywhere: no place to name. */
function tooManyNodes(nodesMax: number): Fault {
  const msg = `Input holds more than ${nodesMax} objects, lists, texts and commas together`
  return { loc: ['body'], msg, type: 'json_too_many_nodes' }
}
