import type { FastifyInstance } from 'fastify'

declare module 'fastify' {
  interface FastifyRequest {
    /** The operation id of the request's route, or its pattern for a page; `none` at an address that is not there. */
    operation: string
    /** What the route says of who may call it; undefined at an address that is not there. */
    policy: FastifyContextConfig['policy']
    /** Whether the route asks for a caller and works on the database; pages and probes do not. */
    isOperation: boolean
  }
}

/**
 * Writes what a request's route says of it on the request, for everything that acts on it later. Register first. Read once,
 * because Fastify makes `routeOptions` anew each time that somebody looks at it.
 */
export function registerMatchedRoute(app: FastifyInstance): void {
  app.decorateRequest('operation', 'none')
  app.decorateRequest('policy', undefined)
  app.decorateRequest('isOperation', false)
  app.addHook('onRequest', (request, _reply, done) => {
    const { config, schema, url } = request.routeOptions
    request.operation = schema?.operationId ?? url ?? 'none'
    request.policy = config.policy
    request.isOperation = config.policy !== undefined && config.policy.permission !== 'public'
    done()
  })
}
