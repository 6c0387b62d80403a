import type { DatabaseAddress } from './database-url.js'

export interface DatabaseOptions {
  address: DatabaseAddress
  poolSize: number
  statementTimeoutMs: number
  lockTimeoutMs: number
  /** Must be false behind a pooler in transaction mode, which loses prepared statements and settings. If false, each `begin` sends the settings. */
  preparedStatements: boolean
  onError?: (error: Error) => void
}

/** The minimum idle timeout of a transaction. If the statement timeout is longer, it is also the idle timeout. */
const IDLE_MIN_MS = 10_000

const PLANNING = Object.entries({
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  jit: 'off',
})

/** The settings of a session. They override the settings of the server, the database and the role. */
function settings({ statementTimeoutMs, lockTimeoutMs }: DatabaseOptions): [name: string, value: string | number][] {
  return [
    ['statement_timeout', statementTimeoutMs],
    ['lock_timeout', lockTimeoutMs],
    ['idle_in_transaction_session_timeout', Math.max(statementTimeoutMs, IDLE_MIN_MS)],
    ['client_connection_check_interval', 1_000], // ends a statement soon after its client has disconnected
    ['default_transaction_isolation', 'read committed'],
    ['DateStyle', 'ISO'],
    ['TimeZone', 'UTC'],
    // Makes the planner use indexes, whatever the parameter values are.
    ...PLANNING,
  ]
}

/** Returns the settings as options for a new session. */
export function startupOptions(options: DatabaseOptions): string {
  return settings(options)
    .map(([name, value]) => `-c ${name}=${String(value).replaceAll(' ', '\\ ')}`)
    .join(' ')
}

/** Returns a query that applies the settings to one transaction; undefined if the session keeps the settings. */
export function transactionPrelude(options: DatabaseOptions): string | undefined {
  if (options.preparedStatements) return undefined
  return `select ${settings(options).map(([name, value]) => `set_config('${name}', '${value}', true)`)}`
}
