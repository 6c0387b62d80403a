import type { NextRequest } from './load.js'
import { AGENTS, agentBody, definitionOf, TOOLS, type World } from './world.js'

/** A kind of request to measure. `source(world)(connection)` returns a function that makes the next request of the connection. */
export interface Case {
  name: string
  status: number
  /** True if version 1.0.0 supports the request. That version cannot read agents. */
  isOld: boolean
  /** True if `floor.ts` supports the request: reads and updates of agents, and validations. */
  isOnFloor: boolean
  source: (world: World) => (connection: number) => NextRequest
}

const CONNECTIONS_MAX = 16

function request(method: string, path: string, token: string | null, body: string, headers = ''): Buffer {
  const authorization = token === null ? '' : `Authorization: Bearer ${token}\r\n`
  const length = Buffer.byteLength(body)
  const head = `Host: localhost\r\n${authorization}${headers}Content-Type: application/json\r\nContent-Length: ${length}`
  return Buffer.from(`${method} ${path} HTTP/1.1\r\n${head}\r\n\r\n${body}`)
}

let counter = 0
/** Returns an agent or tool id for a connection's next request. No two connections get the same id, so they never write the same row. */
const own = (connection: number, all: number) => 1 + ((connection + CONNECTIONS_MAX * (counter++ % 13)) % all)

type Body = (id: number, text: string) => object

function agentUpdates(world: World, query = '', headers = '', body: Body = agentBody) {
  return (connection: number) => () => {
    const id = own(connection, AGENTS)
    const text = JSON.stringify(body(id, `Answers questions, edition ${++counter}`))
    return request('PATCH', `/persona/${id}${query}`, world.token, text, headers)
  }
}

/**
 * Updates of tools, each with a definition. With `isNew`, every definition is new. Otherwise, definitions repeat, so the service can use the
 * cached results of earlier checks. Function names contain the tool's id, because they must be unique within an agent.
 */
function toolUpdates(world: World, isNew = false) {
  const bodyOf = (id: number, edition: string) => {
    const definition = definitionOf(10, `Orders, edition ${edition}`, '', `tool${id}Operation`)
    return JSON.stringify({ name: 'Orders', description: 'Changes orders', definition })
  }
  const bodies = ['A', 'B'].map(edition => Array.from({ length: TOOLS + 1 }, (_, id) => bodyOf(id, edition)))
  return (connection: number) => () => {
    const known = bodies[Math.floor(counter / CONNECTIONS_MAX / 13) % 2]
    const id = own(connection, TOOLS)
    const body = isNew ? bodyOf(id, String(counter)) : (known?.[id] ?? '')
    return request('PUT', `/admin/tool/custom/${id}`, world.token, body)
  }
}

function validations(definition: object) {
  return ({ token }: World) => {
    const bytes = request('POST', '/admin/tool/custom/validate', token, JSON.stringify({ definition }))
    return () => () => bytes
  }
}

const masked = (_: number, description: string) => ({ description })
const wrong = (id: number, description: string) => ({ ...agentBody(id, description), num_chunks: 'many', is_public: 1 })
const named = (name: string, status: number, source: Case['source']): Case => {
  return {
    name,
    status,
    source,
    isOld: !name.startsWith('read'),
    isOnFloor: status === 200 && !/^tool|runtime$/.test(name),
  }
}
const minimal = 'Prefer: return=minimal\r\n'
const large = definitionOf(1_500, 'Orders', 'At some length. '.repeat(9))

export const CASES: readonly Case[] = [
  named('agent update', 200, world => agentUpdates(world)),
  named('agent update, one field', 200, world => agentUpdates(world, '?update_mask=description', '', masked)),
  named('agent update, return=minimal', 200, world => agentUpdates(world, '', minimal)),
  named('tool update, 10 operations, known', 200, world => toolUpdates(world)),
  named('tool update, 10 operations, new', 200, world => toolUpdates(world, true)),
  named('validation, 10 operations', 200, validations(definitionOf(10))),
  named('validation, 300 operations', 200, validations(definitionOf(300))),
  named('validation, 1 MB', 200, validations(large)),
  named('agent update, 422', 422, world => agentUpdates(world, '', '', wrong)),
  named('agent update, 401', 401, world => agentUpdates({ ...world, token: world.unknownToken })),
  named('read of an agent', 200, ({ token }) => connection => () => {
    return request('GET', `/persona/${own(connection, AGENTS)}`, token, '')
  }),
  named('read of an agent for a runtime', 200, ({ runtimeToken }) => connection => () => {
    return request('GET', `/runtime/persona/${own(connection, AGENTS)}`, runtimeToken, '')
  }),
]
