import type { TObject } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { bodyBounds, errorResponses, updateHeaders, updateParameters } from '../http/openapi.js'
import { type RequestParts, type RequestShape, readRequest } from '../http/request-parts.js'
import { keptFieldWarning, outsideMaskWarning, overwriteWarning, unknownFieldWarning } from '../http/warnings.js'
import { compileBody, HTTPValidationError } from '../schema/faults.js'
import { reference } from '../schema/vocabulary.js'
import { actorOf } from '../updates/actor.js'
import { update } from '../updates/engine.js'
import type { RecentChange } from '../updates/recent.js'
import { REQUEST_FIELDS } from './fields.js'
import { personaResource } from './resource.js'
import type { PersonaDecision, PersonaUpdateFields } from './rules.js'
import { PersonaSnapshot, PersonaUpsertRequest } from './schema.js'
import { callerAndPersona, type PersonaState } from './state.js'

export interface UpdatePersonaOptions {
  database: ServiceDatabase
  bodyLimitBytes: number
  jsonDepthMax: number
  /** The schema of the body, with the limits of the configuration. */
  upsertRequest: TObject
  requireIfMatch: boolean
}

const LOOKUP = { parameter: 'persona_id', statement: callerAndPersona }

function shapeOf({ upsertRequest, jsonDepthMax }: UpdatePersonaOptions): RequestShape {
  return {
    pathId: 'persona_id',
    query: { update_mask: 'mask', dry_run: 'flag' },
    body: { schema: upsertRequest, compiled: compileBody(upsertRequest), depthMax: jsonDepthMax },
  }
}

/** `PATCH /persona/{persona_id}`, the one operation on agents. */
export function registerUpdatePersona(app: FastifyInstance, options: UpdatePersonaOptions): void {
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
      const { caller } = request
      const { mask, strict, precondition } = parts
      const dryRun = parts.flags.dry_run ?? false
      const asked = {
        id: parts.id,
        caller,
        actor: actorOf(request),
        fields: fieldsOf(parts),
        masked: mask !== undefined,
        strict,
        precondition,
        preconditionRequired: options.requireIfMatch || caller.token.requiresIfMatch,
        dryRun,
      }
      // This route's lookup reads the agent along with the caller.
      const prefetched = request.prefetched as PersonaState | null
      const { snapshot, version, decision, overwritten } = await update(
        options.database,
        personaResource,
        asked,
        prefetched,
      )
      const warnings = warningsOf(decision, overwritten, parts)
      return answerUpdate(reply, {
        kind: 'persona',
        id: parts.id,
        version,
        snapshot,
        dryRun,
        strict,
        warnings,
      })
    },
  )
}

/** The fields that the request names, in the form in which they are stored. The body passed its schema before. */
function fieldsOf({ body, mask }: RequestParts): PersonaUpdateFields {
  const fields: Record<string, unknown> = {}
  for (const [name, { canonical }] of REQUEST_FIELDS) {
    if (!Object.hasOwn(body, name) || (mask !== undefined && !mask.includes(name))) continue
    const value = body[name]
    fields[name] = canonical === undefined || value === null ? value : canonical(value)
  }
  return fields
}

function warningsOf({ kept }: PersonaDecision, overwritten: RecentChange[], parts: RequestParts): string[] {
  const outside = parts.mask === undefined ? [] : Object.keys(parts.body).filter(name => outsideMask(name, parts))
  return [
    ...kept.map(keptFieldWarning),
    ...overwritten.map(overwriteWarning),
    ...outside.map(outsideMaskWarning),
    ...parts.unknown.map(unknownFieldWarning),
  ]
}

function outsideMask(name: string, { mask = [] }: RequestParts): boolean {
  return Object.hasOwn(PersonaUpsertRequest.properties, name) && !mask.includes(name)
}
