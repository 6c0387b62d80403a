import { randomBytes } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import type { Actor } from '../updates/resource.js'

/**
 * Returns the operator as an author for the audit trail: the operating system's user and host, and the command without secret or personal values.
 * All changes of one command share a request id.
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
    return `uid ${process.getuid?.()}` // the user may have no entry in a container's password file
  }
}
