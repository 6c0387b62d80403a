import type { DatabaseAddress } from './database-url.js'

/** The address of a database and its limits. */
export interface DatabaseOptions {
  address: DatabaseAddress
  poolSize: number
  statementTimeoutMs: number
  lockTimeoutMs: number
  /**
   * False behind a pooler in transaction mode, which keeps neither prepared statements nor session settings. Each `begin` then sends the
   * settings in the same round trip.
   */
  preparedStatements: boolean
  onError?: (error: Error) => void
}

/** The minimum idle timeout of a transaction. A longer statement timeout replaces it. */
const IDLE_MIN_MS = 10_000

const PLANNING = Object.entries({
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  jit: 'off',
})

/** Settings that affect results. They override those of the server, the database and the role (`ALTER DATABASE ... SET`). */
function settings({ statementTimeoutMs, lockTimeoutMs }: DatabaseOptions): [name: string, value: string | number][] {
  return [
    ['statement_timeout', statementTimeoutMs],
    ['lock_timeout', lockTimeoutMs],
    ['idle_in_transaction_session_timeout', Math.max(statementTimeoutMs, IDLE_MIN_MS)],
    ['client_connection_check_interval', 1_000], // ends a statement soon after its client has gone
    ['default_transaction_isolation', 'read committed'],
    ['DateStyle', 'ISO'],
    ['TimeZone', 'UTC'],
    // With these, plans use indexes for all parameter values.
    ...PLANNING,
  ]
}

/** The settings as command-line options that the server applies to a new session. */
export function startupOptions(options: DatabaseOptions): string {
  return settings(options)
    .map(([name, value]) => `-c ${name}=${String(value).replaceAll(' ', '\\ ')}`)
    .join(' ')
}

/** A query that applies the settings to one transaction; undefined if the session keeps them itself. */
export function transactionPrelude(options: DatabaseOptions): string | undefined {
  if (options.preparedStatements) return undefined
  return `select ${settings(options).map(([name, value]) => `set_config('${name}', '${value}', true)`)}`
}
