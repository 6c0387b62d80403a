import type { IncomingMessage } from 'node:http'
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import pg from 'pg'
import { type DestinationStream, type Logger, pino } from 'pino'
import { tokenDigest } from '../auth/token.js'
import { parseId } from '../validation/parameters.js'
import type { Exchange } from './connections.js'
import { clientAddressOf, pathOf } from './request.js'

/** Property names whose values may contain secrets. The log replaces these values in every object. */
const SECRET_BEARING = new Set(['authorization', 'headers', 'body', 'custom_headers', 'parameters'])

/**
 * The log: one JSON line per event, without bodies and headers. Redaction is a second safeguard. It does not use pino's own stream, which
 * retries forever when a terminal was closed.
 */
export function makeLogger(level: string, destination: DestinationStream = process.stdout): Logger {
  const options = {
    level,
    base: { name: 'agents' },
    timestamp: pino.stdTimeFunctions.isoTime,
    serializers: { err: describeError, cause: describeCause },
    formatters: { log: (line: object) => redacted(line) },
  }
  return pino(options, destination)
}

/** Replaces the values of secret names. Pino's `redact` option is slower: it parses its paths for every value. */
function redacted(line: object, isInner = false): Record<string, unknown> {
  const shown: Record<string, unknown> = {}
  for (const name in line) {
    const value: unknown = line[name as keyof typeof line] // any type
    shown[name] = SECRET_BEARING.has(name) ? '[redacted]' : !isInner && isRecord(value) ? redacted(value, true) : value
  }
  return shown
}

/** False for values with their own serialization: arrays, errors, and objects with `toJSON`. */
function isRecord(value: unknown): value is object {
  return (
    typeof value === 'object' &&
    value !== null &&
    !(Array.isArray(value) || value instanceof Error || 'toJSON' in value)
  )
}

/** The logger of one request. Its lines have the request id and, if the caller sent a trace context, the trace id. */
export function requestLogger(
  log: FastifyBaseLogger,
  bindings: Record<string, unknown>,
  _options: object,
  request: IncomingMessage,
): FastifyBaseLogger {
  const traceId = traceIdOf(request)
  // Pino creates a child much faster without options, and no route has any.
  return log.child(traceId === undefined ? bindings : { ...bindings, trace_id: traceId })
}

/** Logs one line for each answered request: caller, operation, outcome and duration; for a refused one also the client address. */
export function registerRequestLog(app: FastifyInstance): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { refusal } = request
    if (!request.exchange.isAnswered) return done() // `logCut` logs this one
    const level = reply.statusCode >= 500 ? 'warn' : 'info'
    if (!isWritten(request.log, level)) return done()
    const { caller, token, token_digest } = callerOf(request)
    // Undefined values are left out of the line.
    request.log[level](
      {
        method: request.method,
        operation: request.operation,
        path: request.operation === 'none' ? shownPath(request) : undefined,
        resource_id: resourceIdOf(request),
        caller,
        token,
        token_digest,
        status: reply.statusCode,
        refusal,
        limit: request.limit?.limit,
        ...request.toldOfRefusal?.(),
        client: refusal === undefined ? undefined : clientAddressOf(request),
        duration_ms: durationMs(reply),
      },
      'request answered',
    )
    done()
  })
}

/** The most parts of an unknown address in the log. */
const PATH_PARTS_MAX = 8

/** The path of a request. Parts that are long enough to be a token are masked. */
function shownPath(request: FastifyRequest): string {
  const parts = pathOf(request).split('/').slice(0, PATH_PARTS_MAX)
  return parts.map(part => (/^[\w.-]{0,20}$/.test(part) ? part : '*')).join('/')
}

/** True if lines of this level are written. Assembling one takes 2% of a short request. */
function isWritten(log: FastifyBaseLogger, level: 'info' | 'warn'): boolean {
  return !('isLevelEnabled' in log) || (log as Logger).isLevelEnabled(level) // Fastify's type lacks pino's method
}

/** Logs a request whose connection closed before its whole answer. Its work may continue and be stored. */
export function logCut({ request, reply }: Exchange): void {
  request.log.info(
    {
      method: request.method,
      operation: request.operation,
      resource_id: resourceIdOf(request),
      ...callerOf(request),
      refusal: request.refusal,
      duration_ms: durationMs(reply),
    },
    'the connection closed before the answer was read',
  )
}

function durationMs({ elapsedTime }: FastifyReply): number {
  return Math.round(elapsedTime * 100) / 100
}

/** The caller, or the digest of the token for a request that was refused before authentication. */
function callerOf({ caller, tokenHash }: FastifyRequest): Record<string, unknown> {
  if (caller) return { caller: caller.userId, token: caller.token.id }
  return { token_digest: Buffer.isBuffer(tokenHash) ? tokenDigest(tokenHash) : undefined }
}

/** The id of the agent or tool in the path; undefined without a valid one. */
function resourceIdOf({ policy, params }: FastifyRequest): number | undefined {
  if (policy?.lookup === undefined) return undefined
  const { [policy.lookup.parameter]: named } = params as Record<string, unknown> // text, or a number after validation
  const id = parseId(String(named), [])
  return 'value' in id ? id.value : undefined
}

/** The trace id of a W3C `traceparent` header; undefined without a valid one. */
function traceIdOf({ headers }: IncomingMessage): string | undefined {
  const header = headers.traceparent
  if (typeof header !== 'string') return undefined
  const [, version, traceId] = /^([0-9a-f]{2})-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-|$)/.exec(header) ?? []
  return version === 'ff' || traceId === undefined || /^0+$/.test(traceId) ? undefined : traceId
}

/** Describes an error for the log, without its parameters or detail, which may contain caller input. */
function describeError(error: Error & { code?: unknown; constraint?: unknown }): Record<string, unknown> {
  return {
    type: error.constructor?.name ?? error.name,
    message: messageOf(error),
    ...(error.code !== undefined && { code: error.code }),
    ...(error.constraint !== undefined && { constraint: error.constraint }),
    stack: framesOf(error),
    ...(error.cause instanceof Error && { cause: describeError(error.cause) }),
    ...(error instanceof AggregateError && { errors: error.errors.slice(0, 5).filter(isError).map(describeError) }),
  }
}

/** The innermost error of an expected failure in one line, without a stack: `DatabaseError 57P01: ...`. Texts are unchanged. */
function describeCause(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause
  if (cause.cause instanceof Error) return describeCause(cause.cause)
  const { code } = cause as Error & { code?: unknown } // of the system or of PostgreSQL, if any
  return `${[cause.constructor.name, code].filter(Boolean).join(' ')}: ${messageOf(cause)}`
}

/** A message up to its first quotation mark, after which PostgreSQL and the JSON parser quote caller input. */
function messageOf(error: Error): string {
  const quotes = error instanceof pg.DatabaseError || error instanceof SyntaxError
  return quotes ? (error.message.split(/["'`]/, 1)[0] ?? '') : error.message
}

/** The frames of a stack, without the message that precedes them. */
function framesOf({ stack = '' }: Error): string {
  return stack
    .split('\n')
    .filter(line => /^ +at /.test(line))
    .join('\n')
}

function isError(value: unknown): value is Error {
  return value instanceof Error
}
