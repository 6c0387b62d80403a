import type { IncomingHttpHeaders } from 'node:http'
import { type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest, FastifySchema, FastifyTypeProvider } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { ClientGone, type Fault, InvalidRequest, Refused } from '../errors.js'
import { fault } from '../validation/faults.js'
import { bodyCheck, type ParsedBody, parseJsonBody } from '../validation/json-body.js'
import type { JsonBounds } from '../validation/json-scanner.js'
import { maskReader, type ParameterTexts, parameterReader } from '../validation/parameters.js'
import { prefersStrict } from './parameters.js'

/** The type provider for routes with TypeBox schemas: `app.withTypeProvider<SchemaTypes>()`. */
export interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown
}

const NO_PARAMETERS = Type.Object({})

/**
 * Validates requests against the schemas of their routes. Reports the faults of all parts, while Fastify would stop at the first invalid part. Does not
 * change bodies. An undeclared query parameter is a fault.
 */
export function registerRequestValidation(app: FastifyInstance): void {
  const checks = new Map<FastifySchema, (request: FastifyRequest) => Fault[]>()
  const schemas = new Set<FastifySchema>()
  app.setValidatorCompiler(() => () => true)
  app.addHook('onRoute', ({ schema }) => {
    if (schema === undefined) return
    if (schema.operationId !== undefined) schema.querystring ??= NO_PARAMETERS
    schemas.add(schema)
  })
  // Waits until the routes below `/api` have changed their schemas.
  app.addHook('onReady', async () => {
    for (const schema of schemas) checks.set(schema, requestCheck(schema))
  })
  app.addHook('preValidation', (request, _reply, done) => {
    const { schema } = request.routeOptions
    const faults = (schema && checks.get(schema)?.(request)) ?? []
    done(faults.length === 0 ? undefined : new InvalidRequest(faults))
  })
}

/** The parts with parameters, as named in the schema, in the request and in `loc`. Answers report faults in this order (DECISIONS section 2). */
const PARAMETERS = [
  ['params', 'params', 'path'],
  ['querystring', 'query', 'query'],
  ['headers', 'headers', 'header'],
] as const

/** Returns the function that checks a request. It stores the parsed values in the request and returns the faults. */
function requestCheck(schema: FastifySchema): (request: FastifyRequest) => Fault[] {
  const readers = PARAMETERS.flatMap(([part, name, place]) => {
    const own = schema[part] as TObject | undefined // all routes have TypeBox schemas
    return own === undefined ? [] : [{ name, read: parameterReader(own, place) }]
  })
  const checkBody = schema.body === undefined ? undefined : bodyReader(schema.body as TObject, schema)
  return request => {
    const body = checkBody?.(request.body as ReceivedBody | undefined) // the body parser returns this type
    if (body !== undefined && 'faults' in body && body.standsAlone) return body.faults
    const faults: Fault[] = []
    for (const { name, read } of readers) {
      const parsed = read(request[name] as ParameterTexts)
      if ('value' in parsed) Object.assign(request, { [name]: parsed.value })
      else faults.push(...parsed.faults)
    }
    if (body === undefined) return faults
    if ('value' in body) request.body = body.value
    else faults.push(...body.faults)
    return faults
  }
}

/** Returns the function that checks a body. The mask in the query determines which fields are required. */
function bodyReader(schema: TObject, route: FastifySchema) {
  const check = bodyCheck(schema)
  const maskIn = maskReader((route.querystring ?? NO_PARAMETERS) as TObject)
  const takesPrefer = Object.hasOwn((route.headers as TObject | undefined)?.properties ?? {}, 'prefer')
  return (received: ReceivedBody | undefined): ReturnType<typeof check> => {
    if (!received) return { faults: [fault('missing', ['body'])], standsAlone: false }
    const { parsed, query, headers } = received
    if (parsed instanceof UnparsedBody) return { value: parsed } // a worker checks it
    return check(parsed, { mask: maskIn(query), strict: takesPrefer && prefersStrict(headers.prefer) })
  }
}

/** The limits of bodies for each kind of resource. Definitions have further limits, and exceeding these is reported with a place. */
export const JSON_BOUNDS = {
  persona: { depthMax: 64, nodesMax: 20_000 },
  tool: { depthMax: 256, nodesMax: 1_000_000 },
} as const satisfies Record<ResourceKind, JsonBounds>

/** The bytes of a large body that can contain a definition. A worker parses and checks them. */
export class UnparsedBody {
  constructor(readonly bytes: Buffer) {}
}

/** A body with the query and headers that determine how it is checked. */
export interface ReceivedBody {
  parsed: ParsedBody | UnparsedBody
  query: ParameterTexts
  headers: IncomingHttpHeaders
}

export const INLINE_BYTES_MAX = 16 * 1024

/** The size limit of bodies that can contain a definition. */
export const TOOL_BODY_BYTES_MAX = 5 * 2 ** 20

const JSON_TYPE = /^application\/json\s*(;|$)/i

/** Parses JSON bodies, and answers 415 for other media types and encodings. Faults of the body are reported together with the faults of path and query. */
export function registerBodyParser(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    // The body of a closed connection never ends, even if all of it has arrived.
    if (request.raw.socket.destroyed) return done(new ClientGone())
    if (request.headers['content-type'] === '') delete request.headers['content-type'] // Fastify would refuse an empty value
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
    const query = request.query as ParameterTexts // the query parser returns texts, or lists for repeated parameters
    done(null, { parsed, query, headers: request.headers } satisfies ReceivedBody)
  })
}

function refusalBefore(request: FastifyRequest): Error | undefined {
  const { headers, routeOptions } = request
  const { 'content-type': type, 'content-encoding': coding, 'content-length': length } = headers
  if (length === undefined && headers['transfer-encoding'] === undefined) return undefined
  if (type !== undefined && !JSON_TYPE.test(type)) return notJson()
  if (coding !== undefined && !/^\s*(identity\s*)?$/i.test(coding))
    return new Refused('UNSUPPORTED_MEDIA_TYPE', 'Send the body without a Content-Encoding.', {
      headers: { 'accept-encoding': 'identity' },
    })
  const { bodyLimit = Number.POSITIVE_INFINITY } = routeOptions
  return Number(length) > bodyLimit ? bodyTooLarge(request, Number(length)) : undefined
}

/** The error for a body that exceeds the operation's limit. `bytes` is the Content-Length if known. */
export function bodyTooLarge({ routeOptions }: FastifyRequest, bytes?: number): Refused {
  const message = `The body has ${bytes ?? 'too many'} bytes. This operation takes at most ${routeOptions.bodyLimit ?? 0}.`
  return new Refused('PAYLOAD_TOO_LARGE', message)
}

/** The error for a body whose media type is not `application/json`. */
export function notJson(): Refused {
  const message = 'Send the body as JSON, with the header Content-Type: application/json.'
  return new Refused('UNSUPPORTED_MEDIA_TYPE', message, { headers: { accept: 'application/json' } })
}
