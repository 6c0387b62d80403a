import { randomUUID } from 'node:crypto'
import type { Test } from 'tap'
import { worldApp } from '../app.js'
import { auditHolds } from '../world.js'

/** The body of an agent as Onyx's clients send it, with the seven required fields. */
export const SEVEN = {
  ...{ name: 'Support', description: '', document_set_ids: [], tool_ids: [] },
  ...{ system_prompt: 'Be brief.', task_prompt: '', datetime_aware: false },
}

/** The organisation, three callers, and helpers for requests below `/api`. Verifies the audit trail after the test. */
export async function todayWorld(t: Test) {
  const world = await worldApp(t)
  const { call, token, database } = world
  auditHolds(t, database)
  const [admin, alice] = [await token('admin@example.com'), await token('alice@example.com')]
  const create = async (path: string, body: object, by: string): Promise<number> => {
    const answer = await call('POST', `/api${path}`, { token: by, body })
    if (answer.statusCode !== 201) throw new Error(answer.body)
    return answer.json().id
  }
  return {
    ...world,
    ...{ admin, alice, bob: await token('bob@example.com'), create },
    get: async (url: string, by = admin) => (await call('GET', url, { token: by })).json(),
    patch: (url: string, body: unknown, by = admin, headers = {}) =>
      call('PATCH', `/api${url}`, { token: by, body, headers }),
    /** Creates an agent and returns its id. */
    made: (fields: object = {}, by = alice) =>
      create('/persona', { ...SEVEN, name: `Agent ${randomUUID()}`, ...fields }, by),
  }
}
