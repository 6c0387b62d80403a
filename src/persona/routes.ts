import type { TObject } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { actorOf } from '../auth/actor.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { bodyBounds, errorResponses, updateHeaders, updateParameters } from '../http/openapi.js'
import { type RequestParts, type RequestShape, readRequest } from '../http/request-parts.js'
import { keptFieldWarning, outsideMaskWarning, overwriteWarning, unknownFieldWarning } from '../http/warnings.js'
import { parseDateTime } from '../schema/date-time.js'
import { compileBody, HTTPValidationError } from '../schema/faults.js'
import { canonicalUuid, reference } from '../schema/vocabulary.js'
import type { PersonaPlan, PersonaUpdate, PersonaUpdateFields } from './plan.js'
import { PersonaSnapshot, PersonaUpsertRequest } from './schema.js'
import { callerAndPersona, type PersonaState } from './state.js'
import { updatePersona } from './store.js'

export interface PersonaRouteOptions {
  database: ServiceDatabase
  bodyLimitBytes: number
  jsonDepthMax: number
  /** The schema of the body, with the limits of the configuration. */
  upsertRequest: TObject
  requireIfMatch: boolean
}

const LOOKUP = { parameter: 'persona_id', statement: callerAndPersona }

function shapeOf({ upsertRequest, jsonDepthMax }: PersonaRouteOptions): RequestShape {
  return {
    pathId: 'persona_id',
    query: { update_mask: 'mask', dry_run: 'flag' },
    body: { schema: upsertRequest, compiled: compileBody(upsertRequest), depthMax: jsonDepthMax },
  }
}

/** `PATCH /persona/{persona_id}`, the one operation on agents. */
export function registerPersonaRoutes(app: FastifyInstance, options: PersonaRouteOptions): void {
  const shape = shapeOf(options)
  app.patch(
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
        ...updateParameters('persona_id', ['update_mask', 'dry_run']),
        body: reference(options.upsertRequest),
        response: {
          200: { ...reference(PersonaSnapshot), description: 'The agent as it is now.', headers: updateHeaders },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
          ...errorResponses(400, 401, 403, 404, 412, 413, 415, 428, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const parts = readRequest(request, shape)
      if (parts.id === undefined) throw new ResourceNotFound('persona')
      const update = updateOf(parts, options.requireIfMatch || request.caller.token.requiresIfMatch)
      const dryRun = parts.flags.dry_run ?? false
      const { snapshot, version, plan } = await updatePersona(options.database, {
        id: parts.id,
        caller: request.caller,
        actor: actorOf(request),
        prefetched: request.prefetched as PersonaState | null, // this route's lookup reads it
        update,
        dryRun,
      })
      const warnings = warningsOf(plan, parts)
      return answerUpdate(reply, {
        kind: 'persona',
        id: parts.id,
        version,
        snapshot,
        dryRun,
        strict: parts.strict,
        warnings,
      })
    },
  )
}

function updateOf(parts: RequestParts, preconditionDemanded: boolean): PersonaUpdate {
  const { mask, strict, precondition } = parts
  return { fields: fieldsOf(parts), masked: mask !== undefined, strict, precondition, preconditionDemanded }
}

/** The fields that the request names, in the form in which they are stored. The body passed its schema before. */
function fieldsOf({ body, mask }: RequestParts): PersonaUpdateFields {
  const names = mask ?? Object.keys(PersonaUpsertRequest.properties)
  const given = Object.fromEntries(names.filter(name => Object.hasOwn(body, name)).map(name => [name, body[name]]))
  const fields = given as PersonaUpdateFields & { [name: string]: unknown }
  if (fields.name !== undefined) fields.name = fields.name.trim()
  if (fields.users !== undefined) fields.users = fields.users.map(id => canonicalUuid(id) ?? id)
  if (fields.starter_messages) {
    fields.starter_messages = fields.starter_messages.map(({ name, message }) => ({ name, message }))
  }
  if (fields.search_start_date) fields.search_start_date = parseDateTime(fields.search_start_date) ?? null
  return fields
}

function warningsOf(plan: PersonaPlan, parts: RequestParts): string[] {
  const outside = parts.mask === undefined ? [] : Object.keys(parts.body).filter(name => outsideMask(name, parts))
  return [
    ...plan.kept.map(keptFieldWarning),
    ...plan.overwritten.map(overwriteWarning),
    ...outside.map(outsideMaskWarning),
    ...parts.unknown.map(unknownFieldWarning),
  ]
}

function outsideMask(name: string, { mask = [] }: RequestParts): boolean {
  return Object.hasOwn(PersonaUpsertRequest.properties, name) && !mask.includes(name)
}
