import type { FastifyInstance, FastifyRequest, HTTPMethods } from 'fastify'
import { Refused } from '../errors.js'
import { handleError, NOTHING_HERE } from './error-handler.js'

/** Answers a known address with another method with 405 and the allowed methods, and other addresses with 404, before the body is read. */
export function registerNotFound(app: FastifyInstance): void {
  const methods = new Set<HTTPMethods>()
  app.addHook('onRoute', ({ method, url }) => {
    if (url === '*') return // preflights match every address
    for (const one of [method].flat()) methods.add(one)
  })
  const refusalOf = ({ url, method }: FastifyRequest) => {
    const path = url.split('?', 1)[0] as string
    const allowed = [...methods].filter(one => app.findRoute({ method: one, url: path }) !== null)
    if (allowed.length === 0 || allowed.includes(method as HTTPMethods)) return new Refused('NOT_FOUND', NOTHING_HERE)
    const allow = allowed.sort().join(', ')
    return new Refused('METHOD_NOT_ALLOWED', `This address supports ${allow}.`, { headers: { allow } })
  }
  app.setNotFoundHandler((request, reply) => handleError(refusalOf(request), request, reply))
  app.addHook('preParsing', (request, _reply, payload, done) => {
    if (request.is404) done(refusalOf(request))
    else done(null, payload)
  })
}
