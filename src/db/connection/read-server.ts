import pg from 'pg'
import { ConnectionLost, ServerUnfit } from './database-error.js'

/** The server of a connection, as it identified itself at the start. */
export interface DatabaseServer {
  /** The result of `version()`. */
  version: string
  /** False for a standby and a server with read-only transactions. */
  acceptsWrites: boolean
  /** False through a pooler, which has its own server connections. */
  isDirect: boolean
}

/** Describes the server for logs. */
export function describeServer({ version, isDirect }: DatabaseServer): string {
  const [engine = version] = version.split(' on ')
  return isDirect ? engine : `${engine}, through a pooler`
}

/** The oldest supported major version. */
const OLDEST_MAJOR = 15

/** SQL: identifies the server, and returns the session's settings with the names in $1 as JSON text. */
const READ = `
  select (select json_object_agg(name, setting)::text from pg_settings where name = any($1::text[])) as settings,
    current_setting('server_version_num')::integer as number, current_setting('server_encoding') as encoding,
    pg_backend_pid() as pid, version() as version,
    current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery() as "acceptsWrites"`

interface Found extends Omit<DatabaseServer, 'isDirect'> {
  settings: string | null
  number: number
  encoding: string
  pid: number
}

/**
 * Identifies the server of a new connection, and checks that the session has the settings sent at its start. Throws `ServerUnfit` if
 * the service cannot use the server, and `ConnectionLost` or the server's error if it does not answer within `limitMs`.
 */
export async function readServer(
  client: pg.Client,
  limitMs: number,
  settings: Readonly<Record<string, string>>,
): Promise<DatabaseServer> {
  const timer = setTimeout(() => client.connection.stream.destroy(), limitMs)
  try {
    const { rows } = await client.query<Found>(READ, [Object.keys(settings)])
    const [found] = rows
    if (found === undefined) throw new ServerUnfit('the server does not say what it is')
    requireFit(found)
    requireSettings(found.settings, settings)
    // pg sets it from the server's BackendKeyData. Its type declaration lacks it.
    const { processID } = client as pg.Client & { processID?: number }
    return { version: found.version, acceptsWrites: found.acceptsWrites, isDirect: processID === found.pid }
  } catch (error) {
    throw error instanceof pg.DatabaseError || error instanceof ServerUnfit
      ? error
      : new ConnectionLost({ cause: error })
  } finally {
    clearTimeout(timer)
  }
}

function requireFit({ version, number, encoding }: Found): void {
  // Other engines with PostgreSQL's protocol lack `skip locked` or a list of all sessions.
  if (!/^(?:PostgreSQL|EnterpriseDB) /.test(version)) {
    throw new ServerUnfit(`the database is ${version.slice(0, 80)}, and the service needs PostgreSQL itself`)
  }
  if (Math.trunc(number / 10_000) < OLDEST_MAJOR) {
    throw new ServerUnfit(`the database is ${version.split(' on ')[0]}, and the service needs ${OLDEST_MAJOR} or later`)
  }
  if (encoding !== 'UTF8') {
    throw new ServerUnfit(`the database has the encoding ${encoding}: make one with ENCODING 'UTF8' TEMPLATE template0`)
  }
}

/** A pooler may drop the settings of the start, such as PgBouncer with `ignore_startup_parameters = options`. */
function requireSettings(settings: string | null, wanted: Readonly<Record<string, string>>): void {
  const actual = JSON.parse(settings ?? '{}') as Record<string, string> // `json_object_agg` of two texts
  const lost = Object.keys(wanted).filter(name => actual[name] !== wanted[name])
  if (lost.length === 0) return
  throw new ServerUnfit(
    `a pooler stands before the database that drops session settings (${lost.join(', ')}): set PREPARED_STATEMENTS=off`,
  )
}
