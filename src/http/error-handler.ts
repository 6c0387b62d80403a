import type { TObject } from '@sinclair/typebox'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { unavailableFor } from '../db/unavailable.js'
import {
  ClientGone,
  ERROR_CODES,
  type ErrorCode,
  type Fault,
  InvalidRequest,
  RateLimited,
  Refused,
  Unavailable,
} from '../errors.js'
import { boundFaults } from '../validation/faults.js'
import { SUGGESTIONS_MAX } from '../validation/nearest-name.js'
import { JSON_TYPE } from './answer.js'
import { bodyTooLarge, notJson } from './body.js'
import { faultsOfAllParts, fieldsOfInvalidBody } from './validation.js'
import { addWarnings, misspeltFieldWarning } from './warnings.js'

const STATUSES = new Map<ErrorCode, number>(
  Object.entries(ERROR_CODES).flatMap(([status, codes]) => codes.map(code => [code, Number(status)] as const)),
)

/** The HTTP status of an error code. */
export function statusOf(code: ErrorCode): number {
  return STATUSES.get(code) ?? 500
}

/**
 * Turns every error of a request into its answer: 422 `{"detail":[...]}` for an invalid request, else
 * `{"error_code","detail","request_id"}`. Answers never contain SQL, paths or stack traces; the log has the cause.
 */
export function handleError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const error = inOurWords(thrown, request)
  if (error instanceof InvalidRequest) {
    request.refusal = 'INVALID_REQUEST'
    const faults = faultsOfAllParts(error, request)
    request.toldOfRefusal = () => ({ setting: settingOf(faults), faults: toldFaults(faults, request) })
    addWarnings(reply, hintsOf(faults, request))
    const extra = Object.entries(error.extra ?? {}).map(([name, text]) => `,"${name}":${text}`)
    reply
      .code(422)
      .type(JSON_TYPE)
      .send(`{"detail":${JSON.stringify(boundFaults(withMaskNamed(faults, request)))}${extra.join('')}}`)
    return
  }
  const answer = answerFor(error, request)
  const { code, extra, setting } = answer
  const status = statusOf(code)
  // A 503 is logged with its cause but without a stack: it is an expected failure.
  const told = status === 503 ? { cause: error, outcome: extra.outcome } : {}
  request.toldOfRefusal = () => ({ setting, ...told })
  if (status === 500) request.log.error({ err: error, error_code: code, ...extra }, 'the request failed')
  sendError(request, reply, answer)
}

/** The setting that limits the request, for the log; undefined if the faults have another reason. */
function settingOf(faults: readonly Fault[]): string | undefined {
  return faults.some(({ type }) => type === 'snapshot_too_large') ? 'SNAPSHOT_BYTES_MAX' : undefined
}

/** Translates errors of Fastify into our own; others are returned unchanged. */
function inOurWords(error: unknown, request: FastifyRequest): unknown {
  const { code, statusCode } = error as Partial<FastifyError>
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return bodyTooLarge(request)
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return notJson()
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new Refused('BAD_REQUEST', 'The body is not as long as Content-Length says.')
    case 'ERR_STREAM_PREMATURE_CLOSE': // a stream of ours ends early only with its connection
      return new ClientGone()
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH': // an id is never that long
      return new Refused('NOT_FOUND', NOTHING_HERE)
  }
  if (statusCode !== 400 || error instanceof InvalidRequest) return error
  return code === 'ECONNRESET' ? new ClientGone() : new Refused('BAD_REQUEST', 'The request could not be read.')
}

const MASK_HINT = 'to change single fields, name them in update_mask, such as ?update_mask=name'

/** Hints for missing required fields: use a mask, or correct a misspelt name. */
function hintsOf(faults: readonly Fault[], request: FastifyRequest): string[] {
  const missing = faults.filter(lacksField).map(({ loc }) => String(loc[1]))
  if (missing.length === 0) return []
  const { body = {} } = schemasOf(request)
  const unknown = fieldsOfInvalidBody(request).filter(name => !declares(body, name))
  const meant = unknown.slice(0, SUGGESTIONS_MAX).flatMap(name => misspeltFieldWarning(name, missing))
  return lacksMask(request) ? [MASK_HINT, ...meant] : meant
}

/** The most fields in the hint about a mask. */
const MASKED_MAX = 5

/** If an update only lacks required fields, adds the mask of the given ones to the first fault, for clients that do not show headers. */
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

/** True if the operation has a mask and the request does not use it. */
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
  return (routeOptions.schema ?? {}) as Schemas // all routes have TypeBox schemas
}

const SCHEMA_OF = { path: 'params', query: 'querystring', header: 'headers', body: 'body' } as const

/** The most faults in one log line. */
const TOLD_FAULTS_MAX = 5
const FAULTS_LOOKED_AT_MAX = 20

/** The places and types of faults for the log. Names that the schema does not have come from the caller, and are left out. */
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

/** Sends an error in the shape of all errors except 422. */
function sendError(request: FastifyRequest, reply: FastifyReply, { code, message, extra, headers }: Refused): void {
  request.refusal = code === 'SERVICE_UNAVAILABLE' ? String(extra.reason) : code
  const isUnchanged = code === 'SNAPSHOT_TOO_LARGE' && request.policy?.writes
  const detail = isUnchanged ? `Nothing was changed. ${message}` : message
  reply
    .code(statusOf(code))
    .headers(headers)
    .type(JSON_TYPE)
    .send(JSON.stringify({ error_code: code, detail, request_id: request.id, ...extra }))
}

export const NOTHING_HERE = 'There is nothing at this address.'

function answerFor(error: unknown, request: FastifyRequest): Refused {
  const refused = error instanceof Refused ? error : unavailableFor(error)
  if (refused instanceof RateLimited) request.limit = refused.state
  if (refused instanceof Unavailable) return unavailable(refused, request)
  const detail = 'Something went wrong here. The log has the cause under this request id.'
  return refused ?? new Refused('INTERNAL_ERROR', detail)
}

/** The 503 of an operation. If it writes, the answer has the outcome. */
function unavailable(error: Unavailable, request: FastifyRequest): Refused {
  if (!request.policy?.writes && !request.policy?.asksWithin) return error
  const { code, message, headers, setting, reason, outcome } = error
  const mayBeStored = isRepeatable(request) && outcome === 'not_applied' && !error.isKeyLookedUp
  const detail = mayBeStored ? `${message} ${KEY_NOT_LOOKED_UP}` : message
  return new Refused(code, detail, {
    headers,
    setting,
    extra: { reason, outcome: mayBeStored ? 'unknown' : outcome },
  })
}

const KEY_NOT_LOOKED_UP =
  'Whether a request with this Idempotency-Key was stored before could not be read: repeat it with the same key.'

/** True if the request may repeat an update that is stored. Then "not applied" would be wrong. */
function isRepeatable(request: FastifyRequest): boolean {
  const { policy, headers, query } = request
  const { dry_run: dryRun } = query as { dry_run?: unknown } // text, or a boolean after validation
  const isDry = dryRun === true || dryRun === 'true'
  return policy?.writes === true && headers['idempotency-key'] !== undefined && !isDry
}
