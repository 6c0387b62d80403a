import { createServer, type IncomingMessage, type Server } from 'node:http'
import { probes, type ReadinessSource } from './health.js'
import { carriesToken, type Metrics } from './metrics.js'
import { requestIdOf } from './request-id.js'

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
