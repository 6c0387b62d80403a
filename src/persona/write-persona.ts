import { type Static, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DryRun, updateMask } from '../http/parameters.js'
import {
  CreationHeaders,
  creationResponses,
  creatorOf,
  DeletionHeaders,
  deleterOf,
  deletionResponses,
  RESTORE_BYTES_MAX,
  RestoreRequest,
  restoreResponses,
  restorerOf,
  UpdateHeaders,
  updateResponses,
  updaterOf,
} from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import {
  keptByNullWarning,
  keptFieldWarning,
  newFieldWarning,
  notRestoredWarning,
  outsideMaskWarning,
  overwriteWarning,
  unknownFieldWarnings,
} from '../http/warnings.js'
import { attachedNames } from '../tool/function-names.js'
import { requestKey } from '../updates/idempotency.js'
import type { OperationOptions } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { unknownFields, unknownWithin } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { canonicalUuid } from '../validation/vocabulary.js'
import { REQUEST_FIELDS } from './fields.js'
import { personaCreation, personaDeletion } from './life.js'
import { personaResource } from './resource.js'
import { personaRestoration } from './restoration.js'
import type { PersonaDecision, PersonaUpdateFields } from './rules.js'
import { PersonaSnapshot, PersonaUpsertRequest, personaFieldsUpdate } from './schema.js'
import { PERSONA_LOOKUP, type PersonaState } from './state.js'

/* The operations that update, create, restore and delete an agent. */

/** The dependencies of the operations that write agents. `isToday`: below `/api`, with the rules of the published product. */
interface PersonaOptions extends OperationOptions {
  isToday?: boolean
}

const PERSONA = '/persona/:persona_id'
const PARAMS = Type.Object({ persona_id: pathId() })
const QUERY = Type.Object({ dry_run: DryRun })
const MAKING = { permission: 'basic', resource: 'persona', writes: true } as const
const WRITING = { ...MAKING, lookup: PERSONA_LOOKUP }
const BODY_BYTES_MAX = 4 * 2 ** 20
const BODY_BOUNDS = bodyBounds(BODY_BYTES_MAX, JSON_BOUNDS.persona.depthMax)

/** `PATCH /persona/{persona_id}`. */
export function registerUpdatePersona(app: FastifyInstance, options: PersonaOptions): void {
  app.withTypeProvider<SchemaTypes>().patch(
    PERSONA,
    {
      bodyLimit: BODY_BYTES_MAX,
      config: { policy: WRITING, documentedBody: personaFieldsUpdate(PersonaUpsertRequest) },
      schema: {
        operationId: 'update_persona',
        summary: 'Update Persona',
        description:
          'Changes an agent. With `update_mask` only the fields that it names are read and written, and the body holds just these; ' +
          'without it the body is the whole update with its twelve required fields, and optional fields that are absent stay as ' +
          'they are. The answer is the agent as it is then. `update_mask=` (empty) with the body `{}` reads without changing. ' +
          BODY_BOUNDS,
        params: PARAMS,
        querystring: Type.Object({ update_mask: updateMask(PersonaUpsertRequest), dry_run: DryRun }),
        headers: UpdateHeaders,
        body: PersonaUpsertRequest,
        response: updateResponses(PersonaSnapshot, 'agent'),
      },
    },
    async (request, reply) => {
      const { id, prefetched } = addressed(request)
      const { caller, body, query, headers } = request
      const { update_mask: mask } = query
      const updater = updaterOf(request, query, headers, options)
      const key = updater.dryRun ? undefined : headers['idempotency-key']
      const asked = {
        ...{ ...updater, kind: 'persona' as const, id, isToday: options.isToday ?? false },
        ...{ fields: fieldsOf(body, mask), masked: mask !== undefined },
        key: requestKey(caller, key, () => ['persona', id, mask, body]),
      }
      const updated = await updateOnce(options.database, personaResource, asked, prefetched)
      const { decision, overwritten } = updated
      const isOutside = (name: string) => Object.hasOwn(PersonaUpsertRequest.properties, name) && !mask?.includes(name)
      const outside = mask === undefined ? [] : Object.keys(body).filter(isOutside)
      const warnings = [
        ...ownerShareWarnings(decision, body),
        ...(decision?.kept ?? []).map(name => keptFieldWarning(name, name === 'groups')),
        ...(decision?.keptByNull ?? []).map(keptByNullWarning),
        ...overwritten.map(overwriteWarning),
        ...outside.map(outsideMaskWarning),
        ...unknownFieldWarnings(unknownWithin(PersonaUpsertRequest, body, mask)),
        ...(await attachedNames(options.database.db, decision)),
      ]
      return answerUpdate(reply, 'persona', asked, updated, warnings)
    },
  )
}

/** `POST /persona`. */
export function registerCreatePersona(app: FastifyInstance, options: PersonaOptions): void {
  app.withTypeProvider<SchemaTypes>().post(
    '/persona',
    {
      bodyLimit: BODY_BYTES_MAX,
      config: { policy: { ...MAKING, creates: true } },
      schema: {
        operationId: 'create_persona',
        summary: 'Create Persona',
        description:
          'Creates an agent that the caller owns. The body is that of a whole update: optional fields that are absent, and those that only an ' +
          'administrator may set, get the value of a new agent. With an `Idempotency-Key` a repetition creates no second one. ' +
          BODY_BOUNDS,
        querystring: QUERY,
        headers: CreationHeaders,
        body: PersonaUpsertRequest,
        response: creationResponses(PersonaSnapshot, 'agent'),
      },
    },
    async (request, reply) => {
      const { caller, body, query, headers } = request
      const creator = creatorOf(request, query, headers, options)
      const key = creator.dryRun ? undefined : headers['idempotency-key']
      const asked = {
        ...{ ...creator, kind: 'persona' as const, id: 0, isToday: options.isToday ?? false }, // it gets an id later
        ...{ fields: fieldsOf(body), masked: false },
        key: requestKey(caller, key, () => ['persona', 'create', body]),
      }
      const created = await updateOnce(options.database, personaCreation, asked)
      const { decision } = created
      const warnings = [
        ...(decision?.namesake === undefined ? [] : [`agent ${decision.namesake} has this name already`]),
        ...ownerShareWarnings(decision, body),
        ...(decision?.kept ?? []).map(newFieldWarning),
        ...unknownFieldWarnings(unknownFields(PersonaUpsertRequest, body)),
        ...(await attachedNames(options.database.db, decision)),
      ]
      return answerUpdate(reply, 'persona', asked, created, warnings, { below: '/persona' })
    },
  )
}

/** `POST /persona/{persona_id}/restore`. */
export function registerRestorePersona(app: FastifyInstance, options: OperationOptions): void {
  app.withTypeProvider<SchemaTypes>().post(
    `${PERSONA}/restore`,
    {
      bodyLimit: RESTORE_BYTES_MAX,
      config: { policy: WRITING },
      schema: {
        operationId: 'restore_persona',
        summary: 'Restore Persona',
        description:
          'Makes a new version of an agent with the content of an earlier one, with the rights of an update: fields that the caller cannot change ' +
          'stay, with a `Warning`. What that version refers to must exist still, else 409 names it. It also brings a deleted agent back, for its ' +
          'owner and administrators.',
        params: PARAMS,
        querystring: QUERY,
        headers: UpdateHeaders,
        body: RestoreRequest,
        response: restoreResponses(PersonaSnapshot, 'agent'),
      },
    },
    async (request, reply) => {
      const { id, prefetched } = addressed(request)
      const { body, query, headers } = request
      const asked = restorerOf(['persona', id], request, body.version, query, headers, options)
      const restored = await updateOnce(options.database, personaRestoration, asked, prefetched)
      const { decision, overwritten } = restored
      const warnings = [
        ...(decision?.left ?? []).map(notRestoredWarning),
        ...overwritten.filter(({ field }) => !decision?.left.includes(field)).map(overwriteWarning),
        ...unknownFieldWarnings(unknownFields(RestoreRequest, body)),
        ...(await attachedNames(options.database.db, decision)),
      ]
      return answerUpdate(reply, 'persona', asked, restored, warnings)
    },
  )
}

/** `DELETE /persona/{persona_id}`. */
export function registerDeletePersona(app: FastifyInstance, options: OperationOptions): void {
  app.withTypeProvider<SchemaTypes>().delete(
    PERSONA,
    {
      config: { policy: WRITING },
      schema: {
        operationId: 'delete_persona',
        summary: 'Delete Persona',
        description:
          'Deletes an agent: nobody sees it any more, and it leaves every list, tool and share. Its history keeps what it was. ' +
          'It takes its owner or an administrator.',
        params: PARAMS,
        querystring: QUERY,
        headers: DeletionHeaders,
        response: deletionResponses(),
      },
    },
    async (request, reply) => {
      const { id, prefetched } = addressed(request)
      const asked = { ...deleterOf('persona', id, request, request.query, request.headers, options), masked: false }
      const deleted = await updateOnce(options.database, personaDeletion, asked, prefetched)
      return answerUpdate(reply, 'persona', asked, deleted, deleted.overwritten.map(overwriteWarning), { isGone: true })
    },
  )
}

/** The agent of the address, as the route's lookup read it. */
function addressed({ params, prefetched }: Pick<FastifyRequest, 'prefetched'> & { params: Static<typeof PARAMS> }) {
  if (params.persona_id === undefined) throw new ResourceNotFound('persona')
  return { id: params.persona_id, prefetched: prefetched as PersonaState | null }
}

/** Returns the requested fields as they are stored. The body is already validated. */
function fieldsOf(body: Readonly<Record<string, unknown>>, mask?: string[]): PersonaUpdateFields {
  const fields = { ...body } // most bodies have exactly these fields, so a copy is faster than selecting them
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

/** The warning that `users` names the owner, who needs no share. */
function ownerShareWarnings(decision: PersonaDecision | null, body: { users?: string[] | undefined }): string[] {
  const owner = decision?.after.owner_id
  const isNamed = body.users?.some(id => (canonicalUuid(id) ?? id) === owner) ?? false
  return isNamed ? [`users: ${owner} owns the agent, and was left out`] : []
}
