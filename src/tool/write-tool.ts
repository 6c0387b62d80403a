import { type Static, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { DEFINITION_LIMITS } from '../definition/index.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DryRun } from '../http/parameters.js'
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
import { notRestoredWarning, overwriteWarning, unknownFieldWarnings } from '../http/warnings.js'
import { requestHash } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { requestKey } from '../updates/idempotency.js'
import type { OperationOptions } from '../updates/resource.js'
import { updateOnce } from '../updates/update-once.js'
import { unknownFields } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { noteFacts } from './definition-cache.js'
import { namesBeside } from './function-names.js'
import { type ReleaseTool, toolCreation, toolDeletion, toolRestoration } from './life.js'
import { toolResource } from './resource.js'
import { CustomToolCreate, CustomToolUpdate, ToolSnapshot } from './schema.js'
import { TOOL_LOOKUP, type ToolState } from './snapshot.js'
import type { BodyWorkers } from './worker/pool.js'
import type { UpdateContent } from './worker/tasks.js'

/* The operations that write custom tools. */

export interface ToolOptions extends OperationOptions {
  bodyLimitBytes: number
  workers: BodyWorkers
  ring: KeyRing
}

const TOOL = '/admin/tool/custom/:tool_id'
const PARAMS = Type.Object({ tool_id: pathId() })
const QUERY = Type.Object({ dry_run: DryRun })
const MAKING = { permission: 'manage:actions', resource: 'tool', writes: true } as const
const WRITING = { ...MAKING, lookup: TOOL_LOOKUP }

/** Describes the limits of a body and its definition for the OpenAPI document. */
export function boundsOf({ bodyLimitBytes }: { bodyLimitBytes: number }): string {
  const { nestingLevels, values, operations, parametersPerOperation, referenceHops } = DEFINITION_LIMITS
  const definition =
    `A definition itself nests at most ${nestingLevels} deep and holds at most ${values} values, ${operations} operations, ` +
    `${parametersPerOperation} parameters an operation and ${referenceHops} references in a chain.`
  return bodyBounds(bodyLimitBytes, JSON_BOUNDS.tool.depthMax, definition)
}

/** `PUT /admin/tool/custom/{tool_id}`. */
export function registerUpdateTool(app: FastifyInstance, options: ToolOptions): void {
  const { database, ring } = options
  app.withTypeProvider<SchemaTypes>().put(
    TOOL,
    {
      bodyLimit: options.bodyLimitBytes,
      config: { policy: { ...WRITING, takesDefinition: true } },
      schema: {
        operationId: 'update_custom_tool',
        summary: 'Update Custom Tool',
        description:
          'Changes a custom tool. Every field is optional; what is absent or `null` stays as it is, except ' +
          '`oauth_config_id: null`, which clears the link. A definition is checked as by validation. Header ' +
          'values are answered as masks, and a mask sent back keeps the stored value. The body `{}` with ' +
          `\`dry_run=true\` reads without changing. ${boundsOf(options)}`,
        params: PARAMS,
        querystring: QUERY,
        headers: UpdateHeaders,
        body: CustomToolUpdate,
        response: updateResponses(ToolSnapshot, 'tool'),
      },
    },
    async (request, reply) => {
      const { id, prefetched } = addressed(request)
      const updater = updaterOf(request, request.query, request.headers, options)
      const storedHeaders = prefetched?.managed_as ? namesOf(prefetched) : [] // other callers must learn nothing
      const content = await options.workers.run('update_custom_tool', request, {
        strict: updater.strict,
        storedHeaders,
      })
      const asked = { ...updater, ...askedOf(request, ['tool', id], content, ring), id }
      const updated = await updateOnce(database, toolResource, asked, prefetched)
      const { decision, overwritten } = updated
      const tool = decision?.definition && { id, name: decision.after.name }
      const warnings = [
        ...(decision?.notes ?? []),
        ...(tool ? await namesBeside(database.db, tool, content.names, request.caller) : []),
        ...overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(content.unknown),
        ...content.notes,
      ]
      return answerUpdate(reply, 'tool', asked, updated, warnings)
    },
  )
}

/** `POST /admin/tool/custom`. */
export function registerCreateTool(app: FastifyInstance, options: ToolOptions): void {
  app.withTypeProvider<SchemaTypes>().post(
    '/admin/tool/custom',
    {
      bodyLimit: options.bodyLimitBytes,
      config: { policy: { ...MAKING, creates: true, takesDefinition: true } },
      schema: {
        operationId: 'create_custom_tool',
        summary: 'Create Custom Tool',
        description:
          'Creates a custom tool that the caller owns. The definition is checked as by validation. Header values are answered as masks. ' +
          `With an \`Idempotency-Key\` a repetition creates no second one. ${boundsOf(options)}`,
        querystring: QUERY,
        headers: CreationHeaders,
        body: CustomToolCreate,
        response: creationResponses(ToolSnapshot, 'tool'),
      },
    },
    async (request, reply) => {
      const creator = creatorOf(request, request.query, request.headers, options)
      const content = await options.workers.run('create_custom_tool', request, { strict: creator.strict })
      const asked = { ...creator, ...askedOf(request, ['tool', 'create', 0], content, options.ring), id: 0 } // it gets an id later
      const created = await updateOnce(options.database, toolCreation, asked)
      const unknown = unknownFieldWarnings(content.unknown)
      const warnings = [...(created.decision?.notes ?? []), ...unknown, ...content.notes]
      return answerUpdate(reply, 'tool', asked, created, warnings, { below: '/tool' })
    },
  )
}

/** `POST /admin/tool/custom/{tool_id}/restore`. */
export function registerRestoreTool(app: FastifyInstance, options: ToolOptions): void {
  const { database, ring, workers } = options
  app.withTypeProvider<SchemaTypes>().post(
    `${TOOL}/restore`,
    {
      bodyLimit: RESTORE_BYTES_MAX,
      config: { policy: WRITING },
      schema: {
        operationId: 'restore_custom_tool',
        summary: 'Restore Custom Tool',
        description:
          'Makes a new version of a custom tool with the content of an earlier one, with the rights of an update. The definition comes ' +
          'back text for text, and is checked as by validation. Header values are not restored: they stay as they are now, with a ' +
          '`Warning` where they differed. A deleted tool is gone with its secrets.',
        params: PARAMS,
        querystring: QUERY,
        headers: UpdateHeaders,
        body: RestoreRequest,
        response: restoreResponses(ToolSnapshot, 'tool'),
      },
    },
    async (request, reply) => {
      const { id, prefetched } = addressed(request)
      const { body, query, headers, caller, raw } = request
      let found: { notes: string[]; names: readonly string[] } = { notes: [], names: [] }
      const check = async (text: string, state: ToolState) => {
        const stored = { bytes: Buffer.byteLength(text), text: async () => text }
        const work = { headerNames: namesOf(state) }
        const checked = await workers.run('check_stored', { body: {}, caller, raw }, work, stored)
        found = checked
        return { origins: checked.origins, definitionFaults: checked.definitionFaults }
      }
      const asked = { ...restorerOf(['tool', id], request, body.version, query, headers, options), ring, check }
      const restored = await updateOnce(database, toolRestoration, asked, prefetched)
      const { decision, overwritten } = restored
      const tool = decision?.definition && { id, name: decision.after.name }
      const warnings = [
        ...(decision?.left ?? []).map(notRestoredWarning),
        ...(decision?.notes ?? []),
        ...overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(unknownFields(RestoreRequest, body)),
        ...(tool ? [...found.notes, ...(await namesBeside(database.db, tool, found.names, caller))] : []),
      ]
      return answerUpdate(reply, 'tool', asked, restored, warnings)
    },
  )
}

interface DeletionOptions extends OperationOptions {
  release: ReleaseTool
  detaches?: boolean
}

/** `DELETE /admin/tool/custom/{tool_id}`. */
export function registerDeleteTool(app: FastifyInstance, options: DeletionOptions): void {
  const { database, release, detaches = false } = options
  app.withTypeProvider<SchemaTypes>().delete(
    TOOL,
    {
      config: { policy: WRITING },
      schema: {
        operationId: 'delete_custom_tool',
        summary: 'Delete Custom Tool',
        description:
          'Removes a custom tool that no agent uses, with the sealed secrets of its headers: a dry run warns which headers these are. ' +
          'While agents use it, 409 names those that the caller sees and counts the others. It takes the right to update the tool.',
        params: PARAMS,
        querystring: QUERY,
        headers: DeletionHeaders,
        response: deletionResponses(),
      },
    },
    async (request, reply) => {
      const { id, prefetched } = addressed(request)
      const deleter = deleterOf('tool', id, request, request.query, request.headers, options)
      const asked = { ...deleter, release, detaches, detached: new Set<number>() }
      const { dryRun, detached } = asked
      const deleted = await updateOnce(database, toolDeletion, asked, prefetched)
      const warnings = [
        ...(dryRun ? (deleted.decision?.notes ?? []) : []),
        ...(detached.size > 0
          ? [`it ${dryRun ? 'would be' : 'was'} taken off the agents ${[...detached].join(', ')}`]
          : []),
        ...deleted.overwritten.map(overwriteWarning),
      ]
      return answerUpdate(reply, 'tool', asked, deleted, warnings, { isGone: true })
    },
  )
}

/** The tool of the address, as the route's lookup read it. */
function addressed({ params, prefetched }: Pick<FastifyRequest, 'prefetched'> & { params: Static<typeof PARAMS> }) {
  if (params.tool_id === undefined) throw new ResourceNotFound('tool')
  return { id: params.tool_id, prefetched: prefetched as ToolState | null }
}

function namesOf({ headers }: ToolState): string[] {
  return headers.map(({ name }) => name)
}

type Asking = Pick<FastifyRequest, 'caller'> & {
  query: Static<typeof QUERY>
  headers: { 'idempotency-key'?: string | undefined }
}

/** The part of the engine's request that the parsed body gives. In its key the definition stands by hash, header values by keyed hashes. */
function askedOf(
  { caller, query, headers }: Asking,
  about: readonly unknown[],
  { fields, origins, names, definitionFaults }: UpdateContent,
  ring: KeyRing,
) {
  const { definition, custom_headers: given } = fields
  if (definition) noteFacts(definition.hash, { origins, names })
  const asked = (keyId: string | null) => {
    const hashed = given?.map(({ key, value }) => [key, requestHash(ring, keyId, value)])
    return [...about, { ...fields, definition: definition?.hash, custom_headers: hashed }, definitionFaults.length]
  }
  const used = query.dry_run ? undefined : headers['idempotency-key']
  const key = requestKey(caller, used, asked, given?.length ? ring.currentId : null)
  return { kind: 'tool' as const, fields, origins, definitionFaults, ring, key }
}
