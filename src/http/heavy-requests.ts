import { errorCodes, type FastifyInstance, type FastifyRequest } from 'fastify'
import type { WorkQueue } from '../db/connection/work-queue.js'
import { unavailableFor } from '../db/unavailable.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** How to give back the place that `takePlace` took; undefined where it was not asked for. */
    place: Promise<() => void> | undefined
    /**
     * Waits for the request's place among heavy ones, unless it has it, and keeps it until the answer is made: whoever asks for much work is
     * the one who waits. Only where the caller is known. Throws `RateLimited` where too many of the token wait, `Unavailable` where no place
     * becomes free in time, and Fastify's error of a cut request where the client is gone.
     */
    takePlace(): Promise<void>
  }
}

/** Gives each request its `takePlace`. Register before whatever may fail to answer. */
export function registerHeavyRequests(app: FastifyInstance, queue: WorkQueue): void {
  app.decorateRequest('place', undefined)
  app.decorateRequest('takePlace', async function (this: FastifyRequest) {
    this.place ??= queue.enter(String(this.caller.token.id))
    await this.place.catch(error => {
      throw unavailableFor(error) ?? error
    })
    // The connection is gone: nobody reads the answer, but the log has it.
    if (this.raw.socket.destroyed) throw new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH()
  })
  app.addHook('onSend', (request, _reply, payload, done) => {
    const { place } = request
    request.place = undefined
    if (place !== undefined) place.then(leave => leave()).catch(() => undefined) // its failure was answered
    done(null, payload)
  })
}
