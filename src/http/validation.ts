import { type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest, FastifySchema, FastifyTypeProvider, RequestPayload } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { ClientGone, type Fault, InvalidRequest, Refused } from '../errors.js'
import { fault } from '../validation/faults.js'
import { bodyCheck, type ParsedBody, parseJsonBody } from '../validation/json-body.js'
import type { JsonBounds } from '../validation/json-scanner.js'
import { maskReader, type ParameterTexts, parameterReader } from '../validation/parameters.js'
import { preferencesIn } from './parameters.js'

/** The type provider for routes with TypeBox schemas: `app.withTypeProvider<SchemaTypes>()`. */
export interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown
}

const NO_PARAMETERS = Type.Object({})

/**
 * Validates requests against the schemas of their routes. Unlike Fastify's validation, reports the faults of path, query, headers and body together,
 * and does not change bodies. An undeclared query parameter is a fault.
 */
export function registerRequestValidation(app: FastifyInstance): void {
  const checks = new WeakMap<FastifySchema, (request: FastifyRequest) => Fault[]>()
  app.setValidatorCompiler(() => () => true)
  app.addHook('preValidation', (request, _reply, done) => {
    const { schema } = request.routeOptions
    if (schema === undefined) return done()
    const check = checks.get(schema) ?? requestCheck(schema)
    checks.set(schema, check)
    const faults = check(request)
    done(faults.length === 0 ? undefined : new InvalidRequest(faults))
  })
}

/** The kinds of parameters, each with its name in the schema, the request and `loc`. Faults are reported in this order (DECISIONS section 2). */
const PARAMETERS = [
  ['params', 'params', 'path'],
  ['querystring', 'query', 'query'],
  ['headers', 'headers', 'header'],
] as const

/** Returns the function that checks a request. The function stores the parsed values in the request and returns the faults. */
function requestCheck(schema: FastifySchema): (request: FastifyRequest) => Fault[] {
  const { operationId, body, querystring = operationId === undefined ? undefined : NO_PARAMETERS } = schema
  const readers = PARAMETERS.flatMap(([part, name, place]) => {
    const own = { ...schema, querystring }[part] as TObject | undefined // all routes have TypeBox schemas
    return own === undefined ? [] : [{ name, read: parameterReader(own, place) }]
  })
  const checkBody = body === undefined ? undefined : bodyReader(body as TObject, schema)
  return request => {
    const verdict = checkBody?.(request)
    if (verdict !== undefined && 'faults' in verdict && verdict.standsAlone) return verdict.faults
    const faults: Fault[] = []
    for (const { name, read } of readers) {
      const parsed = read(request[name] as ParameterTexts)
      if ('value' in parsed) Object.assign(request, { [name]: parsed.value })
      else faults.push(...parsed.faults)
    }
    if (verdict === undefined) return faults
    if ('value' in verdict) request.body = verdict.value
    else faults.push(...verdict.faults)
    return faults
  }
}

/** Returns the function that checks a body. The `update_mask` in the query determines which fields are required. */
function bodyReader(schema: TObject, { querystring = NO_PARAMETERS, headers: declared }: FastifySchema) {
  const check = bodyCheck(schema)
  const maskIn = maskReader(querystring as TObject)
  const takesPrefer = Object.hasOwn((declared as TObject | undefined)?.properties ?? {}, 'prefer')
  return ({ body, query, headers }: FastifyRequest): ReturnType<typeof check> => {
    const parsed = body as ParsedBody | UnparsedBody | undefined // the body parser returns this type
    if (parsed === undefined) return { faults: [fault('missing', ['body'])], standsAlone: false }
    if (parsed instanceof UnparsedBody) return { value: parsed } // a worker checks the body
    return check(parsed, {
      mask: maskIn(query as ParameterTexts), // strings, or lists for repeated parameters
      strict: takesPrefer && preferencesIn(String(headers.prefer ?? '')).strict,
    })
  }
}

/** The limits of bodies for each kind of resource. Definitions have further limits. */
export const JSON_BOUNDS = {
  persona: { depthMax: 64, nodesMax: 20_000 },
  tool: { depthMax: 256, nodesMax: 1_000_000 },
} as const satisfies Record<ResourceKind, JsonBounds>

/** The bytes of a large body that can contain a definition. A worker parses and checks them. */
export class UnparsedBody {
  constructor(readonly bytes: Buffer) {}
}

export const INLINE_BYTES_MAX = 16 * 1024

/** The size limit of bodies that can contain a definition. */
export const TOOL_BODY_BYTES_MAX = 5 * 2 ** 20

const JSON_TYPE = /^application\/json\s*(;|$)/i

/** Parses JSON bodies. Before a body is read, answers 415 if it is not JSON or is compressed, and 413 if `Content-Length` exceeds the limit. */
export function registerBodyParser(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    // After the connection is closed, the body never emits `end`, even if all of it has arrived.
    if (request.raw.socket.destroyed) return done(new ClientGone())
    if (request.headers['content-type'] === '') delete request.headers['content-type'] // Fastify would refuse an empty value
    const isRead = request.method !== 'GET' && request.method !== 'HEAD'
    const refusal = isRead ? refusalBefore(request) : null
    if (isRead && refusal === null) limitPieces(payload)
    done(refusal, payload)
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, bytes: Buffer, done) => {
    const { takesDefinition = false } = request.policy ?? {}
    const bounds = takesDefinition ? JSON_BOUNDS.tool : JSON_BOUNDS.persona
    const isLarge = takesDefinition && bytes.length > INLINE_BYTES_MAX
    done(null, isLarge ? new UnparsedBody(bytes) : parseJsonBody(bytes, bounds))
  })
}

/** The maximum number of pieces in which a body can arrive. Even a very small piece needs additional memory. */
const BODY_PIECES_MAX = 10_000

function limitPieces(payload: RequestPayload): void {
  let pieces = 0
  const count = () => {
    if (++pieces <= BODY_PIECES_MAX) return
    payload.off('data', count)
    const message = `The body arrived in more than ${BODY_PIECES_MAX} pieces. Send the body in fewer pieces.`
    payload.emit('error', new Refused('PAYLOAD_TOO_LARGE', message)) // Fastify then calls the error handler
  }
  payload.on('data', count)
}

function refusalBefore(request: FastifyRequest): Refused | null {
  const { headers, routeOptions } = request
  const { 'content-type': type, 'content-encoding': coding, 'content-length': length } = headers
  if (length === undefined && headers['transfer-encoding'] === undefined) return null
  if (type !== undefined && !JSON_TYPE.test(type)) return notJson()
  if (coding !== undefined && !/^\s*(identity\s*)?$/i.test(coding))
    return new Refused('UNSUPPORTED_MEDIA_TYPE', 'Send the body without a Content-Encoding.', {
      headers: { 'accept-encoding': 'identity' },
    })
  const { bodyLimit = Number.POSITIVE_INFINITY } = routeOptions
  return Number(length) > bodyLimit ? bodyTooLarge(request) : null // Fastify would close the connection before the client reads the answer
}

/** The error for a body that exceeds the operation's limit. */
export function bodyTooLarge({ headers, routeOptions }: FastifyRequest): Refused {
  const bytes = headers['content-length'] ?? 'too many'
  const message = `The body has ${bytes} bytes. This operation accepts at most ${routeOptions.bodyLimit}.`
  return new Refused('PAYLOAD_TOO_LARGE', message)
}

/** The error for a body whose media type is not `application/json`. */
export function notJson(): Refused {
  const message = 'Send the body as JSON, with the header Content-Type: application/json.'
  return new Refused('UNSUPPORTED_MEDIA_TYPE', message, { headers: { accept: 'application/json' } })
}
