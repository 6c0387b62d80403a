import type { DatabaseServer } from './database-server.js'
import type { DatabaseUrl } from './database-url.js'
import type { Exchange } from './session.js'

/** How a database is reached, and within which limits. */
export interface DatabaseOptions {
  url: DatabaseUrl
  poolSize: number
  statementTimeoutMs: number
  lockTimeoutMs: number
  /** Bounds both making a connection and waiting for a free one. `connect_timeout` of the URL wins. */
  connectTimeoutMs: number
  /** A server silent for so long after the timeout of the statement is taken for lost. Default: two seconds. */
  responseMarginMs?: number
  /** A connection not used for longer is closed. Default: five minutes. */
  idleTimeoutMs?: number
  /** A connection is not used for longer, Default: five minutes. */
  connectionAgeMaxMs?: number
  /** False behind PgBouncer in transaction mode: what a prepared statement answers is asked once on each connection. */
  preparedStatements: boolean
  /** How many texts are prepared by name, each on every connection. Default: 200. */
  preparedStatementLimit?: number
  /**
   * How the limits, and what else results depend on (`session-settings.ts`), reach the server:
   * - `startup` (default): in the start-up packet. PgBouncer refuses such a connection, as these are not parameters it tracks.
   * - `transaction`: as `SET LOCAL` with every `begin`, in the same round trip. Behind PgBouncer in transaction mode a
   *   session setting would stay with whatever server connection it met, this one ends with its transaction. A single
   *   query, or statement with parameters, gets a transaction for it; others have the role's or the server's settings.
   */
  sessionSettings?: 'startup' | 'transaction'
  /** Called after every round trip. Must not throw. */
  onStatement?: (exchange: Exchange) => void
  /** Called whenever a connection was asked for: how long it took until there was one, or an error. Must not throw. */
  onPoolWait?: (durationMs: number) => void
  /** Called when a connection is lost while nobody uses it. */
  onError?: (error: Error) => void
  /** Called when connections go to another server than before. Must not throw. */
  onServer?: (server: DatabaseServer) => void
}
