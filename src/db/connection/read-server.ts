import pg from 'pg'
import { ConnectionLost, ServerUnfit } from './database-error.js'
import type { DatabaseServer } from './database-server.js'

/** The oldest server that the statements of the service run on. */
const OLDEST_MAJOR = 15

/**
 * What a server tells of its past; managed engines may lack some. The timeline is read from the name of the file that is being
 * written: it changes with the promotion itself, `pg_control_checkpoint` only with the next checkpoint.
 */
const PAST = `
  (select system_identifier::text from pg_control_system()) as system,
  case when not pg_is_in_recovery()
    then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer else 0 end as timeline,
  extract(epoch from pg_postmaster_start_time())::double precision as "startedAt",
  inet_server_addr()::text || ' ' || inet_server_port() as place`

const NO_PAST = `null as system, 0 as timeline, '0' as "startedAt", null as place`

/** The statement of the identification; with it the session's settings of these names come as one JSON text. */
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
 * Names a new connection, asks its server what it is, and whether the session has the settings that its start brought. Throws
 * `ServerUnfit` where the service cannot work with it, `ConnectionLost` or the server's own error where it does not answer
 * within `limitMs`.
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
    // Set by pg from the server's BackendKeyData; missing in its declarations.
    const { processID: processId } = client as pg.Client & { processID?: number }
    return { version, acceptsWrites, system, timeline, startedAt, place, processId, isDirect: processId === pid }
  } finally {
    clearTimeout(timer)
  }
}

function requireFit({ version, number, encoding }: Found): void {
  // Engines that only speak PostgreSQL's protocol lack locks that are passed over, or one list of all sessions.
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

/** A pooler may take the settings of the start and drop them, as PgBouncer does with `ignore_startup_parameters = options`. */
function requireSettings(settings: string | null, wanted: Readonly<Record<string, string>>): void {
  const actual = JSON.parse(settings ?? '{}') as Record<string, string> // as `json_object_agg` made it of two texts
  const lost = Object.keys(wanted).filter(name => actual[name] !== wanted[name])
  if (lost.length === 0) return
  throw new ServerUnfit(
    `a pooler stands before the database that drops session settings (${lost.join(', ')}): set PREPARED_STATEMENTS=off`,
  )
}

/** Whether the server does not know, or does not allow, what was asked. */
function isLacking(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:0A|42)/.test(error.code ?? '')
}
