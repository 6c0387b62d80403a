import pg from 'pg'
import { ConnectionLost, ServerUnfit } from './database-error.js'
import type { DatabaseServer } from './database-server.js'

/** The oldest supported major version. */
const OLDEST_MAJOR = 15

/**
 * SQL: the identity of a server; managed engines may lack parts of it. The timeline is read from the name of the current WAL file, which
 * changes with a promotion at once. `pg_control_checkpoint` changes only with the next checkpoint.
 */
const PAST = `
  (select system_identifier::text from pg_control_system()) as system,
  case when not pg_is_in_recovery()
    then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer else 0 end as timeline,
  extract(epoch from pg_postmaster_start_time())::double precision as "startedAt",
  inet_server_addr()::text || ' ' || inet_server_port() as place`

const NO_PAST = `null as system, 0 as timeline, '0' as "startedAt", null as place`

/** SQL: identifies the server, and returns the session's settings with these names as JSON text. */
function readStatement(past: string, name: string, names: readonly string[]): string {
  const listed = names.map(name => `'${name}'`).join(', ') || 'null'
  return `
    select set_config('application_name', ${pg.escapeLiteral(name)}, false),
      (select json_object_agg(name, setting)::text from pg_settings where name in (${listed})) as settings,
      current_setting('server_version_num')::integer as number, current_setting('server_encoding') as encoding,
      pg_backend_pid() as pid, version() as version, ${past},
      current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery() as "acceptsWrites"`
}

interface Found extends Omit<DatabaseServer, 'processId' | 'isDirect'> {
  settings: string | null
  number: number
  encoding: string
  pid: number
}

/**
 * Names a new connection, identifies its server, and checks that the session has the settings sent at its start. Throws `ServerUnfit` if
 * the service cannot use the server, and `ConnectionLost` or the server's error if it does not answer within `limitMs`.
 */
export async function readServer(
  client: pg.Client,
  name: string,
  limitMs: number,
  settings: Readonly<Record<string, string>>,
): Promise<DatabaseServer> {
  const names = Object.keys(settings)
  const timer = setTimeout(() => client.connection.stream.destroy(), limitMs)
  try {
    const { rows } = await client
      .query<Found>(readStatement(PAST, name, names))
      .catch(error =>
        isLacking(error) ? client.query<Found>(readStatement(NO_PAST, name, names)) : Promise.reject(error),
      )
      .catch(error => Promise.reject(error instanceof pg.DatabaseError ? error : new ConnectionLost({ cause: error })))
    const [found] = rows
    if (found === undefined) throw new ServerUnfit('the server does not say what it is')
    requireFit(found)
    requireSettings(found.settings, settings)
    const { version, acceptsWrites, system, timeline, startedAt, place, pid } = found
    // pg sets it from the server's BackendKeyData. Its type declaration lacks it.
    const { processID: processId } = client as pg.Client & { processID?: number }
    return { version, acceptsWrites, system, timeline, startedAt, place, processId, isDirect: processId === pid }
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

/** True if the server lacks or forbids the requested functions. */
function isLacking(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:0A|42)/.test(error.code ?? '')
}
