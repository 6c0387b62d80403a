import type { FastifyInstance } from 'fastify'
import type { ServiceDatabase } from '../db/transaction.js'
import { registerList } from '../http/pages.js'
import type { WorkBounds } from '../updates/resource.js'
import { readToolPage } from './pages.js'
import { ToolSummary } from './schema.js'

/** `GET /tool`: the tools that the caller sees, as small records, a page at a time. */
export function registerReadTools(app: FastifyInstance, database: ServiceDatabase, bounds: WorkBounds): void {
  registerList(app, database, bounds, { resource: 'tool', title: 'tools', record: ToolSummary, read: readToolPage })
}
