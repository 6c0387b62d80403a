import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { DryRun } from '../http/parameters.js'
import {
  RESTORE_BYTES_MAX,
  RestoreRequest,
  restoreResponses,
  restorerOf,
  UpdateHeaders,
} from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { notRestoredWarning, overwriteWarning, unknownFieldWarnings } from '../http/warnings.js'
import { attachedNames } from '../tool/function-names.js'
import type { OperationOptions } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { unknownFields } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { personaRestoration } from './restoration.js'
import { PersonaSnapshot } from './schema.js'
import { PERSONA_LOOKUP, type PersonaState } from './state.js'

const PURPOSE =
  'Makes a new version of an agent with the content of an earlier one, with the rights of an update: fields that the caller cannot change ' +
  'stay, with a `Warning`. What that version refers to must exist still, else 409 names it. It also brings a deleted agent back, for its ' +
  'owner and administrators.'

/** `POST /persona/{persona_id}/restore`. */
export function registerRestorePersona(app: FastifyInstance, options: OperationOptions): void {
  const { database } = options
  app.withTypeProvider<SchemaTypes>().post(
    '/persona/:persona_id/restore',
    {
      bodyLimit: RESTORE_BYTES_MAX,
      config: { policy: { permission: 'basic', resource: 'persona', writes: true, lookup: PERSONA_LOOKUP } },
      schema: {
        operationId: 'restore_persona',
        summary: 'Restore Persona',
        description: PURPOSE,
        params: Type.Object({ persona_id: pathId() }),
        querystring: Type.Object({ dry_run: DryRun }),
        headers: UpdateHeaders,
        body: RestoreRequest,
        response: restoreResponses(PersonaSnapshot, 'agent'),
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('persona')
      const { body, query, headers } = request
      const asked = restorerOf(['persona', id], request, body.version, query, headers, options)
      const prefetched = request.prefetched as PersonaState | null // the route's lookup sets it
      const restored = await updateOnce(database, personaRestoration, asked, prefetched)
      const warnings = [
        ...(restored.decision?.left ?? []).map(notRestoredWarning),
        ...restored.overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(unknownFields(RestoreRequest, body)),
        ...(await attachedNames(database.db, restored.decision)),
      ]
      return answerUpdate(reply, 'persona', asked, restored, warnings)
    },
  )
}
