import type { FastifyInstance } from 'fastify'
import pg from 'pg'
import { type DestinationStream, type Logger, pino } from 'pino'
import { idIn } from '../auth/authenticate.js'
import { tokenDigest } from '../auth/token.js'
import type { Exchange } from './connections.js'
import { clientAddressOf } from './request.js'

const SECRET_BEARING = ['authorization', 'headers', 'body', 'custom_headers', 'parameters']

/**
 * Creates the logger, which writes one JSON line for each event. Bodies and headers are never logged; redaction is only a second safeguard. pino's
 * own stream is not used, because this stream retries forever after a terminal has closed.
 */
export function makeLogger(level: string, destination: DestinationStream = process.stdout): Logger {
  const options = {
    level,
    base: { name: 'agents' },
    timestamp: pino.stdTimeFunctions.isoTime,
    serializers: { err: describeError, cause: describeCause },
    redact: { paths: SECRET_BEARING.flatMap(name => [name, `*.${name}`]), censor: '[redacted]' },
  }
  return pino(options, destination)
}

/** Logs one line for each answered request. `logCut` logs the other requests. */
export function registerRequestLog(app: FastifyInstance): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { exchange, log, refusal } = request
    if (!exchange.isAnswered) return done()
    const status = reply.statusCode
    const client = refusal === undefined ? undefined : clientAddressOf(request)
    log[status >= 500 ? 'warn' : 'info']({ status, client, ...lineOf(exchange), ...request.told }, 'request answered')
    done()
  })
}

/** Logs a request whose connection closed before the answer was sent. The handler continues and may store changes. */
export function logCut(exchange: Exchange): void {
  exchange.request.log.info(lineOf(exchange), 'the connection closed before the answer was sent')
}

function lineOf({ request, reply }: Exchange): Record<string, unknown> {
  const { method, operation, policy, caller, tokenHash, refusal } = request
  return {
    method,
    operation,
    resource_id: policy?.lookup && idIn(request, policy.lookup.parameter),
    ...(caller
      ? { caller: caller.userId, token: caller.token.id }
      : { token_digest: tokenHash && tokenDigest(tokenHash) }),
    refusal,
    duration_ms: Math.round(reply.elapsedTime * 100) / 100,
  }
}

/** Describes an error for the log. Omits SQL parameters and PostgreSQL's details, because they can contain text from the caller. */
function describeError(error: Error & { code?: unknown; constraint?: unknown }): Record<string, unknown> {
  const { code, constraint, cause, stack = '' } = error
  const frames = stack.split('\n').filter(line => /^ +at /.test(line)) // omits the message before the frames
  return {
    type: error.constructor?.name ?? error.name,
    message: messageOf(error),
    code,
    constraint,
    stack: frames.join('\n'),
    ...(cause instanceof Error && { cause: describeError(cause) }),
    ...(error instanceof AggregateError && { errors: error.errors.slice(0, 5).map(describeCause) }),
  }
}

/** Describes the innermost cause of an expected failure on one line, for example `DatabaseError 57P01: ...`. */
function describeCause(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause
  if (cause.cause instanceof Error) return describeCause(cause.cause)
  const { code } = cause as Error & { code?: unknown } // errors of the operating system and of PostgreSQL have a code
  return `${[cause.constructor.name, code].filter(Boolean).join(' ')}: ${messageOf(cause)}`
}

/** Returns the message. Cuts messages of PostgreSQL and the JSON parser at the first quotation mark, because callers can send the quoted text. */
function messageOf(error: Error): string {
  const quotes = error instanceof pg.DatabaseError || error instanceof SyntaxError
  return quotes ? (error.message.split(/["'`]/, 1)[0] ?? '') : error.message
}
