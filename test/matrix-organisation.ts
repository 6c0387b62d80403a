import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import type { TokenRequest } from '../src/admin/tokens.js'
import { mintToken } from '../src/auth/token.js'
import type { World } from './world.js'

type Entries<Entry = object> = Record<string, { id: number } & Entry>

interface Matrix {
  users: Record<string, object>
  groups: object[]
  agents: Entries
  more_agents: Entries
  tools: Entries<{ on?: string[] }>
  callers: Record<string, [user: string, allowed?: Omit<TokenRequest, 'email'>]>
}

const MATRIX: Matrix = parse(readFileSync(new URL('../../test/fixtures/matrix.yaml', import.meta.url), 'utf8')) // a file of this repository

/** A minimal valid definition. */
export const DEFINITION = {
  openapi: '3.1.0',
  info: { title: 'Weather' },
  servers: [{ url: 'https://weather.example.com' }],
  paths: { '/now': { get: { operationId: 'now', summary: 'The weather now' } } },
}

/** Returns the document that adds the organisation of the matrix to the recorded organisation. */
export function matrixOrganisation(): object {
  const owner = 'owner@example.com'
  const agent = { description: '', owner, llm_filter_extraction: true, llm_relevance_filter: false, is_public: false }
  const tools = Object.values(MATRIX.tools)
  const idsOn = (name: string) => tools.filter(({ on }) => on?.includes(name)).map(({ id }) => id)
  return {
    version: 1,
    users: Object.entries(MATRIX.users).map(([name, entry]) => ({ email: emailOf(name), permissions: [], ...entry })),
    groups: MATRIX.groups,
    tools: tools.map(({ on: _, ...entry }) => ({ name: `tool ${entry.id}`, owner, definition: DEFINITION, ...entry })),
    agents: Object.entries({ ...MATRIX.agents, ...MATRIX.more_agents }).map(([name, entry]) => {
      return { name, ...agent, recency_bias: 'auto', ...entry, tools: idsOn(name) }
    }),
  }
}

const emailOf = (name: string) => `${name}@example.com`

/** Returns the ids of entries by name, then ids that no row has, and one that is not an id. */
function idsOf(entries: Entries): Map<string, number | string> {
  const nowhere = { nonexistent: 999_999, 'out of range': 2_147_483_648, zero: 0, negative: -1, 'no integer': 'abc' }
  const ids = Object.entries(entries).map(([name, { id }]): [string, number] => [name, id])
  return new Map<string, number | string>([...ids, ...Object.entries(nowhere)])
}

export const AGENT_IDS = idsOf(MATRIX.agents)
export const TOOL_IDS = idsOf(MATRIX.tools)

/** Returns the `Authorization` header of every kind of caller; undefined for a caller without one. */
export async function matrixCallers({ token, query }: World): Promise<Map<string, string | undefined>> {
  const bearer = async (name: string, options?: Omit<TokenRequest, 'email'>) =>
    `Bearer ${await token(emailOf(name), options)}`
  const revoked = await bearer('admin')
  await query`update token set revoked_at = now() where id = (select max(id) from token)`
  const callers = new Map<string, string | undefined>([
    ['no token', undefined],
    ['another scheme', 'Basic YWxpY2U6c2VjcmV0'],
    ['a scheme without a token', 'Bearer'],
    ['a text that is no token', 'Bearer secret'],
    ['an unknown token', `Bearer ${mintToken('person').token}`],
    ['an expired token', await bearer('admin', { expiresInS: -1 })],
    ['a revoked token', revoked],
    ['an inactive admin', await bearer('leaver')],
  ])
  for (const [caller, [user, allowed]] of Object.entries(MATRIX.callers))
    callers.set(caller, await bearer(user, allowed))
  return callers
}
