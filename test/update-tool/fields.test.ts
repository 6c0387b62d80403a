import t from 'tap'
import type { Loc } from '../../src/errors.js'
import { worldApp } from '../app.js'
import { expectedFaults, isJson } from '../fixtures/agent-fields.js'
import { TOOL_FIELD_ROWS, TOOL_FIELDS } from '../fixtures/tool-fields.js'
import { auditRows } from '../updates/stored-state.js'
import { readTool, storedTool } from './stored-tool.js'

/** The tool of the recorded cases that has everything. */
const FULL = 16

t.test('the fields are those of the interface document, in its order', async t => {
  const { CustomToolUpdate } = await import('../../src/tool/schema.js')
  t.strictSame(Object.keys(TOOL_FIELDS), Object.keys(CustomToolUpdate.properties))
})

t.test(
  '200 or 422 for each field as the decisions say: omitted, null, a value, a wrong type, over the limit',
  async t => {
    const world = await worldApp(t)
    const token = await world.token('admin@example.com')
    const put = async (body: object, query = '') => {
      return await world.call('PUT', `/admin/tool/custom/${FULL}${query}`, { token, body })
    }

    async function stores(title: string, body: { custom_headers?: unknown }, change: object) {
      const before = await storedTool(world, FULL)
      const rehearsed = await put(body, '?dry_run=true')
      t.strictSame(await storedTool(world, FULL), before, `${title}: a dry run stores nothing`)
      const answer = await put(body)
      t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 500)}`)
      t.equal(rehearsed.body, answer.body, `${title}: the dry run answers like the update`)
      const after = await storedTool(world, FULL)
      if (body.custom_headers) {
        const sent = body.custom_headers as { key: string }[] // an accepted list
        const names = (list: { name: string }[]) => list.map(({ name }) => name)
        t.strictSame(
          names(after.headers),
          sent.map(({ key }) => key),
          title,
        )
        Object.assign(change, { headers: after.headers })
      }
      const differs = JSON.stringify({ ...before, ...change }) !== JSON.stringify(before)
      t.strictSame(after, { ...before, ...change, version: before.version + (differs ? 1 : 0) }, title)
      t.strictSame(await readTool(world, token, FULL), answer.json(), `${title}: the read answers like the update`)
      if (differs) {
        const audited = (await auditRows(world.database.db, 'tool', FULL)).at(-1)
        t.strictSame(audited?.fields, Object.keys(body), `${title}: the audit row names it, and nothing else`)
      }
      const again = await put(body)
      t.equal(again.headers.etag, `"tool-${FULL}-${after.version}"`, `${title}: again changes nothing`)
    }

    async function refuses(title: string, field: string, sent: unknown, expected: string) {
      const before = await storedTool(world, FULL)
      const answer = await put({ [field]: sent })
      t.equal(answer.statusCode, 422, title)
      const faults: { loc: Loc; type: string }[] = answer.json().detail ?? []
      t.strictSame(
        faults.map(fault => ({ loc: fault.loc, type: fault.type })),
        expectedFaults(field, expected),
        title,
      )
      t.strictSame(await storedTool(world, FULL), before, `${title}: nothing is stored`)
    }

    await stores('{}', {}, {})
    await stores('every field null but oauth_config_id', nulls(['oauth_config_id']), {})
    await put({ custom_headers: [{ key: 'X-B', value: 'v' }] })
    for (const [field, row] of TOOL_FIELD_ROWS) {
      for (const [sent, stored] of row.accepted)
        await stores(`${field}: ${shown(sent)}`, { [field]: sent }, { ...stored })
      for (const [sent, faults] of [...row.refused, ...(row.dangling ?? [])].filter(isJson)) {
        await refuses(`${field}: ${shown(sent)}`, field, sent, faults)
      }
      await stores(`${field}: omitted`, {}, {})
      await stores(`${field}: null`, { [field]: null }, row.null === 'kept' ? {} : (row.null as object))
    }
    for (const body of [[], 'text', 1, true, '"x"']) {
      const answer = await world.call('PUT', `/admin/tool/custom/${FULL}`, { token, body: JSON.stringify(body) })
      t.match(answer.json(), { detail: [{ loc: ['body'], type: 'model_attributes_type' }] })
    }
  },
)

t.test('422: an empty definition names all that it lacks', async t => {
  const { call, token } = await worldApp(t)
  const answer = await call('PUT', '/admin/tool/custom/10', {
    token: await token('admin@example.com'),
    body: { definition: {} },
  })
  t.equal(answer.statusCode, 422)
  t.match(answer.json().detail[0], { loc: ['body', 'definition', 'openapi'], type: 'missing' })
})

function nulls(except: string[]): object {
  return Object.fromEntries(
    Object.keys(TOOL_FIELDS)
      .filter(name => !except.includes(name))
      .map(name => [name, null]),
  )
}

function shown(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`
}
