/** Joins texts as bytes, each prefixed with its length (4 bytes, big endian), so that `['ab','c']` and `['a','bc']` differ. */
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
