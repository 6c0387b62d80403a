import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify'
import type { Logger } from 'pino'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import type { ServiceDatabase } from '../src/db/transaction.js'
import { makeLogger } from '../src/http/logging.js'
import { Lifecycle } from '../src/lifecycle.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { VERSION } from '../src/version.js'
import { TEST_SECRET_KEYS, type World, worldDatabase } from './world.js'

export interface Call {
  /** Bearer token; without one the request carries no Authorization. */
  token?: string
  /** An object is sent as JSON, a text as it is; without one there is no body. */
  body?: unknown
  headers?: Record<string, string>
}

/** The application as production builds it, over the recorded cases' organisation. */
export interface WorldApp extends World {
  app: FastifyInstance
  call(method: string, url: string, call?: Call): Promise<LightMyRequestResponse>
}

/** Builds it with the settings of `env` over a fresh copy of the organisation; both end with the test. */
export async function worldApp(
  t: { teardown(fn: () => Promise<void>): void },
  env: Record<string, string> = {},
  logger: Logger | false = false,
): Promise<WorldApp> {
  const world = await worldDatabase(t)
  return { ...world, ...(await appOver(t, world.database, env, logger)) }
}

/** The same over a database that is open; the application ends with the test. */
export async function appOver(
  t: { teardown(fn: () => Promise<void>): void },
  database: ServiceDatabase,
  env: Record<string, string> = {},
  logger: Logger | false = false,
): Promise<Pick<WorldApp, 'app' | 'call'>> {
  const { app, service } = await serviceOver(t, database, env, logger)
  if (!(await service.start())) throw new Error('the service did not start')
  return { app, call: (method, url, call = {}) => inject(app, method, url, call) }
}

/** The application, which serves nothing until `service.start`. */
export async function serviceOver(
  t: { teardown(fn: () => Promise<void>): void },
  database: ServiceDatabase,
  env: Record<string, string> = {},
  logger: Logger | false = false,
  migrates?: 'migrates',
) {
  const config = readConfig({
    RATE_LIMIT_PER_MINUTE: '0',
    FAILED_AUTH_LIMIT_PER_MINUTE: '0',
    HEADER_TRIALS_PER_HOUR: '0',
    EVENT_LOOP_DELAY_MAX_MS: '0', // the machine may be busy
    ...env,
  })
  const log = logger || makeLogger('silent')
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates: migrates !== undefined, log })
  const app = await buildApp({ config, version: VERSION, database, service, logger })
  t.teardown(() => app.close())
  return { app, service }
}

/** Sends a request to an application without a socket. */
export async function inject(app: FastifyInstance, method: string, url: string, call: Call) {
  const { token, body, headers } = call
  return await app.inject({
    method: method as NonNullable<InjectOptions['method']>, // tests ask with unusual ones too
    url,
    headers: {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
}

/** A whole agent update as a client sends it: the twelve required fields. */
export const REQUIRED_FIELDS = {
  name: 'Agent',
  description: 'An agent',
  document_set_ids: [1],
  num_chunks: 10,
  is_public: false,
  recency_bias: 'auto',
  llm_filter_extraction: true,
  llm_relevance_filter: false,
  tool_ids: [10],
  system_prompt: 'sys',
  task_prompt: 'task',
  datetime_aware: true,
}

/** The address, without its origin, that a `Link` with this relation names in the answer from another. */
export function linked(from: string, link: unknown, relation: string): string {
  const [, reference, rel] = /^<([^>]+)>; rel="(.+)"$/.exec(String(link)) ?? []
  if (reference === undefined || rel !== relation) throw new Error(`no ${relation} in ${link}`)
  const { pathname, search } = new URL(reference, new URL(from, 'http://localhost'))
  return pathname + search
}
