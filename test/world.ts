import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import type { ApplyOptions, ApplyReport } from '../src/admin/apply.js'
import { verifyAudit } from '../src/admin/audit-verification.js'
import { createToken, type TokenRequest } from '../src/admin/tokens.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { type KeyRing, parseKeyRing } from '../src/secrets/key-ring.js'
import { opened, testDatabase } from './postgres.js'

type WithTeardown = { teardown(fn: () => Promise<void>): void }

/** The organisation of the recorded cases, in its own database. */
export interface World {
  /** The URL of the database, for `pg` and `DATABASE_URL`. */
  url: string
  database: Database
  ring: KeyRing
  /** Creates a token for a user of the organisation and returns its text. Default: no scopes, valid for 90 days. */
  token(email: string, options?: Omit<TokenRequest, 'email'>): Promise<string>
  /** Applies a document of version 1 as the operator. */
  apply(document: object, options?: Partial<ApplyOptions>): Promise<ApplyReport>
  /** Runs a statement without the code of the service and returns its rows. */
  query<Row = unknown>(...statement: Parameters<typeof sql>): Promise<Row[]>
}

/** The key ring of all test databases, as `SECRET_KEYS`. */
export const TEST_SECRET_KEYS = `test:${Buffer.alloc(32, 7).toString('base64')}`

/** Returns a copy of the recorded organisation's database, which is loaded from `test/fixtures/world.json` once per run. */
export async function worldDatabase(t: WithTeardown): Promise<World> {
  const prepare = (url: string) => fillDatabase(url, worldDocument())
  const { url } = await testDatabase(t, { name: 'world', prepare })
  return over(opened(t, url, POOL), url)
}

function over(database: Database, url: string): World {
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const token = async (email: string, options: Omit<TokenRequest, 'email'> = {}) => {
    // Activates an inactive user for a moment, because tokens can be created only for active users.
    const shut = await query`update user_account set active = true where email = ${email} and not active returning id`
    const issued = await createToken(database.db, { email, ...options })
    if (shut.length > 0) await query`update user_account set active = false where email = ${email}`
    return issued.token
  }
  const apply = async (document: object, options: Partial<ApplyOptions> = {}) => {
    const { applyOrganisation } = await import('../src/admin/apply.js') // imported on demand, because it is slow and most tests do not need it
    return await applyOrganisation(database, { version: 1, ...document }, { ring, env: {}, ...options })
  }
  const query = async <Row>(...statement: Parameters<typeof sql>) =>
    (await sql<Row>(...statement).execute(database.db)).rows
  return { url, database, ring, token, apply, query }
}

/** Migrates an empty database and fills it from a document. */
export async function fillDatabase(url: string, document: object): Promise<void> {
  const { database, apply } = over(open(url), url)
  try {
    await migrate(database)
    await apply(document)
  } finally {
    await database.close()
  }
}

export function worldDocument() {
  return JSON.parse(readFileSync(worldFile(), 'utf8'))
}

/** Returns the path of the organisation's document in the sources. */
export function worldFile(): string {
  return join(fileURLToPath(new URL('../..', import.meta.url)), 'test', 'fixtures', 'world.json')
}

/** Verifies the audit trail at the end of the test. Throws if a chain is broken. */
export function auditHolds(t: WithTeardown, { db }: Pick<Database, 'db'>): void {
  t.teardown(async () => {
    const { findings } = await verifyAudit(db)
    if (findings.length > 0) throw new Error(JSON.stringify(findings))
  })
}

/** Long timeouts, because many writers of one row can wait long for each other on a busy machine. Other tests cover the limits. */
const POOL = { DATABASE_POOL_SIZE: '20', LOCK_TIMEOUT_MS: '60000', STATEMENT_TIMEOUT_MS: '60000' }

function open(url: string): Database {
  return openUrl(url, readConfig(POOL))
}
