import type { IncomingMessage } from 'node:http'
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import pg from 'pg'
import { type DestinationStream, type Logger, pino } from 'pino'
import { clientAddressOf } from '../auth/client-address.js'
import { tokenDigest } from '../auth/token.js'
import { parseId } from '../schema/parameters.js'
import type { Cut, Exchange } from './exchange.js'
import { pathOf } from './request.js'

/** Names of what carries secrets, wherever an object that has one is handed to the log. */
const SECRET_BEARING = new Set(['authorization', 'headers', 'body', 'custom_headers', 'parameters'])

/**
 * The log: one JSON line an event, without bodies and headers; the redaction is a second net. Not by pino's own stream, which tries for
 * ever to write to a terminal that was closed.
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

/** A line without values that are named like secrets. Pino's own option reads its paths anew for each value. */
function redacted(line: object, isInner = false): Record<string, unknown> {
  const shown: Record<string, unknown> = {}
  for (const name in line) {
    const value: unknown = line[name as keyof typeof line] // whatever it is
    shown[name] = SECRET_BEARING.has(name) ? '[redacted]' : !isInner && isRecord(value) ? redacted(value, true) : value
  }
  return shown
}

/** Errors are described by their serializer, and what has a form of its own takes it. */
function isRecord(value: unknown): value is object {
  return (
    typeof value === 'object' &&
    value !== null &&
    !(Array.isArray(value) || value instanceof Error || 'toJSON' in value)
  )
}

/** The log of one request: each of its lines carries its id and, if the caller sent a trace context, the trace's id. */
export function requestLogger(
  log: FastifyBaseLogger,
  bindings: Record<string, unknown>,
  _options: object,
  request: IncomingMessage,
): FastifyBaseLogger {
  const traceId = traceIdOf(request)
  // Without options, of which no route has any, pino has far less to do.
  return log.child(traceId === undefined ? bindings : { ...bindings, trace_id: traceId })
}

/** One line for each answered request: the caller, the operation, how it ended and how long it took; of a refused one also its address. */
export function registerRequestLog(app: FastifyInstance): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { exchange, refusal } = request
    if (!exchange.isAnswered && !exchange.isGone) return done() // it is being cut, and that has its own line
    const level = reply.statusCode >= 500 ? 'warn' : 'info'
    if (!isWritten(request.log, level)) return done()
    const { caller, token, token_digest } = callerOf(request)
    // What is undefined is left out of the line.
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

/** How many parts of an address that has no route are logged. */
const PATH_PARTS_MAX = 8

/** The path of a request, without parts that are long enough to be a token. */
function shownPath(request: FastifyRequest): string {
  const parts = pathOf(request).split('/').slice(0, PATH_PARTS_MAX)
  return parts.map(part => (/^[\w.-]{0,20}$/.test(part) ? part : '*')).join('/')
}

/** Whether a line of this level is written: to put it together takes a fiftieth of a short request. */
function isWritten(log: FastifyBaseLogger, level: 'info' | 'warn'): boolean {
  return !('isLevelEnabled' in log) || (log as Logger).isLevelEnabled(level) // Fastify's own type leaves pino's method out
}

const CUT = {
  left: 'the client went away before its answer',
  unread: 'the client did not read its answer in time',
  shutdown: 'the process ended before its answer was read',
} as const satisfies Record<Cut, string>

/** The line of a request whose connection closed before its whole answer. What it asked for may go on, and be stored. */
export function logCut({ request, reply, cut }: Exchange): void {
  request.log.info(
    {
      method: request.method,
      operation: request.operation,
      resource_id: resourceIdOf(request),
      ...callerOf(request),
      refusal: request.refusal,
      duration_ms: durationMs(reply),
    },
    CUT[cut],
  )
}

function durationMs({ elapsedTime }: FastifyReply): number {
  return Math.round(elapsedTime * 100) / 100
}

/** The caller. A request that is refused before its token is looked up has the token's digest instead of its number. */
function callerOf({ caller, tokenHash }: FastifyRequest): Record<string, unknown> {
  if (caller) return { caller: caller.userId, token: caller.token.id }
  return { token_digest: Buffer.isBuffer(tokenHash) ? tokenDigest(tokenHash) : undefined }
}

/** The id of the agent or tool that the path names; undefined where it names none, or what is no id. */
function resourceIdOf({ policy, params }: FastifyRequest): number | undefined {
  if (policy?.lookup === undefined) return undefined
  const { [policy.lookup.parameter]: named } = params as Record<string, unknown> // text, or what validation made of it
  const id = parseId(String(named), [])
  return 'value' in id ? id.value : undefined
}

/** The trace id of a W3C `traceparent` header; undefined when there is none, or none that the recommendation allows. */
function traceIdOf({ headers }: IncomingMessage): string | undefined {
  const header = headers.traceparent
  if (typeof header !== 'string') return undefined
  const [, version, traceId] = /^([0-9a-f]{2})-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-|$)/.exec(header) ?? []
  return version === 'ff' || traceId === undefined || /^0+$/.test(traceId) ? undefined : traceId
}

/** What the log says of an error: never its parameters or detail, which may repeat what a caller sent. */
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

/** The innermost error of an expected failure in one line, without its stack: `DatabaseError 57P01: ...`. A text stays as it is. */
function describeCause(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause
  if (cause.cause instanceof Error) return describeCause(cause.cause)
  const { code } = cause as Error & { code?: unknown } // of the system or of PostgreSQL, where there is one
  return `${[cause.constructor.name, code].filter(Boolean).join(' ')}: ${messageOf(cause)}`
}

/** A message up to its first quotation mark, where PostgreSQL or the JSON parser quotes what a caller sent. */
function messageOf(error: Error): string {
  const quotes = error instanceof pg.DatabaseError || error instanceof SyntaxError
  return quotes ? (error.message.split(/["'`]/, 1)[0] ?? '') : error.message
}

/** The stack begins with the message, whole: only the frames that follow are kept. */
function framesOf({ stack = '' }: Error): string {
  return stack
    .split('\n')
    .filter(line => /^ +at /.test(line))
    .join('\n')
}

function isError(value: unknown): value is Error {
  return value instanceof Error
}
