import { createHash } from 'node:crypto'

const COMPARED_CHARACTERS = 1024

/** What stands for a text where thousands are compared: itself, or the hash of one that is long. Made once for each. */
export function comparedText(text: string): string {
  return text.length > COMPARED_CHARACTERS ? createHash('sha256').update(text).digest('hex') : text
}
