import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import pg from 'pg'
import * as migrations from '../../migrations/index.js'
import { TRY_AGAIN, Unavailable } from '../errors.js'
import { ServerUnfit, SQLSTATE } from './connection/database-error.js'
import type { Database } from './database.js'
import type { Tables } from './tables.js'
import { limitStatements } from './time-limit.js'

/**
 * One step of the schema. `oldestProgram` is the oldest version that can run with the schema after it.
 *
 * A step that only adds (an index, a table, a column that no resource shows) names the previous version, and can run while that version
 * serves. A new column of a resource's content names the version that introduces it: an older program would write content hashes without
 * it, and the audit trail would no longer verify. No step may hold a lock for a time that depends on the size of a table: see `up` and
 * `prepare`.
 */
export interface SchemaStep {
  /**
   * Changes that take effect at once, in their own transaction: a new table, a nullable column, a constraint `not valid`. It waits at most
   * 100 ms for a lock, then pauses and tries again.
   */
  up(db: Kysely<unknown>): Promise<void>
  /**
   * Long work that blocks nobody, before `up`, on one connection and outside a transaction: `create index concurrently`, a backfill in
   * batches, `validate constraint`. An earlier run may have been interrupted, so it must remove or skip what exists (such as an index that
   * is not `indisvalid`). It must not depend on the `up` of the same step.
   */
  prepare?(db: Kysely<unknown>): Promise<void>
  oldestProgram: string
  /** The locks that it takes, in words for the operator. */
  locks: readonly string[]
}

/** All migrations by name, in order. */
export const MIGRATIONS: Readonly<Record<string, SchemaStep>> = migrations

export type SchemaState =
  | { kind: 'current' }
  /** `isEmpty`: no step was ever run. */
  | { kind: 'behind'; pending: string[]; isEmpty: boolean }
  | { kind: 'ahead'; oldestProgram: string }

/** The key of the advisory lock of `migrate`; an arbitrary number. */
const LOCK_ID = 7_140_312
const LOCK_POLL_MS = 100
/** How long to wait while another process holds the lock of `migrate`. */
const LOCK_PATIENCE_MS = 60_000

/** The lock timeout of a step. Writers of the table are blocked for this long while the step waits. */
const LOCK_WAIT_MS = 100
/** The pause between two tries for a lock, in which writers can use the table. */
const MAKE_WAY_MS = 400
/** How long a step keeps trying to lock a table. */
const STEP_PATIENCE_MS = 60_000

/** The last step of version 1.15.1, the oldest version that can be upgraded. */
const OLDEST_UPGRADED = { version: '1.15.1', step: '0011_leaf_positions' }

/** The comment on the table `schema_requirement` that marks databases created by version 2.1 or later. */
const MADE_SINCE = 'made by version 2.1 or later'

export interface MigrationOptions {
  steps?: Readonly<Record<string, SchemaStep>>
  /** How long to wait while another process holds the lock of migrations. */
  patienceMs?: number
  /** Called with a message for the operator when a wait begins. */
  onWait?: (sentence: string) => void
}

/**
 * Brings the schema up to date, forward only, and returns the names of the migrations that ran. Of several processes, one migrates and the
 * others wait. Throws if a migration fails, with code 55P03 if a table could not be locked within a minute, and `Unavailable` if another
 * process held the lock of migrations for too long. Completed migrations stay; of a failed one only the effects of `prepare` stay. Throws
 * `ServerUnfit` through a pooler, where the session-level lock would neither hold nor be released.
 */
export async function migrate(database: Database, options: MigrationOptions = {}): Promise<string[]> {
  const { steps = MIGRATIONS } = options
  if ((await pendingSteps(database.db, steps)).length === 0) return []
  if (!database.server?.isDirect) {
    throw new ServerUnfit(
      'a pooler stands before the database, and migrations need a direct connection: run agentctl migrate with a ' +
        'DATABASE_URL that names the server itself',
    )
  }
  return await database.db.connection().execute(connection =>
    locked(connection, options, async () => {
      const pending = await pendingSteps(connection, steps)
      for (const name of pending) {
        const step = steps[name] as SchemaStep // one of its keys
        await prepareStep(connection, step)
        await runStep(connection, name, step, options)
      }
      return pending
    }),
  )
}

async function pendingSteps(db: Kysely<Tables>, steps: Readonly<Record<string, SchemaStep>>): Promise<string[]> {
  const applied = await appliedSteps(db)
  return Object.keys(steps).filter(name => !applied.has(name))
}

/** Takes the lock of migrations by polling. A session that waits for it would hold a snapshot, which blocks `create index concurrently`. */
async function locked<T>(
  connection: Kysely<Tables>,
  { patienceMs = LOCK_PATIENCE_MS, onWait }: MigrationOptions,
  work: () => Promise<T>,
): Promise<T> {
  const deadline = Date.now() + patienceMs
  let isTold = false
  for (;;) {
    const { rows } = await sql<{ taken: boolean }>`
      select pg_try_advisory_lock(${sql.lit(LOCK_ID)}) as taken`.execute(connection)
    if (rows[0]?.taken) break
    if (!isTold) onWait?.(`waiting for the lock of migrations, which ${await lockHolder(connection)} holds`)
    isTold = true
    if (Date.now() > deadline) {
      const message = `Another process has held the lock of migrations for ${patienceMs / 1_000} s. ${TRY_AGAIN}`
      throw new Unavailable('migrating', message, 'not_applied')
    }
    await sleep(LOCK_POLL_MS)
  }
  try {
    return await work()
  } finally {
    await sql`select pg_advisory_unlock(${sql.lit(LOCK_ID)})`.execute(connection)
  }
}

/** Describes the session that holds the lock of migrations. */
async function lockHolder(connection: Kysely<Tables>): Promise<string> {
  const { rows } = await sql<{ holder: string }>`
    select format('process %s of the server (%s, role %s, from %s, connected since %s)',
      pid, application_name, usename, coalesce(host(client_addr), 'a socket'), date_trunc('second', backend_start)) as holder
    from pg_locks join pg_stat_activity using (pid)
    where locktype = 'advisory' and classid = 0 and objid = ${sql.lit(LOCK_ID)} and objsubid = 1 and granted
      and database = (select oid from pg_database where datname = current_database())`.execute(connection)
  return rows[0]?.holder ?? 'another process'
}

async function prepareStep(connection: Kysely<Tables>, step: SchemaStep): Promise<void> {
  if (step.prepare === undefined) return
  // No timeout: it waits for earlier transactions, which may be long, and blocks nobody.
  await sql`set lock_timeout = 0`.execute(connection)
  await limitStatements(connection, 0, 'connection')
  try {
    await step.prepare(connection as Kysely<unknown>) // a step knows its own tables; `Tables` are those of the current version
  } finally {
    await limitStatements(connection, undefined, 'connection')
    await sql`reset lock_timeout`.execute(connection)
  }
}

/** Runs one step in a transaction. Repeats it while it cannot get a lock. */
async function runStep(
  connection: Kysely<Tables>,
  name: string,
  step: SchemaStep,
  { onWait }: MigrationOptions,
): Promise<void> {
  const deadline = Date.now() + STEP_PATIENCE_MS
  for (let isTold = false; ; isTold = true) {
    try {
      await connection.transaction().execute(async trx => {
        await noteStep(trx, name, step)
        await sql`set local lock_timeout = ${sql.lit(LOCK_WAIT_MS)}`.execute(trx)
        await step.up(trx as unknown as Kysely<unknown>) // last, because its locks block writers until the commit
      })
      return
    } catch (error) {
      if (!isLockTimeout(error) || Date.now() > deadline) throw error
    }
    if (!isTold) onWait?.(`${name} waits for a table that another transaction has locked`)
    await sleep(MAKE_WAY_MS)
  }
}

async function noteStep(trx: Kysely<Tables>, name: string, { oldestProgram }: SchemaStep): Promise<void> {
  await sql`
    do $$ begin
      if to_regclass('schema_requirement') is null then
        create table schema_requirement (
          migration text not null constraint schema_requirement_pk primary key, oldest_program text not null);
        comment on table schema_requirement is ${sql.lit(MADE_SINCE)};
      end if;
    end $$`.execute(trx)
  await sql`insert into schema_requirement values (${name}, ${oldestProgram})`.execute(trx)
}

function isLockTimeout(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === SQLSTATE.lockNotAvailable
}

/**
 * Compares the schema with this program's version: current, behind, or ahead because a newer step requires a newer program. Newer steps
 * that allow this version do not matter.
 */
export async function schemaState(db: Kysely<Tables>, version: string, steps = MIGRATIONS): Promise<SchemaState> {
  const applied = await appliedSteps(db)
  const pending = Object.keys(steps).filter(name => !applied.has(name))
  const foreign = [...applied].filter(([name]) => !Object.hasOwn(steps, name)).map(([, oldest]) => oldest)
  const [oldestProgram] = foreign.filter(oldest => byVersion(oldest, version) > 0).sort((a, b) => byVersion(b, a))
  if (oldestProgram !== undefined) return { kind: 'ahead', oldestProgram }
  return pending.length > 0 ? { kind: 'behind', pending, isEmpty: applied.size === 0 } : { kind: 'current' }
}

/** What an outdated schema lacks, and the command to update it. */
export function schemaAdvice({ pending, isEmpty }: SchemaState & { kind: 'behind' }): {
  lack: string
  command: string
} {
  return isEmpty
    ? { lack: 'the database is empty', command: 'agentctl init EMAIL' }
    : { lack: `the schema lacks ${pending.join(', ')}`, command: 'agentctl migrate' }
}

/** The number of applied steps. Each request compares it, to detect a migration. */
export async function schemaSteps(db: Kysely<Tables>): Promise<number> {
  return (await appliedSteps(db)).size
}

const byVersion = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true })

/** The applied steps with the oldest program that each allows. Throws `ServerUnfit` if the database is too old to upgrade. */
async function appliedSteps(db: Kysely<Tables>): Promise<Map<string, string>> {
  const { rows: tables } = await sql<{ found: string | null; note: string | null }>`
    select name::text as found, obj_description(name, 'pg_class') as note
    from (select to_regclass('schema_requirement') as name) requirement`.execute(db)
  if (!tables[0]?.found) return new Map()
  const { rows } = await sql<{ migration: string; oldest_program: string }>`
    select migration, oldest_program from schema_requirement`.execute(db)
  const applied = new Map(rows.map(row => [row.migration, row.oldest_program]))
  const { version, step } = OLDEST_UPGRADED
  // A database that this version has begun to create lacks the step too.
  if (applied.size > 0 && !applied.has(step) && tables[0].note !== MADE_SINCE) {
    throw new ServerUnfit(
      `the database is of a version before ${version}: upgrade it to ${version} first (agentctl migrate of that version), ` +
        'and end every older process; then this version can upgrade it in place',
    )
  }
  return applied
}
