import type { FastifyInstance, FastifyRequest } from 'fastify'
import { BrokenRequest } from '../errors.js'
import { lacksPart } from './body.js'
import { handleError, NOTHING_HERE } from './error-handler.js'

/**
 * A known address asked with another method answers 405 and what it allows; everything else answers 404.
 */
export function registerNotFound(app: FastifyInstance): void {
  const known = new Map<string, { pattern: RegExp; methods: Set<string> }>()
  app.addHook('onRoute', ({ url, method }) => {
    if (url === '*') return // preflights: every address and none
    const entry = known.get(url) ?? { pattern: patternOf(url), methods: new Set<string>() }
    for (const one of [method].flat()) entry.methods.add(one)
    known.set(url, entry)
  })
  const refusalOf = ({ url, method }: FastifyRequest) => {
    const path = url.split('?', 1)[0] ?? ''
    const allowed = [...known.values()].flatMap(({ pattern, methods }) => (pattern.test(path) ? [...methods] : []))
    // A route that takes the method found nothing itself, such as a file that is not there.
    if (allowed.length === 0 || allowed.includes(method)) return new BrokenRequest('NOT_FOUND', NOTHING_HERE)
    const allow = [...new Set(allowed)].sort().join(', ')
    return new BrokenRequest('METHOD_NOT_ALLOWED', `This address takes ${allow}.`, { allow })
  }
  app.setNotFoundHandler((request, reply) => handleError(refusalOf(request), request, reply))
  app.addHook('preParsing', (request, _reply, payload, done) => {
    // Before its body is read.
    if (request.is404 || lacksPart(request.params)) done(refusalOf(request))
    else done(null, payload)
  })
}

/** `/persona/:persona_id` as a regular expression over a path; no two quantifiers can compete for one character. */
function patternOf(url: string): RegExp {
  const parts = url.split('/').map(part => {
    if (part.startsWith(':')) return '[^/]+'
    return part === '*' ? '.*' : part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)
  })
  return new RegExp(`^${parts.join('/')}$`)
}
