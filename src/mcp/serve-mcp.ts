import { isIP } from 'node:net'
import type { Server } from '@modelcontextprotocol/server'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { admits } from '../auth/hook.js'
import { Forbidden, InvalidRequest, Refused } from '../errors.js'
import { JSON_BOUNDS } from '../http/body.js'
import { parseExact, stringifyExact, withoutMarks } from '../validation/exact-json.js'
import { fault } from '../validation/faults.js'
import { type ParsedBody, parseJsonBody } from '../validation/json-body.js'
import { type Answer, type Body, refusal } from './answers.js'
import { askWithin } from './inner.js'
import { type Ask, OPERATIONS } from './operations.js'

type McpOptions = { version: string; origins: readonly string[]; toolBodyBytes: number }

/** More than a model writes, and than it reads: parsing more would hold up other requests. Both have their addresses over HTTP. */
const [BODY_BYTES_MAX, ANSWER_BYTES_MAX] = [2 ** 20, 2 ** 21]

const SERVES = { capabilities: { tools: {} }, instructions: 'Read for the etag, plan, then store with this etag.' }

/** Loaded with the first call: most processes serve none, and it takes a quarter of a second and 24 MB. */
let sdk: Promise<typeof import('@modelcontextprotocol/server')> | undefined

/** `POST /mcp`: the Model Context Protocol, stateless. What a tool does is a request of its caller to an operation of this application. */
export function registerMcp(app: FastifyInstance, { version, origins, toolBodyBytes }: McpOptions): void {
  app.register(async scope => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, bytes: Buffer, done) => {
      done(null, parseJsonBody(bytes, { ...JSON_BOUNDS.tool, nodesMax: JSON_BOUNDS.persona.nodesMax }))
    })
    scope.post(
      '/mcp',
      {
        bodyLimit: Math.min(BODY_BYTES_MAX, toolBodyBytes),
        config: { policy: { permission: 'basic', asksWithin: true } },
        schema: { hide: true, operationId: 'mcp' },
        onRequest: async request => requireOrigin(request, origins),
      },
      async (request, reply) => {
        const message = messageIn(request.body as ParsedBody | undefined) // of the parser above
        sdk ??= import('@modelcontextprotocol/server')
        const { createMcpHandler, Server } = await sdk
        const serve = () => serveTools(new Server({ name: 'agents', version }, SERVES), request, app)
        // Its errors quote the client, so the log has only the status.
        const { fetch } = createMcpHandler(serve, { maxSubscriptions: 0, keepAliveMs: 0 })
        const received = new Request('http://localhost/mcp', { method: 'POST', headers: headersOf(request) })
        const response = await fetch(received, { parsedBody: message })
        const text = withoutMarks(await response.text())
        reply.code(response.status).type(response.headers.get('content-type') ?? 'application/json')
        return reply.send(text === '' ? undefined : text)
      },
    )
  })
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
      request.log.error({ err: error }, 'a tool of MCP failed')
      return refusal(`Something went wrong here. The log has the cause under the request id ${request.id}.`)
    }
  })
  return server
}

function askFor(app: FastifyInstance, outer: FastifyRequest): Ask {
  return async (method, url, { body, headers } = {}): Promise<Answer> => {
    const sent = body && { payload: stringifyExact(body), headers: { ...headers, 'content-type': 'application/json' } }
    const response = await askWithin(app, outer, { method, url, ...sent })
    const { etag, link, warning } = response.headers
    const next = /[?&](?:after|before)=(\d+)>; rel="next"$/.exec(String(link))?.[1]
    const isLarge = response.rawPayload.length > ANSWER_BYTES_MAX
    const text = isLarge ? JSON.stringify({ detail: 'It has more than 2 MiB: read it over HTTP.' }) : response.payload
    return {
      status: isLarge ? 413 : response.statusCode,
      body: text === '' ? null : (parseExact(text) as Body), // our own answers
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

/** The headers that the protocol reads. */
function headersOf({ headers }: FastifyRequest): Record<string, string> {
  const kept = Object.entries(headers).filter(([name]) => name.startsWith('mcp-') || name === 'accept')
  return { ...Object.fromEntries(kept.map(each => each.map(String))), 'content-type': 'application/json' }
}

/** The message of a body. A list of messages is refused: it would count as one request. */
function messageIn(parsed: ParsedBody | undefined): object {
  if (parsed?.kind !== 'value') throw new InvalidRequest(parsed?.faults ?? [fault('missing', ['body'])])
  const { value, forbidden } = parsed
  const isMessage = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!isMessage) throw new Refused('BAD_REQUEST', 'Send one message: a JSON object.')
  if (forbidden.length === 0) return value
  throw new InvalidRequest(forbidden.map(loc => fault('key_forbidden', ['body', ...loc])))
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
