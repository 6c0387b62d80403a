import underPressure from '@fastify/under-pressure'
import fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify'
import { registerAuthentication } from './auth/hook.js'
import type { Config } from './config.js'
import type { ServiceDatabase } from './db/transaction.js'
import { NotAuthenticated, RateLimited, TRY_AGAIN, Unavailable } from './errors.js'
import { addressFault, registerAddressCheck, registerQuery, routedPath } from './http/address.js'
import { registerBodyParser } from './http/body.js'
import { answerClientError, registerConnections, registerHeaderCheck } from './http/connections.js'
import { registerCors } from './http/cors.js'
import { registerDocs } from './http/docs.js'
import { handleError } from './http/error-handler.js'
import { registerHealth } from './http/health.js'
import { registerInWork } from './http/in-work.js'
import { registerLimits } from './http/limits.js'
import { logAbandoned, registerRequestLog, requestLogger } from './http/logging.js'
import { registerMatchedRoute } from './http/matched-route.js'
import { Metrics, registerMetrics } from './http/metrics.js'
import { registerNotFound } from './http/not-found.js'
import { CallerRecord, registerReadMe } from './http/read-me.js'
import { requestIdOf } from './http/request-id.js'
import { setCommonHeaders } from './http/security-headers.js'
import { singleFlight } from './http/single-flight.js'
import { registerTracing } from './http/tracing.js'
import { registerRequestValidation } from './http/validation.js'
import type { Lifecycle } from './lifecycle.js'
import { bodyTurns, workBounds } from './limits/semaphore.js'
import { registerReadPersona, registerReadPersonas } from './persona/read-persona.js'
import { personaComponents } from './persona/schema.js'
import { registerUpdatePersona } from './persona/update-persona.js'
import { registerReadTool, registerReadTools } from './tool/read-tool.js'
import { toolComponents } from './tool/schema.js'
import { registerUpdateTool } from './tool/update-tool.js'
import { registerValidateTool } from './tool/validate-tool.js'
import { BodyWorkers, WORKERS_MAX } from './tool/worker/pool.js'

/** Everything that the application works with. Nothing is read from the environment or the disk behind its back. */
export interface AppOptions {
  config: Config
  version: string
  database: ServiceDatabase
  service: Pick<Lifecycle, 'acceptsWrites' | 'current' | 'isDraining' | 'readiness' | 'requireSchema' | 'vault'>
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
  const { server, auth, limits } = config
  const app = fastify({
    ...(options.logger === false ? { logger: false } : { loggerInstance: options.logger }),
    ...serverLimits(config),
    trustProxy: server.trustedProxies.length > 0 ? [...server.trustedProxies] : false,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    childLoggerFactory: (log, bindings, _options, request) => requestLogger(log, bindings, request),
    genReqId: requestIdOf,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    rewriteUrl: routedPath,
    routerOptions: { maxParamLength: 256 },
    // Without these Fastify loads compilers of its own, for schemas of which there are none here: each route has its validator.
    schemaController: {
      compilersFactory: { buildValidator: () => noValidator, buildSerializer: () => () => JSON.stringify },
    },
    clientErrorHandler: (error, socket) => answerClientError(app, error, socket, code => metrics.brokenRequest(code)),
    frameworkErrors: (error, request, reply) => {
      setCommonHeaders(request, reply) // no hook runs for these
      handleError(addressFault(request) ?? error, request, reply)
    },
  })
  app.decorateRequest('tokenHash', undefined)
  registerRequestValidation(app)
  registerBodyParser(app)
  registerNotFound(app)
  registerMatchedRoute(app)
  registerTracing(app)
  app.addHook('onRequest', (request, reply, done) => {
    setCommonHeaders(request, reply)
    done()
  })
  await registerCors(app, server.corsOrigins)
  registerRequestLog(app)
  registerConnections(
    app,
    () => service.isDraining(),
    server.shutdownTimeoutMs,
    (request, reply) => {
      metrics.abandoned(request)
      logAbandoned(request, reply)
    },
  )
  registerAddressCheck(app)
  registerHeaderCheck(app)
  await app.register(underPressure, pressureLimits(limits.eventLoopDelayMaxMs))
  const { concurrentRequestsMax: requestsMax, transferBytes: bytesMax } = limits
  const inWork = registerInWork(app, () => service.current(), { requestsMax, bytesMax })
  const failureLimit = await registerLimits(app, {
    requestsPerMinute: auth.requestsPerMinute,
    failuresPerMinute: auth.failuresPerMinute,
  })
  const answerError = (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    if (error instanceof RateLimited) metrics.rateLimited(error.state.limit)
    handleError(error, request, reply)
  }
  app.setErrorHandler((error, request, reply) => {
    const answer = (found: unknown) => answerError(found, request, reply)
    if (failureLimit === undefined || !(error instanceof NotAuthenticated)) answer(error)
    // No promise is answered: Fastify would send a second time where the first answer has not gone out when it ends.
    else failureLimit(error, request, reply).then(answer, answer)
  })
  registerAuthentication(app, database, steps => service.requireSchema(steps))
  registerQuery(app)
  const readiness = singleFlight(() => service.readiness())
  metrics.watch(app, {
    pool: database.pool,
    poolSizeMax: config.database.poolSize,
    connectionsMax: CONNECTIONS_MAX,
    inWork,
    readiness,
    acceptsWrites: () => service.acceptsWrites(),
    version: options.version,
  })
  await registerDocs(app, options.version, [...toolComponents, ...personaComponents, CallerRecord])
  registerHealth(app, readiness)
  registerMetrics(app, metrics, { token: server.metricsToken, hasOwnPort: server.metricsPort !== undefined })
  registerReadMe(app, database)
  const bounds = workBounds(config.database)
  const reading = { bounds, snapshotBytesMax: limits.snapshotBytes }
  registerReadPersonas(app, database, bounds)
  registerReadPersona(app, database, reading)
  registerUpdatePersona(app, {
    database,
    bodyLimitBytes: PERSONA_BODY_BYTES_MAX,
    ...reading,
    requireIfMatch: auth.requireIfMatch,
  })
  const { toolBodyBytes: bodyLimitBytes, definitionTimeoutMs: deadlineMs } = limits
  const turn = bodyTurns(WORKERS_MAX, deadlineMs)
  const workers = new BodyWorkers({ bodyLimitBytes, deadlineMs, turn })
  app.addHook('onClose', () => workers.close())
  registerReadTools(app, database, bounds)
  registerReadTool(app, database, reading)
  registerUpdateTool(app, {
    bodyLimitBytes,
    database,
    workers,
    vault: () => service.vault(),
    ...reading,
    requireIfMatch: auth.requireIfMatch,
    headerTrialsPerHour: auth.headerTrialsPerHour,
  })
  registerValidateTool(app, { bodyLimitBytes, database, workers, bounds })
  await app.ready()
  app.server.maxConnections = CONNECTIONS_MAX
  app.server.on('drop', () => metrics.refusedConnection())
  return app
}

/** Open client connections; more are closed without an answer. */
const CONNECTIONS_MAX = 5_000

/** The longest silence of a connection with a request in work, or with an answer that its client does not read. */
const STALL_TIMEOUT_MS = 60_000

const HEADERS_TIMEOUT_MS = 10_000

const PERSONA_BODY_BYTES_MAX = 4 * 2 ** 20

/** Every part of a request that has a schema has the validator that `registerRequestValidation` makes of it. */
function noValidator(): never {
  throw new Error('a schema of a route has no validator of ours')
}

/** Refuses operations while the event loop is late: whatever would be answered then would be answered late. */
function pressureLimits(maxEventLoopDelay: number): underPressure.FastifyUnderPressureOptions {
  const detail = `The service is busy: its event loop is more than ${maxEventLoopDelay} ms late. ${TRY_AGAIN}`
  const setting = 'EVENT_LOOP_DELAY_MAX_MS'
  return {
    maxEventLoopDelay,
    exposeStatusRoute: false,
    pressureHandler: async ({ isOperation }) => {
      if (isOperation) throw new Unavailable('overloaded', detail, 'not_applied', { setting })
    },
  }
}

/** What a client may take of this process: bytes, time, connections. */
function serverLimits({ server }: Config) {
  const headersTimeout = Math.min(HEADERS_TIMEOUT_MS, server.requestTimeoutMs)
  return {
    bodyLimit: PERSONA_BODY_BYTES_MAX,
    connectionTimeout: STALL_TIMEOUT_MS,
    requestTimeout: server.requestTimeoutMs,
    keepAliveTimeout: server.keepAliveTimeoutMs,
    http: {
      headersTimeout,
      // How often the two timeouts are looked at: they act at most this much too late.
      connectionsCheckingInterval: Math.min(1_000, headersTimeout),
      requireHostHeader: false, // registerHostCheck answers in our shape
    },
  }
}
