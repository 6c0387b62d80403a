import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import t from 'tap'
import { worldApp } from '../app.js'
import { listening } from '../test-service.js'

/** The code in README that loads an agent and calls one of its functions. */
const [, LINES = ''] = /## Your runtime\n.*?```js\n(.*?)```/s.exec(readFileSync('README.md', 'utf8')) ?? []

const { app, apply, token } = await worldApp(t)
const service = await listening(app)
const runtime = await token('alice@example.com', { scopes: ['runtime'] })

const arrived: Pick<IncomingMessage, 'method' | 'url' | 'headers'>[] = []
const bodies: string[] = []
const server = createServer(async (request, response) => {
  arrived.push(request)
  bodies.push(await text(request))
  response.end('{}')
}).listen(0, '127.0.0.1')
await once(server, 'listening')
t.teardown(() => server.close())
const { port } = server.address() as { port: number } // the server listens on TCP

const place = (where: string) => ({ name: 'place', in: where, required: where === 'path', schema: { type: 'string' } })
const json = {
  content: { 'application/json': { schema: { type: 'object', properties: { seats: { type: 'integer' } } } } },
}
const CASES: [path: string, method: string, operation: object, url: string, body?: object][] = [
  ['/way/{place}', 'get', { parameters: [place('path')] }, '/v1/way/Rome'],
  ['/way', 'get', { parameters: [place('query')] }, '/v1/way?place=Rome'],
  ['/way', 'get', { parameters: [place('header')] }, '/v1/way'],
  ['/way/{place}', 'post', { parameters: [place('path')], requestBody: json }, '/v1/way/Rome', { seats: 2 }],
]

t.test("README's lines load an agent and call a function with its arguments and headers", async t => {
  t.equal(LINES.trim().split('\n').length, 15)
  for (const [path, method, operation, url, body] of CASES) {
    const paths = { [path]: { [method]: { operationId: 'way', summary: 'The way to a place', ...operation } } }
    const definition = {
      openapi: '3.1.0',
      info: { title: 'Ways' },
      servers: [{ url: `http://127.0.0.1:${port}/v1/` }],
      paths,
    }
    const custom_headers = [{ key: 'X-Key', value: 'a secret' }]
    await apply({
      tools: [{ id: 13, name: 'alice_tool', owner: 'alice@example.com', definition, custom_headers }],
      agents: [{ id: 1, name: 'Alice Private', owner: 'alice@example.com', tools: [13] }],
    })
    const env = { SERVICE: `http://127.0.0.1:${service}`, TOKEN: runtime, PERSONA: '1' }
    await promisify(execFile)(process.execPath, ['--input-type=module', '-e', LINES], { env })
    const [request] = arrived.splice(0)
    t.match(request, { method: method.toUpperCase(), url, headers: { 'x-key': 'a secret' } })
    t.equal(request?.headers.place, operation === CASES[2]?.[2] ? 'Rome' : undefined)
    t.equal(bodies.splice(0).join(), body === undefined ? '' : JSON.stringify(body))
    if (body) t.equal(request?.headers['content-type'], 'application/json')
  }
  for (const place of ['.', '..', '']) {
    const argument = LINES.replace("place: 'Rome'", `place: '${place}'`)
    const env = { SERVICE: `http://127.0.0.1:${service}`, TOKEN: runtime, PERSONA: '1' }
    const ended = promisify(execFile)(process.execPath, ['--input-type=module', '-e', argument], { env })
    t.match(await ended.catch(String), /A path argument is empty/, 'no argument leads to another path')
  }
  t.strictSame(arrived, [])
})
