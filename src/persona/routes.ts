import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { actorOf } from '../auth/actor.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { bodyBounds, errorResponses, updateHeaders } from '../http/openapi.js'
import { DryRun, IfMatch, NO_PRECONDITION, NO_PREFERENCE, Prefer, updateMask } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { keptFieldWarning, outsideMaskWarning, overwriteWarning, unknownFieldWarning } from '../http/warnings.js'
import { parseDateTime } from '../schema/date-time.js'
import { HTTPValidationError, unknownWithin } from '../schema/faults.js'
import { pathId } from '../schema/parameters.js'
import { canonicalUuid, reference } from '../schema/vocabulary.js'
import type { PersonaPlan, PersonaUpdate, PersonaUpdateFields } from './plan.js'
import { PersonaSnapshot, PersonaUpsertRequest, type personaUpsertRequest } from './schema.js'
import { callerAndPersona, type PersonaState } from './state.js'
import { updatePersona } from './store.js'

export interface PersonaRouteOptions {
  database: ServiceDatabase
  bodyLimitBytes: number
  jsonDepthMax: number
  /** The schema of the body, with the limits of the configuration. */
  upsertRequest: ReturnType<typeof personaUpsertRequest>
  requireIfMatch: boolean
}

const LOOKUP = { parameter: 'persona_id', statement: callerAndPersona }

/** `PATCH /persona/{persona_id}`, the one operation on agents. */
export function registerPersonaRoutes(app: FastifyInstance, options: PersonaRouteOptions): void {
  app.withTypeProvider<SchemaTypes>().patch(
    '/persona/:persona_id',
    {
      bodyLimit: options.bodyLimitBytes,
      config: { policy: { permission: 'basic', resource: 'persona', lookup: LOOKUP } },
      schema: {
        operationId: 'update_persona',
        summary: 'Update Persona',
        description: bodyBounds(options.bodyLimitBytes, options.jsonDepthMax),
        tags: ['public'],
        security: [{ bearer: [] }],
        params: Type.Object({ persona_id: pathId() }),
        querystring: Type.Object({ update_mask: updateMask(options.upsertRequest), dry_run: DryRun }),
        headers: Type.Object({ 'if-match': IfMatch, prefer: Prefer }),
        body: options.upsertRequest,
        response: {
          200: { ...reference(PersonaSnapshot), description: 'The agent as it is now.', headers: updateHeaders },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
          ...errorResponses(400, 401, 403, 404, 412, 413, 415, 428, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('persona')
      const { update_mask: mask, dry_run: dryRun = false } = request.query
      const { 'if-match': precondition = NO_PRECONDITION, prefer: { strict } = NO_PREFERENCE } = request.headers
      const update: PersonaUpdate = {
        fields: fieldsOf(request.body, mask),
        masked: mask !== undefined,
        strict,
        precondition,
        preconditionDemanded: options.requireIfMatch || request.caller.token.requiresIfMatch,
      }
      const { snapshot, version, plan } = await updatePersona(options.database, {
        id,
        caller: request.caller,
        actor: actorOf(request),
        prefetched: request.prefetched as PersonaState | null, // this route's lookup reads it
        update,
        dryRun,
      })
      const warnings = warningsOf(plan, request.body, mask)
      return answerUpdate(reply, { kind: 'persona', id, version, snapshot, dryRun, strict, warnings })
    },
  )
}

/** What a body holds, known fields and others. A mask may leave out even what is required without one. */
type Body = Partial<PersonaUpsertRequest> & Record<string, unknown>

/** The fields that the request names, in the form in which they are stored. */
function fieldsOf(body: Body, mask = Object.keys(PersonaUpsertRequest.properties)): PersonaUpdateFields {
  const given = Object.fromEntries(mask.filter(name => Object.hasOwn(body, name)).map(name => [name, body[name]]))
  const fields = given as PersonaUpdateFields & { [name: string]: unknown }
  if (fields.name !== undefined) fields.name = fields.name.trim()
  if (fields.users !== undefined) fields.users = fields.users.map(id => canonicalUuid(id) ?? id)
  if (fields.starter_messages) {
    fields.starter_messages = fields.starter_messages.map(({ name, message }) => ({ name, message }))
  }
  if (fields.search_start_date) fields.search_start_date = parseDateTime(fields.search_start_date) ?? null
  return fields
}

function warningsOf(plan: PersonaPlan, body: Body, mask: string[] | undefined): string[] {
  const isOutside = (name: string) => Object.hasOwn(PersonaUpsertRequest.properties, name) && !mask?.includes(name)
  const outside = mask === undefined ? [] : Object.keys(body).filter(isOutside)
  return [
    ...plan.kept.map(keptFieldWarning),
    ...plan.overwritten.map(overwriteWarning),
    ...outside.map(outsideMaskWarning),
    ...unknownWithin(PersonaUpsertRequest, body, mask).map(unknownFieldWarning),
  ]
}
