import { applyOrganisation } from '../src/admin/apply.js'
import { demoOrganisation } from '../src/admin/demo.js'
import { createToken } from '../src/admin/tokens.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { testDatabase } from './postgres.js'
import { buildService, type TestService, UNLIMITED, type WithTeardown } from './test-service.js'
import { TEST_SECRET_KEYS } from './world.js'

/** The service over the demo organisation, as a first start makes it. */
export interface DemoApp extends Pick<TestService, 'app' | 'call'> {
  database: Database
  /** Of the administrator; of somebody who may edit nothing; the administrator's that demands If-Match, and is bound to agent 2; none. */
  tokens: { admin: string; reader: string; careful: string; bound: string; nobody: undefined }
}

/** Builds it with `settings` over the defaults on a database of its own; both end with the test. */
export async function demoApp(t: WithTeardown, settings: Record<string, string> = {}): Promise<DemoApp> {
  const { url } = await testDatabase(t, { name: 'demo', prepare: fillDemo })
  const { app, call, database, service } = await serviceOn(t, url, settings)
  await service.start()
  const { token: admin } = await createToken(database.db, { email: 'admin@example.com' })
  const { token: reader } = await createToken(database.db, { email: 'manager@example.com', scopes: ['basic'] })
  const { token: careful } = await createToken(database.db, { email: 'admin@example.com', requireIfMatch: true })
  const { token: bound } = await createToken(database.db, { email: 'admin@example.com', personaIds: [2] })
  return { app, call, database, tokens: { admin, reader, careful, bound, nobody: undefined } }
}

async function fillDemo(url: string): Promise<void> {
  const database = openUrl(url, readConfig({}))
  await migrate(database)
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  await applyOrganisation(database, demoOrganisation(), { ring, env: {} })
  await database.close()
}

/** The application over the database of `url`, not started: it serves nothing until `service.start`. */
export async function serviceOn(t: WithTeardown, url: string, settings: Record<string, string> = {}) {
  const database = openUrl(url, readConfig(settings))
  t.teardown(() => database.close())
  return { ...(await buildService(t, database, { settings: { ...UNLIMITED, ...settings } })), database }
}
