/**
 * Generates clients from the OpenAPI document with two generators, compiles them and the calls in `calls/` in strict TypeScript, and runs the calls
 * against the service with the demo organisation. Before that, two linters must find nothing in the document. Afterwards, runs the conformance tests
 * of the Model Context Protocol against `/mcp`. `mcp-expected-failures.yml` lists the expected failures.
 */
import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { demoApp, serviceOn } from '../demo-app.js'
import { startServer } from '../postgres.js'

const FOLDER = fileURLToPath(new URL('../../../test/clients/', import.meta.url))
const DOCUMENT = '../../openapi/openapi.json'
const UNREACHABLE = 'postgres://nobody@127.0.0.1:1/none'
const TIME_LIMIT_MS = 600_000

/** The name and the command line of each step. */
const STEPS: Record<string, string> = {
  'redocly lint, recommended': `redocly lint --extends=recommended --max-problems=20 ${DOCUMENT}`,
  'spectral lint, oas': `spectral lint --ruleset=spectral.yaml --fail-severity=hint ${DOCUMENT}`,
  'openapi-typescript generates': `openapi-typescript ${DOCUMENT} -o generated/openapi-typescript.ts`,
  'hey-api with zod generates': 'openapi-ts',
  'all of it compiles in strict TypeScript': 'tsc -p tsconfig.json',
}

let failed = 0

/** Runs a program in the folder of the generators. Prints the output if the program fails or `shown` is true. */
async function step(name: string, file: string, args: string[], shown = false): Promise<void> {
  const { code, output } = await new Promise<{ code: number; output: string }>(resolve => {
    const options = { cwd: FOLDER, timeout: TIME_LIMIT_MS, env: { ...process.env, REDOCLY_TELEMETRY: 'off' } }
    execFile(file, args, options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : 1, output: `${stdout}${stderr}` })
    })
  })
  // Redocly exits with 0 even if it prints warnings.
  const isFine = code === 0 && !/\b[1-9]\d* warnings?\b/.test(output)
  console.log(`${isFine ? 'ok    ' : 'NOT OK'}  ${name}`)
  if (!isFine || shown) console.log(output.trim())
  if (!isFine) failed++
}

/** Starts a proxy that adds the token, which the conformance tests do not send. Callers can change `target` between requests. */
async function withToken(target: { base: string; token: string }): Promise<string> {
  const front = createServer((received, reply) => {
    const headers = { ...received.headers, authorization: `Bearer ${target.token}` }
    const sent = request(target.base + received.url, { method: received.method ?? 'POST', headers }, answer => {
      answer.pipe(reply.writeHead(answer.statusCode ?? 502, answer.headers))
    })
    received.pipe(sent)
  })
  await new Promise<void>(resolve => front.listen(0, '127.0.0.1', resolve))
  scope.teardown(async () => void front.close())
  return `http://127.0.0.1:${(front.address() as AddressInfo).port}`
}

const endings: (() => Promise<void>)[] = []
const scope = { teardown: (end: () => Promise<void>) => endings.unshift(end) }

try {
  await rm(`${FOLDER}generated`, { recursive: true, force: true })
  for (const [name, command] of Object.entries(STEPS)) {
    const [program = '', ...args] = command.split(' ')
    await step(name, `node_modules/.bin/${program}`, args)
  }
  const { url, leave } = await startServer()
  scope.teardown(leave)
  process.env.TEST_SERVER_URL = url
  const behind = { base: '', token: '' }
  const front = await withToken(behind)
  const demo = await demoApp(scope, { RATE_LIMIT_PER_MINUTE: '0', CORS_ORIGINS: front })
  const unreachable = await serviceOn(scope, UNREACHABLE)
  const addresses = [demo.app, unreachable.app].map(async app => {
    await app.listen({ host: '127.0.0.1', port: 0 })
    return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}` // the server listens on TCP
  })
  const [base, other] = await Promise.all(addresses)
  const target = JSON.stringify({ base, unreachable: other, tokens: demo.tokens })
  for (const client of ['openapi-fetch', 'hey-api']) {
    const bundled = `generated/${client}.mjs`
    await step(`${client} is bundled`, 'node_modules/.bin/esbuild', [
      ...['--bundle', '--platform=node', '--format=esm', '--log-level=warning'],
      ...[`--outfile=${bundled}`, `calls/${client}.ts`],
    ])
    await step(`${client} calls`, process.execPath, [bundled, target], true)
  }
  if (Number(process.versions.node.split('.')[0]) < 22) {
    console.log('--      the Model Context Protocol: its conformance tests need Node 22 or later')
  } else {
    Object.assign(behind, { base, token: demo.tokens.admin })
    const failures = ['--expected-failures', 'mcp-expected-failures.yml']
    const args = ['server', '--url', `${front}/mcp`, '--suite', 'all', '--output-dir', 'generated/mcp', ...failures]
    await step('the Model Context Protocol', 'node_modules/.bin/conformance', args, true)
  }
} finally {
  for (const end of endings) await end()
}
console.log(`${failed} failed`)
process.exitCode = failed === 0 ? 0 : 1
