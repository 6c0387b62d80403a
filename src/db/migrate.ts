import { type Kysely, sql } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import * as organisation from '../../migrations/0001_organisation.js'
import * as toolsAndAgents from '../../migrations/0002_tools_and_agents.js'
import * as tokensAndAudit from '../../migrations/0003_tokens_and_audit.js'
import type { Database } from './tables.js'

/** One step of the schema. `oldestProgram` is the oldest version that can live with the schema after it. */
export interface SchemaStep {
  up(db: Kysely<unknown>): Promise<void>
  oldestProgram: string
  /** What it locks, in words for the operator. */
  locks: readonly string[]
}

/** Every migration by name, in order. Named here by hand: what runs is what was reviewed, not what lies in a folder. */
export const MIGRATIONS: Readonly<Record<string, SchemaStep>> = {
  '0001_organisation': organisation,
  '0002_tools_and_agents': toolsAndAgents,
  '0003_tokens_and_audit': tokensAndAudit,
}

export type SchemaState =
  | { kind: 'current' }
  | { kind: 'behind'; pending: string[] }
  | { kind: 'ahead'; oldestProgram: string }

/**
 * Brings the schema up to date; forward only. Safe when several processes start at once: an advisory lock lets one work
 * while the others wait and then find nothing to do. Answers the names of the migrations that ran.
 *
 * Each migration records the oldest program that can live with it, in the same transaction. Throws when one fails; what
 * ran before it stays, and the failed one leaves nothing.
 */
export async function migrate(db: Kysely<Database>, steps = MIGRATIONS): Promise<string[]> {
  const applied = await appliedSteps(db)
  if (Object.keys(steps).every(name => applied.has(name))) return []
  const migrator = new Migrator({ db, provider: { getMigrations: async () => withRequirement(steps) } })
  const { error, results = [] } = await migrator.migrateToLatest()
  if (error) throw error
  return results.filter(result => result.status === 'Success').map(result => result.migrationName)
}

/**
 * What this program, of version `version`, finds: a schema that it knows whole, one that lacks steps, or one that newer
 * steps made unfit for it. Newer steps that say they are fit for this version are no hindrance.
 */
export async function schemaState(db: Kysely<Database>, version: string, steps = MIGRATIONS): Promise<SchemaState> {
  const applied = await appliedSteps(db)
  const pending = Object.keys(steps).filter(name => !applied.has(name))
  const foreign = [...applied].filter(([name]) => !Object.hasOwn(steps, name)).map(([, oldest]) => oldest)
  const unfit = foreign.filter(oldest => compareVersions(oldest, version) > 0).sort(compareVersions)
  const [oldestProgram] = unfit.reverse()
  if (oldestProgram !== undefined) return { kind: 'ahead', oldestProgram }
  return pending.length > 0 ? { kind: 'behind', pending } : { kind: 'current' }
}

function withRequirement(steps: Readonly<Record<string, SchemaStep>>): Record<string, Migration> {
  return Object.fromEntries(
    Object.entries(steps).map(([name, step]) => [
      name,
      {
        up: async db => {
          await step.up(db)
          await sql`
            create table if not exists schema_requirement (
              migration text not null constraint schema_requirement_pk primary key, oldest_program text not null);
          `.execute(db)
          await sql`insert into schema_requirement values (${name}, ${step.oldestProgram})`.execute(db)
        },
      },
    ]),
  )
}

async function appliedSteps(db: Kysely<Database>): Promise<Map<string, string>> {
  const { rows: tables } = await sql<{ found: string | null }>`
    select to_regclass('schema_requirement')::text as found`.execute(db)
  if (!tables[0]?.found) return new Map()
  const { rows } = await sql<{ migration: string; oldest_program: string }>`
    select migration, oldest_program from schema_requirement`.execute(db)
  return new Map(rows.map(row => [row.migration, row.oldest_program]))
}

function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map(version => version.split('.').map(Number))
  for (const place of [0, 1, 2]) {
    const difference = (left?.[place] ?? 0) - (right?.[place] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}
