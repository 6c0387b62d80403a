import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { abandonAnswer } from './large-answer.js'
import { heldBytesOf, ownerOf } from './request-memory.js'

/** What all answers together may hold that are written and not read, beside what is reserved for them. */
const UNREAD_BYTES_MAX = 32 * 2 ** 20

/** What an answer holds beside its content until it has gone out: its request, but for the header fields, and what serves it. */
const EXCHANGE_BYTES = 16 * 1024

/** Takes note of an answer that is about to be written; for answers that no hook sees. */
export type WatchAnswer = (request: FastifyRequest, reply: FastifyReply, payload: unknown) => void

/**
 * Bounds the memory of answers that are written as a whole and that their clients do not read: each is small, but there may be one
 * for each connection. Beyond the bound, who holds most loses the one that was written first: its connection ends. What the system
 * takes at once, as it does of nearly every answer, is not counted. Register behind every hook that changes the content of an answer.
 */
export function registerUnreadAnswers(app: FastifyInstance): { watch: WatchAnswer; unread: UnreadAnswers } {
  const unread = new UnreadAnswers()
  const watch: WatchAnswer = (request, reply, payload) => {
    const contentBytes = contentBytesOf(request, payload)
    const note = () => {
      const { socket, destroyed } = reply.raw
      if (destroyed || socket === null || socket.writableLength === 0) return
      const bytes = EXCHANGE_BYTES + headerBytesOf(request) + contentBytes - heldBytesOf(request)
      if (bytes > 0) unread.add(ownerOf(request), reply, bytes)
    }
    reply.raw.on('prefinish', note) // when the end of the answer has been handed to the socket
    if (payload instanceof Readable && !request.isOperation) payload.on('pause', note) // when a part of a page was, and has not left
  }
  app.addHook('onSend', (request, reply, payload, done) => {
    watch(request, reply, payload)
    done(null, payload)
  })
  return { watch, unread }
}

/** The bytes of memory that the content of an answer takes until the system has all of it. */
function contentBytesOf({ isOperation }: FastifyRequest, payload: unknown): number {
  if (typeof payload === 'string') return 3 * payload.length // as much as Node takes to encode it
  if (!Buffer.isBuffer(payload)) return 0 // nothing, or in pieces, for which memory is reserved
  return isOperation ? payload.length : 0 // all answers of a page share its bytes
}

/** Each field of the request is held twice: in the list of all, and by its name. */
function headerBytesOf({ raw }: FastifyRequest): number {
  return raw.rawHeaders.reduce((sum, text) => sum + 2 * text.length, 0)
}

/** The answers of one owner: bytes by reply, in the order in which they were written. */
interface Owned {
  bytes: number
  answers: Map<FastifyReply, number>
}

/** The answers that were written and that the system has not taken yet. */
export class UnreadAnswers {
  readonly #ofOwners = new Map<string, Owned>()
  #bytes = 0

  add(owner: string, reply: FastifyReply, bytes: number): void {
    const owned = this.#ofOwners.get(owner) ?? { bytes: 0, answers: new Map() }
    if (owned.answers.has(reply)) return // the hook may see an answer twice: that of an error in another hook
    this.#ofOwners.set(owner, owned)
    owned.answers.set(reply, bytes)
    owned.bytes += bytes
    this.#bytes += bytes
    reply.raw.once('close', () => this.#delete(owner, owned, reply))
    while (this.#bytes > UNREAD_BYTES_MAX) this.#abandonOfLargest()
  }

  /** The service ends: the connections of all of them end. */
  abandonAll(): void {
    for (const [owner, owned] of this.#ofOwners) {
      for (const reply of owned.answers.keys()) {
        this.#delete(owner, owned, reply)
        abandonAnswer(reply, 'stop')
      }
    }
  }

  #abandonOfLargest(): void {
    let [largest, most] = ['', { bytes: 0, answers: new Map<FastifyReply, number>() }]
    for (const [owner, owned] of this.#ofOwners) if (owned.bytes > most.bytes) [largest, most] = [owner, owned]
    for (const reply of most.answers.keys()) {
      this.#delete(largest, most, reply)
      abandonAnswer(reply, 'memory')
      return
    }
  }

  #delete(owner: string, owned: Owned, reply: FastifyReply): void {
    const bytes = owned.answers.get(reply)
    if (bytes === undefined) return
    owned.answers.delete(reply)
    owned.bytes -= bytes
    this.#bytes -= bytes
    if (owned.answers.size === 0) this.#ofOwners.delete(owner)
  }
}
