import type { LightMyRequestResponse } from 'fastify'
import { observedService } from '../http/running.js'
import { listening, type TestService, UNLIMITED, type WithTeardown } from '../test-service.js'
import { type World, worldDatabase } from '../world.js'

/** The service over the organisation, with everything that leaves it kept: statements, log lines, answers. */
export interface Observed extends World, TestService {
  log: string[]
  /** Texts of the statements sent by the service, in their order; the test's own are not among them. */
  statements: string[]
  /** Head and body of every answer to `call`. */
  answers: string[]
  /** Listens on loopback and answers the port. */
  listen(): Promise<number>
}

export async function observedWorld(
  t: WithTeardown,
  { world: given, ...options }: { secretKeys?: string; world?: World } = {},
): Promise<Observed> {
  const world = given ?? (await worldDatabase(t))
  const answers: string[] = []
  const settings = { ...UNLIMITED, DATABASE_POOL_SIZE: '20' }
  const observed = await observedService(t, world.url, { ...options, settings })
  const { app, service, log, statements, call: send } = observed
  const call: TestService['call'] = async (...request) => {
    const answer = await send(...request)
    answers.push(`${JSON.stringify(answer.headers)}\n${answer.body}`)
    return answer
  }
  return { ...world, app, service, statements, log, answers, call, listen: () => listening(app) }
}

/** An answer without what differs between any two answers: request id, date, what is left of quotas, and the id inside the body. */
export function comparable(answer: LightMyRequestResponse): unknown {
  const { 'x-request-id': _, date: __, ratelimit: ____, ...headers } = answer.headers
  const { request_id: ___, ...body } = answer.body === '' ? {} : answer.json()
  return { status: answer.statusCode, headers, body }
}
