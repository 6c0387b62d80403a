import type { FastifyInstance } from 'fastify'
import type { ServiceDatabase } from '../db/transaction.js'
import { registerList } from '../http/pages.js'
import type { WorkBounds } from '../updates/resource.js'
import { readPersonaPage } from './pages.js'
import { PersonaSummary } from './schema.js'

/** `GET /persona`: the agents that the caller sees, as small records, a page at a time. */
export function registerReadPersonas(app: FastifyInstance, database: ServiceDatabase, bounds: WorkBounds): void {
  registerList(app, database, bounds, {
    resource: 'persona',
    title: 'agents',
    record: PersonaSummary,
    read: readPersonaPage,
  })
}
