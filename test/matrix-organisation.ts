import { mintToken } from '../src/auth/token.js'
import type { World } from './world.js'

/*
 * An organisation in which every kind of caller meets every relation to an agent or a tool (DECISIONS section 6).
 * Names say the relation, so that the golden file reads without it.
 */

const email = (name: string) => `${name}@example.com`
const person = (name: string, permissions: string[] = []) => ({ email: email(name), permissions })

/** The smallest definition that is accepted. */
export const DEFINITION = {
  openapi: '3.1.0',
  info: { title: 'Weather' },
  servers: [{ url: 'https://weather.example.com' }],
  paths: { '/now': { get: { operationId: 'now', summary: 'The weather now' } } },
}

const shares = {
  users: [
    { email: email('viewer'), level: 'viewer' },
    { email: email('editor'), level: 'editor' },
    { email: email('viewer-and-group-editor'), level: 'viewer' },
  ],
  groups: [
    { name: 'Viewers', level: 'viewer' },
    { name: 'Editors', level: 'editor' },
  ],
}

function agent(id: number, name: string, columns: object) {
  const defaults = { llm_filter_extraction: true, llm_relevance_filter: false, recency_bias: 'auto', is_public: false }
  return { id, name, description: '', owner: email('owner'), ...defaults, ...columns }
}

/** Agents by what they are to the callers. `shared` has an owner, viewers and editors, by user and by group. */
const AGENTS = {
  private: agent(100, 'private', {}),
  shared: agent(101, 'shared', shares),
  public: agent(102, 'public', { is_public: true }),
  'shared, hidden': agent(103, 'shared, hidden', { ...shares, is_visible: false }),
  'public default': agent(104, 'public default', { is_public: true, is_default_persona: true }),
  'public built-in': agent(105, 'public built-in', { is_public: true, builtin_persona: true }),
  'private built-in': agent(106, 'private built-in', { builtin_persona: true }),
  'shared, deleted': agent(107, 'shared, deleted', { ...shares, deleted: true }),
  'for Managed to view': agent(108, 'for Managed to view', { groups: [{ name: 'Managed', level: 'viewer' }] }),
  'for Managed to edit': agent(109, 'for Managed to edit', { groups: [{ name: 'Managed', level: 'editor' }] }),
  "the manager's": agent(110, "the manager's", { owner: email('manager') }),
  'public without owner': agent(111, 'public without owner', { owner: null, is_public: true }),
  'private without owner': agent(112, 'private without owner', { owner: null }),
} as const

const DELETED_MANAGED = agent(113, 'deleted, for Managed', { groups: [{ name: 'Managed' }], deleted: true })

/** What is attached to it counts as attached by its owner, the manager. */
const MANAGERS_SHARED = agent(114, "the manager's, for Managed", {
  owner: email('manager'),
  groups: [{ name: 'Managed' }],
})

const inside = AGENTS['for Managed to view']
const insideToo = AGENTS['for Managed to edit']
const outside = AGENTS.private
const deletedOutside = AGENTS['shared, deleted']

function tool(id: number, columns: object, attachedTo: { id: number }[] = []) {
  return { entry: { id, name: `tool ${id}`, owner: email('owner'), definition: DEFINITION, ...columns }, attachedTo }
}

/** Tools by what they are and where they are attached: inside the groups that `manager` manages, or outside. */
const TOOLS = {
  unattached: tool(200, {}),
  'unattached, without owner': tool(201, { owner: null }),
  "the manager's, unattached": tool(202, { owner: email('manager') }),
  "the manager's, attached outside": tool(203, { owner: email('manager') }, [outside]),
  'attached inside': tool(204, {}, [inside]),
  'attached inside twice': tool(205, {}, [inside, insideToo]),
  'attached inside and outside': tool(206, {}, [inside, outside]),
  'attached outside': tool(207, {}, [outside]),
  'attached inside and to a deleted one': tool(208, {}, [inside, deletedOutside]),
  'attached inside to a deleted one': tool(209, {}, [DELETED_MANAGED]),
  "attached inside and to the manager's own": tool(210, {}, [inside, AGENTS["the manager's"]]),
  'attached inside, disabled': tool(211, { enabled: false }, [inside]),
  'attached inside by the manager': tool(215, {}, [MANAGERS_SHARED]),
  'attached inside by the manager and by another': tool(216, {}, [MANAGERS_SHARED, inside]),
  'built-in': tool(212, { in_code_tool_id: 'CalculatorTool', owner: null }, [inside]),
  'of an MCP server': tool(213, { mcp_server: 'Docs MCP' }, [inside]),
  "the manager's, of an MCP server": tool(214, { owner: email('manager'), mcp_server: 'Docs MCP' }),
}

/** The document that makes all this, to be applied over the recorded cases' organisation. */
export function matrixOrganisation(): object {
  const tools = Object.values(TOOLS)
  const attached = (id: number) => tools.filter(({ attachedTo }) => attachedTo.some(to => to.id === id))
  const agents = [...Object.values(AGENTS), DELETED_MANAGED, MANAGERS_SHARED]
  return {
    version: 1,
    users: [
      ...['owner', 'stranger', 'viewer', 'editor', 'group-viewer', 'group-editor', 'viewer-and-group-editor'].map(
        name => person(name),
      ),
      ...['manager', 'group-actions', 'group-admin'].map(name => person(name)),
      person('actions', ['manage:actions']),
      { ...person('leaver', ['admin']), active: false },
      { ...person('service'), kind: 'service_account' },
      { ...person('service-admin', ['admin']), kind: 'service_account' },
    ],
    groups: [
      { name: 'Viewers', members: [email('group-viewer')] },
      { name: 'Editors', members: [email('group-editor'), email('viewer-and-group-editor')] },
      { name: 'Managed', managers: [email('manager')] },
      { name: 'Actions', permissions: ['manage:actions'], members: [email('group-actions')] },
      { name: 'Admins', permissions: ['admin'], members: [email('group-admin')] },
    ],
    tools: tools.map(({ entry }) => entry),
    agents: agents.map(entry => ({ ...entry, tools: attached(entry.id).map(one => one.entry.id) })),
  }
}

const ids = (entries: [string, number | string][]) => new Map(entries)

/** The addresses that no row has, and one that is no id. */
const NOWHERE: [string, number | string][] = [
  ['nonexistent', 999_999],
  ['out of range', 2_147_483_648],
  ['zero', 0],
  ['negative', -1],
  ['no integer', 'abc'],
]

/** The ids of the matrix's agents by relation, then addresses without one. */
export const AGENT_IDS = ids([
  ...Object.entries(AGENTS).map(([name, { id }]): [string, number] => [name, id]),
  ...NOWHERE,
])

/** The ids of the matrix's tools by relation, then addresses without one. */
export const TOOL_IDS = ids([
  ...Object.entries(TOOLS).map(([name, { entry }]): [string, number] => [name, entry.id]),
  ...NOWHERE,
])

/** Every kind of caller by name: the `Authorization` header that it sends, undefined for none. */
export async function matrixCallers({ token, database }: World): Promise<Map<string, string | undefined>> {
  const bearer = async (...given: Parameters<typeof token>) => `Bearer ${await token(...given)}`
  const of = (name: string, options: Parameters<typeof token>[1] = {}) => bearer(email(name), options)
  const revoked = await of('admin', {})
  await database.db
    .updateTable('token')
    .set({ revoked_at: new Date().toISOString() })
    .where('id', '=', eb => eb.selectFrom('token').select(eb.fn.max('id').as('last')))
    .execute()
  return new Map<string, string | undefined>([
    ['no token', undefined],
    ['another scheme', 'Basic YWxpY2U6c2VjcmV0'],
    ['a scheme without a token', 'Bearer'],
    ['a text that is no token', 'Bearer secret'],
    ['an unknown token', `Bearer ${mintToken('person').token}`],
    ['an expired token', await of('admin', { expiresInS: -1 })],
    ['a revoked token', revoked],
    ['an inactive admin', await of('leaver')],
    ['stranger', await of('stranger')],
    ['owner', await of('owner')],
    ['viewer by user', await of('viewer')],
    ['editor by user', await of('editor')],
    ['viewer by group', await of('group-viewer')],
    ['editor by group', await of('group-editor')],
    ['viewer by user and editor by group', await of('viewer-and-group-editor')],
    ['group manager', await of('manager')],
    ['manage:actions by user', await of('actions')],
    ['manage:actions by group', await of('group-actions')],
    ['admin by user', await of('admin')],
    ['admin by group', await of('group-admin')],
    ['service account', await of('service')],
    ['service account, admin', await of('service-admin')],
    ["owner's read-only token", await of('owner', { scopes: ['read'] })],
    ["admin's read-only token", await of('admin', { scopes: ['read'] })],
    ["owner's token of scope admin", await of('owner', { scopes: ['admin'] })],
    ["admin's token of scope basic", await of('admin', { scopes: ['basic'] })],
    ["admin's token of scope manage:actions", await of('admin', { scopes: ['manage:actions'] })],
    ["manage:actions' token of scope basic", await of('actions', { scopes: ['basic'] })],
    ["group manager's token of scope basic", await of('manager', { scopes: ['basic'] })],
    ["group manager's token of scope manage:actions", await of('manager', { scopes: ['manage:actions'] })],
    ["owner's token bound to agent shared", await of('owner', { personaIds: [AGENTS.shared.id] })],
    ["admin's token bound to agent shared", await of('admin', { personaIds: [AGENTS.shared.id] })],
    ["admin's token bound to the deleted agent", await of('admin', { personaIds: [deletedOutside.id] })],
    ["stranger's token bound to agent private", await of('stranger', { personaIds: [AGENTS.private.id] })],
    ["admin's token bound to tool unattached", await of('admin', { toolIds: [200] })],
    ["group manager's token bound to tool attached outside", await of('manager', { toolIds: [207] })],
    [
      "admin's token bound to agent shared and tool unattached",
      await of('admin', { personaIds: [AGENTS.shared.id], toolIds: [200] }),
    ],
  ])
}
