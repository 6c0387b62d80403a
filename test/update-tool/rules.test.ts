import { sql } from 'kysely'
import t from 'tap'
import { type WorldApp, worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { storedTool } from './stored-tool.js'

async function put({ call }: WorldApp, token: string, id: number, body: unknown, headers: Record<string, string> = {}) {
  const answer = await call('PUT', `/admin/tool/custom/${id}`, { token, body, headers })
  return { status: answer.statusCode, headers: answer.headers, text: answer.body, body: answer.json() }
}

const typesOf = ({ body }: { body: { detail: { loc: unknown; type: string }[] } }) => {
  return body.detail.map(({ loc, type }) => [loc, type])
}

t.test('the rules of a tool update', async t => {
  const world = await worldApp(t)
  const admin = await world.token('admin@example.com')

  t.test('200: display_name follows the name unless it was set on its own', async t => {
    t.match((await put(world, admin, 10, { name: 'renamed' })).body, { name: 'renamed', display_name: 'renamed' })
    t.match((await put(world, admin, 16, { name: 'renamed too' })).body, {
      name: 'renamed too',
      display_name: 'Full Tool',
    })
  })

  t.test('400: built-in tools and tools of an MCP server, whatever is sent', async t => {
    for (const id of [1, 14]) {
      for (const body of [{}, { name: 'x' }, { definition: DEFINITION }, { oauth_config_id: 999 }]) {
        const { status, body: answer } = await put(world, admin, id, body)
        t.equal(status, 400)
        t.equal(answer.error_code, 'BUILTIN_READ_ONLY')
      }
    }
    t.equal((await storedTool(world, 1)).version, 1)
  })

  t.test('422: passthrough_auth and an Authorization header exclude each other, on the merged state', async t => {
    // Tool 16 has an Authorization header, tool 17 passes the caller's through.
    const conflict = (...loc: unknown[]) => [[['body', ...loc], 'passthrough_auth_conflict']]
    const secret = { key: 'aUTHORIZATION', value: 'Bearer x' }
    t.strictSame(typesOf(await put(world, admin, 16, { passthrough_auth: true })), conflict('passthrough_auth'))
    t.strictSame(
      typesOf(await put(world, admin, 17, { custom_headers: [{ key: 'X-A', value: '1' }, secret] })),
      conflict('custom_headers', 1, 'key'),
    )
    const both = { passthrough_auth: true, custom_headers: [secret] }
    t.strictSame(typesOf(await put(world, admin, 10, both)), conflict('passthrough_auth'))
    t.equal((await put(world, admin, 16, { passthrough_auth: true, custom_headers: [] })).status, 200)
    t.equal((await put(world, admin, 17, { passthrough_auth: false, custom_headers: [secret] })).status, 200)
    t.match(await storedTool(world, 17), { passthrough_auth: false, headers: [{ name: 'aUTHORIZATION' }] })
  })

  t.test('422: every fault of definition and headers at once, in the declared order', async t => {
    const body = {
      custom_headers: [
        { key: 'Host', value: 'a' },
        { key: 'X-A', value: 'a\n' },
      ],
      definition: { ...DEFINITION, servers: [] },
      oauth_config_id: 999,
    }
    t.strictSame(typesOf(await put(world, admin, 11, body)), [
      [['body', 'definition', 'servers'], 'servers_missing'],
      [['body', 'custom_headers', 0, 'key'], 'header_name_forbidden'],
      [['body', 'custom_headers', 1, 'value'], 'header_value_invalid'],
    ])
  })

  t.test('422: a header value that no client can send names the character, and nothing is stored', async t => {
    const before = await storedTool(world, 11)
    const told = async (value: string) => {
      const { status, body } = await put(world, admin, 11, { custom_headers: [{ key: 'X-A', value }] })
      t.equal(status, 422)
      return body.detail[0]?.msg
    }
    t.equal(await told('key “a”'), 'Header value should have characters that a client can send: character 5 is U+201C')
    t.equal(await told('key '), 'Header value should end without a blank: character 4 is one')
    t.equal((await storedTool(world, 11)).version, before.version)
    for (const value of [
      '*/*',
      '*',
      'a * b',
      'v1.2',
      'a..b',
      'please wait...',
      'text/plain; q=0.5',
      'x',
      'no-cache',
      'Basic YTpi',
    ])
      t.equal((await put(world, admin, 11, { custom_headers: [{ key: 'X-A', value }] })).status, 200, value)
  })

  t.test('200: a link to an OAuth configuration: the current one again, another, none; the row stays', async t => {
    const linked = async (id: number | null) => (await put(world, admin, 12, { oauth_config_id: id })).body
    t.match(await linked(1), { oauth_config_id: 1, oauth_config_name: 'GitHub OAuth' })
    t.match(await linked(1), { oauth_config_id: 1 })
    t.match(await linked(null), { oauth_config_id: null, oauth_config_name: null })
    const { rows } = await sql`select id from oauth_config where id = 1`.execute(world.database.db)
    t.equal(rows.length, 1)
  })

  t.test('200: a definition keeps the order of its keys, text for text; integer-like keys come first', async t => {
    const text =
      '{"paths":{"/z":{"get":{"x-n":[1.0,1e2,-0.5,12345678901234567890],"responses":{"404":{"b":1,"a":2},"200":{}},' +
      '"summary":"s\\u00e9\\/","operationId":"z"}},"/a":{"post":{"operationId":"a","summary":"s"}}},' +
      '"servers":[{"url":"https://example.com"}],"info":{"title":"first","title":"T"},"openapi":"3.0.0"}'
    const stored =
      '{"paths":{"/z":{"get":{"x-n":[1.0,1e2,-0.5,12345678901234567890],"responses":{"200":{},"404":{"b":1,"a":2}},' +
      '"summary":"sé/","operationId":"z"}},"/a":{"post":{"operationId":"a","summary":"s"}}},' +
      '"servers":[{"url":"https://example.com"}],"info":{"title":"T"},"openapi":"3.0.0"}'
    const answer = await put(world, admin, 13, `{"definition":${text}}`)
    t.equal(answer.status, 200, answer.text)
    t.equal((await storedTool(world, 13)).definition, stored)
    t.ok(answer.text.includes(`"definition":${stored}`), 'in the answer')
    t.ok((await world.call('GET', '/tool/13', { token: admin })).body.includes(stored), 'in the read')
    const agent = await world.call('PATCH', '/persona/1?update_mask=tool_ids', {
      token: admin,
      body: { tool_ids: [13] },
    })
    t.ok(agent.body.includes(stored), 'in an agent that has the tool')
    const methods = await world.call('POST', '/admin/tool/custom/validate', {
      token: admin,
      body: `{"definition":${text}}`,
    })
    t.strictSame(
      methods.json().methods.map((method: { name: string }) => method.name),
      ['z', 'a'],
    )
    t.equal(JSON.stringify(methods.json().methods[0].spec), JSON.stringify(JSON.parse(stored).paths['/z'].get))
  })

  t.test('422: a number beyond the range of a double, which no answer could give back', async t => {
    const text = JSON.stringify({ ...DEFINITION, 'x-large': 7 }).replace('7}', '1e400}')
    for (const [method, url] of [
      ['PUT', '/admin/tool/custom/10'],
      ['POST', '/admin/tool/custom/validate'],
    ] as const) {
      const answer = await world.call(method, url, { token: admin, body: `{"definition":${text}}` })
      t.equal(answer.statusCode, 422, `${url}: ${answer.body.slice(0, 200)}`)
      t.strictSame(typesOf({ body: answer.json() }), [[['body', 'definition', 'x-large'], 'finite_number']])
    }
  })

  t.test('200 with Warning: unknown fields, also inside headers; with strict handling they are 422', async t => {
    const body = { nmae: 'x', custom_headers: [{ key: 'X-A', value: '1', secret: true }] }
    const lax = await put(world, admin, 20, body)
    t.equal(lax.status, 200)
    t.equal(
      lax.headers.warning,
      '299 - "calls of this tool take the new header values to https://api.example.com", ' +
        `299 - "unknown field nmae ignored: did you mean 'name'?", 299 - "unknown field custom_headers.0.secret ignored"`,
    )
    t.strictSame(typesOf(await put(world, admin, 20, body, { prefer: 'handling=strict' })), [
      [['body', 'nmae'], 'extra_forbidden'],
      [['body', 'custom_headers', 0, 'secret'], 'extra_forbidden'],
    ])
  })

  t.test('404 and 403 do not tell a group manager which agents keep a tool out of scope', async t => {
    const curator = await world.token('curator@example.com')
    const refused = await put(world, curator, 15, { name: 'x' })
    t.equal(refused.status, 403)
    t.match(refused.headers, {
      'www-authenticate': 'Bearer realm="agents", error="insufficient_scope", scope="manage:actions"',
    })
    t.notMatch(refused.text.replace(/"request_id":"[^"]*"/, ''), /Eng|Sales|Alice|\d{2}/)
  })

  t.test('200: who may not manage a tool reads null for its headers in an agent, who may reads masks', async t => {
    await put(world, admin, 11, { custom_headers: [{ key: 'X-A', value: 'secret' }] })
    await world.call('PATCH', '/persona/1?update_mask=tool_ids', { token: admin, body: { tool_ids: [11] } })
    const headersFor = async (email: string, scopes?: ['basic']) => {
      const token = await world.token(email, scopes ? { scopes } : {})
      const answer = await world.call('PATCH', '/persona/1?update_mask=&dry_run=true', { token, body: {} })
      return answer.json().tools[0].custom_headers
    }
    t.equal(await headersFor('alice@example.com'), null)
    t.match(await headersFor('admin@example.com'), [{ key: 'X-A', value: /^\*{4}#[0-9a-f]{12}$/ }])
    await sql`insert into persona_user values (1, 'a0000000-0000-4000-8000-000000000002', 'editor')`.execute(
      world.database.db,
    )
    t.match(await headersFor('curator@example.com'), [{ key: 'X-A', value: /^\*{4}#/ }], 'the manager who owns it')
    t.equal(await headersFor('curator@example.com', ['basic']), null, 'by a token that cannot manage tools')
  })
})
