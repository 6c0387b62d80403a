import { setTimeout as sleep } from 'node:timers/promises'
import { CompiledQuery } from 'kysely'
import type { Outcome } from '../../errors.js'
import type { CommitUnknown } from './database-error.js'
import type { DatabaseServer } from './database-server.js'
import type { Query, Session } from './session.js'

const POLL_MS = 50

/**
 * Settles an unconfirmed commit: ends the server process of the lost connection, then looks for the trace of the transaction. A found trace
 * counts once a later commit is confirmed. A missing trace counts only if this server certainly has no such process any more (`speaksFor`).
 * Never throws; errors are retried until `withinMs` is over.
 */
export async function settle(
  acquire: () => Promise<Session>,
  doubt: CommitUnknown,
  trace: Query,
  withinMs: number,
): Promise<Outcome> {
  const late = sleep(withinMs, 'unknown' as const, { ref: false })
  const deadline = performance.now() + withinMs
  const settling = async () => {
    while (performance.now() < deadline) {
      // The fault that lost the answer may also cause an error here. It may be temporary, so try again.
      const outcome = await look(acquire, doubt, trace).catch(() => 'unknown' as const)
      if (outcome !== 'unknown') return outcome
      await sleep(POLL_MS)
    }
    return 'unknown'
  }
  return await Promise.race([settling(), late])
}

async function look(acquire: () => Promise<Session>, doubt: CommitUnknown, trace: Query): Promise<Outcome> {
  const session = await acquire()
  let isClean = false
  try {
    const isGone = (await endServerProcess(session, doubt.session)) && speaksFor(session.server, doubt.server)
    const { rows } = await session.executeQuery(trace)
    if (rows.length > 0) {
      await session.begin()
      await session.executeQuery(CONFIRMED_WRITE)
      await session.commit()
    }
    isClean = true
    if (rows.length > 0) return 'applied'
    return isGone ? 'not_applied' : 'unknown'
  } finally {
    session.release(!isClean)
  }
}

/** Writes to the WAL without other effects. Its commit waits for the synchronous standby, if any. Once it is confirmed, all earlier commits are too. */
const CONFIRMED_WRITE = CompiledQuery.raw(`select pg_logical_emit_message(true, 'agent-tool-management', '')`)

/**
 * Does not end a process that waits for the standby: it has committed already, and ending its wait would show a change that a failover
 * could lose. $2 is the process id from this connection's start (another one behind a pooler), $3 its name: a server that does not list
 * this connection would not list the lost one either.
 */
const END = `
  select pg_backend_pid() = $2::integer as direct, pg_is_in_recovery() as recovering,
    exists (select from pg_stat_activity where pid = pg_backend_pid() and application_name = $3) as listed,
    (select count(*) from (
      select case when pg_backend_pid() = $2::integer and wait_event is distinct from 'SyncRep'
        then pg_terminate_backend(pid) end
      from pg_stat_activity where application_name = $1 offset 0) found) as found`

interface EndRow {
  direct: boolean
  recovering: boolean
  listed: boolean
  found: number
}

/** Ends the server process of a lost connection. True if this server certainly has no such process any more. */
async function endServerProcess(session: Session, lost: string): Promise<boolean> {
  const end = CompiledQuery.raw(END, [lost, session.server?.processId ?? 0, session.name])
  const { rows } = await session.executeQuery<EndRow>(end)
  const [row] = rows
  return row !== undefined && row.found === 0 && !row.recovering && row.direct && row.listed
}

/**
 * True if a change that this server does not have was not applied: it is the lost server, the same one restarted, or one that was promoted
 * since. With several primaries or a pooler, another server may have the change.
 */
function speaksFor(server: DatabaseServer | undefined, lost: DatabaseServer | undefined): boolean {
  if (!server?.isDirect || !lost?.isDirect || server.system === null || server.system !== lost.system) return false
  if (server.startedAt === lost.startedAt || server.timeline > lost.timeline) return true
  return server.timeline === lost.timeline && server.place === lost.place && server.startedAt > lost.startedAt
}
