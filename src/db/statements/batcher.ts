import pg from 'pg'
import { classifyDatabaseError, isAboutConnecting } from '../connection/sqlstate.js'
import { type ThreadTurns, UNKNOWN_PLACE } from '../connection/thread-turns.js'
import type { Sharer } from '../connection/waiter.js'
import { type SendHooks, weightOf } from './row-statement.js'

/** Runs one statement for several rows: one result for each, in their order. */
export type RunBatch<Row, Result> = (rows: readonly Row[]) => Promise<readonly Result[]>

/** A row to run the statement for, and what decides which batch it may join. */
export interface Entry<Row> {
  row: Row
  /** Rows with the same key go in different batches; undefined where all may share one. */
  key?: unknown
  /** About how many bytes it sends. */
  sizeBytes: number
  /** Whose it is. Nobody's takes no turn. */
  sharer?: Sharer | undefined
  hooks?: SendHooks | undefined
}

interface Waiting<Row, Result> extends Entry<Row> {
  resolve(result: Result): void
  reject(error: unknown): void
  /** Called when it is sent, if it is not sent at once. */
  endWait?: (() => void) | undefined
}

/** Rows of one batch: beyond so many, little is saved. */
const BATCH_ROWS_MAX = 32
/** So many of one token, where it shares a batch with others: they wait for all of it. */
const SHARED_ROWS_MAX = 8
/** A batch sends no more than this, and is answered about no more: beyond it, sending costs more than sharing saves. */
const BATCH_BYTES_MAX = 256 * 1024
/** A row of more, sent and answered, is no light one: while the thread is shared out it goes with its like, of which a batch holds no more. */
const LIGHT_BYTES = 8 * 1024
const SHARED_BATCH_BYTES_MAX = 64 * 1024
/** An answer of more takes the server some milliseconds, or as long as some hundred small ones. */
const LARGE_ANSWER_BYTES = 32 * 1024
/** Of so many tokens it is known how much they were answered. */
const KNOWN_TOKENS_MAX = 10_000
/** So many batches of one statement keep the server busy. What comes while they are under way waits for one of them, */
const BATCHES_MAX = 2
/** but no longer than this, then one more goes: they may hang. */
const WAIT_MS = 5
/** While the thread is shared out, so long after the last for rows of tokens that have others under way. */
const SHARED_WAIT_MS = 50

/**
 * Runs a statement once for the rows that are added in the same turn of the event loop, or while earlier batches are under
 * way. Sending a statement, starting it, committing it and waking those who wait cost more than most statements themselves:
 * the more there is to do, the more share one. Every result is as fresh as that of a statement of its own, which would begin
 * no earlier.
 *
 * While the thread is shared out (`ThreadTurns`) so are batches: whoever brings many rows waits for them, and another's single row is
 * in the next batch. With their results they go on in the turns of their tokens. Whoever was answered much, or never before, has one
 * row under way at a time while others are served: who shares a batch waits for all of it. So do light rows not share one with others then,
 * and one batch is theirs.
 */
export class Batcher<Row, Result> {
  readonly #run: RunBatch<Row, Result>
  readonly #turns: ThreadTurns
  #waiting: Waiting<Row, Result>[] = []
  #batches = 0
  /** Of these, those of rows that are not light. */
  #heavyBatches = 0
  /** Of each token, how many rows are under way. */
  readonly #sent = new Map<number, number>()
  /** About how many bytes each token is answered for a row; who was answered last is last. */
  readonly #answerBytes = new Map<number, number>()
  #sentAtMs = 0
  #turn: NodeJS.Immediate | undefined
  #waitLimit: NodeJS.Timeout | undefined

  constructor(run: RunBatch<Row, Result>, turns: ThreadTurns) {
    this.#run = run
    this.#turns = turns
  }

  /** Answers the result for a row, or rejects with the error of the statement that should have given it. */
  add({ row, key, sizeBytes, sharer, hooks }: Entry<Row>): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ row, key, sizeBytes, sharer, hooks, resolve, reject })
      this.#turn ??= setImmediate(() => {
        this.#turn = undefined
        this.#offer()
      })
    })
  }

  #offer(): void {
    while (this.#batches < BATCHES_MAX && this.#sendNext());
    if (this.#waiting.length === 0) {
      clearTimeout(this.#waitLimit)
      this.#waitLimit = undefined
    } else {
      for (const entry of this.#waiting) entry.endWait ??= entry.sharer?.waiter?.beginWait('shared_statements')
      this.#waitLimit ??= setTimeout(() => {
        this.#waitLimit = undefined
        this.#sendNext(this.#turns.isShared && performance.now() < this.#sentAtMs + SHARED_WAIT_MS)
        this.#offer()
      }, WAIT_MS)
    }
  }

  /**
   * Sends the next batch, and answers whether there is one; where it is for new tokens alone, without rows of those that have others
   * under way.
   */
  #sendNext(isForNew = false): boolean {
    const [first, later] = this.#shared()
    const isNew = (entry: Entry<Row>) => !this.#sent.has(placeOf(entry))
    const { batch, rest, isHeavy } = this.#nextBatch(isForNew ? first.filter(isNew) : first)
    if (batch.length === 0) return false
    const kept = isForNew ? first.filter(entry => !isNew(entry)) : []
    this.#waiting = [...kept, ...rest, ...later]
    if (!isForNew) this.#sentAtMs = performance.now()
    this.#batches++
    if (isHeavy) this.#heavyBatches++
    this.#count(batch, 1)
    void this.#send(batch).finally(() => {
      this.#batches--
      if (isHeavy) this.#heavyBatches--
      this.#count(batch, -1)
      this.#offer()
    })
    return true
  }

  /** As much of the entries, in their order, as one batch may hold: the first in any case that may go. */
  #nextBatch<T extends Entry<Row>>(entries: readonly T[]): { batch: T[]; rest: T[]; isHeavy: boolean } {
    const batch: T[] = []
    const rest: T[] = []
    const keys = new Set<unknown>()
    const singles = new Set<number>()
    const { isShared } = this.#turns
    let sizeBytes = 0
    let isHeavy = false
    for (const entry of entries) {
      const place = placeOf(entry)
      const entryBytes = entry.sizeBytes + (this.#answerBytes.get(place) ?? 0)
      const isEntryHeavy = isShared && entryBytes > LIGHT_BYTES
      const bytesMax = isEntryHeavy ? SHARED_BATCH_BYTES_MAX : BATCH_BYTES_MAX
      const isFull = batch.length >= BATCH_ROWS_MAX || sizeBytes + entryBytes > bytesMax
      const isSingle = this.#isOneAtATime(place)
      const hasOther = isSingle && (singles.has(place) || this.#sent.has(place))
      const isUnlike = batch.length > 0 ? isEntryHeavy !== isHeavy : isEntryHeavy && this.#heavyBatches > 0
      if ((isFull && batch.length > 0) || keys.has(entry.key) || hasOther || isUnlike) {
        rest.push(entry)
        continue
      }
      batch.push(entry)
      isHeavy = isEntryHeavy
      sizeBytes += entryBytes
      if (isSingle) singles.add(place)
      if (entry.key !== undefined) keys.add(entry.key)
    }
    return { batch, rest, isHeavy }
  }

  #isOneAtATime(place: number): boolean {
    if (place === UNKNOWN_PLACE || (this.#answerBytes.get(place) ?? Number.POSITIVE_INFINITY) <= LARGE_ANSWER_BYTES)
      return false
    return this.#turns.servesOthersThan(place)
  }

  /** What was more than before counts at once, what was less by half. */
  #noteAnswer(place: number, result: Result): void {
    const bytes = typeof result === 'object' && result !== null ? weightOf(result) : 0
    const before = this.#answerBytes.get(place) ?? 0
    this.#answerBytes.delete(place)
    this.#answerBytes.set(place, Math.max(bytes, (before + bytes) / 2))
    if (this.#answerBytes.size <= KNOWN_TOKENS_MAX) return
    const [first] = this.#answerBytes.keys()
    if (first !== undefined) this.#answerBytes.delete(first)
  }

  #count(batch: readonly Entry<Row>[], by: 1 | -1): void {
    for (const entry of batch) {
      const place = placeOf(entry)
      const count = (this.#sent.get(place) ?? 0) + by
      if (count === 0) this.#sent.delete(place)
      else this.#sent.set(place, count)
    }
  }

  /**
   * What may go in the next batch, in that order, and what may not. While the thread is shared out, the first of each token goes
   * before the second of any, and no token has more than a part of a batch with others.
   */
  #shared(): [Waiting<Row, Result>[], Waiting<Row, Result>[]] {
    const waiting = this.#waiting
    if (waiting.length <= SHARED_ROWS_MAX || !this.#turns.isShared) return [waiting, []]
    const counts = new Map<number, number>()
    const ranked = waiting.map(entry => {
      const place = placeOf(entry)
      const rank = counts.get(place) ?? 0
      counts.set(place, rank + 1)
      return { entry, rank, usedMs: this.#turns.usedMs(place) }
    })
    if (counts.size === 1) return [waiting, []]
    const ordered = ranked.sort((a, b) => a.rank - b.rank || a.usedMs - b.usedMs)
    const beyond = ordered.findIndex(({ rank }) => rank >= SHARED_ROWS_MAX)
    const entries = ordered.map(({ entry }) => entry)
    return beyond < 0 ? [entries, []] : [entries.slice(0, beyond), entries.slice(beyond)]
  }

  async #send(batch: readonly Waiting<Row, Result>[]): Promise<void> {
    try {
      for (const entry of batch) {
        entry.endWait?.()
        entry.endWait = undefined // it may be sent again
        entry.hooks?.onSend()
      }
      const results = await this.#run(batch.map(({ row }) => row))
      batch.forEach(({ hooks }, i) => {
        hooks?.onAnswer?.(results[i] as Result & object)
      })
      batch.forEach(({ sharer, resolve }, i) => {
        if (sharer !== undefined) this.#noteAnswer(sharer.place, results[i] as Result)
        const goOn = () => resolve(results[i] as Result) // one for each: the contract of `RunBatch`
        if (sharer === undefined) goOn()
        else this.#turns.take(sharer.place, goOn, sharer.waiter)
      })
    } catch (error) {
      // One row that the server cannot read or write must not fail the requests that share its batch.
      if (batch.length > 1 && isAboutOneRow(error)) for (const single of batch) void this.#send([single])
      else for (const { reject } of batch) reject(error)
    }
  }
}

function placeOf({ sharer }: Entry<unknown>): number {
  return sharer?.place ?? UNKNOWN_PLACE
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
