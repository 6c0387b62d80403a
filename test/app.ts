import type { Logger } from 'pino'
import type { Database } from '../src/db/database.js'
import { startedService, type TestService, UNLIMITED, type WithTeardown } from './test-service.js'
import { type World, worldDatabase } from './world.js'

export type { Call } from './test-service.js'

/** The application as production builds it, with the organisation of the recorded cases. */
export interface WorldApp extends World, Pick<TestService, 'app' | 'call'> {
  /** The tokens of admin@example.com and alice@example.com. */
  admin: string
  alice: string
}

/** Builds the application with the settings `env` on a new copy of the organisation's database. Closes both after the test. */
export async function worldApp(
  t: WithTeardown,
  env: Record<string, string> = {},
  logger: Logger | false = false,
): Promise<WorldApp> {
  const world = await worldDatabase(t)
  const [admin, alice] = [await world.token('admin@example.com'), await world.token('alice@example.com')]
  return { ...world, admin, alice, ...(await appOver(t, world.database, env, logger)) }
}

/** Builds the application on an open database. Closes the application after the test. */
export async function appOver(
  t: WithTeardown,
  database: Database,
  env: Record<string, string> = {},
  logger: Logger | false = false,
): Promise<Pick<WorldApp, 'app' | 'call'>> {
  return await startedService(t, database, { settings: { ...UNLIMITED, ...env }, logger })
}

/** The twelve required fields of an agent update. */
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

/** Reads all pages of a list by following the `Link` headers. */
export async function pagesOf<Entry>({ call }: Pick<WorldApp, 'call'>, path: string, headers: Record<string, string>) {
  const pages: Entry[][] = []
  for (let next: string | undefined = path; next !== undefined; ) {
    const { statusCode, body, headers: answered } = await call('GET', next, { headers })
    if (statusCode !== 200) throw new Error(`${next}: ${body}`)
    pages.push(JSON.parse(body))
    next = answered.link === undefined ? undefined : linked(next, answered.link, 'next')
  }
  return pages
}

/** Returns the path and query of a `Link` header, resolved against `from`. Throws if the link's relation is not `relation`. */
export function linked(from: string, link: unknown, relation: string): string {
  const [, reference, rel] = /^<([^>]+)>; rel="(.+)"$/.exec(String(link)) ?? []
  if (reference === undefined || rel !== relation) throw new Error(`no ${relation} in ${link}`)
  const { pathname, search } = new URL(reference, new URL(from, 'http://localhost'))
  return pathname + search
}
