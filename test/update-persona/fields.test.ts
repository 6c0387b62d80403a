import t from 'tap'
import type { Loc } from '../../src/errors.js'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { worldApp } from '../app.js'
import { AGENT_FIELD_ROWS, AGENT_FIELDS, expectedFaults, type FieldFixture, isJson } from '../fixtures/agent-fields.js'
import { FULL_AGENT_ID, makeBobEditor, readAgent, storedAgent, unchanged } from './stored-agent.js'

t.test('the fields are those of the interface document, in its order', async t => {
  t.strictSame(Object.keys(AGENT_FIELDS), Object.keys(PersonaUpsertRequest.properties))
})

t.test(
  '200 or 422 for each field as the decisions say: omitted, null, a value, a wrong type, over the limit',
  async t => {
    const world = await worldApp(t)
    const token = await world.token('admin@example.com')
    await makeBobEditor(world)

    /** Sends one update as a dry run and for real: both answer the same; what is stored then differs by `change`. */
    async function stores(title: string, query: string, body: object, change: object) {
      const before = await storedAgent(world, FULL_AGENT_ID)
      const rehearsed = await world.call('PATCH', `/persona/${FULL_AGENT_ID}?dry_run=true${query}`, { token, body })
      t.strictSame(await storedAgent(world, FULL_AGENT_ID), before, `${title}: a dry run stores nothing`)
      const answer = await world.call('PATCH', `/persona/${FULL_AGENT_ID}?${query}`, { token, body })
      t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 500)}`)
      t.equal(rehearsed.body, answer.body, `${title}: the dry run answers like the update`)
      const after = await storedAgent(world, FULL_AGENT_ID)
      const differs = JSON.stringify({ ...before, ...change }) !== JSON.stringify(before)
      t.strictSame(after, { ...before, ...change, version: before.version + (differs ? 1 : 0) }, title)
      t.strictSame(
        await readAgent(world, token, FULL_AGENT_ID),
        answer.json(),
        `${title}: the read answers like the update`,
      )
    }

    async function changesNothing(title: string, query: string, body: object) {
      const before = await storedAgent(world, FULL_AGENT_ID)
      const answer = await world.call('PATCH', `/persona/${FULL_AGENT_ID}?${query}`, { token, body })
      t.equal(answer.headers.etag, `"persona-${FULL_AGENT_ID}-${before.version}"`, title)
    }

    async function refuses(title: string, query: string, body: object, field: string, expected: string) {
      const before = await storedAgent(world, FULL_AGENT_ID)
      const answer = await world.call('PATCH', `/persona/${FULL_AGENT_ID}?${query}`, { token, body })
      t.equal(answer.statusCode, 422, title)
      const faults: { loc: Loc; type: string }[] = answer.json().detail ?? []
      t.strictSame(
        faults.map(fault => ({ loc: fault.loc, type: fault.type })),
        expectedFaults(field, expected),
        title,
      )
      t.strictSame(await storedAgent(world, FULL_AGENT_ID), before, `${title}: nothing is stored`)
    }

    for (const [field, row] of AGENT_FIELD_ROWS) {
      const base = unchanged(await storedAgent(world, FULL_AGENT_ID))
      const { [field]: _, ...without } = base
      const mask = `&update_mask=${field}`
      for (const [sent, stored] of row.accepted) {
        await stores(`${field}: ${shown(sent)}`, '', { ...without, [field]: sent }, stored)
        await changesNothing(`${field}: ${shown(sent)} again, by a mask`, mask, { [field]: sent })
      }
      const now = unchanged(await storedAgent(world, FULL_AGENT_ID))
      for (const [sent, faults] of [...row.refused, ...(row.dangling ?? [])].filter(isJson)) {
        await refuses(`${field}: ${shown(sent)}`, '', { ...now, [field]: sent }, field, faults)
      }
      const { [field]: __, ...omitting } = now
      if (row.required) await refuses(`${field}: omitted`, '', omitting, field, 'missing')
      else await stores(`${field}: omitted`, '', omitting, {})
      await refuses(`${field}: omitted but masked`, mask, {}, field, 'missing')
      await nullCases(field, row, now)
    }

    async function nullCases(field: string, row: FieldFixture, now: object) {
      const mask = `&update_mask=${field}`
      if (typeof row.null === 'string' && row.null !== 'kept') {
        await refuses(`${field}: null`, '', { ...now, [field]: null }, field, row.null)
        await refuses(`${field}: null in a mask`, mask, { [field]: null }, field, row.null)
        return
      }
      const cleared = typeof row.null === 'string' ? {} : row.null
      await stores(`${field}: null`, '', { ...now, [field]: null }, cleared)
      await stores(`${field}: null in a mask`, mask, { [field]: null }, row.maskedNull ?? cleared)
    }
  },
)

function shown(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`
}
