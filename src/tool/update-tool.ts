import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { DEFINITION_LIMITS } from '../definition/index.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DryRun } from '../http/parameters.js'
import { UpdateHeaders, updateResponses, updaterOf } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { overwriteWarning, unknownFieldWarnings } from '../http/warnings.js'
import { fingerprint } from '../secrets/redaction.js'
import type { Vault } from '../secrets/vault.js'
import { requestKey } from '../updates/idempotency.js'
import type { OperationOptions } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { pathId } from '../validation/parameters.js'
import { noteFacts } from './definition-cache.js'
import { namesBeside } from './function-names.js'
import type { HeaderTrials } from './header-trials.js'
import { headerFaults } from './headers.js'
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
  vault: () => Vault
  trials: HeaderTrials
}

const PURPOSE =
  'Changes a custom tool. Every field is optional; what is absent or `null` stays as it is, except ' +
  '`oauth_config_id: null`, which clears the link. A definition is checked as by validation. Header ' +
  'values are answered as masks, and a mask sent back keeps the stored value. The body `{}` with ' +
  '`dry_run=true` reads without changing.'

/** `PUT /admin/tool/custom/{tool_id}`. */
export function registerUpdateTool(app: FastifyInstance, options: ToolOptions): void {
  const { database, trials } = options
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
      // A request refused before any comparison reveals nothing about stored values.
      const isCompared = mayTell && definitionFaults.length === 0 && headerFaults(given).length === 0
      const sets = isCompared ? trials.count(caller.userId, id, given) : 0
      if (sets > 0) {
        const line = { resource_id: id, caller: caller.userId, token: caller.token.id, sets, dry_run: dryRun }
        request.log.info(line, 'header values in clear text')
      }
      const asked = {
        kind: 'tool' as const,
        id,
        fields,
        origins,
        definitionFaults,
        vault: options.vault(),
        key: requestKey(caller, dryRun ? undefined : headers['idempotency-key'], () => [
          'tool',
          ...askedBy(id, content, options.vault()),
        ]),
        ...updater,
      }
      const updated = await withScopeTold(database, asked, id, () =>
        updateOnce(database, toolResource, asked, prefetched),
      )
      const { decision } = updated
      const warnings = [
        ...(decision?.notes ?? []),
        ...(decision?.definition
          ? await namesBeside(database.db, { id, name: decision.content.name }, functions, caller)
          : []),
        ...updated.overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(CustomToolUpdate, unknown),
        ...notes,
      ]
      return answerUpdate(reply, 'tool', asked, updated, warnings)
    },
  )
}

/** Returns the identity of a request for its idempotency key (id 0 for a creation): the definition by hash, header values by keyed fingerprints. */
export function askedBy(id: number, { fields, definitionFaults }: UpdateContent, { deploymentKey }: Vault): unknown[] {
  const mark = (name: string, value: string) =>
    deploymentKey && fingerprint(deploymentKey, id, name, value).toString('hex')
  const headers = fields.custom_headers?.map(({ key, value }) => [key, mark(key, value)])
  return [id, { ...fields, definition: fields.definition?.hash, custom_headers: headers }, definitionFaults.length]
}
