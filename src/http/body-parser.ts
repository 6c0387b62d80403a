import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ClientGone, type Fault, NotJson, TRY_AGAIN, Unavailable, UnsupportedBody } from '../errors.js'
import { jsonBodySteps, type ParsedBody, parseJsonBody } from '../schema/json-body.js'
import type { ParameterTexts } from '../schema/parameters.js'
import { type BodyBounds, BodyReader, type BodyShares, SMALL_BYTES, type WholeBody } from './body-reader.js'
import { BodyTurns } from './body-turns.js'
import { askForBody } from './expectation.js'
import { heldBytesOf, ownerOf } from './request-memory.js'
import { whenOver } from './requests-in-flight.js'
import type { Shared, Unfinished, UnfinishedTransfers } from './unfinished-transfers.js'

/** What bodies may be, by the kind of resource that they are about. */
export interface BodySettings {
  persona: BodyBounds
  tool: BodyBounds
  /** Learns of the bytes of each body as they come. */
  onRead: (request: FastifyRequest, bytes: number) => void
  /** Has each body that is still on its way. */
  unfinished: UnfinishedTransfers
  /** How much there is of what all requests share, and the setting that says so. */
  shared: Readonly<Record<Shared, { words: string; setting: string }>>
}

/**
 * The bytes of a body that is too large to be parsed between two other requests. Its operation has that done in another thread;
 * faults of the body are reported where the rest of the request has none.
 */
export class UnparsedBody {
  constructor(
    readonly bytes: Buffer,
    readonly hasPlainNumbers = false,
  ) {}
}

/** A body as it came, with what a client may say of it elsewhere: a mask in the query, strict handling in a header. */
export interface ReceivedBody {
  parsed: ParsedBody | UnparsedBody
  query: ParameterTexts
  headers: IncomingHttpHeaders
}

const JSON_TYPE = /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i

/**
 * Bodies are JSON and nothing else, also where no media type is named; other media types and content codings are 415. The
 * parser answers a `ReceivedBody` rather than throwing, because a fault of the body is reported together with those of path
 * and query; the schema of the route makes the value of it that the handler gets.
 */
export function registerBodyParser(app: FastifyInstance, settings: BodySettings): void {
  const { unfinished } = settings
  const turns = new BodyTurns()
  const large = new Tally()
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(JSON_TYPE, parse)
  app.addContentTypeParser('*', (request, stream, done) => {
    if (request.headers['content-type'] === undefined) parse(request, stream, done)
    else if (request.is404) done(null)
    else done(new NotJson())
  })

  function parse(request: FastifyRequest, stream: IncomingMessage, done: Done): void {
    if (request.is404) {
      done(null)
      return
    }
    const coding = request.headers['content-encoding']
    if (coding !== undefined && !/^\s*(identity\s*)?$/i.test(coding)) {
      done(new UnsupportedBody('Send the body without a Content-Encoding.', { 'accept-encoding': 'identity' }))
      return
    }
    const bounds = isAboutTool(request) ? settings.tool : settings.persona
    const announced = request.headers['content-length']
    let endLarge: (() => void) | undefined
    let endWait: (() => void) | undefined
    let unnotedBytes = 0
    const shares: BodyShares = {
      onRead: bytes => {
        settings.onRead(request, bytes)
        unnotedBytes += bytes
        if (unnotedBytes < PROGRESS_BYTES) return
        unnotedBytes = 0
        unfinished.renew(transfer)
      },
      reserveMemory: bytes => request.reserveMemory(bytes, 'body'),
      awaitMemory: (bytes, begin, failed) => {
        unfinished.pause(transfer)
        const haveBegun = () => {
          unfinished.resume(transfer)
          begin()
        }
        endWait = request.awaitMemory(bytes, haveBegun, failed)
      },
      releaseMemory: bytes => {
        if (bytes === undefined) endWait?.()
        request.releaseMemory(bytes)
      },
      beginLarge: () => {
        const owner = ownerOf(request)
        endLarge = () => large.delete(owner)
        return large.add(owner) === 1
      },
      takeTurn: (usedMs, work, failed) => {
        unfinished.pause(transfer)
        const inTurn = () => {
          unfinished.resume(transfer)
          work()
        }
        turns.take(ownerOf(request), inTurn, { usedMs, waiter: request }).catch(failed)
      },
      askForBody: () => askForBody(request.raw),
    }
    const reader = new BodyReader(stream, announced, bounds, shares, (error, body) => {
      unfinished.delete(transfer)
      endLarge?.()
      if (body === undefined) done(error)
      else if ('beyond' in body) done(null, received(request, refused(body.beyond)))
      else if (isForThread(request, body))
        done(null, received(request, new UnparsedBody(body.bytes, body.hasPlainNumbers)))
      else if (isDear(body)) parseInTurns(request, body, done)
      else done(null, received(request, parseJsonBody(body.bytes, isPlain(request, body))))
    })
    const transfer: Unfinished = {
      kind: 'body',
      owner: ownerOf(request),
      heldBytes: () => heldBytesOf(request),
      shrink: () => reader.shrink(),
      abandon: reason => reader.abandon(reason === 'stop' ? ended() : needed(settings.shared[reason])),
    }
    if (!stream.complete) unfinished.add(transfer)
    reader.start()
  }

  /** Each step in a turn of its own. What Fastify makes of the body is made in the last: it is checked, and mostly refused, before `done` returns. */
  function parseInTurns(request: FastifyRequest, body: WholeBody, done: Done): void {
    let steps: ReturnType<typeof jsonBodySteps> | undefined = jsonBodySteps(body.bytes, isPlain(request, body))
    whenOver(request, () => {
      steps = undefined // its memory is not reserved any more
    })
    const takeStep = () => {
      const step = steps?.next()
      if (step === undefined) done(new ClientGone())
      else if (step.done) {
        request.isInBodyTurn = true
        done(null, received(request, step.value))
      } else takeTurn(0)
    }
    const takeTurn = (expectedMs: number) => {
      turns.take(ownerOf(request), takeStep, { expectedMs, waiter: request }).catch(done)
    }
    takeTurn(parseMs(body))
  }
}

/** Why a body is read no further when the service ends. */
function ended(): Unavailable {
  const message = 'The body was still on its way when the service had to end.'
  return new Unavailable('draining', `${message} ${TRY_AGAIN}`, 'not_applied')
}

/** Why it is read no further when others need what it holds. */
function needed({ words, setting }: { words: string; setting: string }): Unavailable {
  const message = `The body was still on its way when others needed room: ${words} of all callers together are taken.`
  return new Unavailable('overloaded', `${message} ${TRY_AGAIN}`, 'not_applied', { setting })
}

/** Counts things by their names. */
class Tally {
  readonly #counts = new Map<string, number>()

  /** Answers how many there are with this one. */
  add(name: string): number {
    const count = (this.#counts.get(name) ?? 0) + 1
    this.#counts.set(name, count)
    return count
  }

  delete(name: string): void {
    const count = (this.#counts.get(name) ?? 0) - 1
    if (count > 0) this.#counts.set(name, count)
    else this.#counts.delete(name)
  }
}

/** Where Fastify goes on. */
type Done = (error: Error | null, body?: ReceivedBody) => void

/** Who sends so much has done something: a byte now and then is nothing. */
const PROGRESS_BYTES = 16 * 1024

/** Ordinary bodies are shorter. */
const DEAR_BYTES = 8 * 1024
/** Lists and texts of a body that take long to parse, and faults of them to collect; the largest list of ids has half as many. */
const DEAR_NODES = 4_000

/** About how long it takes to parse a body and to refuse it: every node may be a fault. In ms. */
function parseMs({ bytes, nodes }: WholeBody): number {
  return bytes.length / 100_000 + nodes / 1_500
}

/** Whether it takes long to parse a body and to check it; ordinary ones take some ten microseconds. */
function isDear({ bytes, nodes }: WholeBody): boolean {
  return bytes.length > DEAR_BYTES || nodes > DEAR_NODES
}

/** Definitions take longer to check than to parse. */
function isForThread(request: FastifyRequest, { bytes }: WholeBody): boolean {
  return isAboutTool(request) && bytes.length > SMALL_BYTES
}

function received(request: FastifyRequest, parsed: ReceivedBody['parsed']): ReceivedBody {
  const query = request.query as ParameterTexts // the parser's own: text, or texts where one is repeated
  return { parsed, query, headers: request.headers }
}

/** How numbers are written matters in definitions only. */
function isPlain(request: FastifyRequest, { hasPlainNumbers }: WholeBody): boolean {
  return hasPlainNumbers || !isAboutTool(request)
}

function isAboutTool({ policy }: FastifyRequest): boolean {
  return policy?.resource === 'tool'
}

function refused(fault: Fault): ParsedBody {
  return { kind: 'refused', faults: [fault] }
}
