import { isIP } from 'node:net'
import type { Server } from '@modelcontextprotocol/server'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { admits } from '../auth/hook.js'
import { type Fault, Forbidden, type Loc } from '../errors.js'
import { type Answer, type Body, faulty, refusal } from './answers.js'
import { askWithin } from './inner.js'
import { idOf, readMessage } from './message.js'
import { type Ask, OPERATIONS } from './operations.js'

type McpOptions = { version: string; origins: readonly string[]; toolBodyBytes: number }

/** More than a model writes, and than it reads: parsing more would hold up other requests. Larger ones go over HTTP. */
const [BODY_BYTES_MAX, ANSWER_BYTES_MAX] = [2 ** 20, 2 ** 21]

/** With these the request itself is refused. Clients end a session with any other status than 200, so the rest is 200 where it has an id. */
const STATUSES_KEPT = [401, 403, 429, 500, 503]

const SERVES = { capabilities: { tools: {} }, instructions: 'Read for the etag, plan, then store with this etag.' }

/** Loaded with the first call: most processes serve none, and it takes a quarter of a second and 24 MB. */
type Sdk = typeof import('@modelcontextprotocol/server')
let sdk: Promise<Sdk> | undefined

/** `POST /mcp`: the Model Context Protocol, stateless. What a tool does is a request of its caller to an operation of this application. */
export function registerMcp(app: FastifyInstance, { version, origins, toolBodyBytes }: McpOptions): void {
  const bytesMax = Math.min(BODY_BYTES_MAX, toolBodyBytes)
  app.register(async scope => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_, bytes, done) => done(null, bytes))
    scope.addHook('onSend', async (request, reply, payload) => {
      if (request.refusal === undefined) return payload
      const id = idOf(request.body)
      const refused = inProtocol(id, reply.statusCode, JSON.parse(String(payload)) as Body) // of `handleError`
      if (id !== null && !STATUSES_KEPT.includes(reply.statusCode)) reply.code(200)
      return refused
    })
    scope.post(
      '/mcp',
      {
        bodyLimit: toolBodyBytes,
        config: { policy: { permission: 'basic', asksWithin: true } },
        schema: { hide: true, operationId: 'mcp' },
        onRequest: async request => requireOrigin(request, origins),
      },
      async (request, reply) => {
        const message = readMessage(request.body as Buffer | undefined, bytesMax) // of the parser above
        sdk ??= import('@modelcontextprotocol/server')
        const loaded = await sdk
        const server = () =>
          serveTools(new loaded.Server({ name: 'agents', version }, SERVES), request, app, message.forbidden)
        const response = await answer(loaded, server, request, message.value)
        reply.code(response.status).type(response.headers.get('content-type') ?? 'application/json')
        const text = await response.text()
        return reply.send(text === '' ? undefined : text)
      },
    )
  })
}

/** The protocol's own answer to a message, in JSON also for clients of earlier versions that take a stream. */
async function answer(sdk: Sdk, server: () => Server, { headers }: FastifyRequest, message: object): Promise<Response> {
  const read = Object.entries(headers).filter(([name]) => name.startsWith('mcp-'))
  const received = new Request('http://localhost/mcp', {
    method: 'POST',
    headers: {
      ...Object.fromEntries(read.map(each => each.map(String))),
      accept: 'application/json, text/event-stream', // whatever the client takes, it reads the answer to its own message
      'content-type': 'application/json',
    },
  })
  if (!(await sdk.isLegacyRequest(received, message))) {
    // Its errors quote the client, so the log has only the status.
    const { fetch } = sdk.createMcpHandler(server, { legacy: 'reject', maxSubscriptions: 0 })
    return await fetch(received, { parsedBody: message })
  }
  const transport = new sdk.WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true })
  await server().connect(transport)
  return await transport.handleRequest(received, { parsedBody: message })
}

/** A refusal of this service as an answer of the protocol. `data` is what the HTTP API answers. */
function inProtocol(id: string | number | null, status: number, body: Body): string {
  const { detail } = body
  const isInvalid = Array.isArray(detail)
  const [message] = isInvalid ? faulty(detail as Fault[]) : [String(detail)] // of a 422
  const code = isInvalid ? -32_602 : -32_000
  return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message, data: { status, ...body } } })
}

function serveTools(server: Server, request: FastifyRequest, app: FastifyInstance, forbidden: Loc[]): Server {
  const tools = OPERATIONS.filter(({ policy }) => admits(policy, request.caller)).map(({ tool }) => tool)
  server.setRequestHandler('tools/list', () => ({ tools }))
  server.setRequestHandler('tools/call', async ({ params: { name, arguments: args } }) => {
    const operation = OPERATIONS.find(({ tool }) => tool.name === name)
    if (!operation) throw Object.assign(new Error(`There is no tool ${name.slice(0, 100)}.`), { code: -32_602 })
    try {
      return await operation.call(askFor(app, request), args, forbidden)
    } catch (error) {
      request.log.error({ err: error }, 'a tool of MCP failed')
      return refusal(`Something went wrong here. The log has the cause under the request id ${request.id}.`)
    }
  })
  return server
}

function askFor(app: FastifyInstance, outer: FastifyRequest): Ask {
  return async (method, url, { body, headers } = {}): Promise<Answer> => {
    const sent = body && { payload: JSON.stringify(body), headers: { ...headers, 'content-type': 'application/json' } }
    const response = await askWithin(app, outer, { method, url, ...sent })
    const { etag, link, warning } = response.headers
    const next = /[?&](?:after|before)=(\d+)>; rel="next"$/.exec(String(link))?.[1]
    const isLarge = response.rawPayload.length > ANSWER_BYTES_MAX
    const text = isLarge ? JSON.stringify({ detail: 'It has more than 2 MiB: read it over HTTP.' }) : response.payload
    return {
      status: isLarge ? 413 : response.statusCode,
      body: text === '' ? null : (JSON.parse(text) as Body), // our own answers
      warnings: warningsIn(String(warning ?? '')),
      etag: etag === undefined ? undefined : String(etag),
      next: next === undefined ? undefined : Number(next),
    }
  }
}

/** The texts of a `Warning` header: `199 - "text"`, several with commas between. */
function warningsIn(header: string): string[] {
  return [...header.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text = '']) => text.replaceAll(/\\(.)/g, '$1'))
}

/**
 * Refuses calls of pages of other origins. A name can be made to lead here from any page, so pages under a name are listed in
 * `CORS_ORIGINS`; an address, or `localhost`, leads where it says.
 */
function requireOrigin({ headers: { origin, host } }: FastifyRequest, origins: readonly string[]): void {
  if (origin === undefined || origins.includes(origin)) return
  const { hostname, host: own } = URL.canParse(origin) ? new URL(origin) : { hostname: '', host: '' }
  const isAddress = hostname === 'localhost' || isIP(hostname.replace(/^\[|\]$/g, '')) !== 0
  if (!isAddress || own !== host) throw new Forbidden('Pages of this origin may not call: see CORS_ORIGINS.')
}
