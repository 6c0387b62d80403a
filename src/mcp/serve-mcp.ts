import type { IncomingMessage } from 'node:http'
import type { Server } from '@modelcontextprotocol/server'
import { type Static, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import inject from 'light-my-request'
import { admits } from '../auth/authenticate.js'
import { type Fault, Forbidden, InvalidRequest, Refused } from '../errors.js'
import { clientAddressOf } from '../http/request.js'
import { JSON_BOUNDS, TOOL_BODY_BYTES_MAX } from '../http/validation.js'
import { bodyCheck, parseJsonBody } from '../validation/json-body.js'
import { enumeration, freeForm, text } from '../validation/vocabulary.js'
import { VERSION } from '../version.js'
import { type Ask, type Body, faultsInWords, OPERATIONS, refusal } from './operations.js'

/** The limits of messages. Parsing larger messages would delay other requests. Clients can send larger bodies over HTTP. */
const [BODY_BYTES_MAX, ANSWER_BYTES_MAX] = [2 ** 20, 2 ** 21]

/** The statuses that a refusal of a message with an id keeps. Other statuses become 200, because clients would end the session. */
const STATUSES_KEPT = [401, 403, 429, 500, 503]

const SERVES = { capabilities: { tools: {} }, instructions: 'Read the etag, plan, then store or propose if you can.' }

/** Imported at the first call, because most processes never need the package. Importing it takes a quarter of a second and 24 MB. */
let sdk: Promise<typeof import('@modelcontextprotocol/server')> | undefined

/** `POST /mcp`: the Model Context Protocol without sessions. Each tool sends requests to the operations of this application on behalf of the caller. */
export function registerMcp(app: FastifyInstance, origins: readonly string[]): void {
  app.register(async scope => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_, bytes, done) => done(null, bytes))
    scope.addHook('onSend', async (request, reply, payload) => {
      if (request.refusal === undefined) return payload
      const id = idOf(request.body)
      const refused = inProtocol(id, reply.statusCode, JSON.parse(String(payload)) as Body) // `handleError` wrote it
      if (id !== null && !STATUSES_KEPT.includes(reply.statusCode)) reply.code(200)
      return refused
    })
    scope.post(
      '/mcp',
      {
        bodyLimit: TOOL_BODY_BYTES_MAX,
        config: { policy: { permission: 'basic', asksWithin: true } },
        schema: { hide: true, operationId: 'mcp' },
        // With DNS rebinding, any page can use a host name of this service. An Origin that equals Host is therefore not trusted.
        onRequest: async ({ headers: { origin } }) => {
          if (origin !== undefined && !origins.includes(origin))
            throw new Forbidden('Pages of this origin must not call. The operator can add it to CORS_ORIGINS.')
        },
      },
      async (request, reply) => {
        const message = readMessage((request.body as Buffer | undefined) ?? Buffer.alloc(0)) // the parser above returns a buffer
        sdk ??= import('@modelcontextprotocol/server')
        const { Server, createMcpHandler } = await sdk
        const serve = () => serveTools(new Server({ name: 'agents', version: VERSION }, SERVES), request, app)
        // The errors of the package are not logged, because they quote text from the client.
        const { fetch } = createMcpHandler(serve, { maxSubscriptions: 0 })
        const response = await fetch(protocolRequest(request), { parsedBody: message })
        reply.code(response.status).type(response.headers.get('content-type') ?? 'application/json')
        return reply.send((await response.text()) || undefined)
      },
    )
  })
}

/** The members that this service checks itself, because the package would refuse them without repeating the id. */
const Message = Type.Object({
  jsonrpc: enumeration(['2.0']),
  method: text(),
  params: Type.Optional(Type.Object({ name: Type.Optional(text()), arguments: Type.Optional(freeForm()) })),
})
const checkMessage = bodyCheck(Message)
const BOUNDS = { ...JSON_BOUNDS.tool, nodesMax: JSON_BOUNDS.persona.nodesMax }

function readMessage(bytes: Buffer): Static<typeof Message> {
  if (bytes.length > BODY_BYTES_MAX) {
    const message = `The message has ${bytes.length} bytes, more than the ${BODY_BYTES_MAX} allowed here. Send larger definitions to the HTTP API.`
    throw new Refused('PAYLOAD_TOO_LARGE', message)
  }
  const verdict = checkMessage(parseJsonBody(bytes, BOUNDS), { mask: undefined, strict: false })
  if ('faults' in verdict) throw new InvalidRequest(verdict.faults)
  return verdict.value as Static<typeof Message> // the schema was checked
}

/** Returns the request to pass to the MCP package. `accept` is replaced, because the package refuses clients that do not list both types. */
function protocolRequest({ headers }: FastifyRequest): Request {
  const read = Object.entries(headers).filter(([name]) => name.startsWith('mcp-'))
  const taken = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' }
  const own = Object.fromEntries(read.map(each => each.map(String)))
  return new Request('http://localhost/mcp', { method: 'POST', headers: { ...own, ...taken } })
}

/** Returns the id of a refused message; null if there is none. Without the id in the answer, clients end the session. */
function idOf(body: unknown): string | number | null {
  try {
    const { id } = JSON.parse(String(body)) as { id?: unknown } // throws for null; for other values that are not objects, the id is undefined
    return typeof id === 'string' || typeof id === 'number' ? id : null
  } catch {
    return null
  }
}

function inProtocol(id: string | number | null, status: number, body: Body): string {
  const { detail } = body
  const error = Array.isArray(detail) // a 422
    ? { code: -32_602, message: faultsInWords(detail as Fault[]) }
    : { code: -32_000, message: String(detail) }
  return JSON.stringify({ jsonrpc: '2.0', id, error: { ...error, data: { status, ...body } } })
}

function serveTools(server: Server, request: FastifyRequest, app: FastifyInstance): Server {
  const tools = OPERATIONS.filter(({ policy }) => admits(policy, request.caller)).map(({ tool }) => tool)
  server.setRequestHandler('tools/list', () => ({ tools }))
  server.setRequestHandler('tools/call', async ({ params: { name, arguments: args } }) => {
    const operation = OPERATIONS.find(({ tool }) => tool.name === name)
    if (!operation) throw Object.assign(new Error(`There is no tool ${name.slice(0, 100)}.`), { code: -32_602 })
    try {
      return await operation.call(askFor(app, request), args)
    } catch (error) {
      request.log.error({ err: error }, 'an MCP tool failed')
      return refusal(`An internal error occurred. The log has the cause under the request id ${request.id}.`)
    }
  })
  return server
}

/** The requests that the application sends to itself. They have no socket. */
const inner = new WeakSet<object>()

/** True if the request is part of an MCP request. Only the outer request counts against limits. */
export const isInner = (raw: IncomingMessage): boolean => inner.has(raw)

/** Returns a function that sends requests of the same caller to the application. All hooks and checks of the routes run. */
function askFor(app: FastifyInstance, outer: FastifyRequest): Ask {
  const remoteAddress = clientAddressOf(outer)
  const dispatch: Parameters<typeof inject>[0] = (request, response) => {
    inner.add(request)
    app.routing(request, response)
  }
  return async (method, url, { body, headers: own } = {}) => {
    const headers = { authorization: outer.headers.authorization, 'x-request-id': outer.id, ...own }
    const sent = body && { payload: JSON.stringify(body), headers: { ...headers, 'content-type': 'application/json' } }
    const response = await inject(dispatch, { method, url, headers, remoteAddress, ...sent })
    const { etag, link, warning } = response.headers
    const next = /[?&](?:after|before)=(\d+)>; rel="next"$/.exec(String(link))?.[1]
    const isLarge = response.rawPayload.length > ANSWER_BYTES_MAX
    return {
      status: isLarge ? 413 : response.statusCode,
      text: isLarge ? '{"detail":"The answer has more than 2 MiB: read it over HTTP."}' : response.payload,
      etag: etag === undefined ? undefined : String(etag),
      more: { ...(next && { next: Number(next) }), ...(warning && { warnings: String(warning) }) },
    }
  }
}
