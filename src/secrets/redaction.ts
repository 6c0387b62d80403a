import { createHmac, type KeyObject } from 'node:crypto'
import { encodeFields } from './encoding.js'

const REDACTION_DIGITS = 12
const FINGERPRINT_PURPOSE = 'custom-header-fingerprint/1'
/** Matches a redaction inside a text, also if cut or in capitals: `Bearer ****#44bb`, `sk-***1234`. */
const HELD_REDACTION = /[*＊∗⁎✱]{3}/
/** Characters that people and tools use to mask a secret. */
const COVERED = /[•●∙⋅⚫⬤█▇■▪◾○◦⦁]/
/** Matches a shortened secret: `sk-...abcd`. */
const LEFT_OUT = /^(?:(?:bearer|basic|token|apikey)\s+)?(?=\S+\s*$)\S*?(?:\.{3}|…|·{3})/iu
/** Matches a value that consists of a placeholder for a secret, optionally after a scheme or prefix: `**`, `* * *`, `sk-xxxx`, `<redacted>`. */
const STAND_IN =
  /^\s*(?:(?:bearer|basic|token|apikey)\s+)?(?:[*＊∗⁎✱.…·](?:\s*[*＊∗⁎✱.…·])+|(?:[a-z]+[-_]){0,3}x{4}[x-]*(?:\s+[x-]+)*|[<([{*]+(?:redacted|masked|hidden|filtered|secret|sensitive|omitted|unchanged|keep)(?: value)?[>)\]}*]+|redacted|masked)\s*$/iu

/** The fingerprint of a header value, 32 bytes: HMAC-SHA-256 with the deployment key of tool, lower-case name and value. */
export function fingerprint(deploymentKey: KeyObject, toolId: number, headerName: string, value: string): Buffer {
  const fields = encodeFields([FINGERPRINT_PURPOSE, String(toolId), headerName.toLowerCase(), value])
  return createHmac('sha256', deploymentKey).update(fields).digest()
}

/** The redaction that answers show for a secret value: `****#` and the first 12 hex digits of its fingerprint. */
export function redactionOf(fingerprintBytes: Buffer): string {
  return `****#${fingerprintBytes.toString('hex').slice(0, REDACTION_DIGITS)}`
}

/** True if a text contains the redaction digits of one of these fingerprints (hex), for example in a damaged redaction. */
export function holdsRedactionDigits(text: string, fingerprints: readonly string[]): boolean {
  return fingerprints.some(digits => text.toLowerCase().includes(digits.slice(0, REDACTION_DIGITS)))
}

/** True if a value contains a redaction or placeholder. It must not be stored as a secret (DECISIONS section 5). */
export function looksRedacted(text: string): boolean {
  return [HELD_REDACTION, COVERED, LEFT_OUT, STAND_IN].some(form => form.test(text))
}
