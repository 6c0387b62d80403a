import t from 'tap'
import { worldApp } from '../app.js'

const AGENT = 11
const PATH = `/persona/${AGENT}`
const { call, token, database } = await worldApp(t)
const admin = await token('admin@example.com')

t.test('200: the agent as an update answers it, with a tag that an update takes as If-Match', async t => {
  const read = await call('GET', PATH, { token: admin })
  t.equal(read.statusCode, 200)
  const unchanged = await call('PATCH', `${PATH}?update_mask=&dry_run=true`, { token: admin, body: {} })
  t.strictSame(read.json(), unchanged.json())
  const written = await call('PATCH', `${PATH}?update_mask=name`, {
    token: admin,
    body: { name: 'Read before' },
    headers: { 'if-match': String(read.headers.etag) },
  })
  t.equal(written.statusCode, 200)
  const stale = await call('PATCH', `${PATH}?update_mask=name`, {
    token: admin,
    body: { name: 'Too late' },
    headers: { 'if-match': String(read.headers.etag) },
  })
  t.equal(stale.statusCode, 412)
  t.match(stale.json().changed, [{ field: 'name' }], 'the tag says which version was read')
})

t.test('304 while nothing that the answer shows has changed; 200 when only a tool of the agent has', async t => {
  const first = await call('GET', PATH, { token: admin })
  const again = (tag: string) => call('GET', PATH, { token: admin, headers: { 'if-none-match': tag } })
  const tag = String(first.headers.etag)
  for (const sent of [tag, `W/${tag}`, `"other", ${tag}`, '*']) {
    const answer = await again(sent)
    t.equal(answer.statusCode, 304, sent)
    t.equal(answer.body, '')
    t.equal(answer.headers.etag, tag)
    t.equal(answer.headers['content-length'], undefined)
    t.equal(answer.headers['content-type'], undefined)
  }
  const [tool] = first.json().tools
  await database.db.updateTable('tool').set({ description: 'changed beside' }).where('id', '=', tool.id).execute()
  const changed = await again(tag)
  t.equal(changed.statusCode, 200)
  t.equal(changed.json().tools[0].description, 'changed beside')
  t.not(changed.headers.etag, tag)
  t.equal((await again('damaged')).statusCode, 422)
})

t.test('404 for who does not see the agent, as for one that is not there; a viewer reads it', async t => {
  const stranger = await token('limited@example.com')
  const found: Record<number, number> = {}
  for (let id = 1; id <= 20; id++) found[id] = (await call('GET', `/persona/${id}`, { token: stranger })).statusCode
  const nowhere = await call('GET', '/persona/2147483647', { token: stranger })
  t.equal(nowhere.statusCode, 404)
  const hidden = Object.keys(found).find(id => found[Number(id)] === 404)
  const { request_id: _, ...body } = (await call('GET', `/persona/${hidden}`, { token: stranger })).json()
  const { request_id: __, ...nothing } = nowhere.json()
  t.strictSame(body, nothing)
  const seen = Object.keys(found).find(id => found[Number(id)] === 200)
  t.ok(seen, 'the world has an agent that this caller may only view')
  const edit = await call('PATCH', `/persona/${seen}?update_mask=name`, { token: stranger, body: { name: 'x' } })
  t.equal(edit.statusCode, 403)
  t.equal((await call('GET', `/persona/${seen}`)).statusCode, 401)
})

t.test('HEAD answers the headers of GET; 422 for an unknown query parameter; 405 names the methods', async t => {
  const read = await call('GET', PATH, { token: admin })
  const head = await call('HEAD', PATH, { token: admin })
  t.equal(head.statusCode, 200)
  t.equal(head.body, '')
  t.equal(head.headers.etag, read.headers.etag)
  t.equal(head.headers['content-length'], read.headers['content-length'])
  const headers = { 'if-none-match': String(read.headers.etag) }
  for (const method of ['GET', 'HEAD']) {
    const unchanged = await call(method, PATH, { token: admin, headers })
    t.strictSame([unchanged.statusCode, unchanged.body], [304, ''])
    for (const name of ['content-length', 'content-type']) t.notOk(name in unchanged.headers, `${method} has ${name}`)
  }
  t.equal((await call('GET', `${PATH}?page=1`, { token: admin })).statusCode, 422)
  const other = await call('DELETE', PATH, { token: admin })
  t.equal(other.statusCode, 405)
  t.equal(other.headers.allow, 'GET, HEAD, PATCH')
})

t.test('200 of one version while others write: never a mixture, never a wrong tag', async t => {
  const writes = async () => {
    for (let n = 0; n < 25; n++) {
      const body = { name: `v${n}`, description: `v${n}` }
      await call('PATCH', `${PATH}?update_mask=name,description`, { token: admin, body })
    }
  }
  const reads = async () => {
    const tags = new Map<string, string>()
    for (let n = 0; n < 25; n++) {
      const answer = await call('GET', PATH, { token: admin })
      t.equal(answer.statusCode, 200)
      const { name, description } = answer.json()
      if (/^v\d+$/.test(name)) t.equal(description, name)
      const version = String(answer.headers.etag).split('.')[0] ?? ''
      t.equal(tags.get(version) ?? name, name)
      tags.set(version, name)
    }
  }
  await Promise.all([writes(), reads(), reads()])
})

t.test('200: answers are compact, and a source that the product added is shown as it is stored', async t => {
  await database.db.updateTable('cc_pair').set({ source: 'added_by_the_product' }).execute()
  const sets = await database.db.selectFrom('document_set').select('id').execute()
  const body = {
    document_set_ids: sets.map(({ id }) => id),
    tool_ids: [10],
    label_ids: [1],
    starter_messages: [{ name: 'a "name" : of', message: 'a, {message}' }],
  }
  const updated = await call('PATCH', `/persona/1?update_mask=${Object.keys(body)}`, { token: admin, body })
  t.equal(updated.statusCode, 200, updated.body)
  t.match(updated.body, '"source":"added_by_the_product"')
  for (const path of ['/persona/1', '/persona', '/tool', '/tool/10', '/me', '/persona/1?version=1']) {
    const { statusCode, body } = await call('GET', path, { token: admin })
    t.equal(statusCode, 200, body)
    t.equal(body, JSON.stringify(JSON.parse(body)), path)
  }
  t.equal((await call('GET', '/persona/1', { token: admin })).body, updated.body)
})
