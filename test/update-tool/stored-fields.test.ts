import t from 'tap'
import { worldApp } from '../app.js'
import { auditRows, difference, type Stored, storedTool } from '../updates/stored-state.js'

const TOOL = 16
const PATH = `/admin/tool/custom/${TOOL}`
const DEFINITION = {
  paths: { '/z': { get: { operationId: 'z', summary: 'Z' } }, '/a': { get: { operationId: 'a', summary: 'A' } } },
  openapi: '3.1.0',
  servers: [{ url: 'https://example.com' }],
  info: { title: 'Z' },
}

/** The six fields of a tool; `null` leaves each as it is but for the last. */
const FIELDS: Record<string, { value: unknown; becomes: Stored; ofNull: Stored }> = {
  name: { value: 'renamed', becomes: { name: 'renamed' }, ofNull: {} },
  description: { value: '', becomes: { description: '' }, ofNull: {} },
  definition: { value: DEFINITION, becomes: { definition: JSON.stringify(DEFINITION) }, ofNull: {} },
  custom_headers: { value: [], becomes: { custom_headers: null }, ofNull: {} },
  passthrough_auth: { value: true, becomes: { passthrough_auth: true }, ofNull: {} },
  oauth_config_id: { value: 2, becomes: { oauth_config_id: 2 }, ofNull: { oauth_config_id: null } },
}

t.test('200 each field of a tool is written alone, once, and null means what DECISIONS say', async t => {
  t.equal(Object.keys(FIELDS).length, 6)
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (body: unknown) => call('PUT', PATH, { token: admin, body })
  for (const [field, { value, becomes, ofNull }] of Object.entries(FIELDS)) {
    const before = await storedTool(database.db, TOOL)
    const answer = await send({ [field]: value })
    t.equal(answer.statusCode, 200, `${field}: ${answer.body}`)
    const after = await storedTool(database.db, TOOL)
    t.same(difference(before, after), becomes, field)
    t.same((await auditRows(database.db, 'tool', TOOL)).at(-1)?.fields, [field], `${field} alone is in the audit row`)
    t.equal((await send({ [field]: value })).headers.etag, answer.headers.etag, `${field} again changes nothing`)
    const nothing = await send({ [field]: null })
    t.equal(nothing.statusCode, 200, `${field}: null ${nothing.body}`)
    t.same(difference(after, await storedTool(database.db, TOOL)), ofNull, `${field}: null`)
  }
})

t.test('200 headers keep their secrets by mask, and only what is sent anew is sealed anew', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (body: unknown) => call('PUT', PATH, { token: admin, body })
  const before = await storedTool(database.db, TOOL)
  const read = await send({})
  t.equal(read.statusCode, 200)
  const shown: { key: string; value: string }[] = read.json().custom_headers
  t.match(
    shown.map(header => header.value),
    [/^\*{4}#[0-9a-f]{12}$/, /^\*{4}#[0-9a-f]{12}$/],
  )
  t.equal((await send({ custom_headers: shown })).headers.etag, read.headers.etag, 'the masks alone change nothing')
  const plain = [
    { key: 'Authorization', value: 'Bearer abc' },
    { key: 'X-B', value: '2' },
  ]
  t.equal((await send({ custom_headers: plain })).headers.etag, read.headers.etag, 'nor do the same secrets')
  t.same(difference(before, await storedTool(database.db, TOOL)), {})
  const changed = await send({ custom_headers: [shown[0], { key: 'X-B', value: '3' }] })
  t.equal(changed.statusCode, 200, changed.body)
  const after = await storedTool(database.db, TOOL)
  const [first, second] = [before, after].map(state => state.custom_headers as Record<string, unknown>[])
  t.same(second?.[0], first?.[0], 'the kept one is byte for byte the same')
  t.not(second?.[1]?.ciphertext, first?.[1]?.ciphertext)
  t.same(Object.keys(difference(before, after)), ['custom_headers'])
})
