import { randomFillSync } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

const ID_BYTES = 12
/** Random bytes for the next ids: asking the system for each id costs more than everything else about it. */
const supply = Buffer.alloc(ID_BYTES * 256)
let used = supply.length

/** The caller's `X-Request-ID` if it has the allowed form, else a new one (DECISIONS section 2). */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const received = headers['x-request-id']
  if (typeof received === 'string' && /^[A-Za-z0-9_-]{1,64}$/.test(received)) return received
  if (used === supply.length) {
    randomFillSync(supply)
    used = 0
  }
  used += ID_BYTES
  return supply.toString('base64url', used - ID_BYTES, used)
}
