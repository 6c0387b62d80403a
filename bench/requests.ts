import { mintToken } from '../src/auth/token.js'
import { definitionOf, definitionOfBytes } from './definitions.js'
import type { RequestSource } from './load.js'
import { agentFields, attachedTo, type World } from './world.js'

/** Digits of the number that makes each update of a row another one. They keep their width, so the length is fixed. */
const COUNTER_DIGITS = 12

interface Request {
  method: 'PATCH' | 'PUT' | 'POST'
  path: string
  token: string | null
  body: string
  headers?: Record<string, string>
}

/** The parts of Alice's agents that different cases work on, so that one does not change what another finds. */
export function agentsFor(world: World, part: 'changed' | 'tagged' | 'many tools' | 'same'): number[] {
  const parts = { changed: [0, 0.5], tagged: [0.5, 0.6], 'many tools': [0.6, 0.7], same: [0.7, 1] } as const
  const [from, to] = parts[part]
  const at = (share: number) => Math.floor(world.agentIds.length * share)
  return world.agentIds.slice(at(from), at(to))
}

/** A request as it goes over the wire. */
export function bytesOf({ method, path, token, body, headers = {} }: Request): Buffer {
  const authorization = token === null ? '' : `Authorization: Bearer ${token}\r\n`
  const more = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.from(
    `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${authorization}${more.join('')}Content-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
}

/** The body of an agent update: every field but the shares, two tools, one document set, one label. */
export function agentBody(world: World, id: number, description: string) {
  const fields = { ...agentFields(id), description, ...attachedTo(id, world.size) }
  return {
    ...fields,
    llm_model_provider_override: null,
    llm_model_version_override: null,
    remove_image: false,
    uploaded_image_id: null,
    icon_name: null,
    search_start_date: null,
    is_default_persona: false,
    display_priority: null,
    user_file_ids: [],
    replace_base_system_prompt: false,
  }
}

/** Updates of agents, each with a description that was never sent before. */
export function agentUpdates(
  world: World,
  {
    query = '',
    ids = agentsFor(world, 'changed'),
    headers = {},
  }: { query?: string; ids?: number[]; headers?: Record<string, string> } = {},
): RequestSource {
  return cycling(ids, id =>
    counted({
      method: 'PATCH',
      path: `/persona/${id}${query}`,
      token: world.ownerToken,
      body: JSON.stringify(agentBody(world, id, MARK)),
      headers,
    }),
  )
}

/** Updates of the agents with these versions, each with the tag that the one before made. */
export function taggedUpdates(world: World, versions: ReadonlyMap<number, number>): RequestSource {
  return cycling([...versions.keys()], id => {
    let version = versions.get(id) ?? 0
    return () =>
      bytesOf({
        method: 'PATCH',
        path: `/persona/${id}`,
        token: world.ownerToken,
        body: JSON.stringify(agentBody(world, id, `tagged ${++counter}`)),
        headers: { 'If-Match': `"persona-${id}-${version++}"` },
      })
  })
}

/** Updates of agents that have twelve tools each, from their first one on. */
export function manyToolsUpdates(world: World): RequestSource {
  return cycling(agentsFor(world, 'many tools'), id => {
    const body = JSON.stringify({
      ...agentBody(world, id, MARK),
      tool_ids: attachedTo(id, world.size, MANY_TOOLS).tool_ids,
    })
    return counted({ method: 'PATCH', path: `/persona/${id}`, token: world.ownerToken, body })
  })
}

/** So many that the tools are most of the snapshot. */
export const MANY_TOOLS = 12

/** Updates of agents that send what is stored. */
export function unchangedAgents(world: World): RequestSource {
  return cycling(agentsFor(world, 'same'), id => fixed(unchangedAgent(world, id)))
}

/** The update of one agent that sends what is stored. */
export function unchangedAgent(world: World, id: number): Buffer {
  const body = JSON.stringify(agentBody(world, id, agentFields(id).description))
  return bytesOf({ method: 'PATCH', path: `/persona/${id}`, token: world.ownerToken, body })
}

/** Agent updates with faults of three kinds. */
export function faultyAgents(world: World): RequestSource {
  return cycling(agentsFor(world, 'same'), id => {
    const body = { ...agentBody(world, id, 'x'), num_chunks: 'many', is_public: 1, recency_bias: 'never' }
    return fixed(
      bytesOf({ method: 'PATCH', path: `/persona/${id}`, token: world.ownerToken, body: JSON.stringify(body) }),
    )
  })
}

/** Validations of a definition of ten operations, one of which has a fault in its parameters. */
export function faultyDefinitions(world: World): RequestSource {
  const definition = structuredClone(definitionOf(10)) as { paths: Record<string, unknown> }
  definition.paths['/faulty'] = { get: { operationId: 'faulty', parameters: [{ name: 'id', in: 'nowhere' }] } }
  return validationsOf(world, definition)
}

/** Updates of tools with a definition of ten operations that is in turn one of two. */
export function toolUpdates(world: World): RequestSource {
  const bodies = TOOL_DEFINITIONS.map(definition => JSON.stringify(toolFields(definition)))
  return cycling(world.toolIds, id => {
    const path = `/admin/tool/custom/${id}`
    const requests = bodies.map(body => bytesOf({ method: 'PUT', path, token: world.toolToken, body }))
    let turn = 0
    return () => requests[turn++ % requests.length] as Buffer
  })
}

/** The two definitions that tool updates alternate between. */
export const TOOL_DEFINITIONS = ['Orders, edition A', 'Orders, edition B'].map(title => definitionOf(10, title))

/** The fields of a tool update. */
export function toolFields(definition: Record<string, unknown>) {
  return { name: 'Orders', description: 'Looks up and changes orders', definition, passthrough_auth: false }
}

/** Validations of a definition of so many operations. */
export function validations(world: World, operations: number): RequestSource {
  return validationsOf(world, definitionOf(operations))
}

/** Validations of a definition of about a megabyte. */
export function largeValidations(world: World, bytes = 1_000_000): RequestSource {
  return validationsOf(world, definitionOfBytes(bytes))
}

function validationsOf(world: World, definition: Record<string, unknown>): RequestSource {
  const body = JSON.stringify({ definition })
  const bytes = bytesOf({ method: 'POST', path: '/admin/tool/custom/validate', token: world.toolToken, body })
  return () => fixed(bytes)
}

/** Agent updates of a caller without a token, with something that is none, or with one that was never issued. */
export function unauthenticated(world: World, kind: 'missing' | 'malformed' | 'unknown'): RequestSource {
  const { token } = mintToken('person')
  const given = { missing: null, malformed: `${token.slice(0, -1)}_`, unknown: token }[kind]
  const [id = 1] = world.agentIds
  const bytes = bytesOf({
    method: 'PATCH',
    path: `/persona/${id}`,
    token: given,
    body: JSON.stringify(agentBody(world, id, 'x')),
  })
  return () => fixed(bytes)
}

/** Every connection takes each of its own ids in turn, so that no two write the same row at once. */
function cycling(ids: readonly number[], requestFor: (id: number) => () => Buffer): RequestSource {
  const made = new Map<number, () => Buffer>()
  return (connection, connections) => {
    const own = ids.filter((_, i) => i % connections === connection)
    let turn = Math.floor(Math.random() * own.length)
    return () => {
      const id = own[turn++ % own.length] ?? 0
      let request = made.get(id)
      if (request === undefined) {
        request = requestFor(id)
        made.set(id, request)
      }
      return request()
    }
  }
}

function fixed(bytes: Buffer): () => Buffer {
  return () => bytes
}

const MARK = '@'.repeat(COUNTER_DIGITS)
let counter = Date.now() % 1e11

/** The request with a running number in place of the mark. */
function counted(request: Request): () => Buffer {
  const bytes = bytesOf(request)
  const at = bytes.indexOf(MARK)
  return () => {
    bytes.write(String(++counter).padStart(COUNTER_DIGITS, '0'), at, 'latin1')
    return bytes
  }
}
