import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { Executor } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { errorResponses, invalidResponse, updateHeaders } from '../http/openapi.js'
import { DryRun, IdempotencyKey, IfMatch, NO_PRECONDITION, NO_PREFERENCE, Prefer } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { overwriteWarning, unknownFieldWarnings } from '../http/warnings.js'
import { pathId } from '../schema/parameters.js'
import { reference } from '../schema/vocabulary.js'
import { fingerprint } from '../secrets/mask.js'
import type { Vault } from '../secrets/vault.js'
import { actorOf } from '../updates/actor.js'
import { requestKey } from '../updates/idempotency.js'
import { updateOnce } from '../updates/update-once.js'
import { boundsOf, type ToolBodyBounds } from './bounds.js'
import { definitionLimitsOf } from './definition/index.js'
import { cacheOrigins } from './definition-cache.js'
import { HeaderTrials } from './header-trials.js'
import { toolResource } from './resource.js'
import type { ToolUpdateContent } from './rules.js'
import { CustomToolUpdate, ToolSnapshot } from './schema.js'
import { withScopeTold } from './scope.js'
import { callerAndTool, type ToolState } from './state.js'
import type { BodyTasks } from './tasks/body-tasks.js'

export interface UpdateToolOptions extends ToolBodyBounds {
  database: ServiceDatabase
  tasks: BodyTasks
  vault: () => Vault
  /** The most bytes that a definition may take in an answer. */
  snapshotBytesMax: number
  requireIfMatch: boolean
  /** Different sets of header values that one tool takes in an hour; 0 is off. */
  headerTrialsPerHour: number
}

const LOOKUP = { parameter: 'tool_id', statement: callerAndTool }

const PURPOSE =
  'Changes a custom tool. Every field is optional; what is absent or `null` stays as it is, except ' +
  '`oauth_config_id: null`, which clears the link. A definition is checked as by validation. Header ' +
  'values are answered as masks, and a mask sent back keeps the stored value. The body `{}` with ' +
  '`dry_run=true` reads without changing.'

/** `PUT /admin/tool/custom/{tool_id}`. */
export function registerUpdateTool(app: FastifyInstance, options: UpdateToolOptions): void {
  const limits = definitionLimitsOf(options.definitionLimits)
  const trials = new HeaderTrials(options.headerTrialsPerHour)
  app.withTypeProvider<SchemaTypes>().put(
    '/admin/tool/custom/:tool_id',
    {
      bodyLimit: options.bodyLimitBytes,
      config: { policy: { permission: 'manage:actions', resource: 'tool', writes: true, lookup: LOOKUP } },
      schema: {
        operationId: 'update_custom_tool',
        summary: 'Update Custom Tool',
        description: `${PURPOSE} ${boundsOf(options)}`,
        params: Type.Object({ tool_id: pathId() }),
        querystring: Type.Object({ dry_run: DryRun }),
        headers: Type.Object({ 'if-match': IfMatch, 'idempotency-key': IdempotencyKey, prefer: Prefer }),
        body: CustomToolUpdate,
        response: {
          200: { ...reference(ToolSnapshot), description: 'The tool as it is now.', headers: updateHeaders },
          204: { description: 'It is stored; `return=minimal` was preferred.', type: 'null', headers: updateHeaders },
          ...invalidResponse('request'),
          ...errorResponses(400, 401, 403, 404, 409, 412, 413, 415, 428, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const { tool_id: id } = request.params
      if (id === undefined) throw new ResourceNotFound('tool')
      const { dry_run: dryRun = false } = request.query
      const { 'if-match': precondition = NO_PRECONDITION, prefer = NO_PREFERENCE } = request.headers
      const { strict, merges, minimal } = prefer
      const { caller } = request
      const content = await options.tasks.run('update_custom_tool', request, { strict, limits })
      const { fields, origins, definitionFaults, unknown, notes } = content
      if (fields.definition) cacheOrigins(fields.definition.hash, origins)
      // This route's lookup reads the tool along with the caller.
      const prefetched = request.prefetched as ToolState | null
      const mayTell = prefetched !== null && prefetched.managed_as !== null // who may not manage it is told nothing
      const sets = mayTell ? trials.count(caller.userId, id, fields.custom_headers ?? []) : 0
      if (sets > 0) {
        const line = { resource_id: id, caller: caller.userId, token: caller.token.id, sets, dry_run: dryRun }
        request.log.info(line, 'header values in clear text')
      }
      const asked = {
        id,
        caller,
        callerNow: (executor: Executor) => request.callerNow(executor),
        actor: actorOf(request),
        fields,
        origins,
        definitionFaults,
        vault: options.vault(),
        precondition,
        preconditionRequired: options.requireIfMatch,
        dryRun,
        merges,
        minimal,
        key: requestKey(caller, request.headers['idempotency-key'], () => askedBy(id, content, options.vault())),
        snapshotBytesMax: options.snapshotBytesMax,
        reserveMemory: (bytes: number) => request.reserveMemory(bytes),
      }
      const {
        snapshot,
        version,
        decision,
        overwritten,
        merged,
        notes: own,
      } = await withScopeTold(options.database, caller, id, () =>
        updateOnce(options.database, toolResource, asked, prefetched),
      )
      const warnings = [
        ...own,
        ...(decision?.notes ?? []),
        ...overwritten.map(overwriteWarning),
        ...unknownFieldWarnings(CustomToolUpdate, unknown),
        ...notes,
      ]
      return answerUpdate(reply, {
        kind: 'tool',
        id,
        version,
        snapshot,
        dryRun,
        strict,
        replayed: decision === null,
        merged,
        warnings,
      })
    },
  )
}

/** What makes a repetition the same request: the definition by its hash, header values by keyed fingerprints, as nobody may guess them. */
function askedBy(
  id: number,
  { fields, definitionFaults }: Pick<ToolUpdateContent, 'fields' | 'definitionFaults'>,
  { deploymentKey }: Vault,
): unknown[] {
  const mark = (name: string, value: string) =>
    deploymentKey && fingerprint(deploymentKey, id, name, value).toString('hex')
  const headers = fields.custom_headers?.map(({ key, value }) => [key, mark(key, value)])
  return [
    'tool',
    id,
    { ...fields, definition: fields.definition?.hash, custom_headers: headers },
    definitionFaults.length,
  ]
}
