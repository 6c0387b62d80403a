import type { FastifyInstance, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { Unavailable } from '../errors.js'
import { releaseTool } from '../persona/life.js'
import { registerReadPersona } from '../persona/read-persona.js'
import { PersonaUpsertRequest } from '../persona/schema.js'
import { registerCreatePersona, registerDeletePersona, registerUpdatePersona } from '../persona/write-persona.js'
import { registerReadTool } from '../tool/read-tool.js'
import { registerValidateTool } from '../tool/validate-tool.js'
import { registerCreateTool, registerDeleteTool, registerUpdateTool, type ToolOptions } from '../tool/write-tool.js'
import { unavailableFor } from '../updates/unavailable.js'
import { registerChanges } from './changes.js'
import { NewerPersonaRequest, newerMembers, rootRequest, withMembers } from './forms.js'
import { registerLists } from './lists.js'

/* Maps Onyx's newer API to the operations of this service (DECISIONS section 14). */

const PREFIX = '/api'

/** Registers the operations of Onyx's newer API under `/api`. */
export function registerToday(app: FastifyInstance, options: ToolOptions): void {
  const register = async (today: FastifyInstance) => {
    const handlers = registerNewerForm(today, options.database)
    registerReadPersona(today, options)
    registerUpdatePersona(today, { ...options, isToday: true })
    registerCreatePersona(today, { ...options, isToday: true })
    registerDeletePersona(today, options)
    registerReadTool(today, options)
    registerUpdateTool(today, options)
    registerCreateTool(today, options)
    registerDeleteTool(today, { ...options, release: releaseTool, detaches: true })
    registerValidateTool(today, options)
    registerLists(today, options)
    registerChanges(today, options, handlers.get('update_persona') as RouteHandlerMethod) // `registerUpdatePersona` registered the handler
  }
  app.register(register, { prefix: PREFIX })
}

/** Converts operations that are registered later to the newer form, and hides them from the OpenAPI document. Returns their handlers by id. */
function registerNewerForm(today: FastifyInstance, database: Database): ReadonlyMap<string, RouteHandlerMethod> {
  const handlers = new Map<string, RouteHandlerMethod>()
  today.addHook('onRoute', route => {
    const { schema, config, handler } = route
    if (schema === undefined || config?.policy === undefined) return
    if (config.policy.resource === 'persona')
      route.handler = async function (request, reply) {
        const answer: unknown = await handler.call(this, request, reply)
        return typeof answer === 'string' ? await inNewerForm(request, answer, database) : answer
      }
    if (schema.hide) return // a HEAD route has the schema of its GET route, which is already hidden
    handlers.set(schema.operationId ?? '', handler)
    schema.operationId = `today_${schema.operationId}`
    schema.hide = true
    config.policy = { ...config.policy, takesOnyxHeader: true }
    if (schema.body === PersonaUpsertRequest) schema.body = NewerPersonaRequest
  })
  today.addHook('preHandler', async request => {
    if (request.operation === 'today_validate_custom_tool') Object.assign(request.query as object, { raw_names: true })
    const creates = request.operation === 'today_create_persona'
    if (!creates && request.operation !== 'today_update_persona') return
    request.body = rootRequest(request.body as Parameters<typeof rootRequest>[0], creates)
  })
  today.addHook('onSend', async (_, reply) => {
    const location = reply.getHeader('location')
    if (location !== undefined && reply.statusCode === 201) reply.header('location', PREFIX + String(location))
  })
  return handlers
}

/** Adds the fields of the newer API to the JSON text of an agent. Returns other JSON text unchanged. */
async function inNewerForm({ policy, query }: FastifyRequest, text: string, database: Database): Promise<string> {
  if (!text.startsWith('{')) return text
  const agent = JSON.parse(text) // a response from this service
  if (!('is_visible' in agent)) return text
  const { dry_run: isDry, version } = query as { dry_run?: boolean; version?: number }
  const added = version === undefined ? 'viewer' : undefined
  const [members] = await withRetries(() => newerMembers(database.db, [agent], added)).catch(error => {
    if (!policy?.writes || isDry) throw error
    throw new Unavailable(unavailableFor(error)?.reason ?? 'overloaded', NOT_READ, 'applied', { cause: error })
  })
  return withMembers(text, members)
}

const NOT_READ = 'The change was applied, but the agent could not be read. Read the agent to see its current state.'
