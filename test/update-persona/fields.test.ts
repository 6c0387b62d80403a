import t from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { worldApp } from '../app.js'
import {
  AGENT_FIELD_ROWS,
  AGENT_FIELDS,
  asJson,
  expectedFaults,
  REQUIRED_AGENT_FIELDS,
} from '../fixtures/agent-fields.js'
import { BOB } from '../fixtures/users.js'
import { auditRows, faultsOf, type StoredAgent, storedAgent } from '../updates/stored-state.js'

/** Alice's agent that uses every field. */
const FULL_AGENT_ID = 11
const PATH = `/persona/${FULL_AGENT_ID}`

/** Returns an update of the twelve required fields to their stored values. */
const unchanged = (stored: StoredAgent): Record<string, unknown> =>
  Object.fromEntries(REQUIRED_AGENT_FIELDS.map(name => [name, stored[name]]))

t.test('the fields are those of the interface document, in its order', async t => {
  t.strictSame(Object.keys(AGENT_FIELDS), Object.keys(PersonaUpsertRequest.properties))
})

t.test('200 or 422 for each field: omitted, null, a value, a wrong type, too long, whole and by mask', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const ofBob = world.database.db.updateTable('persona_user').set({ level: 'editor' }).where('user_id', '=', BOB)
  await ofBob.where('persona_id', '=', FULL_AGENT_ID).execute()
  let state = await storedAgent(world, FULL_AGENT_ID)
  const send = (query: string, body: object) => world.call('PATCH', `${PATH}?${query}`, { token, body: asJson(body) })

  /** Sends `same`, an equivalent of the update, as a dry run, and then the update. Requires equal answers, and that only `change` is stored. */
  async function stores(title: string, [query, body]: [string, object], change: object, same = [query, body] as const) {
    const rehearsed = await send(`dry_run=true&${same[0]}`, same[1])
    t.equal(rehearsed.headers.etag, `"persona-${FULL_AGENT_ID}-${state.version}"`, title)
    t.strictSame(await storedAgent(world, FULL_AGENT_ID), state, `${title}: a dry run stores nothing`)
    const answer = await send(query, body)
    t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 500)}`)
    t.equal(rehearsed.body, answer.body, `${title}: the dry run answers like the update`)
    const read = (await world.call('GET', PATH, { token })).body
    t.ok(read.startsWith(answer.body.slice(0, -1)), `${title}: so does the read`)
    const fields = Object.keys(change).filter(name => !isSame(state[name], (change as typeof state)[name]))
    const wanted = { ...state, ...change, version: state.version + (fields.length > 0 ? 1 : 0) }
    state = await storedAgent(world, FULL_AGENT_ID)
    t.strictSame(state, wanted, title)
    const last = (await auditRows(world.database.db, 'persona', FULL_AGENT_ID)).at(-1)
    if (fields.length > 0) t.strictSame(last?.fields, fields, `${title}: the audit row names it alone`)
  }

  async function refuses(title: string, query: string, body: object, field: string, expected: string) {
    const wanted = expectedFaults(field, expected).map(({ loc, type }) => `${loc.join('.')} ${type}`)
    t.strictSame(faultsOf(await send(query, body)), wanted, title)
  }

  for (const [field, row] of AGENT_FIELD_ROWS) {
    const mask = `update_mask=${field}`
    const { [field]: _, ...without } = unchanged(state)
    for (const [sent, stored] of row.accepted) {
      const masked = [mask, { [field]: sent }] as const
      await stores(`${field}: ${shown(sent)}`, ['', { ...without, [field]: sent }], stored, masked)
      const again = await send(...masked)
      t.equal(again.headers.etag, `"persona-${FULL_AGENT_ID}-${state.version}"`, `${field}: again it changes nothing`)
    }
    const now = unchanged(state)
    const { [field]: __, ...omitting } = now
    const refused = [...row.refused, ...(row.dangling ?? [])]
    await Promise.all([
      ...refused.map(([sent, faults]) =>
        refuses(`${field}: ${shown(sent)}`, '', { ...now, [field]: sent }, field, faults),
      ),
      refuses(`${field}: omitted but masked`, mask, {}, field, 'missing'),
    ])
    if (row.required) await refuses(`${field}: omitted`, '', omitting, field, 'missing')
    else await stores(`${field}: omitted`, ['', omitting], {})
    const ofNull = row.null === 'kept' ? {} : row.null
    if (typeof ofNull === 'string') {
      await refuses(`${field}: null`, '', { ...now, [field]: null }, field, ofNull)
      await refuses(`${field}: null in a mask`, mask, { [field]: null }, field, ofNull)
    } else {
      await stores(`${field}: null`, ['', { ...now, [field]: null }], ofNull)
      await stores(`${field}: null in a mask`, [mask, { [field]: null }], row.maskedNull ?? ofNull)
    }
    t.strictSame(await storedAgent(world, FULL_AGENT_ID), state, `${field}: what is refused stores nothing`)
  }
})

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

function shown(value: unknown): string {
  const text = asJson(value)
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`
}
