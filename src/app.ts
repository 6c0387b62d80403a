import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify'
import { tokenHash } from './auth/authenticate.js'
import { registerAuthentication } from './auth/hook.js'
import { type Config, originsOf, proxiesOf } from './config.js'
import type { ServiceDatabase } from './db/transaction.js'
import { NotAuthenticated } from './errors.js'
import { registerBodyParser } from './http/body-parser.js'
import { BrokenRequests, registerHostCheck } from './http/broken-requests.js'
import { registerConnectionEnd } from './http/connection-end.js'
import { registerCors } from './http/cors.js'
import { registerDocs } from './http/docs.js'
import { handleError } from './http/error-handler.js'
import { registerGate } from './http/gate.js'
import { registerHealth } from './http/health.js'
import { registerLimits } from './http/limits.js'
import { registerRequestLog, requestLogger } from './http/logging.js'
import { Metrics, registerMetrics } from './http/metrics.js'
import { registerNotFound } from './http/not-found.js'
import { registerOperation } from './http/operation.js'
import { requestIdOf } from './http/request-id.js'
import { setCommonHeaders } from './http/security-headers.js'
import { singleFlight } from './http/single-flight.js'
import { registerPersonaRoutes } from './persona/routes.js'
import { personaComponents, personaUpsertRequest } from './persona/schema.js'
import type { Service } from './startup.js'
import { registerToolRoutes } from './tool/routes.js'
import { toolComponents } from './tool/schema.js'

/** Everything that the application works with. Nothing is read from the environment or the disk behind its back. */
export interface AppOptions {
  config: Config
  version: string
  database: ServiceDatabase
  service: Pick<Service, 'current' | 'readiness' | 'vault'>
  logger: FastifyBaseLogger | false
  /** Where the process counts what happened before the application was built; without it the application has its own. */
  metrics?: Metrics
}

/**
 * Builds the HTTP application, in the order in which it acts. Production and tests call this same function; the process
 * around it only starts and stops it.
 */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { config, database, service, metrics = new Metrics() } = options
  const proxies = proxiesOf(config)
  const broken = new BrokenRequests(code => metrics.brokenRequest(code))
  const app = fastify({
    ...(options.logger === false ? { logger: false } : { loggerInstance: options.logger }),
    ...serverLimits(config),
    trustProxy: proxies.length > 0 ? proxies : false,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    childLoggerFactory: (log, bindings, loggerOptions, request) => requestLogger(log, bindings, loggerOptions, request),
    genReqId: requestIdOf,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: 256 },
    clientErrorHandler: (error, socket) => broken.answer(app, error, socket),
    frameworkErrors: (error, request, reply) => {
      setCommonHeaders(request, reply)
      handleError(error, request, reply)
    },
  })
  broken.watch(app)
  app.setValidatorCompiler(() => () => true) // request-parts.ts reports the faults of all parts at once
  app.setSerializerCompiler(() => JSON.stringify)
  registerBodyParser(app)
  registerNotFound(app)
  registerOperation(app)
  app.addHook('onRequest', (request, reply, done) => {
    setCommonHeaders(request, reply)
    done()
  })
  await registerCors(app, originsOf(config))
  registerRequestLog(app)
  registerConnectionEnd(app)
  registerHostCheck(app)
  const inFlight = registerGate(app, service, config.CONCURRENT_REQUESTS_MAX)
  const failureLimit = await registerLimits(app, {
    requestsPerMinute: config.RATE_LIMIT_PER_MINUTE,
    failuresPerMinute: config.FAILED_AUTH_LIMIT_PER_MINUTE,
    keysMax: config.RATE_LIMIT_KEYS_MAX,
    tokenHash,
    onLimited: limit => metrics.rateLimited(limit),
  })
  app.setErrorHandler((error, request, reply) => {
    if (failureLimit === undefined || !(error instanceof NotAuthenticated)) return handleError(error, request, reply)
    return failureLimit(error, request, reply).then(limited => handleError(limited, request, reply))
  })
  registerAuthentication(app, database)
  const readiness = singleFlight(() => service.readiness())
  metrics.watch(app, {
    pool: database.pool,
    poolSizeMax: config.DATABASE_POOL_SIZE,
    inFlight,
    readiness,
    version: options.version,
  })
  const upsertRequest = personaUpsertRequest(config.LIST_ITEMS_MAX)
  await registerDocs(app, options.version, [...toolComponents, ...personaComponents(upsertRequest)])
  registerHealth(app, readiness)
  registerMetrics(app, metrics, { token: config.METRICS_TOKEN, hasOwnPort: config.METRICS_PORT !== undefined })
  registerPersonaRoutes(app, {
    database,
    bodyLimitBytes: config.PERSONA_BODY_LIMIT_BYTES,
    jsonDepthMax: config.JSON_DEPTH_MAX,
    upsertRequest,
    requireIfMatch: config.REQUIRE_IF_MATCH === 'on',
  })
  registerToolRoutes(app, {
    database,
    vault: () => service.vault(),
    bodyLimitBytes: config.TOOL_BODY_LIMIT_BYTES,
    jsonDepthMax: config.JSON_DEPTH_MAX,
    definitionLimits: config,
    requireIfMatch: config.REQUIRE_IF_MATCH === 'on',
  })
  await app.ready()
  app.server.maxConnections = config.CONNECTIONS_MAX
  return app
}

/** What a client may take of this process: bytes, time, connections. */
function serverLimits(config: Config) {
  return {
    bodyLimit: config.PERSONA_BODY_LIMIT_BYTES,
    connectionTimeout: config.STALL_TIMEOUT_MS,
    requestTimeout: config.REQUEST_TIMEOUT_MS,
    keepAliveTimeout: config.KEEP_ALIVE_TIMEOUT_MS,
    http: {
      headersTimeout: config.HEADERS_TIMEOUT_MS,
      // How often the two timeouts are looked at: they act at most this much too late.
      connectionsCheckingInterval: Math.min(1_000, config.HEADERS_TIMEOUT_MS),
      requireHostHeader: false, // registerHostCheck answers in our shape
    },
  }
}
