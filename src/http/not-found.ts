import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Refused } from '../errors.js'
import { nearestName } from '../validation/nearest-name.js'
import { namesNothing } from './body.js'
import { handleError, NOTHING_HERE } from './error-handler.js'
import { pathOf } from './request.js'

/** A path as its parts, where a part with a colon matches any value, and its methods. */
interface Address {
  parts: readonly string[]
  methods: Set<string>
}

/** Answers a known address with another method with 405 and the allowed methods. Other addresses get 404 with the nearest known one. */
export function registerNotFound(app: FastifyInstance): void {
  const known = new Map<string, Address>()
  app.addHook('onRoute', ({ url, method }) => {
    if (url === '*') return // preflights match every address
    const entry = known.get(url) ?? { parts: url.split('/').slice(1), methods: new Set<string>() }
    for (const one of [method].flat()) entry.methods.add(one)
    known.set(url, entry)
  })
  const refusalOf = (request: FastifyRequest) => {
    const addresses = [...known.values()]
    const parts = pathOf(request).split('/').slice(1)
    const allowed = addresses.flatMap(address => (isAt(address, parts) ? [...address.methods] : []))
    if (allowed.length > 0 && !allowed.includes(request.method)) {
      const allow = [...new Set(allowed)].sort().join(', ')
      return new Refused('METHOD_NOT_ALLOWED', `This address supports ${allow}.`, { headers: { allow } })
    }
    const near = nearestAddress(addresses, parts)
    return new Refused('NOT_FOUND', near === undefined ? NOTHING_HERE : `${NOTHING_HERE} Did you mean ${near}?`)
  }
  app.setNotFoundHandler((request, reply) => handleError(refusalOf(request), request, reply))
  app.addHook('preParsing', (request, _reply, payload, done) => {
    // refused before the body is read
    if (request.is404 || namesNothing(request)) done(refusalOf(request))
    else done(null, payload)
  })
}

function isAt({ parts }: Address, asked: readonly string[]): boolean {
  return (
    parts.length === asked.length &&
    parts.every((part, i) => (part.startsWith(':') ? asked[i] !== '' : part === asked[i]))
  )
}

/** The most parts of an address that are compared. */
const PARTS_MAX = 8

/** The address that a path probably means, without extra prefixes such as `/api`, extra slashes and misspelt parts; undefined if none is near. */
function nearestAddress(addresses: readonly Address[], asked: readonly string[]): string | undefined {
  const parts = asked.filter(part => part !== '')
  if (parts.length > PARTS_MAX) return undefined
  for (const { parts: wanted } of addresses) {
    const given = parts.slice(-wanted.length)
    if (given.length !== wanted.length) continue
    const found = wanted.map((part, i) => nearestPart(part, given[i] ?? ''))
    if (!found.includes(undefined)) return `/${found.join('/')}`
  }
  return undefined
}

function nearestPart(wanted: string, given: string): string | undefined {
  if (wanted.startsWith(':')) return /^\d{1,10}$/.test(given) ? given : undefined
  return nearestName(given, [wanted])
}
