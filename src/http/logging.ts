import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Logger, pino } from 'pino'

/**
 * The service's log: one JSON line an event. What a request carries is never logged: no body, no header. The redaction
 * is a second net, for an error object that brings one along.
 */
export function makeLogger(level: string): Logger {
  return pino({
    level,
    base: { name: 'agents' },
    timestamp: pino.stdTimeFunctions.isoTime,
    serializers: { err: describeError },
    redact: {
      paths: ['*.authorization', '*.headers', '*.body', '*.custom_headers', '*.parameters'],
      censor: '[redacted]',
    },
  })
}

/** One line for each answered request: who did what, how it ended, how long it took. */
export function registerRequestLog(app: FastifyInstance): void {
  app.addHook('onResponse', async (request, reply) => {
    const level = reply.statusCode >= 500 ? 'warn' : 'info'
    request.log[level](
      {
        operation: operationOf(request),
        ...(request.caller && { caller: request.caller.userId, token: request.caller.token.id }),
        ...(traceOf(request) && { trace_id: traceOf(request) }),
        status: reply.statusCode,
        ...(request.refusal && { refusal: request.refusal }),
        duration_ms: Math.round(reply.elapsedTime * 100) / 100,
      },
      'request answered',
    )
  })
}

/** The operation id of a request's route, or its pattern for a page; `none` for an address that is not there. */
export function operationOf(request: FastifyRequest): string {
  const { schema, url } = request.routeOptions
  return (schema as { operationId?: string } | undefined)?.operationId ?? url ?? 'none'
}

/** The trace id of a W3C `traceparent` header, so that log lines can be joined with a trace. */
function traceOf(request: FastifyRequest): string | undefined {
  const header = request.headers.traceparent
  if (typeof header !== 'string') return undefined
  return /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-|$)/.exec(header)?.[1]
}

/** What the log says of an error: never its parameters or detail, which may repeat what a caller sent. */
function describeError(error: Error & { code?: unknown; constraint?: unknown }): Record<string, unknown> {
  return {
    type: error.constructor?.name ?? error.name,
    message: error.message,
    ...(error.code !== undefined && { code: error.code }),
    ...(error.constraint !== undefined && { constraint: error.constraint }),
    stack: error.stack,
    ...(error.cause instanceof Error && { cause: describeError(error.cause) }),
  }
}
