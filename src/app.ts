import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify'
import { registerAuthentication } from './auth/hook.js'
import type { Config } from './config.js'
import type { ServiceDatabase } from './db/transaction.js'
import { registerBodyParser } from './http/body-parser.js'
import { registerDocs } from './http/docs.js'
import { handleError } from './http/error-handler.js'
import { registerHealth } from './http/health.js'
import { registerConnectionEnd, registerGate } from './http/lifecycle.js'
import { registerRequestLog } from './http/logging.js'
import { registerNotFound } from './http/not-found.js'
import { requestIdOf } from './http/request-id.js'
import { registerPersonaRoutes } from './persona/routes.js'
import type { Service } from './service.js'
import { registerToolRoutes } from './tool/routes.js'

/** Everything that the application works with. Nothing is read from the environment or the disk behind its back. */
export interface AppOptions {
  config: Config
  version: string
  database: ServiceDatabase
  service: Pick<Service, 'current' | 'readiness' | 'vault'>
  logger: FastifyBaseLogger | false
}

/**
 * Builds the HTTP application, in the order in which it acts. Production and tests call this same function; the process
 * around it only starts and stops it.
 */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { config, database, service } = options
  const app = fastify({
    ...(options.logger === false ? { logger: false } : { loggerInstance: options.logger }),
    bodyLimit: config.PERSONA_BODY_LIMIT_BYTES,
    connectionTimeout: 0,
    requestTimeout: config.REQUEST_TIMEOUT_MS,
    keepAliveTimeout: config.KEEP_ALIVE_TIMEOUT_MS,
    http: { headersTimeout: config.HEADERS_TIMEOUT_MS, connectionsCheckingInterval: 1_000 },
    trustProxy: config.TRUST_PROXY === '' ? false : config.TRUST_PROXY,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: requestIdOf,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: 256 },
    frameworkErrors: (error, request, reply) => {
      handleError(error, request, reply)
    },
  })
  app.setValidatorCompiler(() => () => true) // request-parts.ts reports the faults of all parts at once
  app.setSerializerCompiler(() => JSON.stringify)
  app.setErrorHandler(handleError)
  registerBodyParser(app)
  registerNotFound(app)
  registerCommonHeaders(app)
  registerRequestLog(app)
  registerConnectionEnd(app)
  registerGate(app, service, config.CONCURRENT_REQUESTS_MAX)
  registerAuthentication(app, database.db)
  await registerDocs(app, options.version)
  registerHealth(app, () => service.readiness())
  registerPersonaRoutes(app, {
    database,
    bodyLimitBytes: config.PERSONA_BODY_LIMIT_BYTES,
    requireIfMatch: config.REQUIRE_IF_MATCH === 'on',
  })
  registerToolRoutes(app, {
    database,
    vault: () => service.vault(),
    bodyLimitBytes: config.TOOL_BODY_LIMIT_BYTES,
    requireIfMatch: config.REQUIRE_IF_MATCH === 'on',
  })
  await app.ready()
  app.server.maxConnections = config.CONNECTIONS_MAX
  return app
}

function registerCommonHeaders(app: FastifyInstance): void {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id)
    reply.header('cache-control', 'no-store')
  })
}
