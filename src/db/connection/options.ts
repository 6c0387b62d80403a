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
  /**
   * False behind PgBouncer in transaction mode, which keeps neither prepared statements nor the settings of a session: the
   * limits, and what else results depend on, go with every `begin` as `SET LOCAL`, in the same round trip. A single query,
   * or statement with parameters, gets a transaction for it; others have the role's or the server's settings.
   */
  preparedStatements: boolean
  /** Called after every round trip. Must not throw. */
  onStatement?: (exchange: Exchange) => void
  /** Called whenever a connection was asked for: how long it took until there was one, or an error. Must not throw. */
  onPoolWait?: (durationMs: number) => void
  /** Called when a connection is lost while nobody uses it. */
  onError?: (error: Error) => void
  /** Called when connections go to another server than before. Must not throw. */
  onServer?: (server: DatabaseServer) => void
}

/** A transaction may pause so long, or as long as a statement may take where that is more. */
const IDLE_MIN_MS = 10_000

/** How statements are planned. */
const PLANNING = {
  // Left to itself the server plans the large statements anew at every execution, because it takes lists of ids for longer
  // than they are, and planning costs several times what running does. Every statement finds its rows by keys, so one
  // plan fits all values.
  plan_cache_mode: 'force_generic_plan',
  // That plan is kept: one that reads a table whole, because it is small, would go on when it has grown.
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  // Compiling expressions never pays for a handful of rows.
  jit: 'off',
}

/**
 * What results depend on, whatever the server, the database or the role is set to (`ALTER DATABASE ... SET`): how values
 * become text, what a transaction sees, which plans are made, and how long a statement may take.
 */
function sessionSettings(options: DatabaseOptions): Record<string, string> {
  return {
    statement_timeout: String(Math.trunc(options.statementTimeoutMs)),
    lock_timeout: String(Math.trunc(options.lockTimeoutMs)),
    idle_in_transaction_session_timeout: String(Math.trunc(Math.max(options.statementTimeoutMs, IDLE_MIN_MS))),
    // The server ends a statement soon after its client has gone.
    client_connection_check_interval: '1000',
    client_encoding: 'UTF8',
    DateStyle: 'ISO, MDY',
    TimeZone: 'UTC',
    bytea_output: 'hex',
    // From 1 on, a number is written so that reading it gives the same one.
    extra_float_digits: '1',
    standard_conforming_strings: 'on',
    // That a commit gave up waiting for its standby is told by a warning.
    client_min_messages: 'warning',
    ...PLANNING,
  }
}

/** The settings that the start of a connection brings, by name, as `pg_settings` shows them; none where each transaction does. */
export function startupSettings(options: DatabaseOptions): Record<string, string> {
  if (!options.preparedStatements) return {}
  return { ...sessionSettings(options), default_transaction_isolation: 'read committed' }
}

/** Settings as the server's command line options. */
export function optionsOf(settings: Readonly<Record<string, string>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
    .join(' ')
}

/**
 * The same for one transaction, sent behind its `begin`; undefined for a connection that has them. How much a transaction
 * sees is said by its `begin`, for that cannot be changed behind a query.
 */
export function transactionPrelude(options: DatabaseOptions): string | undefined {
  if (options.preparedStatements) return undefined
  const calls = Object.entries(sessionSettings(options)).map(
    ([name, value]) => `set_config('${name}', '${value}', true)`,
  )
  return `select ${calls.join(', ')}`
}
