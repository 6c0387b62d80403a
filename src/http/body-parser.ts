import type { FastifyInstance } from 'fastify'
import { type ParsedBody, parseJsonBody } from '../schema/json-body.js'

/**
 * Bodies are JSON and nothing else; other media types are 415. The parser answers a `ParsedBody` rather than throwing,
 * because a fault of the body is reported together with those of path and query.
 */
export function registerBodyParser(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>(
    /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i,
    { parseAs: 'buffer' },
    (_request: unknown, bytes: Buffer, done: (error: null, body: ParsedBody) => void) =>
      done(null, parseJsonBody(bytes)),
  )
}
