import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { worldApp } from '../app.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { DEFINITION } from '../matrix-organisation.js'

/*
 * Nobody makes themselves the manager of a tool, or sends the secrets of a tool elsewhere. A group manager's scope comes from
 * what others attached, and a secret stays with the origin that it was given for (DECISIONS sections 5 and 6).
 */
const email = (name: string) => `${name}@example.com`
const definitionAt = (...urls: string[]) => ({ ...DEFINITION, servers: urls.map(url => ({ url })) })
const HOME = 'https://weather.example.com'
const ELSEWHERE = 'https://collector.example.net'
const SECRET = { key: 'Authorization', value: 'Bearer a-secret-of-the-owner' }

const agent = (id: number, owner: string | null, columns: object = {}) => ({
  id,
  name: `agent ${id}`,
  owner: owner === null ? null : email(owner),
  recency_bias: 'auto',
  ...columns,
})
const managed = { groups: [{ name: 'Managed', level: 'viewer' }] }
const tool = (id: number, columns: object = {}) => ({
  id,
  name: `tool ${id}`,
  owner: email('owner'),
  definition: definitionAt(HOME),
  ...columns,
})

const ORGANISATION = {
  version: 1,
  users: ['owner', 'manager', 'manager-too'].map(name => ({ email: email(name) })).concat({ email: email('other') }),
  groups: [
    { name: 'Managed', managers: [email('manager'), email('manager-too')] },
    { name: 'Others', members: [email('other')] },
  ],
  oauth_configs: [
    { id: 300, name: 'nobody' },
    { id: 301, name: 'of the owner', owner: email('owner') },
    { id: 302, name: 'of the manager', owner: email('manager') },
  ],
  tools: [
    tool(200, { custom_headers: [SECRET] }),
    tool(201, { custom_headers: [SECRET] }),
    tool(202, { oauth_config: 300 }),
    tool(203),
    tool(204, { owner: email('manager'), custom_headers: [SECRET] }),
    tool(205, { passthrough_auth: true }),
    tool(206),
  ],
  agents: [
    agent(100, 'manager', managed),
    agent(101, 'owner', { ...managed, tools: [201, 202, 203, 205] }),
    agent(102, 'manager', { ...managed, tools: [206] }),
    agent(103, 'owner', { users: [{ email: email('manager'), level: 'editor' }], ...managed }),
    agent(104, 'other'),
    agent(105, 'other', { groups: [{ name: 'Others' }] }),
    agent(106, 'other', { is_public: true }),
  ],
}

async function rightsWorld(t: Parameters<typeof worldApp>[0]) {
  const world = await worldApp(t)
  await applyOrganisation(world.database, ORGANISATION, { ring: world.ring, env: {} })
  const tokens = new Map<string, string>()
  for (const name of ['owner', 'manager', 'manager-too', 'other', 'admin']) {
    tokens.set(name, await world.token(email(name)))
  }
  const as = (name: string) => tokens.get(name) ?? ''
  return {
    world,
    get: (name: string, id: number) => world.call('GET', `/tool/${id}`, { token: as(name) }),
    put: (name: string, id: number, body: object, query = '') =>
      world.call('PUT', `/admin/tool/custom/${id}${query}`, { token: as(name), body }),
    attach: async (name: string, id: number, tool_ids: number[]) => {
      const answer = await world.call('PATCH', `/persona/${id}?update_mask=tool_ids`, {
        token: as(name),
        body: { tool_ids },
      })
      if (answer.statusCode !== 200) throw new Error(answer.body)
    },
  }
}

t.test('scope of a group manager', async t => {
  const { world, get, put, attach } = await rightsWorld(t)

  t.test('403: a tool that the manager attached to an agent of their own stays beyond them', async t => {
    t.equal((await put('manager', 200, {})).statusCode, 403, 'on no agent')
    await attach('manager', 100, [200])
    const taken = await put('manager', 200, { definition: definitionAt(ELSEWHERE) })
    t.equal(taken.statusCode, 403, taken.body)
    const read = await get('manager', 200)
    t.equal(read.statusCode, 200)
    t.equal(read.json().custom_headers, null, 'nor do they see its masks')
    const impact = await world.call('POST', '/admin/tool/custom/validate?tool_id=200', {
      token: await world.token(email('manager')),
      body: { definition: DEFINITION },
    })
    t.equal(impact.statusCode, 403, 'nor what uses it')
  })

  t.test("200: what one manager attached is another's to manage, as it is shared with their group", async t => {
    t.equal((await put('manager-too', 200, { description: 'by the other manager' })).statusCode, 200)
  })

  t.test("403: attached to another's agent, as its editor, it counts as little", async t => {
    await attach('manager', 103, [200])
    t.equal((await put('manager', 200, {})).statusCode, 403)
  })

  t.test("200: attached by the agent's owner it counts, and stays so when others change the agent", async t => {
    await attach('owner', 103, [200])
    t.equal((await put('manager', 200, {})).statusCode, 403, 'it was there already: who attached it has not changed')
    await attach('owner', 103, [])
    await attach('owner', 103, [200])
    t.equal((await put('manager', 200, {})).statusCode, 200)
    await attach('manager', 103, [200, 203])
    t.equal((await put('manager', 200, {})).statusCode, 200, 'the manager adds another tool')
  })

  t.test("403: a link of before the upgrade, or the operator's, counts as made by the agent's owner", async t => {
    const { rows } = await sql<{ by: string | null }>`
      select attached_by as by from persona_tool where persona_id = 102`.execute(world.database.db)
    t.strictSame(rows, [{ by: null }])
    t.equal((await put('manager', 206, {})).statusCode, 403)
    t.equal((await put('manager-too', 206, {})).statusCode, 200)
  })

  t.test('200 where the agent outside is deleted; 403 where the one inside is, which brings no scope', async t => {
    const { db } = world.database
    const deleted = (id: number, value: boolean) =>
      db.updateTable('persona').set({ deleted: value }).where('id', '=', id).execute()
    await attach('other', 104, [202])
    t.equal((await put('manager', 202, {})).statusCode, 403)
    await deleted(104, true)
    t.equal((await put('manager', 202, {})).statusCode, 200)
    await deleted(101, true)
    const refused = await put('manager', 202, {})
    t.equal(refused.statusCode, 403)
    const token = await world.token(email('manager'))
    const listed = (await world.call('GET', '/persona?limit=100', { token })).json() as { id: number }[]
    t.notOk(
      listed.some(({ id }) => id === 101),
      'nor is it in a list',
    )
    t.equal((await world.call('GET', '/persona/101', { token })).statusCode, 404)
    for (const id of [101, 104]) await deleted(id, false)
    await attach('other', 104, [])
  })

  t.test('403 names no agent that stands outside', async t => {
    for (const id of [104, 105, 106]) await attach('other', id, [203])
    await attach('owner', 103, [])
    const refused = await put('manager', 203, {})
    t.equal(refused.statusCode, 403)
    t.match(refused.json().detail, /that is on no agent outside their groups\.$/)
    t.notMatch(refused.body.replace(/"request_id":"[^"]*"/, ''), /other@|agent 10/)
  })
})

t.test('an OAuth configuration is linked by its owner, and with manage:actions', async t => {
  const { get, put } = await rightsWorld(t)
  const missing = await put('manager', 204, { oauth_config_id: 999 })
  t.match(missing.json(), { detail: [{ loc: ['body', 'oauth_config_id'], type: 'not_found' }] })

  t.test("422 alike: another's, one without an owner, one that does not exist", async t => {
    for (const id of [300, 301, 2_147_483_648]) {
      for (const query of ['', '?dry_run=true']) {
        const refused = await put('manager', 204, { oauth_config_id: id }, query)
        t.equal(refused.statusCode, 422)
        t.strictSame(refused.json(), missing.json(), `configuration ${id}`)
      }
    }
    t.equal((await get('admin', 204)).json().oauth_config_id, null)
  })

  t.test('200: their own, the one that the tool has already, any with manage:actions', async t => {
    t.match((await put('manager', 204, { oauth_config_id: 302 })).json(), { oauth_config_id: 302 })
    t.match((await put('manager', 202, { oauth_config_id: 300, name: 'kept' })).json(), { oauth_config_id: 300 })
    t.match((await put('manager', 202, { oauth_config_id: 302 })).json(), { oauth_config_id: 302 })
    t.equal(
      (await put('manager', 202, { oauth_config_id: 300 })).statusCode,
      422,
      'gone from the tool, it is not theirs',
    )
    t.match((await put('admin', 202, { oauth_config_id: 301 })).json(), { oauth_config_id: 301 })
  })
})

t.test('a secret stays with the origin that it was given for', async t => {
  const { get, put } = await rightsWorld(t)
  const mask = async (id: number) => (await get('admin', id)).json().custom_headers
  const refused = async (t: Test, id: number, body: object) => {
    for (const query of ['?dry_run=true', '']) {
      const answer = await put('manager', id, body, query)
      t.equal(answer.statusCode, 403, `${JSON.stringify(body).slice(0, 200)}: ${answer.body}`)
      t.match(answer.headers['www-authenticate'], /scope="manage:actions"/)
    }
  }

  t.test('403: a manager through groups adds no origin while header values or OAuth stay', async t => {
    const servers = [
      definitionAt(ELSEWHERE),
      definitionAt(HOME, ELSEWHERE),
      definitionAt('http://weather.example.com'),
      definitionAt('https://weather.example.com:8443'),
      definitionAt('/relative'),
      {
        ...DEFINITION,
        servers: [{ url: 'https://{host}.example.com', variables: { host: { default: 'collector' } } }],
      },
      { ...DEFINITION, paths: { '/now': { ...DEFINITION.paths['/now'], servers: [{ url: ELSEWHERE }] } } },
      { ...DEFINITION, paths: { '/now': { get: { ...DEFINITION.paths['/now'].get, servers: [{ url: ELSEWHERE }] } } } },
      definitionAt('http:/collector.example.net'),
      { ...DEFINITION, servers: [{ url: `${HOME}{rest}`, variables: { rest: { default: '.evil.example' } } }] },
      definitionAt(...Array.from({ length: 1000 }, () => HOME), ELSEWHERE),
      {
        ...DEFINITION,
        paths: { '/now': { $ref: '#/x-items/now' } },
        'x-items': { now: { ...DEFINITION.paths['/now'], servers: [{ url: ELSEWHERE }] } },
      },
    ]
    const tags = async () => await Promise.all([201, 202, 205].map(async id => (await get('admin', id)).headers.etag))
    const [before, custom_headers] = [await tags(), await mask(201)]
    for (const definition of servers) {
      await refused(t, 201, { definition })
      await refused(t, 201, { definition, custom_headers })
      await refused(t, 202, { definition })
    }
    for (const host of ['@collector.example.net', '.collector.example.net', ':8443', '//collector.example.net']) {
      const definition = { ...DEFINITION, paths: { [`${host}/a`]: DEFINITION.paths['/now'] } }
      t.equal((await put('manager', 201, { definition })).statusCode, 422, 'nobody may store it')
    }
    const odd = definitionAt(`${HOME}\\@collector.example.net/`)
    t.equal((await put('manager', 201, { definition: odd })).statusCode, 422, 'nobody may store it')
    await refused(t, 202, { passthrough_auth: true })
    await refused(t, 205, { definition: definitionAt(ELSEWHERE) })
    t.strictSame(await tags(), before, 'nothing is stored')
  })

  t.test('200: within the origin, or with secrets given anew or taken away, they change what they like', async t => {
    const elsewhere = definitionAt(ELSEWHERE)
    t.equal((await put('manager', 201, { definition: definitionAt(`${HOME}/v2`) })).statusCode, 200)
    t.equal((await put('manager', 201, { custom_headers: await mask(201), name: 'renamed' })).statusCode, 200)
    t.equal((await put('manager', 203, { definition: elsewhere })).statusCode, 200, 'without secrets')
    t.equal((await put('manager', 202, { definition: elsewhere, oauth_config_id: null })).statusCode, 200)
    t.equal((await put('manager', 205, { definition: elsewhere, passthrough_auth: false })).statusCode, 200)
    const anew = [{ key: 'Authorization', value: 'Bearer of-the-manager' }]
    const given = await put('manager', 201, { definition: elsewhere, custom_headers: anew })
    t.equal(given.statusCode, 200, given.body)
    t.strictSame(told(given), [], 'they know where they sent it')
    t.equal((await put('manager', 201, { definition: elsewhere, name: 'same origin' })).statusCode, 200)
  })

  t.test('200 with Warning: it names to the owner and managers of all actions where the secrets go now', async t => {
    const now = [`calls of this tool now also take the stored header values to ${ELSEWHERE}`]
    t.strictSame(told(await put('manager', 204, { definition: definitionAt(HOME, ELSEWHERE) })), now, 'as owner')
    t.strictSame(told(await put('admin', 204, { definition: definitionAt(HOME) })), [], 'an origin less is no news')
    t.strictSame(told(await put('admin', 204, { definition: definitionAt(ELSEWHERE) }, '?dry_run=true')), now)
    t.equal((await put('admin', 202, { oauth_config_id: 300, passthrough_auth: false })).statusCode, 200)
    const both = { passthrough_auth: true, definition: definitionAt('https://x.example.org') }
    t.strictSame(told(await put('admin', 202, both)), [
      'calls of this tool now also take the OAuth configuration to https://x.example.org',
      "calls of this tool now also take the callers' own authentication to https://x.example.org",
    ])
  })
})

t.test(
  'a Warning names a server that somebody planted while no secret was stored to the caller who stores one',
  async t => {
    const { get, put } = await rightsWorld(t)
    const planted = await put('manager', 201, { definition: definitionAt(ELSEWHERE), custom_headers: [] })
    t.equal(planted.statusCode, 200, planted.body)
    const goes = [`calls of this tool take the new header values to ${ELSEWHERE}`]
    t.strictSame(told(await put('admin', 201, { custom_headers: [SECRET] }, '?dry_run=true')), goes)
    t.strictSame(told(await put('admin', 201, { custom_headers: [SECRET] })), goes)
    const shown = (await get('admin', 201)).json()
    t.strictSame(told(await put('admin', 201, { custom_headers: shown.custom_headers, name: 'kept' })), [])
    const more = [...shown.custom_headers, { key: 'X-Key', value: 'also' }]
    t.strictSame(told(await put('admin', 201, { custom_headers: more })), goes, 'nor later does it pass in silence')
    const whole = { custom_headers: [{ ...SECRET, value: 'Bearer other' }], definition: definitionAt(ELSEWHERE) }
    t.strictSame(told(await put('admin', 201, whole)), [], 'a request with the definition is not told')
  },
)

t.test('agentctl says where secrets go now: apply and its plan', async t => {
  const { world } = await rightsWorld(t)
  const folder = mkdtempSync(join(tmpdir(), 'takeover-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = (name: string, content: unknown) => {
    writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content))
    return join(folder, name)
  }
  const agentctl = async (...args: string[]) => {
    const { stdout, stderr } = await agentctlOf({ url: world.url, args })
    return stdout + stderr
  }
  const now = `calls of this tool now also take the stored header values to ${ELSEWHERE}`
  file('elsewhere.json', definitionAt(ELSEWHERE))
  const document = file('apply.json', {
    version: 1,
    tools: [{ id: 201, name: 'tool 201', definition_file: 'elsewhere.json' }],
  })
  const tool = (fields: object) => file('tool.json', { version: 1, tools: [{ id: 201, name: 'tool 201', ...fields }] })
  const elsewhere = tool({ definition: definitionAt(ELSEWHERE) })
  for (const plan of [['--plan'], []]) t.match(await agentctl('apply', elsewhere, ...plan), now)
  t.match(
    await agentctl('apply', tool({ definition: definitionAt(HOME) }), '--json'),
    `calls of this tool now also take the stored header values to ${HOME}`,
  )
  for (const plan of [['--plan'], []]) t.match(await agentctl('apply', document, ...plan), now)
  t.match(
    await agentctl('apply', tool({ custom_headers: [{ key: 'Authorization', value: 'Bearer anew' }] })),
    `calls of this tool take the new header values to ${ELSEWHERE}`,
  )
  t.notMatch(await agentctl('apply', tool({ description: 'the same place' })), 'calls of this tool')
})

/** What the warnings of a 200 say of secrets. */
function told({ statusCode, headers }: LightMyRequestResponse): string[] {
  if (statusCode !== 200) throw new Error(`${statusCode}`)
  const texts = [...String(headers.warning ?? '').matchAll(/299 - "([^"]*)"/g)].map(([, text]) => text ?? '')
  return texts.filter(text => /^calls of|^the callers/.test(text))
}
