import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify'
import type { Logger } from 'pino'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { makeLogger } from '../src/http/logging.js'
import type { Metrics } from '../src/http/metrics.js'
import { Lifecycle } from '../src/lifecycle.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { VERSION } from '../src/version.js'
import { TEST_SECRET_KEYS } from './world.js'

export interface WithTeardown {
  teardown(fn: () => Promise<void>): void
}

export interface Call {
  /** The bearer token. Absent: no Authorization header. */
  token?: string
  /** An object is sent as JSON, and a string unchanged. Absent: no body. */
  body?: unknown
  headers?: Record<string, string>
}

export interface TestService {
  app: FastifyInstance
  service: Lifecycle
  /** Sends a request without a socket. */
  call(method: string, url: string, call?: Call): Promise<LightMyRequestResponse>
}

export interface ServiceOptions {
  /** Environment variables that replace the defaults of tests. */
  settings?: Record<string, string>
  secretKeys?: string
  /** Default: no log. */
  logger?: Logger | false
  metrics?: Metrics
  migrates?: boolean
}

export const UNLIMITED = { RATE_LIMIT_PER_MINUTE: '0' }

/** Longer than any operation takes on a busy machine. If an operation hangs, the time limit of the test file ends it. */
const PATIENCE_MS = 600_000
const PATIENT = { EVENT_LOOP_DELAY_MAX_MS: '0', LOCK_TIMEOUT_MS: String(PATIENCE_MS) }

/** Builds the application as production does. The application answers 503 until `service.start`, and is closed after the test. */
export async function buildService(
  t: WithTeardown,
  database: Database,
  { settings = {}, secretKeys = TEST_SECRET_KEYS, logger = false, metrics, migrates = false }: ServiceOptions = {},
): Promise<TestService> {
  const config = readConfig({ ...PATIENT, ...settings })
  const ring = parseKeyRing(secretKeys)
  const log = logger || makeLogger('silent')
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates, log })
  const options = { config, version: VERSION, database, service, logger, definitionTimeoutMs: PATIENCE_MS }
  const app = await buildApp({ ...options, ...(metrics && { metrics }) })
  t.teardown(async () => {
    app.server.closeAllConnections()
    await app.close()
  })
  const call = async (method: string, url: string, { token, body, headers }: Call = {}) =>
    await app.inject({
      method: method as NonNullable<InjectOptions['method']>, // tests also use unusual methods
      url,
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
  return { app, service, call }
}

export async function startedService(
  t: WithTeardown,
  database: Database,
  options: ServiceOptions = {},
): Promise<TestService> {
  const built = await buildService(t, database, options)
  if (!(await built.service.start())) throw new Error('the service did not start')
  return built
}

/** Opens a port on the loopback address and returns it. */
export async function listening(app: FastifyInstance): Promise<number> {
  await app.listen({ host: '127.0.0.1', port: 0 })
  return (app.server.address() as { port: number }).port // the server listens on TCP
}
