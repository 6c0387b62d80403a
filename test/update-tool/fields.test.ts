import t from 'tap'
import type { Loc } from '../../src/errors.js'
import { worldApp } from '../app.js'
import { asJson, expectedFaults } from '../fixtures/agent-fields.js'
import { TOOL_FIELD_ROWS, TOOL_FIELDS } from '../fixtures/tool-fields.js'
import { auditRows, storedTool } from '../updates/stored-state.js'

/** The recorded tool that uses every field. */
const FULL = 16

t.test('200 or 422 for each field: omitted, null, a value, a wrong type, over the limit', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const put = (body: object, query = '') =>
    world.call('PUT', `/admin/tool/custom/${FULL}${query}`, { token, body: asJson(body) })

  async function stores(title: string, body: { custom_headers?: unknown }, change: object) {
    const before = await storedTool(world, FULL)
    const rehearsed = await put(body, '?dry_run=true')
    t.strictSame(await storedTool(world, FULL), before, `${title}: a dry run stores nothing`)
    const answer = await put(body)
    t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 500)}`)
    const unmasked = (text: string) => text.replaceAll(/\*{4}#[0-9a-f]{12}/g, 'a mask') // each value gets a new mask
    t.equal(unmasked(rehearsed.body), unmasked(answer.body), `${title}: the dry run answers like the update`)
    const after = await storedTool(world, FULL)
    if (body.custom_headers) {
      const sent = body.custom_headers as { key: string }[] // an accepted list
      const [keys, names] = [sent.map(({ key }) => key), after.headers.map(({ name }) => name)]
      t.strictSame(names, keys, title)
      Object.assign(change, { headers: after.headers })
    }
    const differs = JSON.stringify({ ...before, ...change }) !== JSON.stringify(before)
    t.strictSame(after, { ...before, ...change, version: before.version + (differs ? 1 : 0) }, title)
    t.equal((await world.call('GET', `/tool/${FULL}`, { token })).body, answer.body, `${title}: so does the read`)
    if (differs) {
      const audited = (await auditRows(world.database.db, 'tool', FULL)).at(-1)
      t.strictSame(audited?.fields, Object.keys(body), `${title}: the audit row names it, and nothing else`)
    }
    const { custom_headers } = answer.json()
    const again = await put(body.custom_headers ? { custom_headers } : body)
    t.equal(again.headers.etag, `"tool-${FULL}-${after.version}"`, `${title}: again changes nothing`)
  }

  async function refuses(field: string, sent: unknown, expected: string) {
    const answer = await put({ [field]: sent })
    t.equal(answer.statusCode, 422, `${field}: ${shown(sent)}`)
    const faults: { loc: Loc; type: string }[] = answer.json().detail ?? []
    const places = faults.map(({ loc, type }) => ({ loc, type }))
    t.strictSame(places, expectedFaults(field, expected), `${field}: ${shown(sent)}`)
  }

  await stores('{}', {}, {})
  const nulls = Object.keys(TOOL_FIELDS).filter(name => name !== 'oauth_config_id')
  await stores('every other field null', Object.fromEntries(nulls.map(name => [name, null])), {})
  await put({ custom_headers: [{ key: 'X-B', value: 'v' }] })
  for (const [field, row] of TOOL_FIELD_ROWS) {
    for (const [sent, stored] of row.accepted)
      await stores(`${field}: ${shown(sent)}`, { [field]: sent }, { ...stored })
    const before = await storedTool(world, FULL)
    await Promise.all([...row.refused, ...(row.dangling ?? [])].map(([sent, faults]) => refuses(field, sent, faults)))
    t.strictSame(await storedTool(world, FULL), before, `${field}: what is refused stores nothing`)
    await stores(`${field}: null`, { [field]: null }, row.null === 'kept' ? {} : (row.null as object))
  }
  for (const body of [[], 'text', 1, true, '"x"']) {
    const answer = await world.call('PUT', `/admin/tool/custom/${FULL}`, { token, body: JSON.stringify(body) })
    t.match(answer.json(), { detail: [{ loc: ['body'], type: 'model_attributes_type' }] })
  }
  t.match((await put({ definition: {} })).json(), {
    detail: [{ loc: ['body', 'definition', 'openapi'], type: 'missing' }],
  })
})

function shown(value: unknown): string {
  const text = asJson(value)
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`
}
