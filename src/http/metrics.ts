import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Server as NetServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Readiness } from '../errors.js'
import { Forbidden, RATE_LIMITS, REFUSALS } from '../errors.js'

/** Upper bounds of the time buckets, in seconds. The longest waits end at 20, and then there is work. */
const BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30]

/**
 * A database that hangs must not take the metrics with it: after so long they are shown with its last known state, and its
 * next one when it is known. In ms.
 */
const STATE_WAIT_MS = 250

/** Of these statuses every operation has a series from the start; the others are told apart by `agents_http_refusals_total`. */
const STATUSES_FROM_THE_START = [200, 500, 503]

/** One round trip to the database, as its connection reports it. */
export interface DatabaseExchange {
  texts: readonly string[]
  durationMs: number
  ok: boolean
}

/** What a metric is read from when somebody asks for the metrics. */
export interface MetricSources {
  pool: { readonly totalCount: number; readonly idleCount: number; readonly waitingCount: number }
  poolSizeMax: number
  connectionsMax: number
  inWork: { readonly total: number }
  readiness: () => Promise<Readiness>
  acceptsWrites: () => boolean
  version: string
}

/**
 * The metrics of one application, in a registry of its own: no state is shared between applications of one process.
 * Every label has a bounded set of values: operations and routes, statuses, codes of this program; nothing that a caller
 * can make up.
 */
export class Metrics {
  readonly #registry = new Registry()
  #page: Promise<{ type: string; body: string }> | undefined
  readonly #duration = this.#histogram('agents_http_request_duration_seconds', 'Time from headers to answer.', [
    'operation',
    'status',
  ])
  readonly #abandoned = this.#counter('agents_http_requests_abandoned_total', 'The client went away.', ['operation'])
  readonly #refused = this.#counter('agents_http_refusals_total', 'Requests refused, by error code or reason.', [
    'reason',
  ])
  readonly #lastFailure = new Gauge({
    name: 'agents_http_last_failure_timestamp_seconds',
    help: 'When a request last failed with a 5xx, by error code or reason.',
    labelNames: ['reason'],
    registers: [this.#registry],
  })
  readonly #rateLimited = this.#counter('agents_rate_limited_total', 'Requests over a rate limit.', ['limit'])
  readonly #refusedConnections = this.#counter(
    'agents_http_connections_refused_total',
    'Client connections closed unanswered, beyond agents_http_connections_max.',
    [],
  )
  readonly #statements = this.#counter('agents_database_statements_total', 'Statements sent to the database.', [])
  readonly #exchange = this.#histogram('agents_database_round_trip_duration_seconds', 'Time of one round trip.', [
    'outcome',
  ])
  readonly #poolWait = this.#histogram(
    'agents_database_pool_wait_seconds',
    'Time until a connection of the pool was free or made, or refused.',
    [],
  )

  /**
   * What is counted stands there at 0 from the start: `rate` sees nothing of a series that is born at its first value, and
   * an alert on it would miss the first fault.
   */
  constructor() {
    for (const reason of REFUSALS) this.#refused.inc({ reason }, 0)
    for (const limit of RATE_LIMITS) this.#rateLimited.inc({ limit }, 0)
    for (const outcome of ['ok', 'failed']) this.#exchange.zero({ outcome })
  }

  /** Adds what Node and the operating system say of this process, event-loop delay included. Once a process. */
  collectProcess(): void {
    collectDefaultMetrics({ register: this.#registry })
  }

  /** For the database's `onStatement`. */
  databaseExchange({ texts, durationMs, ok }: DatabaseExchange): void {
    this.#statements.inc(texts.length)
    this.#exchange.observe({ outcome: ok ? 'ok' : 'failed' }, durationMs / 1000)
  }

  /** For the database's `onPoolWait`. */
  poolWait(durationMs: number): void {
    this.#poolWait.observe(durationMs / 1000)
  }

  /** A request that never became one: malformed, too slow, headers too large. */
  brokenRequest(code: string): void {
    this.#refused.inc({ reason: code })
  }

  /** The client of this request left before its answer. */
  abandoned({ operation }: FastifyRequest): void {
    this.#abandoned.inc({ operation })
  }

  /** Observes every request of an application, and reads the sources whenever the metrics are asked for. */
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
    this.#watchConnections(app.server, sources)
    this.#watchPool(sources)
    this.#watchState(sources.readiness)
    const written = '1 when the database took changes at the last probe; reads go on where it does not.'
    this.#gauge('agents_database_accepts_writes', written, [], gauge => gauge.set(Number(sources.acceptsWrites())))
    this.#gauge('agents_build_info', 'Always 1.', ['version'], gauge => gauge.set({ version: sources.version }, 1))
  }

  /** The text exposition format, and its media type. Pages that are asked for at once are one. */
  text(): Promise<{ type: string; body: string }> {
    this.#page ??= this.#makePage().finally(() => {
      this.#page = undefined
    })
    return this.#page
  }

  async #makePage(): Promise<{ type: string; body: string }> {
    return { type: this.#registry.contentType, body: await this.#registry.metrics() }
  }

  #watchConnections(server: NetServer, { inWork, connectionsMax }: MetricSources): void {
    this.#gauge('agents_http_requests_in_work', 'Operations begun and not ended.', [], gauge => gauge.set(inWork.total))
    this.#gauge('agents_http_connections', 'Open client connections.', [], async gauge => {
      const open = await new Promise<number>(resolve => server.getConnections((_, count) => resolve(count ?? 0)))
      gauge.set(open)
    })
    this.#gauge('agents_http_connections_max', 'How many may be open.', [], gauge => gauge.set(connectionsMax))
  }

  #watchPool({ pool, poolSizeMax }: MetricSources): void {
    this.#gauge('agents_database_pool_connections', 'Connections by state.', ['state'], gauge => {
      gauge.set({ state: 'idle' }, pool.idleCount)
      gauge.set({ state: 'used' }, pool.totalCount - pool.idleCount)
    })
    this.#gauge('agents_database_pool_waiting', 'Requests that wait for a connection.', [], gauge => {
      gauge.set(pool.waitingCount)
    })
    this.#gauge('agents_database_pool_size_max', 'Connections that the pool may open.', [], gauge => {
      gauge.set(poolSizeMax)
    })
  }

  #watchState(readiness: () => Promise<Readiness>): void {
    const show = (name: string, help: string, read: (found: Readiness) => boolean | undefined) => {
      this.#gauge(name, help, [], async gauge => {
        const asked = readiness().then(found => {
          const value = read(found)
          if (value !== undefined) gauge.set(Number(value))
        })
        await Promise.race([asked, sleep(STATE_WAIT_MS, undefined, { ref: false })])
      })
    }
    show('agents_ready', '1 when requests can be served.', found => found.status !== 'unavailable')
    const help = '1 while stored secrets need a key that the ring lacks; agentctl keys status names it.'
    // A database that does not answer says nothing of keys: the last word stands.
    show('agents_key_missing', help, found =>
      found.status === 'unavailable' ? undefined : found.status === 'degraded',
    )
  }

  #counter<Label extends string>(name: string, help: string, labelNames: Label[]): Counter<Label> {
    return new Counter({ name, help, labelNames, registers: [this.#registry] })
  }

  #histogram<Label extends string>(name: string, help: string, labelNames: Label[]): Histogram<Label> {
    return new Histogram({ name, help, labelNames, buckets: BUCKETS_S, registers: [this.#registry] })
  }

  #gauge<Label extends string>(
    name: string,
    help: string,
    labelNames: Label[],
    read: (gauge: Gauge<Label>) => void | Promise<void>,
  ): void {
    const gauge: Gauge<Label> = new Gauge({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      collect: () => read(gauge),
    })
  }
}

export interface MetricsAccess {
  /** Bearer token that is asked for; without one nobody is let in. */
  token: string | undefined
  /** Whether the metrics have a port of their own; then the application itself does not show them. */
  hasOwnPort: boolean
}

/**
 * `GET /metrics` of the application, unless the metrics have a port of their own. Peers on this machine need the token too: what a
 * proxy beside us hands on comes from anywhere, and looks as if it came from here.
 */
export function registerMetrics(app: FastifyInstance, metrics: Metrics, access: MetricsAccess): void {
  if (access.hasOwnPort) return
  app.get(
    '/metrics',
    { config: { policy: { permission: 'public' } }, schema: { hide: true } },
    async (request, reply) => {
      if (!carriesToken(request.raw, access.token)) {
        throw new Forbidden('The metrics are shown to who sends METRICS_TOKEN as a bearer token, or on METRICS_PORT.')
      }
      const { type, body } = await metrics.text()
      return reply.type(type).send(body)
    },
  )
}

/** Whether a request has this bearer token. Compared by their hashes, in the same time wherever they differ. */
export function carriesToken({ headers }: IncomingMessage, token: string | undefined): boolean {
  const received = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1]
  if (token === undefined || received === undefined) return false
  return timingSafeEqual(createHash('sha256').update(received).digest(), createHash('sha256').update(token).digest())
}
