import { createHmac, type KeyObject } from 'node:crypto'
import { encodeFields } from './encoding.js'

const MASK_DIGITS = 12
const FINGERPRINT_PURPOSE = 'custom-header-fingerprint/1'
// Wider than what `maskOf` writes: a mask with a blank around it, cut short, or in capitals is a damaged mask, and taking it
// for a new value would destroy the secret it stands for.
const MASK_SHAPE = /^\s*\*{4}#[0-9a-f]{0,64}\s*$/i

/**
 * The fingerprint of a header value, 32 bytes: HMAC-SHA-256 under the deployment key over tool, lower-cased header name and
 * value. Equal values give equal fingerprints only in the same place of the same deployment.
 */
export function fingerprint(deploymentKey: KeyObject, toolId: number, headerName: string, value: string): Buffer {
  const fields = encodeFields([FINGERPRINT_PURPOSE, String(toolId), headerName.toLowerCase(), value])
  return createHmac('sha256', deploymentKey).update(fields).digest()
}

/** What answers show instead of a value: `****#` and the first 12 hexadecimal digits of its fingerprint. */
export function maskOf(fingerprintBytes: Buffer): string {
  return `****#${fingerprintBytes.toString('hex').slice(0, MASK_DIGITS)}`
}

/**
 * Whether a value that a client sent stands for a mask, right or damaged, and so must never be stored as a secret.
 * (Rule: openapi/DECISIONS.md, section 5: what looks like a mask and is not the stored one is `mask_mismatch`.)
 */
export function looksLikeMask(text: string): boolean {
  return MASK_SHAPE.test(text)
}
