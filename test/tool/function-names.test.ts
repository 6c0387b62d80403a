import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'

const VALIDATE = '/admin/tool/custom/validate'

/** Returns a definition with one function, which is named `operationId`. */
const named = (operationId: string) => {
  const get = { operationId, summary: 'Reads it', responses: { 200: { description: 'ok' } } }
  return { ...DEFINITION, paths: { '/it': { get } } }
}

t.test('a Warning names two tools of one agent whose functions have one name, wherever they meet', async t => {
  const { call, database, admin } = await worldApp(t)
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

  // An omitted operation becomes no function, whichever process checked the definition.
  const content = { 'multipart/form-data': { schema: { type: 'object', properties: { file: { type: 'string' } } } } }
  const upload = { operationId: 'read_it', summary: 'Uploads it', requestBody: { required: true, content } }
  const passing = { ...named('read_other'), paths: { ...named('read_other').paths, '/up': { post: upload } } }
  const stored = await ask('PUT', `/admin/tool/custom/${other}`, { definition: passing })
  t.notMatch(stored.warning, /both have/)
  const { rows } = await sql`
    select function_names from tool_definition d join tool t on t.definition_hash = d.hash
    where t.id = ${other}`.execute(database.db)
  t.same(rows, [{ function_names: ['read_other'] }])
  await attach([one])
  t.notMatch((await attach([one, other])).warning, /both have/)

  const put = (operationId: string, as = admin) =>
    ask('PUT', `/admin/tool/custom/${other}`, { definition: named(operationId) }, as)
  t.notMatch((await put('read_other')).warning, /both have/)
  const back = await put('read_it')
  t.match(back.warning, new RegExp(`tools ${other} \\(other\\) and ${one} \\(one\\) both have a function read_it:`))
  t.match((await ask('POST', `${VALIDATE}?tool_id=${other}`, { definition: named('read_it') })).warning, /both have/)
  t.notMatch((await ask('POST', `${VALIDATE}?tool_id=${other}`, { definition: named('free') })).warning, /both have/)
  t.notMatch((await ask('POST', VALIDATE, { definition: named('read_it') })).warning, /both have/)
})

t.test('also where an agent has 150 tools', async t => {
  const { call, database, admin } = await worldApp(t)
  const { rows } = await sql<{ id: number }>`
    with d as (
      insert into tool_definition (hash, content, size_bytes, function_names)
      select sha256(convert_to('names ' || n, 'UTF8')), 'null', 4, array['f' || least(n, 149)] from generate_series(1, 150) n
      returning hash, function_names)
    insert into tool (name, definition_hash) select function_names[1], hash from d returning id`.execute(database.db)
  const body = { tool_ids: rows.map(({ id }) => id) }
  const attached = await call('PATCH', '/persona/1?update_mask=tool_ids', { token: admin, body })
  t.match(attached.headers.warning, /tools \d+ \(f149\) and \d+ \(f149\) both have a function f149:/)
  const put = await call('PUT', `/admin/tool/custom/${rows[0]?.id}`, {
    token: admin,
    body: { definition: named('f140') },
  })
  t.match(put.headers.warning, /tools \d+ \(f1\) and \d+ \(f140\) both have a function f140:/)
})
