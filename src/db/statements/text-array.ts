/** PostgreSQL's type `text`, by its number. */
const TEXT_OID = 25
const HEADER_BYTES = 20
const NULL_LENGTH = -1

/**
 * A list of values as one parameter of type `text[]`. It travels in the binary form of PostgreSQL's arrays: texts go as they
 * are, where the textual form would escape each quote and backslash of a JSON document and have the server undo it.
 * (Source of the form: `array_send` of PostgreSQL: dimensions, null flag, element type, length, lower bound, elements.)
 */
export class TextArray {
  /** Takes values of any type that a statement takes: each becomes the text that PostgreSQL reads for it. */
  constructor(readonly values: readonly unknown[]) {}

  /** Called by pg when it prepares the parameter for sending; `prepare` is its own conversion of a value. */
  toPostgres(prepare: Prepare): Buffer {
    const texts = this.values.map(value => textOf(value, prepare))
    let size = HEADER_BYTES
    for (const value of texts) size += 4 + (value === null ? 0 : Buffer.byteLength(value))
    const buffer = Buffer.allocUnsafe(size)
    let at = 0
    for (const number of [1, texts.includes(null) ? 1 : 0, TEXT_OID, texts.length, 1]) {
      at = buffer.writeInt32BE(number, at)
    }
    for (const value of texts) {
      const length = value === null ? NULL_LENGTH : buffer.write(value, at + 4)
      at = buffer.writeInt32BE(length, at) + Math.max(0, length)
    }
    return buffer
  }
}

type Prepare = (value: unknown) => string | Buffer | null

function textOf(value: unknown, prepare: Prepare): string | null {
  if (typeof value === 'string') return value
  const prepared = prepare(value)
  return Buffer.isBuffer(prepared) ? `\\x${prepared.toString('hex')}` : prepared
}
