import { randomBytes } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import type { Actor } from '../updates/audit.js'

/**
 * The operator at the command line, as the audit trail names them: the operating system's user, the host, and the command
 * without values, which may be secret or personal. One per command: its request id marks what belongs together.
 */
export function operatorActor(command: string | null = null): Actor {
  return {
    id: null,
    name: 'agentctl',
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
    return `uid ${process.getuid?.()}` // as in a container: no entry in the password file
  }
}
