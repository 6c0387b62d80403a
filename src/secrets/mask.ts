import { randomBytes } from 'node:crypto'

const MASK_BYTES = 6

/** Returns a new random mask in hex. Each stored secret has its own mask. */
export function newMask(): string {
  return randomBytes(MASK_BYTES).toString('hex')
}

/** Returns the text that answers show in place of a secret: `****#` and 12 hex digits. Shortens the longer masks that version 2.1 stored. */
export function shownMask(mask: string): string {
  return `****#${mask.slice(0, 2 * MASK_BYTES)}`
}

/** True if a string looks like a mask: it contains three asterisks or the digits of one of `masks`. Such a string is never stored as a secret. */
export function looksMasked(text: string, masks: readonly string[] = []): boolean {
  const lower = text.toLowerCase()
  return text.includes('***') || masks.some(mask => lower.includes(mask.slice(0, 2 * MASK_BYTES)))
}
