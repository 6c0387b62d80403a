import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { ResourceNotFound } from '../errors.js'
import { answerRead } from '../http/answer.js'
import { registerHistory, registerList } from '../http/lists.js'
import { readOneResponses } from '../http/openapi.js'
import { IfNoneMatch, NO_PRECONDITION, PastVersion } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { historyOf } from '../updates/history.js'
import { answerPast, readResource } from '../updates/read.js'
import type { OperationOptions } from '../updates/resource.js'
import { pathId } from '../validation/parameters.js'
import { personaChanges } from './history.js'
import { personaResource } from './resource.js'
import { requireVersions } from './rules.js'
import { PersonaRecord, PersonaSummary } from './schema.js'
import { PERSONA_LOOKUP, type PersonaState } from './state.js'
import { readPersonaPage } from './statements.js'

/** `GET /persona/{persona_id}`: answers the agent as an update does, with the fields that updates leave out. */
export function registerReadPersona(app: FastifyInstance, { database, ...limits }: OperationOptions): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/persona/:persona_id',
    {
      exposeHeadRoute: true,
      config: {
        policy: { permission: 'basic', resource: 'persona', lookup: PERSONA_LOOKUP },
      },
      schema: {
        operationId: 'read_persona',
        summary: 'Read Persona',
        description:
          'Answers an agent that the caller sees. Its `ETag` is what an update takes as `If-Match`. With `version` the agent ' +
          'as it was, with what it refers to as the caller may see it now.',
        params: Type.Object({ persona_id: pathId() }),
        querystring: Type.Object({ version: PastVersion }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readOneResponses(PersonaRecord, 'agent'),
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      const prefetched = request.prefetched as PersonaState | null // the route's lookup sets it
      if (id === undefined || prefetched === null) throw new ResourceNotFound('persona')
      if (!personaResource.isVisible(prefetched, request.caller)) throw new ResourceNotFound('persona')
      const job = { database, resource: personaResource, request: { caller: request.caller, ...limits } }
      const isPast = 'version' in request.query
      if (isPast) requireVersions(prefetched, request.caller)
      const read = isPast ? await answerPast(job, id, request.query.version) : await readResource(job, prefetched)
      return answerRead(reply, { kind: 'persona', id, ...read }, request.headers['if-none-match'] ?? NO_PRECONDITION)
    },
  )
}

/** `GET /persona`: lists the agents that the caller sees as short records, by pages. */
export function registerReadPersonas(app: FastifyInstance, options: OperationOptions): void {
  registerList(app, options, { resource: 'persona', title: 'agents', record: PersonaSummary, read: readPersonaPage })
}

/** `GET /persona/{persona_id}/history`: answers the changes of an agent to callers who may edit it. */
export function registerReadPersonaHistory(app: FastifyInstance, { database, ...limits }: OperationOptions): void {
  registerHistory(app, {
    resource: 'persona',
    lookup: PERSONA_LOOKUP,
    async read({ caller }, id, prefetched, asked) {
      requireVersions(prefetched as PersonaState, caller) // the route's lookup sets it
      const job = { database, resource: personaResource, request: { caller, ...limits } }
      return await historyOf(job, id, asked, personaChanges)
    },
  })
}
