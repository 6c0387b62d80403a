import { createHash } from 'node:crypto'
import fastify from 'fastify'
import pg from 'pg'

/*
 * The floor: the least work that Fastify, pg and PostgreSQL can do. One statement authenticates the caller and reads an agent, and another writes the
 * agent and an audit row. A validation returns the request body unchanged. There are no rules, checks or related records.
 */
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL ?? '', max: 16 })
pool.on('error', () => undefined) // the database server stops before this process
const app = fastify({ bodyLimit: 8 * 1024 * 1024 })

interface Agent {
  user_id: string
  id: number | null
  version: number
}

const READ = `select t.user_id, a.* from floor_token t left join floor_agent a on a.id = $2 where t.hash = $1`
const WRITE = `with written as (
  update floor_agent set version = version + 1, content = content || $3::jsonb where id = $1 and version = $2 returning *)
  insert into floor_audit (agent_id, version, user_id, content)
    select id, version, $4, content from written returning agent_id as id, version, content`

async function read(authorization: unknown, id: unknown): Promise<Agent | undefined> {
  const hash = createHash('sha256').update(String(authorization)).digest()
  const { rows } = await pool.query<Agent>({ name: 'read', text: READ, values: [hash, id] })
  return rows[0]
}

app.get('/readyz', async () => 'ok')
app.get<{ Params: { id: string } }>('/persona/:id', async ({ headers, params }, reply) => {
  return (await read(headers.authorization, params.id)) ?? reply.code(401).send()
})
app.patch<{ Params: { id: string } }>('/persona/:id', async ({ headers, params, body }, reply) => {
  const agent = await read(headers.authorization, params.id)
  if (agent === undefined) return reply.code(401).send()
  const values = [agent.id, agent.version, JSON.stringify(body), agent.user_id]
  const { rows } = await pool.query({ name: 'write', text: WRITE, values })
  return rows[0] ?? reply.code(412).send()
})
app.post('/admin/tool/custom/validate', async ({ headers, body }, reply) => {
  return (await read(headers.authorization, null)) === undefined ? reply.code(401).send() : body
})
await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) })
