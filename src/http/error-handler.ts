import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify'
import { ClientGone, ERROR_CODES, Failed, InvalidRequest, RateLimited, Refused, Unavailable } from '../errors.js'
import { unavailableFor } from '../updates/unavailable.js'
import { boundFaults } from '../validation/faults.js'
import { JSON_TYPE } from './answer.js'
import { bodyTooLarge, notJson } from './validation.js'

const LOGGED_FAULTS_MAX = 5

/**
 * Answers any error. The body of a 422 is `{"detail":[...]}`; other statuses have `{"error_code","detail","request_id"}`. Answers never contain SQL,
 * file paths or stack traces. The cause is only in the log.
 */
export function handleError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const error = inOurWords(thrown, request)
  if (error instanceof InvalidRequest) answerInvalid(error, request, reply)
  else answerRefused(error, request, reply)
}

function answerInvalid(error: InvalidRequest, request: FastifyRequest, reply: FastifyReply): void {
  const { faults } = error
  request.refusal = 'INVALID_REQUEST'
  // The full path of a fault can contain names from the caller, so only the first element of the path and the type are logged.
  const places = new Set(faults.slice(0, 100).map(({ loc, type }) => `${loc[0]} ${type}`))
  request.told = { faults: [...places].slice(0, LOGGED_FAULTS_MAX) }
  const extra = Object.entries(error.extra ?? {}).map(([name, text]) => `,"${name}":${text}`)
  reply.code(422).type(JSON_TYPE)
  reply.send(`{"detail":${JSON.stringify(boundFaults(faults))}${extra.join('')}}`)
}

function answerRefused(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const refused = error instanceof Refused ? error : (unavailableFor(error) ?? new Failed(undefined, error))
  const { code, headers } = refused
  const extra = refused instanceof Unavailable ? outcomeOf(refused, request) : refused.extra
  const status = ERROR_CODES[code]
  request.refusal = refused instanceof Unavailable ? refused.reason : code
  request.told = {
    limit: refused instanceof RateLimited ? refused.limit : undefined,
    // A 503 is an expected failure, so its cause is logged without a stack trace.
    ...(status === 503 && { cause: error, outcome: extra.outcome }),
  }
  if (status === 500) request.log.error({ err: refused.cause, error_code: code }, 'the request failed')
  const isUnchanged = code === 'SNAPSHOT_TOO_LARGE' && request.policy?.writes
  const detail = `${isUnchanged ? 'This request changed nothing. ' : ''}${refused.message}`
  reply.code(status).headers(headers).type(JSON_TYPE)
  reply.send(JSON.stringify({ error_code: code, detail, request_id: request.id, ...extra }))
}

function inOurWords(error: unknown, request: FastifyRequest): unknown {
  const { code, statusCode } = error as Partial<FastifyError>
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return bodyTooLarge(request)
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return notJson()
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new Refused('BAD_REQUEST', 'The length of the body does not match the Content-Length header.')
    case 'ERR_STREAM_PREMATURE_CLOSE': // our streams end early only if the connection is lost
      return new ClientGone()
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH': // valid ids are shorter
      return new Refused('NOT_FOUND', NOTHING_HERE)
  }
  if (statusCode !== 400 || error instanceof InvalidRequest || error instanceof Refused) return error
  return code === 'ECONNRESET' ? new ClientGone() : new Refused('BAD_REQUEST', UNREADABLE)
}

const UNREADABLE = 'The request could not be read. Check its address, headers and body, then send it again.'
const NOTHING_HERE = 'There is nothing at this address. See /docs.'

function outcomeOf(error: Unavailable, request: FastifyRequest): Refused['extra'] {
  const { reason, outcome } = error
  if (!request.policy?.writes && !request.policy?.asksWithin) return { reason }
  const mayBeStored = isRepeatable(request) && outcome === 'not_applied' && !error.isKeyLookedUp
  return mayBeStored ? { reason, outcome: 'unknown' } : { reason, outcome }
}

/** True if the request could repeat a stored update, so that the outcome `not_applied` could be wrong. */
function isRepeatable(request: FastifyRequest): boolean {
  return request.policy?.writes === true && request.headers['idempotency-key'] !== undefined && !isDryRun(request)
}

/** True if the request stores nothing. `dry_run` is a string before validation, and a boolean afterwards. */
export function isDryRun({ query }: FastifyRequest): boolean {
  return String((query as { dry_run?: unknown }).dry_run) === 'true'
}

/** Answers 404 for unknown paths, and 405 with the allowed methods for other methods of known paths. Does not read the body. */
export function registerNotFound(app: FastifyInstance): void {
  const methods = app.supportedMethods.filter(method => method !== 'OPTIONS') as HTTPMethods[] // preflight requests have a route for every path
  const refusalOf = ({ url, method }: FastifyRequest) => {
    const [path = ''] = url.split('?', 1)
    const allowed = methods.filter(one => app.findRoute({ method: one, url: path }) !== null)
    if (allowed.length === 0 || allowed.includes(method as HTTPMethods)) return new Refused('NOT_FOUND', NOTHING_HERE)
    const allow = allowed.sort().join(', ')
    return new Refused('METHOD_NOT_ALLOWED', `This address supports only ${allow}.`, { headers: { allow } })
  }
  app.setNotFoundHandler((request, reply) => handleError(refusalOf(request), request, reply))
  app.addHook('preParsing', (request, _reply, payload, done) => {
    done(request.is404 ? refusalOf(request) : null, payload)
  })
}
