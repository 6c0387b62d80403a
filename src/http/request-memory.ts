import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Caller } from '../auth/caller.js'
import { clientAddressOf } from '../auth/client-address.js'
import { RateLimited, RETRY_AFTER_S, Unavailable } from '../errors.js'
import { type Exhausted, MemoryBudget, type MemoryBudgetLimits } from './memory-budget.js'
import { MemoryQueue } from './memory-queue.js'
import { isOver, whenOver } from './requests-in-flight.js'
import type { UnfinishedTransfers } from './unfinished-transfers.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** What `reserveMemory` took. */
    reservedMemory: Reserved | undefined
    /**
     * Reserves memory for a large body or answer, in the name of the request's token; of its address where there is none. It is
     * given back when the request is over: answered, or its connection gone and no handler still at it.
     * Throws `RateLimited` when the token has its share, `Unavailable` when all tokens together have theirs.
     */
    reserveMemory(bytes: number, use?: Use): void
    /**
     * Reserves memory for a body that is not read yet, and calls `begin`, at once where there is some. Waits for it else: `failed` learns
     * what `reserveMemory` would throw where that is in vain. Answers how to end the wait.
     */
    awaitMemory(bytes: number, begin: () => void, failed: (error: Error) => void): () => void
    /** The answer is made and takes so many bytes: they are reserved in place of what was reserved for it, and for the body. Throws likewise. */
    holdAnswer(bytes: number): void
    /** Gives all of it back before: what it was for is dropped. Or so many bytes of what was reserved for the body. */
    releaseMemory(bodyBytes?: number): void
  }
}

type Use = 'body' | 'answer'

/** The bytes that a request has reserved, for each use. */
type Reserved = { owner: string } & Record<Use, number>

/** Gives each request its `reserveMemory`. All of them share one budget; where it is taken, transfers that wait for their client make room. */
export function registerRequestMemory(
  app: FastifyInstance,
  limits: MemoryBudgetLimits & { ofBodies: MemoryBudgetLimits },
  unfinished: UnfinishedTransfers,
): void {
  const budget = new MemoryBudget(limits)
  const heldBy = (owner: string) => budget.heldBy(owner)
  const refusal = (exhausted: Exhausted, owner: string, retryAfterS: number) => {
    if (exhausted === 'token') {
      return new RateLimited({
        limit: 'token-memory',
        quota: limits.perTokenBytes,
        unit: 'content-bytes',
        remaining: budget.remaining(owner),
        resetS: retryAfterS,
      })
    }
    const message =
      `Too little is left of the ${limits.totalBytes} bytes of memory for large bodies and answers of all callers at once; ` +
      `no token has more than it leaves to others. Try again in ${retryAfterS} s.`
    return new Unavailable('overloaded', message, 'not_applied', { setting: 'TRANSFER_BYTES_MAX' }, retryAfterS)
  }
  const queue = new MemoryQueue({
    take: (owner, bytes) => budget.take(owner, bytes, limits.ofBodies),
    makeRoom: (owner, bytes) => unfinished.makeRoomForWaiting(heldBy(owner) + bytes, heldBy),
    refusal,
  })
  const give = (owner: string, bytes: number) => {
    if (bytes === 0) return
    budget.give(owner, bytes)
    queue.serve()
  }
  app.decorateRequest('reservedMemory', undefined)
  app.decorateRequest('reserveMemory', function (this: FastifyRequest, bytes: number, use: Use = 'answer') {
    if (isOver(this)) return // what still works on it makes what nobody reads, and it would never be given back
    const { owner } = this.reservedMemory ?? { owner: ownerOf(this) }
    let exhausted = budget.take(owner, bytes)
    while (exhausted === 'total') {
      const held = heldBy(owner)
      if (!unfinished.abandonOfLargest(held, held + bytes, heldBy)) break
      exhausted = budget.take(owner, bytes)
    }
    if (exhausted !== undefined) throw refusal(exhausted, owner, RETRY_AFTER_S)
    note(this, owner, bytes, use)
  })
  app.decorateRequest('awaitMemory', function (this: FastifyRequest, bytes, begin, failed) {
    const owner = ownerOf(this)
    const haveBegun = () => {
      note(this, owner, bytes, 'body')
      whenOver(this, () => queue.end(owner, bytes))
      begin()
    }
    return queue.enter(owner, bytes, this, haveBegun, failed)
  })
  app.decorateRequest('holdAnswer', function (this: FastifyRequest, bytes: number) {
    const { owner, body, answer } = this.reservedMemory ?? { owner: '', body: 0, answer: 0 }
    if (this.reservedMemory !== undefined) {
      give(owner, body) // nobody needs it any more
      this.reservedMemory.body = 0
    }
    if (bytes > answer) this.reserveMemory(bytes - answer)
    if (bytes >= answer || this.reservedMemory === undefined) return
    this.reservedMemory.answer = bytes
    give(owner, answer - bytes)
  })
  app.decorateRequest('releaseMemory', function (this: FastifyRequest, bodyBytes?: number) {
    if (this.reservedMemory === undefined) return
    const { owner, body, answer } = this.reservedMemory
    const part = Math.min(bodyBytes ?? body, body) // when the request is over nothing is left of it
    Object.assign(this.reservedMemory, { body: body - part, ...(bodyBytes === undefined && { answer: 0 }) })
    give(owner, part + (bodyBytes === undefined ? answer : 0))
  })
}

/** Takes note of what a request has taken. */
function note(request: FastifyRequest, owner: string, bytes: number, use: Use): void {
  if (request.reservedMemory !== undefined) {
    request.reservedMemory[use] += bytes
    return
  }
  request.reservedMemory = { owner, body: 0, answer: 0, [use]: bytes }
  whenOver(request, () => request.releaseMemory())
}

/** The bytes that a request has reserved now. */
export function heldBytesOf({ reservedMemory }: FastifyRequest): number {
  return reservedMemory === undefined ? 0 : reservedMemory.body + reservedMemory.answer
}

/** In whose name a request has what is shared out: its token's, or that of its address where it needs none, or none that is known. */
export function ownerOf(request: FastifyRequest): string {
  const caller = request.caller as Caller | null | undefined // null until it is authenticated, undefined where no hook ran
  return caller ? `token ${caller.token.id}` : clientAddressOf(request)
}
