import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { type ParsedBody, parseJsonBody } from '../schema/json-body.js'
import type { ParameterTexts } from '../schema/parameters.js'

/** A body as it came, with what a client may say of it elsewhere: a mask in the query, strict handling in a header. */
export interface ReceivedBody {
  parsed: ParsedBody
  query: ParameterTexts
  headers: IncomingHttpHeaders
}

/**
 * Bodies are JSON and nothing else; other media types are 415. The parser answers a `ReceivedBody` rather than throwing,
 * because a fault of the body is reported together with those of path and query. The schema of the route makes a value of it.
 */
export function registerBodyParser(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>(
    /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i,
    { parseAs: 'buffer' },
    ({ query, headers }, bytes, done) => {
      const received: ReceivedBody = {
        parsed: parseJsonBody(bytes),
        query: query as ParameterTexts, // the parser's own: text, or texts when repeated
        headers,
      }
      done(null, received)
    },
  )
}
