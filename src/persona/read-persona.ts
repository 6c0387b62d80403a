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
      'Answers an agent that the caller sees. Its `ETag` is what an update takes as `If-Match`. With `version` the agent ' +
      'as it was, with what it refers to as the caller may see it now.',
  })
}

export function registerReadPersonas(app: FastifyInstance, options: OperationOptions): void {
  registerList(app, options, { resource: 'persona', title: 'agents', record: PersonaSummary, read: readPersonaPage })
}

export function registerReadPersonaHistory(app: FastifyInstance, options: OperationOptions): void {
  registerHistory(app, options, personaResource)
}
