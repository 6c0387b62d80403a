import { randomBytes } from 'node:crypto'
import type { Actor } from '../updates/audit.js'

/** The operator at the command line, as the audit trail names them. One per command: its request id marks what belongs together. */
export function operatorActor(): Actor {
  return {
    id: null,
    name: 'agentctl',
    tokenId: null,
    requestId: `cli-${randomBytes(8).toString('hex')}`,
    clientAddress: 'local',
  }
}
