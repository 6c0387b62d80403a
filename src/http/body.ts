import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { ClientGone, Refused } from '../errors.js'
import { type JsonBounds, type ParsedBody, parseJsonBody } from '../schema/json-body.js'
import type { ParameterTexts } from '../schema/parameters.js'

/** What bodies may hold, by the kind of resource. A tool's definition is bounded again by its check, which tells the place. */
export const JSON_BOUNDS = {
  persona: { depthMax: 64, nodesMax: 20_000, keyBytesMax: 1_024 },
  tool: { depthMax: 256, nodesMax: 1_000_000, keyBytesMax: 48 * 1_024 },
} as const satisfies Record<ResourceKind, JsonBounds>

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

const JSON_TYPE = /^application\/json\s*(;|$)/i

/** Bodies are JSON; other media types and codings are 415. Faults of a body are answered with those of path and query: nothing throws. */
export function registerBodyParser(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    // The body of a closed connection never ends, also one that has come whole.
    if (request.exchange.isGone) return done(new ClientGone())
    if (request.headers['content-type'] === '') delete request.headers['content-type'] // Fastify would refuse it
    const isRead = !request.is404 && !namesNothing(request) && request.method !== 'GET' && request.method !== 'HEAD'
    const refusal = isRead ? refusalBefore(request) : undefined
    if (refusal !== undefined) return done(refusal)
    done(null, payload)
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, bytes: Buffer, done) => {
    const isAboutTool = request.policy?.resource === 'tool'
    const parsed =
      isAboutTool && bytes.length > INLINE_BYTES_MAX
        ? new UnparsedBody(bytes)
        : parseJsonBody(bytes, isAboutTool ? JSON_BOUNDS.tool : JSON_BOUNDS.persona)
    const query = request.query as ParameterTexts // the parser's own: text, or texts where one is repeated
    done(null, { parsed, query, headers: request.headers } satisfies ReceivedBody)
  })
}

/** Addresses of the published product that stand where an id would: its clients ask for them, and mean no id. */
const NO_ID: readonly unknown[] = ['labels', 'openapi', 'upload-image']

/** True for an address that names no agent or tool, such as `/persona/`, and for a read of one such as `/persona/labels`. */
export function namesNothing({ params, method }: FastifyRequest): boolean {
  const isRead = method === 'GET' || method === 'HEAD'
  return Object.values(params ?? {}).some(part => part === '' || (isRead && NO_ID.includes(part)))
}

/** Why a body is refused before it is read. */
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

/** The body is larger than its operation takes. `bytes`: what Content-Length says, where it does. */
export function bodyTooLarge({ routeOptions, policy }: FastifyRequest, bytes?: number): Refused {
  const found = bytes ?? 'more'
  const message = `The body has ${found} bytes, and this operation takes at most ${routeOptions.bodyLimit ?? 0}.`
  const setting = policy?.resource === 'tool' ? 'TOOL_BODY_LIMIT_BYTES' : undefined
  return new Refused('PAYLOAD_TOO_LARGE', message, { setting })
}

/** The body has another media type than `application/json`. */
export function notJson(type = ''): Refused {
  const patch = /patch\+json/i.test(type) ? 'Patch documents are not read: send the fields to change. ' : ''
  const message = `${patch}Send the body as JSON, with the header Content-Type: application/json.`
  return new Refused('UNSUPPORTED_MEDIA_TYPE', message, { headers: { accept: 'application/json' } })
}
