import fc from 'fast-check'
import t from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { worldApp } from '../app.js'
import { AGENT_FIELDS, DATES } from '../fixtures/agent-fields.js'
import { ALICE } from '../fixtures/users.js'
import { auditRows, repetitions, storedAgent } from '../updates/stored-state.js'
import { type ModelState, type ModelUser, modelUpdate } from './agent-model.js'
import { agentRequest } from './random-requests.js'

const AGENT = 11
const file = (n: number) => `f0000000-0000-4000-8000-00000000000${n}`

/** The owner, an editor by group, and an administrator. */
const USERS: Record<string, ModelUser> = {
  'alice@example.com': { id: ALICE, admin: false, owner: true, fileIds: [file(1), file(2)] },
  'gcurator@example.com': {
    id: 'a0000000-0000-4000-8000-000000000003',
    admin: false,
    owner: false,
    fileIds: [],
  },
  'admin@example.com': {
    id: 'a0000000-0000-4000-8000-000000000001',
    admin: true,
    owner: false,
    fileIds: [file(4)],
  },
}

const pair = fc.tuple(
  fc.constantFrom(...Object.keys(USERS)),
  agentRequest,
  fc.constantFrom(...Object.keys(USERS)),
  agentRequest,
)

t.test('200, 403 or 422 as the model says, and the model’s state, for random pairs of updates', async t => {
  t.same(Object.keys(AGENT_FIELDS), Object.keys(PersonaUpsertRequest.properties))
  const { call, token, database } = await worldApp(t)
  const tokens: Record<string, string> = {}
  for (const email of Object.keys(USERS)) tokens[email] = await token(email)
  const statuses: Record<number, number> = {}

  const update = async (state: ModelState, email: string, { body, mask }: { body: object; mask: string[] | null }) => {
    const user = USERS[email] as ModelUser
    const asStored = { ...body } as Record<string, unknown>
    if (typeof asStored.search_start_date === 'string') asStored.search_start_date = DATES[asStored.search_start_date]
    // The model knows owner, editor and administrator; who lost the group's share or was never given one is left out.
    if (!user.admin && !user.owner && !state.groups.includes('1 editor')) return state
    const expected = modelUpdate(state, user, ALICE, { body: asStored, mask })
    const query = mask === null ? '' : `?update_mask=${mask.join(',')}`
    const answer = await call('PATCH', `/persona/${AGENT}${query}`, { token: tokens[email] as string, body })
    statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1
    if (answer.statusCode !== expected.status) {
      throw new Error(`${answer.statusCode} instead of ${expected.status}: ${answer.body}`)
    }
    return expected.state
  }

  const runs = repetitions({ few: 40, full: 1_000 })
  await fc.assert(
    fc.asyncProperty(pair, async ([firstBy, first, secondBy, second]) => {
      const before = (await storedAgent(database.db, AGENT)) as ModelState
      const rows = (await auditRows(database.db, 'persona', AGENT)).length
      const between = await update(before, firstBy, first)
      const expected = await update(between, secondBy, second)
      const stored = await storedAgent(database.db, AGENT)
      if (!same(stored, expected)) throw new Error(`stored ${canonical(stored)}\nmodel  ${canonical(expected)}`)
      const changes = Number(!same(before, between)) + Number(!same(between, expected))
      const added = (await auditRows(database.db, 'persona', AGENT)).length - rows
      if (added !== changes) throw new Error(`${added} audit rows for ${changes} changes`)
      // Back to a state from which every rule can be reached again.
      await call('PATCH', `/persona/${AGENT}?update_mask=groups,is_default_persona,display_priority`, {
        token: tokens['admin@example.com'] as string,
        body: { groups: [1], is_default_persona: false, display_priority: rows % 2 === 0 ? null : 3 },
      })
      await database.db.updateTable('persona_group').set({ level: 'editor' }).where('persona_id', '=', AGENT).execute()
    }),
    { numRuns: runs },
  )
  t.ok((statuses[200] ?? 0) > runs / 2, JSON.stringify(statuses))
  if (runs >= 60) t.ok(statuses[403] && statuses[422], JSON.stringify(statuses))
  t.comment(`${runs} pairs: ${JSON.stringify(statuses)}`)
})

function same(a: object, b: object): boolean {
  return canonical(a) === canonical(b)
}

/** JSON with sorted keys; numbers as JavaScript reads them. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  )
}
