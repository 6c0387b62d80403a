import type { FastifyInstance } from 'fastify'
import pg from 'pg'
import { type DestinationStream, type Logger, pino } from 'pino'
import { idIn } from '../auth/authenticate.js'
import { tokenDigest } from '../auth/token.js'
import type { Exchange } from './connections.js'
import { clientAddressOf } from './request.js'

const SECRET_BEARING = ['authorization', 'headers', 'body', 'custom_headers', 'parameters']

/**
 * Creates the logger: one JSON line for each event, without bodies and headers. Redaction is a second safeguard. pino's own stream is not used,
 * because it retries forever after a terminal was closed.
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

/** Logs one line for each answered request. `logCut` logs requests that were not answered. */
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

/** Logs a request whose connection closed before the whole answer was sent. Its work may continue and be stored. */
export function logCut(exchange: Exchange): void {
  exchange.request.log.info(lineOf(exchange), 'the connection closed before the answer was read')
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

/** Describes an error for the log, without parameters and details, which may contain caller input. */
function describeError(error: Error & { code?: unknown; constraint?: unknown }): Record<string, unknown> {
  const { code, constraint, cause, stack = '' } = error
  const frames = stack.split('\n').filter(line => /^ +at /.test(line)) // without the preceding message
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

/** The innermost cause of an expected failure on one line, without a stack trace: `DatabaseError 57P01: ...`. */
function describeCause(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause
  if (cause.cause instanceof Error) return describeCause(cause.cause)
  const { code } = cause as Error & { code?: unknown } // an error of the operating system or of PostgreSQL has a code
  return `${[cause.constructor.name, code].filter(Boolean).join(' ')}: ${messageOf(cause)}`
}

/** A message up to the first quotation mark, where PostgreSQL and the JSON parser begin to quote caller input. */
function messageOf(error: Error): string {
  const quotes = error instanceof pg.DatabaseError || error instanceof SyntaxError
  return quotes ? (error.message.split(/["'`]/, 1)[0] ?? '') : error.message
}
