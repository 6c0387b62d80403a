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
import { updateOnce } from '../updates/update-once.js'
import { unknownFields } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { namesBeside } from './function-names.js'
import { refuseRemoved, toolRestoration } from './restoration.js'
import { ToolSnapshot } from './schema.js'
import { TOOL_LOOKUP, type ToolState } from './snapshot.js'
import { withScopeTold } from './tool-use.js'
import type { ToolOptions } from './update-tool.js'

const PURPOSE =
  'Makes a new version of a custom tool with the content of an earlier one, with the rights of an update. The definition comes back text ' +
  'for text, and is checked as by validation. Header values are not restored: they stay as they are now, with a `Warning` where they ' +
  'differed. A deleted tool is gone with its secrets.'

/** `POST /admin/tool/custom/{tool_id}/restore`. */
export function registerRestoreTool(app: FastifyInstance, options: ToolOptions): void {
  const { database } = options
  app.withTypeProvider<SchemaTypes>().post(
    '/admin/tool/custom/:tool_id/restore',
    {
      bodyLimit: RESTORE_BYTES_MAX,
      config: { policy: { permission: 'manage:actions', resource: 'tool', writes: true, lookup: TOOL_LOOKUP } },
      schema: {
        operationId: 'restore_custom_tool',
        summary: 'Restore Custom Tool',
        description: PURPOSE,
        params: Type.Object({ tool_id: pathId() }),
        querystring: Type.Object({ dry_run: DryRun }),
        headers: UpdateHeaders,
        body: RestoreRequest,
        response: restoreResponses(ToolSnapshot, 'tool'),
      },
    },
    async (request, reply) => {
      const { tool_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('tool')
      const { body, query, headers, caller, raw } = request
      const prefetched = request.prefetched as ToolState | null // the route's lookup sets it
      if (prefetched === null) return await refuseRemoved(database.db, id, caller)
      let notes: string[] = []
      let functions: readonly string[] = []
      const check = async (text: string, state: ToolState) => {
        const work = { strict: false, headerNames: state.headers.map(({ name }) => name) }
        const stored = { bytes: Buffer.byteLength(text), text: async () => text }
        const checked = await options.workers.run('check_stored', { body: {}, caller, raw }, work, stored)
        notes = checked.notes
        functions = checked.names
        return { ...checked, definitionFaults: checked.faults }
      }
      const restorer = restorerOf(['tool', id], request, body.version, query, headers, options)
      const asked = { ...restorer, ring: options.ring, check }
      const restored = await withScopeTold(database, asked, id, () =>
        updateOnce(database, toolRestoration, asked, prefetched),
      )
      const { decision } = restored
      const warnings = [
        ...(decision?.left ?? []).map(notRestoredWarning),
        ...(decision?.notes ?? []),
        ...restored.overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(unknownFields(RestoreRequest, body)),
        ...(decision?.definition ? notes : []),
        ...(decision?.definition
          ? await namesBeside(database.db, { id, name: decision.after.name }, functions, caller)
          : []),
      ]
      return answerUpdate(reply, 'tool', asked, restored, warnings)
    },
  )
}
