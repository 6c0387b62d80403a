import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { UnavailableReason } from '../errors.js'
import type { AnswerText } from '../updates/answer-text.js'
import { countBytes } from './limits.js'
import { heldBytesOf, ownerOf } from './request-memory.js'
import { whenOver } from './requests-in-flight.js'
import { RoundRobin } from './round-robin.js'
import type { AbandonedFor, Unfinished, UnfinishedTransfers } from './unfinished-transfers.js'

/** A longer answer is sent in pieces of so many characters or bytes. */
const PIECE_LENGTH = 128 * 1024

declare module 'fastify' {
  interface FastifyReply {
    /** Notes that an answer, or the next part of it, is to be sent: whose client takes nothing of it for a second may have to make room. */
    noteProgress(): void
    /** What `noteProgress` noted. */
    unfinishedAnswer: Unfinished | undefined
    /** Why the service ended the connection in this answer; undefined where it did not. */
    cutOffFor: AbandonedFor | undefined
  }
}

/**
 * Sends long answers in pieces, each when the one before has left, with turns for others between them. At once the encoding of
 * one with several MiB would hold up every other request for tens of milliseconds. Until they have gone out they hold memory. Pages, whose
 * bytes all answers share, are sent likewise. Register behind every hook that looks at the text of an answer.
 */
export function registerLargeAnswers(app: FastifyInstance, unfinished: UnfinishedTransfers): void {
  const pages = new Pages()
  app.decorateReply('unfinishedAnswer', undefined)
  app.decorateReply('cutOffFor', undefined)
  app.decorateReply('noteProgress', function (this: FastifyReply) {
    if (this.unfinishedAnswer !== undefined) return unfinished.renew(this.unfinishedAnswer)
    const { request } = this
    const answer: Unfinished = {
      kind: 'answer',
      owner: ownerOf(request),
      heldBytes: () => heldBytesOf(request),
      abandon: reason => abandonAnswer(this, reason),
    }
    this.unfinishedAnswer = answer
    unfinished.add(answer)
    whenOver(request, () => unfinished.delete(answer))
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    const isMade = typeof payload === 'string' || Buffer.isBuffer(payload)
    if (!isMade || payload.length <= PIECE_LENGTH) return done(null, payload)
    if (Buffer.isBuffer(payload) && !request.isOperation) {
      reply.header('content-length', payload.length)
      const page = request.method === 'HEAD' ? payload.subarray(0, 0) : payload
      return done(null, new Page(page, waiting => pages.send(waiting, ownerOf(request))))
    }
    try {
      request.holdAnswer(Buffer.byteLength(payload))
    } catch (error) {
      return done(error as Error) // it throws nothing else
    }
    done(null, inPieces(reply, { pieces: [payload] }))
  })
}

/** Others need its memory, or the service ends: the connection ends, as nothing else can be said any more. */
export function abandonAnswer(reply: FastifyReply, reason: AbandonedFor): void {
  const { request, raw } = reply
  request.refusal = (reason === 'stop' ? 'draining' : 'overloaded') satisfies UnavailableReason
  reply.cutOffFor = reason
  if (request.reservedMemory !== undefined) request.releaseMemory() // where no hook ran, it has neither
  raw.destroy()
  if (request.operation === undefined) request.log.info({ refusal: request.refusal }, tellCutOff(reply)) // no hook tells of it
}

/** What the log says of an answer that the service cut off; undefined where it did not. */
export function tellCutOff({ cutOffFor }: FastifyReply): string | undefined {
  if (cutOffFor === undefined) return undefined
  return `the answer was cut off: ${cutOffFor === 'stop' ? 'the service ends' : 'others need its memory'}`
}

/** What a handler answers to send a snapshot, of which it has reserved the memory: a short one at once, a long one in pieces. */
export function answerText(reply: FastifyReply, snapshot: AnswerText): Buffer | Readable {
  if (snapshot.length <= PIECE_LENGTH) {
    if (heldBytesOf(reply.request) > 0) reply.noteProgress()
    return snapshot.toBuffer()
  }
  countBytes(reply.request, snapshot.length)
  return inPieces(reply, snapshot)
}

function inPieces(reply: FastifyReply, { pieces }: Pick<AnswerText, 'pieces'>): Readable {
  reply.header(
    'content-length',
    pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0),
  )
  if (reply.request.method === 'HEAD') return Readable.from([])
  return Readable.from(sent(reply, pieces), { objectMode: false, highWaterMark: PIECE_LENGTH })
}

async function* sent(reply: FastifyReply, texts: readonly (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const piece of piecesOf(texts)) {
    await turn()
    reply.noteProgress()
    yield typeof piece === 'string' ? Buffer.from(piece) : piece
  }
}

/**
 * Pages that are on their way, of which one piece is sent in each turn of the event loop: of who asks for them in turns, for anybody can
 * ask for many, and a system takes megabytes of each whose client reads nothing.
 */
class Pages {
  readonly #waiting = new RoundRobin<string, Page>()
  #isUnderWay = false

  /** Has the next piece of a page sent. `owner`: who asked for it. */
  send(page: Page, owner: string): void {
    this.#waiting.add(owner, page)
    if (!this.#isUnderWay) setImmediate(this.#sendNext)
    this.#isUnderWay = true
  }

  readonly #sendNext = (): void => {
    let page = this.#waiting.next()
    while (page?.destroyed) page = this.#waiting.next()
    page?.sendPiece()
    this.#isUnderWay = this.#waiting.size > 0
    if (this.#isUnderWay) setImmediate(this.#sendNext)
  }
}

/** A page that is sent in pieces. */
class Page extends Readable {
  readonly #bytes: Buffer
  readonly #wait: (page: Page) => void
  #at = 0

  constructor(bytes: Buffer, wait: (page: Page) => void) {
    super({ highWaterMark: PIECE_LENGTH })
    this.#bytes = bytes
    this.#wait = wait
  }

  override _read(): void {
    this.#wait(this)
  }

  sendPiece(): void {
    const piece = this.#bytes.subarray(this.#at, this.#at + PIECE_LENGTH)
    this.#at += piece.length
    this.push(piece.length > 0 ? piece : null)
  }
}

/** Texts in pieces of about one length: short texts are put together, and long ones divided, but no character. */
export function* piecesOf(texts: Iterable<string | Buffer>): Generator<string | Buffer> {
  let short = ''
  for (const text of texts) {
    const isShort = typeof text === 'string' && text.length <= PIECE_LENGTH
    if (short !== '' && !(isShort && short.length + text.length <= PIECE_LENGTH)) {
      yield short
      short = ''
    }
    if (isShort) short += text
    else yield* partsOf(text)
  }
  if (short !== '') yield short
}

function* partsOf(long: string | Buffer): Generator<string | Buffer> {
  for (let from = 0; from < long.length; ) {
    const end = from + PIECE_LENGTH
    const to = typeof long === 'string' && isSplitPair(long, end) ? end + 1 : end
    yield typeof long === 'string' ? long.slice(from, to) : long.subarray(from, to)
    from = to
  }
}

/** Whether the two halves of one character are on both sides of this place. */
function isSplitPair(text: string, at: number): boolean {
  return (text.codePointAt(at - 1) ?? 0) > 0xffff
}

let lastTurn: Promise<void> = Promise.resolve()

/**
 * Lets other requests go on. Of all the long work that waits here one piece is done in each turn of the event loop, in the
 * order of asking: more long answers at once take longer, and hold nobody else up for longer.
 */
function turn(): Promise<void> {
  lastTurn = lastTurn.then(() => nextTurn())
  return lastTurn
}
