// Traces of requests, Fastify's hooks and queries by OpenTelemetry, preloaded by NODE_OPTIONS (observability.md, Traces).
// Its settings are OpenTelemetry's: OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER and others.
import { register } from 'node:module'
import { FastifyOtelInstrumentation } from '@fastify/otel'
import '@opentelemetry/auto-instrumentations-node/register'

register('@opentelemetry/instrumentation/hook.mjs', import.meta.url) // for modules that are imported, such as pino
new FastifyOtelInstrumentation({ registerOnInitialization: true })
