import { sql } from 'kysely'
import type { Test } from 'tap'
import { pruneHistory } from '../../src/updates/prune.js'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { BOB } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditHolds } from '../world.js'

type Headers = Record<string, string>

/** The organisation, three callers, and helpers for tests of records' earlier versions. Verifies the audit trail after the test. */
export async function historyWorld(t: Test) {
  const world = await worldApp(t)
  const { call, database } = world
  const { db } = database
  const [alice, bob, admin] = [
    await world.token('alice@example.com'),
    await world.token('bob@example.com'),
    await world.token('admin@example.com'),
  ]
  auditHolds(t, database)
  const sent = async (method: string, url: string, body: object | string | undefined, token: string) => {
    const answer = await call(method, url, { token, ...(body && { body }) })
    if (answer.statusCode >= 300) throw new Error(answer.body)
    return answer
  }
  const agent = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] }
  const tool = { name: 'x', definition: DEFINITION, passthrough_auth: false }
  return {
    ...world,
    ...{ db, alice, bob, admin, sent },
    get: (url: string, token = admin, headers: Headers = {}) => call('GET', url, { token, headers }),
    patch: (id: number, body: object, token = alice) =>
      sent('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, body, token),
    put: (id: number, body: object | string) => sent('PUT', `/admin/tool/custom/${id}`, body, admin),
    agentOf: async (fields: object = {}, token = alice): Promise<number> =>
      (await sent('POST', '/persona', { ...agent, ...fields }, token)).json().id,
    toolOf: async (fields: object = {}): Promise<number> =>
      (await sent('POST', '/admin/tool/custom', { ...tool, ...fields }, admin)).json().id,
    remove: (path: string, token = alice) => sent('DELETE', path, undefined, token),
    /** Restores an earlier version. `path` is the address without `/restore`. */
    restore: (path: string, version: unknown, token = alice, headers: Headers = {}, query = '') =>
      call('POST', `${path}/restore${query}`, { token, body: { version }, headers }),
    keepVersions: (versionsMax: number) => pruneHistory(db, { auditRetentionDays: 400, versionsMax }),
    makeBobEditor: (id: number) =>
      sql`update persona_user set level = 'editor' where persona_id = ${id} and user_id = ${BOB}`.execute(db),
  }
}
