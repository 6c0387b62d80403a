import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { CAROL } from '../fixtures/users.js'
import { RawConnection } from '../http/running.js'
import { DEFINITION } from '../matrix-organisation.js'
import { comparable } from '../security/observed.js'
import { listening } from '../test-service.js'
import { faultsOf, hashOfEverything } from './stored-state.js'

const OPERATIONS = [
  ['PATCH', '/persona/1'],
  ['PUT', '/admin/tool/custom/10'],
  ['POST', '/admin/tool/custom/validate'],
] as const

const TOO_LARGE = `{"name":"${'x'.repeat(6 * 1024 * 1024)}"}`

t.test('the order of the checks', async t => {
  const { app, call, token, database, admin, alice } = await worldApp(t)
  const bob = await token('bob@example.com')

  t.test('401 before anything is validated', async t => {
    for (const [method, url] of OPERATIONS) {
      for (const [address, body, headers = {}] of [
        ...['{"name":', '', TOO_LARGE].map((body): [string, string] => [url, body]),
        [url, 'name=x', { 'content-type': 'application/x-www-form-urlencoded' }],
        [url, '{}', { 'if-match': 'broken' }],
        [`${url}?unknown=1&dry_run=maybe`, '{}'],
        [url.replace(/\d+$/, 'abc'), '[]'],
        [url.replace(/\d+$/, '999999'), '{}'],
      ] as [string, string, Record<string, string>?][]) {
        const answer = await call(method, address, { body, headers })
        const challenge = answer.headers['www-authenticate']
        t.strictSame([answer.statusCode, challenge], [401, 'Bearer realm="agents"'], `${method} ${address}`)
        t.strictSame(Object.keys(answer.json()), ['error_code', 'detail', 'request_id'])
      }
    }
  })

  t.test('401 before the body is read', async t => {
    const port = await listening(app)
    for (const [method, url] of OPERATIONS) {
      const head = [`${method} ${url} HTTP/1.1`, 'Host: localhost', 'Content-Type: application/json']
      const connection = new RawConnection(port)
      connection.write(`${[...head, 'Content-Length: 1000000'].join('\r\n')}\r\n\r\n{"na`)
      t.match(await connection.until(/\r\n/), /^HTTP\/1\.1 401 /, `${method} ${url}`)
      connection.socket.destroy()
    }
  })

  t.test('403 for a missing permission before the body is looked at', async t => {
    const bound = await token('admin@example.com', { personaIds: [2], toolIds: [11] })
    const challenge = 'Bearer realm="agents", error="insufficient_scope", scope="manage:actions"'
    for (const [method, url] of OPERATIONS.slice(1)) {
      for (const body of ['{"name":', TOO_LARGE, '[]']) {
        const answer = await call(method, url, { token: alice, body })
        t.strictSame([answer.statusCode, answer.headers['www-authenticate']], [403, challenge], `${method} ${url}`)
      }
    }
    for (const [method, url] of OPERATIONS.slice(0, 2)) {
      t.equal((await call(method, url, { token: bound, body: '{"name":' })).statusCode, 403, 'a binding likewise')
    }
  })

  t.test('of two faults the earlier check speaks, in a dry run as in the request, and nothing is written', async t => {
    await database.db.updateTable('persona_user').set({ level: 'editor' }).where('user_id', '=', CAROL).execute()
    await database.db.updateTable('persona').set({ builtin_persona: true }).where('id', '=', 2).execute()
    const carol = await token('carol@example.com')
    const curator = await token('curator@example.com')
    const careful = await token('admin@example.com', { requireIfMatch: true })
    const stale = { 'if-match': '"persona-1-99"' }
    const staleTool = { 'if-match': '"tool-10-99"' }
    const strict = { prefer: 'handling=strict' }
    const nowhere = { tool_ids: [999] }
    const bad = { ...DEFINITION, servers: [] }
    /** The caller, the agent, the fields, the expected answer, and headers. */
    const agents: [string, number, object, string, object?][] = [
      [alice, 3, nowhere, '404 PERSONA_NOT_FOUND'],
      [alice, 3, { name: 'x' }, '404 PERSONA_NOT_FOUND', stale],
      [alice, 4, nowhere, '403 INSUFFICIENT_PERMISSIONS'],
      [alice, 4, { name: 'x' }, '403 INSUFFICIENT_PERMISSIONS', stale],
      [carol, 11, { is_public: true, ...nowhere }, '403 INSUFFICIENT_PERMISSIONS'],
      [alice, 2, nowhere, '400 BUILTIN_READ_ONLY'],
      [bob, 2, { name: 'x' }, '403 INSUFFICIENT_PERMISSIONS'],
      [admin, 8, { is_public: false, ...nowhere }, '422 body.is_public default_persona_private'],
      [admin, 8, { is_public: false }, '422 body.is_public default_persona_private', stale],
      [alice, 1, nowhere, '422 body.tool_ids.0 not_found', stale],
      [alice, 11, { display_priority: 9, ...nowhere }, '403 INSUFFICIENT_PERMISSIONS', strict],
      [alice, 1, { name: 'x' }, '412 PRECONDITION_FAILED', stale],
      [alice, 2_147_483_648, { name: 1 }, '422 body.name string_type'],
      [alice, 2_147_483_648, { name: 'x' }, '404 PERSONA_NOT_FOUND'],
      [careful, 1, nowhere, '422 body.tool_ids.0 not_found'],
      [careful, 1, { name: 'x' }, '428 PRECONDITION_REQUIRED'],
      [careful, 1, { name: 'x' }, '412 PRECONDITION_FAILED', stale],
      ['pat_nobody', 1, { name: 'x' }, '401 INVALID_TOKEN'],
      [alice, 1, { nme: 1, name: 'x' }, '422 query.update_mask enum body.nme extra_forbidden', strict],
    ]
    const tools: [string, number, object, string, object?][] = [
      [curator, 10, { definition: {} }, '403 INSUFFICIENT_PERMISSIONS'],
      [curator, 10, { oauth_config_id: 999 }, '403 INSUFFICIENT_PERMISSIONS'],
      [admin, 999, { definition: bad }, '404 NOT_FOUND'],
      [admin, 1, { definition: bad }, '400 BUILTIN_READ_ONLY'],
      [admin, 1, {}, '400 BUILTIN_READ_ONLY'],
      [admin, 14, { oauth_config_id: 999 }, '400 BUILTIN_READ_ONLY'],
      [admin, 10, { definition: bad, oauth_config_id: 999 }, '422 body.definition.servers servers_missing'],
      [admin, 10, { oauth_config_id: 999 }, '422 body.oauth_config_id not_found', staleTool],
      [admin, 10, { name: 1, definition: bad }, '422 body.name string_type'],
      [admin, 10, { name: 'x' }, '412 PRECONDITION_FAILED', staleTool],
      [careful, 10, { name: 'x' }, '428 PRECONDITION_REQUIRED'],
    ]
    const before = await hashOfEverything(database.db)
    for (const [method, path, rows] of [
      ['PATCH', '/persona/', agents],
      ['PUT', '/admin/tool/custom/', tools],
    ] as const) {
      for (const [caller, id, body, wanted, more = {}] of rows) {
        const url = `${path}${id}?update_mask=${Object.keys(body)}`
        const address = method === 'PUT' ? `${path}${id}?` : `${url}&`
        const headers = { 'x-request-id': 'same', ...more }
        const sent = { token: caller, body, headers }
        const dry = await call(method, `${address}dry_run=true`, sent)
        const real = await call(method, address.slice(0, -1), sent)
        const found = real.statusCode === 422 ? faultsOf(real).join(' ') : real.json().error_code
        t.equal(`${real.statusCode} ${found}`, wanted)
        t.strictSame(comparable(dry), comparable(real), wanted)
        t.equal(dry.headers['dry-run'], undefined)
      }
    }
    t.strictSame(await hashOfEverything(database.db), before)
    const named = { token: careful, body: { name: 'x' }, headers: { 'if-match': '"persona-1-1"' } }
    t.equal((await call('PATCH', '/persona/1?update_mask=name', named)).statusCode, 200)
  })

  t.test('422: broken JSON stands alone; faults of path, query, headers and body come in this order', async t => {
    const faults = async (url: string, body: string | object) =>
      faultsOf(await call('PATCH', url, { token: alice, body, headers: { 'if-match': 'x' } }))
    t.strictSame(await faults('/persona/abc?x=1', '{"name":'), ['body.8 json_invalid'])
    t.strictSame(await faults('/persona/abc?x=1', '['.repeat(300)), ['body json_too_deep'])
    const { name: _, tool_ids: __, ...rest } = REQUIRED_FIELDS
    const body = { tool_ids: [1, 'x', null], icon_name: 7, users: ['x'], ...rest, num_chunks: '1' }
    t.strictSame(await faults('/persona/abc?dry_run=1&x=1', body), [
      'path.persona_id int_parsing',
      'query.dry_run bool_parsing',
      'query.x extra_forbidden',
      'header.if-match string_pattern_mismatch',
      'body.name missing',
      'body.num_chunks float_parsing',
      'body.tool_ids.1 int_parsing',
      'body.tool_ids.2 int_type',
      'body.users.0 uuid_parsing',
      'body.icon_name string_type',
    ])
    t.strictSame(await faults('/persona/1?update_mask=name&update_mask=name', ''), [
      'query.update_mask parameter_repeated',
      'header.if-match string_pattern_mismatch',
      'body missing',
    ])
  })
})
