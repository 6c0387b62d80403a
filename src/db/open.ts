import pg from 'pg'
import { rootOf } from './connection/database-error.js'
import { parseDatabaseUrl } from './connection/database-url.js'
import type { DatabaseOptions } from './connection/options.js'
import { Database } from './database.js'
import { type Report, startEmbedded } from './embedded/embedded.js'
import { existingHome, urlOf } from './embedded/home.js'

/** The configured database. `close` also stops the embedded server if this process runs it. */
export interface OpenedDatabase {
  database: Database
  isEmbedded: boolean
  description: string
  close(): Promise<void>
}

/** No database is configured, or the program cannot use the database's schema. The message names the remedy. */
export class NotConfigured extends Error {}

interface Settings {
  database: Pick<DatabaseOptions, 'poolSize' | 'preparedStatements' | 'statementTimeoutMs' | 'lockTimeoutMs'> & {
    url?: string
    dataDir: string
    binDir?: string
  }
}

/**
 * Opens the database at `DATABASE_URL`, or the embedded one in `DATA_DIR`, without connecting. The `service` starts the embedded server; a `command`
 * uses the running server. Throws `EmbeddedUnavailable` if the embedded server cannot run, and `NotConfigured` if a command finds no database.
 */
export async function openConfiguredDatabase(
  settings: Settings,
  log: Report,
  onError?: (error: Error) => void,
  user: 'service' | 'command' = 'service',
): Promise<OpenedDatabase> {
  const { url, dataDir, binDir } = settings.database
  const opened = (url: string, description?: string, stop = async () => {}): OpenedDatabase => {
    const database = openUrl(url, settings, onError)
    const isEmbedded = user === 'service' && description !== undefined
    const close = () => database.close().then(stop)
    return { database, isEmbedded, description: description ?? database.description, close }
  }
  if (url !== undefined) return opened(url)
  if (user === 'service') {
    const embedded = await startEmbedded({ dataDir, ...(binDir !== undefined && { binDir }), log })
    return opened(embedded.url, `embedded PostgreSQL ${embedded.version}`, embedded.stop)
  }
  const home = existingHome(dataDir)
  if (home !== undefined) return opened(urlOf(home), `embedded in ${home}`)
  throw new NotConfigured(
    `DATABASE_URL is not set, and there is no embedded database in DATA_DIR (${dataDir}): set DATABASE_URL, or ` +
      'start the service (npm start), which creates an embedded database',
  )
}

const LACKS_PASSWORD = 'client password must be' // pg's message for a missing password contains this text

/**
 * Returns advice for an operator, as a clause without text from the server. `error` states why the database is unreachable or refuses the
 * connection. `url` is the configured URL.
 */
export function connectAdvice(url: string | undefined, error?: unknown): string {
  const { code, message }: Error & { code?: unknown } = rootOf(error)
  if (message.includes('unsupported startup parameter'))
    return 'a pooler in front of it refuses session settings, so set PREPARED_STATEMENTS=off'
  if (code === '53300')
    return 'all its connections are in use, so raise its max_connections or lower DATABASE_POOL_SIZE; each process uses DATABASE_POOL_SIZE + 1'
  if (message.includes(LACKS_PASSWORD)) return 'check DATABASE_URL: the server asks for a password'
  if (code === '42501') return 'the role in DATABASE_URL must own the schema and the tables'
  const settings = 'user, password, database and sslmode in DATABASE_URL'
  if (url) return isRefusedByServer(error) ? `check ${settings}` : `check that it runs, and check host, ${settings}`
  return 'the service (npm start) runs and restarts the embedded PostgreSQL; if it stays down, read the file "log" next to its data folder'
}

/** True if the server answered and refused this program. */
export function isRefusedByServer(error: unknown): boolean {
  const cause = rootOf(error)
  if (cause.message.includes(LACKS_PASSWORD)) return true
  return cause instanceof pg.DatabaseError && /^(?:28|3D|42501|53300|0A|08P01)/.test(cause.code ?? '')
}

/** Opens the database at `url`. Throws if the URL is invalid. */
export function openUrl(url: string, { database }: Settings, onError?: (error: Error) => void): Database {
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(`DATABASE_URL: ${parsed.faults.join('; ')}`)
  return new Database({ ...database, ...(onError && { onError }), address: parsed.address })
}
