import type { Server } from 'node:http'
import fastify, { type FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { ERROR_CODES, type Readiness, UNAVAILABLE_REASONS } from '../errors.js'
import { JSON_TYPE } from './answer.js'
import { PAGE } from './docs.js'
import { requestIdOf } from './request.js'

/** Upper bounds of the duration buckets, in seconds. Requests that wait for changes can last longer. */
const BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30]

/** The statuses whose time series exist for every operation from the start. Other statuses get a series when they first occur. */
const STATUSES_FROM_THE_START = [200, 500, 503]

type ReadinessSource = { readiness(): Promise<Readiness> }

interface MetricSources {
  pool: { readonly totalCount: number; readonly idleCount: number; readonly waitingCount: number }
  inWork: { readonly total: number }
  service: ReadinessSource
  version: string
  backlog(): Promise<Record<'lag_s' | 'open' | 'oldest_s', number>>
}

/** The metrics of one application and its process, in their own registry. Callers cannot choose label values. */
export class Metrics {
  readonly registry = new Registry()
  readonly #duration = new Histogram({
    name: 'agents_http_request_duration_seconds',
    help: 'Time from the request headers to the end of the answer.',
    labelNames: ['operation', 'status'],
    buckets: BUCKETS_S,
    registers: [this.registry],
  })
  readonly refused = new Counter({
    name: 'agents_http_refusals_total',
    help: 'Refused requests, by error code or reason.',
    labelNames: ['reason'],
    registers: [this.registry],
  })

  /** Initializes the counters to 0, because Prometheus's `rate` ignores the first value of a new series. */
  constructor() {
    const reasons = ['INVALID_REQUEST', ...Object.keys(ERROR_CODES), ...UNAVAILABLE_REASONS]
    for (const reason of reasons) this.refused.inc({ reason }, 0)
    collectDefaultMetrics({ register: this.registry })
  }

  /** Observes every request of an application. Reads the sources when metrics are requested. */
  watch(app: FastifyInstance, { pool, inWork, service, version, backlog }: MetricSources): void {
    app.addHook('onRoute', ({ schema }) => {
      const operation = (schema as { operationId?: string } | undefined)?.operationId
      if (operation === undefined) return
      for (const status of STATUSES_FROM_THE_START) this.#duration.zero({ operation, status })
    })
    app.addHook('onResponse', (request, reply, done) => {
      this.#duration.observe({ operation: request.operation, status: reply.statusCode }, reply.elapsedTime / 1000)
      if (request.refusal !== undefined) this.refused.inc({ reason: request.refusal })
      done()
    })
    this.#gauge('agents_http_requests_in_work', 'Operations in progress.', () => inWork.total)
    this.#gauge('agents_database_pool_used', 'Connections in use.', () => pool.totalCount - pool.idleCount)
    this.#gauge('agents_database_pool_waiting', 'Requests waiting for a database connection.', () => pool.waitingCount)
    const isReady = async () => Number((await service.readiness()).status === 'ready')
    this.#gauge('agents_ready', '1 when requests can be served.', isReady)
    const unknown = { lag_s: Number.NaN, open: Number.NaN, oldest_s: Number.NaN }
    let found: ReturnType<typeof backlog>
    this.#gauge('agents_changes_lag_seconds', 'Age of the oldest change that is not in the feed yet.', async () => {
      found = backlog().catch(() => unknown) // the next two gauges use the same result
      return (await found).lag_s
    })
    this.#gauge('agents_proposals_open', 'Number of open proposals.', async () => (await found).open)
    const oldest = async () => (await found).oldest_s
    this.#gauge('agents_proposals_oldest_seconds', 'How long the oldest open proposal has waited.', oldest)
    const info = { name: 'agents_build_info', help: 'Always 1.', labelNames: ['version'], registers: [this.registry] }
    new Gauge(info).set({ version }, 1)
  }

  #gauge(name: string, help: string, value: () => number | Promise<number>): void {
    const registers = [this.registry]
    const gauge: Gauge = new Gauge({ name, help, registers, collect: async () => gauge.set(await value()) })
  }
}

/** `GET /healthz` answers 200 while the process runs. `GET /readyz` answers 200 if the service is ready, and 503 with the reason if not. */
export function registerProbes(app: FastifyInstance, service: ReadinessSource): void {
  app.get('/healthz', PAGE, (_, reply) => reply.type(JSON_TYPE).send('{"status":"alive"}'))
  app.get('/readyz', PAGE, async (request, reply) => {
    reply.type(JSON_TYPE)
    const found = await service.readiness()
    if (found.status === 'ready') return reply.send(JSON.stringify(found))
    const body = { ...found, error_code: 'SERVICE_UNAVAILABLE', request_id: request.id }
    return reply.code(503).header('retry-after', '1').send(JSON.stringify(body))
  })
}

/** Starts a server for `/metrics` and the probes on a separate port. Rejects if the server cannot listen. */
export async function listenForMetrics(
  metrics: Metrics,
  service: ReadinessSource,
  { host, port }: { host: string; port: number },
): Promise<Server> {
  // Idle connections are closed soon, because the number of connections is limited.
  const http = { headersTimeout: 5_000, connectionsCheckingInterval: 1_000 }
  const app = fastify({ genReqId: requestIdOf, requestTimeout: 10_000, exposeHeadRoutes: false, http })
  app.addHook('onRequest', (_, reply, done) => {
    reply.headers({ connection: 'close', 'cache-control': 'no-store' })
    done()
  })
  registerProbes(app, service)
  app.get('/metrics', PAGE, async (_, reply) =>
    reply.type(metrics.registry.contentType).send(await metrics.registry.metrics()),
  )
  app.server.maxConnections = 100 // these connections do not count against the main port's limit
  await app.listen({ host, port })
  return app.server
}
