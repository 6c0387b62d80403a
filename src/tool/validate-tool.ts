import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { viewerParameters } from '../auth/viewer.js'
import { unusableServer } from '../definition/index.js'
import { InvalidRequest, type Loc } from '../errors.js'
import { addWarnings, JSON_TYPE, notePreferences } from '../http/answer.js'
import { responses } from '../http/openapi.js'
import { Prefer } from '../http/parameters.js'
import { type SchemaTypes, TOOL_BODY_BYTES_MAX } from '../http/validation.js'
import { type Parsed, parameter, queryChoice, queryFlag, queryId } from '../validation/parameters.js'
import { reference } from '../validation/vocabulary.js'
import { namesBeside } from './function-names.js'
import { ValidateToolRefusal, ValidateToolRequest, ValidateToolResponse } from './schema.js'
import { readToolUse } from './tool-use.js'
import type { ValidationQuery } from './worker/tasks.js'
import { BODY_BOUNDS, type ToolOptions } from './write-tool.js'

const PURPOSE =
  'Returns the methods that a model gets from a definition, or the faults of the definition. Nothing is stored. `report=full` ' +
  'adds `warnings`. `tool_id` adds `impact`, the effect of storing the definition in that tool. `complete=true` converts ' +
  'Swagger 2.0, and adds missing operationIds, summaries and path parameters. `server` supplies a missing server.'

const METHODS = {
  description: 'The methods of the definition.',
  body: reference(ValidateToolResponse),
  headers: ['preference-applied', 'warning'],
} as const

const SERVER_CHARACTERS = 2048

export const Server = Type.Optional(
  parameter(
    {
      type: 'string',
      format: 'uri',
      description:
        'With `complete=true`: the server URL to add if the definition has none, or the base of its relative server URL.',
    },
    parseServer,
  ),
)

export function registerValidateTool(app: FastifyInstance, options: ToolOptions): void {
  app.withTypeProvider<SchemaTypes>().post(
    '/admin/tool/custom/validate',
    {
      bodyLimit: TOOL_BODY_BYTES_MAX,
      config: { policy: { permission: 'manage:actions', resource: 'tool', takesDefinition: true } },
      schema: {
        operationId: 'validate_custom_tool',
        summary: 'Validate Tool',
        description: `${PURPOSE} ${BODY_BOUNDS}`,
        querystring: Type.Object({
          report: queryChoice(['full'], '`full` adds `warnings` to the answer.'),
          tool_id: queryId(
            'Adds `impact`: what changes if this definition is stored in the tool, and the affected agents.',
          ),
          view: queryChoice(
            ['functions'],
            'Adds `functions`: the functions that a model gets, and how each argument is sent.',
          ),
          complete: queryFlag(
            '`true` adds `completed`: the completed definition and each edit. Swagger 2.0 is converted. ' +
              'The methods, warnings, impact and faults refer to the completed definition.',
          ),
          server: Server,
        }),
        headers: Type.Object({ prefer: Prefer }),
        body: ValidateToolRequest,
        response: responses({ 200: METHODS }, [404, 413, 415], ValidateToolRefusal),
      },
    },
    async (request, reply) => {
      const { query } = request
      requireCompletion(query)
      const strict = request.headers.prefer?.strict ?? false
      const used = Object.hasOwn(query, 'tool_id') ? await readToolUse(options, request, query.tool_id) : null
      const { use, stored, headerNames } = used ?? { use: null, stored: undefined, headerNames: [] }
      const takesLong = query.complete === true || query.view === 'functions'
      const work = { strict, query, use, headerNames, inWorker: takesLong }
      const validation = await options.workers.run('validate_tool', request, work, stored)
      const tool = used && { ...used.tool, names: validation.names }
      const shared = tool ? await namesBeside(options.database.db, tool, viewerParameters(request.caller)) : []
      addWarnings(reply, [...validation.warnings, ...shared])
      notePreferences(reply, { 'handling=strict': strict })
      reply.type(JSON_TYPE)
      return validation.answer
    },
  )
}

/** Parses `server`. The address must meet the rules for servers in definitions. */
function parseServer(text: string, loc: Loc): Parsed<string> {
  const reason =
    text.length > SERVER_CHARACTERS ? `the url has more than ${SERVER_CHARACTERS} characters` : unusableServer(text)
  if (reason === undefined) return { value: text }
  return { faults: [{ loc, msg: reason, type: 'server_url_invalid' }] }
}

/** Throws `InvalidRequest` for `server` without `complete`, because `server` alone has no effect. */
function requireCompletion({ complete, server }: ValidationQuery): void {
  if (complete || server === undefined) return
  const msg = 'server has an effect only with complete=true: add complete=true, or leave out server'
  throw new InvalidRequest([{ loc: ['query', 'server'], msg, type: 'extra_forbidden' }])
}
