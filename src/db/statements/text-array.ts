import { prepareValue } from '../connection/pipeline.js'

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
  readonly values: readonly (string | null)[]

  /** Takes values of any type that a statement takes: each becomes the text that PostgreSQL reads for it. */
  constructor(values: readonly unknown[]) {
    this.values = values.map(textOf)
  }

  /** Called by pg when it prepares the parameter for sending. */
  toPostgres(): Buffer {
    let size = HEADER_BYTES
    for (const value of this.values) size += 4 + (value === null ? 0 : Buffer.byteLength(value))
    const buffer = Buffer.allocUnsafe(size)
    let at = 0
    for (const number of [1, this.values.includes(null) ? 1 : 0, TEXT_OID, this.values.length, 1]) {
      at = buffer.writeInt32BE(number, at)
    }
    for (const value of this.values) {
      const length = value === null ? NULL_LENGTH : buffer.write(value, at + 4)
      at = buffer.writeInt32BE(length, at) + Math.max(0, length)
    }
    return buffer
  }
}

function textOf(value: unknown): string | null {
  if (typeof value === 'string') return value
  const prepared = prepareValue(value)
  return Buffer.isBuffer(prepared) ? `\\x${prepared.toString('hex')}` : prepared
}
