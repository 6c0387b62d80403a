import { hash } from 'node:crypto'

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

  /** The bytes that are sent. Definitions come as bytes: to join texts with them would make texts of all of it first. */
  toBuffer(): Buffer {
    const { pieces } = this
    const bytes = Buffer.allocUnsafe(pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0))
    let at = 0
    for (const piece of pieces) at += typeof piece === 'string' ? bytes.write(piece, at) : piece.copy(bytes, at)
    return bytes
  }

  /** The SHA-256 of what is shown, in hex, the same in every process: each definition stands in it by its own hash. */
  digest(): string {
    const texts = this.#texts.map(text => (typeof text === 'string' ? text : MARK + text.hash + MARK))
    return hash('sha256', texts.join(''))
  }
}

/** Where nobody wants to see a snapshot. */
export const NOTHING = new AnswerText([])
