import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { OPERATIONS } from '../../src/mcp/operations.js'
import { REQUIRED_FIELDS } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { observedWorld } from '../security/observed.js'

/* Random requests: header values are sent only to runtime tokens, by two routes, and only of agents that the token's user can see. */

const MARKER = 'marked-secret'
const TOOLS = [10, 11, 13, 17]
const AGENTS = [1, 2, 5, 8, 11]
const RUNTIME_ROUTE = /^\/(?:runtime\/persona\/\d+|tool\/\d+\/headers)$/

const world = await observedWorld(t)
const { query } = world
const admin = await world.token('admin@example.com')
for (const id of TOOLS) {
  const custom_headers = [{ key: 'X-Key', value: `${MARKER}-${id}-` }]
  await world.call('PUT', `/admin/tool/custom/${id}`, { token: admin, body: { custom_headers } })
}

const CALLERS: { email: string; token: string; agents?: number[]; tools?: number[]; isRuntime: boolean }[] = []
for (const email of ['admin@example.com', 'alice@example.com', 'bob@example.com', 'svc_basic@example.com']) {
  for (const scopes of [[], ['read'], ['runtime']] as const)
    CALLERS.push({ email, token: await world.token(email, { scopes }), isRuntime: scopes[0] === 'runtime' })
  const bounds = { personaIds: [2, 11], toolIds: [13] }
  const token = await world.token(email, { scopes: ['runtime'], ...bounds })
  CALLERS.push({ email, token, agents: bounds.personaIds, tools: bounds.toolIds, isRuntime: true })
}

const { paths } = JSON.parse(readFileSync('openapi/openapi.json', 'utf8')) as { paths: Record<string, object> }
const ROUTES = Object.entries(paths).flatMap(([path, item]) => Object.keys(item).map(method => ({ method, path })))
const TODAYS = ['/api/persona/{persona_id}', '/api/tool', '/api/admin/persona', '/api/tool/openapi']
const OFTEN = ROUTES.filter(({ path }) => /runtime|headers/.test(path)).flatMap(route => Array(8).fill(route))
const ALL = [...ROUTES, ...OFTEN, ...TODAYS.map(path => ({ method: 'get', path })), { method: 'post', path: '/mcp' }]

const oneOf = <Value>(values: readonly Value[]) => fc.constantFrom(...values)
const mask = (id: number) => `****#${id}`
const bodies = (id: number, agent: number) => [
  { ...REQUIRED_FIELDS, tool_ids: TOOLS },
  { tool_ids: [id], is_public: agent % 2 === 0 },
  { version: 1 },
  { definition: { ...DEFINITION, servers: [{ url: 'https://elsewhere.example.com' }] } },
  {
    name: 'copy',
    definition: DEFINITION,
    passthrough_auth: false,
    custom_headers: [{ key: 'X-Key', value: mask(id) }],
  },
  ...OPERATIONS.map(({ tool: { name } }) => ({
    ...{ jsonrpc: '2.0', id: 1, method: 'tools/call' },
    params: { name, arguments: { kind: 'tool', id, fields: { description: 'D' } } },
  })),
]
const QUERIES = [
  '',
  '?update_mask=tool_ids',
  '?update_mask=tool_ids,is_public',
  '?dry_run=true',
  '?view=functions',
  '?version=1',
]
const step = fc.record({
  caller: oneOf(CALLERS),
  route: oneOf(ALL),
  id: oneOf(TOOLS),
  agent: oneOf(AGENTS),
  query: oneOf(QUERIES),
  body: fc.nat(99),
})

/** Returns the ids of the tools whose headers the caller may read now, determined from the tables. */
async function readable({ email, agents = [], tools = [] }: (typeof CALLERS)[number]): Promise<number[]> {
  const rows = await query<{ id: number }>`
    select distinct t.id from persona p
    join persona_tool l on l.persona_id = p.id join tool t on t.id = l.tool_id, user_account u
    where u.email = ${email} and not p.deleted and t.enabled
      and (p.owner_id = u.id or p.is_public or u.permissions @> '{admin}'
        or exists (select from persona_user s where s.persona_id = p.id and s.user_id = u.id)
        or exists (select from persona_group s join user_group_member m using (user_group_id)
          where s.persona_id = p.id and m.user_id = u.id))
      and (${agents.length === 0} or p.id = any (${agents}::integer[]) or t.id = any (${tools}::integer[]))`
  return rows.map(({ id }) => id)
}

const given = { answers: 0 }

t.test('no other route, token or sequence of steps answers a secret', async t => {
  const isKept = fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), async steps => {
    for (const { caller, route, id, agent, query, body } of steps) {
      const path = route.path.replace('{persona_id}', String(agent)).replace('{tool_id}', String(id))
      const own = bodies(id, agent)
      const sent = route.method === 'get' || route.method === 'head' ? {} : { body: own[body % own.length] }
      const headers = { accept: 'application/json, text/event-stream' }
      const call = { token: caller.token, headers, ...sent }
      const answer = await world.call(
        route.method.toUpperCase(),
        `${path}${RUNTIME_ROUTE.test(path) ? '' : query}`,
        call,
      )
      const whole = `${JSON.stringify(answer.headers)}${answer.body}`
      const found = [...whole.matchAll(new RegExp(`${MARKER}-(\\d+)-`, 'g'))].map(([, id]) => Number(id))
      if (!whole.includes(MARKER)) continue
      const allowed = caller.isRuntime && RUNTIME_ROUTE.test(path) ? await readable(caller) : []
      if (found.some(id => !allowed.includes(id))) throw new Error(`${caller.email} ${route.method} ${path}: ${found}`)
      given.answers++
    }
  })
  await fc.assert(isKept, { numRuns: 60 })
  t.ok(given.answers > 20, `${given.answers} answers to runtimes had secrets`)
  t.notMatch(world.log.join('\n'), MARKER)
  t.notMatch(world.statements.join('\n'), MARKER)
})
