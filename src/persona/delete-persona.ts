import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { DryRun } from '../http/parameters.js'
import { DeletionHeaders, deleterOf, deletionResponses } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { overwriteWarning } from '../http/warnings.js'
import type { OperationOptions } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { pathId } from '../validation/parameters.js'
import { personaDeletion } from './life.js'
import { PERSONA_LOOKUP, type PersonaState } from './state.js'

const PURPOSE =
  'Deletes an agent: nobody sees it any more, and it leaves every list, tool and share. Its history keeps what it was. ' +
  'It takes its owner or an administrator.'

/** `DELETE /persona/{persona_id}`. */
export function registerDeletePersona(app: FastifyInstance, options: OperationOptions): void {
  app.withTypeProvider<SchemaTypes>().delete(
    '/persona/:persona_id',
    {
      config: { policy: { permission: 'basic', resource: 'persona', writes: true, lookup: PERSONA_LOOKUP } },
      schema: {
        operationId: 'delete_persona',
        summary: 'Delete Persona',
        description: PURPOSE,
        params: Type.Object({ persona_id: pathId() }),
        querystring: Type.Object({ dry_run: DryRun }),
        headers: DeletionHeaders,
        response: deletionResponses(),
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('persona')
      const asked = { ...deleterOf('persona', id, request, request.query, request.headers, options), masked: false }
      const prefetched = request.prefetched as PersonaState | null // the route's lookup sets it
      const deleted = await updateOnce(options.database, personaDeletion, asked, prefetched)
      return answerUpdate(reply, 'persona', asked, deleted, deleted.overwritten.map(overwriteWarning), { isGone: true })
    },
  )
}
