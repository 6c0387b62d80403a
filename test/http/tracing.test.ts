import { context, propagation, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { W3CTraceContextPropagator } from '@opentelemetry/core'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import t from 'tap'
import { traced } from '../../src/http/tracing.js'
import { running } from './running.js'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'

t.test('without an SDK nothing is wrapped', async t => {
  const exchange = () => {}
  t.equal(traced(exchange), exchange)
})

t.test('with an SDK each request has a span by its route, and below it one for each round trip', async t => {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  propagation.setGlobalPropagator(new W3CTraceContextPropagator())
  trace.setGlobalTracerProvider(provider)
  t.teardown(() => {
    trace.disable()
    context.disable()
    propagation.disable()
  })
  const { port, token } = await running(t, {}, { listen: true })
  exporter.reset()
  const answer = await fetch(`http://127.0.0.1:${port}/persona/11?update_mask=name`, {
    method: 'PATCH',
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      traceparent: `00-${TRACE}-${PARENT}-01`,
    },
    body: '{"name":"Traced"}',
  })
  t.equal(answer.status, 200)
  await answer.text()
  while (!exporter.getFinishedSpans().some(({ name }) => name.startsWith('PATCH'))) {
    await new Promise(resolve => setTimeout(resolve, 10))
  }

  const spans = exporter.getFinishedSpans().filter(span => span.spanContext().traceId === TRACE)
  const request = spans.find(({ name }) => name === 'PATCH /persona/:persona_id')
  t.equal(request?.parentSpanContext?.spanId, PARENT)
  t.match(request?.attributes, { 'agents.operation': 'update_persona', 'http.response.status_code': 200 })
  const batches = spans.filter(({ name }) => name.startsWith('update_persona: '))
  t.ok(batches.length >= 2, 'the lookup and the update, perhaps also the last use of the token')
  for (const batch of batches) {
    t.equal(batch.parentSpanContext?.spanId, request?.spanContext().spanId)
    t.equal(batch.attributes['db.system.name'], 'postgresql')
    t.notMatch(String(batch.attributes['db.query.text']), /Traced|pat_/, 'no value of the request')
  }
})
