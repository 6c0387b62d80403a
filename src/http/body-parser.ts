import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Fault, NotJson, UnsupportedBody } from '../errors.js'
import { fault } from '../schema/faults.js'
import { type ParsedBody, parseJsonBody } from '../schema/json-body.js'
import type { ParameterTexts } from '../schema/parameters.js'
import { type BodyBounds, BodyReader, FREE_BYTES, type ReadBody } from './body-reader.js'
import type { UnfinishedBodies } from './unfinished-bodies.js'

/** What bodies may be, by the kind of resource that they are about. */
export interface BodySettings {
  persona: BodyBounds
  tool: BodyBounds
  /** Learns how many bytes of each body were read. */
  onRead: (request: FastifyRequest, bytes: number) => void
  /** Has each body that is still on its way. */
  unfinished: UnfinishedBodies
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
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(JSON_TYPE, parse)
  app.addContentTypeParser('*', (request, stream, done) => {
    if (request.headers['content-type'] === undefined) parse(request, stream, done)
    else if (request.is404) done(null)
    else done(new NotJson())
  })

  function parse(
    request: FastifyRequest,
    stream: IncomingMessage,
    done: (error: Error | null, body?: unknown) => void,
  ): void {
    const coding = request.headers['content-encoding']
    if (coding !== undefined && !/^\s*(identity\s*)?$/i.test(coding)) {
      done(new UnsupportedBody('Send the body without a Content-Encoding.', { 'accept-encoding': 'identity' }))
      return
    }
    const bounds = isAboutTool(request) ? settings.tool : settings.persona
    const announced = request.headers['content-length']
    const reserveMemory = (bytes: number) => request.reserveMemory(bytes)
    const reader = new BodyReader(stream, announced, bounds, reserveMemory, (error, body) => {
      unfinished.delete(reader)
      settings.onRead(request, reader.receivedBytes)
      if (body === undefined) done(error)
      else done(null, received(request, body))
    })
    if (!stream.complete) unfinished.add(reader)
    reader.start()
  }
}

function received(request: FastifyRequest, body: ReadBody): ReceivedBody {
  const query = request.query as ParameterTexts // the parser's own: text, or texts where one is repeated
  return { parsed: parsedBody(request, body), query, headers: request.headers }
}

function parsedBody(request: FastifyRequest, body: ReadBody): ParsedBody | UnparsedBody {
  if ('beyond' in body) return refused(fault(body.beyond, ['body']))
  const isLarge = isAboutTool(request) && body.bytes.length > FREE_BYTES // an agent's body has few nodes at any size
  return isLarge ? new UnparsedBody(body.bytes, body.hasPlainNumbers) : parseJsonBody(body.bytes, body.hasPlainNumbers)
}

function isAboutTool({ policy }: FastifyRequest): boolean {
  return policy?.resource === 'tool'
}

function refused(fault: Fault): ParsedBody {
  return { kind: 'refused', faults: [fault] }
}
