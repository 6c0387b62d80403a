import pg from 'pg'
import { PoolExhausted } from '../connection/database-error.js'
import { SQLSTATE } from '../connection/sqlstate.js'

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
  /** Called when the batch has a connection, before its rows are read; again when the row is tried singly. */
  onSend?: (() => void) | undefined
}

interface Waiting<Row, Result> extends Entry<Row> {
  /** When it has waited long enough for earlier batches, by the clock of `performance.now()`. */
  until: number
  /** Whether it was in a batch that took too long: one of its rows is slow. */
  isAlone: boolean
  resolve(result: Result): void
  reject(error: unknown): void
}

/** One batch under way. */
interface Run {
  startedAt: number
  isCancelled: boolean
  timer?: NodeJS.Timeout
  onConnection?: (cancel?: () => void) => void
}

const BATCH_ROWS_MAX = 32
const BATCH_BYTES_MAX = 256 * 1024
/** How many batches of one statement hold up the rows that come after them. Few at once make batches large. */
const HOLDING_MAX = 2

/** A batch that has had its connection for longer holds up nobody: another one may start on a connection of its own. */
const HOLD_MS = 40

/** A batch that takes longer, and much longer than others of its statement, is cancelled: its rows are sent again, each alone. */
const CANCEL_MIN_MS = 150
const CANCEL_TIMES_USUAL = 10

/**
 * Runs a statement once for the rows that are added in the same turn of the event loop, or while earlier batches are under
 * way. Every result is as fresh as that of a statement of its own, which would begin no earlier. While connections are free,
 * a slow row holds up no other one: batches that come later wait for `HOLD_MS` at most, and its own batch is cancelled.
 */
export class Batcher<Row, Result> {
  readonly #run: RunBatch<Row, Result>
  readonly #waitMs: number
  #waiting: Waiting<Row, Result>[] = []
  #holding = 0
  /** How long a batch takes, as a moving average. */
  #usualMs = 0
  #turn: NodeJS.Immediate | undefined
  #timer: NodeJS.Timeout | undefined

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
      this.#wait({ ...entry, resolve, reject })
      this.#turn ??= setImmediate(() => {
        this.#turn = undefined
        this.#offer()
      })
    })
  }

  #wait(entry: Omit<Waiting<Row, Result>, 'until' | 'isAlone'>, isAlone = false): void {
    this.#waiting.push({ ...entry, isAlone, until: performance.now() + this.#waitMs })
  }

  #offer(): void {
    while (this.#holding < HOLDING_MAX && this.#waiting.length > 0) void this.#start(this.#nextBatch())
    const [oldest] = this.#waiting
    if (oldest === undefined) {
      clearTimeout(this.#timer)
      this.#timer = undefined
    } else this.#timer ??= setTimeout(() => this.#refuseLate(), oldest.until - performance.now())
  }

  async #start(batch: readonly Waiting<Row, Result>[]): Promise<void> {
    this.#holding++
    let isHolding = true
    const letGo = () => {
      if (isHolding) this.#holding--
      isHolding = false
      this.#offer()
    }
    const limitMs = Math.max(CANCEL_MIN_MS, CANCEL_TIMES_USUAL * this.#usualMs)
    const run: Run = { startedAt: 0, isCancelled: false }
    run.onConnection = cancel => {
      if (run.startedAt > 0) return
      run.startedAt = performance.now()
      run.timer = setTimeout(() => {
        letGo()
        if (batch.length === 1) return
        run.timer = setTimeout(() => {
          run.isCancelled = true
          cancel?.()
        }, limitMs - HOLD_MS)
      }, HOLD_MS)
    }
    await this.#send(batch, run)
    clearTimeout(run.timer)
    if (batch.length > 1) this.#usualMs += (Math.min(performance.now() - run.startedAt, limitMs) - this.#usualMs) / 16
    letGo()
  }

  #refuseLate(): void {
    this.#timer = undefined
    const late = this.#waiting.filter(({ until }) => until <= performance.now())
    this.#waiting = this.#waiting.slice(late.length)
    for (const { reject } of late) reject(new PoolExhausted(this.#waitMs))
    this.#offer()
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
      batch.push(entry)
      sizeBytes += entry.sizeBytes
      if (entry.key !== undefined) keys.add(entry.key)
    }
    this.#waiting = rest
    return batch
  }

  /** Where one row was refused the others are tried singly, one after the other. */
  async #send(batch: readonly Waiting<Row, Result>[], run: Run): Promise<void> {
    try {
      const rows = batch.map(({ row }) => row)
      const results = await this.#run(rows, cancel => {
        run.onConnection?.(cancel)
        for (const { onSend } of batch) onSend?.()
      })
      batch.forEach(({ resolve }, i) => {
        resolve(results[i] as Result) // one for each: the contract of `RunBatch`
      })
    } catch (error) {
      if (batch.length > 1 && run.isCancelled && isCancellation(error))
        for (const entry of batch) this.#wait(entry, true)
      else if (batch.length > 1 && isAboutOneRow(error)) for (const single of batch) await this.#send([single], run)
      else for (const { reject } of batch) reject(error)
    }
  }
}

function isCancellation(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === SQLSTATE.queryCanceled
}

/** Whether the server refused the statement for what one row holds: errors of data, constraints, limits and triggers. */
function isAboutOneRow(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:2[123]|44|54|P0)/.test(error.code ?? '')
}
