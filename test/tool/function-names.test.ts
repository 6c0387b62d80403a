import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'

const VALIDATE = '/admin/tool/custom/validate'

/** A definition with one function of this name. */
const named = (operationId: string) => {
  const get = { operationId, summary: 'Reads it', responses: { 200: { description: 'ok' } } }
  return { ...DEFINITION, paths: { '/it': { get } } }
}

t.test('a Warning names two tools of one agent whose functions have one name, wherever they meet', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const ask = async (method: string, url: string, body: object, as = admin) => {
    const { statusCode, headers, json } = await call(method, url, { token: as, body })
    t.ok(statusCode < 300, `${method} ${url} ${statusCode < 300 || JSON.stringify(json())}`)
    return { status: statusCode, warning: String(headers.warning ?? ''), body: json() }
  }
  const make = async (name: string, operationId: string) => {
    const body = { name, description: '', passthrough_auth: false, definition: named(operationId) }
    return Number((await ask('POST', '/admin/tool/custom', body)).body.id)
  }
  const [one, other] = [await make('one', 'read_it'), await make('other', 'read it')]
  const wanted = new RegExp(`tools ${one} \\(one\\) and ${other} \\(other\\) both have a function read_it:`)
  const attach = (ids: number[]) => ask('PATCH', '/persona/1?update_mask=tool_ids', { tool_ids: ids })
  const alone = await attach([one])
  t.notMatch(alone.warning, /both have/)
  const both = await attach([one, other])
  t.equal(both.status, 200)
  t.match(both.warning, wanted, 'attaching')
  await attach([one])
  const [, { version }] = (await call('GET', '/persona/1/history', { token: admin })).json()
  const restored = await ask('POST', '/persona/1/restore', { version })
  t.match(restored.warning, wanted, 'restoring')

  // A definition that this process has not checked, with escapes that jsonb refuses in another one, and in the last a number.
  for (const [text, isFound] of [
    [JSON.stringify(named('read_it')).replace('Reads it', 'Reads this'), true],
    [JSON.stringify(named('read_it')).replace('Reads it', 'Reads \\u0000'), false],
    [JSON.stringify(named('read_it')).replace('{', '{"x-size":1e200000,'), false],
  ] as const) {
    const hash = createHash('sha256').update(text).digest()
    const values = sql`(${hash}, ${text}::json, 1)`
    await sql`insert into tool_definition (hash, content, size_bytes) values ${values}`.execute(database.db)
    await sql`update tool set definition_hash = ${hash} where id = ${other}`.execute(database.db)
    await attach([one])
    const unchecked = await attach([one, other])
    t.equal(wanted.test(unchecked.warning), isFound, text)
  }

  const put = (operationId: string, as = admin) =>
    ask('PUT', `/admin/tool/custom/${other}`, { definition: named(operationId) }, as)
  t.notMatch((await put('read_other')).warning, /both have/)
  const back = await put('read_it')
  t.match(back.warning, new RegExp(`tools ${other} \\(other\\) and ${one} \\(one\\) both have a function read_it:`))
  t.match((await ask('POST', `${VALIDATE}?tool_id=${other}`, { definition: named('read_it') })).warning, /both have/)
  t.notMatch((await ask('POST', `${VALIDATE}?tool_id=${other}`, { definition: named('free') })).warning, /both have/)
  t.notMatch((await ask('POST', VALIDATE, { definition: named('read_it') })).warning, /both have/)
})
