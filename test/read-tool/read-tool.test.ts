import t from 'tap'
import { worldApp } from '../app.js'

const TOOL = 10

t.test('200: the tool as an update answers it, with a tag that an update takes as If-Match', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const headers = [{ key: 'X-Key', value: 'a secret that nobody reads' }]
  const stored = await call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { custom_headers: headers } })
  const read = await call('GET', `/tool/${TOOL}`, { token: admin })
  t.equal(read.statusCode, 200)
  t.strictSame(read.json(), stored.json())
  t.match(read.json().custom_headers, [{ key: 'X-Key', value: /^\*{4}#[0-9a-f]{12}$/ }])
  const tag = String(read.headers.etag)
  const guarded = (description: string) =>
    call('PUT', `/admin/tool/custom/${TOOL}`, { token: admin, body: { description }, headers: { 'if-match': tag } })
  t.equal((await guarded('first')).statusCode, 200)
  t.equal((await guarded('second')).statusCode, 412)
})

t.test(
  '200 without the masks for callers who may not manage the tool; built-in tools are read, never updated',
  async t => {
    const { call, token } = await worldApp(t)
    const admin = await token('admin@example.com')
    const alice = await token('alice@example.com', { scopes: ['basic'] })
    const { custom_headers: masks, ...rest } = (await call('GET', `/tool/${TOOL}`, { token: admin })).json()
    const { custom_headers, ...shown } = (await call('GET', `/tool/${TOOL}`, { token: alice })).json()
    t.equal(custom_headers, null)
    t.strictSame(shown, rest)
    t.ok(Array.isArray(masks))
    const ids = Array.from({ length: 20 }, (_, n) => n + 1)
    const answers = await Promise.all(ids.map(id => call('GET', `/tool/${id}`, { token: alice })))
    const builtIn = answers.filter(({ statusCode }) => statusCode === 200).find(answer => answer.json().in_code_tool_id)
    t.ok(builtIn, 'the world has a built-in tool')
    const { id } = builtIn?.json() ?? {}
    t.equal((await call('PUT', `/admin/tool/custom/${id}`, { token: admin, body: { name: 'x' } })).statusCode, 400)
  },
)

t.test('304 while nothing has changed; 401 without a token; 404 for no such tool; HEAD without a body', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const read = await call('GET', `/tool/${TOOL}`, { token: admin })
  const tag = String(read.headers.etag)
  const again = await call('GET', `/tool/${TOOL}`, { token: admin, headers: { 'if-none-match': tag } })
  t.equal(again.statusCode, 304)
  t.equal(again.body, '')
  t.equal((await call('GET', `/tool/${TOOL}`)).statusCode, 401)
  t.equal((await call('GET', '/tool/2147483647', { token: admin })).statusCode, 404)
  t.equal((await call('GET', '/tool/99999999999', { token: admin })).statusCode, 404)
  t.equal((await call('GET', '/tool/x', { token: admin })).statusCode, 422)
  const head = await call('HEAD', `/tool/${TOOL}`, { token: admin })
  t.equal(head.statusCode, 200)
  t.equal(head.headers.etag, tag)
  t.equal(head.body, '')
})
