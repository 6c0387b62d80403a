import { RateLimited, RETRY_AFTER_S } from '../../errors.js'
import { QueueExhausted } from './database-error.js'
import { FairTime } from './fair-time.js'
import type { QueueName, Waiter } from './waiter.js'

/**
 * How much less, and more, than others a caller can have used, if nothing else is said. Of many who come at once each has the sum of
 * both before somebody who asked all the time: that must be over before what waits is refused.
 */
const CREDIT_MS = 100
const DEBT_MS = 100

/** Of so many callers who wait for nothing it is known what they used; of others that they used none lately. */
const REMEMBERED_CALLERS_MAX = 1_000

/** How much of the average is the last one. */
const HELD_WEIGHT = 1 / 8

/** How much work may run at once, and how much may wait for how long. */
export interface WorkQueueLimits {
  name: QueueName
  /** What is waited for, in words for a client who waited in vain. */
  awaited: string
  /** Of all callers together. */
  runningMax: number
  runningPerCallerMax: number
  /** Of the places, for work alone with which its caller will still have used no more than who was served last. */
  reservedMax?: number
  waitingPerCallerMax: number
  waitMs: number
  /** The setting that says so, if one does. */
  waitSetting?: string
  /**
   * Where that is due, work begins beside other work only once that has gone on for so many ms: what is short goes one behind the
   * other, and what is long keeps nothing waiting for longer.
   */
  stagger?: { ms: number; isDue(): boolean }
  /** How much more than others a caller can have used: who asks for less at a time has more turns. */
  debtMs?: number
  /** For how long each has waited in the queues that have the same: there it waits no longer than `waitMs` in all. */
  waited?: WeakMap<Waiter, number>
}

interface Waiting {
  exclusive: string | undefined
  expectedMs: number
  start(endFresh: (() => void) | undefined): void
}

/** Somebody whose work runs or waits. */
interface Caller {
  running: number
  /** In the order in which they asked. */
  waiting: Waiting[]
  /** The time of places that they used, or what counts as that. In ms. */
  usedMs: number
}

/**
 * The queue in front of the pool for work that may keep a connection for long: it waits inside the database for others, or
 * answers much. So this work never has more than a share of the connections.
 *
 * Fair between callers: a free place goes to who has the least running, of those to who will have used the least time of
 * places when that work is done; work of one caller keeps its order. Who has a place gets another only while one more stays free
 * for others.
 */
export class WorkQueue {
  readonly #limits: WorkQueueLimits
  readonly #callers = new Map<string, Caller>()
  /** What those used who have nothing here now; who left last is last. */
  readonly #usedMs = new Map<string, number>()
  readonly #exclusive = new Set<string>()
  readonly #time: FairTime
  #running = 0
  /** How many of these began so lately that others are staggered behind them. */
  #fresh = 0
  /** How many did not start at once, ever. */
  #waits = 0
  /** For how long the places were held lately, on average. */
  #heldMs = 0

  constructor(limits: WorkQueueLimits) {
    this.#limits = limits
    this.#time = new FairTime(CREDIT_MS, limits.debtMs ?? DEBT_MS)
  }

  /**
   * Runs a caller's work when there is a place for it and answers what it answers. Of all work with the same `exclusive` one
   * runs at a time; what it keeps waiting lets later work of its caller pass. `waiter` learns of its wait, if there is one.
   * Throws `RateLimited` when too much of the caller waits already, `QueueExhausted` when no place became free in time; then it
   * was not begun.
   */
  async run<T>(caller: string, work: () => Promise<T>, exclusive?: string, waiter?: Waiter): Promise<T> {
    const leave = await this.enter(caller, exclusive, 0, waiter)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /**
   * Waits for a place, and answers how to give it back, once, after how much work: by default all the time that it was held. That
   * counts as used where somebody waited meanwhile: what nobody else asked for does not put its caller behind who comes later.
   * `expectedMs` is how long it will be, as far as it is known. Throws as `run` does.
   */
  async enter(caller: string, exclusive?: string, expectedMs = 0, waiter?: Waiter): Promise<(workMs?: number) => void> {
    const endFresh = await this.#place(caller, exclusive, expectedMs, waiter)
    const sinceMs = performance.now()
    const waits = this.#isWaitedFor() ? -1 : this.#waits
    return (workMs = performance.now() - sinceMs) => {
      endFresh?.()
      this.#heldMs += HELD_WEIGHT * (performance.now() - sinceMs - this.#heldMs)
      this.#leave(caller, exclusive, waits === this.#waits ? 0 : workMs)
    }
  }

  #place(
    name: string,
    exclusive: string | undefined,
    expectedMs: number,
    waiter: Waiter | undefined,
  ): Promise<(() => void) | undefined> {
    const caller = this.#callers.get(name) ?? { running: 0, waiting: [], usedMs: this.#usedBy(name) }
    if (caller.waiting.length >= this.#limits.waitingPerCallerMax) throw tooManyWait(this.#limits)
    this.#callers.set(name, caller)
    return new Promise((resolve, reject) => {
      let endWait: (() => void) | undefined
      const waiting = {
        exclusive,
        expectedMs,
        start: (endFresh: (() => void) | undefined) => {
          clearTimeout(timer)
          endWait?.()
          resolve(endFresh)
        },
      }
      const timer = setTimeout(() => {
        caller.waiting.splice(caller.waiting.indexOf(waiting), 1)
        this.#forget(name, caller)
        endWait?.()
        const { awaited, waitMs, waitSetting } = this.#limits
        const retryAfterS = exclusive === undefined ? this.#retryAfterS : RETRY_AFTER_S
        reject(new QueueExhausted(awaited, waitMs, retryAfterS, waitSetting))
      }, this.#limits.waitMs - this.#waitedBy(waiter))
      caller.waiting.push(waiting)
      this.#startWaiting()
      if (!caller.waiting.includes(waiting)) return
      this.#waits += 1
      endWait = this.#beginWait(waiter)
    })
  }

  /** In how many seconds every caller who waits now will have had a place, if they keep theirs as long as the last ones did. */
  get #retryAfterS(): number {
    const { runningMax, waitMs } = this.#limits
    let callers = 0
    for (const { waiting } of this.#callers.values()) if (waiting.length > 0) callers += 1
    const ms = Math.min(waitMs, (callers * this.#heldMs) / runningMax)
    return Math.max(RETRY_AFTER_S, Math.ceil(ms / 1_000))
  }

  #waitedBy(waiter: Waiter | undefined): number {
    return (waiter && this.#limits.waited?.get(waiter)) ?? 0
  }

  /** Answers what to call when the wait is over. */
  #beginWait(waiter: Waiter | undefined): (() => void) | undefined {
    if (waiter === undefined) return undefined
    const since = performance.now()
    const endWait = waiter.beginWait(this.#limits.name)
    return () => {
      this.#limits.waited?.set(waiter, this.#waitedBy(waiter) + performance.now() - since)
      endWait()
    }
  }

  /** Answers what to call when the work is done, before others begin. */
  #beginFresh(): (() => void) | undefined {
    const { stagger } = this.#limits
    if (stagger === undefined) return undefined
    this.#fresh += 1
    let isFresh = true
    const end = () => {
      clearTimeout(timer)
      if (isFresh) this.#fresh -= 1
      isFresh = false
    }
    const timer = setTimeout(() => {
      end()
      this.#startWaiting()
    }, stagger.ms)
    return end
  }

  #isWaitedFor(): boolean {
    for (const { waiting } of this.#callers.values()) if (waiting.length > 0) return true
    return false
  }

  /** Of who comes back, or is new. */
  #usedBy(name: string): number {
    const usedMs = this.#usedMs.get(name) ?? 0
    this.#usedMs.delete(name)
    return this.#time.returning(usedMs)
  }

  #leave(name: string, exclusive: string | undefined, tookMs: number): void {
    const caller = this.#callers.get(name)
    if (caller === undefined) throw new Error('work ended whose caller is not known')
    this.#running -= 1
    caller.running -= 1
    caller.usedMs = this.#time.after(caller.usedMs, tookMs)
    if (exclusive !== undefined) this.#exclusive.delete(exclusive)
    this.#forget(name, caller)
    this.#startWaiting()
  }

  #forget(name: string, caller: Caller): void {
    if (caller.running > 0 || caller.waiting.length > 0) return
    this.#callers.delete(name)
    this.#usedMs.set(name, caller.usedMs)
    if (this.#usedMs.size <= REMEMBERED_CALLERS_MAX) return
    const [first] = this.#usedMs.keys()
    if (first !== undefined) this.#usedMs.delete(first)
  }

  /** Starts what may run now: whoever comes next first. */
  #startWaiting(): void {
    for (let next = this.#next(); next !== undefined; next = this.#next()) this.#start(next)
  }

  #next(): Next | undefined {
    if (this.#fresh > 0 && this.#limits.stagger?.isDue() === true) return undefined
    let next: Next | undefined
    for (const caller of this.#callers.values()) {
      const at = caller.waiting.findIndex(({ exclusive }) => exclusive === undefined || !this.#exclusive.has(exclusive))
      const waiting = caller.waiting[at]
      if (waiting === undefined) continue
      const thenUsedMs = caller.usedMs + waiting.expectedMs
      if (!this.#hasRoom(caller, thenUsedMs)) continue
      if (next === undefined || isBefore({ caller, at, thenUsedMs }, next)) next = { caller, at, thenUsedMs }
    }
    return next
  }

  #start({ caller, at }: Next): void {
    const [waiting] = caller.waiting.splice(at, 1)
    this.#running += 1
    caller.running += 1
    this.#time.serve(caller.usedMs)
    if (waiting?.exclusive !== undefined) this.#exclusive.add(waiting.exclusive)
    waiting?.start(this.#beginFresh())
  }

  #hasRoom({ running }: Caller, thenUsedMs: number): boolean {
    const { runningMax, runningPerCallerMax, reservedMax = 0 } = this.#limits
    const left = runningMax - this.#running - (this.#time.isBehind(thenUsedMs) ? 0 : reservedMax)
    return running === 0 ? left > 0 : running < runningPerCallerMax && left > 1
  }
}

/** Gives a place back that was held for so long, but keeps it for so many times as long before: meanwhile others have what it shares with them. */
export function leaveRested(
  leave: (workMs: number) => void,
  tookMs: number,
  { times, msMax }: { times: number; msMax: number },
): void {
  setTimeout(leave, Math.min(times * tookMs, msMax), tookMs).unref()
}

/** Who is served next: where in their work, and what they will have used when that is done. */
interface Next {
  caller: Caller
  at: number
  thenUsedMs: number
}

function tooManyWait({ name, awaited, waitingPerCallerMax: quota }: WorkQueueLimits): RateLimited {
  const sentence = `${quota} requests of this token wait for ${awaited}, and no more may. Send fewer at once.`
  const unit = 'concurrent-requests'
  return new RateLimited(
    { limit: 'token-requests', quota, unit, remaining: 0, resetS: RETRY_AFTER_S, queue: name },
    sentence,
  )
}

function isBefore(one: Next, other: Next): boolean {
  const [running, others] = [one.caller.running, other.caller.running]
  return running === others ? one.thenUsedMs < other.thenUsedMs : running < others
}
