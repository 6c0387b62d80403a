import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { ServiceDatabase } from '../db/transaction.js'
import { errorResponses, pageHeaders } from '../http/openapi.js'
import { answerPage, PageQuery } from '../http/pages.js'
import { IfNoneMatch } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { HTTPValidationError } from '../schema/faults.js'
import { reference } from '../schema/vocabulary.js'
import { readToolPage } from './pages.js'
import { ToolSummary } from './schema.js'

/** `GET /tool`: the tools that the caller sees, as small records, a page at a time. */
export function registerReadTools(app: FastifyInstance, database: ServiceDatabase): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/tool',
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource: 'tool' } },
      schema: {
        operationId: 'list_tools',
        summary: 'List Tools',
        description:
          'Lists the tools that the caller sees, in the order of their ids. `Link` with `rel="next"` is the next page; without ' +
          'it this is the last. The `etag` of a record is what an update takes as `If-Match`.',
        querystring: PageQuery,
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: {
          200: {
            type: 'array',
            items: reference(ToolSummary),
            description: 'The tools of this page.',
            headers: pageHeaders,
          },
          304: { description: 'The page is still what the caller has.', type: 'null', headers: pageHeaders },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
          ...errorResponses(400, 401, 403, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const { query, caller, headers } = request
      return await answerPage(reply, query, headers['if-none-match'], (after, rows) =>
        readToolPage(database, caller, query, after, rows),
      )
    },
  )
}
