import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { methodNotAllowed, NOTHING_HERE, sendError } from './error-handler.js'

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
  const answer = (request: FastifyRequest, reply: FastifyReply) => {
    const path = request.url.split('?', 1)[0] ?? ''
    const allowed = [...known.values()]
      .filter(({ pattern }) => pattern.test(path))
      .flatMap(({ methods }) => [...methods])
    // A route that takes the method found nothing itself, such as a file that is not there.
    const takesOthers = allowed.length > 0 && !allowed.includes(request.method)
    sendError(request, reply, takesOthers ? methodNotAllowed([...new Set(allowed)].sort().join(', ')) : NOTHING_HERE)
  }
  app.setNotFoundHandler(answer)
  app.addHook('preParsing', (request, reply, payload, done) => {
    const lacksPart = Object.values(request.params ?? {}).includes('') // `/persona/` names no agent
    if (request.is404 || lacksPart)
      answer(request, reply) // before its body is read
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
