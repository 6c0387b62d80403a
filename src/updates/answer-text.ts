import { hash } from 'node:crypto'

/** Encloses a definition's hash in a digest. JSON text cannot contain this character unescaped. */
export const MARK = '\u0001'

/** A stored definition: its JSON text or UTF-8 bytes, and its hash in hex. */
export interface DefinitionText {
  hash: string
  text: string | Buffer
}

/** The JSON text of an answer in pieces: texts, and definitions at their places between them. */
export class AnswerText {
  readonly #texts: readonly (string | DefinitionText)[]

  constructor(texts: readonly (string | DefinitionText)[]) {
    this.#texts = texts
  }

  /** A list of these values. */
  static listOf(values: readonly AnswerText[]): AnswerText {
    return new AnswerText(['[', ...values.flatMap((value, index) => [index === 0 ? '' : ',', ...value.#texts]), ']'])
  }

  get pieces(): (string | Buffer)[] {
    return this.#texts.map(text => (typeof text === 'string' ? text : text.text))
  }

  /** The same JSON object with these members at its end. */
  with(members: object): AnswerText {
    const last = String(this.#texts.at(-1)) // of an object the piece with its closing brace
    return new AnswerText([...this.#texts.slice(0, -1), `${last.slice(0, -1)},${JSON.stringify(members).slice(1)}`])
  }

  /** The UTF-8 bytes of the answer. Definitions are copied as bytes: joining strings would decode all of them first. */
  toBuffer(): Buffer {
    const { pieces } = this
    const bytes = Buffer.allocUnsafe(pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0))
    let at = 0
    for (const piece of pieces) at += typeof piece === 'string' ? bytes.write(piece, at) : piece.copy(bytes, at)
    return bytes
  }

  /** The SHA-256 of the answer in hex, the same in every process. Each definition is replaced by its own hash. */
  digest(): string {
    const texts = this.#texts.map(text => (typeof text === 'string' ? text : MARK + text.hash + MARK))
    return hash('sha256', texts.join(''))
  }
}

/** The snapshot of an answer without a body. */
export const NOTHING = new AnswerText([])
