import type { FastifyInstance } from 'fastify'
import { registerHistory, registerList, registerRead } from '../http/lists.js'
import type { OperationOptions } from '../updates/resource.js'
import { personaResource } from './resource.js'
import { PersonaRecord, PersonaSummary } from './schema.js'
import { readPersonaPage } from './statements.js'

export function registerReadPersona(app: FastifyInstance, options: OperationOptions): void {
  registerRead(app, options, {
    resource: personaResource,
    record: PersonaRecord,
    summary: 'Read Persona',
    description:
      'Returns an agent that the caller can see. To update the agent, send its `ETag` as `If-Match`. With `version`, returns the ' +
      'agent as it was in that version, but related records as they are now.',
  })
}

/** Registers the list of agents, the read of an agent, and the history of an agent. */
export function registerReadPersonas(app: FastifyInstance, options: OperationOptions): void {
  registerList(app, options, { resource: 'persona', record: PersonaSummary, read: readPersonaPage })
  registerReadPersona(app, options)
  registerHistory(app, options, personaResource)
}
