/**
 * Joins text fields into bytes from which each field can be told again: every field is preceded by its length in bytes
 * (4 bytes, big endian). `['ab','c']` and `['a','bc']` differ, so what is authenticated for one place fits no other.
 */
export function encodeFields(fields: readonly string[]): Buffer {
  const parts: Buffer[] = []
  for (const field of fields) {
    const bytes = Buffer.from(field, 'utf8')
    const length = Buffer.alloc(4)
    length.writeUInt32BE(bytes.length)
    parts.push(length, bytes)
  }
  return Buffer.concat(parts)
}
