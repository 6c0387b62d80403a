const QUOTE = 0x22
const COMMA = 0x2c
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

/** What a JSON text may hold at most. */
export interface JsonBounds {
  /** Objects and lists inside each other; the outermost is depth 1. */
  depthMax: number
  /** Objects, lists, texts (keys too) and commas: a measure of how long the text takes to parse. */
  nodesMax: number
}

export type BeyondBounds = 'json_too_deep' | 'json_too_many_nodes'

/**
 * Looks at the bytes of a JSON text as they arrive, before anybody parses it: what is refused for its depth or its number of
 * nodes need not be parsed, nor read to its end. `JSON.parse` takes ten times as long for a text of many small values. What
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

  constructor(bounds: JsonBounds) {
    this.#bounds = bounds
  }

  /** Whether every number so far is one of at most fifteen digits and nothing else: JavaScript writes it as it was read. */
  get hasPlainNumbers(): boolean {
    return this.#hasPlainNumbers
  }

  /** Takes the next bytes; answers which bound the text has passed by now, if one. */
  push(bytes: Uint8Array): BeyondBounds | undefined {
    const { depthMax, nodesMax } = this.#bounds
    let depth = this.#depth
    let nodes = this.#nodes
    let isInText = this.#isInText
    let isEscaped = this.#isEscaped
    let digits = this.#digits
    let hasPlainNumbers = this.#hasPlainNumbers
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]
      if (isInText) {
        if (isEscaped) isEscaped = false
        else if (byte === BACKSLASH) isEscaped = true
        else if (byte === QUOTE) isInText = false
        continue
      }
      switch (byte) {
        case QUOTE:
          isInText = true
          nodes++
          break
        case OPEN_LIST:
        case OPEN_OBJECT:
          nodes++
          depth++
          if (depth > depthMax) return 'json_too_deep'
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
            if (digits > PLAIN_DIGITS) hasPlainNumbers = false
          } else if (digits > 0 && (byte | 0x20) === LOWER_E) hasPlainNumbers = false
      }
    }
    this.#depth = depth
    this.#nodes = nodes
    this.#isInText = isInText
    this.#isEscaped = isEscaped
    this.#digits = digits
    this.#hasPlainNumbers = hasPlainNumbers
    return nodes > nodesMax ? 'json_too_many_nodes' : undefined
  }
}
