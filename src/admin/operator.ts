import { randomBytes } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import type { Actor } from '../updates/audit.js'

/**
 * The operator as author in the audit trail: the system's user and host, and the command without its values, which may be secret or
 * personal. Each command has its own request id, which groups its changes.
 */
export function operatorActor(command: string | null = null): Actor {
  return {
    id: null,
    tokenId: null,
    requestId: `cli-${randomBytes(8).toString('hex')}`,
    clientAddress: `${userName()}@${hostname()}`,
    command,
  }
}

function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.()}` // a container may have no entry in the password file
  }
}
