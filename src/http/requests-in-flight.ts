import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { clientAddressOf } from '../auth/client-address.js'
import { tokenHashIn } from '../auth/hook.js'
import {
  isOfToken,
  placeOfAddress,
  placeOfToken,
  type ThreadTurns,
  TOKEN_PLACES,
} from '../db/connection/thread-turns.js'
import { ClientGone } from '../errors.js'
import { networkOf } from './limits.js'

/** How many requests of operations are in work. Pages and probes do not count: they need no database. */
export interface RequestsInFlight {
  readonly count: number
  /** How many of them have a token that authenticated no request since the start. */
  readonly ofUnseenTokens: number
  /** How many of them count where this one does, itself included: with its token, or where that is unseen, with unseen ones from its address. */
  ofSame(request: FastifyRequest): number
  /** It was authenticated: from now on it counts as of its own token. Answers whether it did not before. */
  noteAuthenticated(request: FastifyRequest): boolean
  /** Has something done for each whose client goes away before it is answered; what it asked for may go on. */
  whenAbandoned(then: OnAbandoned): void
}

/** Connections that brought a false token, or none, since the last one that authenticated a request. */
const failed = new WeakSet<Socket>()

/** Learns of a request that will have no answer. Fastify tells of those alone whose body had not arrived as a whole. */
type OnAbandoned = (request: FastifyRequest, reply: FastifyReply) => void

/**
 * Counts a request from its headers until its answer is made, or its connection gone and no handler still at it. A client that
 * sends updates and hangs up would otherwise get more work done at once than the bound allows; and a client that does not read
 * its answer keeps no place, for that is no work any more.
 *
 * The count is a number and each request knows its own state. A map of the requests in work would do the same and cost up
 * to a fifth of a request: V8 makes a map's table anew when it empties, the old tables refer to the new ones, and what
 * hangs on that chain is kept until the next full garbage collection. So the counts of tokens are in a table that stays.
 */
export function countRequests(app: FastifyInstance, turns: ThreadTurns): RequestsInFlight {
  const { atWork } = turns
  const isKnown = new Uint8Array(TOKEN_PLACES)
  const onAbandoned: OnAbandoned[] = []
  let total = 0
  let ofUnseen = 0
  const count = (place: number, by: number) => {
    const before = atWork[place] ?? 0
    atWork[place] = before + by
    if (before === 0 && by > 0) turns.placesAtWork++
    if (before > 0 && before + by === 0) turns.placesAtWork--
    if (!isOfToken(place)) ofUnseen += by
  }
  const leave = (work: Work) => {
    if (!work.isCounted) return
    work.isCounted = false
    total--
    count(work.place, -1)
  }
  const settle = (work: Work) => {
    if (!work.gone || work.handled || work.isOver) return
    leave(work)
    work.isOver = true
    for (const then of work.whenOver ?? []) then()
  }
  app.decorateRequest('work', undefined)
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.isOperation) return done()
    const token = tokenPlaceOf(request)
    const place = token !== undefined && isKnown[token] === 1 ? token : placeOfSender(request)
    const work: Work = {
      place,
      isCounted: true,
      gone: false,
      answered: false,
      handled: false,
      isOver: false,
      whenOver: undefined,
    }
    request.work = work
    total++
    count(place, 1)
    reply.raw.once('close', () => {
      if (!work.answered) for (const then of onAbandoned) then(request, reply)
      work.gone = true
      settle(work)
    })
    done()
  })
  app.addHook('preHandler', ({ work }, _reply, done) => {
    if (work === undefined) return done()
    if (work.gone) return done(new ClientGone())
    work.handled = true
    done()
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    const { work } = request
    if (work !== undefined) {
      work.handled = false
      if (!isOfToken(work.place) && reply.statusCode < 500) failed.add(request.raw.socket)
      leave(work)
      settle(work)
      request.body = undefined // nobody asks for it any more, and the answer may be on its way for long
    }
    done(null, payload)
  })
  app.addHook('onResponse', ({ work }, _reply, done) => {
    if (work !== undefined) work.answered = true
    done()
  })
  return {
    get count() {
      return total
    },
    get ofUnseenTokens() {
      return ofUnseen
    },
    ofSame: ({ work }) => (work && atWork[work.place]) ?? 0,
    noteAuthenticated: request => {
      const { work } = request
      failed.delete(request.raw.socket)
      if (work === undefined || isOfToken(work.place)) return false
      const token = tokenPlaceOf(request)
      if (token === undefined) return false
      const counted = work.isCounted ? 1 : 0 // it may have hung up meanwhile
      count(work.place, -counted)
      work.place = token
      count(work.place, counted)
      isKnown[work.place] = 1
      return true
    },
    whenAbandoned: then => void onAbandoned.push(then),
  }
}

/** Whether a request is over, as `whenOver` tells it. What its handler began may still be at work. */
export function isOver({ work }: FastifyRequest): boolean {
  return work?.isOver === true
}

/** Has something done when a request is over: answered, or its connection gone and no handler still at it. */
export function whenOver({ work, raw }: FastifyRequest, then: () => void): void {
  if (work === undefined) raw.once('close', then)
  else if (work.isOver) then()
  else if (work.whenOver === undefined) work.whenOver = [then]
  else work.whenOver.push(then)
}

/** Where the requests of this one's token are counted once it is known. */
function tokenPlaceOf(request: FastifyRequest): number | undefined {
  const hash = tokenHashIn(request)
  return Buffer.isBuffer(hash) ? placeOfToken(hash) : undefined // where it has none, authentication says so
}

/**
 * Where a request counts of which nobody knows whose it is. False tokens are a flood on connections that have failed before; people
 * who share its address bring theirs on others, and must not be refused, nor wait, for it.
 */
export function placeOfSender(request: FastifyRequest): number {
  const [address, hasFailed] = [clientAddressOf(request), failed.has(request.raw.socket)]
  const key = hasFailed ? `failed ${address}` : address
  let place = placesOfSenders.get(key)
  if (place === undefined) {
    place = placeOfAddress(networkOf(address), hasFailed)
    if (placesOfSenders.size === SENDERS_KEPT_MAX) placesOfSenders.clear()
    placesOfSenders.set(key, place)
  }
  return place
}

/** Of addresses that asked lately: to find a place takes as long as to refuse the request. */
const placesOfSenders = new Map<string, number>()
const SENDERS_KEPT_MAX = 1_000

/** What is known of a request in work. */
interface Work {
  /** Where it is counted: with its token, or while that is unseen, with its address. */
  place: number
  /** It is in the count. */
  isCounted: boolean
  /** Its answer has gone out, or its connection is gone. */
  gone: boolean
  /** Its answer has gone out. */
  answered: boolean
  /** Its handler is at it. */
  handled: boolean
  /** Nothing of it is left. */
  isOver: boolean
  /** What to do then. */
  whenOver: (() => void)[] | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** How far this request is; undefined for what is not an operation. */
    work: Work | undefined
  }
}
