import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { ResourceNotFound, SnapshotTooLarge, Unavailable } from '../errors.js'
import { answerTagged, JSON_TYPE } from '../http/answer.js'
import { readResponses, responses } from '../http/openapi.js'
import { IfNoneMatch } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { actorOf } from '../http/writes.js'
import { FEWER_TOOLS, isVisible } from '../persona/rules.js'
import { PersonaRecord } from '../persona/schema.js'
import { openSecret } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { Header } from '../tool/headers.js'
import { ToolFunction, ToolRecord, ToolSnapshot } from '../tool/schema.js'
import { members } from '../tool/snapshot.js'
import { storedText } from '../tool/tool-use.js'
import type { ToolOptions } from '../tool/write-tool.js'
import { words } from '../updates/field-table.js'
import { contentTag, namesState } from '../updates/tag.js'
import { pathId } from '../validation/parameters.js'
import { identifier, list, nullable, reference, text } from '../validation/vocabulary.js'
import { VERSION } from '../version.js'
import {
  AGENT_LOOKUP,
  HEADERS_LOOKUP,
  type RuntimeState,
  type RuntimeTool,
  recordReads,
  SECRET_BYTES_MAX,
} from './statements.js'

/** The fields of an agent that a runtime needs. The answer has the model in a separate property. */
const AGENT_FIELDS = Type.Omit(
  PersonaRecord,
  words('tools labels owner users groups document_sets llm_model_provider_override llm_model_version_override'),
).properties
const AGENT_MEMBERS = [...Object.keys(AGENT_FIELDS), 'version', 'model', 'document_set_ids']
const TOOL_FIELDS = words('id name in_code_tool_id mcp_server_id passthrough_auth oauth_config_id')

const headers = list(Header, {
  description: 'The headers that each call of the tool must send, with values in clear text.',
})
export const RuntimeAgent = Type.Object(
  {
    ...AGENT_FIELDS,
    version: identifier(),
    model: Type.Object({ provider: nullable(text()), version: nullable(text()) }),
    document_set_ids: list(identifier()),
    tools: list(
      Type.Object({
        ...Type.Pick(ToolSnapshot, TOOL_FIELDS).properties,
        version: identifier(),
        faults: ToolRecord.properties.faults,
        headers,
        functions: nullable(list(ToolFunction), {
          description: 'Null for built-in tools and tools of MCP servers. Function names are unique in this answer.',
        }),
      }),
      { description: 'The enabled tools.' },
    ),
  },
  { $id: 'RuntimeAgent' },
)
export const RuntimeHeaders = Type.Object({ headers }, { $id: 'RuntimeHeaders' })
/** Registers the two reads for runtimes: an agent with everything that is needed to run it, and the headers of one tool. */
export function registerReadRuntime(app: FastifyInstance, options: ToolOptions): void {
  const routes = app.withTypeProvider<SchemaTypes>()
  routes.get(
    '/runtime/persona/:persona_id',
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource: 'persona', answersSecrets: true, lookup: AGENT_LOOKUP } },
      schema: {
        operationId: 'read_runtime_persona',
        summary: 'Read Runtime Persona',
        description:
          'Returns an agent with its enabled tools, their functions, and their header values in clear text. Requires a runtime token. For each token, ' +
          "the first read of a tool's headers in an hour is audited. Encrypting the headers with a new key does not change the `ETag`.",
        params: Type.Object({ persona_id: pathId() }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(reference(RuntimeAgent), 'The agent as it is now.', [], [404, 409]),
      },
    },
    async (request, reply) => {
      const state = request.prefetched as RuntimeState | null // set by the route's `lookup`
      if (state === null || !isVisible(state, request.caller)) throw new ResourceNotFound('persona')
      const { secret_bytes, tools, ...agent } = state
      if (tools === null)
        throw new SnapshotTooLarge('The headers of the tools take', secret_bytes, SECRET_BYTES_MAX, FEWER_TOOLS)
      const { llm_model_provider_override: provider, llm_model_version_override: version } = agent
      const shown = members({ ...agent, model: { provider, version } }, AGENT_MEMBERS)
      // The entity tag is made from the masks of header values, because rotating keys does not change masks.
      const masked = tools.map(({ sealed, ...tool }) => [tool, sealed.map(({ mask }) => mask)])
      const tag = contentTag(VERSION, shown, JSON.stringify(masked))
      const ifNoneMatch = request.headers['if-none-match']
      if (ifNoneMatch && namesState(ifNoneMatch, tag)) return answerTagged(reply, tag, '', ifNoneMatch)
      const callable = await callableTools(options, request, tools, secret_bytes)
      await recordReads(options.database, actorOf(request), tools)
      return answerTagged(reply, tag, `{${shown},"tools":${JSON.stringify(callable)}}`)
    },
  )
  routes.get(
    '/tool/:tool_id/headers',
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', answersSecrets: true, lookup: HEADERS_LOOKUP } },
      schema: {
        operationId: 'read_tool_headers',
        summary: 'Read Tool Headers',
        description:
          'Returns the headers of an enabled tool with values in clear text. Requires a runtime token whose user can see an agent with the tool. A bound ' +
          'token must be bound to the tool or to such an agent. For each token, the first read in an hour is audited.',
        params: Type.Object({ tool_id: pathId() }),
        response: responses(
          { 200: { description: 'The headers.', body: reference(RuntimeHeaders), headers: [] } },
          [404],
        ),
      },
    },
    async (request, reply) => {
      const tool = request.prefetched as RuntimeTool | null // set by the route's `lookup`
      if (tool === null) throw new ResourceNotFound('tool')
      const answer = { headers: headersOf(options.ring, tool) }
      await recordReads(options.database, actorOf(request), [tool])
      reply.type(JSON_TYPE)
      return JSON.stringify(answer)
    },
  )
}

interface CallableTool extends Record<string, unknown> {
  id: number
  functions: { name: string }[] | null
}

async function callableTools(options: ToolOptions, request: FastifyRequest, tools: RuntimeTool[], secretBytes: number) {
  const callable: CallableTool[] = []
  let answerBytes = secretBytes
  for (const tool of tools) {
    const shown = Object.fromEntries([...TOOL_FIELDS, 'version' as const].map(name => [name, tool[name]]))
    const functions = await functionsOf(options, request, tool) // one after another, because a token can use only one worker at a time
    answerBytes += Buffer.byteLength(functions)
    if (answerBytes > options.snapshotBytesMax)
      throw new SnapshotTooLarge('The tools take at least', answerBytes, options.snapshotBytesMax, FEWER_TOOLS)
    callable.push({ ...shown, id: tool.id, headers: headersOf(options.ring, tool), ...JSON.parse(functions) })
  }
  return withUniqueNames(callable)
}

/** Caches functions as JSON text. The key consists of the definition's hash and the tool's header names, because both determine the functions. */
const known = new LRUCache<string, string>({ maxSize: 4 * 1024 * 1024 })

async function functionsOf({ database, workers }: ToolOptions, { caller, raw }: FastifyRequest, tool: RuntimeTool) {
  if (tool.in_code_tool_id !== null || tool.mcp_server_id !== null) return '{"functions":null}'
  const headerNames = tool.sealed.map(({ name }) => name)
  const key = JSON.stringify([tool.definition_hash, headerNames])
  const make = () =>
    workers.run('read_functions', { body: {}, caller, raw }, { headerNames }, storedText(database, tool))
  const functions = known.get(key) ?? (await make())
  known.set(key, functions, { size: key.length + functions.length })
  return functions
}

const NAME_CHARACTERS = 64

/**
 * Makes function names unique among all tools. A name that occurs more than once gets the suffix `_TOOLID`. If the new name is already used, the
 * suffix is `_2_TOOLID` and so on. A name that would become too long is cut before the suffix.
 */
export function withUniqueNames(tools: readonly CallableTool[]): CallableTool[] {
  const uses = new Map<string, number>()
  for (const { functions } of tools) for (const { name } of functions ?? []) uses.set(name, (uses.get(name) ?? 0) + 1)
  const renamed = (name: string, id: number) => {
    const ending = (suffix: string) => `${name.slice(0, NAME_CHARACTERS - suffix.length)}${suffix}`
    let chosen = ending(`_${id}`)
    for (let n = 2; uses.has(chosen); n++) chosen = ending(`_${n}_${id}`)
    uses.set(chosen, 1)
    return chosen
  }
  return tools.map(tool => {
    const named = tool.functions?.map(each =>
      uses.get(each.name) === 1 ? each : { ...each, name: renamed(each.name, tool.id) },
    )
    return { ...tool, functions: named ?? null }
  })
}

function headersOf(ring: KeyRing, { id: toolId, sealed }: RuntimeTool): Header[] {
  return sealed.map(({ name, key_id: keyId, nonce, ciphertext }) => {
    const bytes = { nonce: Buffer.from(nonce, 'hex'), ciphertext: Buffer.from(ciphertext, 'hex') }
    const { value, problem } = openSecret(ring, { keyId, ...bytes, toolId, headerName: name })
    if (value !== undefined) return { key: name, value }
    const remedy = problem === 'key_missing' ? `add the key "${keyId}" to the key ring` : 'run agentctl keys status'
    const message = `The header ${name} of tool ${toolId} cannot be decrypted. The operator must ${remedy}.`
    throw new Unavailable('key_missing', message, 'not_applied')
  })
}
