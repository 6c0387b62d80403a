import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { FastifyInstance } from 'fastify'
import { listening } from '../test-service.js'

/** The result of a call. `content` is the JSON in `text`; for a refusal, an object with the HTTP status. */
export interface Told {
  isError: boolean
  text: string
  // biome-ignore lint/suspicious/noExplicitAny: each test checks the content of its tool
  content: any
}

const MODES = { '2026-07-28': { pin: '2026-07-28' }, '2025-11-25': 'legacy' } as const

/** Returns a function that connects the official MCP client with a token. */
export async function connectedTo(app: FastifyInstance) {
  const url = new URL(`http://127.0.0.1:${await listening(app)}/mcp`)
  return async (token: string, version: keyof typeof MODES = '2026-07-28') => {
    const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: MODES[version] } })
    const requestInit = { headers: { authorization: `Bearer ${token}` } }
    await client.connect(new StreamableHTTPClientTransport(url, { requestInit }))
    const call = async (name: string, args: Record<string, unknown>): Promise<Told> => {
      const answer = await client.callTool({ name, arguments: args })
      const text = (answer.content as { text: string }[])[0]?.text ?? ''
      const isError = answer.isError === true
      const content = isError ? { status: Number(/"status":(\d+)/.exec(text)?.[1] ?? 422) } : JSON.parse(text)
      return { text, content, isError }
    }
    const names = async () => (await client.listTools()).tools.map(({ name }) => name)
    return { client, call, names }
  }
}

/** The metadata of a request in protocol version 2026-07-28. */
export const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
}
