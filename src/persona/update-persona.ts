import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DryRun, updateMask } from '../http/parameters.js'
import { UpdateHeaders, updateResponses, updaterOf } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import {
  keptByNullWarning,
  keptFieldWarning,
  outsideMaskWarning,
  overwriteWarning,
  unknownFieldWarnings,
} from '../http/warnings.js'
import { attachedNames } from '../tool/function-names.js'
import { requestKey } from '../updates/idempotency.js'
import type { OperationOptions, RecentChange } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { unknownWithin } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { canonicalUuid } from '../validation/vocabulary.js'
import { REQUEST_FIELDS } from './fields.js'
import { personaResource } from './resource.js'
import type { PersonaDecision, PersonaUpdateFields } from './rules.js'
import { PersonaSnapshot, PersonaUpsertRequest, personaFieldsUpdate } from './schema.js'
import { PERSONA_LOOKUP, type PersonaState } from './state.js'

export const BODY_BYTES_MAX = 4 * 2 ** 20

const PURPOSE =
  'Changes an agent. With `update_mask` only the fields that it names are read and written, and the body holds just these; ' +
  'without it the body is the whole update with its twelve required fields, and optional fields that are absent stay as ' +
  'they are. The answer is the agent as it is then. `update_mask=` (empty) with the body `{}` reads without changing.'

/** The dependencies of the operations that write agents. `isToday`: below `/api`, with the rules of the published product. */
export interface PersonaOptions extends OperationOptions {
  isToday?: boolean
}

/** `PATCH /persona/{persona_id}`, the update of an agent. */
export function registerUpdatePersona(app: FastifyInstance, options: PersonaOptions): void {
  app.withTypeProvider<SchemaTypes>().patch(
    '/persona/:persona_id',
    {
      bodyLimit: BODY_BYTES_MAX,
      config: {
        policy: { permission: 'basic', resource: 'persona', writes: true, lookup: PERSONA_LOOKUP },
        documentedBody: personaFieldsUpdate(PersonaUpsertRequest),
      },
      schema: {
        operationId: 'update_persona',
        summary: 'Update Persona',
        description: `${PURPOSE} ${bodyBounds(BODY_BYTES_MAX, JSON_BOUNDS.persona.depthMax)}`,
        params: Type.Object({ persona_id: pathId() }),
        querystring: Type.Object({ update_mask: updateMask(PersonaUpsertRequest), dry_run: DryRun }),
        headers: UpdateHeaders,
        body: PersonaUpsertRequest,
        response: updateResponses(PersonaSnapshot, 'agent'),
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('persona')
      const { caller, body, query, headers } = request
      const { update_mask: mask } = query
      const asked = {
        kind: 'persona' as const,
        id,
        fields: fieldsOf(body, mask),
        masked: mask !== undefined,
        key: requestKey(caller, query.dry_run ? undefined : headers['idempotency-key'], () => [
          'persona',
          id,
          mask,
          body,
        ]),
        ...updaterOf(request, query, headers, options),
        isToday: options.isToday ?? false,
      }
      // This route's lookup reads the agent along with the caller.
      const prefetched = request.prefetched as PersonaState | null
      const updated = await updateOnce(options.database, personaResource, asked, prefetched)
      const warnings = [
        ...warningsOf(updated, body, mask),
        ...(await attachedNames(options.database.db, updated.decision)),
      ]
      return answerUpdate(reply, 'persona', asked, updated, warnings)
    },
  )
}

/** Returns the requested fields as they are stored. The body is already validated. */
export function fieldsOf(body: Readonly<Record<string, unknown>>, mask?: string[]): PersonaUpdateFields {
  const fields = { ...body } // most bodies have exactly these fields, so a copy is faster than selecting them
  for (const name in fields) {
    if (!FIELD_NAMES.has(name) || (mask !== undefined && !mask.includes(name))) delete fields[name]
  }
  for (const [name, canonical] of CANONICAL) {
    const value = fields[name]
    if (value !== undefined && value !== null) fields[name] = canonical(value)
  }
  return fields
}

const FIELD_NAMES: ReadonlySet<string> = new Set(REQUEST_FIELDS.map(([name]) => name))

const CANONICAL = REQUEST_FIELDS.flatMap(([name, { canonical }]) => {
  return canonical === undefined ? [] : [[name, canonical] as const]
})

/** The warning that `users` names the owner, who needs no share. */
export function ownerShareWarnings(decision: PersonaDecision | null, body: { users?: string[] | undefined }): string[] {
  const owner = decision?.after.owner_id
  const isNamed = body.users?.some(id => (canonicalUuid(id) ?? id) === owner) ?? false
  return isNamed ? [`users: ${owner} owns the agent, and was left out`] : []
}

function warningsOf(
  { decision, overwritten }: { decision: PersonaDecision | null; overwritten: RecentChange[] },
  body: Partial<PersonaUpsertRequest>,
  mask: string[] | undefined,
): string[] {
  const isOutside = (name: string) => Object.hasOwn(PersonaUpsertRequest.properties, name) && !mask?.includes(name)
  const outside = mask === undefined ? [] : Object.keys(body).filter(isOutside)
  return [
    ...ownerShareWarnings(decision, body),
    ...(decision?.kept ?? []).map(name => keptFieldWarning(name, name === 'groups')),
    ...(decision?.keptByNull ?? []).map(keptByNullWarning),
    ...overwritten.map(overwriteWarning),
    ...outside.map(outsideMaskWarning),
    ...unknownFieldWarnings(unknownWithin(PersonaUpsertRequest, body, mask)),
  ]
}
