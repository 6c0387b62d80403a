import fc from 'fast-check'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'

/*
 * No sequence of allowed steps reaches what one step is refused: a group manager sends random requests, and no secret that is not theirs
 * comes to an origin that did not have it, and no tool outside their groups is changed. What a sequence reached, one request reaches too.
 */
const RUNS = 25
const STEPS_MAX = 10

const email = (name: string) => `${name}@example.com`
const HOME = 'https://weather.example.com'
const TOO = 'https://too.example.com'
const ELSEWHERE = 'https://collector.example.net'
const definitionAt = (...urls: string[]) => ({ ...DEFINITION, servers: urls.map(url => ({ url })) })
const originsIn = ({ servers }: { servers: { url: string }[] }) => servers.map(({ url }) => new URL(url).origin)

const SECRET = { key: 'X-Key', value: 'of the owner' }
const MINE = { key: 'X-Key', value: 'of the manager' }
const [NOBODYS, MANAGERS] = [300, 302]

interface Tool {
  definition: ReturnType<typeof definitionAt>
  custom_headers: { key: string; value: string }[]
  passthrough_auth: boolean
  oauth_config_id: number | null
}

const plain: Tool = {
  definition: definitionAt(HOME),
  custom_headers: [],
  passthrough_auth: false,
  oauth_config_id: null,
}
/** The tools of the manager's groups as each sequence finds them. */
const TOOLS: Record<number, Tool> = {
  201: { ...plain, custom_headers: [SECRET] },
  202: { ...plain, oauth_config_id: NOBODYS },
  203: plain,
  204: { ...plain, passthrough_auth: true },
  205: {
    definition: definitionAt(HOME, TOO),
    custom_headers: [SECRET],
    passthrough_auth: true,
    oauth_config_id: NOBODYS,
  },
  206: { ...plain, oauth_config_id: MANAGERS },
}
const OUTSIDE = 200
const [THEIR_AGENT, EDITED_AGENT] = [100, 103]

const agent = (id: number, owner: string, columns: object) => {
  return { id, name: `agent ${id}`, owner: email(owner), recency_bias: 'auto', ...columns }
}
const entry = (id: number) => ({ id, name: `tool ${id}`, owner: email('owner'), definition: definitionAt(HOME) })
const world = await worldApp(t)
const groups = [{ name: 'Managed', level: 'viewer' }]
await applyOrganisation(
  world.database,
  {
    version: 1,
    users: ['owner', 'manager'].map(name => ({ email: email(name) })),
    groups: [{ id: 900, name: 'Managed', managers: [email('manager')] }],
    oauth_configs: [
      { id: NOBODYS, name: 'nobody' },
      { id: MANAGERS, name: 'of the manager', owner: email('manager') },
    ],
    tools: [OUTSIDE, ...Object.keys(TOOLS)].map(id => entry(Number(id))),
    agents: [
      agent(THEIR_AGENT, 'manager', { groups }),
      agent(101, 'owner', { groups, tools: Object.keys(TOOLS).map(Number) }),
      agent(EDITED_AGENT, 'owner', { groups, users: [{ email: email('manager'), level: 'editor' }] }),
    ],
  },
  { ring: world.ring, env: {} },
)
const [admin, manager] = [await world.token(email('admin')), await world.token(email('manager'))]

const put = (token: string, id: number, body: object, headers: Record<string, string> = {}) =>
  world.call('PUT', `/admin/tool/custom/${id}`, { token, body, headers })
const patch = (token: string, id: number, body: object) =>
  world.call('PATCH', `/persona/${id}?update_mask=${Object.keys(body)}`, { token, body })

async function read(id: number) {
  const answer = await world.call('GET', `/tool/${id}`, { token: admin })
  return { tool: answer.json() as Tool, tag: String(answer.headers.etag) }
}

/** Everything as at the beginning, by the administrator. Answers the masks of the owner's header values. */
async function reset(): Promise<Map<number, string | undefined>> {
  for (const id of [THEIR_AGENT, EDITED_AGENT]) {
    await patch(admin, id, { tool_ids: [OUTSIDE] }) // what the administrator takes away must not come back as theirs
    await patch(admin, id, { tool_ids: [], groups: [900] })
  }
  const masks = new Map<number, string | undefined>()
  for (const [id, tool] of Object.entries(TOOLS)) {
    const answer = await put(admin, Number(id), tool)
    if (answer.statusCode !== 200) throw new Error(answer.body)
    masks.set(Number(id), answer.json().custom_headers[0]?.value)
  }
  return masks
}

const ids = fc.constantFrom(...Object.keys(TOOLS).map(Number))
const definitions = fc.constantFrom(
  ...[[HOME], [`${HOME}/v2`], [TOO], [ELSEWHERE], [HOME, ELSEWHERE], [HOME, TOO]].map(urls => definitionAt(...urls)),
)
const fields = fc.record(
  {
    definition: definitions,
    custom_headers: fc.constantFrom('masks', 'none', 'mine', 'both'),
    passthrough_auth: fc.boolean(),
    oauth_config_id: fc.constantFrom(null, NOBODYS, MANAGERS),
  },
  { requiredKeys: [] },
)
const step = fc.oneof(
  { weight: 14, arbitrary: fc.record({ kind: fc.constant('put' as const), id: ids, fields }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('past' as const), id: ids, ago: fc.nat(5) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('agent' as const),
      agent: fc.constantFrom(THEIR_AGENT, EDITED_AGENT),
      ago: fc.nat(3),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('attach' as const),
      agent: fc.constantFrom(THEIR_AGENT, EDITED_AGENT),
      tool_ids: fc.subarray([OUTSIDE, 201, 205]),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('share' as const), groups: fc.subarray([900]) }) },
)
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

const restore = async (path: string, version: number) =>
  (await world.call('POST', `${path}/restore`, { token: manager, body: { version } })).statusCode

/** Sends a request of the manager; answers its status. */
async function take(one: Step): Promise<number> {
  if (one.kind === 'attach') return (await patch(manager, one.agent, { tool_ids: one.tool_ids })).statusCode
  if (one.kind === 'agent') {
    const tag = String((await world.call('GET', `/persona/${one.agent}`, { token: manager })).headers.etag)
    return await restore(`/persona/${one.agent}`, Math.max(1, Number(/-(\d+)\./.exec(tag)?.[1]) - one.ago))
  }
  if (one.kind === 'share') return (await patch(manager, THEIR_AGENT, { groups: one.groups })).statusCode
  const { tool, tag } = await read(one.id)
  const version = Number(/-(\d+)\./.exec(tag)?.[1])
  if (one.kind === 'past') {
    const past = Math.max(1, version - one.ago)
    return await restore(`/admin/tool/custom/${one.id}`, past)
  }
  const { custom_headers: which, ...rest } = one.fields
  const { custom_headers: masks } = tool
  const both = [...masks.filter(({ key }) => key === 'X-Key'), { ...MINE, key: 'X-Other' }]
  const body = { ...rest, ...(which && { custom_headers: { masks, none: [], mine: [MINE], both }[which] }) }
  return (await put(manager, one.id, body)).statusCode
}

/** What of the tool reaches an origin that it must not reach. */
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
  const outside = (await read(OUTSIDE)).tag
  const statuses = new Map<number, number>()
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: STEPS_MAX }), async steps => {
      const masks = await reset()
      for (const one of steps) {
        const status = await take(one)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        if (status >= 500) throw new Error(`${status}`)
        if (!('id' in one)) continue
        const found = leaks(one.id, (await read(one.id)).tool, masks.get(one.id))
        if (found.length > 0) throw new Error(`tool ${one.id} sends ${found}`)
      }
      const reached = new Map<number, Tool>()
      for (const id of new Set(steps.flatMap(one => ('id' in one ? [one.id] : []))))
        reached.set(id, (await read(id)).tool)
      if ((await put(manager, OUTSIDE, {})).statusCode !== 403) throw new Error('a tool outside came into scope')
      const anew = await reset() // with new masks of the same values
      for (const [id, { definition, custom_headers, passthrough_auth, oauth_config_id }] of reached) {
        const values = custom_headers.map(({ key, value }) => ({
          key,
          value: (value === masks.get(id) ? anew.get(id) : undefined) ?? MINE.value,
        }))
        const body = { definition, custom_headers: values, passthrough_auth, oauth_config_id }
        const answer = await put(manager, id, body)
        if (answer.statusCode !== 200) throw new Error(`one step to it: ${answer.body}`)
      }
      if ((await read(OUTSIDE)).tag !== outside) throw new Error('a tool outside was changed')
      if ((await put(manager, OUTSIDE, {})).statusCode !== 403) throw new Error('a tool outside can be changed')
    }),
    { numRuns: RUNS },
  )
  t.ok((statuses.get(200) ?? 0) > RUNS && statuses.has(403), JSON.stringify([...statuses]))
})

t.test(
  '403: a manager through groups turns no authentication on, and moves none; others are told where it goes',
  async t => {
    await reset()
    const elsewhere = { definition: definitionAt(ELSEWHERE) }
    const isRefused = async (id: number, body: object) => {
      const answer = await put(manager, id, body)
      t.equal(answer.statusCode, 403, JSON.stringify(body))
      t.match(answer.json().detail, /^A manager through groups cannot turn passthrough_auth on/)
    }
    await isRefused(203, { passthrough_auth: true })
    await isRefused(203, { passthrough_auth: true, ...elsewhere })
    await isRefused(204, elsewhere)
    t.equal((await put(manager, 204, { passthrough_auth: false })).statusCode, 200)
    await isRefused(204, { passthrough_auth: true })
    t.equal((await put(manager, 204, { passthrough_auth: false, ...elsewhere })).statusCode, 200)
    t.equal((await put(manager, 206, elsewhere)).statusCode, 403, 'also with an OAuth configuration of their own')
    t.equal(
      (await put(manager, 206, { ...elsewhere, oauth_config_id: MANAGERS })).statusCode,
      200,
      'that they do not give',
    )
    t.equal((await put(manager, 202, elsewhere)).statusCode, 403, "with somebody else's")
    const warning = async (id: number, body: object) => String((await put(admin, id, body)).headers.warning)
    const named = (to: string) => `"calls of this tool now also take the callers' own authentication to ${to}"`
    t.match(await warning(203, { passthrough_auth: true }), named(HOME))
    t.notMatch(await warning(204, { passthrough_auth: false }), 'authentication to')
    t.match(await warning(204, { passthrough_auth: true, ...elsewhere }), named(ELSEWHERE))
  },
)

t.test('403: a tool that was taken off an agent comes into no scope by a restoration of its editor', async t => {
  await reset()
  const tag = String((await world.call('GET', `/persona/${EDITED_AGENT}`, { token: manager })).headers.etag)
  const version = Number(/-(\d+)\./.exec(tag)?.[1])
  t.equal(await restore(`/persona/${EDITED_AGENT}`, version - 1), 200)
  const { tools } = (await world.call('GET', `/persona/${EDITED_AGENT}`, { token: manager })).json()
  t.match(tools, [{ id: OUTSIDE }])
  t.equal((await put(manager, OUTSIDE, {})).statusCode, 403)
  await reset()
})
