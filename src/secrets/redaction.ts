import { createHmac, type KeyObject } from 'node:crypto'
import { encodeFields } from './encoding.js'

const REDACTION_DIGITS = 12
const FINGERPRINT_PURPOSE = 'custom-header-fingerprint/1'
/** A redaction of ours, whole, cut short or in capitals, also between other characters: `Bearer ****#44bb`, `sk-***1234`. */
const HELD_REDACTION = /[*＊∗⁎✱]{3}/
/** Characters that people and tools write in place of a secret. */
const COVERED = /[•●∙⋅⚫⬤█▇■▪◾○◦⦁]/
/** A secret that is left out in the middle or at an end: `sk-...abcd`. */
const LEFT_OUT = /^(?:(?:bearer|basic|token|apikey)\s+)?(?=\S+\s*$)\S*?(?:\.{3}|…|·{3})/iu
/** A whole value that stands for a secret, behind a scheme or a prefix or not: `**`, `* * *`, `sk-xxxx`, `<redacted>`. */
const STAND_IN =
  /^\s*(?:(?:bearer|basic|token|apikey)\s+)?(?:[*＊∗⁎✱.…·](?:\s*[*＊∗⁎✱.…·])+|(?:[a-z]+[-_]){0,3}x{4}[x-]*(?:\s+[x-]+)*|[<([{*]+(?:redacted|masked|hidden|filtered|secret|sensitive|omitted|unchanged|keep)(?: value)?[>)\]}*]+|redacted|masked)\s*$/iu

/** The fingerprint of a header value, 32 bytes: HMAC-SHA-256 under the deployment key over tool, lower-cased name and value. */
export function fingerprint(deploymentKey: KeyObject, toolId: number, headerName: string, value: string): Buffer {
  const fields = encodeFields([FINGERPRINT_PURPOSE, String(toolId), headerName.toLowerCase(), value])
  return createHmac('sha256', deploymentKey).update(fields).digest()
}

/** What answers show in the place of a secret value: `****#` and the first 12 hexadecimal digits of its fingerprint. */
export function redactionOf(fingerprintBytes: Buffer): string {
  return `****#${fingerprintBytes.toString('hex').slice(0, REDACTION_DIGITS)}`
}

/** Whether a text holds the digits of one of these fingerprints: its redaction, however damaged or escaped around them. */
export function holdsRedactionDigits(text: string, fingerprints: readonly string[]): boolean {
  return fingerprints.some(digits => text.toLowerCase().includes(digits.slice(0, REDACTION_DIGITS)))
}

/** Whether a value holds a redaction, or a stand-in for a secret, and must never be stored as one (DECISIONS section 5). */
export function looksRedacted(text: string): boolean {
  return [HELD_REDACTION, COVERED, LEFT_OUT, STAND_IN].some(form => form.test(text))
}
