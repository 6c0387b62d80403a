import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Readiness } from '../errors.js'
import { Forbidden, RATE_LIMITS, REFUSALS } from '../errors.js'

/** Upper bounds of the time buckets, in seconds. The longest wait is 20 s, followed by work. */
const BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30]

/** How long the metrics wait for the state of the database. After that they show the last known one. */
const STATE_WAIT_MS = 250

/** Every operation has series of these statuses from the start. `agents_http_refusals_total` counts the others by reason. */
const STATUSES_FROM_THE_START = [200, 500, 503]

/** One round trip to the database. */
export interface DatabaseExchange {
  durationMs: number
  ok: boolean
}

/** The sources that are read when metrics are requested. */
export interface MetricSources {
  database: {
    readonly pool: { readonly totalCount: number; readonly idleCount: number; readonly waitingCount: number }
  }
  poolSizeMax: number
  inWork: { readonly total: number }
  service: { readiness(): Promise<Readiness>; acceptsWrites(): boolean }
  version: string
}

/** The metrics of one application, in their own registry. No label has a value that a caller can choose. */
export class Metrics {
  readonly #registry = new Registry()
  #page: Promise<{ type: string; body: string }> | undefined
  readonly #duration = this.#histogram(
    'agents_http_request_duration_seconds',
    'Time from headers to answer.',
    'operation',
    'status',
  )
  readonly #abandoned = this.#counter(
    'agents_http_requests_abandoned_total',
    'The connection closed before the answer was read.',
    'operation',
  )
  readonly #refused = this.#counter(
    'agents_http_refusals_total',
    'Requests refused, by error code or reason.',
    'reason',
  )
  readonly #lastFailure = new Gauge({
    name: 'agents_http_last_failure_timestamp_seconds',
    help: 'When a request last failed with a 5xx, by error code or reason.',
    labelNames: ['reason'],
    registers: [this.#registry],
  })
  readonly #rateLimited = this.#counter('agents_rate_limited_total', 'Requests over a rate limit.', 'limit')
  readonly #refusedConnections = this.#counter(
    'agents_http_connections_refused_total',
    'Client connections closed unanswered, beyond agents_http_connections_max.',
  )
  readonly #statements = this.#counter('agents_database_statements_total', 'Statements sent to the database.')
  readonly #exchange = this.#histogram(
    'agents_database_round_trip_duration_seconds',
    'Time of one round trip.',
    'outcome',
  )
  readonly #poolWait = this.#histogram(
    'agents_database_pool_wait_seconds',
    'Time until a connection of the pool was free or made, or refused.',
  )

  /** Counters start at 0, because `rate` ignores the first value of a new series. */
  constructor() {
    for (const reason of REFUSALS) this.#refused.inc({ reason }, 0)
    for (const limit of RATE_LIMITS) this.#rateLimited.inc({ limit }, 0)
    for (const outcome of ['ok', 'failed']) this.#exchange.zero({ outcome })
  }

  /** Adds Node's and the system's metrics of this process, such as event-loop delay. Call it once per process. */
  collectProcess(): void {
    collectDefaultMetrics({ register: this.#registry })
  }

  databaseExchange({ durationMs, ok }: DatabaseExchange): void {
    this.#statements.inc()
    this.#exchange.observe({ outcome: ok ? 'ok' : 'failed' }, durationMs / 1000)
  }

  poolWait(durationMs: number): void {
    this.#poolWait.observe(durationMs / 1000)
  }

  /** Counts a request that could not be parsed: malformed, too slow, headers too large. */
  brokenRequest(code: string): void {
    this.#refused.inc({ reason: code })
  }

  /** Counts a request whose client left before the answer. */
  abandoned({ operation }: FastifyRequest): void {
    this.#abandoned.inc({ operation })
  }

  /** Observes every request of an application, and reads the sources when metrics are requested. */
  watch(app: FastifyInstance, sources: MetricSources): void {
    app.server.on('drop', () => this.#refusedConnections.inc())
    app.addHook('onRoute', ({ schema }) => {
      const operation = (schema as { operationId?: string } | undefined)?.operationId
      if (operation === undefined) return
      this.#abandoned.inc({ operation }, 0)
      for (const status of STATUSES_FROM_THE_START) this.#duration.zero({ operation, status })
    })
    app.addHook('onResponse', (request, reply, done) => {
      const labels = { operation: request.operation, status: reply.statusCode }
      this.#duration.observe(labels, reply.elapsedTime / 1000)
      const { refusal, limit } = request
      if (limit !== undefined) this.#rateLimited.inc({ limit: limit.limit })
      if (refusal !== undefined) {
        this.#refused.inc({ reason: refusal })
        if (reply.statusCode >= 500) this.#lastFailure.set({ reason: refusal }, Date.now() / 1000)
      }
      done()
    })
    const { pool } = sources.database
    const { service } = sources
    this.#gauge('agents_http_requests_in_work', 'Operations begun and not ended.', g => g.set(sources.inWork.total))
    this.#gauge('agents_http_connections', 'Open client connections.', async gauge => {
      gauge.set(await new Promise(resolve => app.server.getConnections((_, count) => resolve(count ?? 0))))
    })
    this.#gauge('agents_http_connections_max', 'How many may be open.', gauge => gauge.set(app.server.maxConnections))
    const set = (gauge: Gauge<'state'>) => {
      gauge.set({ state: 'idle' }, pool.idleCount)
      gauge.set({ state: 'used' }, pool.totalCount - pool.idleCount)
    }
    this.#gauge('agents_database_pool_connections', 'Connections by state.', set, 'state')
    const waiting = 'Requests that wait for a connection.'
    this.#gauge('agents_database_pool_waiting', waiting, gauge => gauge.set(pool.waitingCount))
    const most = 'Connections that the pool may open.'
    this.#gauge('agents_database_pool_size_max', most, gauge => gauge.set(sources.poolSizeMax))
    const whenKnown = async (tell: (found: Readiness) => void) => {
      await Promise.race([service.readiness().then(tell), sleep(STATE_WAIT_MS, undefined, { ref: false })])
    }
    this.#gauge('agents_ready', '1 when requests can be served.', gauge =>
      whenKnown(({ status }) => gauge.set(Number(status !== 'unavailable'))),
    )
    const written = '1 while the database takes changes and the last one was stored; reads go on where it does not.'
    this.#gauge('agents_database_accepts_writes', written, async gauge => {
      await whenKnown(() => undefined)
      gauge.set(Number(service.acceptsWrites()))
    })
    const version = (gauge: Gauge<'version'>) => gauge.set({ version: sources.version }, 1)
    this.#gauge('agents_build_info', 'Always 1.', version, 'version')
  }

  /** The text exposition format with its media type. Concurrent calls share one page. */
  text(): Promise<{ type: string; body: string }> {
    const type = this.#registry.contentType
    const making = async () => ({ type, body: await this.#registry.metrics() })
    this.#page ??= making().finally(() => {
      this.#page = undefined
    })
    return this.#page
  }

  #counter<Label extends string>(name: string, help: string, ...labelNames: Label[]): Counter<Label> {
    return new Counter({ name, help, labelNames, registers: [this.#registry] })
  }

  #histogram<Label extends string>(name: string, help: string, ...labelNames: Label[]): Histogram<Label> {
    return new Histogram({ name, help, labelNames, buckets: BUCKETS_S, registers: [this.#registry] })
  }

  /** A gauge that `set` updates when metrics are requested. */
  #gauge<Label extends string>(
    name: string,
    help: string,
    set: (gauge: Gauge<Label>) => void | Promise<void>,
    ...labelNames: Label[]
  ): void {
    const registers = [this.#registry]
    const gauge: Gauge<Label> = new Gauge({ name, help, labelNames, registers, collect: () => set(gauge) })
  }
}

/** `GET /metrics` with the token, also for local clients, because a proxy looks local. Without a configured token it is always refused. */
export function registerMetrics(app: FastifyInstance, metrics: Metrics, token: string | undefined): void {
  app.get(
    '/metrics',
    { exposeHeadRoute: true, config: { policy: { permission: 'public' } }, schema: { hide: true } },
    async (request, reply) => {
      if (!carriesToken(request.raw, token)) {
        throw new Forbidden('The metrics are shown to who sends METRICS_TOKEN as a bearer token, or on METRICS_PORT.')
      }
      const { type, body } = await metrics.text()
      return reply.type(type).send(body)
    },
  )
}

/** True if a request has this bearer token. Compares the hashes in constant time. */
export function carriesToken({ headers }: IncomingMessage, token: string | undefined): boolean {
  const received = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1]
  if (token === undefined || received === undefined) return false
  return timingSafeEqual(createHash('sha256').update(received).digest(), createHash('sha256').update(token).digest())
}
