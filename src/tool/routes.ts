import type { FastifyInstance } from 'fastify'
import { actorOf } from '../auth/actor.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { InvalidRequest, ResourceNotFound } from '../errors.js'
import { answerUpdate } from '../http/answer.js'
import { answerHeaders, bodyBounds, errorResponses, updateHeaders, updateParameters } from '../http/openapi.js'
import { type RequestParts, type RequestShape, readRequest } from '../http/request-parts.js'
import { overwriteWarning, unknownFieldWarning, warningHeader } from '../http/warnings.js'
import { compileBody, HTTPValidationError } from '../schema/faults.js'
import { reference } from '../schema/vocabulary.js'
import type { Vault } from '../secrets/vault.js'
import { sha256 } from '../updates/audit.js'
import {
  checkDefinitionInSlices,
  DEFAULT_DEFINITION_LIMITS,
  type DefinitionCheck,
  type DefinitionLimits,
  type DefinitionSettings,
  definitionLimitsOf,
} from './definition/index.js'
import { impactOf, readToolUse } from './impact.js'
import type { ToolUpdate } from './plan.js'
import { CustomToolUpdate, ToolSnapshot, ValidateToolRequest, ValidateToolResponse } from './schema.js'
import { callerAndTool, type ToolState } from './state.js'
import { updateTool } from './store.js'

export interface ToolRouteOptions {
  database: ServiceDatabase
  vault: () => Vault
  bodyLimitBytes: number
  jsonDepthMax: number
  definitionLimits: DefinitionSettings
  requireIfMatch: boolean
}

/** The bounds of a body and of the definition in it, for the OpenAPI document. */
function boundsOf({ bodyLimitBytes, jsonDepthMax, definitionLimits }: ToolRouteOptions): string {
  const limits = { ...DEFAULT_DEFINITION_LIMITS, ...definitionLimitsOf(definitionLimits) }
  const { nestingLevels, values, operations, parametersPerOperation, referenceHops } = limits
  const definition =
    `A definition itself nests at most ${nestingLevels} deep and holds at most ${values} values, ${operations} operations, ` +
    `${parametersPerOperation} parameters an operation and ${referenceHops} references in a chain.`
  return bodyBounds(bodyLimitBytes, jsonDepthMax, definition)
}

const LOOKUP = { parameter: 'tool_id', statement: callerAndTool }

const UPDATE_BODY = { schema: CustomToolUpdate, compiled: compileBody(CustomToolUpdate), deepKey: 'definition' }

const VALIDATE_BODY = { schema: ValidateToolRequest, compiled: compileBody(ValidateToolRequest), deepKey: 'definition' }

/** `PUT /admin/tool/custom/{tool_id}` and `POST /admin/tool/custom/validate`. */
export function registerToolRoutes(app: FastifyInstance, options: ToolRouteOptions): void {
  registerUpdate(app, options)
  registerValidation(app, options)
}

function registerUpdate(app: FastifyInstance, options: ToolRouteOptions): void {
  const limits = definitionLimitsOf(options.definitionLimits)
  const body = { ...UPDATE_BODY, depthMax: options.jsonDepthMax }
  const shape: RequestShape = { pathId: 'tool_id', query: { dry_run: 'flag' }, body }
  app.put(
    '/admin/tool/custom/:tool_id',
    {
      bodyLimit: options.bodyLimitBytes,
      config: { policy: { permission: 'manage:actions', resource: 'tool', lookup: LOOKUP } },
      schema: {
        operationId: 'update_custom_tool',
        summary: 'Update Custom Tool',
        description: boundsOf(options),
        tags: ['public'],
        security: [{ bearer: [] }],
        ...updateParameters('tool_id', ['dry_run']),
        body: reference(CustomToolUpdate),
        response: {
          200: { ...reference(ToolSnapshot), description: 'The tool as it is now.', headers: updateHeaders },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
          ...errorResponses(400, 401, 403, 404, 412, 413, 415, 428, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const parts = readRequest(request, shape)
      if (parts.id === undefined) throw new ResourceNotFound('tool')
      const demanded = options.requireIfMatch || request.caller.token.requiresIfMatch
      const { update, notes } = await updateOf(parts, demanded, limits)
      const dryRun = parts.flags.dry_run ?? false
      const { snapshot, version, plan } = await updateTool(options.database, {
        id: parts.id,
        caller: request.caller,
        actor: actorOf(request),
        prefetched: request.prefetched as ToolState | null, // this route's lookup reads it
        update,
        vault: options.vault(),
        dryRun,
      })
      const warnings = [...plan.overwritten.map(overwriteWarning), ...parts.unknown.map(unknownFieldWarning), ...notes]
      return answerUpdate(reply, {
        kind: 'tool',
        id: parts.id,
        version,
        snapshot,
        dryRun,
        strict: parts.strict,
        warnings,
      })
    },
  )
}

/** What the body asks for. `null` leaves a field as it is, but for `oauth_config_id` (DECISIONS section 4). */
async function updateOf(parts: RequestParts, preconditionDemanded: boolean, limits: Partial<DefinitionLimits>) {
  const body = parts.body as CustomToolUpdate // it passed this schema
  const { definition, oauth_config_id, ...others } = body
  const headerNames = body.custom_headers?.map(header => header.key)
  const checked = definition
    ? await checkDefinitionInSlices(definition, { limits, ...(headerNames && { headerNames }) })
    : null
  const text = checked?.ok ? JSON.stringify(definition) : ''
  const given = Object.entries(others).filter(
    ([name, value]) => value !== null && Object.hasOwn(CustomToolUpdate.properties, name),
  )
  const update: ToolUpdate = {
    fields: {
      ...Object.fromEntries(given),
      ...(oauth_config_id !== undefined && { oauth_config_id }),
      ...(checked?.ok && { definition: { text, hash: sha256(text) } }),
    },
    definitionFaults: checked === null || checked.ok ? [] : checked.faults,
    precondition: parts.precondition,
    preconditionDemanded,
  }
  return { update, notes: definitionNotes(checked) }
}

function definitionNotes(checked: DefinitionCheck | null): string[] {
  const count = checked?.warnings.length ?? 0
  return count === 0 ? [] : [`the definition has ${count} warnings: validate it with report=full to read them`]
}

function registerValidation(app: FastifyInstance, options: ToolRouteOptions): void {
  const { database, bodyLimitBytes } = options
  const limits = definitionLimitsOf(options.definitionLimits)
  const body = { ...VALIDATE_BODY, depthMax: options.jsonDepthMax }
  const shape: RequestShape = { query: { report: 'report', tool_id: 'id' }, body }
  app.post(
    '/admin/tool/custom/validate',
    {
      bodyLimit: bodyLimitBytes,
      config: { policy: { permission: 'manage:actions', resource: 'tool' } },
      schema: {
        operationId: 'validate_tool',
        summary: 'Validate Tool',
        description: boundsOf(options),
        tags: ['public'],
        security: [{ bearer: [] }],
        ...updateParameters(undefined, ['report', 'tool_id']),
        body: reference(ValidateToolRequest),
        response: {
          200: {
            ...reference(ValidateToolResponse),
            description: 'The methods that the definition gives a model.',
            headers: answerHeaders,
          },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the definition.' },
          ...errorResponses(400, 401, 403, 404, 413, 415, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const parts = readRequest(request, shape)
      const { definition } = parts.body as ValidateToolRequest // it passed this schema
      const asksForImpact = Object.hasOwn(parts.queryIds, 'tool_id')
      const use = asksForImpact ? await readToolUse(database, request.caller, parts.queryIds.tool_id) : null
      const checked = await checkDefinitionInSlices(definition, { limits })
      if (!checked.ok) throw new InvalidRequest(checked.faults)
      const full = parts.texts.report === 'full'
      const warning = warningHeader([
        ...parts.unknown.map(unknownFieldWarning),
        ...(full ? [] : definitionNotes(checked)),
      ])
      if (warning !== undefined) reply.header('warning', warning)
      if (parts.strict) reply.header('preference-applied', 'handling=strict')
      const answer = {
        methods: checked.methods,
        ...(full && { warnings: checked.warnings }),
        ...(use && { impact: await impactOf(use, definition) }),
      }
      reply.type('application/json')
      return JSON.stringify(answer)
    },
  )
}
