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
import { NotAuthenticated, RateLimited } from './errors.js'
import { addressFault, registerAddressCheck, registerQuery, routedPath } from './http/address.js'
import { type BodySettings, registerBodyParser } from './http/body.js'
import { BrokenRequests, registerHeaderCheck } from './http/broken-requests.js'
import { registerConnectionEnd } from './http/connection-end.js'
import { limitConnections, logRefusedConnections } from './http/connection-limit.js'
import { registerCors } from './http/cors.js'
import { registerDocs } from './http/docs.js'
import { handleError } from './http/error-handler.js'
import { registerGate } from './http/gate.js'
import { registerHealth } from './http/health.js'
import { registerLargeAnswers } from './http/large-answer.js'
import { countBytes, registerLimits } from './http/limits.js'
import { logAbandoned, registerRequestLog, requestLogger } from './http/logging.js'
import { registerMatchedRoute } from './http/matched-route.js'
import type { MemoryBudgetLimits } from './http/memory-budget.js'
import { Metrics, registerMetrics } from './http/metrics.js'
import { registerNotFound } from './http/not-found.js'
import { paceReads } from './http/paced-reads.js'
import { PackedMessage } from './http/packed-message.js'
import { CallerRecord, registerReadMe } from './http/read-me.js'
import { requestIdOf } from './http/request-id.js'
import { registerRequestMemory } from './http/request-memory.js'
import { RequestTurns } from './http/request-turns.js'
import { setCommonHeaders } from './http/security-headers.js'
import { singleFlight } from './http/single-flight.js'
import { registerStop } from './http/stop.js'
import { registerTracing } from './http/tracing.js'
import { UnfinishedTransfers } from './http/unfinished-transfers.js'
import { registerUnreadAnswers } from './http/unread-answers.js'
import { registerRequestValidation } from './http/validation.js'
import { registerWaits } from './http/waits.js'
import type { Lifecycle } from './lifecycle.js'
import { bodyTurns, workBounds } from './limits/semaphore.js'
import { registerReadPersona } from './persona/read-persona.js'
import { registerReadPersonas } from './persona/read-personas.js'
import { personaComponents, personaUpsertRequest } from './persona/schema.js'
import { registerUpdatePersona } from './persona/update-persona.js'
import { registerReadTool } from './tool/read-tool.js'
import { registerReadTools } from './tool/read-tools.js'
import { toolComponents } from './tool/schema.js'
import { registerUpdateTool } from './tool/update-tool.js'
import { registerValidateTool } from './tool/validate-tool.js'
import { BodyWorkers, WORKERS_MAX } from './tool/worker/pool.js'

/** Everything that the application works with. Nothing is read from the environment or the disk behind its back. */
export interface AppOptions {
  config: Config
  version: string
  database: ServiceDatabase
  service: Pick<Lifecycle, 'current' | 'isDraining' | 'readiness' | 'requireSchema' | 'vault'>
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
  const broken = new BrokenRequests(code => metrics.brokenRequest(code))
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
    clientErrorHandler: (error, socket) => broken.answer(app, error, socket),
    frameworkErrors: (error, request, reply) => {
      turns.takeOfSender(request, () => {
        setCommonHeaders(request, reply)
        settleConnection(request, reply) // no hook runs for these, nor the next
        watchAnswer(request, reply, undefined)
        handleError(addressFault(request) ?? error, request, reply)
      })
    },
  })
  broken.watch(app)
  app.decorateRequest('tokenHash', undefined)
  registerRequestValidation(app, limits.jsonDepthMax)
  const unfinished = new UnfinishedTransfers()
  const memory = memoryLimits(config)
  const json = jsonBounds(config)
  registerBodyParser(app, { ...json, onRead: countBytes, shutdownTimeoutMs: server.shutdownTimeoutMs })
  const connectionsMax = connectionLimits(config)
  tellStronger(app.log, config, memory, connectionsMax)
  registerRequestMemory(app, memory, unfinished)
  registerWaits(app, metrics)
  registerNotFound(app)
  registerMatchedRoute(app)
  const turns = new RequestTurns(database.turns)
  turns.registerSecond(app)
  const idleConnections = paceReads(app, database.turns)
  registerTracing(app)
  app.addHook('onRequest', (request, reply, done) => {
    setCommonHeaders(request, reply)
    done()
  })
  await registerCors(app, server.corsOrigins)
  registerRequestLog(app)
  const settleConnection = registerConnectionEnd(app, () => service.isDraining())
  registerAddressCheck(app)
  registerHeaderCheck(app)
  const gate = registerGate(app, service, limits.concurrentRequestsMax, unfinished, database.turns)
  gate.inFlight.whenAbandoned(logAbandoned)
  turns.registerFirst(app)
  const failureLimit = await registerLimits(app, {
    requestsPerMinute: auth.requestsPerMinute,
    bytesPerMinute: auth.bytesPerMinute,
    failuresPerMinute: auth.failuresPerMinute,
    keysMax: auth.countedKeysMax,
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
  registerLargeAnswers(app, unfinished)
  const { watch: watchAnswer, unread } = registerUnreadAnswers(app)
  registerStop(app, { idleConnections, unfinished, unread }, server.shutdownTimeoutMs)
  registerAuthentication(app, database, steps => service.requireSchema(steps))
  gate.registerAuthenticated(app)
  registerQuery(app)
  const readiness = singleFlight(() => service.readiness())
  metrics.watch(app, {
    pool: database.pool,
    poolSizeMax: config.database.poolSize,
    connectionsMax,
    inFlight: gate.inFlight,
    readiness,
    version: options.version,
  })
  const upsertRequest = personaUpsertRequest(limits)
  await registerDocs(app, options.version, [...toolComponents, ...personaComponents(upsertRequest), CallerRecord])
  registerHealth(app, readiness)
  registerMetrics(app, metrics, { token: server.metricsToken, hasOwnPort: server.metricsPort !== undefined })
  registerReadMe(app, database)
  const bounds = workBounds(config.database)
  const reading = { bounds, snapshotBytesMax: limits.snapshotBytes }
  registerReadPersonas(app, database, bounds)
  registerReadPersona(app, database, reading, upsertRequest)
  registerUpdatePersona(app, {
    database,
    bodyLimitBytes: limits.personaBodyBytes,
    ...reading,
    jsonDepthMax: limits.jsonDepthMax,
    upsertRequest,
    requireIfMatch: auth.requireIfMatch,
  })
  const { toolBodyBytes: bodyLimitBytes, jsonDepthMax, definitionTimeoutMs: deadlineMs } = limits
  const turn = bodyTurns(WORKERS_MAX, deadlineMs)
  const workers = new BodyWorkers({ bodyLimitBytes, json: json.tool, jsonDepthMax, deadlineMs, turn })
  app.addHook('onClose', () => workers.close())
  const toolBounds = {
    bodyLimitBytes: limits.toolBodyBytes,
    jsonDepthMax: limits.jsonDepthMax,
    definitionLimits: limits,
  }
  registerReadTools(app, database, bounds)
  registerReadTool(app, database, reading)
  registerUpdateTool(app, {
    ...toolBounds,
    database,
    workers,
    vault: () => service.vault(),
    ...reading,
    requireIfMatch: auth.requireIfMatch,
    headerTrialsPerHour: auth.headerTrialsPerHour,
  })
  registerValidateTool(app, { ...toolBounds, database, workers, bounds })
  await app.ready()
  app.server.maxConnections = connectionsMax.CONNECTIONS_MAX
  const logRefused = logRefusedConnections(app.log, connectionsMax)
  limitConnections(app.server, {
    perAddressMax: connectionsMax.CONNECTIONS_PER_ADDRESS_MAX,
    trustedProxies: server.trustedProxies,
    onRefused: (limit, address) => {
      metrics.refusedConnection(limit)
      logRefused(limit, address)
    },
  })
  return app
}

/** An id is a comma, and in a list of texts a text beside it: six full lists, and as much again for all other fields. */
const NODES_PER_LIST_ITEM = 20

/** A tool body's definition has a bound of its own, `DEFINITION_DEPTH_MAX`, which is at most 200 and tells the place. */
const TOOL_BODY_DEPTH_MAX = 256

/** A field of an agent has a short name. Keys of definitions may be long, and are bounded again, in characters, where the place is told. */
const AGENT_KEY_BYTES_MAX = 1_024
const TOOL_KEY_BYTES_MAX = 48 * 1_024

/** Every part of a request that has a schema has the validator that `registerRequestValidation` makes of it. */
function noValidator(): never {
  throw new Error('a schema of a route has no validator of ours')
}

/** What bodies may hold. */
function jsonBounds({ limits }: Config): Pick<BodySettings, 'persona' | 'tool'> {
  const nodesMax = NODES_PER_LIST_ITEM * Math.max(1_000, limits.listItemsMax)
  return {
    persona: { depthMax: limits.jsonDepthMax, nodesMax, keyBytesMax: AGENT_KEY_BYTES_MAX },
    tool: { depthMax: TOOL_BODY_DEPTH_MAX, nodesMax: limits.toolBodyNodesMax, keyBytesMax: TOOL_KEY_BYTES_MAX },
  }
}

/**
 * The memory of large bodies and answers. A single request with the largest of both gets its memory where no other has any. Bodies that are
 * not read yet wait rather than take more than half, so that those that were read have room for their answers.
 */
function memoryLimits({ limits }: Config): MemoryBudgetLimits & { ofBodies: MemoryBudgetLimits } {
  const largestAnswer = Math.max(limits.snapshotBytes, limits.toolBodyBytes)
  const largestBody = Math.max(limits.personaBodyBytes, limits.toolBodyBytes)
  const largest = largestBody + largestAnswer
  const perTokenBytes = Math.max(limits.transferPerTokenBytes, largest)
  const totalBytes = Math.max(limits.transferBytes, perTokenBytes, 2 * largest)
  const ofBodies = {
    perTokenBytes: Math.max(largestBody, Math.min(perTokenBytes / 2, perTokenBytes - largestAnswer)),
    totalBytes: Math.max(2 * largestBody, totalBytes / 2),
  }
  return { perTokenBytes, totalBytes, ofBodies }
}

function connectionLimits({ limits }: Config) {
  const { connectionsMax: all, connectionsPerAddressMax = Math.ceil(all / 2) } = limits
  return { CONNECTIONS_MAX: all, CONNECTIONS_PER_ADDRESS_MAX: Math.min(all, connectionsPerAddressMax) }
}

/** Whoever set a limit hears where another one is stronger. */
function tellStronger(
  log: FastifyBaseLogger,
  { limits, database }: Config,
  memory: MemoryBudgetLimits,
  connections: ReturnType<typeof connectionLimits>,
): void {
  const tell = (setting: string, configured: number | undefined, effective: number, why: string) => {
    if (configured === undefined || effective === configured) return
    log.warn({ setting, configured, effective }, `a setting does not hold as it is: ${why}`)
  }
  const { transferBytes, transferPerTokenBytes, connectionsPerAddressMax } = limits
  const largest = 'the largest body with its answer takes so much'
  const isOfToken = memory.totalBytes === transferPerTokenBytes
  const total = isOfToken ? 'TRANSFER_PER_TOKEN_BYTES_MAX is more' : `${largest}, twice`
  tell('TRANSFER_BYTES_MAX', transferBytes, memory.totalBytes, total)
  tell('TRANSFER_PER_TOKEN_BYTES_MAX', transferPerTokenBytes, memory.perTokenBytes, largest)
  const ofAddress = connections.CONNECTIONS_PER_ADDRESS_MAX
  tell('CONNECTIONS_PER_ADDRESS_MAX', connectionsPerAddressMax, ofAddress, 'CONNECTIONS_MAX is less')
  const { lockTimeoutMs, statementTimeoutMs } = database
  const lockMs = Math.min(lockTimeoutMs, statementTimeoutMs)
  tell('LOCK_TIMEOUT_MS', lockTimeoutMs, lockMs, 'STATEMENT_TIMEOUT_MS ends a wait within the database before')
}

/** What a client may take of this process: bytes, time, connections. */
function serverLimits({ server, limits }: Config) {
  return {
    bodyLimit: limits.personaBodyBytes,
    connectionTimeout: server.stallTimeoutMs,
    requestTimeout: server.requestTimeoutMs,
    keepAliveTimeout: server.keepAliveTimeoutMs,
    http: {
      IncomingMessage: PackedMessage,
      headersTimeout: server.headersTimeoutMs,
      // How often the two timeouts are looked at: they act at most this much too late.
      connectionsCheckingInterval: Math.min(1_000, server.headersTimeoutMs),
      requireHostHeader: false, // registerHostCheck answers in our shape
    },
  }
}
