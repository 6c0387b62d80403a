import { prepareValue } from '../connection/prepare-value.js'

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
    const lengths = this.values.map(value => (value === null ? NULL_LENGTH : Buffer.byteLength(value)))
    const buffer = Buffer.allocUnsafe(lengths.reduce((sum, length) => sum + 4 + Math.max(0, length), HEADER_BYTES))
    let at = 0
    for (const number of [1, lengths.includes(NULL_LENGTH) ? 1 : 0, TEXT_OID, lengths.length, 1]) {
      at = buffer.writeInt32BE(number, at)
    }
    this.values.forEach((value, i) => {
      at = buffer.writeInt32BE(lengths[i] ?? NULL_LENGTH, at)
      if (value !== null) at += buffer.write(value, at)
    })
    return buffer
  }
}

function textOf(value: unknown): string | null {
  if (typeof value === 'string') return value
  const prepared = prepareValue(value)
  return Buffer.isBuffer(prepared) ? `\\x${prepared.toString('hex')}` : prepared
}
