import { parse } from 'fast-querystring'
import type { FastifyInstance, FastifyRequest, RawRequestDefaultExpression } from 'fastify'
import { AddressTooLong } from '../errors.js'

/**
 * The longest address of a request, path and query together. The longest that an operation takes is a name of 255 characters of four
 * bytes each, all written with percent signs: 3,060 and its path.
 */
export const ADDRESS_LENGTH_MAX = 4_096

/**
 * What the router is given: the path alone, and of one that is too long nothing. It would parse the query before any hook is called, in
 * nobody's turn: 15,000 characters take up to 0.6 ms. For Fastify's `rewriteUrl`.
 */
export function routedPath({ url = '/' }: RawRequestDefaultExpression): string {
  const length = lengthOfPath(url)
  return length > ADDRESS_LENGTH_MAX ? '/' : url.slice(0, length)
}

/** Why a request is refused whose address is too long; undefined for every other. */
export function addressFault({ originalUrl: { length } }: FastifyRequest): AddressTooLong | undefined {
  return length > ADDRESS_LENGTH_MAX ? new AddressTooLong(length, ADDRESS_LENGTH_MAX) : undefined
}

/** Refuses addresses that are too long. */
export function registerAddressCheck(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => done(addressFault(request)))
}

/** Parses the query of an operation, as the router would. Register behind authentication: who has no token needs none of it. */
export function registerQuery(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const { originalUrl, isOperation } = request
    const text = originalUrl.slice(lengthOfPath(originalUrl) + 1)
    if (isOperation && text !== '') request.query = parse(text)
    done()
  })
}

/** Whether a request asks for a dry run; its query may not be parsed yet. */
export function asksForDryRun({ originalUrl }: FastifyRequest): boolean {
  return parse(originalUrl.slice(lengthOfPath(originalUrl) + 1)).dry_run === 'true'
}

/** The router ends the path where one of these begins; at the first character none does. */
function lengthOfPath(url: string): number {
  const query = url.indexOf('?', 1)
  const path = query < 0 ? url.length : query
  const fragment = url.lastIndexOf('#', path)
  return fragment < 1 ? path : url.indexOf('#', 1)
}
