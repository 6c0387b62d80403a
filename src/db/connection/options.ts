import type { DatabaseAddress } from './database-url.js'

/** The address of a database, and the limits for it. */
export interface DatabaseOptions {
  address: DatabaseAddress
  poolSize: number
  statementTimeoutMs: number
  lockTimeoutMs: number
  /** A server that is silent this long after the statement timeout counts as lost. Default: two seconds. */
  responseMarginMs?: number
  /**
   * False behind a pooler in transaction mode, which keeps neither prepared statements nor session settings. Then each `begin` makes the
   * settings in the same round trip.
   */
  preparedStatements: boolean
  /** Called with the text of every statement, without parameter values. Must not throw. */
  onStatement?: (text: string) => void
  /** Called when an idle connection is lost. */
  onError?: (error: Error) => void
  /** Called when new connections reach another server than before, with its name and version. Must not throw. */
  onServer?: (server: string) => void
}

/** The idle timeout of a transaction is this, or the statement timeout if that is longer. */
const IDLE_MIN_MS = 10_000

const PLANNING = Object.entries({
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  jit: 'off',
})

/** Settings that results depend on. They override those of the server, database or role (`ALTER DATABASE ... SET`). */
function settings({ statementTimeoutMs, lockTimeoutMs }: DatabaseOptions): [name: string, value: string | number][] {
  return [
    ['statement_timeout', statementTimeoutMs],
    ['lock_timeout', lockTimeoutMs],
    ['idle_in_transaction_session_timeout', Math.max(statementTimeoutMs, IDLE_MIN_MS)],
    ['client_connection_check_interval', 1_000], // ends a statement soon after its client is gone
    ['default_transaction_isolation', 'read committed'],
    ['DateStyle', 'ISO'],
    ['TimeZone', 'UTC'],
    // One plan by keys fits all values.
    ...PLANNING,
  ]
}

/** The settings as the server's command-line options for a new session. */
export function startupOptions(options: DatabaseOptions): string {
  return settings(options)
    .map(([name, value]) => `-c ${name}=${String(value).replaceAll(' ', '\\ ')}`)
    .join(' ')
}

/** A query that applies settings to one transaction; undefined if the session has them. */
export function transactionPrelude(options: DatabaseOptions): string | undefined {
  if (options.preparedStatements) return undefined
  return `select ${settings(options).map(([name, value]) => `set_config('${name}', '${value}', true)`)}`
}
