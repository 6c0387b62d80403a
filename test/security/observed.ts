import type { LightMyRequestResponse } from 'fastify'
import { observedService } from '../http/running.js'
import { listening, type TestService, UNLIMITED, type WithTeardown } from '../test-service.js'
import { type World, worldDatabase } from '../world.js'

/** The service with the recorded organisation. Keeps the service's statements, log lines and answers. */
export interface Observed extends World, TestService {
  log: string[]
  /** The statements of the service in order, without those of the test. */
  statements: string[]
  /** The head and body of every answer to `call`. */
  answers: string[]
  /** Opens a port on the loopback address and returns it. */
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

/** Returns an answer without the parts that always differ: request id, date and remaining quota. */
export function comparable(answer: LightMyRequestResponse): unknown {
  const { 'x-request-id': _, date: __, ratelimit: ____, ...headers } = answer.headers
  const { request_id: ___, ...body } = answer.body === '' ? {} : answer.json()
  return { status: answer.statusCode, headers, body }
}
