import fc from 'fast-check'
import type { LightMyRequestResponse } from 'fastify'
import t, { type Test } from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { worldApp } from '../app.js'
import { agentctl } from '../cli/agentctl.js'
import { DEFINITION } from '../matrix-organisation.js'
import { versionOf, warningsOf } from '../updates/stored-state.js'

/*
 * Nobody can make themselves the manager of a tool or redirect a tool's secrets. The scope of a group manager depends on what others attached, and a
 * secret stays with the origin that it was given for (DECISIONS sections 5 and 6).
 */
const email = (name: string) => `${name}@example.com`
const definitionAt = (...urls: string[]) => ({ ...DEFINITION, servers: urls.map(url => ({ url })) })
const HOME = 'https://weather.example.com'
const TOO = 'https://too.example.com'
const ELSEWHERE = 'https://collector.example.net'
const SECRET = { key: 'X-Key', value: 'of the owner' }
const [NOBODYS, OWNERS, MANAGERS] = [300, 301, 302]
const OUTSIDE = 200
const [THEIR_AGENT, EDITED_AGENT] = [100, 103]

const agent = (id: number, owner: string, columns: object = {}) => {
  return { id, name: `agent ${id}`, owner: email(owner), recency_bias: 'auto', ...columns }
}
const tool = (id: number, columns: object = {}) => {
  return { id, name: `tool ${id}`, owner: email('owner'), definition: definitionAt(HOME), ...columns }
}
const plain = {
  ...{ definition: definitionAt(HOME), passthrough_auth: false },
  ...{ custom_headers: [] as { key: string; value: string }[], oauth_config_id: null as number | null },
}
const EVERYTHING = { passthrough_auth: true, oauth_config_id: NOBODYS }
type Tool = typeof plain
/** The tools of the manager's groups. */
const TOOLS: Record<number, Tool> = {
  201: { ...plain, custom_headers: [SECRET] },
  202: { ...plain, oauth_config_id: NOBODYS },
  203: plain,
  205: { ...plain, passthrough_auth: true },
  207: { ...plain, definition: definitionAt(HOME, TOO), custom_headers: [SECRET], ...EVERYTHING },
  208: { ...plain, oauth_config_id: MANAGERS },
}

const groups = [{ name: 'Managed', level: 'viewer' }]
const ORGANISATION = {
  version: 1,
  users: ['owner', 'manager', 'manager-too', 'other'].map(name => ({ email: email(name) })),
  groups: [
    { id: 900, name: 'Managed', managers: [email('manager'), email('manager-too')] },
    { name: 'Others', members: [email('other')] },
  ],
  oauth_configs: [
    { id: NOBODYS, name: 'nobody' },
    { id: OWNERS, name: 'of the owner', owner: email('owner') },
    { id: MANAGERS, name: 'of the manager', owner: email('manager') },
  ],
  tools: [
    tool(OUTSIDE, { custom_headers: [SECRET] }),
    tool(204, { owner: email('manager'), custom_headers: [SECRET] }),
    ...Object.entries(TOOLS).map(([id, { oauth_config_id, ...columns }]) =>
      tool(Number(id), { ...columns, oauth_config: oauth_config_id }),
    ),
  ],
  agents: [
    agent(THEIR_AGENT, 'manager', { groups }),
    agent(101, 'owner', { groups, tools: [201, 202, 203, 205, 207, 208] }),
    agent(EDITED_AGENT, 'owner', { groups, users: [{ email: email('manager'), level: 'editor' }] }),
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
  const send = (name: string, method: string, url: string, body?: object) =>
    world.call(method, url, { token: tokens.get(name) ?? '', ...(body && { body }) })
  const patch = async (name: string, id: number, body: object) => {
    const answer = await send(name, 'PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, body)
    if (answer.statusCode !== 200) throw new Error(answer.body)
  }
  return {
    world,
    send,
    patch,
    get: (name: string, id: number) => send(name, 'GET', `/tool/${id}`),
    put: (name: string, id: number, body: object, query = '') =>
      send(name, 'PUT', `/admin/tool/custom/${id}${query}`, body),
    attach: (name: string, id: number, tool_ids: number[]) => patch(name, id, { tool_ids }),
  }
}

t.test('scope of a group manager', async t => {
  const { send, get, put, attach } = await rightsWorld(t)
  const status = async (name: string, id: number) => (await put(name, id, {})).statusCode

  t.test('403: a tool that the manager attached to an agent of their own stays beyond them', async t => {
    t.equal(await status('manager', OUTSIDE), 403, 'on no agent')
    await attach('manager', THEIR_AGENT, [OUTSIDE])
    t.equal((await put('manager', OUTSIDE, { definition: definitionAt(ELSEWHERE) })).statusCode, 403)
    t.match((await get('manager', OUTSIDE)).json(), { custom_headers: null }, 'nor do they see its masks')
    const validate = `/admin/tool/custom/validate?tool_id=${OUTSIDE}`
    t.equal((await send('manager', 'POST', validate, { definition: DEFINITION })).statusCode, 403, 'nor what uses it')
    t.equal(await status('manager-too', OUTSIDE), 200, 'it is shared with the group of another manager')
  })

  t.test("attached to another's agent it counts by its owner alone, and stays so when others change it", async t => {
    await attach('manager', EDITED_AGENT, [OUTSIDE])
    t.equal(await status('manager', OUTSIDE), 403)
    await attach('owner', EDITED_AGENT, [OUTSIDE])
    t.equal(await status('manager', OUTSIDE), 403, 'it was there already: who attached it has not changed')
    await attach('owner', EDITED_AGENT, [])
    await attach('owner', EDITED_AGENT, [OUTSIDE])
    t.equal(await status('manager', OUTSIDE), 200)
    await attach('manager', EDITED_AGENT, [OUTSIDE, 203])
    t.equal(await status('manager', OUTSIDE), 200, 'the manager adds another tool')
  })

  t.test('403 for what a restoration of its editor or of others attaches again', async t => {
    for (const name of ['manager', 'admin']) {
      await attach('admin', EDITED_AGENT, [])
      await attach('admin', THEIR_AGENT, [])
      const version = versionOf(await send('owner', 'GET', `/persona/${EDITED_AGENT}`)) - 1
      const restored = await send(name, 'POST', `/persona/${EDITED_AGENT}/restore`, { version })
      t.match(restored.json(), { tools: [{ id: OUTSIDE }] })
      t.equal(await status('manager', OUTSIDE), 403, name)
    }
  })

  t.test('403 names no agent that stands outside', async t => {
    for (const id of [104, 105, 106]) await attach('other', id, [203])
    const refused = await put('manager', 203, {})
    t.match(refused, { statusCode: 403, body: /and someone else attached the tool to one of these agents\."/ })
    t.notMatch(refused.body.replace(/"request_id":"[^"]*"/, ''), /other@|agent 10/)
  })
})

t.test('an OAuth configuration is linked by its owner, and with manage:actions', async t => {
  const { get, put } = await rightsWorld(t)
  const missing = await put('manager', 204, { oauth_config_id: 999 })
  t.match(missing.json(), { detail: [{ loc: ['body', 'oauth_config_id'], type: 'not_found' }] })
  for (const id of [NOBODYS, OWNERS, 2_147_483_648]) {
    for (const query of ['', '?dry_run=true']) {
      const refused = await put('manager', 204, { oauth_config_id: id }, query)
      t.strictSame([refused.statusCode, refused.json()], [422, missing.json()], `configuration ${id}`)
    }
  }
  t.equal((await get('admin', 204)).json().oauth_config_id, null)
  const links = async (name: string, id: number, oauth_config_id: number) =>
    (await put(name, id, { oauth_config_id })).json().oauth_config_id
  t.equal(await links('manager', 204, MANAGERS), MANAGERS, 'their own')
  t.equal(await links('manager', 202, NOBODYS), NOBODYS, 'the one that the tool has already')
  t.equal(await links('manager', 202, MANAGERS), MANAGERS)
  t.equal(await links('manager', 202, NOBODYS), undefined, 'gone from the tool, it is not theirs')
  t.equal(await links('admin', 202, OWNERS), OWNERS)
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
  const elsewhere = { definition: definitionAt(ELSEWHERE) }

  t.test('403: a manager through groups adds no origin while header values or OAuth stay', async t => {
    const { '/now': now } = DEFINITION.paths
    const servers = [{ url: ELSEWHERE }]
    const home = 'weather.example.com'
    const variables = { host: { default: 'collector' }, rest: { default: '.evil.example' } }
    const listed = { h: { default: home, enum: [home, 'evil.example'] } }
    // Each variable alone keeps the origin. Together, they turn the host into a password.
    const together = { port: { default: '', enum: ['', ':443'] }, end: { default: '', enum: ['', '@evil.example'] } }
    const definitions = [
      definitionAt(ELSEWHERE),
      definitionAt(HOME, ELSEWHERE),
      definitionAt('http://weather.example.com'),
      definitionAt('https://weather.example.com:8443'),
      definitionAt('/relative'),
      definitionAt('http:/collector.example.net'),
      definitionAt(...Array.from({ length: 1000 }, () => HOME), ELSEWHERE),
      { ...DEFINITION, servers: [{ url: 'https://{host}.example.com', variables }] },
      { ...DEFINITION, servers: [{ url: `${HOME}{rest}`, variables }] },
      { ...DEFINITION, servers: [{ url: 'https://{h}', variables: listed }] },
      { ...DEFINITION, servers: [{ url: HOME }, { url: `${HOME}{port}{end}`, variables: together }] },
      { ...DEFINITION, paths: { '/now': { ...now, servers } } },
      { ...DEFINITION, paths: { '/now': { get: { ...now.get, servers } } } },
      { ...DEFINITION, paths: { '/now': { $ref: '#/x-items/now' } }, 'x-items': { now: { ...now, servers } } },
    ]
    const tags = async () => await Promise.all([201, 202, 205].map(async id => (await get('admin', id)).headers.etag))
    const [before, custom_headers] = [await tags(), await mask(201)]
    for (const definition of definitions) {
      await refused(t, 201, { definition, custom_headers })
      await refused(t, 202, { definition })
    }
    const hosts = ['@collector.example.net', '.collector.example.net', ':8443', '//collector.example.net']
    const joined = hosts.map(host => ({ ...DEFINITION, paths: { [`${host}/a`]: now } }))
    for (const definition of [...joined, definitionAt(`${HOME}\\@collector.example.net/`)])
      t.equal((await put('manager', 201, { definition })).statusCode, 422, 'nobody may store it')
    await refused(t, 202, { passthrough_auth: true })
    await refused(t, 203, { passthrough_auth: true, ...elsewhere })
    await refused(t, 205, elsewhere)
    await refused(t, 208, elsewhere)
    t.strictSame(await tags(), before, 'nothing is stored')
  })

  t.test('200: within the origin, or with secrets given anew or taken away, they change what they like', async t => {
    const anew = [{ key: 'Authorization', value: 'Bearer of-the-manager' }]
    for (const [id, body] of [
      [201, { definition: definitionAt(`${HOME}/v2`) }],
      [201, { custom_headers: await mask(201), name: 'renamed' }],
      [203, elsewhere],
      [202, { ...elsewhere, oauth_config_id: null }],
      [205, { passthrough_auth: false }],
      [208, { ...elsewhere, oauth_config_id: MANAGERS }],
      [201, { ...elsewhere, custom_headers: anew }],
      [201, { ...elsewhere, name: 'same origin' }],
    ] as const)
      t.strictSame(told(await put('manager', id, body)), [], `they know where they sent it: ${id}`)
    await refused(t, 205, { passthrough_auth: true })
  })

  t.test('200 with Warning: it names to the owner and managers of all actions where the secrets go now', async t => {
    const now = [`calls of this tool now also send the stored header values to ${ELSEWHERE}`]
    t.strictSame(told(await put('manager', 204, { definition: definitionAt(HOME, ELSEWHERE) })), now, 'as owner')
    t.strictSame(told(await put('admin', 204, { definition: definitionAt(HOME) })), [], 'an origin less is no news')
    t.strictSame(told(await put('admin', 204, elsewhere, '?dry_run=true')), now)
    t.strictSame(told(await put('admin', 202, { oauth_config_id: NOBODYS })), [], 'a configuration is no header value')
    const both = { passthrough_auth: true, definition: definitionAt('https://x.example.org') }
    t.strictSame(told(await put('admin', 202, both)), [
      'calls of this tool now also send the OAuth configuration to https://x.example.org',
      "calls of this tool now also send the callers' own authentication to https://x.example.org",
    ])
  })
})

t.test('a Warning names a server that somebody planted while no secret was stored to those who store one', async t => {
  const { world, get, put } = await rightsWorld(t)
  const planted = await put('manager', 201, { definition: definitionAt(ELSEWHERE), custom_headers: [] })
  t.equal(planted.statusCode, 200, planted.body)
  const goes = [`calls of this tool send the new header values to ${ELSEWHERE}`]
  t.strictSame(told(await put('admin', 201, { custom_headers: [SECRET] }, '?dry_run=true')), goes)
  t.strictSame(told(await put('admin', 201, { custom_headers: [SECRET] })), goes)
  const shown = (await get('admin', 201)).json()
  t.strictSame(told(await put('admin', 201, { custom_headers: shown.custom_headers, name: 'kept' })), [])
  const more = [...shown.custom_headers, { key: 'X-More', value: 'also' }]
  t.strictSame(told(await put('admin', 201, { custom_headers: more })), goes, 'nor later does it pass in silence')
  const whole = { custom_headers: [{ ...SECRET, value: 'other' }], definition: definitionAt(ELSEWHERE) }
  t.strictSame(told(await put('admin', 201, whole)), [], 'a request with the definition is not told')
  const applied = async (fields: object, ...plan: string[]) => {
    const input = JSON.stringify({ version: 1, tools: [{ id: 201, name: 'tool 201', ...fields }] })
    const { stdout, stderr } = await agentctl({ url: world.url, args: ['apply', '-', ...plan], input })
    return stdout + stderr
  }
  const moved = `calls of this tool now also send the stored header values to ${HOME}`
  for (const plan of [['--plan'], []]) t.match(await applied({ definition: definitionAt(HOME) }, ...plan), moved)
  const anew = { custom_headers: [{ ...SECRET, value: 'anew' }] }
  t.match(await applied(anew), `calls of this tool send the new header values to ${HOME}`)
  t.notMatch(await applied({ description: 'the same place' }), 'calls of this tool')
})

/** Returns an answer's warnings about secrets. */
function told(answer: LightMyRequestResponse): string[] {
  if (answer.statusCode !== 200) throw new Error(`${answer.statusCode} ${answer.body}`)
  return warningsOf(answer).filter(text => text.startsWith('calls of'))
}

/*
 * A sequence of allowed requests must not achieve what a single request cannot. A group manager sends random requests. No foreign secret may reach a
 * new origin, and no tool outside the groups may change. Every result must also be possible with one request.
 */
const RUNS = 25
const STEPS_MAX = 10
const MINE = { key: 'X-Key', value: 'of the manager' }
const originsIn = ({ servers }: { servers: { url: string }[] }) => servers.map(({ url }) => new URL(url).origin)

const id = fc.constantFrom(...Object.keys(TOOLS).map(Number))
const agentId = fc.constantFrom(THEIR_AGENT, EDITED_AGENT)
const SERVERS = [[HOME], [`${HOME}/v2`], [TOO], [ELSEWHERE], [HOME, ELSEWHERE], [HOME, TOO]]
const fields = fc.record(
  {
    definition: fc.constantFrom(...SERVERS.map(urls => definitionAt(...urls))),
    custom_headers: fc.constantFrom('masks', 'none', 'mine', 'both'),
    passthrough_auth: fc.boolean(),
    oauth_config_id: fc.constantFrom(null, NOBODYS, MANAGERS),
  },
  { requiredKeys: [] },
)
const weighed = <One>(weight: number, members: { [Name in keyof One]: fc.Arbitrary<One[Name]> }) => {
  return { weight, arbitrary: fc.record(members) }
}
const step = fc.oneof(
  weighed(14, { kind: fc.constant('put' as const), id, fields }),
  weighed(2, { kind: fc.constant('past' as const), id, ago: fc.nat(5) }),
  weighed(2, { kind: fc.constant('agent' as const), agentId, ago: fc.nat(3) }),
  weighed(1, { kind: fc.constant('attach' as const), agentId, tool_ids: fc.subarray([OUTSIDE, 201, 207]) }),
  weighed(1, { kind: fc.constant('share' as const), groups: fc.subarray([900]) }),
)
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

/** Returns the tool's secrets that reach a wrong origin. */
function leaks(id: number, tool: Tool, mask: string | undefined): string[] {
  const before = TOOLS[id] ?? plain
  const had = originsIn(before.definition)
  const isHome = originsIn(tool.definition).every(origin => had.includes(origin))
  const { passthrough_auth, oauth_config_id: config, custom_headers } = tool
  return [
    ...(custom_headers.some(({ value }) => value === mask) && !isHome ? ['a header value'] : []),
    ...(passthrough_auth && !(before.passthrough_auth && isHome) ? ["callers' authentication"] : []),
    ...(config === NOBODYS && !(before.oauth_config_id === NOBODYS && isHome) ? ['an OAuth configuration'] : []),
  ]
}

t.test('no sequence of steps of a group manager reaches what one step is refused', async t => {
  const { send, patch, get, put, attach } = await rightsWorld(t)
  /** Restores the initial state as the administrator. Returns the masks of the owner's header values. */
  const reset = async () => {
    for (const id of [THEIR_AGENT, EDITED_AGENT]) {
      await attach('admin', id, [OUTSIDE]) // attached by the administrator first, so that the link does not count as the manager's
      await patch('admin', id, { tool_ids: [], groups: [900] })
    }
    const masks = new Map<number, string | undefined>()
    for (const [id, tool] of Object.entries(TOOLS)) {
      const answer = await put('admin', Number(id), tool)
      if (answer.statusCode !== 200) throw new Error(answer.body)
      masks.set(Number(id), answer.json().custom_headers[0]?.value)
    }
    return masks
  }
  const read = async (id: number) => (await get('admin', id)).json() as Tool
  const restore = async (path: string, now: LightMyRequestResponse, ago: number) =>
    await send('manager', 'POST', `${path}/restore`, { version: Math.max(1, versionOf(now) - ago) })
  const change = (id: number, body: object) =>
    send('manager', 'PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, body)

  /** Sends the request of a step as the manager. */
  const take = async (one: Step) => {
    if (one.kind === 'attach') return await change(one.agentId, { tool_ids: one.tool_ids })
    if (one.kind === 'share') return await change(THEIR_AGENT, { groups: one.groups })
    if (one.kind === 'agent') {
      const path = `/persona/${one.agentId}`
      return await restore(path, await send('manager', 'GET', path), one.ago)
    }
    const now = await get('admin', one.id)
    if (one.kind === 'past') return await restore(`/admin/tool/custom/${one.id}`, now, one.ago)
    const { custom_headers: which, ...rest } = one.fields
    const { custom_headers: masks } = now.json() as Tool
    const both = [...masks.filter(({ key }) => key === 'X-Key'), { ...MINE, key: 'X-Other' }]
    const body = { ...rest, ...(which && { custom_headers: { masks, none: [], mine: [MINE], both }[which] }) }
    return await put('manager', one.id, body)
  }

  const outside = (await get('admin', OUTSIDE)).headers.etag
  const statuses = new Map<number, number>()
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: STEPS_MAX }), async steps => {
      const masks = await reset()
      for (const one of steps) {
        const { statusCode: status } = await take(one)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        if (status >= 500) throw new Error(`${status}`)
        if (!('id' in one)) continue
        const found = leaks(one.id, await read(one.id), masks.get(one.id))
        if (found.length > 0) throw new Error(`tool ${one.id} sends ${found}`)
      }
      const reached = new Map<number, Tool>()
      for (const one of steps) if ('id' in one) reached.set(one.id, await read(one.id))
      if ((await put('manager', OUTSIDE, {})).statusCode !== 403) throw new Error('a tool outside came into scope')
      const anew = await reset() // the values are the same, but the masks are new
      for (const [id, { definition, custom_headers, passthrough_auth, oauth_config_id }] of reached) {
        const values = custom_headers.map(({ key, value }) => {
          return { key, value: (value === masks.get(id) ? anew.get(id) : undefined) ?? MINE.value }
        })
        const body = { definition, custom_headers: values, passthrough_auth, oauth_config_id }
        const answer = await put('manager', id, body)
        if (answer.statusCode !== 200) throw new Error(`one step to it: ${answer.body}`)
      }
      if ((await get('admin', OUTSIDE)).headers.etag !== outside) throw new Error('a tool outside was changed')
    }),
    { numRuns: RUNS },
  )
  t.ok((statuses.get(200) ?? 0) > RUNS && statuses.has(403), JSON.stringify([...statuses]))
})
