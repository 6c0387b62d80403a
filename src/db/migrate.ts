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
 * One step of the schema. `oldestProgram` is the oldest version that can live with the schema after it.
 *
 * A step that only expands (an index, a table, a column that no resource shows) says the version before it, and goes in while
 * that version serves. A column of a resource's content says the version that brings it: an older program would write audit
 * hashes without it, and the trail would no longer verify. Nothing in it may hold a lock for as long as a table is large: see `up` and `prepare`.
 */
export interface SchemaStep {
  /**
   * What takes effect at once, in a transaction of its own: a new table, a column that may be null, a constraint `not valid`.
   * It waits at most 100 ms for a lock, then makes way and tries again.
   */
  up(db: Kysely<unknown>): Promise<void>
  /**
   * What takes long and blocks nobody, before `up`, on one connection and in no transaction: `create index concurrently`,
   * a backfill in batches, `validate constraint`. It may have been cut short before, so it first removes or passes over
   * what is there (an index that is not `indisvalid`). What it needs belongs to an earlier step.
   */
  prepare?(db: Kysely<unknown>): Promise<void>
  oldestProgram: string
  /** What it locks, in words for the operator. */
  locks: readonly string[]
}

/** Every migration by name, in order. */
export const MIGRATIONS: Readonly<Record<string, SchemaStep>> = migrations

export type SchemaState =
  | { kind: 'current' }
  /** `isEmpty`: no step was ever run there. */
  | { kind: 'behind'; pending: string[]; isEmpty: boolean }
  | { kind: 'ahead'; oldestProgram: string }

/** A number for the lock of `migrate`, without meaning. */
const LOCK_ID = 7_140_312
const LOCK_POLL_MS = 100
/** How long another process may hold the lock of `migrate`. */
const LOCK_PATIENCE_MS = 60_000

/** How long a step may wait for a lock: writers of its table wait as long. */
const LOCK_WAIT_MS = 100
/** How long those writers then have the table for themselves. */
const MAKE_WAY_MS = 400
/** How long a step tries to get its lock on a table. */
const STEP_PATIENCE_MS = 60_000

/** The newest step of version 1.15.1, the oldest version whose databases are upgraded. */
const OLDEST_UPGRADED = { version: '1.15.1', step: '0011_leaf_positions' }

/** The comment on `schema_requirement` in databases that were not made by a version before 2.1. */
const MADE_SINCE = 'made by version 2.1 or later'

/** What a migration runs, and what it waits for. */
export interface MigrationOptions {
  steps?: Readonly<Record<string, SchemaStep>>
  /** How long another process may hold the lock of migrations. */
  patienceMs?: number
  /** Called with a sentence for the operator when a wait begins. */
  onWait?: (sentence: string) => void
}

/**
 * Brings the schema up to date, forward only, and answers the names of the migrations that ran. Of several processes one works and
 * the others wait. Throws when a migration fails, with 55P03 when a table was not to be had within a minute, `Unavailable` when
 * another process held the lock for too long; what ran before it stays, and of the failed one only what its `prepare` made. Throws
 * `ServerUnfit` through a pooler, whose connections are not one session: the lock would not hold, and would stay behind.
 */
export async function migrate(database: Database, options: MigrationOptions = {}): Promise<string[]> {
  const { steps = MIGRATIONS } = options
  if ((await pendingSteps(database.db, steps)).length === 0) return []
  if (!database.server?.isDirect) {
    throw new ServerUnfit(
      'a pooler stands before the database, and migrations need a direct connection: run agentctl migrate with a ' +
        'DATABASE_URL that names the server itself, and leave MIGRATE_ON_START off',
    )
  }
  return await database.db.connection().execute(connection =>
    locked(connection, options, async () => {
      const pending = await pendingSteps(connection, steps)
      for (const name of pending) {
        const step = steps[name] as SchemaStep // one of them
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

/** Polls instead of waiting: `create index concurrently` would wait for the snapshot of a waiting session. */
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

/** Who holds the lock of migrations, in words for the operator. */
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
  // It waits for the transactions before it, which may be long, and nobody waits for it.
  await sql`set lock_timeout = 0`.execute(connection)
  await limitStatements(connection, 0, 'connection')
  try {
    await step.prepare(connection as Kysely<unknown>) // a step knows its tables itself: ours are those of today
  } finally {
    await limitStatements(connection, undefined, 'connection')
    await sql`reset lock_timeout`.execute(connection)
  }
}

/** Runs one step in a transaction; repeats it while a lock is not to be had. */
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
        await step.up(trx as unknown as Kysely<unknown>) // last: what it locks, writers wait for until the commit
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
 * What this program, of version `version`, finds: a schema that it knows whole, one that lacks steps, or one that newer
 * steps made unfit for it. Newer steps that say they are fit for this version do not matter.
 */
export async function schemaState(db: Kysely<Tables>, version: string, steps = MIGRATIONS): Promise<SchemaState> {
  const applied = await appliedSteps(db)
  const pending = Object.keys(steps).filter(name => !applied.has(name))
  const foreign = [...applied].filter(([name]) => !Object.hasOwn(steps, name)).map(([, oldest]) => oldest)
  const [oldestProgram] = foreign.filter(oldest => byVersion(oldest, version) > 0).sort((a, b) => byVersion(b, a))
  if (oldestProgram !== undefined) return { kind: 'ahead', oldestProgram }
  return pending.length > 0 ? { kind: 'behind', pending, isEmpty: applied.size === 0 } : { kind: 'current' }
}

/** What a schema that is behind lacks, and the command that mends it. */
export function schemaAdvice({ pending, isEmpty }: SchemaState & { kind: 'behind' }): {
  lack: string
  command: string
} {
  return isEmpty
    ? { lack: 'the database is empty', command: 'agentctl init EMAIL' }
    : { lack: `the schema lacks ${pending.join(', ')}`, command: 'agentctl migrate' }
}

/** How many steps the schema has. A statement that reads it along learns for nothing whether somebody has migrated since. */
export async function schemaSteps(db: Kysely<Tables>): Promise<number> {
  return (await appliedSteps(db)).size
}

const byVersion = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true })

/** The steps that were run, and the oldest program that each allows. Throws `ServerUnfit` for a database that is too old. */
async function appliedSteps(db: Kysely<Tables>): Promise<Map<string, string>> {
  const { rows: tables } = await sql<{ found: string | null; note: string | null }>`
    select name::text as found, obj_description(name, 'pg_class') as note
    from (select to_regclass('schema_requirement') as name) requirement`.execute(db)
  if (!tables[0]?.found) return new Map()
  const { rows } = await sql<{ migration: string; oldest_program: string }>`
    select migration, oldest_program from schema_requirement`.execute(db)
  const applied = new Map(rows.map(row => [row.migration, row.oldest_program]))
  const { version, step } = OLDEST_UPGRADED
  // One that this program has only begun to make lacks the step too.
  if (applied.size > 0 && !applied.has(step) && tables[0].note !== MADE_SINCE) {
    throw new ServerUnfit(
      `the database is of a version before ${version}: upgrade it to ${version} first (agentctl migrate of that version), ` +
        'and end every older process; then this version can upgrade it in place',
    )
  }
  return applied
}
