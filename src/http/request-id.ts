import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/** The caller's `X-Request-ID` if it has the allowed form, else a new one (DECISIONS section 2). */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const given = headers['x-request-id']
  if (typeof given === 'string' && /^[A-Za-z0-9_-]{1,64}$/.test(given)) return given
  return randomBytes(12).toString('base64url')
}
