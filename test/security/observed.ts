import type { LightMyRequestResponse } from 'fastify'
import { Metrics } from '../../src/http/metrics.js'
import { type Call, inject } from '../app.js'
import { serviceOver } from '../http/running.js'
import { type World, worldDatabase } from '../world.js'

/** The service over the organisation, with everything that leaves it kept: statements, log lines, answers. */
export interface Observed extends World, Pick<Awaited<ReturnType<typeof serviceOver>>, 'app' | 'service' | 'log'> {
  /** Texts of the statements sent by the service, in their order; the test's own are not among them. */
  statements: string[]
  /** Head and body of every answer to `call`. */
  answers: string[]
  call(method: string, url: string, call?: Call): Promise<LightMyRequestResponse>
  /** Listens on loopback and answers the port. */
  listen(): Promise<number>
}

export async function observedWorld(
  t: { teardown(fn: () => Promise<void>): void },
  options: { secretKeys?: string; world?: World } = {},
): Promise<Observed> {
  const world = options.world ?? (await worldDatabase(t))
  const limits = { RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0', HEADER_TRIALS_PER_HOUR: '0' }
  const statements: string[] = []
  const answers: string[] = []
  const { app, service, log } = await serviceOver(
    t,
    world.url,
    { ...limits, DATABASE_POOL_SIZE: '20' },
    { ...options, metrics: new Metrics(), onStatements: texts => void statements.push(...texts) },
  )
  const call = async (method: string, url: string, request: Call = {}) => {
    const answer = await inject(app, method, url, request)
    answers.push(`${JSON.stringify(answer.headers)}\n${answer.body}`)
    return answer
  }
  const listen = async () => {
    await app.listen({ host: '127.0.0.1', port: 0 })
    return (app.server.address() as { port: number }).port // it listens on TCP
  }
  return { ...world, app, service, statements, log, answers, call, listen }
}

/** An answer without what differs between any two answers: request id, date, what is left of quotas, and the id inside the body. */
export function comparable(answer: LightMyRequestResponse): unknown {
  const { 'x-request-id': _, date: __, ratelimit: ____, ...headers } = answer.headers
  const { request_id: ___, ...body } = answer.body === '' ? {} : answer.json()
  return { status: answer.statusCode, headers, body }
}
