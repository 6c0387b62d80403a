import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { Caller } from '../auth/caller.js'
import { DEFINITION_LIMITS } from '../definition/index.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DryRun } from '../http/parameters.js'
import { UpdateHeaders, updateResponses, updaterOf } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { overwriteWarning, unknownFieldWarnings } from '../http/warnings.js'
import { requestHash } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { type RequestKey, requestKey } from '../updates/idempotency.js'
import type { OperationOptions } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { pathId } from '../validation/parameters.js'
import { noteFacts } from './definition-cache.js'
import { namesBeside } from './function-names.js'
import { toolResource } from './resource.js'
import { CustomToolUpdate, ToolSnapshot } from './schema.js'
import { TOOL_LOOKUP, type ToolState } from './snapshot.js'
import { textOf } from './stored-definition.js'
import { withScopeTold } from './tool-use.js'
import type { BodyWorkers } from './worker/pool.js'
import type { UpdateContent } from './worker/tasks.js'

/** Describes the limits of a body and its definition for the OpenAPI document. */
export function boundsOf({ bodyLimitBytes }: { bodyLimitBytes: number }): string {
  const { nestingLevels, values, operations, parametersPerOperation, referenceHops } = DEFINITION_LIMITS
  const definition =
    `A definition itself nests at most ${nestingLevels} deep and holds at most ${values} values, ${operations} operations, ` +
    `${parametersPerOperation} parameters an operation and ${referenceHops} references in a chain.`
  return bodyBounds(bodyLimitBytes, JSON_BOUNDS.tool.depthMax, definition)
}

export interface ToolOptions extends OperationOptions {
  bodyLimitBytes: number
  workers: BodyWorkers
  ring: KeyRing
}

const PURPOSE =
  'Changes a custom tool. Every field is optional; what is absent or `null` stays as it is, except ' +
  '`oauth_config_id: null`, which clears the link. A definition is checked as by validation. Header ' +
  'values are answered as masks, and a mask sent back keeps the stored value. The body `{}` with ' +
  '`dry_run=true` reads without changing.'

/** `PUT /admin/tool/custom/{tool_id}`. */
export function registerUpdateTool(app: FastifyInstance, options: ToolOptions): void {
  const { database } = options
  app.withTypeProvider<SchemaTypes>().put(
    '/admin/tool/custom/:tool_id',
    {
      bodyLimit: options.bodyLimitBytes,
      config: {
        policy: {
          permission: 'manage:actions',
          resource: 'tool',
          writes: true,
          takesDefinition: true,
          lookup: TOOL_LOOKUP,
        },
      },
      schema: {
        operationId: 'update_custom_tool',
        summary: 'Update Custom Tool',
        description: `${PURPOSE} ${boundsOf(options)}`,
        params: Type.Object({ tool_id: pathId() }),
        querystring: Type.Object({ dry_run: DryRun }),
        headers: UpdateHeaders,
        body: CustomToolUpdate,
        response: updateResponses(ToolSnapshot, 'tool'),
      },
    },
    async (request, reply) => {
      const { tool_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('tool')
      const { caller, headers } = request
      const updater = updaterOf(request, request.query, headers, options)
      const { strict, dryRun } = updater
      // This route's lookup reads the tool along with the caller.
      const prefetched = request.prefetched as ToolState | null
      const mayTell = prefetched !== null && prefetched.managed_as !== null // other callers must learn nothing
      const storedHeaders = mayTell ? prefetched.headers.map(({ name }) => name) : []
      const content = await options.workers.run('update_custom_tool', request, { strict, storedHeaders })
      const { fields, origins, names: functions, definitionFaults, unknown, notes } = content
      if (fields.definition) noteFacts(fields.definition.hash, { origins, names: functions })
      const given = fields.custom_headers ?? []
      const names = new Set(given.map(({ key }) => key.toLowerCase()))
      const isDropped =
        fields.custom_headers !== undefined && storedHeaders.some(name => !names.has(name.toLowerCase()))
      if (isDropped && fields.definition === undefined && prefetched?.definition_hash) {
        const { definition_hash: hash, definition_bytes: bytes } = prefetched
        const work = { strict: false, headerNames: given.map(({ key }) => key) }
        const text = { bytes, text: () => textOf(database, hash) }
        const checked = await options.workers.run('check_stored', { body: {}, caller, raw: request.raw }, work, text)
        notes.push(...checked.notes)
      }
      const asked = {
        kind: 'tool' as const,
        id,
        fields,
        origins,
        definitionFaults,
        ring: options.ring,
        key: toolRequestKey(
          caller,
          dryRun ? undefined : headers['idempotency-key'],
          ['tool', id],
          content,
          options.ring,
        ),
        ...updater,
      }
      const updated = await withScopeTold(database, asked, id, () =>
        updateOnce(database, toolResource, asked, prefetched),
      )
      const { decision } = updated
      const warnings = [
        ...(decision?.notes ?? []),
        ...(decision?.definition
          ? await namesBeside(database.db, { id, name: decision.after.name }, functions, caller)
          : []),
        ...updated.overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(unknown),
        ...notes,
      ]
      return answerUpdate(reply, 'tool', asked, updated, warnings)
    },
  )
}

/** The key of a request about a tool: the definition by hash, header values by keyed hashes. `about` names the operation and the id. */
export function toolRequestKey(
  caller: Caller,
  key: string | undefined,
  about: readonly unknown[],
  { fields, definitionFaults }: UpdateContent,
  ring: KeyRing,
): RequestKey | null {
  const { custom_headers: headers } = fields
  const asked = (keyId: string | null) => {
    const hashed = headers?.map(({ key: name, value }) => [name, requestHash(ring, keyId, value)])
    return [
      ...about,
      { ...fields, definition: fields.definition?.hash, custom_headers: hashed },
      definitionFaults.length,
    ]
  }
  return requestKey(caller, key, asked, headers?.length ? ring.currentId : null)
}
