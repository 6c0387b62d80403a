import type { FastifyInstance } from 'fastify'
import type { Readiness } from '../readiness.js'
import { JSON_TYPE } from './json-type.js'

/**
 * `GET /healthz`: this process is alive, nothing else. `GET /readyz`: it can serve; 503 names its own reason and what to
 * do about it. A missing key is 200 `degraded`: most requests do not need it.
 */
export function registerHealth(app: FastifyInstance, readiness: () => Promise<Readiness>): void {
  const config = { policy: { permission: 'public' } } as const
  app.get('/healthz', { config, schema: { hide: true } }, async (_, reply) => {
    return reply.type(JSON_TYPE).send('{"status":"alive"}')
  })
  app.get('/readyz', { config, schema: { hide: true } }, async (request, reply) => {
    const found = await readiness()
    if (found.status === 'unavailable') {
      const answer = { ...found, error_code: 'SERVICE_UNAVAILABLE', request_id: request.id }
      return reply.code(503).header('retry-after', '1').type(JSON_TYPE).send(JSON.stringify(answer))
    }
    return reply.type(JSON_TYPE).send(JSON.stringify(found))
  })
}
