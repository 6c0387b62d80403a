import type { FastifyInstance } from 'fastify'
import type { ServiceDatabase } from '../db/transaction.js'
import { InvalidRequest } from '../errors.js'
import { answerHeaders, errorResponses, updateParameters } from '../http/openapi.js'
import { type RequestShape, readRequest } from '../http/request-parts.js'
import { unknownFieldWarning, warningHeader } from '../http/warnings.js'
import { compileBody, HTTPValidationError } from '../schema/faults.js'
import { reference } from '../schema/vocabulary.js'
import { boundsOf, type ToolBodyBounds } from './bounds.js'
import { checkDefinitionInSlices, definitionLimitsOf } from './definition/index.js'
import { impactOf, readToolUse } from './impact.js'
import { definitionNotes } from './notes.js'
import { ValidateToolRequest, ValidateToolResponse } from './schema.js'

export interface ValidateToolOptions extends ToolBodyBounds {
  database: ServiceDatabase
}

const VALIDATE_BODY = { schema: ValidateToolRequest, compiled: compileBody(ValidateToolRequest), deepKey: 'definition' }

/** `POST /admin/tool/custom/validate`. */
export function registerValidateTool(app: FastifyInstance, options: ValidateToolOptions): void {
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
