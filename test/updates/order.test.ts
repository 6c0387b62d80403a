import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { CAROL } from '../fixtures/users.js'
import { DEFINITION } from '../matrix-organisation.js'
import { storedAgent } from '../update-persona/stored-agent.js'

/** The three operations, each at an address that would work. */
const OPERATIONS = [
  ['PATCH', '/persona/1'],
  ['PUT', '/admin/tool/custom/10'],
  ['POST', '/admin/tool/custom/validate'],
] as const

const TOO_LARGE = `{"name":"${'x'.repeat(6 * 1024 * 1024)}"}`

t.test('the order of the checks', async t => {
  const { app, call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const alice = await token('alice@example.com')
  const bob = await token('bob@example.com')

  t.test('401 before anything is validated', async t => {
    for (const [method, url] of OPERATIONS) {
      for (const [address, body, headers] of [
        [url, '{"name":', {}],
        [url, '', {}],
        [url, TOO_LARGE, {}],
        [url, 'name=x', { 'content-type': 'application/x-www-form-urlencoded' }],
        [`${url}?unknown=1&dry_run=maybe`, '{}', {}],
        [url.replace(/\d+$/, 'abc'), '[]', {}],
        [url.replace(/\d+$/, '999999'), '{}', {}],
        [url, '{}', { 'if-match': 'broken' }],
      ] as const) {
        const answer = await call(method, address, { body, headers })
        t.equal(answer.statusCode, 401, `${method} ${address}`)
        t.equal(answer.headers['www-authenticate'], 'Bearer realm="agents"')
        t.strictSame(Object.keys(answer.json()), ['error_code', 'detail', 'request_id'])
      }
    }
  })

  t.test('401 before the body is read', async t => {
    await app.listen({ host: '127.0.0.1', port: 0 })
    const { port } = app.server.address() as AddressInfo // it listens on TCP
    for (const [method, url] of OPERATIONS) {
      const socket = connect(port, '127.0.0.1')
      await once(socket, 'connect')
      const head = [`${method} ${url} HTTP/1.1`, 'Host: localhost', 'Content-Type: application/json']
      socket.write(`${[...head, 'Content-Length: 1000000'].join('\r\n')}\r\n\r\n{"na`)
      const [bytes] = await once(socket, 'data')
      t.match(String(bytes), /^HTTP\/1\.1 401 /, `${method} ${url}`)
      socket.destroy()
    }
  })

  t.test('403 for a missing permission before the body is looked at', async t => {
    const bound = await token('admin@example.com', { personaIds: [2], toolIds: [11] })
    for (const [method, url] of OPERATIONS.slice(1)) {
      for (const body of ['{"name":', TOO_LARGE, '[]']) {
        const answer = await call(method, url, { token: alice, body })
        t.equal(answer.statusCode, 403, `${method} ${url}`)
        t.equal(
          answer.headers['www-authenticate'],
          'Bearer realm="agents", error="insufficient_scope", scope="manage:actions"',
        )
      }
    }
    for (const [method, url] of OPERATIONS.slice(0, 2)) {
      t.equal((await call(method, url, { token: bound, body: '{"name":' })).statusCode, 403, 'a binding likewise')
    }
  })

  t.test('of two faults the earlier check speaks, and nothing is written', async t => {
    await database.db
      .insertInto('persona_user')
      .values({ persona_id: 11, user_id: CAROL, level: 'editor' })
      .onConflict(conflict => conflict.columns(['persona_id', 'user_id']).doUpdateSet({ level: 'editor' }))
      .execute()
    await database.db.updateTable('persona').set({ builtin_persona: true }).where('id', '=', 2).execute()
    const carol = await token('carol@example.com')
    const curator = await token('curator@example.com')
    const stale = { 'if-match': '"persona-1-99"' }
    const cases: [
      title: string,
      method: string,
      url: string,
      token: string,
      body: object,
      headers: object,
      wanted: string,
    ][] = [
      [
        'invisible, unknown reference',
        'PATCH',
        '/persona/3?update_mask=tool_ids',
        alice,
        { tool_ids: [999] },
        {},
        '404 PERSONA_NOT_FOUND',
      ],
      [
        'invisible, stale',
        'PATCH',
        '/persona/3?update_mask=name',
        alice,
        { name: 'x' },
        stale,
        '404 PERSONA_NOT_FOUND',
      ],
      [
        'a viewer, unknown reference',
        'PATCH',
        '/persona/4?update_mask=tool_ids',
        alice,
        { tool_ids: [999] },
        {},
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      [
        'a viewer, stale',
        'PATCH',
        '/persona/4?update_mask=name',
        alice,
        { name: 'x' },
        stale,
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      [
        'an editor who publishes, unknown reference',
        'PATCH',
        '/persona/11?update_mask=is_public,tool_ids',
        carol,
        { is_public: true, tool_ids: [999] },
        {},
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      [
        'built-in, unknown reference',
        'PATCH',
        '/persona/2?update_mask=tool_ids',
        alice,
        { tool_ids: [999] },
        {},
        '400 BUILTIN_READ_ONLY',
      ],
      [
        'built-in, a public agent of somebody else',
        'PATCH',
        '/persona/2?update_mask=name',
        bob,
        { name: 'x' },
        {},
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      [
        'cross-field rule, unknown reference',
        'PATCH',
        '/persona/8?update_mask=is_public,tool_ids',
        admin,
        { is_public: false, tool_ids: [999] },
        {},
        '422 default_persona_private',
      ],
      [
        'cross-field rule, stale',
        'PATCH',
        '/persona/8?update_mask=is_public',
        admin,
        { is_public: false },
        stale,
        '422 default_persona_private',
      ],
      [
        'unknown reference, stale',
        'PATCH',
        '/persona/1?update_mask=tool_ids',
        alice,
        { tool_ids: [999] },
        stale,
        '422 not_found',
      ],
      [
        'kept field by strict handling, unknown reference',
        'PATCH',
        '/persona/11?update_mask=display_priority,tool_ids',
        alice,
        { display_priority: 9, tool_ids: [999] },
        { prefer: 'handling=strict' },
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      ['stale', 'PATCH', '/persona/1?update_mask=name', alice, { name: 'x' }, stale, '412 PRECONDITION_FAILED'],
      [
        'out of range, a wrong type',
        'PATCH',
        '/persona/2147483648?update_mask=name',
        alice,
        { name: 1 },
        {},
        '422 string_type',
      ],
      [
        'out of range',
        'PATCH',
        '/persona/2147483648?update_mask=name',
        alice,
        { name: 'x' },
        {},
        '404 PERSONA_NOT_FOUND',
      ],
      [
        'a tool out of scope, a bad definition',
        'PUT',
        '/admin/tool/custom/10',
        curator,
        { definition: {} },
        {},
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      [
        'a tool out of scope, unknown reference',
        'PUT',
        '/admin/tool/custom/10',
        curator,
        { oauth_config_id: 999 },
        {},
        '403 INSUFFICIENT_PERMISSIONS',
      ],
      [
        'no tool, a bad definition',
        'PUT',
        '/admin/tool/custom/999',
        admin,
        { definition: { ...DEFINITION, servers: [] } },
        {},
        '404 NOT_FOUND',
      ],
      [
        'a built-in tool, a bad definition',
        'PUT',
        '/admin/tool/custom/1',
        admin,
        { definition: { ...DEFINITION, servers: [] } },
        {},
        '400 BUILTIN_READ_ONLY',
      ],
      [
        'a bad definition, unknown reference',
        'PUT',
        '/admin/tool/custom/10',
        admin,
        { definition: { ...DEFINITION, servers: [] }, oauth_config_id: 999 },
        {},
        '422 servers_missing',
      ],
      [
        'unknown reference, stale',
        'PUT',
        '/admin/tool/custom/10',
        admin,
        { oauth_config_id: 999 },
        { 'if-match': '"tool-10-99"' },
        '422 not_found',
      ],
      [
        'a wrong type, a bad definition',
        'PUT',
        '/admin/tool/custom/10',
        admin,
        { name: 1, definition: { ...DEFINITION, servers: [] } },
        {},
        '422 string_type',
      ],
      [
        'stale',
        'PUT',
        '/admin/tool/custom/10',
        admin,
        { name: 'x' },
        { 'if-match': '"tool-10-99"' },
        '412 PRECONDITION_FAILED',
      ],
    ]
    const written = async () => {
      return await database.db
        .selectFrom('audit')
        .select(eb => eb.fn.countAll().as('count'))
        .executeTakeFirst()
    }
    const before = await written()
    for (const [title, method, url, caller, body, headers, wanted] of cases) {
      const answer = await call(method, url, { token: caller, body, headers: { ...headers } })
      const { error_code, detail } = answer.json()
      const found = error_code ?? (detail as { type: string }[]).map(({ type }) => type).join(' ')
      t.equal(`${answer.statusCode} ${found}`, wanted, title)
    }
    t.strictSame(await written(), before)
  })

  t.test('428 after the references, and only with a change to guard', async t => {
    const careful = await token('alice@example.com', { requireIfMatch: true })
    const send = async (body: object, headers: Record<string, string> = {}) => {
      const url = `/persona/1?update_mask=${Object.keys(body)}`
      return (await call('PATCH', url, { token: careful, body, headers })).statusCode
    }
    t.equal(await send({ tool_ids: [999] }), 422)
    t.equal(await send({ name: 'x' }), 428)
    t.equal(await send({ name: 'x' }, { 'if-match': '"persona-1-99"' }), 412)
    t.equal((await storedAgent({ database }, 1)).version, 1)
    t.equal(await send({ name: 'x' }, { 'if-match': '"persona-1-1"' }), 200)
  })

  t.test(
    '422: broken JSON stands alone; path, query, headers and body are reported together, in this order',
    async t => {
      const locs = async (url: string, body: string | object, headers: Record<string, string> = {}) => {
        const answer = await call('PATCH', url, { token: alice, body, headers })
        t.equal(answer.statusCode, 422, answer.body)
        return answer.json().detail.map(({ loc, type }: { loc: unknown[]; type: string }) => `${loc.join('.')} ${type}`)
      }
      t.strictSame(await locs('/persona/abc?x=1', '{"name":', { 'if-match': 'x' }), ['body.8 json_invalid'])
      const { name: _, tool_ids: __, ...rest } = REQUIRED_FIELDS
      const body = { tool_ids: [1, 'x', null], icon_name: 7, users: ['x'], ...rest, num_chunks: '1' }
      t.strictSame(await locs('/persona/abc?dry_run=1&x=1', body, { 'if-match': 'x' }), [
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
    },
  )

  t.test('404 and 405 need no token; 413 and 415 do', async t => {
    t.equal((await call('GET', '/nothing')).statusCode, 404)
    const wrongMethod = await call('DELETE', '/persona/1')
    t.equal(wrongMethod.statusCode, 405)
    t.equal(wrongMethod.headers.allow, 'GET, HEAD, PATCH')
    t.equal((await call('PATCH', '/persona/1', { token: alice, body: TOO_LARGE })).statusCode, 413)
    const text = { 'content-type': 'text/plain' }
    t.equal((await call('PATCH', '/persona/1', { token: alice, body: 'x', headers: text })).statusCode, 415)
  })
})
