/**
 * What the service is compared with, each a plain Fastify on a port of its own:
 *
 * - `echo`: parses the body and answers it;
 * - `lookup`: the same behind one prepared look-up of the token;
 * - `eleven`: an agent update as eleven statements, as one writes it without thinking of round trips. It answers by the
 *   service's own snapshot and is planned by its settings, so it becomes cheaper with them.
 */
import { createHash } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import pg from 'pg'
import { PLANNING_OPTIONS } from '../src/db/connection/session-settings.js'
import { elevenStatementUpdate } from './eleven.js'

const BODY_LIMIT_BYTES = 8 * 1024 * 1024
const ROUTES = ['/persona/:persona_id', '/admin/tool/custom/:tool_id']

export interface ControlPorts {
  echo: number
  lookup: number
  eleven: number
}

async function main(): Promise<void> {
  const pool = new pg.Pool({
    connectionString: process.env.DATABASE_URL,
    max: Number(process.env.DATABASE_POOL_SIZE ?? 16),
    // As the service's: otherwise the server plans the snapshot anew each time, and each slot begins with sixteen connects.
    options: PLANNING_OPTIONS,
    idleTimeoutMillis: 300_000,
  })
  const apps = { echo: makeEcho(), lookup: makeLookup(pool), eleven: makeEleven(pool) }
  const ports: Record<string, number> = {}
  for (const [name, app] of Object.entries(apps)) {
    await app.listen({ host: '127.0.0.1', port: 0 })
    ports[name] = (app.server.address() as AddressInfo).port // it listens on TCP
  }
  // The benchmark is gone, by whatever ended it.
  process.on('disconnect', () => process.exit(1))
  process.on('message', async () => {
    for (const app of Object.values(apps)) app.server.closeAllConnections()
    await pool.end()
    process.exit(0)
  })
  process.send?.(ports)
}

function makeEcho(): FastifyInstance {
  const app = fastify({ logger: false, bodyLimit: BODY_LIMIT_BYTES })
  for (const url of ROUTES) {
    app.route({ method: ['PATCH', 'PUT', 'POST'], url, handler: async request => request.body })
  }
  return app
}

function makeLookup(pool: pg.Pool): FastifyInstance {
  const app = makeEcho()
  app.addHook('onRequest', async (request, reply) => {
    const hash = createHash('sha256').update(bearer(request)).digest()
    const { rows } = await pool.query({
      name: 'token',
      text: 'select user_id, expires_at, revoked_at from token where hash = $1',
      values: [hash],
    })
    if (rows.length === 0) await reply.code(401).send({ error_code: 'INVALID_TOKEN', detail: 'unknown' })
  })
  return app
}

function makeEleven(pool: pg.Pool): FastifyInstance {
  const app = fastify({ logger: false, bodyLimit: BODY_LIMIT_BYTES })
  app.patch('/persona/:persona_id', async (request, reply) => {
    const id = Number((request.params as Record<string, string>).persona_id)
    const snapshot = await elevenStatementUpdate(pool, bearer(request), id, request.body as never, request.ip)
    return reply.type('application/json').send(snapshot)
  })
  return app
}

function bearer(request: FastifyRequest): string {
  return (request.headers.authorization ?? '').slice('Bearer '.length)
}

await main()
