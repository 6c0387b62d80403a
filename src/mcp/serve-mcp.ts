import type { IncomingMessage } from 'node:http'
import type { Server } from '@modelcontextprotocol/server'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import inject from 'light-my-request'
import { admits } from '../auth/authenticate.js'
import { Forbidden } from '../errors.js'
import { clientAddressOf } from '../http/request.js'
import { VERSION } from '../version.js'
import { type Ask, CallRefused, OPERATIONS, refusalOf } from './operations.js'

/** The size limits of a message and of an operation's answer. Parsing larger texts would delay other requests. */
const [BODY_BYTES_MAX, ANSWER_BYTES_MAX] = [2 ** 20, 2 ** 21]

const SERVES = { capabilities: { tools: {} }, instructions: 'To edit, call get_*, plan_*, then update_* or propose_*.' }

/** Imported at the first call, because most processes never need the package. Importing it takes a quarter of a second and 24 MB. */
let sdk: Promise<typeof import('@modelcontextprotocol/server')> | undefined

/** `POST /mcp`: the Model Context Protocol without sessions. Each tool sends requests to this application's operations on behalf of the caller. */
export function registerMcp(app: FastifyInstance, origins: readonly string[]): void {
  app.post(
    '/mcp',
    {
      bodyLimit: BODY_BYTES_MAX,
      config: { policy: { permission: 'basic', asksWithin: true } },
      // The package checks the properties of the message. The schema refuses a list of messages, which would count as one request.
      schema: { hide: true, operationId: 'mcp', body: Type.Object({}) },
      // With DNS rebinding, the host name of any page can resolve to this server. An Origin that equals Host is therefore not trusted.
      onRequest: async ({ headers: { origin } }) => {
        if (origin !== undefined && !origins.includes(origin))
          throw new Forbidden('Calls from this origin are refused. The operator can add the origin to CORS_ORIGINS.')
      },
    },
    async (request, reply) => {
      sdk ??= import('@modelcontextprotocol/server')
      const { Server, createMcpHandler } = await sdk
      const serve = () => serveTools(new Server({ name: 'agents', version: VERSION }, SERVES), request, app)
      // The errors of the package are not logged, because they quote text from the client.
      const { fetch } = createMcpHandler(serve, { maxSubscriptions: 0 })
      const response = await fetch(protocolRequest(request), { parsedBody: request.body })
      reply.code(response.status).type(response.headers.get('content-type') ?? 'application/json')
      return reply.send((await response.text()) || undefined)
    },
  )
}

/** Returns the request for the MCP package. Replaces `accept`, because the package refuses clients that do not accept JSON and event streams. */
function protocolRequest({ headers }: FastifyRequest): Request {
  const own = Object.entries(headers).filter(([name]) => name.startsWith('mcp-'))
  const taken = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' }
  return new Request('http://localhost/mcp', { method: 'POST', headers: { ...Object.fromEntries(own), ...taken } })
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
      const isRefusal = error instanceof CallRefused
      if (!isRefusal) request.log.error({ err: error }, 'an MCP tool failed')
      const text = isRefusal
        ? error.message
        : `An internal error occurred. The operator can find the cause in the log by the request id ${request.id}.`
      return { content: [{ type: 'text', text }], isError: true }
    }
  })
  return server
}

/** The requests that the application sends to itself. They have no socket. */
const inner = new WeakSet<object>()

/** True if the application sent the request to itself for an MCP request. Only the MCP request counts against limits. */
export const isInner = (raw: IncomingMessage): boolean => inner.has(raw)

/** Returns a function that sends requests to the application on behalf of the caller of `outer`. All hooks and checks of the routes run. */
function askFor(app: FastifyInstance, outer: FastifyRequest): Ask {
  const remoteAddress = clientAddressOf(outer)
  const dispatch: Parameters<typeof inject>[0] = (request, response) => {
    inner.add(request)
    app.routing(request, response)
  }
  return async (method, url, { body, headers: own, argument } = {}) => {
    const headers = { authorization: outer.headers.authorization, 'x-request-id': outer.id, ...own }
    const answer = await inject(dispatch, { method, url, headers, remoteAddress, ...(body && { payload: body }) })
    const { statusCode, payload, rawPayload } = answer
    if (statusCode >= 300) throw refusalOf(statusCode, JSON.parse(payload), argument)
    if (rawPayload.length > ANSWER_BYTES_MAX)
      throw refusalOf(413, { detail: 'The call succeeded, but its answer is larger than 2 MiB: use the HTTP API.' })
    const { etag, link, warning } = answer.headers
    const next = /[?&](?:after|before)=(\d+)>; rel="next"$/.exec(String(link))?.[1]
    return {
      text: payload,
      etag: etag === undefined ? undefined : String(etag),
      more: { ...(next && { next: Number(next) }), ...(warning && { warnings: String(warning) }) },
    }
  }
}
