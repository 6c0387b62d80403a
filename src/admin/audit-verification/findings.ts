import { type RawBuilder, sql, type Transaction } from 'kysely'
import type { Database } from '../../db/tables.js'

/** Something wrong with the audit trail. `number` is the version, or of an event its number. */
export interface AuditFinding {
  /** `persona` for an agent, `tool`, `tool_definition`, or the kind of an event. */
  kind: string
  subject: string
  number: number
  problem:
    | 'edited'
    | 'emptied'
    | 'erased'
    | 'deleted'
    | 'reordered'
    | 'anchor_mismatch'
    | 'head_mismatch'
    | 'resource_missing'
    | 'unrecorded'
    | 'content_mismatch'
    | 'checkpoint_mismatch'
  msg: string
}

export interface AuditVerification {
  /** Chains of agents, tools and access events. */
  chains: number
  /** Rows and events. */
  rows: number
  findings: AuditFinding[]
}

/** What is wrong with one row or event, and how to say so. */
export type Problem = readonly [problem: AuditFinding['problem'], msg: string]

/** What a row or event is of, as people read and name it: `agent:12`, `user:ID`, `prune:agent:12`. */
export function placeOf({ kind, subject }: { kind: string; subject: string }): string {
  const place = subject === '' ? kind : `${kind}:${subject}`
  return place.replace(/^(prune:)?persona:/, '$1agent:')
}

/** By place, such as `persona:12:7`: the hash of each row and event from which an erasure took somebody's name. */
export type Erasures = ReadonlyMap<string, string>

/** The rows of a query, so many at once, on the snapshot of its transaction. `query` has no parameters: a cursor takes none. */
export async function* scan<Row>(
  trx: Transaction<Database>,
  name: string,
  query: RawBuilder<Row>,
  rowsAtOnce: number,
): AsyncGenerator<Row, undefined> {
  const cursor = sql.ref(name)
  await sql`declare ${cursor} no scroll cursor for ${query}`.execute(trx)
  for (;;) {
    const { rows } = await sql<Row>`fetch ${sql.lit(rowsAtOnce)} from ${cursor}`.execute(trx)
    if (rows.length === 0) break
    yield* rows
  }
  await sql`close ${cursor}`.execute(trx)
  return undefined
}
