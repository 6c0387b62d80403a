import fastify, {
  type FastifyBaseLogger,
  type FastifyHttpOptions,
  type FastifyInstance,
  LogController,
  type RawServerDefault,
} from 'fastify'
import { registerAuthentication } from './auth/authenticate.js'
import { readBacklog } from './changes/feed.js'
import { registerReadChanges } from './changes/read-changes.js'
import type { Config } from './config.js'
import { registerReadPage } from './console/read-page.js'
import type { Database } from './db/database.js'
import { answerClientError, registerConnections } from './http/connections.js'
import { registerDocs } from './http/docs.js'
import { handleError, registerNotFound } from './http/error-handler.js'
import { Gate, registerGate } from './http/gate.js'
import { logCut, registerRequestLog } from './http/logging.js'
import { Metrics, registerProbes } from './http/metrics.js'
import { registerReadMe } from './http/read-me.js'
import { registerRequests, requestFault, requestIdOf, setCommonHeaders } from './http/request.js'
import { registerBodyParser, registerRequestValidation, TOOL_BODY_BYTES_MAX } from './http/validation.js'
import type { Lifecycle } from './lifecycle.js'
import { isInner, registerMcp } from './mcp/serve-mcp.js'
import { releaseTool } from './persona/life.js'
import { registerReadPersonas } from './persona/read-persona.js'
import {
  registerCreatePersona,
  registerDeletePersona,
  registerRestorePersona,
  registerUpdatePersona,
} from './persona/write-persona.js'
import { registerReadProposals } from './proposals/read-proposals.js'
import { propose, registerDecideProposals } from './proposals/write-proposals.js'
import { registerReadRuntime } from './runtime/read-runtime.js'
import { registerToday } from './today/routes.js'
import { registerReadTools } from './tool/read-tool.js'
import { registerValidateTool } from './tool/validate-tool.js'
import { BodyWorkers } from './tool/worker/pool.js'
import { registerCreateTool, registerDeleteTool, registerRestoreTool, registerUpdateTool } from './tool/write-tool.js'

/** What the application needs. The application itself reads no environment variables. */
export interface AppOptions {
  config: Config
  version: string
  database: Database
  service: Pick<Lifecycle, 'current' | 'isDraining' | 'readiness' | 'ring'>
  logger: FastifyBaseLogger | false
  metrics?: Metrics
  /** The time limit of the wait for a worker. The check of a large definition has the same limit. Default: 5 s. */
  definitionTimeoutMs?: number
}

/** Builds the HTTP application, for production and for tests. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { config, database, service, version, metrics = new Metrics() } = options
  const { server } = config
  const app = fastify({
    ...serverOptions(options),
    clientErrorHandler: (error, socket) =>
      answerClientError(app, error, socket, reason => metrics.refused.inc({ reason })),
  })
  app.server.maxConnections = 5_000
  const gate = new Gate(config)

  app.setErrorHandler(handleError)
  registerNotFound(app)
  registerConnections(app, service, server.shutdownTimeoutMs, logCut)
  await registerRequests(app, server.corsOrigins)
  registerRequestLog(app)
  const backlog = () => readBacklog(database.probe)
  metrics.watch(app, { pool: database.pool, inWork: gate, service, version, backlog })
  registerRequestValidation(app)
  registerBodyParser(app)
  const authenticate = registerAuthentication(app, database)

  await app.register(async pages => {
    await registerDocs(pages)
    registerReadPage(pages)
    registerProbes(pages, service)
  })

  await app.register(async operations => {
    await registerGate(operations, gate, service, authenticate, isInner)
    registerOperations(operations, options, gate)
  })
  await app.ready()
  return app
}

/** Registers the operations. The service and the generator of the OpenAPI document call this function. */
export function registerOperations(
  app: FastifyInstance,
  given: Omit<AppOptions, 'version' | 'logger'>,
  gate: Gate,
): void {
  const { config, database, service, definitionTimeoutMs: deadlineMs = 5_000 } = given
  const { requireIfMatch, requireApproval, approval } = config.auth
  const { snapshotBytes: snapshotBytesMax } = config.limits
  const workers = new BodyWorkers({ bodyLimitBytes: TOOL_BODY_BYTES_MAX, deadlineMs })
  app.addHook('onClose', () => workers.close())
  const options = { database, snapshotBytesMax, requireIfMatch, requireApproval, propose }
  const toolOptions = { ...options, workers, ring: service.ring }
  registerReadMe(app, database)
  registerReadPersonas(app, options)
  registerUpdatePersona(app, options)
  registerCreatePersona(app, options)
  registerDeletePersona(app, options)
  registerRestorePersona(app, options)
  registerReadTools(app, toolOptions)
  registerUpdateTool(app, toolOptions)
  registerCreateTool(app, toolOptions)
  registerRestoreTool(app, toolOptions)
  registerDeleteTool(app, { ...options, release: releaseTool })
  registerValidateTool(app, toolOptions)
  registerReadRuntime(app, toolOptions)
  registerReadProposals(app, toolOptions, approval === 'anyone')
  registerDecideProposals(app, toolOptions, approval === 'anyone')
  registerReadChanges(app, database, service, gate)
  registerToday(app, toolOptions)
  registerMcp(app, config.server.corsOrigins)
}

function serverOptions({ config: { server }, logger }: AppOptions): FastifyHttpOptions<RawServerDefault> {
  return {
    ...(logger === false ? { logger: false } : { loggerInstance: logger }),
    trustProxy: server.trustProxy || false,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    childLoggerFactory: (log, bindings) => log.child(bindings), // pino creates a child logger much faster without options
    genReqId: requestIdOf,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    pluginTimeout: 0, // no limit, so that the start does not fail if a plugin loads slowly
    routerOptions: { maxParamLength: 256 },
    // Prevents Fastify from loading its default compilers.
    schemaController: {
      compilersFactory: { buildValidator: () => validatorsAreOurs, buildSerializer: () => () => JSON.stringify },
    },
    frameworkErrors: (error, request, reply) => {
      setCommonHeaders(request, reply) // Fastify runs no hooks for framework errors
      handleError(requestFault(request) ?? error, request, reply)
    },
    requestTimeout: 30_000, // a whole request must arrive within this time
    connectionTimeout: 90_000, // a connection without traffic is closed after this time
    keepAliveTimeout: 72_000, // proxies close idle connections earlier, so they never use a connection that Node is closing
    http: {
      headersTimeout: 10_000,
      // Node checks `headersTimeout` and `requestTimeout` at this interval, so both can take effect up to a second late.
      connectionsCheckingInterval: 1_000,
      requireHostHeader: false, // `requestFault` refuses a missing Host header with our error body
    },
  }
}

function validatorsAreOurs(): never {
  throw new Error('registerRequestValidation was not called, so the routes have no validators')
}
