import { errorCodes, type FastifyInstance, type FastifyRequest } from 'fastify'
import { FairTime } from '../db/connection/fair-time.js'
import type { Waiter } from '../db/connection/waiter.js'
import { TOKEN_PLACES, whenOver } from './requests-in-flight.js'

/** So long requests go on in one turn of the event loop; then what else it has to do comes, answers and new requests mostly. */
const SLICE_MS = 1

/**
 * So long after a token came that had used less than others. Where all use the same, or one is alone, to take turns would change
 * nothing but make smaller batches.
 */
const SHARED_MS = 1_000

/** How much less, and more, than others a token can have used. */
const CREDIT_MS = 20
const DEBT_MS = 100

/** Where tokens are counted that no request was authenticated with: there are as many as somebody likes to make up. */
const UNKNOWN = TOKEN_PLACES

/** What a request does next on the thread, without waiting for anything. */
type Step = () => void

/**
 * Shares the thread that serves requests out between tokens: of a burst that takes all of it, the requests wait here, and whoever
 * used least is first. A request has its turn when its headers are there and again when its body is; what it waits for between,
 * its body, a lock, the database, keeps nobody from theirs. Where there is time nothing waits, and a token alone has all of it.
 */
export class ThreadTurns {
  readonly #time = new FairTime(CREDIT_MS, DEBT_MS)
  readonly #usedMs = new Float64Array(TOKEN_PLACES + 1)
  readonly #waiting = new Map<number, Step[]>()
  /** Of this turn of the event loop; 0 while it has none. */
  #sliceEndsAt = 0
  #isSharedUntil = 0

  /**
   * Takes a step for the token that has this place: now where there is time, else in its turn, and `waiter` learns of the wait.
   * Answers how to take it back.
   */
  take(place: number, step: Step, waiter?: Waiter): (() => boolean) | undefined {
    const now = performance.now()
    if (this.#sliceEndsAt === 0) this.#beginSlice(now)
    if (!this.#waiting.has(place)) this.#come(place, now)
    if (this.#waiting.size > 0 || !this.#hasTime(now)) return this.#wait(place, step, waiter)
    this.#run(place, step, now)
    return undefined
  }

  #come(place: number, now: number): void {
    const usedMs = this.#usedMs[place] ?? 0
    const countedMs = this.#time.returning(usedMs)
    this.#usedMs[place] = countedMs
    if (countedMs > usedMs) this.#isSharedUntil = now + SHARED_MS
  }

  #beginSlice(now: number): void {
    this.#sliceEndsAt = now + SLICE_MS
    setImmediate(this.#endSlice)
  }

  readonly #endSlice = (): void => {
    this.#sliceEndsAt = 0
    if (this.#waiting.size === 0) return
    this.#beginSlice(performance.now())
    this.#goOn()
  }

  /** Takes the steps that have waited, one after the other; behind each, what follows from it without waiting. */
  readonly #goOn = (): void => {
    const now = performance.now()
    if (this.#waiting.size === 0 || !this.#hasTime(now)) return
    const place = this.#next()
    const steps = this.#waiting.get(place) ?? []
    const step = steps.shift()
    if (steps.length === 0) this.#waiting.delete(place)
    if (step !== undefined) this.#run(place, step, now)
    queueMicrotask(this.#goOn)
  }

  #hasTime(now: number): boolean {
    return now < this.#sliceEndsAt || now >= this.#isSharedUntil
  }

  #next(): number {
    let next = UNKNOWN
    let leastMs = Number.POSITIVE_INFINITY
    for (const place of this.#waiting.keys()) {
      const usedMs = this.#usedMs[place] ?? 0
      if (usedMs >= leastMs) continue
      leastMs = usedMs
      next = place
    }
    return next
  }

  #run(place: number, step: Step, now: number): void {
    const usedMs = this.#usedMs[place] ?? 0
    this.#time.serve(usedMs)
    try {
      step()
    } finally {
      this.#usedMs[place] = this.#time.after(usedMs, performance.now() - now)
    }
  }

  #wait(place: number, step: Step, waiter: Waiter | undefined): () => boolean {
    const endWait = waiter?.beginWait('thread_turns')
    const late = () => {
      endWait?.()
      step()
    }
    const steps = this.#waiting.get(place)
    if (steps === undefined) this.#waiting.set(place, [late])
    else steps.push(late)
    return () => {
      const isTakenBack = this.#takeBack(place, late)
      if (isTakenBack) endWait?.()
      return isTakenBack
    }
  }

  #takeBack(place: number, step: Step): boolean {
    const steps = this.#waiting.get(place) ?? []
    const at = steps.indexOf(step)
    if (at < 0) return false
    steps.splice(at, 1)
    if (steps.length === 0) this.#waiting.delete(place)
    return true
  }
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Whether its body has a turn of its own, in which it is checked too. */
    isInBodyTurn: boolean
  }
}

/** The turns of operations. */
export class RequestTurns {
  readonly #turns = new ThreadTurns()
  readonly #known = new Uint8Array(TOKEN_PLACES)

  /** When their headers are there. Register behind what counts requests, and before what takes time. */
  registerFirst(app: FastifyInstance): void {
    app.addHook('onRequest', (request, _reply, done) => {
      const place = request.work?.place
      if (place === undefined) done()
      else this.#take(request, this.#known[place] === 1 ? place : UNKNOWN, done)
    })
  }

  /** When their bodies are: to be checked and worked on. Register before what depends on the asynchronous context. */
  registerSecond(app: FastifyInstance): void {
    app.decorateRequest('isInBodyTurn', false)
    app.addHook('preValidation', (request, _reply, done) => {
      const place = request.work?.place
      if (place === undefined || request.isInBodyTurn) return done()
      this.#known[place] = 1
      this.#take(request, place, done)
    })
  }

  #take(request: FastifyRequest, place: number, done: (error?: Error) => void): void {
    const takeBack = this.#turns.take(place, done, request)
    if (takeBack === undefined) return
    whenOver(request, () => {
      // The connection is gone: nobody reads the answer, but the log has it.
      if (takeBack()) done(new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH())
    })
  }
}
