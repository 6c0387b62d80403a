import pg from 'pg'
import { ConnectionLost, DatabaseFault, ServerUnfit } from './database-error.js'
import type { DatabaseOptions } from './options.js'

const OLDEST_MAJOR = 15

const READ = `
  select current_setting('server_version_num')::integer / 10000 as major, current_setting('server_encoding') as encoding,
    pg_backend_pid() as pid, split_part(version(), ' on ', 1) as name,
    current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery() as "acceptsWrites"`

interface Found {
  major: number
  encoding: string
  pid: number
  name: string
  acceptsWrites: boolean
}

/**
 * Returns the name and version of the server of a new connection. Throws `ServerUnfit` if the service cannot use the server, `DatabaseFault` if
 * writes are required but refused, `ConnectionLost` if the server does not answer in time, or the server's error.
 */
export async function readServer(client: pg.PoolClient, options: DatabaseOptions): Promise<string> {
  const timer = setTimeout(() => client.connection.stream.destroy(), options.address.connectTimeoutMs)
  try {
    const { rows } = await client.query<Found>(READ)
    const [found] = rows
    const fault = found === undefined ? 'it does not report its version' : faultOf(found, client, options)
    if (found === undefined || fault !== undefined) throw new ServerUnfit(`the database cannot be used: ${fault}`)
    if (options.address.writesOnly && !found.acceptsWrites)
      throw new DatabaseFault('read_only', 'the database server accepts no writes')
    return found.name
  } catch (error) {
    const isKnown = error instanceof pg.DatabaseError || error instanceof DatabaseFault
    throw isKnown ? error : new ConnectionLost({ cause: error })
  } finally {
    clearTimeout(timer)
  }
}

function faultOf(found: Found, client: pg.PoolClient, { preparedStatements }: DatabaseOptions): string | undefined {
  const { name, major, encoding, pid } = found
  // Other servers that use PostgreSQL's protocol lack `skip locked` or sequences.
  if (!/^(?:PostgreSQL|EnterpriseDB) /.test(name)) return `it is ${name.slice(0, 80)}, and the service needs PostgreSQL`
  if (major < OLDEST_MAJOR) return `it is ${name}, and the service needs PostgreSQL ${OLDEST_MAJOR} or later`
  if (encoding !== 'UTF8')
    return `its encoding is ${encoding}, and the service needs UTF8: create a database with "create database NAME encoding 'UTF8' template template0"`
  // pg's type omits `processID`, which the server sends. A pooler sends an id of its own.
  const { processID } = client as pg.PoolClient & { processID?: number }
  if (preparedStatements && processID !== pid) return 'a pooler is in front of it: set PREPARED_STATEMENTS=off'
  return undefined
}
