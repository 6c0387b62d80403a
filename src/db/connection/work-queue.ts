import { RateLimited } from '../../errors.js'
import { QueueExhausted } from './database-error.js'

/** What of a caller waits before the next is over soon. In seconds. */
const RETRY_AFTER_S = 1

/** How much work may run at once, and how much may wait for how long. */
export interface WorkQueueLimits {
  /** Of all callers together. */
  runningMax: number
  runningPerCallerMax: number
  waitingPerCallerMax: number
  waitMs: number
  /**
   * How long a place rests before its caller has it again, as a multiple of the time that the work in it took: of a caller who
   * asks for more and more, others have at least the rest of the time, and who had none lately comes before those who had.
   * Absent: not at all.
   */
  restRatio?: number
}

interface Waiting {
  exclusive: string | undefined
  start(): void
}

/** Somebody whose work runs or waits. */
interface Caller {
  /** With what rests. */
  running: number
  /** In the order in which they asked. */
  waiting: Waiting[]
  /** Grows with every turn: when they were last served, or came. */
  lastTurn: number
}

/**
 * The queue in front of the pool for work that may keep a connection for long: it waits inside the database for others, or
 * answers much. So this work never has more than a share of the connections.
 *
 * Fair between callers: a free place goes to who has the least running, of those to who waits longest for a turn; work of one
 * caller keeps its order. Who has a place gets another only while one more stays free for others.
 */
export class WorkQueue {
  readonly #limits: WorkQueueLimits
  readonly #callers = new Map<string, Caller>()
  readonly #exclusive = new Set<string>()
  #running = 0
  #turn = 0

  constructor(limits: WorkQueueLimits) {
    this.#limits = limits
  }

  /**
   * Runs a caller's work when there is a place for it and answers what it answers. Of all work with the same `exclusive` one
   * runs at a time; what it keeps waiting lets later work of its caller pass.
   * Throws `RateLimited` when too much of the caller waits already, `QueueExhausted` when no place became free in time; then it
   * was not begun.
   */
  async run<T>(caller: string, work: () => Promise<T>, exclusive?: string): Promise<T> {
    const leave = await this.enter(caller, exclusive)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /** Waits for a place, and answers how to give it back, once. Throws as `run` does. */
  async enter(caller: string, exclusive?: string): Promise<() => void> {
    await this.#place(caller, exclusive)
    const sinceMs = performance.now()
    return () => this.#leave(caller, exclusive, performance.now() - sinceMs)
  }

  /** Whether work of this caller waits. */
  isAwaited(caller: string): boolean {
    return (this.#callers.get(caller)?.waiting.length ?? 0) > 0
  }

  #place(name: string, exclusive: string | undefined): Promise<void> {
    const caller = this.#callers.get(name) ?? { running: 0, waiting: [], lastTurn: this.#turnOfNew() }
    const { waitingPerCallerMax: quota } = this.#limits
    if (caller.waiting.length >= quota) {
      const unit = 'concurrent-requests'
      throw new RateLimited({ limit: 'token-requests', quota, unit, remaining: 0, resetS: RETRY_AFTER_S })
    }
    this.#callers.set(name, caller)
    return new Promise((resolve, reject) => {
      const waiting = {
        exclusive,
        start: () => {
          clearTimeout(timer)
          resolve()
        },
      }
      const timer = setTimeout(() => {
        caller.waiting.splice(caller.waiting.indexOf(waiting), 1)
        this.#forget(name, caller)
        reject(new QueueExhausted())
      }, this.#limits.waitMs)
      caller.waiting.push(waiting)
      this.#startWaiting()
    })
  }

  /** Where places rest, who is new has used nothing lately and is first; else behind those who wait. */
  #turnOfNew(): number {
    return this.#limits.restRatio === undefined ? ++this.#turn : 0
  }

  #leave(name: string, exclusive: string | undefined, tookMs: number): void {
    const caller = this.#callers.get(name)
    if (caller === undefined) throw new Error('work ended whose caller is not known')
    this.#running -= 1
    if (exclusive !== undefined) this.#exclusive.delete(exclusive)
    const restMs = tookMs * (this.#limits.restRatio ?? 0)
    if (restMs < 1) this.#endRest(name, caller)
    else setTimeout(() => this.#endRest(name, caller), restMs)
    this.#startWaiting()
  }

  #endRest(name: string, caller: Caller): void {
    caller.running -= 1
    this.#forget(name, caller)
    this.#startWaiting()
  }

  #forget(name: string, caller: Caller): void {
    if (caller.running === 0 && caller.waiting.length === 0) this.#callers.delete(name)
  }

  /** Starts what may run now: whoever comes next first. */
  #startWaiting(): void {
    for (let next = this.#next(); next !== undefined; next = this.#next()) this.#start(next)
  }

  #next(): { caller: Caller; at: number } | undefined {
    let next: { caller: Caller; at: number } | undefined
    for (const caller of this.#callers.values()) {
      if (!this.#hasRoom(caller) || (next !== undefined && !isBefore(caller, next.caller))) continue
      const at = caller.waiting.findIndex(({ exclusive }) => exclusive === undefined || !this.#exclusive.has(exclusive))
      if (at >= 0) next = { caller, at }
    }
    return next
  }

  #start({ caller, at }: { caller: Caller; at: number }): void {
    const [waiting] = caller.waiting.splice(at, 1)
    this.#running += 1
    caller.running += 1
    caller.lastTurn = ++this.#turn
    if (waiting?.exclusive !== undefined) this.#exclusive.add(waiting.exclusive)
    waiting?.start()
  }

  #hasRoom({ running }: Caller): boolean {
    const { runningMax, runningPerCallerMax } = this.#limits
    const left = runningMax - this.#running
    return running === 0 ? left > 0 : running < runningPerCallerMax && left > 1
  }
}

function isBefore(one: Caller, other: Caller): boolean {
  return one.running === other.running ? one.lastTurn < other.lastTurn : one.running < other.running
}
