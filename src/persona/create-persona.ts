import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { answerUpdate } from '../http/answer.js'
import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DryRun } from '../http/parameters.js'
import { CreationHeaders, creationResponses, creatorOf } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { newFieldWarning, unknownFieldWarnings } from '../http/warnings.js'
import { attachedNames } from '../tool/function-names.js'
import { requestKey } from '../updates/idempotency.js'
import { updateOnce } from '../updates/update-once.js'
import { unknownFields } from '../validation/faults.js'
import { personaCreation } from './life.js'
import type { PersonaDecision } from './rules.js'
import { PersonaSnapshot, PersonaUpsertRequest } from './schema.js'
import { BODY_BYTES_MAX, fieldsOf, ownerShareWarnings, type PersonaOptions } from './update-persona.js'

const PURPOSE =
  'Creates an agent that the caller owns. The body is that of a whole update: optional fields that are absent, and those that only an ' +
  'administrator may set, get the value of a new agent. With an `Idempotency-Key` a repetition creates no second one.'

/** `POST /persona`, the creation of an agent. */
export function registerCreatePersona(app: FastifyInstance, options: PersonaOptions): void {
  app.withTypeProvider<SchemaTypes>().post(
    '/persona',
    {
      bodyLimit: BODY_BYTES_MAX,
      config: { policy: { permission: 'basic', resource: 'persona', writes: true, creates: true } },
      schema: {
        operationId: 'create_persona',
        summary: 'Create Persona',
        description: `${PURPOSE} ${bodyBounds(BODY_BYTES_MAX, JSON_BOUNDS.persona.depthMax)}`,
        querystring: Type.Object({ dry_run: DryRun }),
        headers: CreationHeaders,
        body: PersonaUpsertRequest,
        response: creationResponses(PersonaSnapshot, 'agent'),
      },
    },
    async (request, reply) => {
      const { caller, body, query, headers } = request
      const key = query.dry_run ? undefined : headers['idempotency-key']
      const asked = {
        kind: 'persona' as const,
        fields: fieldsOf(body),
        masked: false,
        key: requestKey(caller, key, () => ['persona', 'create', body]),
        ...creatorOf(request, query, headers, options),
        isToday: options.isToday ?? false,
        id: 0, // the id is not known yet
      }
      const created = await updateOnce(options.database, personaCreation, asked)
      const warnings = [
        ...namesakeWarnings(created.decision),
        ...ownerShareWarnings(created.decision, body),
        ...(created.decision?.kept ?? []).map(newFieldWarning),
        ...unknownFieldWarnings(unknownFields(PersonaUpsertRequest, body)),
        ...(await attachedNames(options.database.db, created.decision)),
      ]
      return answerUpdate(reply, 'persona', asked, created, warnings, { below: '/persona' })
    },
  )
}

function namesakeWarnings(decision: PersonaDecision | null): string[] {
  return decision?.namesake === undefined ? [] : [`agent ${decision.namesake} has this name already`]
}
