import { mintToken } from '../../src/auth/token.js'
import { readConfig } from '../../src/config.js'
import { migrate } from '../../src/db/migrate.js'
import { openUrl } from '../../src/db/open.js'

export const AGENT_COUNT = 8

/** Fills an empty database with an administrator, agents and tools. Returns the administrator's token. */
export async function makeWorld(url: string): Promise<string> {
  const database = openUrl(url, readConfig({}))
  const { db } = database
  await migrate(database)
  const { token, hash } = mintToken('person')
  const user = await db
    .insertInto('user_account')
    .values({ email: 'alice@example.com', kind: 'person', permissions: ['admin'] })
    .returning('id')
    .executeTakeFirstOrThrow()
  await db.insertInto('token').values({ hash, user_id: user.id }).execute()
  const rest = { description: '', recency_bias: 'auto', llm_filter_extraction: false, llm_relevance_filter: false }
  const tools = range(AGENT_COUNT).map(n => ({ name: `tool ${n}`, user_id: user.id }))
  const agents = range(AGENT_COUNT).map(n => ({ ...rest, name: `agent ${n}`, owner_id: user.id }))
  await db.insertInto('tool').values(tools).execute()
  await db.insertInto('persona').values(agents).execute()
  await database.close()
  return token
}

export function range(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index + 1)
}
