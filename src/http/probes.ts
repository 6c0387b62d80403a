import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { FastifyInstance } from 'fastify'
import type { Readiness } from '../errors.js'
import { JSON_TYPE } from './answer.js'
import { carriesToken, type Metrics } from './metrics.js'
import { requestIdOf } from './request.js'

/** How things stand now. */
export type ReadinessSource = () => Promise<Readiness>

/** What a probe is answered, whichever port it asks. */
export interface ProbeAnswer {
  status: 200 | 503
  headers: Record<string, string>
  body: string
}

type Probe = (requestId: string) => Promise<ProbeAnswer>

/**
 * `GET /healthz`: this process is alive, nothing else. `GET /readyz`: it can serve; 503 names its own reason and what to
 * do about it. A missing key is 200 `degraded`: most requests do not need it.
 */
export function probes(readiness: ReadinessSource): [path: string, answer: Probe][] {
  const headers = { 'content-type': JSON_TYPE }
  const alive: Probe = async () => ({ status: 200, headers, body: '{"status":"alive"}' })
  const ready: Probe = async requestId => {
    const found = await readiness()
    if (found.status !== 'unavailable') return { status: 200, headers, body: JSON.stringify(found) }
    const body = JSON.stringify({ ...found, error_code: 'SERVICE_UNAVAILABLE', request_id: requestId })
    return { status: 503, headers: { ...headers, 'retry-after': '1' }, body }
  }
  return [
    ['/healthz', alive],
    ['/readyz', ready],
  ]
}

/** The probes on the main port. */
export function registerProbes(app: FastifyInstance, readiness: ReadinessSource): void {
  const config = { policy: { permission: 'public' } } as const
  for (const [path, probe] of probes(readiness)) {
    app.get(path, { config, schema: { hide: true } }, async (request, reply) => {
      const { status, headers, body } = await probe(request.id)
      return reply.code(status).headers(headers).send(body)
    })
  }
}

/** Open connections of this port: those of the main one are counted for themselves, so that its callers leave room for these. */
const CONNECTIONS_MAX = 100

export interface MetricsPort {
  host: string
  port: number
  /** What `/metrics` asks for, where there is one. */
  token: string | undefined
  readiness: ReadinessSource
}

/**
 * A server with `/metrics` and the probes, for `METRICS_PORT`. Whoever reaches the port may read, unless a token is set: then
 * the metrics ask for it. The probes answer here as they do on the main port. Rejects when the address cannot be listened on.
 */
export async function listenForMetrics(
  metrics: Metrics,
  { host, port, token, readiness }: MetricsPort,
): Promise<Server> {
  const pages = new Map<string, (request: IncomingMessage) => Promise<Page>>()
  pages.set('/metrics', async request => {
    if (token !== undefined && !carriesToken(request, token)) return { status: 403 }
    const { type, body } = await metrics.text()
    return { status: 200, headers: { 'content-type': type }, body }
  })
  for (const [path, probe] of probes(readiness)) pages.set(path, request => probe(requestIdOf(request)))
  // How often the timeouts are looked at: idle sockets take the room of others no longer than these say.
  const times = { requestTimeout: 10_000, headersTimeout: 5_000, connectionsCheckingInterval: 1_000 }
  const server = createServer(times, (request, response) => {
    response.setHeader('connection', 'close') // Node ends it behind the answer
    const page = pages.get(request.url?.split('?', 1)[0] ?? '')
    const answer = ({ status, headers = {}, body }: Page) =>
      response.writeHead(status, { ...headers, 'cache-control': 'no-store' }).end(body)
    if (page === undefined) answer({ status: 404 })
    else if (request.method !== 'GET') answer({ status: 405 })
    else page(request).then(answer, () => answer({ status: 500 }))
  })
  server.maxConnections = CONNECTIONS_MAX
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, resolve)
  })
  return server
}

interface Page {
  status: number
  headers?: Record<string, string>
  body?: string
}
