import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { BodyTooLarge, ClientGone, NotJson, TRY_AGAIN, Unavailable, UnsupportedBody } from '../errors.js'
import { type JsonBounds, type ParsedBody, parseJsonBody } from '../schema/json-body.js'
import type { ParameterTexts } from '../schema/parameters.js'
import { askForBody } from './expectation.js'
import { PackedMessage } from './packed-message.js'

/** What bodies may be, by the kind of resource that they are about. */
export interface BodySettings {
  persona: JsonBounds
  tool: JsonBounds
  /** Learns of the bytes of each body. */
  onRead: (request: FastifyRequest, bytes: number) => void
  /** When the service ends, bodies may still come for three quarters of this time. */
  shutdownTimeoutMs: number
}

/** The bytes of a large body of a tool operation, which has it parsed and checked in a worker. */
export class UnparsedBody {
  constructor(readonly bytes: Buffer) {}
}

/** A body as it came, with what a client may say of it elsewhere: a mask in the query, strict handling in a header. */
export interface ReceivedBody {
  parsed: ParsedBody | UnparsedBody
  query: ParameterTexts
  headers: IncomingHttpHeaders
}

/** Larger bodies of tool operations are parsed in a worker. */
export const INLINE_BYTES_MAX = 16 * 1024

const JSON_TYPE = /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i

/**
 * Bodies are JSON, also where no media type is named; other media types and content codings are 415. The parser answers a
 * `ReceivedBody` rather than throwing, because faults of the body are reported together with those of path and query.
 */
export function registerBodyParser(app: FastifyInstance, settings: BodySettings): void {
  const coming = new Set<IncomingMessage>()
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const { raw, method, is404 } = request
    if (is404 || method === 'GET' || method === 'HEAD') return done(null, payload) // their bodies are not read
    const refusal = refusalBefore(request)
    if (refusal !== undefined) return done(refusal)
    if (!raw.complete) {
      coming.add(raw)
      raw.once('close', () => coming.delete(raw))
    }
    askForBody(raw)
    done(null, payload)
  })
  app.addHook('preClose', async () => {
    const abandon = () => {
      for (const raw of coming) if (raw.listenerCount('error') > 0) raw.emit('error', ended())
    }
    setTimeout(abandon, (settings.shutdownTimeoutMs * 3) / 4).unref()
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, bytes: Buffer, done) => {
    settings.onRead(request, bytes.length)
    const { raw } = request
    if (raw instanceof PackedMessage && raw.cut !== undefined) return done(raw.cut)
    const isAboutTool = request.policy?.resource === 'tool'
    const parsed =
      isAboutTool && bytes.length > INLINE_BYTES_MAX
        ? new UnparsedBody(bytes)
        : parseJsonBody(bytes, isAboutTool ? settings.tool : settings.persona)
    const query = request.query as ParameterTexts // the parser's own: text, or texts where one is repeated
    done(null, { parsed, query, headers: request.headers } satisfies ReceivedBody)
  })
}

/** Why a body is read no further when the service ends. */
function ended(): Unavailable {
  const message = 'The body was still on its way when the service had to end.'
  return new Unavailable('draining', `${message} ${TRY_AGAIN}`, 'not_applied')
}

/** Why a body is refused before it is read. */
function refusalBefore({ raw, headers, routeOptions }: FastifyRequest): Error | undefined {
  const { 'content-type': type, 'content-encoding': coding, 'content-length': length } = headers
  if (length === undefined && headers['transfer-encoding'] === undefined) return undefined
  if (type !== undefined && !JSON_TYPE.test(type)) return new NotJson()
  if (coding !== undefined && !/^\s*(identity\s*)?$/i.test(coding))
    return new UnsupportedBody('Send the body without a Content-Encoding.', { 'accept-encoding': 'identity' })
  const { bodyLimit = Number.POSITIVE_INFINITY } = routeOptions
  if (Number(length) > bodyLimit) return new BodyTooLarge(bodyLimit, Number(length))
  if (raw instanceof PackedMessage && raw.fault !== undefined) return raw.fault
  return raw.destroyed && !raw.complete ? new ClientGone() : undefined
}
