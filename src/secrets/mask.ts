import { randomBytes } from 'node:crypto'

const MASK_BYTES = 6

/** A new random mask in hex. Every stored value has its own. */
export function newMask(): string {
  return randomBytes(MASK_BYTES).toString('hex')
}

/** The text that answers show in place of a value: `****#` and 12 hex digits. Longer masks of version 2.1 are cut. */
export function shownMask(mask: string): string {
  return `****#${mask.slice(0, 2 * MASK_BYTES)}`
}

/** True if a value contains three asterisks or the digits of one of these masks. Such values are never stored as secrets. */
export function looksMasked(text: string, masks: readonly string[] = []): boolean {
  const lower = text.toLowerCase()
  return text.includes('***') || masks.some(mask => lower.includes(mask.slice(0, 2 * MASK_BYTES)))
}
