import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { ServiceDatabase } from '../db/transaction.js'
import { InvalidRequest } from '../errors.js'
import { answerHeaders, errorResponses, invalidResponse } from '../http/openapi.js'
import { Prefer } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { unknownFieldWarning, warningHeader } from '../http/warnings.js'
import { unknownFields } from '../schema/faults.js'
import { queryChoice, queryId } from '../schema/parameters.js'
import { reference } from '../schema/vocabulary.js'
import { boundsOf, type ToolBodyBounds } from './bounds.js'
import { checkDefinitionInSlices, definitionLimitsOf } from './definition/index.js'
import { impactOf, readToolUse } from './impact.js'
import { definitionNotes } from './notes.js'
import { ValidateToolRequest, ValidateToolResponse } from './schema.js'

export interface ValidateToolOptions extends ToolBodyBounds {
  database: ServiceDatabase
}

const PURPOSE =
  'Says which methods a definition gives a model, or every reason why it gives none. Nothing is stored. ' +
  '`report=full` adds advice, `tool_id` what storing the definition in that tool would break.'

/** `POST /admin/tool/custom/validate`. */
export function registerValidateTool(app: FastifyInstance, options: ValidateToolOptions): void {
  const { database, bodyLimitBytes } = options
  const limits = definitionLimitsOf(options.definitionLimits)
  app.withTypeProvider<SchemaTypes>().post(
    '/admin/tool/custom/validate',
    {
      bodyLimit: bodyLimitBytes,
      config: { policy: { permission: 'manage:actions', resource: 'tool' } },
      schema: {
        operationId: 'validate_tool',
        summary: 'Validate Tool',
        description: `${PURPOSE} ${boundsOf(options)}`,
        querystring: Type.Object({
          report: queryChoice(['full'], '`full` adds `warnings` to the answer.'),
          tool_id: queryId(
            'Adds `impact`: what storing this definition in the tool would change, and for which agents.',
          ),
        }),
        headers: Type.Object({ prefer: Prefer }),
        body: ValidateToolRequest,
        response: {
          200: {
            ...reference(ValidateToolResponse),
            description: 'The methods that the definition gives a model.',
            headers: answerHeaders,
          },
          ...invalidResponse('definition'),
          ...errorResponses(400, 401, 403, 404, 413, 415, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const { query, body } = request
      const { definition } = body
      const asksForImpact = Object.hasOwn(query, 'tool_id')
      const use = asksForImpact ? await readToolUse(database, request.caller, query.tool_id) : null
      const checked = await checkDefinitionInSlices(definition, { limits })
      if (!checked.ok) throw new InvalidRequest(checked.faults)
      const full = query.report === 'full'
      const warning = warningHeader([
        ...unknownFields(ValidateToolRequest, body).map(unknownFieldWarning),
        ...(full ? [] : definitionNotes(checked)),
      ])
      if (warning !== undefined) reply.header('warning', warning)
      if (request.headers.prefer?.strict) reply.header('preference-applied', 'handling=strict')
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
