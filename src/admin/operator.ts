import { randomBytes } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import type { Actor } from '../updates/audit.js'

/**
 * The operator as the author in the audit trail: the user and host of the operating system, and the command without values, which may be secret
 * or personal. Each command has one request id, which groups its changes.
 */
export function operatorActor(command: string | null = null): Actor {
  return {
    actor_id: null,
    token_id: null,
    request_id: `cli-${randomBytes(8).toString('hex')}`,
    client_address: `${userName()}@${hostname()}`,
    command,
  }
}

function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.()}` // the password file of a container may lack an entry
  }
}
