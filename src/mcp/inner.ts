import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import inject, { type InjectOptions, type Response } from 'light-my-request'
import { clientAddressOf } from '../http/request.js'

/** The requests that the application sends itself. No client can make one: they come from no socket. */
const inner = new WeakSet<object>()

/** Whether a request is part of another one that is in work: it counts against no bound a second time. */
export function isInner(raw: IncomingMessage): boolean {
  return inner.has(raw)
}

/** Headers of the request outside that the one inside has, too. */
const KEPT = ['authorization', 'x-onyx-authorization', 'traceparent'] as const

/** Sends the application a request of the same caller, without a socket: all hooks and checks of the route run. */
export async function askWithin(
  app: FastifyInstance,
  outer: FastifyRequest,
  { headers, ...options }: InjectOptions,
): Promise<Response> {
  const kept = KEPT.flatMap(name => (outer.headers[name] === undefined ? [] : [[name, String(outer.headers[name])]]))
  return await inject(
    (request, response) => {
      inner.add(request)
      app.routing(request, response)
    },
    {
      ...options,
      headers: { ...Object.fromEntries(kept), 'x-request-id': outer.id, ...headers },
      remoteAddress: clientAddressOf(outer),
    },
  )
}
