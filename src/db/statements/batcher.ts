import pg from 'pg'
import { PoolExhausted, SQLSTATE } from '../connection/database-error.js'

/**
 * Runs one statement for several rows, and returns one result per row in the same order. It calls `onConnection` once it has a connection,
 * and reads the rows only after that. `cancel` cancels the statement if possible.
 */
export type RunBatch<Row, Result> = (
  rows: readonly Row[],
  onConnection: (cancel?: () => void) => void,
) => Promise<readonly Result[]>

/** A row to run the statement for. */
export interface Entry<Row> {
  row: Row
  /** Rows with equal keys are put into different batches; undefined if all may share one. */
  key?: unknown
  /** The approximate size in bytes. */
  sizeBytes: number
  /** Called once its batch has a connection, before the rows are read. */
  onSend?: (() => void) | undefined
}

interface Waiting<Row, Result> extends Entry<Row> {
  /** True after a batch with it took too long or failed because of one row: then it is sent alone. */
  isAlone: boolean
  /** Rejects the row if it waits too long for earlier batches. */
  timer?: NodeJS.Timeout
  resolve(result: Result): void
  reject(error: unknown): void
}

const BATCH_ROWS_MAX = 32
const BATCH_BYTES_MAX = 256 * 1024
/** The number of running batches of a statement that make later rows wait. Few concurrent batches are larger ones. */
const HOLDING_MAX = 2

/** After this time with a connection, a batch no longer makes others wait: another batch may start on its own connection. */
const HOLD_MS = 40

/** A batch is cancelled if it takes longer than this, and ten times as long as usual for its statement. */
const CANCEL_MIN_MS = 150
const CANCEL_TIMES_USUAL = 10

/**
 * Runs a statement once for all rows added in the same turn of the event loop, or while earlier batches run. Each result is as fresh as
 * that of a separate statement. While connections are free, a slow row delays no others: later batches wait at most `HOLD_MS`, and its own
 * batch is cancelled. The rows of a batch that was cancelled, or refused because of one row, are sent again one by one.
 */
export class Batcher<Row, Result> {
  readonly #run: RunBatch<Row, Result>
  readonly #waitMs: number
  #waiting: Waiting<Row, Result>[] = []
  #holding = 0
  /** The moving average of a batch's duration. */
  #usualMs = 0
  #turn: NodeJS.Immediate | undefined

  constructor(run: RunBatch<Row, Result>, waitMs: number) {
    this.#run = run
    this.#waitMs = waitMs
  }

  /** Resolves to the result for a row. Rejects with the statement's error, or with PoolExhausted if it was never sent. */
  add(entry: Entry<Row>): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...entry, isAlone: false, resolve, reject })
      this.#turn ??= setImmediate(() => {
        this.#turn = undefined
        this.#offer()
      })
    })
  }

  #offer(): void {
    while (this.#holding < HOLDING_MAX && this.#waiting.length > 0) void this.#send(this.#nextBatch())
    for (const entry of this.#waiting) entry.timer ??= setTimeout(() => this.#refuse(entry), this.#waitMs)
  }

  #refuse(late: Waiting<Row, Result>): void {
    this.#waiting = this.#waiting.filter(entry => entry !== late)
    late.reject(new PoolExhausted(this.#waitMs))
  }

  /** Takes the waiting rows that fit into one batch, in order, but at least one. */
  #nextBatch(): Waiting<Row, Result>[] {
    const batch: Waiting<Row, Result>[] = []
    const rest: Waiting<Row, Result>[] = []
    const keys = new Set<unknown>()
    let sizeBytes = 0
    for (const entry of this.#waiting) {
      const isFull = batch.length >= BATCH_ROWS_MAX || sizeBytes + entry.sizeBytes > BATCH_BYTES_MAX
      const isApart = batch.length > 0 && (isFull || entry.isAlone || batch[0]?.isAlone)
      if (isApart || keys.has(entry.key)) {
        rest.push(entry)
        continue
      }
      clearTimeout(entry.timer)
      batch.push(entry)
      sizeBytes += entry.sizeBytes
      if (entry.key !== undefined) keys.add(entry.key)
    }
    this.#waiting = rest
    return batch
  }

  async #send(batch: readonly Waiting<Row, Result>[]): Promise<void> {
    const isShared = batch.length > 1
    const limitMs = Math.max(CANCEL_MIN_MS, CANCEL_TIMES_USUAL * this.#usualMs)
    const timers: NodeJS.Timeout[] = []
    let [startedAt, isHolding, isCancelled] = [performance.now(), true, false]
    const letGo = () => {
      if (isHolding) this.#holding--
      isHolding = false
      this.#offer()
    }
    const onConnection = (cancel?: () => void) => {
      startedAt = performance.now()
      timers.push(setTimeout(letGo, HOLD_MS))
      const cancelled = () => {
        isCancelled = true
        cancel?.()
      }
      if (isShared) timers.push(setTimeout(cancelled, limitMs))
      for (const { onSend } of batch) onSend?.()
    }
    this.#holding++
    try {
      const results = await this.#run(
        batch.map(({ row }) => row),
        onConnection,
      )
      for (const [i, { resolve }] of batch.entries()) resolve(results[i] as Result) // one per row: the contract of `RunBatch`
    } catch (error) {
      const isAgain = isShared && (isAboutOneRow(error) || (isCancelled && isCancellation(error)))
      for (const { timer: _, ...entry } of batch) {
        if (isAgain) this.#waiting.push({ ...entry, isAlone: true })
        else entry.reject(error)
      }
    }
    for (const timer of timers) clearTimeout(timer)
    if (isShared) this.#usualMs += (Math.min(performance.now() - startedAt, limitMs) - this.#usualMs) / 16
    letGo()
  }
}

function isCancellation(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === SQLSTATE.queryCanceled
}

/** True if the server refused the statement because of one row's values: errors of data, constraints, limits and triggers. */
function isAboutOneRow(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:2[123]|44|54|P0)/.test(error.code ?? '')
}
