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

/** `GET /healthz`: the process lives. `GET /readyz`: it can serve; 503 says why not. A missing key is 200 `degraded`. */
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

/** Open connections of this port: those of the main one are counted for themselves, so that its callers leave room for these. */
const CONNECTIONS_MAX = 100

/** A server with `/metrics` and the probes, for `METRICS_PORT`. Rejects when the address cannot be listened on. */
export async function listenForMetrics(
  metrics: Metrics,
  { host, metricsPort: port, metricsToken: token }: Config['server'],
  service: ReadinessSource,
): Promise<Server> {
  // Idle sockets take the room of others no longer than these say.
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
