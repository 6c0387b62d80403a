import type { FastifyInstance, FastifyRequest } from 'fastify'
import { QueueExhausted } from '../db/connection/database-error.js'
import type { OpenDatabase } from '../db/connection/pool.js'
import type { Waiter } from '../db/connection/waiter.js'
import { leaveRested, type WorkQueue } from '../db/connection/work-queue.js'
import { unavailableFor } from '../db/unavailable.js'
import { ClientGone, RateLimited } from '../errors.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The place that `takePlace` took; undefined where it was not asked for. */
    place: Promise<Place> | undefined
    /**
     * Waits until the token has no other heavy request under way, then for a place among those of all, unless it has it; both are
     * its own until the answer is made: whoever asks for much work is the one who waits. Of callers who used the same, who will be
     * answered less goes first, as far as that is known. Only where the caller is known.
     * Throws `RateLimited` where it waits in vain for its own token's or too many of those wait, `Unavailable` where the places stay
     * with others, and `ClientGone` where the client is.
     */
    takePlace(answerBytes?: number): Promise<void>
    /**
     * Gives the place, if it has one, to other tokens, before it waits for what somebody else may keep for long. It is still the
     * only heavy one of its token, and `takePlace` waits for a place again. Answers what to call where it goes on without one: the
     * wait between is no work.
     */
    leavePlace(): () => void
  }
}

/** A heavy request's part of both queues. */
interface Place {
  /** Waits for a place among those of all, unless it has one. */
  take(answerBytes: number): Promise<void>
  /** Lets another token's go on; without a place it does nothing. */
  leave(): void
  /** It works again, without a place. */
  goOn(): void
  /** It is over. */
  end(): void
}

/** About so much of an answer is made in a millisecond, by the database most of all. */
const ANSWER_BYTES_PER_MS = 20_000

/**
 * Behind a heavy request its place is kept for twice as long again, but no longer than so, where others than its token are served
 * meanwhile: with one behind the other in each place two processors would have nothing else to do.
 */
const REST = { times: 2, msMax: 250 }

type Queues = Pick<OpenDatabase<unknown>, 'ownHeavyRequestQueue' | 'heavyRequestQueue' | 'turns'>

/** Gives each request its `takePlace` and `leavePlace`. Register before whatever may fail to answer. */
export function registerHeavyRequests(app: FastifyInstance, queues: Queues): void {
  app.decorateRequest('place', undefined)
  app.decorateRequest('takePlace', async function (this: FastifyRequest, answerBytes = 0) {
    this.place ??= placeOf(this, queues)
    try {
      await (await this.place).take(answerBytes)
    } catch (error) {
      throw unavailableFor(error) ?? error
    }
    if (this.raw.socket.destroyed) throw new ClientGone()
  })
  app.decorateRequest('leavePlace', function (this: FastifyRequest) {
    whenTaken(this, place => place.leave())
    return () => whenTaken(this, place => place.goOn())
  })
  app.addHook('onSend', (request, _reply, payload, done) => {
    if (request.place !== undefined) {
      whenTaken(request, place => place.end())
      request.place = undefined
    }
    done(null, payload)
  })
}

function whenTaken({ place }: FastifyRequest, then: (place: Place) => void): void {
  place?.then(then).catch(() => undefined) // its failure was answered
}

async function placeOf(
  request: FastifyRequest,
  { ownHeavyRequestQueue, heavyRequestQueue, turns }: Queues,
): Promise<Place> {
  const { id, place } = request.caller.token
  const token = String(id)
  const endOwn = await ownTurn(token, ownHeavyRequestQueue, request)
  let leavePlace: ((workMs: number) => void) | undefined
  let workMs = 0
  let sinceMs: number | undefined
  let hasEnded = false
  const goOn = () => {
    sinceMs ??= performance.now()
  }
  const leave = () => {
    const tookMs = sinceMs === undefined ? 0 : performance.now() - sinceMs
    if (leavePlace !== undefined) {
      if (turns.servesOthersThan(place)) leaveRested(leavePlace, tookMs, REST)
      else leavePlace(tookMs)
    }
    leavePlace = undefined
    workMs += tookMs
    sinceMs = undefined
  }
  return {
    take: async answerBytes => {
      leavePlace ??= await heavyRequestQueue.enter(token, undefined, answerBytes / ANSWER_BYTES_PER_MS, request)
      goOn()
      if (hasEnded) leave()
    },
    leave,
    goOn,
    end: () => {
      hasEnded = true
      leave()
      setTimeout(endOwn, workMs) // of who asks for one after the other, others have at least half of the time
    },
  }
}

/** Waits for the token's other heavy requests. */
async function ownTurn(token: string, queue: WorkQueue, waiter: Waiter): Promise<() => void> {
  try {
    return await queue.enter(token, undefined, 0, waiter)
  } catch (error) {
    if (!(error instanceof QueueExhausted)) throw error
    const waitedS = error.waitMs / 1_000
    const sentence =
      `One large request of a token is in work at a time; this one waited ${waitedS} s for others of its token and was not begun. ` +
      'Send fewer at once; an update with Prefer: return=minimal is less work.'
    const resetS = Math.max(1, Math.round(waitedS))
    const unit = 'concurrent-requests'
    const { setting } = error
    throw new RateLimited(
      { limit: 'token-requests', quota: 1, unit, remaining: 0, resetS, queue: 'own_heavy_requests', setting },
      sentence,
    )
  }
}
