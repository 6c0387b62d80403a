import t from 'tap'
import { worldApp } from '../app.js'
import { auditRows, faultsOf, storedAgent, versionOf } from './stored-state.js'

const READ = '/persona/1?update_mask=&dry_run=true'

t.test('If-Match on an agent', async t => {
  const { call, database, alice, admin } = await worldApp(t)
  const edit = (body: object, ifMatch?: string, token = alice) => {
    const headers = ifMatch === undefined ? {} : { 'if-match': ifMatch }
    return call('PATCH', `/persona/1?update_mask=${Object.keys(body)}`, { token, body, headers })
  }
  const rename = (name: string, ifMatch?: string) => edit({ name }, ifMatch)
  const current = async () => String((await call('PATCH', READ, { token: alice, body: {} })).headers.etag)

  t.test('200 the current tag, `*`, and a list that holds the current tag', async t => {
    const tag = await current()
    t.match(tag, /^"persona-1-[0-9]+"$/)
    const first = await rename('one', tag)
    t.equal(first.statusCode, 200)
    t.equal(first.headers.etag, `"persona-1-${Number(/-(\d+)"$/.exec(tag)?.[1]) + 1}"`)
    for (const text of ['*', ' * ', '"x", W/"weak,comma" , <tag>,', '"a,b",\t<tag>', ',, <tag> ,,'])
      t.equal((await rename(text, text.replace('<tag>', await current()))).statusCode, 200, text)
  })
  for (const [what, tag] of [
    ['a weak tag, though it is the current one', (now: string) => `W/${now}`],
    ["another resource's tag of the same version", (now: string) => now.replace('persona-1', 'persona-2')],
    ["another kind's tag", (now: string) => now.replace('persona', 'tool')],
    ['a tag of another form', () => '"abc"'],
    ['the empty tag', () => '""'],
    ['a version to come', (now: string) => now.replace(/-(\d+)"$/, '-99999"')],
    ['a version with a leading zero', (now: string) => now.replace(/-(\d+)"$/, '-0$1"')],
  ] as const) {
    t.test(`412 ${what}`, async t => {
      const now = await current()
      const answer = await rename('refused', tag(now))
      t.equal(answer.statusCode, 412, answer.body)
      const named = { reason: 'unknown_tag', current_etag: now, changed: null }
      const detail = /^If-Match contains only weak tags \(W\/\) or tags that this agent or tool never had/
      t.match(answer.json(), { error_code: 'PRECONDITION_FAILED', ...named, detail })
      const stored = (await call('PATCH', READ, { token: alice, body: {} })).json().name
      const unchanged = await rename(stored, tag(now))
      t.match(unchanged.json(), { reason: 'unknown_tag' }, 'also where nothing would change: no answer to it was lost')
      t.equal(await current(), now)
    })
  }
  t.test('422 malformed', async t => {
    const malformed = [
      'persona-1-1',
      '"persona-1-1',
      "'persona-1-1'",
      '"a" "b"',
      '"a b"',
      '*, "x"',
      '**',
      'W/x',
      ',',
      '',
    ]
    for (const tag of malformed)
      t.match(faultsOf(await rename('refused', tag)), [/^header\.if-match /], JSON.stringify(tag))
    t.not((await storedAgent({ database }, 1)).name, 'refused')
  })
  t.test('200 stale, but what it asks for is stored already: the current tag, and no further version', async t => {
    const before = await current()
    const done = await rename('wanted', before)
    const rows = await auditRows(database.db, 'persona', 1)
    for (const tag of [before, '"persona-1-1"', `"persona-2-1", ${before}`]) {
      const again = await rename('wanted', tag)
      t.match(again, { statusCode: 200, headers: { etag: done.headers.etag } }, tag)
      t.equal(again.json().name, 'wanted')
    }
    t.equal((await auditRows(database.db, 'persona', 1)).length, rows.length)
  })
  t.test('412 names each field that changed since the tag, once, by whom and when last', async t => {
    const stale = await current()
    const since = Number(/-(\d+)"$/.exec(stale)?.[1])
    await edit({ task_prompt: 'a', name: 'first' })
    await edit({ name: 'second' }, undefined, admin)
    await edit({ label_ids: [2] }, undefined, admin)
    await edit({ task_prompt: 'b' }, undefined, admin)
    await edit({ task_prompt: 'c' })
    const answer = await rename('third', stale)
    t.match([answer.statusCode, answer.json()], [412, { reason: 'changed', current_etag: await current() }])
    const rows = await auditRows(database.db, 'persona', 1)
    const atOf = (version: number) => rows.find(row => row.version_after === version)?.at
    const changed: { field: string; by: string; at: string }[] = answer.json().changed
    changed.sort((a, b) => (a.field < b.field ? -1 : 1))
    t.same(changed, [
      { field: 'label_ids', by: 'admin@example.com', at: atOf(since + 3) },
      { field: 'name', by: 'admin@example.com', at: atOf(since + 2) },
      { field: 'task_prompt', by: 'alice@example.com', at: atOf(since + 5) },
    ])
    t.notOk('etag' in answer.headers, 'the tag of the refused request is in the body')
    for (const others of [`"persona-1-${since}", "zzz"`, `"persona-1-${since + 1000}"`]) {
      const refused = await rename('third', `"persona-1-${since + 4}", ${others}`)
      t.match(refused.json().changed, [{ field: 'task_prompt' }], others)
      t.equal(refused.json().changed.length, 1)
    }
  })
  t.test('412 beyond what is kept of the audit trail `changed` is null', async t => {
    const stale = await current()
    const since = Number(/-(\d+)"$/.exec(stale)?.[1])
    await rename('kept 1')
    await rename('kept 2')
    const own = database.db.deleteFrom('audit').where('resource_kind', '=', 'persona').where('resource_id', '=', 1)
    await own.where('version_after', '<=', since + 1).execute()
    t.match((await rename('x', stale)).json(), { reason: 'changed', changed: null })
    t.equal((await rename('x', `"persona-1-${since + 1}"`)).json().changed.length, 1)
  })
})

t.test('If-Match on a tool', async t => {
  const { call, admin } = await worldApp(t)
  const put = (body: unknown, tag?: string) =>
    call('PUT', '/admin/tool/custom/10', { token: admin, body, headers: tag === undefined ? {} : { 'if-match': tag } })
  const read = await put({})
  const stale = String(read.headers.etag)
  const version = versionOf(read)
  t.equal(stale, `"tool-10-${version}"`)
  const secret = { custom_headers: [{ key: 'X-Key', value: 's3cret' }] }
  const done = await put(secret, stale)
  t.equal(done.statusCode, 200)
  const { custom_headers } = done.json()
  t.equal((await put({ custom_headers }, stale)).headers.etag, done.headers.etag, '200 stale, but stored already')
  t.equal((await put(secret, stale)).statusCode, 412, 'clear text is always a change')
  const failed = await put({ description: 'x' }, stale)
  const changed = [{ field: 'custom_headers', by: 'admin@example.com', at: /^\d{4}-.*Z$/ }]
  t.match([failed.statusCode, failed.json()], [412, { current_etag: `"tool-10-${version + 1}"`, changed }])
  t.notMatch(failed.body, /s3cret/)
  t.equal((await put({ description: 'x' }, stale.replace('tool', 'persona'))).json().changed, null)
  t.equal((await put({ description: 'x' }, '*')).statusCode, 200)
  t.equal((await put({ description: 'y' }, 'tool-10-1')).statusCode, 422)
  // An update with an outdated tag and masks from the outdated version gets 412, not 422.
  const base = await put({ name: 'base', custom_headers: [{ key: 'X-Key', value: 'first' }] })
  const mine = { name: 'with masks', custom_headers: base.json().custom_headers }
  t.equal((await put({ custom_headers: [{ key: 'X-Key', value: 'second' }] })).statusCode, 200)
  const late = await put(mine, String(base.headers.etag))
  t.match(late.json(), { error_code: 'PRECONDITION_FAILED', changed: [{ field: 'custom_headers' }] })
  const fresh = await put(mine)
  t.match(fresh.json(), { detail: [{ type: 'mask_mismatch' }] }, 'without a tag it is a mask of nothing')
})

t.test('412 if If-None-Match names the stored state or is *, in any form; 200 if it names another', async t => {
  const { call, database, admin } = await worldApp(t)
  for (const [method, url, read, kind] of [
    ['PATCH', '/persona/1?update_mask=description', '/persona/1', 'persona'],
    ['PUT', '/admin/tool/custom/10?', '/tool/10', 'tool'],
  ] as const) {
    const id = kind === 'persona' ? 1 : 10
    const send = (description: string, headers: Record<string, string>, query = '') =>
      call(method, url + query, { token: admin, body: { description }, headers })
    await send('stored', {})
    const { etag: whole } = (await call('GET', read, { token: admin })).headers
    const tag = String(whole).replace(/\.[0-9a-f]+"$/, '"')
    const rows = (await auditRows(database.db, kind, id)).length
    const excluded = ['*', tag, String(whole), `"x", W/${tag}`]
    for (const noneMatch of excluded) {
      for (const [description, query, more] of [
        ['refused', '', {}],
        ['refused', '&dry_run=true', {}],
        ['stored', '', {}],
        ['refused', '', { 'if-match': tag }],
        ['refused', '', { 'if-match': '*', prefer: 'return=minimal' }],
        ['refused', '', { 'idempotency-key': '"none"' }],
      ] as [string, string, Record<string, string>][]) {
        const answer = await send(description, { 'if-none-match': noneMatch, ...more }, query)
        const refusal = { error_code: 'PRECONDITION_FAILED', reason: 'matched', current_etag: tag, changed: null }
        t.equal(answer.statusCode, 412, `${noneMatch} ${description} ${query} ${JSON.stringify(more)}`)
        t.match(answer.json(), refusal)
      }
    }
    t.equal((await auditRows(database.db, kind, id)).length, rows, 'nothing is stored')
    t.equal((await send('refused', { 'if-none-match': 'x' })).statusCode, 422, 'a damaged tag')
    const key = { 'idempotency-key': `"once-${kind}"`, 'if-none-match': `"${kind}-${id}-1"` }
    const written = await send('written', key)
    t.equal(written.statusCode, 200, 'another tag')
    const again = await send('written', { ...key, 'if-none-match': String(written.headers.etag) })
    t.equal(again.headers['idempotent-replayed'], 'true', 'a repetition has its answer')
    t.equal((await send('other', { 'if-none-match': '"other-1"' }, '&dry_run=true')).statusCode, 200)
  }
  const missing = { token: admin, body: { name: 'x' }, headers: { 'if-none-match': '*' } }
  t.equal((await call('PATCH', '/persona/999', missing)).statusCode, 422)
  t.equal((await call('PATCH', '/persona/999?update_mask=name', missing)).statusCode, 404, 'what does not exist')
})

t.test('428 for a change without If-Match where the server or the token demands it, a dry run too', async t => {
  const strict = await worldApp(t, { REQUIRE_IF_MATCH: 'on' })
  const plain = await worldApp(t)
  const careful = await plain.token('admin@example.com', { requireIfMatch: true })
  for (const [{ call }, token] of [
    [strict, await strict.token('admin@example.com')],
    [plain, careful],
  ] as const) {
    const send = (method: string, url: string, headers = {}) =>
      call(method, url, { token, body: { name: 'x' }, headers })
    for (const dry of ['', 'dry_run=true']) {
      const error = { error_code: 'PRECONDITION_REQUIRED', detail: /If-Match/ }
      t.match((await send('PATCH', `/persona/1?update_mask=name&${dry}`)).json(), error)
      t.match((await send('PUT', `/admin/tool/custom/10?${dry}`)).json(), error)
    }
    t.equal((await send('PATCH', '/persona/1?update_mask=name', { 'if-match': '*' })).statusCode, 200)
    t.equal((await call('PATCH', READ, { token, body: {} })).statusCode, 200)
  }
  const admin = await plain.token('admin@example.com')
  const free = { token: admin, body: { name: 'y' } }
  t.equal((await plain.call('PATCH', '/persona/1?update_mask=name', free)).statusCode, 200)
})
