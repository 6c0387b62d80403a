import type { Caller } from '../auth/caller.js'
import type { Sharer, Waiter } from '../db/connection/waiter.js'
import type { RowQuery, SendHooks } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'

/** A larger answer runs in a statement of its own, and takes memory: see `reserveMemory` of a request. */
export const BATCHED_BYTES_MAX = 128 * 1024

/** An answer that is larger still makes its request a heavy one. */
const LARGE_BYTES = 1024 * 1024

/** What JSON makes of one byte at most: `\u0001`. */
export const ESCAPED_BYTES_MAX = 6

/**
 * Takes memory for one answer, of which more and more is known: in all the most that was asked for. A small answer takes none.
 * `reserveMemory` is that of the request.
 */
export function memoryFor({ reserveMemory }: { reserveMemory(bytes: number): void }): (bytes: number) => void {
  let reservedBytes = 0
  return bytes => {
    if (bytes <= BATCHED_BYTES_MAX || bytes <= reservedBytes) return
    reserveMemory(bytes - reservedBytes)
    reservedBytes = bytes
  }
}

/** A request that may be heavy work: it runs statements, and answers what they answer. */
export interface HeavyRequest {
  caller: Caller
  /**
   * Waits for the request's place among heavy ones, unless it has it; throws `RateLimited` or `Unavailable` where none becomes free
   * in time. Not to be called in a transaction, nor in a queue: who has a place may wait for either. Who is answered less goes first.
   */
  takePlace(answerBytes?: number): Promise<void>
  /** Gives the place to others, before a wait for what somebody else may keep for long: a row's lock. Answers what to call where it goes on without. */
  leavePlace(): () => void
  /** Learns of its waits. */
  waiter: Waiter
}

/**
 * Runs a statement that answers about so many bytes by itself: a large one in the request's place, else through the queue of single
 * ones. Answers in its token's turn.
 */
export async function runAlone<T>(
  database: ServiceDatabase,
  { caller, takePlace, waiter }: Pick<HeavyRequest, 'caller' | 'takePlace' | 'waiter'>,
  bytes: number,
  work: () => Promise<T>,
  exclusive?: string,
): Promise<T> {
  const { id, place } = caller.token
  if (bytes > LARGE_BYTES) await takePlace(bytes)
  const result =
    bytes > LARGE_BYTES ? await work() : await database.singleStatementQueue.run(String(id), work, exclusive, waiter)
  await database.turns.turn(place, waiter)
  return result
}

/** As which the rows of a request share statements. */
export function sharerOf({ caller, waiter }: Pick<HeavyRequest, 'caller' | 'waiter'>): Sharer {
  return { place: caller.token.place, waiter }
}

/** Takes the request's place if its answer is so large that it needs one, or much work however little it takes. */
export async function takePlaceFor(
  { takePlace }: Pick<HeavyRequest, 'takePlace'>,
  answerBytes: number,
  isMuchWork: boolean,
): Promise<void> {
  if (isMuchWork || answerBytes > LARGE_BYTES) await takePlace(answerBytes)
}

/** Runs a statement in a batch where its answer is small and it may, else by itself: then `reserve` is called when its turn has come. */
export async function runSized<Row>(
  database: ServiceDatabase,
  query: RowQuery<Row>,
  request: HeavyRequest,
  asked: {
    answerBytes: number
    isBatchable: boolean
    executor: Executor
    hooks?: SendHooks | undefined
    reserve?(bytes: number): void
  },
): Promise<Row | undefined> {
  const { answerBytes, isBatchable, executor, hooks } = asked
  if (isBatchable && answerBytes <= BATCHED_BYTES_MAX) {
    return await query.batched(database, sharerOf(request), executor, hooks)
  }
  return await runAlone(database, request, answerBytes, async () => {
    asked.reserve?.(answerBytes)
    return await query.single(executor, hooks)
  })
}
