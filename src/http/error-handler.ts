import type { TObject } from '@sinclair/typebox'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { unavailableFor } from '../db/unavailable.js'
import {
  BodyTooLarge,
  BrokenRequest,
  ClientGone,
  ERROR_CODES,
  type ErrorCode,
  type Fault,
  Forbidden,
  IdempotencyKeyInUse,
  InvalidRequest,
  NotAuthenticated,
  NotJson,
  PreconditionFailed,
  RateLimited,
  RETRY_AFTER_S,
  Refused,
  SnapshotTooLarge,
  ToolInUse,
  Unavailable,
  VersionGone,
} from '../errors.js'
import { boundFaults } from '../schema/faults.js'
import { SUGGESTIONS_MAX } from '../schema/nearest-name.js'
import { JSON_TYPE, rateLimitHeaders } from './answer.js'
import { faultsOfAllParts, fieldsOfInvalidBody } from './validation.js'
import { addWarnings, misspeltFieldWarning } from './warnings.js'

/** What an error becomes on the wire, under the status of its code. `extra` are further members of the body. */
export interface ErrorAnswer {
  code: ErrorCode
  detail: string
  extra?: Record<string, unknown> | undefined
  headers?: Readonly<Record<string, string>> | undefined
}

const STATUSES = new Map<ErrorCode, number>(
  Object.entries(ERROR_CODES).flatMap(([status, codes]) => codes.map(code => [code, Number(status)] as const)),
)

/** The status that a code comes with. */
export function statusOf(code: ErrorCode): number {
  return STATUSES.get(code) ?? 500
}

/** Realm of the bearer challenge (DECISIONS section 2). */
const REALM = 'Bearer realm="agents"'

/**
 * Turns every error of a request into its answer: 422 `{"detail":[...]}` for faults of the content, else `{"error_code","detail",
 * "request_id"}`. It never holds SQL, paths or stack traces; the log has the cause.
 */
export function handleError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const error = inOurWords(thrown, request)
  if (error instanceof InvalidRequest) {
    request.refusal = 'INVALID_REQUEST'
    const faults = faultsOfAllParts(error, request)
    request.toldOfRefusal = () => ({ setting: settingOf(error, request), faults: toldFaults(faults, request) })
    addWarnings(reply, hintsOf(faults, request))
    reply
      .code(422)
      .type(JSON_TYPE)
      .send(JSON.stringify({ detail: boundFaults(withMaskNamed(faults, request)) }))
    return
  }
  const answer = answerFor(error, request)
  const status = statusOf(answer.code)
  // The closing line has the cause of a 503, which is understood: where in the program it was met helps nobody.
  const told = status === 503 ? { cause: error, outcome: answer.extra?.outcome } : {}
  request.toldOfRefusal = () => ({ setting: settingOf(error, request), ...told })
  if (status === 500) request.log.error({ err: error, error_code: answer.code, ...answer.extra }, 'the request failed')
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
  if (error instanceof BrokenRequest) return error.code === 'REQUEST_TIMEOUT' ? 'REQUEST_TIMEOUT_MS' : undefined
  return unavailableFor(error)?.setting
}

/** An error of Fastify in our words; any other as it is. */
function inOurWords(error: unknown, { routeOptions }: FastifyRequest): unknown {
  const { code, statusCode } = error as Partial<FastifyError>
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new BodyTooLarge(routeOptions.bodyLimit ?? 0)
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new NotJson()
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new BrokenRequest('BAD_REQUEST', 'The body is not as long as Content-Length says.')
    case 'ERR_STREAM_PREMATURE_CLOSE': // a stream of ours ends early only with its connection
      return new ClientGone()
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH': // no id is that long
      return new BrokenRequest('NOT_FOUND', NOTHING_HERE)
  }
  if (statusCode !== 400 || error instanceof InvalidRequest) return error
  return code === 'ECONNRESET' ? new ClientGone() : new BrokenRequest('BAD_REQUEST', 'The request could not be read.')
}

const MASK_HINT = 'to change single fields, name them in update_mask, such as ?update_mask=name'

/** What helps where required fields are missing: that a mask lets them be absent, and which field a misspelt one means. */
function hintsOf(faults: readonly Fault[], request: FastifyRequest): string[] {
  const missing = faults.filter(lacksField).map(({ loc }) => String(loc[1]))
  if (missing.length === 0) return []
  const { body = {} } = schemasOf(request)
  const unknown = fieldsOfInvalidBody(request).filter(name => !declares(body, name))
  const meant = unknown.slice(0, SUGGESTIONS_MAX).flatMap(name => misspeltFieldWarning(name, missing))
  return lacksMask(request) ? [MASK_HINT, ...meant] : meant
}

/** How many fields the hint at a mask names. */
const MASKED_MAX = 5

/**
 * The faults of an update that lacks only other required fields than it has: the first one says how to change those fields alone, for
 * clients that show no headers.
 */
function withMaskNamed(faults: Fault[], request: FastifyRequest): Fault[] {
  const [first, ...others] = faults
  if (first === undefined || others.length === 0 || !faults.every(lacksField) || !lacksMask(request)) return faults
  const { body = {} } = schemasOf(request)
  const known = fieldsOfInvalidBody(request).filter(name => declares(body, name))
  if (known.length === 0) return faults
  const mask = known.slice(0, MASKED_MAX).join(',')
  return [{ ...first, msg: `${first.msg}. To change single fields, name them: ?update_mask=${mask}` }, ...others]
}

function lacksField({ type, loc }: Fault): boolean {
  return type === 'missing' && loc[0] === 'body' && loc.length === 2
}

/** True for an update that could have a mask and has none. */
function lacksMask(request: FastifyRequest): boolean {
  const { querystring = {} } = schemasOf(request)
  return declares(querystring, 'update_mask') && !Object.hasOwn(request.query as object, 'update_mask')
}

interface Schemas {
  params?: Partial<TObject>
  querystring?: Partial<TObject>
  headers?: Partial<TObject>
  body?: Partial<TObject>
}

function schemasOf({ routeOptions }: FastifyRequest): Schemas {
  return (routeOptions.schema ?? {}) as Schemas // the schemas of routes are ours
}

const SCHEMA_OF = { path: 'params', query: 'querystring', header: 'headers', body: 'body' } as const

/** How many faults a line of the log names, of the first that a request has. */
const TOLD_FAULTS_MAX = 5
const FAULTS_LOOKED_AT_MAX = 20

/** The places and types of faults for the log: a name that the schema of the route does not have is the caller's, and left out. */
function toldFaults(faults: readonly Fault[], request: FastifyRequest): string[] {
  const schemas = schemasOf(request)
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
function sendError(request: FastifyRequest, reply: FastifyReply, answer: ErrorAnswer): void {
  request.refusal = answer.code === 'SERVICE_UNAVAILABLE' ? String(answer.extra?.reason) : answer.code
  const body = { error_code: answer.code, detail: answer.detail, request_id: request.id, ...answer.extra }
  reply
    .code(statusOf(answer.code))
    .headers(answer.headers ?? {})
    .type(JSON_TYPE)
    .send(JSON.stringify(body))
}

/** What is said at an address that no route has. */
export const NOTHING_HERE = 'There is nothing at this address.'

function answerFor(error: unknown, request: FastifyRequest): ErrorAnswer {
  if (error instanceof Refused) {
    const { code, message } = error
    if (error instanceof RateLimited) request.limit = error.state
    const isUnchanged = error instanceof SnapshotTooLarge && request.policy?.writes
    const detail = isUnchanged ? `Nothing was changed. ${message}` : message
    return { code, detail, extra: extraOf(error), headers: headersOf(error) }
  }
  const unable = error instanceof Unavailable ? error : unavailableFor(error)
  if (unable !== undefined) return unavailable(unable, request)
  const detail = 'Something went wrong here. The log has the cause under this request id.'
  return { code: 'INTERNAL_ERROR', detail }
}

/** What the body of a refusal has beside code and sentence. */
function extraOf(error: Refused): ErrorAnswer['extra'] {
  if (error instanceof VersionGone) return { reason: error.reason }
  if (error instanceof ToolInUse) return { agents: error.agents, others: error.others }
  if (!(error instanceof PreconditionFailed)) return undefined
  const { reason, currentTag: current_etag, changed, applied, merge } = error
  return { reason, current_etag, changed, applied_etag: typeof applied === 'string' ? null : applied.tag, ...merge }
}

/** The headers of a refusal. */
function headersOf(error: Refused): ErrorAnswer['headers'] {
  if (error instanceof BrokenRequest) return error.headers
  if (error instanceof NotAuthenticated) {
    const isNone = error.code === 'UNAUTHENTICATED'
    const fault = isNone ? '' : `, error="invalid_token", error_description="${error.message}"`
    return { 'www-authenticate': `${REALM}${fault}` }
  }
  if (error instanceof Forbidden && error.scope !== undefined)
    return { 'www-authenticate': `${REALM}, error="insufficient_scope", scope="${error.scope}"` }
  if (error instanceof RateLimited)
    return { 'retry-after': String(error.state.resetS), ...rateLimitHeaders(error.state) }
  return error instanceof IdempotencyKeyInUse ? { 'retry-after': String(RETRY_AFTER_S) } : undefined
}

function unavailable(error: Unavailable, request: FastifyRequest): ErrorAnswer {
  const mayBeStored = isRepeatable(request) && error.outcome === 'not_applied' && !error.isKeyLookedUp
  const outcome = request.policy?.writes ? { outcome: mayBeStored ? 'unknown' : error.outcome } : {}
  return {
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
