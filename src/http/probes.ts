import type { Server } from 'node:http'
import fastify, { type FastifyInstance } from 'fastify'
import type { Config } from '../config.js'
import type { Readiness } from '../errors.js'
import { JSON_TYPE } from './answer.js'
import { handleError } from './error-handler.js'
import { carriesToken, type Metrics } from './metrics.js'
import { registerNotFound } from './not-found.js'
import { requestIdOf } from './request.js'

type ReadinessSource = { readiness(): Promise<Readiness> }

/** `GET /healthz`: the process runs. `GET /readyz`: it can serve, or 503 with the reason. */
export function registerProbes(app: FastifyInstance, service: ReadinessSource): void {
  const options = {
    exposeHeadRoute: true,
    config: { policy: { permission: 'public' } },
    schema: { hide: true },
  } as const
  app.get('/healthz', options, (_, reply) => reply.type(JSON_TYPE).send('{"status":"alive"}'))
  app.get('/readyz', options, async (request, reply) => {
    reply.type(JSON_TYPE)
    const found = await service.readiness()
    if (found.status !== 'unavailable') return reply.send(JSON.stringify(found))
    const body = { ...found, error_code: 'SERVICE_UNAVAILABLE', request_id: request.id }
    return reply.code(503).header('retry-after', '1').send(JSON.stringify(body))
  })
}

/** The most open connections of the metrics port. They do not count against the main port's limit. */
const CONNECTIONS_MAX = 100

/** Starts a server with `/metrics` and the probes on `METRICS_PORT`. Rejects if it cannot listen on the address. */
export async function listenForMetrics(
  metrics: Metrics,
  { host, metricsPort: port, metricsToken: token }: Config['server'],
  service: ReadinessSource,
): Promise<Server> {
  // Close idle sockets soon, so that they do not use up the connections.
  const http = { headersTimeout: 5_000, connectionsCheckingInterval: 1_000 }
  const app = fastify({ genReqId: requestIdOf, requestTimeout: 10_000, exposeHeadRoutes: false, http })
  app.addHook('onRequest', (_, reply, done) => {
    reply.headers({ connection: 'close', 'cache-control': 'no-store' })
    done()
  })
  app.setErrorHandler(handleError)
  registerNotFound(app)
  registerProbes(app, service)
  app.get(
    '/metrics',
    { exposeHeadRoute: true, config: { policy: { permission: 'public' } } },
    async (request, reply) => {
      if (token !== undefined && !carriesToken(request.raw, token)) return reply.code(403).send()
      const { type, body } = await metrics.text()
      return reply.type(type).send(body)
    },
  )
  app.server.maxConnections = CONNECTIONS_MAX
  await app.listen({ host, port: port ?? 0 })
  return app.server
}
