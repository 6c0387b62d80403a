import pg from 'pg'
import { classifyDatabaseError, isAboutConnecting } from '../connection/sqlstate.js'

/** Runs one statement for several rows: one result for each, in their order. */
export type RunBatch<Row, Result> = (rows: readonly Row[]) => Promise<readonly Result[]>

/** A row to run the statement for, and what decides which batch it may join. */
export interface Entry<Row> {
  row: Row
  /** Rows with the same key go in different batches; undefined where all may share one. */
  key?: unknown
  /** About how many bytes it sends. */
  sizeBytes: number
}

interface Waiting<Row, Result> extends Entry<Row> {
  resolve(result: Result): void
  reject(error: unknown): void
}

/** Rows of one batch: beyond so many, little is saved. */
const BATCH_ROWS_MAX = 32
/** A batch sends no more than this: beyond it, sending costs more than sharing saves. */
const BATCH_BYTES_MAX = 256 * 1024
/** So many batches of one statement keep the server busy. What comes while they are under way waits for one of them, */
const BATCHES_MAX = 2
/** but no longer than this: they may hang. */
const WAIT_MS = 5

/**
 * Runs a statement once for the rows that are added in the same turn of the event loop, or while earlier batches are under
 * way. Sending a statement, starting it, committing it and waking those who wait cost more than most statements themselves:
 * the more there is to do, the more share one. Every result is as fresh as that of a statement of its own, which would begin
 * no earlier.
 */
export class Batcher<Row, Result> {
  readonly #run: RunBatch<Row, Result>
  #waiting: Waiting<Row, Result>[] = []
  #batches = 0
  #turn: NodeJS.Immediate | undefined
  #waitLimit: NodeJS.Timeout | undefined

  constructor(run: RunBatch<Row, Result>) {
    this.#run = run
  }

  /** Answers the result for a row, or rejects with the error of the statement that should have given it. */
  add({ row, key, sizeBytes }: Entry<Row>): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ row, key, sizeBytes, resolve, reject })
      this.#turn ??= setImmediate(() => {
        this.#turn = undefined
        this.#offer()
      })
    })
  }

  #offer(): void {
    if (this.#waiting.length === 0) return
    if (this.#batches < BATCHES_MAX || this.#waiting.length >= BATCH_ROWS_MAX) this.#flush()
    else this.#waitLimit ??= setTimeout(() => this.#flush(), WAIT_MS)
  }

  #flush(): void {
    clearTimeout(this.#waitLimit)
    this.#waitLimit = undefined
    const waiting = this.#waiting
    this.#waiting = []
    for (const batch of batchesOf(waiting)) {
      this.#batches++
      void this.#send(batch).finally(() => {
        this.#batches--
        this.#offer()
      })
    }
  }

  async #send(batch: readonly Waiting<Row, Result>[]): Promise<void> {
    try {
      const results = await this.#run(batch.map(({ row }) => row))
      batch.forEach(({ resolve }, i) => {
        resolve(results[i] as Result) // one for each: the contract of `RunBatch`
      })
    } catch (error) {
      // One row that the server cannot read or write must not fail the requests that share its batch.
      if (batch.length > 1 && isAboutOneRow(error)) for (const single of batch) void this.#send([single])
      else for (const { reject } of batch) reject(error)
    }
  }
}

/** The rows in their order, each batch as large as it may become. */
function batchesOf<T extends Entry<unknown>>(entries: readonly T[]): T[][] {
  const batches: T[][] = []
  let keys = new Set<unknown>()
  let sizeBytes = 0
  for (const entry of entries) {
    const batch = batches.at(-1)
    const isFull =
      batch === undefined || batch.length >= BATCH_ROWS_MAX || sizeBytes + entry.sizeBytes > BATCH_BYTES_MAX
    if (isFull || keys.has(entry.key)) {
      batches.push([entry])
      keys = new Set()
      sizeBytes = 0
    } else {
      batch.push(entry)
    }
    sizeBytes += entry.sizeBytes
    if (entry.key !== undefined) keys.add(entry.key)
  }
  return batches
}

/**
 * Whether the other rows may well succeed: the server refused the statement, so nothing of it was applied, for what was in
 * it and not for the state that the server is in. One that took too long, or was cancelled, may have done so for one row.
 */
function isAboutOneRow(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false
  const { kind } = classifyDatabaseError(error)
  if (kind === 'statement_timeout' || kind === 'lock_timeout') return true
  return !isAboutConnecting(error) && (kind === 'other' || kind === 'constraint')
}
