import { createHash, hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'

/** A longer text is worked on in pieces of so many characters, a longer buffer in pieces of so many bytes. */
export const PIECE_LENGTH = 128 * 1024

/** What most requests are answered is shorter. */
const SHORT_LENGTH = 32 * 1024

/** Stands on each side of a definition's hash. JSON text never holds it: in texts it is escaped. */
export const MARK = '\u0001'

/** The JSON text of a stored definition, or the bytes that are sent of it, and its hash in hex. */
export interface DefinitionText {
  hash: string
  text: string | Buffer
}

/** The JSON text of an answer that is not joined: texts, and definitions where they stand among them. */
export class AnswerText {
  readonly #texts: readonly (string | DefinitionText)[]

  constructor(texts: readonly (string | DefinitionText)[]) {
    this.#texts = texts
  }

  /** All of it, in order. */
  get pieces(): (string | Buffer)[] {
    return this.#texts.map(text => (typeof text === 'string' ? text : text.text))
  }

  /** About how long it is: bytes where there are bytes, else characters. */
  get length(): number {
    return this.pieces.reduce((sum, piece) => sum + piece.length, 0)
  }

  /**
   * The bytes of memory that it takes until it has gone out. V8 gives each character of a text two bytes where one of them needs it;
   * of texts that are sent in pieces one is on its way, and the next one is made. For a short answer nothing is reserved.
   */
  get heldBytes(): number {
    const { pieces, length } = this
    if (length <= SHORT_LENGTH) return 0
    const texts = pieces.filter(piece => typeof piece === 'string')
    const textLength = texts.reduce((sum, text) => sum + text.length, 0)
    const textBytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
    const held = length - textLength + textLength * (textBytes > textLength ? 2 : 1)
    return held + (length <= PIECE_LENGTH ? 0 : Math.min(textBytes, 2 * PIECE_LENGTH))
  }

  /** The bytes that are sent. Definitions come as bytes: to join texts with them would make texts of all of it first. */
  toBuffer(): Buffer {
    const { pieces } = this
    const bytes = Buffer.allocUnsafe(pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0))
    let at = 0
    for (const piece of pieces) at += typeof piece === 'string' ? bytes.write(piece, at) : piece.copy(bytes, at)
    return bytes
  }

  /** The SHA-256 of what is shown, in hex, the same in every process: each definition stands in it by its own hash. */
  async digest(): Promise<string> {
    return await digestOf(this.#texts.map(text => (typeof text === 'string' ? text : MARK + text.hash + MARK)))
  }
}

/** Where nobody wants to see a snapshot. */
export const NOTHING = new AnswerText([])

/** The SHA-256 of texts one behind the other, in hex. That of much is made in pieces, with turns for others between them. */
export async function digestOf(texts: readonly string[]): Promise<string> {
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  if (length <= PIECE_LENGTH) return hash('sha256', texts.join(''))
  const digest = createHash('sha256')
  for (const piece of piecesOf(texts)) {
    digest.update(piece)
    await turn()
  }
  return digest.digest('hex')
}

/** The same in pieces of about one length: short texts are put together, and long ones divided, but no character. */
export function* piecesOf(texts: Iterable<string | Buffer>): Generator<string | Buffer> {
  let short = ''
  for (const text of texts) {
    const isShort = typeof text === 'string' && text.length <= PIECE_LENGTH
    if (short !== '' && !(isShort && short.length + text.length <= PIECE_LENGTH)) {
      yield short
      short = ''
    }
    if (isShort) short += text
    else yield* partsOf(text)
  }
  if (short !== '') yield short
}

function* partsOf(long: string | Buffer): Generator<string | Buffer> {
  for (let from = 0; from < long.length; ) {
    const end = from + PIECE_LENGTH
    const to = typeof long === 'string' && isSplitPair(long, end) ? end + 1 : end
    yield typeof long === 'string' ? long.slice(from, to) : long.subarray(from, to)
    from = to
  }
}

/** Whether the two halves of one character are on both sides of this place. */
function isSplitPair(text: string, at: number): boolean {
  return (text.codePointAt(at - 1) ?? 0) > 0xffff
}

let lastTurn: Promise<void> = Promise.resolve()

/**
 * Lets other requests go on. Of all the long work that waits here one piece is done in each turn of the event loop, in the
 * order of asking: more long answers at once take longer, and hold nobody else up for longer.
 */
export function turn(): Promise<void> {
  lastTurn = lastTurn.then(() => setImmediate())
  return lastTurn
}
