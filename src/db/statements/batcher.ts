import pg from 'pg'
import { PoolExhausted, SQLSTATE } from '../connection/database-error.js'

/**
 * Runs one statement for several rows, and answers one result for each, in their order. It calls `onConnection` when it has a
 * connection, and reads the rows only after that. `cancel` has the statement cancelled if that can be.
 */
export type RunBatch<Row, Result> = (
  rows: readonly Row[],
  onConnection: (cancel?: () => void) => void,
) => Promise<readonly Result[]>

/** A row to run the statement for. */
export interface Entry<Row> {
  row: Row
  /** Rows with the same key go in different batches; undefined where all may share one. */
  key?: unknown
  /** About how many bytes it sends. */
  sizeBytes: number
  /** Called when a batch with it has a connection, before its rows are read. */
  onSend?: (() => void) | undefined
}

interface Waiting<Row, Result> extends Entry<Row> {
  /** Whether it was in a batch that took too long, or that one row made fail. */
  isAlone: boolean
  /** Refuses it when it has waited long enough for earlier batches. */
  timer?: NodeJS.Timeout
  resolve(result: Result): void
  reject(error: unknown): void
}

const BATCH_ROWS_MAX = 32
const BATCH_BYTES_MAX = 256 * 1024
/** How many batches of one statement hold up the rows that come after them. Few at once make batches large. */
const HOLDING_MAX = 2

/** A batch that has had its connection for longer holds up nobody: another one may start on a connection of its own. */
const HOLD_MS = 40

/** A batch that takes longer, and much longer than others of its statement, is cancelled. */
const CANCEL_MIN_MS = 150
const CANCEL_TIMES_USUAL = 10

/**
 * Runs a statement once for the rows that are added in the same turn of the event loop, or while earlier batches are under
 * way. Every result is as fresh as that of a statement of its own, which would begin no earlier. While connections are free,
 * a slow row holds up no other one: batches that come later wait for `HOLD_MS` at most, and its own batch is cancelled. The rows of a
 * batch that is cancelled, or that the server refuses for one of them, are sent again, each alone.
 */
export class Batcher<Row, Result> {
  readonly #run: RunBatch<Row, Result>
  readonly #waitMs: number
  #waiting: Waiting<Row, Result>[] = []
  #holding = 0
  /** How long a batch takes, as a moving average. */
  #usualMs = 0
  #turn: NodeJS.Immediate | undefined

  constructor(run: RunBatch<Row, Result>, waitMs: number) {
    this.#run = run
    this.#waitMs = waitMs
  }

  /**
   * Answers the result for a row, or rejects with the error of the statement that should have given it, or with
   * PoolExhausted where it was never sent.
   */
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

  /** As many of the waiting rows, in their order, as one batch may hold: the first in any case. */
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
      for (const [i, { resolve }] of batch.entries()) resolve(results[i] as Result) // one for each: the contract of `RunBatch`
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

/** Whether the server refused the statement for what one row holds: errors of data, constraints, limits and triggers. */
function isAboutOneRow(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:2[123]|44|54|P0)/.test(error.code ?? '')
}
