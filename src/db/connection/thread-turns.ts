import { createHmac, randomBytes } from 'node:crypto'
import { FairTime } from './fair-time.js'
import type { Waiter } from './waiter.js'

/**
 * Tokens are told apart by the first so many bits of their SHA-256, in tables that stay as they are. Two tokens of the same bits
 * count as one: nobody chooses their token.
 */
const TOKEN_BITS = 16
export const TOKEN_PLACES = 2 ** TOKEN_BITS

/** Addresses likewise, by a hash with a key of this process: an address can be chosen. Each has two places. */
const ADDRESS_BITS = 12
const ADDRESS_KEY = randomBytes(16)

/** Where counts what nobody is known to ask for. */
export const UNKNOWN_PLACE = TOKEN_PLACES + 2 * 2 ** ADDRESS_BITS
export const PLACES = UNKNOWN_PLACE + 1

/** Where what the token of this SHA-256 asks for is counted. */
export function placeOfToken(hash: Buffer): number {
  return hash.readUIntBE(0, TOKEN_BITS / 8)
}

/**
 * Where counts what comes from this address, or network, and has no token that authenticated a request: as many as somebody likes can
 * be made up. What comes by connections that have failed to authenticate counts apart.
 */
export function placeOfAddress(address: string, hasFailed: boolean): number {
  const hash = createHmac('sha256', ADDRESS_KEY).update(address).digest()
  return TOKEN_PLACES + 2 * (hash.readUInt16BE() >> (16 - ADDRESS_BITS)) + (hasFailed ? 1 : 0)
}

/** Whether this is the place of a token. */
export function isOfToken(place: number): boolean {
  return place < TOKEN_PLACES
}

/** The two places of an address as one. */
function senderOf(place: number): number {
  return isOfToken(place) ? place : place | 1
}

/**
 * So long requests go on in one turn of the event loop; then what else it has to do comes, answers and new requests mostly. Where some
 * wait they go on as long as all of that took the last time, within these bounds: with less most of the thread went into that, for
 * many small statements and writes instead of few that requests share.
 */
const SLICE_MS = { min: 1, max: 2 }

/**
 * So long after a token came that had used less than others, once another has asked for something since. Where all use the same, or
 * one is alone, to take turns would change nothing but make smaller batches and wait more often.
 */
const SHARED_MS = 1_000

/** How much less, and more, than others a token can have used. */
const CREDIT_MS = 20
const DEBT_MS = 100

/**
 * Each further request that a token has in work counts as so much used, of so many at most: of those who used about the same, as when many
 * come at once who asked for nothing until then, whoever asks for less comes first. All that wait may be served meanwhile, which takes no longer
 * than `waitMs`.
 */
const ASKED = { ms: 2, most: 8, waitMs: 600 }

/**
 * Of the time for which the thread had nothing to do, so much is forgiven to each token, also to one that waits: who asks for less than
 * that all the time comes as early as who asked for nothing.
 */
const FORGIVEN_SHARE = 1 / 16

/**
 * So much counts as not used for each ms for which a token waits for its turn. What tokens used differs by tens of ms, a step that took long among
 * them, and with hundreds of tokens each of these ms is a second of waiting: they come one after the other then.
 */
const AGEING = 1 / 20

/** What a request does next on the thread, without waiting for anything. */
type Step = () => void

/** A step that waits; `number` tells which of its token's come before it. */
interface WaitingStep {
  number: number
  step: Step
}

/** The steps of a token that wait, and since when none of them was taken. */
interface Waiting {
  steps: WaitingStep[]
  sinceMs: number
}

/**
 * Shares the thread that serves requests out between tokens: of a burst that takes all of it, the requests wait here, and whoever
 * used least is first. A request has its turn when its headers are there, when its body is, and when the database has answered;
 * what it waits for between keeps nobody from theirs. Of one token's the request that came first goes on first: were all of many begun
 * before one is answered, the first answer would come with the last. Where there is time nothing waits, and a token alone has all of it.
 */
export class ThreadTurns {
  readonly #time = new FairTime(CREDIT_MS, DEBT_MS)
  readonly #usedMs = new Float64Array(PLACES)
  /** Since when nobody has a step or waits for one, as far as that was not counted yet. */
  #freeSinceMs: number | undefined = performance.now()
  readonly #waiting = new Map<number, Waiting>()
  /** How many requests have asked for a turn. */
  #requests = 0
  /** Whose step is under way, with all that follows from it without waiting, and since when. */
  #running: number | undefined
  #sinceMs = 0
  /** Of this turn of the event loop; 0 while it has none. */
  #sliceEndsAt = 0
  #sliceBeganMs = 0
  /** How long the steps took in it. */
  #ranMs = 0
  #isSharedUntil = 0
  /** Who had the last step, where the two places of an address are one, and when another than that had one. */
  #lastSender = UNKNOWN_PLACE
  #lastAt = Number.NEGATIVE_INFINITY
  #otherAt = Number.NEGATIVE_INFINITY
  /** The last one to come that had used less, and whether others have asked since the first of these came. */
  #newcomer = UNKNOWN_PLACE
  #hasOthers = false
  /** How many requests of each token, and address, are in work, and how many have some; who counts them says it. */
  readonly atWork = new Uint32Array(PLACES)
  placesAtWork = 0

  /**
   * Takes a step for the token that has this place: now where there is time, else in its turn, and `waiter` learns of the wait.
   * Answers how to take it back.
   */
  take(place: number, step: Step, waiter?: Waiter): (() => boolean) | undefined {
    const now = performance.now()
    if (waiter !== undefined) waiter.turnNumber ??= ++this.#requests
    if (this.#sliceEndsAt === 0) this.#beginSlice(now, SLICE_MS.min)
    if (place !== this.#newcomer) this.#hasOthers = true
    if (this.#running === place && !this.#isSliced(place, now)) {
      step()
      return undefined
    }
    if (!this.#waiting.has(place)) this.#come(place, now)
    if (this.#running !== undefined || this.#waiting.size > 0 || !this.#hasTime(place, now)) {
      return this.#wait(place, step, now, waiter)
    }
    this.#run(place, step, now)
    return undefined
  }

  /** Resolves when it is the turn of the token that has this place: what follows is its step. */
  turn(place: number, waiter?: Waiter): Promise<void> {
    return new Promise(resolve => {
      this.take(place, resolve, waiter)
    })
  }

  /** Whether somebody asks, or has asked a moment ago, who used less than others. */
  get isShared(): boolean {
    return this.#isShared(performance.now())
  }

  /** Whether more than one token had steps a moment ago. */
  get servesSeveral(): boolean {
    return performance.now() < this.#otherAt + SHARED_MS
  }

  /** Whether another token than the one that has this place had a step a moment ago. */
  servesOthersThan(place: number): boolean {
    return performance.now() < this.#othersAt(place) + SHARED_MS
  }

  /** Whether a step of the token that has this place is under way: what follows from it without waiting needs no turn. */
  isUnderWay(place: number): boolean {
    return this.#running === place
  }

  /** The time that a token used, to compare with that of others. In ms. */
  usedMs(place: number): number {
    return this.#usedMs[place] ?? 0
  }

  #come(place: number, now: number): void {
    if (this.#freeSinceMs !== undefined) {
      this.#time.forgive(FORGIVEN_SHARE * (now - this.#freeSinceMs))
      this.#freeSinceMs = now
    }
    const usedMs = this.usedMs(place)
    const countedMs = this.#time.returning(usedMs)
    this.#usedMs[place] = countedMs
    if (countedMs <= usedMs) return
    if (now >= this.#isSharedUntil) this.#hasOthers = this.#waiting.size > 0 || this.#running !== undefined
    this.#newcomer = place
    this.#isSharedUntil = now + SHARED_MS
  }

  #beginSlice(now: number, ms: number): void {
    this.#sliceBeganMs = now
    this.#sliceEndsAt = now + ms
    this.#ranMs = 0
    setImmediate(this.#endSlice)
  }

  readonly #endSlice = (): void => {
    this.#sliceEndsAt = 0
    if (this.#waiting.size === 0) return
    const now = performance.now()
    const otherMs = now - this.#sliceBeganMs - this.#ranMs
    this.#beginSlice(now, Math.min(Math.max(otherMs, SLICE_MS.min), SLICE_MS.max))
    this.#goOn(now)
  }

  /** Takes the next of the steps that have waited: in slices in any case, there may be many. */
  #goOn(now: number): void {
    if (this.#waiting.size === 0 || this.#running !== undefined || now >= this.#sliceEndsAt) return
    const place = this.#next(now)
    const waiting = this.#waiting.get(place)
    const next = waiting?.steps.shift()
    if (waiting === undefined || next === undefined) return
    waiting.sinceMs = now
    if (waiting.steps.length === 0) this.#waiting.delete(place)
    this.#run(place, next.step, now)
  }

  #hasTime(place: number, now: number): boolean {
    return now < this.#sliceEndsAt || !this.#isSliced(place, now)
  }

  #isShared(now: number): boolean {
    return this.#hasOthers && now < this.#isSharedUntil
  }

  /** The two places of an address take turns only while both have requests: whoever fails there goes on at the other one. */
  #isSliced(place: number, now: number): boolean {
    if (!this.#isShared(now)) return false
    return this.placesAtWork > 1 || this.#waiting.size > 0 || now < this.#othersAt(place) + SHARED_MS
  }

  /** When another token than the one that has this place had its last step. */
  #othersAt(place: number): number {
    return senderOf(place) === this.#lastSender ? this.#otherAt : this.#lastAt
  }

  #next(now: number): number {
    let next = UNKNOWN_PLACE
    let leastMs = Number.POSITIVE_INFINITY
    const mostAskedMs = Math.min(ASKED.ms * ASKED.most, ASKED.waitMs / this.#waiting.size)
    for (const [place, { sinceMs }] of this.#waiting) {
      const further = Math.max(0, (this.atWork[place] ?? 0) - 1) // pages and probes do not count as in work
      const askedMs = Math.min(ASKED.ms * further, mostAskedMs)
      const thenMs = this.usedMs(place) + askedMs - AGEING * (now - sinceMs)
      if (thenMs >= leastMs) continue
      leastMs = thenMs
      next = place
    }
    return next
  }

  #run(place: number, step: Step, now: number): void {
    const sender = senderOf(place)
    if (sender !== this.#lastSender) {
      this.#otherAt = this.#lastAt
      this.#lastSender = sender
    }
    this.#lastAt = now
    this.#freeSinceMs = undefined
    this.#time.serve(this.usedMs(place))
    this.#running = place
    this.#sinceMs = now
    queueMicrotask(this.#endBehindPromises)
    step()
  }

  /** A tick comes when no promise has anything to go on with. */
  readonly #endBehindPromises = (): void => process.nextTick(this.#end)

  readonly #end = (): void => {
    const now = performance.now()
    const place = this.#running ?? UNKNOWN_PLACE
    const tookMs = now - this.#sinceMs
    this.#running = undefined
    this.#ranMs += tookMs
    this.#usedMs[place] = this.#time.after(this.usedMs(place), tookMs)
    this.#goOn(now)
    if (this.#running === undefined && this.#waiting.size === 0) this.#freeSinceMs = now
  }

  #wait(place: number, step: Step, now: number, waiter: Waiter | undefined): () => boolean {
    const endWait = waiter?.beginWait('thread_turns')
    const late = {
      number: waiter?.turnNumber ?? this.#requests,
      step: () => {
        endWait?.()
        step()
      },
    }
    const waiting = this.#waiting.get(place)
    if (waiting === undefined) this.#waiting.set(place, { steps: [late], sinceMs: now })
    else waiting.steps.splice(1 + waiting.steps.findLastIndex(({ number }) => number <= late.number), 0, late)
    return () => {
      const isTakenBack = this.#takeBack(place, late)
      if (isTakenBack) endWait?.()
      return isTakenBack
    }
  }

  #takeBack(place: number, step: WaitingStep): boolean {
    const steps = this.#waiting.get(place)?.steps ?? []
    const at = steps.indexOf(step)
    if (at < 0) return false
    steps.splice(at, 1)
    if (steps.length === 0) this.#waiting.delete(place)
    return true
  }
}
