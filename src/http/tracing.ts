import {
  type Context,
  context,
  createContextKey,
  ProxyTracerProvider,
  propagation,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api'
import type { FastifyInstance } from 'fastify'
import type { DatabaseExchange } from './metrics.js'

/*
 * Spans for whoever loads an OpenTelemetry SDK beside the program: one for each request, named by its route, and one for each
 * round trip to the database below it. Without an SDK nothing here is registered, and it costs nothing.
 */

const NAME = 'agent-tool-management'
/** Of a statement's text, in characters. No value stands in it. */
const QUERY_TEXT_MAX_LENGTH = 4_096
const OPERATION = createContextKey('operation of the request')

declare module 'fastify' {
  interface FastifyRequest {
    /** What its spans hang on; undefined when nobody traces. */
    traceContext: Context | undefined
  }
}

/** Whether an SDK was registered before the program started: only then is a span more than waste. */
function isTraced(): boolean {
  const provider = trace.getTracerProvider()
  const hasOwn = provider instanceof ProxyTracerProvider
  return !hasOwn || provider.getDelegate() !== new ProxyTracerProvider().getDelegate()
}

/**
 * A span for each request: below that of an instrumented HTTP server, if there is one, which it also names; else below the
 * caller's `traceparent`.
 */
export function registerTracing(app: FastifyInstance): void {
  if (!isTraced()) return
  const tracer = trace.getTracer(NAME)
  app.decorateRequest('traceContext', undefined)
  app.addHook('onRequest', (request, reply, done) => {
    const { method, operation, routeOptions, headers } = request
    const route = routeOptions.url ?? 'none'
    const name = `${method} ${route}`
    const attributes = { 'http.request.method': method, 'http.route': route, 'agents.operation': operation }
    const around = trace.getSpan(context.active())
    around?.updateName(name).setAttributes(attributes)
    const parent = around === undefined ? propagation.extract(context.active(), headers) : context.active()
    const kind = around === undefined ? SpanKind.SERVER : SpanKind.INTERNAL
    const span = tracer.startSpan(around === undefined ? name : operation, { kind, attributes }, parent)
    reply.raw.once('close', () => {
      span.setAttribute('http.response.status_code', reply.statusCode)
      if (reply.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR })
      span.end()
    })
    request.traceContext = trace.setSpan(parent, span).setValue(OPERATION, operation)
    context.with(request.traceContext, done)
  })
  // The rest of a body comes in events of the connection, which know nothing of the request.
  app.addHook('preValidation', (request, _reply, done) => context.with(request.traceContext ?? context.active(), done))
}

/**
 * A span for each round trip that `exchange` is told of, when it is over, named by the operation and the statements'
 * commands. Requests that share a round trip share its span, which stands below the first of them.
 */
export function traced(exchange: (found: DatabaseExchange) => void): (found: DatabaseExchange) => void {
  if (!isTraced()) return exchange
  const tracer = trace.getTracer(NAME)
  return found => {
    const { texts, durationMs, ok } = found
    const operation = context.active().getValue(OPERATION) ?? 'background'
    const commands = texts.map(text => /[a-z]+/i.exec(text)?.[0].toLowerCase()).join(', ')
    const attributes = {
      'db.system.name': 'postgresql',
      'db.operation.batch.size': texts.length,
      'db.query.text': texts.join(';\n').slice(0, QUERY_TEXT_MAX_LENGTH),
    }
    const startTime = Date.now() - durationMs
    const span = tracer.startSpan(`${operation}: ${commands}`, { kind: SpanKind.CLIENT, startTime, attributes })
    if (!ok) span.setStatus({ code: SpanStatusCode.ERROR })
    span.end()
    exchange(found)
  }
}
