import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { ConnectionOptions } from 'node:tls'
import pg from 'pg'
import { ConnectionLost } from './database-error.js'
import type { DatabaseHost, DatabaseUrl } from './database-url.js'
import type { HostList } from './hosts.js'
import type { DatabaseOptions } from './options.js'
import { guardParser } from './parser-guard.js'
import { Session, type SessionSettings } from './session.js'
import { optionsOf, startupSettings } from './session-settings.js'
import { TYPE_PARSERS } from './type-parsers.js'

/** PostgreSQL cuts an `application_name` behind so many bytes. */
const NAME_BYTES_MAX = 63

/** After so long a silence TCP asks whether the server is there, unless the URL says otherwise. */
const KEEP_ALIVE_IDLE_MS = 10_000

/** Which host of the list a client was made for. */
export const placeOf = new WeakMap<pg.Client, number>()

/** Each client's session, made with it: one made later would not hear of a connection lost meanwhile. */
export const sessionOf = new WeakMap<pg.ClientBase, Session>()

/**
 * A name that no other connection has: by it a lost one is found on the server, whatever process id it had. The server keeps a
 * `?` in place of what is not printable ASCII: sent as it is, the name would never be found.
 */
function connectionName(base: string): string {
  const mark = `/${randomBytes(9).toString('base64url')}`
  return base.replaceAll(/[^ -~]/g, '?').slice(0, NAME_BYTES_MAX - mark.length) + mark
}

type ConnectCallback = (error: Error | null, client?: pg.Client) => void

/** A client class for the pool: each new client goes to the host that is current, and says when it cannot be reached. */
export function hostClient(
  hosts: HostList<DatabaseHost>,
  options: DatabaseOptions,
  settings: SessionSettings,
): new () => pg.Client {
  const config = clientConfig(options)
  return class HostClient extends pg.Client {
    constructor() {
      const place = hosts.current
      const name = connectionName(config.application_name ?? '')
      super({ ...config, ...hosts.at(place), application_name: name })
      guardParser(this.connection)
      placeOf.set(this, place)
      sessionOf.set(this, new Session(this, name, settings))
    }

    override connect(): Promise<pg.Client>
    override connect(callback: ConnectCallback): void
    override connect(callback?: ConnectCallback): Promise<pg.Client> | undefined {
      const fail = (error: Error): Error => {
        hosts.failed(placeOf.get(this) ?? hosts.current)
        // The pool forgets this client; where it was the client that gave up, as for want of a password, its socket is open.
        this.connection.stream.destroy()
        return error instanceof pg.DatabaseError ? error : new ConnectionLost({ cause: error })
      }
      if (!callback) return super.connect().catch(error => Promise.reject(fail(error)))
      super.connect((error: Error | null) => (error ? callback(fail(error)) : callback(null, this)))
      return undefined
    }
  }
}

/** What a connection of the pool is made with, beside its host. */
export function clientConfig(options: DatabaseOptions): pg.ClientConfig {
  const { url } = options
  return {
    user: url.user,
    password: url.password,
    database: url.database,
    application_name: url.applicationName ?? 'agent-tool-management',
    ssl: sslOptions(url.ssl),
    types: TYPE_PARSERS,
    keepAlive: url.keepAliveIdleMs !== null,
    keepAliveInitialDelayMillis: url.keepAliveIdleMs ?? KEEP_ALIVE_IDLE_MS,
    // What is given later wins: ours.
    options: [url.options ?? '', optionsOf(startupSettings(options))].join(' ').trim(),
  }
}

function sslOptions(ssl: DatabaseUrl['ssl']): false | ConnectionOptions {
  if (ssl.mode === 'disable') return false
  return {
    rejectUnauthorized: ssl.mode !== 'require',
    ...(ssl.mode === 'verify-ca' && { checkServerIdentity: () => undefined }),
    // `system` means the certificates that the runtime trusts, as with libpq.
    ...(ssl.rootCertFile && ssl.rootCertFile !== 'system' && { ca: readFileSync(ssl.rootCertFile) }),
    ...(ssl.certFile && { cert: readFileSync(ssl.certFile) }),
    ...(ssl.keyFile && { key: readFileSync(ssl.keyFile) }),
  }
}
