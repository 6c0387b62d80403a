import { type Kysely, sql } from 'kysely'
import * as migrations from '../../migrations/index.js'
import { classifyDatabaseError, DatabaseFault, ServerUnfit } from './connection/database-error.js'
import type { Database } from './database.js'
import type { Tables } from './tables.js'
import { limitStatements } from './transaction.js'

/** A migration. All pending migrations run in one transaction while the service is stopped. */
export interface SchemaStep {
  up(db: Kysely<unknown>): Promise<void>
  /** The oldest version of the program that can use the schema after this migration. Older versions do not start. */
  oldestProgram: string
}

export const MIGRATIONS: Readonly<Record<string, SchemaStep>> = migrations

export type SchemaState =
  | { kind: 'current' }
  /** `isEmpty`: no migration has run yet. */
  | { kind: 'behind'; pending: string[]; isEmpty: boolean }
  | { kind: 'ahead'; oldestProgram: string }

const LOCK_ID = 7_140_312

const PATIENCE_MS = 60_000

/** The oldest version that can be upgraded, and its last migration. In an empty database, this migration creates the whole schema. */
const OLDEST_UPGRADED = { version: '2.1', step: '0015_read_scope' }

/**
 * Updates the schema in one transaction and returns the names of the migrations that ran. If several processes call this function at the same time,
 * one migrates and the others wait. Throws the error of a failed migration. Throws `DatabaseFault` after waiting `patienceMs` for another process.
 */
export async function migrate(
  database: Database,
  { steps = MIGRATIONS, patienceMs = PATIENCE_MS } = {},
): Promise<string[]> {
  if ((await pendingSteps(database.db, steps)).length === 0) return []
  return await database.db.transaction().execute(async trx => {
    await limitStatements(trx, 0)
    // Sessions have planner settings for requests, but migrations need table scans.
    await sql`set local enable_seqscan = on; set local enable_bitmapscan = on`.execute(trx)
    await sql`set local lock_timeout = ${sql.lit(patienceMs)}`.execute(trx)
    await sql`select pg_advisory_xact_lock(${sql.lit(LOCK_ID)})`.execute(trx).catch(error => {
      if (classifyDatabaseError(error).kind !== 'lock_timeout') throw error
      throw new DatabaseFault('migrating', `another process has been migrating for ${patienceMs / 1_000} s`)
    })
    const pending = await pendingSteps(trx, steps)
    await sql`
      create table if not exists schema_requirement (
        migration text not null constraint schema_requirement_pk primary key, oldest_program text not null)`.execute(
      trx,
    )
    for (const [migration, { up, oldestProgram }] of Object.entries(steps)) {
      if (!pending.includes(migration)) continue
      await up(trx as unknown as Kysely<unknown>) // `Tables` describes only the current schema
      await trx.insertInto('schema_requirement').values({ migration, oldest_program: oldestProgram }).execute()
    }
    return pending
  })
}

async function pendingSteps(db: Kysely<Tables>, steps: Readonly<Record<string, SchemaStep>>): Promise<string[]> {
  const applied = await appliedSteps(db)
  return Object.keys(steps).filter(name => !applied.has(name))
}

/** Compares the schema with this version of the program. `ahead`: a newer migration requires a newer program. Other newer migrations are ignored. */
export async function schemaState(db: Kysely<Tables>, version: string, steps = MIGRATIONS): Promise<SchemaState> {
  const applied = await appliedSteps(db)
  const pending = Object.keys(steps).filter(name => !applied.has(name))
  const foreign = [...applied].filter(([name]) => !Object.hasOwn(steps, name)).map(([, oldest]) => oldest)
  const [oldestProgram] = foreign.filter(oldest => byVersion(oldest, version) > 0).sort((a, b) => byVersion(b, a))
  if (oldestProgram !== undefined) return { kind: 'ahead', oldestProgram }
  return pending.length > 0 ? { kind: 'behind', pending, isEmpty: applied.size === 0 } : { kind: 'current' }
}

/** Returns a clause that states what an outdated schema lacks, and the command that updates the schema. */
export function schemaAdvice({ pending, isEmpty }: SchemaState & { kind: 'behind' }) {
  return isEmpty
    ? { lack: 'the database lacks the schema of this service', command: 'agentctl init EMAIL' }
    : { lack: `the database schema lacks ${pending.join(', ')}`, command: 'agentctl migrate' }
}

const byVersion = (a: string, b: string) => a.localeCompare(b, 'en', { numeric: true })

async function appliedSteps(db: Kysely<Tables>): Promise<Map<string, string>> {
  const { rows } = await sql<{ found: string | null }>`select to_regclass('schema_requirement')::text as found`.execute(
    db,
  )
  if (!rows[0]?.found) return new Map()
  const steps = await db.selectFrom('schema_requirement').selectAll().execute()
  const applied = new Map(steps.map(step => [step.migration, step.oldest_program]))
  const { version, step } = OLDEST_UPGRADED
  if (applied.size === 0 || applied.has(step)) return applied
  throw new ServerUnfit(`the schema is older than version ${version}: run agentctl migrate of version ${version} first`)
}
