import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { ClientGone, InvalidRequest } from '../errors.js'
import { JSON_TYPE } from '../http/answer.js'
import { UnparsedBody } from '../http/body.js'
import type { SchemaTypes } from '../http/validation.js'
import { readToolUse, useNotes } from '../tool/tool-use.js'
import type { ToolOptions } from '../tool/update-tool.js'
import { Server } from '../tool/validate-tool.js'
import { BoundedWorkers } from '../tool/worker/pool.js'
import type { Bounded } from '../updates/resource.js'
import { queryChoice, queryFlag, queryId } from '../validation/parameters.js'
import { type TextJob, type TextOutcome, TextRequest } from './text.js'

/** A text inside JSON is longer than the text: each quote and each end of line has an escape. */
const ESCAPED_TIMES = 2

interface TextOptions extends ToolOptions {
  deadlineMs: number
  turn: Bounded
}

/** `POST /console/validate`: what `POST /admin/tool/custom/validate` says of a text of JSON or YAML, with the lines. Only for the page. */
export function registerValidateText(app: FastifyInstance, options: TextOptions): void {
  const { bodyLimitBytes, deadlineMs, turn } = options
  const name = 'outcomeOfText' satisfies keyof typeof import('./text.js')
  const workers = new BoundedWorkers<TextJob, TextOutcome>(
    { bodyLimitBytes, deadlineMs },
    { filename: new URL('./text.js', import.meta.url), name, maxThreads: 1 },
  )
  app.addHook('onClose', () => workers.close())
  app.withTypeProvider<SchemaTypes>().post(
    '/console/validate',
    {
      bodyLimit: ESCAPED_TIMES * bodyLimitBytes,
      config: { policy: { permission: 'manage:actions', resource: 'tool', takesDefinition: true } },
      schema: {
        hide: true,
        querystring: Type.Object({
          tool_id: queryId(''),
          complete: queryFlag(''),
          server: Server,
          drop: queryChoice(['unsupported'], ''),
        }),
        body: TextRequest,
      },
    },
    async (request, reply) => {
      const { tool_id: id, ...asked } = request.query
      const { body } = request as { body: unknown } // a large one is not parsed yet
      const used = Object.hasOwn(request.query, 'tool_id') ? await readToolUse(options, request, id) : null
      const outcome = await turn(String(request.caller.token.id), async () => {
        if (request.raw.socket.destroyed) throw new ClientGone() // somebody typed on
        const stored = await used?.stored?.text()
        return await workers.run({
          body: body instanceof UnparsedBody ? body.bytes : (body as typeof TextRequest.static),
          query: { ...asked, report: 'full', view: 'functions' },
          use: used?.use ?? null,
          headerNames: used?.headerNames ?? [],
          notes: useNotes(used?.use ?? null),
          ...(stored !== undefined && { stored }),
        })
      })
      if ('failure' in outcome) throw new Error(outcome.failure)
      if ('faults' in outcome) throw new InvalidRequest(outcome.faults)
      return reply.type(JSON_TYPE).send(outcome.answer)
    },
  )
}
