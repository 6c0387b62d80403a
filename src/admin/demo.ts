import { fileURLToPath } from 'node:url'
import type { Database } from '../db/database.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { applyOrganisation } from './apply.js'
import { readSource } from './source.js'
import { createToken } from './tokens.js'

/** Returns the organisation document in `fixtures/`. Adds an id to each entry, because the documented examples use these ids. */
export function demoOrganisation(): unknown {
  const path = fileURLToPath(new URL('../../../fixtures/organisation.yaml', import.meta.url))
  const { version, ...lists } = readSource(path).value as { version: number } & Record<string, object[]> // a file of this package
  const idOf = (list: string, number: number) =>
    list === 'users' ? `d0000000-0000-4000-8000-${String(number).padStart(12, '0')}` : number
  const withIds = Object.entries(lists).map(([list, entries]) => {
    return [list, entries.map((entry, index) => ({ id: idOf(list, index + 1), ...entry }))]
  })
  return { version, ...Object.fromEntries(withIds) }
}

/** Loads the demo organisation if the database has no users. Returns the administrator's token, valid for 90 days, or null if users exist. */
export async function loadDemo(database: Database, ring: KeyRing): Promise<string | null> {
  const user = await database.db.selectFrom('user_account').select('id').limit(1).executeTakeFirst()
  if (user !== undefined) return null
  await applyOrganisation(database, demoOrganisation(), { ring, env: {} })
  return (await createToken(database.db, { email: 'admin@example.com' })).token
}
