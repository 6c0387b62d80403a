import t, { type Test } from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'

/** Returns an organisation with a token for each user, and `send`, which returns an answer's status and error code. */
async function service(t: Test, env: Record<string, string>) {
  const world = await worldApp(t, env)
  const users = { alice: 'alice', manager: 'gcurator', admin: 'admin' }
  const tokens = Object.fromEntries(
    await Promise.all(
      Object.entries(users).map(async ([name, user]) => [name, await world.token(`${user}@example.com`)]),
    ),
  ) as Record<keyof typeof users, string>
  const send = async (
    token: string,
    asked: string,
    body?: object | undefined,
    headers: Record<string, string> = { 'if-match': '*' },
  ) => {
    const [method = '', url = ''] = asked.split(' ')
    const { statusCode, body: text } = await world.call(method, url, { token, ...(body && { body }), headers })
    return `${statusCode}${statusCode < 400 ? '' : ` ${JSON.parse(text).error_code ?? text}`}`
  }
  return { ...world, tokens, send }
}

const REQUIRED = '403 APPROVAL_REQUIRED'
const at = (tag: string) => ({ 'if-match': `"${tag}"` })
const name = { name: 'New' }
const status = (enabled: boolean) => ({ tool_ids: [15], enabled })
const agent = { ...REQUIRED_FIELDS, tool_ids: [], document_set_ids: [] }
const tool = { name: 'new', definition: DEFINITION, passthrough_auth: false }

t.test('REQUIRE_APPROVAL=all: others than administrators change nothing that is stored, by no route', async t => {
  const { call, send, tokens, query } = await service(t, { REQUIRE_APPROVAL: 'all' })
  const { alice, manager, admin } = tokens
  const stored = async () => await query`select (select count(*) from audit), (select sum(version) from persona)`
  const before = await stored()
  const refused: [token: string, asked: string, body?: object | undefined, headers?: Record<string, string>][] = [
    [alice, 'PATCH /persona/2?update_mask=name', name],
    [alice, 'PATCH /persona/2', { ...agent, ...name, is_public: true }],
    [alice, 'PATCH /api/persona/2?update_mask=name', name],
    [alice, 'PATCH /api/persona/2/share', { label_ids: [1] }, {}],
    [alice, 'PATCH /persona/2?update_mask=tool_ids', { tool_ids: [13] }],
    [alice, 'DELETE /persona/2'],
    [manager, 'PUT /admin/tool/custom/15', name],
    [manager, 'DELETE /admin/tool/custom/15'],
    [manager, 'DELETE /api/admin/tool/custom/15'],
    [manager, 'PATCH /api/admin/tool/status', status(false), {}],
  ]
  for (const asked of refused) t.equal(await send(...asked), REQUIRED, asked[1])
  t.same(await stored(), before)
  const headers = { custom_headers: [{ key: 'X-Key', value: 'clear' }] }
  const secret = await call('PUT', '/admin/tool/custom/15', { token: manager, body: headers })
  for (const answer of [await call('DELETE', '/persona/2', { token: alice }), secret])
    t.match(answer.json().detail, /Ask an administrator/)
  t.equal(await send(alice, 'PATCH /persona/2?update_mask=name&dry_run=true', name), '200')
  t.equal(await send(manager, 'DELETE /api/admin/tool/custom/15?dry_run=true'), '204')
  t.equal(await send(alice, 'PATCH /persona/2?update_mask=name', { name: 'Alice Public' }), '200', 'nothing to change')
  t.equal(await send(alice, 'POST /persona', agent, {}), '201')
  t.equal(await send(manager, 'POST /admin/tool/custom', tool, {}), '201')
  t.equal(await send(admin, 'PATCH /persona/2?update_mask=description', { description: 'x' }), '200')
  t.equal(await send(alice, 'POST /persona/2/restore', { version: 1 }), REQUIRED)
  t.equal(await send(admin, 'PATCH /api/admin/tool/status', status(false), {}), '200')
  t.equal(await send(manager, 'PATCH /persona/2?update_mask=name&propose=true', name, at('persona-2-2')), '202')
  t.equal(await send(alice, 'POST /proposals/1/approve', undefined, { 'if-match': '"proposal-1-2"' }), '204')
})

t.test('REQUIRE_APPROVAL=tools, APPROVAL=anyone: agents change, with tools; authors approve', async t => {
  const { send, tokens } = await service(t, { REQUIRE_APPROVAL: 'tools', APPROVAL: 'anyone' })
  const { alice, manager, admin } = tokens
  t.equal(await send(alice, 'PATCH /persona/2?update_mask=tool_ids', { tool_ids: [13] }), '200')
  t.equal(await send(manager, 'PUT /admin/tool/custom/15', name), REQUIRED)
  t.equal(await send(admin, 'PUT /admin/tool/custom/10', name), '200')
  t.equal(await send(manager, 'PUT /admin/tool/custom/15?propose=true', name, at('tool-15-1')), '202')
  t.equal(await send(manager, 'POST /proposals/1/approve', undefined, { 'if-match': '"proposal-1-1"' }), '204')
})

t.test('a token for proposals only proposes and withdraws', async t => {
  const { send, token } = await service(t, {})
  const proposing = await token('admin@example.com', { scopes: ['propose'] })
  const no = '403 INSUFFICIENT_PERMISSIONS'
  const cases: [answer: string, asked: string, body?: object | undefined, headers?: Record<string, string>][] = [
    [no, 'PATCH /persona/2?update_mask=name&propose=false', name],
    [no, 'PATCH /persona/2?update_mask=name&propose=true&propose=false', name],
    [no, 'DELETE /persona/2?propose=true'],
    [no, 'POST /persona?propose=true', agent],
    [no, 'POST /persona/2/restore?propose=true', { version: 1 }],
    [no, 'PATCH /api/persona/2/share?propose=true', { label_ids: [1] }],
    [no, 'GET /tool/11/headers'],
    ['202', 'PATCH /persona/2?update_mask=name&propose=true', name, at('persona-2-1')],
    ['202', 'PATCH /api/persona/2?update_mask=description&propose=true', { description: 'x' }, at('persona-2-1')],
    ['202', 'PUT /admin/tool/custom/15?propose=true', name, at('tool-15-1')],
    [no, 'POST /proposals/1/reject?propose=true', { reason: 'x' }],
    ['204', 'POST /proposals/1/withdraw'],
  ]
  for (const [answer, ...asked] of cases) t.equal(await send(proposing, ...asked), answer, asked[0])
})
