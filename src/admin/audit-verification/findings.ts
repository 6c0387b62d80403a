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

/** The rows of a query, a page at a time on the snapshot of its transaction, so that no result is held whole. */
export class Cursor<Row> {
  #page: Row[] = []
  #at = 0
  #state: 'new' | 'open' | 'ended' = 'new'

  /** `query` without parameters: PostgreSQL takes none in a cursor. `name` is unique among those that are open. */
  constructor(
    readonly trx: Transaction<Database>,
    readonly name: string,
    readonly query: RawBuilder<Row>,
    readonly rowsAtOnce: number,
  ) {}

  /** The next row, which stays the next one until `take`; undefined at the end. */
  async peek(): Promise<Row | undefined> {
    const cursor = sql.ref(this.name)
    if (this.#state === 'new') {
      await sql`declare ${cursor} no scroll cursor for ${this.query}`.execute(this.trx)
      this.#state = 'open'
    }
    if (this.#at === this.#page.length && this.#state === 'open') {
      this.#page = (await sql<Row>`fetch ${sql.lit(this.rowsAtOnce)} from ${cursor}`.execute(this.trx)).rows
      this.#at = 0
      if (this.#page.length === 0) {
        await sql`close ${cursor}`.execute(this.trx)
        this.#state = 'ended'
      }
    }
    return this.#page[this.#at]
  }

  /** Takes the row that `peek` answered. */
  take(): void {
    this.#at++
  }
}
