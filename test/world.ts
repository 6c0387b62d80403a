import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createToken, type TokenRequest } from '../src/admin/tokens.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { type KeyRing, parseKeyRing } from '../src/secrets/key-ring.js'
import { testDatabase } from './postgres.js'

/** The recorded cases' organisation, in a database of the caller's own. */
export interface World {
  /** For `pg`, and as `DATABASE_URL`. */
  url: string
  database: Database
  ring: KeyRing
  /** Makes a token for a user of the organisation and answers its text. Without options: no scopes, 90 days. */
  token(email: string, options?: Omit<TokenRequest, 'email'>): Promise<string>
}

/** The key ring of all test databases, as `SECRET_KEYS`. */
export const TEST_SECRET_KEYS = `test:${Buffer.alloc(32, 7).toString('base64')}`

const BUILD = fileURLToPath(new URL('..', import.meta.url))

/** A database loaded from `test/fixtures/world.json`: made once in a run, then copied. */
export async function worldDatabase(t: { teardown(fn: () => Promise<void>): void }): Promise<World> {
  const { url } = await testDatabase(t, { name: 'world', prepare: loadWorld })
  const database = open(url)
  t.teardown(() => database.close())
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const token = async (email: string, options: Omit<TokenRequest, 'email'> = {}) =>
    await database.db.transaction().execute(async trx => {
      // An inactive user gets no token: theirs is from before.
      const shut = await trx
        .updateTable('user_account')
        .set({ active: true })
        .where('email', '=', email)
        .where('active', '=', false)
        .returning('id')
        .executeTakeFirst()
      const issued = await createToken(trx, { email, ...options })
      if (shut) await trx.updateTable('user_account').set({ active: false }).where('id', '=', shut.id).execute()
      return issued.token
    })
  return { url, database, ring, token }
}

async function loadWorld(url: string): Promise<void> {
  const { applyOrganisation } = await import('../src/admin/apply.js') // slow, and one process of a run needs it
  const database = open(url)
  try {
    await migrate(database)
    const ring = parseKeyRing(TEST_SECRET_KEYS)
    await applyOrganisation(database, JSON.parse(readFileSync(worldFile(), 'utf8')), { ring, env: {} })
  } finally {
    await database.close()
  }
}

/** Where the document lies, in the sources. */
export function worldFile(): string {
  return join(BUILD, '..', 'test', 'fixtures', 'world.json')
}

/** Where other work has the machine, many writers of one row wait long for each other: how long one may is the subject of other tests. */
const POOL = { DATABASE_POOL_SIZE: '20', LOCK_TIMEOUT_MS: '60000', STATEMENT_TIMEOUT_MS: '60000' }

function open(url: string): Database {
  return openUrl(url, readConfig(POOL))
}
