import type { DatabaseUrl } from './database-url.js'
import type { DatabaseServer } from './read-server.js'
import type { Exchange } from './session.js'

/** The address of a database, and the limits for it. */
export interface DatabaseOptions {
  url: DatabaseUrl
  poolSize: number
  statementTimeoutMs: number
  lockTimeoutMs: number
  /** Limits both opening a connection and waiting for a free one. `connect_timeout` in the URL takes precedence. */
  connectTimeoutMs: number
  /** If the server is silent this long after the statement timeout, the connection counts as lost. Default: two seconds. */
  responseMarginMs?: number
  /**
   * False behind PgBouncer in transaction mode, which keeps neither prepared statements nor session settings. Then each `begin` sets the
   * timeouts and other settings with `SET LOCAL` in the same round trip. A single query that reads or has parameters runs in its own
   * transaction; others run with the settings of the role or server.
   */
  preparedStatements: boolean
  /** Called after every round trip. Must not throw. */
  onStatement?: (exchange: Exchange) => void
  /** Called with the time until a connection was available, or an error. Must not throw. */
  onPoolWait?: (durationMs: number) => void
  /** Called when an idle connection is lost. */
  onError?: (error: Error) => void
  /** Called when new connections reach another server than before. Must not throw. */
  onServer?: (server: DatabaseServer) => void
}

/** The idle timeout of a transaction is this, or the statement timeout if that is longer. */
const IDLE_MIN_MS = 10_000

/** Planner settings. */
const PLANNING = {
  // By default the server would plan large statements again at every execution, because it overestimates the length of id lists. Planning
  // costs several times as much as running. All statements find rows by keys, so one plan fits all values.
  plan_cache_mode: 'force_generic_plan',
  // The plan is kept. A plan made while a table is small must not read the whole table later.
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  // JIT compilation never pays for few rows.
  jit: 'off',
}

/**
 * Settings that results depend on, which override those of the server, database or role (`ALTER DATABASE ... SET`): text formats, planning,
 * and timeouts.
 */
function sessionSettings(options: DatabaseOptions): Record<string, string> {
  return {
    statement_timeout: String(Math.trunc(options.statementTimeoutMs)),
    lock_timeout: String(Math.trunc(options.lockTimeoutMs)),
    idle_in_transaction_session_timeout: String(Math.trunc(Math.max(options.statementTimeoutMs, IDLE_MIN_MS))),
    // End a statement soon after its client is gone.
    client_connection_check_interval: '1000',
    client_encoding: 'UTF8',
    DateStyle: 'ISO, MDY',
    TimeZone: 'UTC',
    bytea_output: 'hex',
    // From 1 on, numbers are written exactly.
    extra_float_digits: '1',
    standard_conforming_strings: 'on',
    // A warning reports that a commit stopped waiting for its standby.
    client_min_messages: 'warning',
    ...PLANNING,
  }
}

/** The session settings that the start of a connection sends, as `pg_settings` shows them; empty if each transaction sets them. */
export function startupSettings(options: DatabaseOptions): Record<string, string> {
  if (!options.preparedStatements) return {}
  return { ...sessionSettings(options), default_transaction_isolation: 'read committed' }
}

/** Formats settings as the server's command-line options. */
export function optionsOf(settings: Readonly<Record<string, string>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
    .join(' ')
}

/**
 * A query that makes the settings for one transaction, sent after its `begin`; undefined if the session has them. The isolation level is
 * part of `begin`, because it cannot be changed after a query.
 */
export function transactionPrelude(options: DatabaseOptions): string | undefined {
  if (options.preparedStatements) return undefined
  const calls = Object.entries(sessionSettings(options)).map(
    ([name, value]) => `set_config('${name}', '${value}', true)`,
  )
  return `select ${calls.join(', ')}`
}
