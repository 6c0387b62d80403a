import { createHash } from 'node:crypto'
import pg from 'pg'
import { mintToken } from '../../src/auth/token.js'
import { readConfig } from '../../src/config.js'
import { migrate } from '../../src/db/migrate.js'
import { openUrl } from '../../src/db/open.js'
import { testDatabase } from '../postgres.js'
import { contentHash } from '../world.js'

/** The number of quiet callers. Each has a token and an agent of their own. */
const VICTIMS = 10
/** The bytes of the largest definition that a tool can hold, nearly. */
const LARGE_BYTES = 4_900_000
/** Eight of these make an answer that is nearly refused. */
const MEDIUM_BYTES = 900_000
const SMALL_BYTES = 7_500

/** How many tools of each size the world has, by their names. */
const TOOLS = {
  large: [110, LARGE_BYTES],
  medium: [8, MEDIUM_BYTES],
  small: [12, SMALL_BYTES],
  popular: [1, 1_000],
} as const

/** Somebody with a token and an agent that they own. */
export interface Owner {
  token: string
  agentId: number
}

/** An organisation with quiet callers, and with what an attack needs. */
export interface FairnessWorld {
  url: string
  client: pg.Client
  victims: Owner[]
  /** A person with no permission but `basic`. */
  attacker: Owner
  /** A manager of one group, whose own agent has the popular tool. */
  manager: Owner
  largeTools: number[]
  mediumTools: number[]
  /** With these an agent's answer has 95 kB. */
  smallTools: number[]
  /** A tool that `popularity` agents outside of every group use. */
  popularTool: number
}

/** The tables and the tools: made once, then copied. */
async function loadTools(url: string): Promise<void> {
  const database = openUrl(url, readConfig({}))
  await migrate(database.db)
  await database.close()
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  for (const [name, [count, bytes]] of Object.entries(TOOLS))
    await tools(client, name, count, await definition(client, bytes))
  await client.query('vacuum (analyze)')
  await client.end()
}

/** Makes the organisation in a database of its own, which ends with the test. */
export async function fairnessWorld(
  t: { teardown(fn: () => Promise<void>): void },
  { popularity = 0 }: { popularity?: number } = {},
): Promise<FairnessWorld> {
  const contents = createHash('sha256')
    .update(`${contentHash()} ${JSON.stringify(TOOLS)}`)
    .digest('hex')
    .slice(0, 12)
  const { url } = await testDatabase(t, { template: { name: `fairness_${contents}`, prepare: loadTools } })
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  const idsOf = async (name: keyof typeof TOOLS) => {
    const { rows } = await client.query<{ id: number }>('select id from tool where name ~ $1 order by id', [
      `^${name} `,
    ])
    return rows.map(({ id }) => id)
  }
  const largeTools = await idsOf('large')
  const mediumTools = await idsOf('medium')
  const smallTools = await idsOf('small')
  const [popularTool = 0] = await idsOf('popular')
  const victims: Owner[] = []
  for (let i = 0; i < VICTIMS; i++) victims.push(await owner(client, `alice+${i}@example.com`, []))
  const attacker = await owner(client, 'alice+attacker@example.com', [])
  const manager = await owner(client, 'alice+manager@example.com', [popularTool])
  await makeManager(client, 'alice+manager@example.com', manager.agentId)
  await client.query(
    `with a as (insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
      select 'popular', '', 'auto', false, false from generate_series(1, $1) returning id)
    insert into persona_tool select id, $2 from a`,
    [popularity, popularTool],
  )
  if (popularity > 0) await client.query('vacuum (analyze)')
  return { url, client, victims, attacker, manager, largeTools, mediumTools, smallTools, popularTool }
}

/** Attaches tools to an agent, as it was before there was a bound. */
export async function attach({ client }: FairnessWorld, { agentId }: Owner, toolIds: readonly number[]): Promise<void> {
  await client.query('insert into persona_tool select $1, unnest($2::integer[])', [agentId, toolIds])
}

/** Makes a person with an agent of their own, which has these tools. */
export async function owner(client: pg.Client, email: string, toolIds: number[]): Promise<Owner> {
  const { token, hash } = mintToken('person')
  const { rows } = await client.query<{ id: number }>(
    `with u as (insert into user_account (email, kind, permissions) values ($1, 'person', '{basic}') returning id),
      t as (insert into token (hash, user_id) select $2, id from u)
    insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, owner_id, is_public)
    select 'agent', '', 'auto', false, false, id, false from u returning id`,
    [email, hash],
  )
  const agentId = rows[0]?.id ?? 0
  await client.query('insert into persona_tool select $1, unnest($2::integer[])', [agentId, toolIds])
  return { token, agentId }
}

async function makeManager(client: pg.Client, email: string, agentId: number): Promise<void> {
  await client.query(
    `with g as (insert into user_group (name) values ('managed') returning id),
      m as (insert into user_group_member select u.id, g.id, true from user_account u, g where u.email = $1)
    insert into persona_group select $2, id, 'editor' from g`,
    [email, agentId],
  )
}

/**
 * Makes managers of one group, each with an agent of their own, and tools that all their agents have, and so many other agents that are
 * shared with the group.
 */
export async function managersOfSharedTools(
  { client }: FairnessWorld,
  counts: { managers: number; tools: number; agents: number },
): Promise<Owner[]> {
  const toolIds = await tools(client, 'shared', counts.tools, await definition(client, 1_100))
  const managers: Owner[] = []
  for (let i = 0; i < counts.managers; i++) managers.push(await owner(client, `alice+shared${i}@example.com`, toolIds))
  const own = managers.map(({ agentId }) => agentId)
  await client.query(
    `with g as (insert into user_group (name) values ('shared') returning id),
      m as (insert into user_group_member select owner_id, g.id, true from persona, g where persona.id = any($1)),
      a as (insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, is_public)
        select 'shared', '', 'auto', false, false, false from generate_series(1, $2) returning id),
      l as (insert into persona_tool select a.id, unnest($3::integer[]) from a)
    insert into persona_group select shared.id, g.id, 'viewer' from (select id from a union all select unnest($1)) shared, g`,
    [own, counts.agents, toolIds],
  )
  await client.query('vacuum (analyze)')
  return managers
}

/** A definition of so many bytes; answers its hash. */
async function definition(client: pg.Client, bytes: number): Promise<Buffer> {
  const head = { openapi: '3.1.0', info: { title: 'Large', version: '1', description: '' }, paths: {} }
  head.info.description = 'x'.repeat(bytes - Buffer.byteLength(JSON.stringify(head)))
  const text = JSON.stringify(head)
  const hash = createHash('sha256').update(text).digest()
  await client.query('insert into tool_definition (hash, content, size_bytes) values ($1, $2, $3)', [hash, text, bytes])
  return hash
}

async function tools(client: pg.Client, name: string, count: number, hash: Buffer): Promise<number[]> {
  const { rows } = await client.query<{ id: number }>(
    `insert into tool (name, definition_hash) select $3 || ' ' || n, $1 from generate_series(1, $2) n returning id`,
    [hash, count, name],
  )
  return rows.map(({ id }) => id)
}
