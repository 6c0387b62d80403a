import type { TObject } from '@sinclair/typebox'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { unavailableFor } from '../db/unavailable.js'
import {
  BodyTooLarge,
  BrokenRequest,
  BuiltinReadOnly,
  ClientGone,
  type Fault,
  Forbidden,
  IdempotencyKeyInUse,
  InvalidRequest,
  NotAuthenticated,
  NotJson,
  PreconditionFailed,
  PreconditionRequired,
  RateLimited,
  RETRY_AFTER_S,
  ResourceNotFound,
  SnapshotTooLarge,
  Unavailable,
  UnsupportedBody,
  VersionGone,
  VersionNotFound,
} from '../errors.js'
import { boundFaults } from '../schema/faults.js'
import { SUGGESTIONS_MAX } from '../schema/nearest-name.js'
import { JSON_TYPE, rateLimitHeaders } from './answer.js'
import type { ErrorCode } from './error-codes.js'
import { faultsOfAllParts, fieldsOfInvalidBody } from './validation.js'
import { addWarnings, misspeltFieldWarning } from './warnings.js'

/** What an error becomes on the wire. `extra` are further members of the body beside code, sentence and request id. */
export interface ErrorAnswer {
  status: number
  code: ErrorCode
  detail: string
  extra?: Record<string, unknown>
  headers?: Readonly<Record<string, string>>
}

/** Realm of the bearer challenge (DECISIONS section 2). */
const REALM = 'Bearer realm="agents"'

/**
 * Turns every error of a request into its answer and status. Faults of the content are 422
 * `{"detail":[...]}`, everything else is `{"error_code","detail","request_id"}`. What the client reads never holds SQL,
 * paths or stack traces; the log has the cause.
 */
export function handleError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const error = readingError(thrown, request) ?? thrown
  if (error instanceof InvalidRequest) {
    request.refusal = 'INVALID_REQUEST'
    const faults = faultsOfAllParts(error, request)
    request.toldOfRefusal = () => ({ setting: settingOf(error, request), faults: toldFaults(faults, request) })
    addWarnings(reply, hintsOf(faults, request))
    reply
      .code(422)
      .type(JSON_TYPE)
      .send(JSON.stringify({ detail: boundFaults(faults) }))
    return
  }
  const answer = answerFor(error, request)
  // The closing line has the cause of a 503, which is understood: where in the program it was met helps nobody.
  const told = answer.status === 503 ? { cause: error, outcome: answer.extra?.outcome } : {}
  request.toldOfRefusal = () => ({ setting: settingOf(error, request), ...told })
  if (answer.status >= 500 && answer.status !== 503)
    request.log.error({ err: error, error_code: answer.code, ...answer.extra }, 'the request failed')
  sendError(request, reply, answer)
}

/** The setting whose bound a request met, for the log; undefined where it was refused for anything else. */
function settingOf(error: unknown, { policy }: FastifyRequest): string | undefined {
  if (error instanceof RateLimited) return error.state.setting
  if (error instanceof BodyTooLarge) return policy?.resource === 'tool' ? 'TOOL_BODY_LIMIT_BYTES' : undefined
  if (error instanceof SnapshotTooLarge) return 'SNAPSHOT_BYTES_MAX'
  if (error instanceof InvalidRequest)
    return error.faults.some(({ type }) => type === 'snapshot_too_large') ? 'SNAPSHOT_BYTES_MAX' : undefined
  if (error instanceof Unavailable) return error.setting
  if (error instanceof BrokenRequest) return error.fault === 'too_slow' ? 'REQUEST_TIMEOUT_MS' : undefined
  return unavailableFor(error)?.setting
}

/** What Fastify says of a body that it could not read, in our words. */
function readingError(error: unknown, { routeOptions }: FastifyRequest): Error | undefined {
  const { code, statusCode } = error as Partial<FastifyError>
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return new BodyTooLarge(routeOptions.bodyLimit ?? 0)
  return code === 'ECONNRESET' && statusCode === 400 ? new ClientGone() : undefined
}

const MASK_HINT = 'to change single fields, name them in update_mask, such as ?update_mask=name'

/**
 * What helps where required fields are missing: that a mask would let them be absent, and which field that is not known
 * means one of them. The body of a 422 is the contract's, and names places only for what is missing: a header says it.
 */
function hintsOf(faults: readonly Fault[], request: FastifyRequest): string[] {
  const missing = faults
    .filter(({ type, loc }) => type === 'missing' && loc[0] === 'body' && loc.length === 2)
    .map(({ loc }) => String(loc[1]))
  if (missing.length === 0) return []
  const { querystring = {}, body = {} } = (request.routeOptions.schema ?? {}) as Schemas // the schemas of routes are ours
  const lacksMask = declares(querystring, 'update_mask') && !Object.hasOwn(request.query as object, 'update_mask')
  const unknown = fieldsOfInvalidBody(request).filter(name => !declares(body, name))
  const meant = unknown.slice(0, SUGGESTIONS_MAX).flatMap(name => misspeltFieldWarning(name, missing))
  return lacksMask ? [MASK_HINT, ...meant] : meant
}

interface Schemas {
  params?: Partial<TObject>
  querystring?: Partial<TObject>
  headers?: Partial<TObject>
  body?: Partial<TObject>
}

const SCHEMA_OF = { path: 'params', query: 'querystring', header: 'headers', body: 'body' } as const

/** The line of the log has so many faults, of the first of all. */
const TOLD_FAULTS_MAX = 5
const FAULTS_LOOKED_AT_MAX = 20

/** The places and types of faults for the log: a name that the schema of the route does not have is the caller's, and left out. */
function toldFaults(faults: readonly Fault[], request: FastifyRequest): string[] {
  const schemas = (request.routeOptions.schema ?? {}) as Schemas // the schemas of routes are ours
  const told = faults.slice(0, FAULTS_LOOKED_AT_MAX).map(({ loc: [part, name], type }) => {
    const schema = schemas[SCHEMA_OF[part as keyof typeof SCHEMA_OF]] ?? {}
    return `${part}${declares(schema, String(name)) ? `.${name}` : ''} ${type}`
  })
  return [...new Set(told)].slice(0, TOLD_FAULTS_MAX)
}

function declares({ properties = {} }: Partial<TObject>, name: string): boolean {
  return Object.hasOwn(properties, name)
}

/** Sends an error in the one shape that everything but 422 has. */
export function sendError(request: FastifyRequest, reply: FastifyReply, answer: ErrorAnswer): void {
  request.refusal = answer.code === 'SERVICE_UNAVAILABLE' ? String(answer.extra?.reason) : answer.code
  const body = { error_code: answer.code, detail: answer.detail, request_id: request.id, ...answer.extra }
  reply
    .code(answer.status)
    .headers(answer.headers ?? {})
    .type(JSON_TYPE)
    .send(JSON.stringify(body))
}

function answerFor(error: unknown, request: FastifyRequest): ErrorAnswer {
  return (
    domainAnswer(error, request) ??
    frameworkAnswer(error) ??
    unavailable(unavailableFor(error), request) ??
    INTERNAL_ERROR
  )
}

/** The answer at an address that no route has. */
export const NOTHING_HERE: ErrorAnswer = {
  status: 404,
  code: 'NOT_FOUND',
  detail: 'There is nothing at this address.',
}

/** The answer at a known address to a method that it does not take; `allow` lists the ones that it does. */
export function methodNotAllowed(allow: string): ErrorAnswer {
  return { status: 405, code: 'METHOD_NOT_ALLOWED', detail: `This address takes ${allow}.`, headers: { allow } }
}

const INTERNAL_ERROR: ErrorAnswer = {
  status: 500,
  code: 'INTERNAL_ERROR',
  detail: 'Something went wrong here. The log has the cause under this request id.',
}

function domainAnswer(error: unknown, request: FastifyRequest): ErrorAnswer | undefined {
  if (error instanceof NotAuthenticated) return authenticationAnswer(error)
  if (error instanceof Forbidden) {
    const challenge = error.scope && `${REALM}, error="insufficient_scope", scope="${error.scope}"`
    const headers = challenge ? { 'www-authenticate': challenge } : {}
    return { status: 403, code: 'INSUFFICIENT_PERMISSIONS', detail: error.message, headers }
  }
  if (error instanceof ResourceNotFound) {
    const code = error.kind === 'persona' ? 'PERSONA_NOT_FOUND' : 'NOT_FOUND'
    return { status: 404, code, detail: error.message }
  }
  if (error instanceof BuiltinReadOnly) return { status: 400, code: 'BUILTIN_READ_ONLY', detail: error.message }
  if (error instanceof SnapshotTooLarge) {
    const detail = `${request.policy?.writes ? 'Nothing was changed. ' : ''}${error.message}`
    return { status: 409, code: 'SNAPSHOT_TOO_LARGE', detail }
  }
  if (error instanceof IdempotencyKeyInUse) {
    const headers = { 'retry-after': String(RETRY_AFTER_S) }
    return { status: 409, code: 'IDEMPOTENCY_KEY_IN_USE', detail: error.message, headers }
  }
  if (error instanceof VersionNotFound) return { status: 404, code: 'VERSION_NOT_FOUND', detail: error.message }
  if (error instanceof VersionGone) {
    return { status: 410, code: 'VERSION_GONE', detail: error.message, extra: { reason: error.reason } }
  }
  if (error instanceof PreconditionFailed) {
    const extra = {
      reason: error.reason,
      current_etag: error.currentTag,
      changed: error.changed,
      applied_etag: typeof error.applied === 'string' ? null : error.applied.tag,
      ...error.merge,
    }
    return { status: 412, code: 'PRECONDITION_FAILED', detail: error.message, extra }
  }
  if (error instanceof UnsupportedBody) return unsupported(error)
  if (error instanceof ClientGone) {
    return { status: 400, code: 'BAD_REQUEST', detail: error.message }
  }
  if (error instanceof PreconditionRequired) {
    return { status: 428, code: 'PRECONDITION_REQUIRED', detail: error.message }
  }
  if (error instanceof BrokenRequest) return brokenAnswer(error)
  if (error instanceof BodyTooLarge) return { status: 413, code: 'PAYLOAD_TOO_LARGE', detail: error.message }
  if (error instanceof RateLimited) {
    request.limit = error.state
    const headers = { 'retry-after': String(error.state.resetS), ...rateLimitHeaders(error.state) }
    return { status: 429, code: 'RATE_LIMITED', detail: error.message, headers }
  }
  return error instanceof Unavailable ? unavailable(error, request) : undefined
}

/** The answer to bytes that HTTP cannot read. */
export function brokenAnswer({ fault, message }: BrokenRequest): ErrorAnswer {
  return { ...BROKEN[fault], detail: message }
}

const BROKEN: Record<BrokenRequest['fault'], Pick<ErrorAnswer, 'status' | 'code'>> = {
  too_slow: { status: 408, code: 'REQUEST_TIMEOUT' },
  address_too_long: { status: 414, code: 'URI_TOO_LONG' },
  headers_too_large: { status: 431, code: 'HEADERS_TOO_LARGE' },
  chunk_extensions_too_large: { status: 413, code: 'PAYLOAD_TOO_LARGE' },
  not_http: { status: 400, code: 'BAD_REQUEST' },
}

function authenticationAnswer(error: NotAuthenticated): ErrorAnswer {
  const suffix = error.code === 'UNAUTHENTICATED' ? '' : `, error="invalid_token", error_description="${error.message}"`
  return { status: 401, code: error.code, detail: error.message, headers: { 'www-authenticate': `${REALM}${suffix}` } }
}

function unsupported({ message, accept }: UnsupportedBody): ErrorAnswer {
  return { status: 415, code: 'UNSUPPORTED_MEDIA_TYPE', detail: message, headers: accept }
}

function unavailable(error: Unavailable | undefined, request: FastifyRequest): ErrorAnswer | undefined {
  if (error === undefined) return undefined
  const mayBeStored = isRepeatable(request) && error.outcome === 'not_applied' && !error.isKeyLookedUp
  const outcome = request.policy?.writes ? { outcome: mayBeStored ? 'unknown' : error.outcome } : {}
  return {
    status: 503,
    code: 'SERVICE_UNAVAILABLE',
    detail: mayBeStored ? `${error.message} ${KEY_NOT_LOOKED_UP}` : error.message,
    extra: { reason: error.reason, ...outcome },
    headers: { 'retry-after': String(RETRY_AFTER_S) },
  }
}

const KEY_NOT_LOOKED_UP =
  'Whether an update with this Idempotency-Key was stored before could not be read: repeat it with the same key.'

/** Whether it may be the repetition of an update that is stored: then "not applied" would be said of that, too. */
function isRepeatable(request: FastifyRequest): boolean {
  const { policy, headers, query } = request
  const { dry_run: dryRun } = query as { dry_run?: unknown } // text, or what validation made of it
  const isDry = dryRun === true || dryRun === 'true'
  return policy?.writes === true && headers['idempotency-key'] !== undefined && !isDry
}

function frameworkAnswer(error: unknown): ErrorAnswer | undefined {
  const { code, statusCode } = error as Partial<FastifyError>
  switch (code) {
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return unsupported(new NotJson())
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return { status: 400, code: 'BAD_REQUEST', detail: 'The body is not as long as Content-Length says.' }
    case 'ERR_STREAM_PREMATURE_CLOSE': // a stream of ours ends early only with its connection
      return { status: 400, code: 'BAD_REQUEST', detail: 'The connection was closed before the answer.' }
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH': // no id is that long
      return NOTHING_HERE
  }
  if (statusCode === 400) return { status: 400, code: 'BAD_REQUEST', detail: 'The request could not be read.' }
  return undefined
}
