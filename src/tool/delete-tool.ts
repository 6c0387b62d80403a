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
import { type ReleaseTool, toolDeletion } from './life.js'
import { TOOL_LOOKUP, type ToolState } from './snapshot.js'
import { withScopeTold } from './tool-use.js'

const PURPOSE =
  'Removes a custom tool that no agent uses, with the sealed secrets of its headers: a dry run warns which headers these are. While ' +
  'agents use it, 409 names those that the caller sees and counts the others. It takes the right to update the tool.'

interface DeletionOptions extends OperationOptions {
  release: ReleaseTool
  detaches?: boolean
}

/** `DELETE /admin/tool/custom/{tool_id}`. */
export function registerDeleteTool(app: FastifyInstance, options: DeletionOptions): void {
  const { database, release, detaches = false } = options
  app.withTypeProvider<SchemaTypes>().delete(
    '/admin/tool/custom/:tool_id',
    {
      config: { policy: { permission: 'manage:actions', resource: 'tool', writes: true, lookup: TOOL_LOOKUP } },
      schema: {
        operationId: 'delete_custom_tool',
        summary: 'Delete Custom Tool',
        description: PURPOSE,
        params: Type.Object({ tool_id: pathId() }),
        querystring: Type.Object({ dry_run: DryRun }),
        headers: DeletionHeaders,
        response: deletionResponses(),
      },
    },
    async (request, reply) => {
      const { tool_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('tool')
      const asked = {
        ...deleterOf('tool', id, request, request.query, request.headers, options),
        release,
        detaches,
        detached: new Set<number>(),
      }
      const prefetched = request.prefetched as ToolState | null // the route's lookup sets it
      const deleted = await withScopeTold(database, asked, id, () =>
        updateOnce(database, toolDeletion, asked, prefetched),
      )
      const lost = asked.dryRun ? (deleted.decision?.notes ?? []) : []
      const verb = asked.dryRun ? 'would be' : 'was'
      const taken =
        asked.detached.size === 0 ? [] : [`it ${verb} taken off the agents ${[...asked.detached].join(', ')}`]
      const warnings = [...lost, ...taken, ...deleted.overwritten.map(overwriteWarning)]
      return answerUpdate(reply, 'tool', asked, deleted, warnings, { isGone: true })
    },
  )
}
