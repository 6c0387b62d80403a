import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { ClientGone, Refused } from '../errors.js'
import { type ParsedBody, parseJsonBody } from '../validation/json-body.js'
import type { JsonBounds } from '../validation/json-scanner.js'
import type { ParameterTexts } from '../validation/parameters.js'

/** Limits on bodies, by kind of resource. A tool's definition has further limits, which report the place of a fault. */
export const JSON_BOUNDS = {
  persona: { depthMax: 64, nodesMax: 20_000 },
  tool: { depthMax: 256, nodesMax: 1_000_000 },
} as const satisfies Record<ResourceKind, JsonBounds>

/** A large body that may hold a definition, as bytes. A worker parses and checks it. */
export class UnparsedBody {
  constructor(readonly bytes: Buffer) {}
}

/** A body, with the query and headers that decide how it is checked: a mask, and strict handling. */
export interface ReceivedBody {
  parsed: ParsedBody | UnparsedBody
  query: ParameterTexts
  headers: IncomingHttpHeaders
}

export const INLINE_BYTES_MAX = 16 * 1024

/** The largest body of an operation that takes a definition. */
export const TOOL_BODY_BYTES_MAX = 5 * 2 ** 20

const JSON_TYPE = /^application\/json\s*(;|$)/i

/**
 * Parses JSON bodies; other media types and encodings are 415. Faults of the body do not throw here: they are reported together with those
 * of path and query.
 */
export function registerBodyParser(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    // The body of a closed connection never ends, even if all of it has arrived.
    if (request.raw.socket.destroyed) return done(new ClientGone())
    if (request.headers['content-type'] === '') delete request.headers['content-type'] // Fastify would refuse an empty one
    const isRead = !request.is404 && request.method !== 'GET' && request.method !== 'HEAD'
    const refusal = isRead ? refusalBefore(request) : undefined
    if (refusal === undefined) done(null, payload)
    else done(refusal)
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, bytes: Buffer, done) => {
    const { takesDefinition = false } = request.policy ?? {}
    const parsed =
      takesDefinition && bytes.length > INLINE_BYTES_MAX
        ? new UnparsedBody(bytes)
        : parseJsonBody(bytes, takesDefinition ? JSON_BOUNDS.tool : JSON_BOUNDS.persona)
    const query = request.query as ParameterTexts // made by the query parser: a text, or a list for a repeated parameter
    done(null, { parsed, query, headers: request.headers } satisfies ReceivedBody)
  })
}

/** Returns an error if the headers show that the body must be refused, before it is read. */
function refusalBefore(request: FastifyRequest): Error | undefined {
  const { headers, routeOptions } = request
  const { 'content-type': type, 'content-encoding': coding, 'content-length': length } = headers
  if (length === undefined && headers['transfer-encoding'] === undefined) return undefined
  if (type !== undefined && !JSON_TYPE.test(type)) return notJson(type)
  if (coding !== undefined && !/^\s*(identity\s*)?$/i.test(coding))
    return new Refused('UNSUPPORTED_MEDIA_TYPE', 'Send the body without a Content-Encoding.', {
      headers: { 'accept-encoding': 'identity' },
    })
  const { bodyLimit = Number.POSITIVE_INFINITY } = routeOptions
  return Number(length) > bodyLimit ? bodyTooLarge(request, Number(length)) : undefined
}

/** The refusal of a body above the operation's limit. `bytes` is its Content-Length, if known. */
export function bodyTooLarge({ routeOptions }: FastifyRequest, bytes?: number): Refused {
  const message = `The body has ${bytes ?? 'more'} bytes, and this operation takes at most ${routeOptions.bodyLimit ?? 0}.`
  return new Refused('PAYLOAD_TOO_LARGE', message)
}

/** The refusal of a body with a media type other than `application/json`. */
export function notJson(type = ''): Refused {
  const patch = /patch\+json/i.test(type) ? 'Patch documents are not read: send the fields to change. ' : ''
  const message = `${patch}Send the body as JSON, with the header Content-Type: application/json.`
  return new Refused('UNSUPPORTED_MEDIA_TYPE', message, { headers: { accept: 'application/json' } })
}
