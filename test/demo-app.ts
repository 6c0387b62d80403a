import { demoOrganisation } from '../src/admin/demo.js'
import { createToken } from '../src/admin/tokens.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { openUrl } from '../src/db/open.js'
import { testDatabase } from './postgres.js'
import { buildService, type TestService, UNLIMITED, type WithTeardown } from './test-service.js'
import { fillDatabase } from './world.js'

/** The service with the demo organisation, as after the first start. */
export interface DemoApp extends Pick<TestService, 'app' | 'call'> {
  database: Database
  /** `reader` may edit nothing. `careful` requires If-Match. `bound` is bound to agent 2. All but `reader` and `nobody` are the administrator's. */
  tokens: { admin: string; reader: string; careful: string; bound: string; runtime: string; nobody: undefined }
}

/** Starts the service on a new database. Closes both after the test. */
export async function demoApp(t: WithTeardown, settings: Record<string, string> = {}): Promise<DemoApp> {
  const prepare = (url: string) => fillDatabase(url, demoOrganisation() as object) // this package's own document
  const { url } = await testDatabase(t, { name: 'demo', prepare })
  const { app, call, database, service } = await serviceOn(t, url, settings)
  await service.start()
  const { token: admin } = await createToken(database.db, { email: 'admin@example.com' })
  const { token: reader } = await createToken(database.db, { email: 'manager@example.com', scopes: ['basic'] })
  const { token: careful } = await createToken(database.db, { email: 'admin@example.com', requireIfMatch: true })
  const { token: bound } = await createToken(database.db, { email: 'admin@example.com', personaIds: [2] })
  const { token: runtime } = await createToken(database.db, { email: 'admin@example.com', scopes: ['runtime'] })
  return { app, call, database, tokens: { admin, reader, careful, bound, runtime, nobody: undefined } }
}

/** Builds the application on the database at `url`. The application answers 503 until `service.start` is called. */
export async function serviceOn(t: WithTeardown, url: string, settings: Record<string, string> = {}) {
  const database = openUrl(url, readConfig(settings))
  t.teardown(() => database.close())
  return { ...(await buildService(t, database, { settings: { ...UNLIMITED, ...settings } })), database }
}
