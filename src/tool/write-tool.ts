import type { FastifyInstance } from 'fastify'
import type { Caller } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import { DEFINITION_LIMITS } from '../definition/index.js'
import { notRestoredWarning, overwriteWarning, unknownFieldWarnings } from '../http/answer.js'
import { bodyBounds } from '../http/openapi.js'
import { JSON_BOUNDS, TOOL_BODY_BYTES_MAX } from '../http/validation.js'
import { RESTORES, registerWrite } from '../http/writes.js'
import { requestHash } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import type { OperationOptions, Stored } from '../updates/resource.js'
import { unknownFields } from '../validation/faults.js'
import { noteFacts } from './definition-facts.js'
import { namesBeside } from './function-names.js'
import { type ReleaseTool, toolCreation, toolDeletion, toolRestoration } from './life.js'
import { type ToolTypes, toolResource } from './resource.js'
import { CustomToolCreate, CustomToolUpdate, ToolSnapshot } from './schema.js'
import { TOOL_READS, type ToolState } from './snapshot.js'
import type { BodyWorkers } from './worker/pool.js'
import type { UpdateContent } from './worker/tasks.js'

export interface ToolOptions extends OperationOptions {
  workers: BodyWorkers
  ring: KeyRing
}

const TOOL = '/admin/tool/custom/:tool_id'
const MAKING = { permission: 'manage:actions', resource: 'tool', writes: true } as const
const WRITING = { ...MAKING, lookup: TOOL_READS.lookup }

const { nestingLevels, values, operations, parametersPerOperation, referenceHops } = DEFINITION_LIMITS

/** The limits of a body and of the definition in it, as text for the OpenAPI document. */
export const BODY_BOUNDS = bodyBounds(
  TOOL_BODY_BYTES_MAX,
  JSON_BOUNDS.tool.depthMax,
  `A definition has at most ${nestingLevels} levels, ${values} values, ${operations} operations, ` +
    `${parametersPerOperation} parameters per operation and ${referenceHops} references in a chain.`,
)

export function registerUpdateTool(app: FastifyInstance, options: ToolOptions): void {
  const { ring, workers } = options
  registerWrite(app, options, {
    resource: toolResource,
    method: 'PUT',
    url: TOOL,
    policy: { ...WRITING, takesDefinition: true },
    operationId: 'update_custom_tool',
    summary: 'Update Custom Tool',
    description:
      'Changes a custom tool. Fields that are absent or `null` keep their stored values, except that ' +
      '`oauth_config_id: null` removes the OAuth configuration. A definition must pass the checks of ' +
      '`POST /admin/tool/custom/validate`. Header values are returned as masks. To keep a stored value, send its mask. The body `{}` with ' +
      `\`dry_run=true\` returns the tool without changing it. ${BODY_BOUNDS}`,
    record: ToolSnapshot,
    body: CustomToolUpdate,
    bodyLimit: TOOL_BODY_BYTES_MAX,
    async ask(request, { strict }) {
      const state = request.prefetched as ToolState | null // set by the route's `lookup`
      const storedHeaders = state?.managed_as ? state.headers.map(({ name }) => name) : [] // other callers must not learn header names
      const content = await workers.run('update_custom_tool', request, { strict, storedHeaders })
      const { unknown, notes } = content
      return {
        ...askedOf(['tool', request.params.tool_id], content, ring),
        warnings: async stored => [
          ...(await warningsOf(options, request.caller, stored)),
          ...unknownFieldWarnings(unknown),
          ...notes,
        ],
      }
    },
  })
}

export function registerCreateTool(app: FastifyInstance, options: ToolOptions): void {
  registerWrite(app, options, {
    resource: toolCreation,
    method: 'POST',
    url: '/admin/tool/custom',
    policy: { ...MAKING, creates: true, takesDefinition: true },
    operationId: 'create_custom_tool',
    summary: 'Create Custom Tool',
    description:
      'Creates a custom tool that the caller owns. The definition must pass the checks of `POST /admin/tool/custom/validate`. Header values are ' +
      `returned as masks. With an \`Idempotency-Key\`, a repeated request does not create a second tool. ${BODY_BOUNDS}`,
    record: ToolSnapshot,
    body: CustomToolCreate,
    bodyLimit: TOOL_BODY_BYTES_MAX,
    async ask(request, { strict }) {
      const content = await options.workers.run('create_custom_tool', request, { strict })
      const { unknown, notes } = content
      return {
        ...askedOf(['tool', 'create', 0], content, options.ring),
        warnings: ({ decision }) => [...(decision?.notes ?? []), ...unknownFieldWarnings(unknown), ...notes],
      }
    },
  })
}

export function registerRestoreTool(app: FastifyInstance, options: ToolOptions): void {
  registerWrite(app, options, {
    ...RESTORES,
    resource: toolRestoration,
    method: 'POST',
    url: `${TOOL}/restore`,
    policy: WRITING,
    operationId: 'restore_custom_tool',
    summary: 'Restore Custom Tool',
    description:
      'Restores an earlier version of a custom tool as a new version. Requires the same rights as an update. The definition is restored ' +
      'unchanged and not checked again. `custom_headers` is not restored. A `Warning` names each field that still differs from the ' +
      'earlier version. A deleted tool cannot be restored.',
    record: ToolSnapshot,
    ask: ({ body, caller }) => ({
      ring: options.ring,
      warnings: async stored => [
        ...[...(stored.decision?.left.keys() ?? [])].map(notRestoredWarning),
        ...(await warningsOf(options, caller, stored)),
        ...unknownFieldWarnings(unknownFields(RESTORES.body, body)),
      ],
    }),
  })
}

/** Returns the warnings about a stored update: new destinations of secrets, duplicate function names, and overwritten changes by other callers. */
async function warningsOf(
  { database }: ToolOptions,
  caller: Caller,
  { id, decision, overwritten }: Pick<Stored<ToolTypes>, 'id' | 'decision' | 'overwritten'>,
): Promise<string[]> {
  const tool = decision?.definition && { id, name: decision.after.name, names: decision.definition.names }
  const isAsked = tool && decision?.hasNamesBeside !== false // `hasNamesBeside` is undefined for a dry run
  const shared = isAsked ? await namesBeside(database.db, tool, viewerParameters(caller)) : []
  return [...(decision?.notes ?? []), ...shared, ...overwritten.map(overwriteWarning)]
}

interface DeletionOptions extends OperationOptions {
  release: ReleaseTool
  detaches?: boolean
}

export function registerDeleteTool(app: FastifyInstance, options: DeletionOptions): void {
  const { release, detaches = false } = options
  registerWrite(app, options, {
    resource: toolDeletion,
    method: 'DELETE',
    url: TOOL,
    policy: WRITING,
    operationId: 'delete_custom_tool',
    summary: 'Delete Custom Tool',
    description:
      'Removes a custom tool and the secrets in its headers. The warnings of a dry run name these headers. If agents use the tool, ' +
      'it is not removed: the 409 answer names the agents that the caller can see and counts the others. Requires the same rights as an update.',
    ask(_, { dryRun }) {
      const detached = new Set<number>()
      const verb = dryRun ? 'would be' : 'was'
      return {
        ...{ release, detaches, detached },
        warnings: ({ decision, overwritten }) => [
          ...(dryRun ? (decision?.notes ?? []) : []),
          ...(detached.size > 0 ? [`the tool ${verb} detached from the agents ${[...detached].join(', ')}`] : []),
          ...overwritten.map(overwriteWarning),
        ],
      }
    },
  })
}

/**
 * Returns the properties of an update request that depend on the body. The fingerprint for the `Idempotency-Key` contains a hash instead of the
 * definition, and keyed hashes instead of header values.
 */
function askedOf(about: readonly unknown[], content: UpdateContent, ring: KeyRing) {
  const { fields, origins, definitionFaults } = content
  const { definition, custom_headers: given } = fields
  if (definition) noteFacts(definition.hash, { origins })
  const same = (keyId: string | null) => {
    const hashed = given?.map(({ key, value }) => [key, requestHash(ring, keyId, value)])
    return [...about, { ...fields, definition: definition?.hash, custom_headers: hashed }, 0] // stored fingerprints contain this 0
  }
  return { fields, origins, definitionFaults, ring, about: same, secretKeyId: given?.length ? ring.currentId : null }
}
