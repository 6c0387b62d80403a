import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ThreadTurns } from '../db/connection/thread-turns.js'
import { ClientGone } from '../errors.js'
import { placeOfSender, whenOver } from './requests-in-flight.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** Whether its body has a turn of its own, in which it is checked too. */
    isInBodyTurn: boolean
    /** Where its time counts until it is authenticated; undefined until it has had a turn. */
    turnPlace: number | undefined
  }
}

/** The turns of requests. Operations go on behind the database in turns of its own. */
export class RequestTurns {
  readonly #turns: ThreadTurns

  constructor(turns: ThreadTurns) {
    this.#turns = turns
  }

  /** When their headers are there. Register behind what counts requests, and before what takes time. */
  registerFirst(app: FastifyInstance): void {
    app.decorateRequest('turnPlace', undefined)
    app.addHook('onRequest', (request, _reply, done) => {
      const place = request.work?.place ?? placeOfSender(request)
      request.turnPlace = place
      if (request.work !== undefined) this.#take(request, place, done)
      else this.#turns.take(place, done)
    })
    // What was refused before it had a turn has one for its answer: whoever waits for that sends no more meanwhile.
    app.addHook('onSend', (request, _reply, payload, done) => {
      if (request.turnPlace === undefined) this.takeOfSender(request, () => done(null, payload))
      else done(null, payload)
    })
  }

  /** When their bodies are: to be checked and worked on. Register before what depends on the asynchronous context. */
  registerSecond(app: FastifyInstance): void {
    app.decorateRequest('isInBodyTurn', false)
    app.addHook('preValidation', (request, _reply, done) => {
      const place = request.work?.place
      if (place === undefined || request.isInBodyTurn) return done()
      // A short request goes on so from its authentication.
      if (this.#turns.isUnderWay(place)) done()
      else this.#take(request, place, done)
    })
  }

  /** Takes a step of what is no operation, or was refused before anybody asked whose it is: probes, pages, what is not found. */
  takeOfSender(request: FastifyRequest, step: () => void): void {
    this.#turns.take(placeOfSender(request), step)
  }

  #take(request: FastifyRequest, place: number, done: (error?: Error) => void): void {
    const takeBack = this.#turns.take(place, done, request)
    if (takeBack === undefined) return
    whenOver(request, () => {
      if (takeBack()) done(new ClientGone())
    })
  }
}
