import type { FastifyInstance } from 'fastify'
import { notRestoredWarning, overwriteWarning, unknownFieldWarnings } from '../http/answer.js'
import { bodyBounds } from '../http/openapi.js'
import { updateMask } from '../http/parameters.js'
import { JSON_BOUNDS } from '../http/validation.js'
import { RESTORES, registerWrite } from '../http/writes.js'
import { attachedNames } from '../tool/function-names.js'
import type { OperationOptions } from '../updates/resource.js'
import { unknownFields, unknownWithin } from '../validation/faults.js'
import { REQUEST_FIELDS } from './fields.js'
import { personaCreation, personaDeletion, personaRestoration } from './life.js'
import { personaResource } from './resource.js'
import type { PersonaDecision, PersonaUpdateFields } from './rules.js'
import { PersonaSnapshot, PersonaUpsertRequest } from './schema.js'
import { PERSONA_READS } from './state.js'

/** The dependencies of the operations that write agents. `isToday` is true under `/api`, where the rules of Onyx apply. */
interface PersonaOptions extends OperationOptions {
  isToday?: boolean
}

const PERSONA = '/persona/:persona_id'
const MAKING = { permission: 'basic', resource: 'persona', writes: true } as const
const WRITING = { ...MAKING, lookup: PERSONA_READS.lookup }
const BODY_BYTES_MAX = 4 * 2 ** 20
const BODY_BOUNDS = bodyBounds(BODY_BYTES_MAX, JSON_BOUNDS.persona.depthMax)

export function registerUpdatePersona(app: FastifyInstance, options: PersonaOptions): void {
  registerWrite(app, options, {
    resource: personaResource,
    method: 'PATCH',
    url: PERSONA,
    policy: WRITING,
    operationId: 'update_persona',
    summary: 'Update Persona',
    description:
      'Changes an agent and returns it. With `update_mask`, only the fields in the mask are changed, and the body needs only these. ' +
      'Without `update_mask`, the body must have the twelve required fields, and absent optional fields keep their values. With ' +
      'an empty `update_mask=` and the body `{}`, nothing changes. ' +
      BODY_BOUNDS,
    record: PersonaSnapshot,
    query: { update_mask: updateMask(PersonaUpsertRequest) },
    body: PersonaUpsertRequest,
    bodyLimit: BODY_BYTES_MAX,
    ask({ params, body, query: { update_mask: mask } }) {
      const isOutside = (name: string) => Object.hasOwn(PersonaUpsertRequest.properties, name) && !mask?.includes(name)
      const outside = mask === undefined ? [] : Object.keys(body).filter(isOutside)
      const fields = fieldsOf(body, mask)
      return {
        about: () => ['persona', params.persona_id, mask, body],
        ...{ isToday: options.isToday ?? false, fields, masked: mask !== undefined },
        warnings: async ({ decision, overwritten }) => [
          ...ownerShareWarnings(decision, fields),
          ...(decision?.kept ?? []).map(
            name =>
              `field ${name} was kept: only ${name === 'groups' ? 'the owner or ' : ''}an administrator may change it`,
          ),
          ...(decision?.keptByNull ?? []).map(
            name => `field ${name} was kept, because null keeps the value. To clear the field, name it in update_mask`,
          ),
          ...overwritten.map(overwriteWarning),
          ...outside.map(name => `field ${name} was ignored, because it is not in update_mask`),
          ...unknownFieldWarnings(unknownWithin(PersonaUpsertRequest, body, mask)),
          ...(await attachedNames(options.database.db, decision)),
        ],
      }
    },
  })
}

export function registerCreatePersona(app: FastifyInstance, options: PersonaOptions): void {
  registerWrite(app, options, {
    resource: personaCreation,
    method: 'POST',
    url: '/persona',
    policy: { ...MAKING, creates: true },
    operationId: 'create_persona',
    summary: 'Create Persona',
    description:
      'Creates an agent that the caller owns. The body is the same as for an update without `update_mask`. ' +
      'Absent optional fields get their default values. If the caller is not an administrator, fields that only administrators may set also ' +
      'get their default values. A repeated request with the same `Idempotency-Key` does not create a second agent. ' +
      BODY_BOUNDS,
    record: PersonaSnapshot,
    body: PersonaUpsertRequest,
    bodyLimit: BODY_BYTES_MAX,
    ask({ body }) {
      const fields = fieldsOf(body)
      return {
        ...{ isToday: options.isToday ?? false, fields, masked: false },
        about: () => ['persona', 'create', body],
        warnings: async ({ decision }) => [
          ...(decision?.namesake === undefined ? [] : [`agent ${decision.namesake} already has this name`]),
          ...ownerShareWarnings(decision, fields),
          ...(decision?.kept ?? []).map(
            name => `field ${name} has its default value: only an administrator may set it`,
          ),
          ...unknownFieldWarnings(unknownFields(PersonaUpsertRequest, body)),
          ...(await attachedNames(options.database.db, decision)),
        ],
      }
    },
  })
}

export function registerRestorePersona(app: FastifyInstance, options: OperationOptions): void {
  registerWrite(app, options, {
    ...RESTORES,
    resource: personaRestoration,
    method: 'POST',
    url: `${PERSONA}/restore`,
    policy: WRITING,
    operationId: 'restore_persona',
    summary: 'Restore Persona',
    description:
      'Creates a new version of an agent with the content of an earlier version. Requires the right to update the agent. Fields that the ' +
      'caller cannot change keep their values, and a `Warning` names each of them. If a related record is deleted or hidden from the caller, ' +
      'nothing is restored, and 422 names the field and position of the record. Only the owner and administrators can restore a deleted agent.',
    record: PersonaSnapshot,
    ask: ({ body }) => ({
      warnings: async ({ decision, overwritten }) => [
        ...[...(decision?.left.values() ?? [])].map(notRestoredWarning),
        ...overwritten.filter(({ field }) => !decision?.left.has(field)).map(overwriteWarning),
        ...unknownFieldWarnings(unknownFields(RESTORES.body, body)),
        ...(await attachedNames(options.database.db, decision)),
      ],
    }),
  })
}

export function registerDeletePersona(app: FastifyInstance, options: OperationOptions): void {
  registerWrite(app, options, {
    resource: personaDeletion,
    method: 'DELETE',
    url: PERSONA,
    policy: WRITING,
    operationId: 'delete_persona',
    summary: 'Delete Persona',
    description:
      'Deletes an agent and removes its links to tools, users and other records. The history of the agent is kept. Only the owner and ' +
      'administrators may delete an agent. After the deletion, only they can list the agent (`GET /persona?deleted=true`) and restore it.',
    ask: () => ({ masked: false, warnings: ({ overwritten }) => overwritten.map(overwriteWarning) }),
  })
}

function fieldsOf(body: Readonly<Record<string, unknown>>, mask?: string[]): PersonaUpdateFields {
  const fields = { ...body }
  for (const name in fields) {
    if (!FIELD_NAMES.has(name) || (mask !== undefined && !mask.includes(name))) delete fields[name]
  }
  for (const [name, { canonical }] of REQUEST_FIELDS) {
    const value = fields[name]
    if (canonical !== undefined && value !== undefined && value !== null) fields[name] = canonical(value)
  }
  return fields
}

const FIELD_NAMES: ReadonlySet<string> = new Set(REQUEST_FIELDS.map(([name]) => name))

/** Warns if `users` contains the owner, who needs no share. */
function ownerShareWarnings(decision: PersonaDecision | null, { users }: PersonaUpdateFields): string[] {
  const owner = decision?.after.owner_id
  return owner && users?.includes(owner) ? [`users: ${owner} was left out, because this user owns the agent`] : []
}
