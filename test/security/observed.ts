import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify'
import { buildApp } from '../../src/app.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { makeLogger } from '../../src/http/logging.js'
import { Metrics } from '../../src/http/metrics.js'
import { Lifecycle } from '../../src/lifecycle.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { VERSION } from '../../src/version.js'
import type { Call } from '../app.js'
import { TEST_SECRET_KEYS, type World, worldDatabase } from '../world.js'

/** What the service asks for before it shows its metrics. */
export const METRICS_TOKEN = 'a-metrics-token-of-some-length'

/** The service over the organisation, with everything that leaves it kept: statements, log lines, answers. */
export interface Observed extends World {
  app: FastifyInstance
  service: Lifecycle
  /** Texts of the statements sent by the service, in their order; the test's own are not among them. */
  statements: string[]
  /** Everything logged, at level trace. */
  log: string[]
  /** Head and body of every answer to `call`. */
  answers: string[]
  call(method: string, url: string, call?: Call): Promise<LightMyRequestResponse>
  /** Listens on loopback and answers the port. */
  listen(): Promise<number>
}

export async function observedWorld(
  t: { teardown(fn: () => Promise<void>): void },
  options: { env?: Record<string, string>; secretKeys?: string; world?: World } = {},
): Promise<Observed> {
  const world = options.world ?? (await worldDatabase(t))
  const limits = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0', HEADER_TRIALS_PER_HOUR: '0' }
  const config = readConfig({ ...limits, DATABASE_POOL_SIZE: '20', LOG_LEVEL: 'trace', METRICS_TOKEN, ...options.env })
  const log: string[] = []
  const statements: string[] = []
  const answers: string[] = []
  const logger = makeLogger(config.server.logLevel, { write: line => log.push(line) })
  const metrics = new Metrics()
  const database = openUrl(world.url, config, {
    onStatement: exchange => {
      statements.push(...exchange.texts)
      metrics.databaseExchange(exchange)
    },
  })
  const ring = parseKeyRing(options.secretKeys ?? TEST_SECRET_KEYS)
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates: false, log: logger })
  const app = await buildApp({ config, version: VERSION, database, service, logger, metrics })
  t.teardown(async () => {
    app.server.closeAllConnections()
    await app.close()
    await database.close()
  })
  if (!(await service.start())) throw new Error('the service did not start')
  const call = async (method: string, url: string, request: Call = {}) => {
    const answer = await app.inject(injected(method, url, request))
    answers.push(`${JSON.stringify(answer.headers)}\n${answer.body}`)
    return answer
  }
  const listen = async () => {
    await app.listen({ host: '127.0.0.1', port: 0 })
    return (app.server.address() as { port: number }).port // it listens on TCP
  }
  return { ...world, app, service, statements, log, answers, call, listen }
}

function injected(method: string, url: string, { token, body, headers }: Call): InjectOptions {
  return {
    method: method as NonNullable<InjectOptions['method']>, // tests ask with unusual ones too
    url,
    headers: {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
  }
}

/** An answer without what differs between any two answers: request id, date, what is left of quotas, and the id inside the body. */
export function comparable(answer: LightMyRequestResponse): unknown {
  const { 'x-request-id': _, date: __, ratelimit: ____, ...headers } = answer.headers
  const { request_id: ___, ...body } = answer.body === '' ? {} : answer.json()
  return { status: answer.statusCode, headers, body }
}
