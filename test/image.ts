import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { addressOf, startServer } from './postgres.js'

/*
 * Tests the image as an operator runs it: built, with this machine's embedded PostgreSQL as its database, a read-only root file system and no
 * capabilities. `npm run test:image` needs podman or docker, and the network for the base image and packages. The exit code is 1 if a step fails, and
 * 0 if neither program works.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const IMAGE = 'agent-tool-management:test'
const CONTAINER = `agent-tool-management-test-${process.pid}`
const START_WITHIN_MS = 30_000
/** The defaults of DRAIN_DELAY_MS and SHUTDOWN_TIMEOUT_MS, and one second for the last answers. */
const STOP_WITHIN_MS = 14_000
const AGENT = {
  ...{ name: 'Support', description: '', system_prompt: 'Be brief.', task_prompt: '', datetime_aware: true },
  ...{ num_chunks: 10, recency_bias: 'auto', is_public: false, llm_filter_extraction: true },
  ...{ llm_relevance_filter: false, tool_ids: [], document_set_ids: [] },
}

let failures = 0

function check(holds: boolean, what: string): void {
  console.log(`${holds ? 'ok' : 'NOT OK'} - ${what}`)
  if (!holds) failures += 1
}

const found = ['podman', 'docker'].find(program => spawnSync(program, ['info']).status === 0)
if (found === undefined) {
  console.log('The image is not tested: neither podman nor docker works here.')
  process.exit(0)
}
const engine: string = found
const run = async (...args: string[]) => (await promisify(execFile)(engine, args)).stdout.trim()

execFileSync(
  engine,
  ['build', ...(engine === 'podman' ? ['--format=docker'] : []), '--network=host', '--tag', IMAGE, '.'],
  { cwd: ROOT, stdio: 'inherit' },
)
check(
  /^\d+(?::\d+)?$/.test(await run('inspect', '--format', '{{.Config.User}}', IMAGE)),
  'the image names its user by number',
)

// A proxy leads to the server's socket, which only the server's own user can reach.
const postgres = await startServer()
const { host, port: socket } = addressOf(postgres.url)
const proxy = createServer(from => {
  const to = connect(`${host}/.s.PGSQL.${socket}`)
  for (const each of [from, to]) each.on('error', () => undefined)
  from.pipe(to).pipe(from)
})
await once(proxy.listen(0, '127.0.0.1'), 'listening')
const { port: databasePort } = proxy.address() as AddressInfo
const { user, database } = addressOf(postgres.url).config
const SETTINGS = {
  DATABASE_URL: `postgresql://${user}@127.0.0.1:${databasePort}/${database}`,
  SECRET_KEYS: `k1:${Buffer.alloc(32, 1).toString('base64')}`,
  HOST: '127.0.0.1',
  PORT: '18765',
}
const HARDENED = ['--network=host', '--read-only', '--cap-drop=ALL', '--security-opt=no-new-privileges']
const OPTIONS = [
  ...HARDENED,
  ...(engine === 'podman' ? ['--read-only-tmpfs=false'] : []),
  ...Object.entries(SETTINGS).map(([name, value]) => `--env=${name}=${value}`),
]

/** Sends a request. Returns the status, `Location` and the body. The status is 0 if there is no answer. */
async function ask(method: string, path: string, token?: string, body?: object) {
  const headers = { ...(token && { authorization: `Bearer ${token}` }), 'content-type': 'application/json' }
  try {
    const answer = await fetch(`http://127.0.0.1:${SETTINGS.PORT}${path}`, {
      ...{ method, headers },
      ...(body && { body: JSON.stringify(body) }),
    })
    return { status: answer.status, location: answer.headers.get('location') ?? '', text: await answer.text() }
  } catch {
    return { status: 0, location: '', text: '' }
  }
}

async function isReady(): Promise<boolean> {
  for (const began = performance.now(); performance.now() - began < START_WITHIN_MS; ) {
    if ((await ask('GET', '/readyz')).status === 200) return true
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  return false
}

try {
  const printed = await run('run', '--rm', ...OPTIONS, IMAGE, 'agentctl', 'init', 'alice@example.com')
  const token = /pat_\w+/.exec(printed)?.[0]
  check(token !== undefined, 'agentctl init makes the schema and a token')
  const began = performance.now()
  await run('run', '--detach', '--name', CONTAINER, ...OPTIONS, IMAGE)
  check(await isReady(), `ready after ${Math.round(performance.now() - began)} ms`)
  check((await ask('GET', '/healthz')).status === 200, 'GET /healthz')
  const { location } = await ask('POST', '/persona', token, AGENT)
  const updated = await ask('PATCH', `${location}?update_mask=name`, token, { name: 'From the image' })
  check(updated.status === 200 && updated.text.includes('From the image'), `PATCH ${location}: ${updated.status}`)
  const page = await ask('GET', '/console')
  check(page.status === 200 && page.text.includes('<script'), 'the page is in the image')
  check((await run('exec', CONTAINER, 'id', '-u')) === '1000', 'the process is user 1000')
  check(spawnSync(engine, ['exec', CONTAINER, 'touch', '/tmp/x']).status !== 0, 'nothing can be written')

  const stopped = performance.now()
  await run('stop', '--time=30', CONTAINER)
  const took = Math.round(performance.now() - stopped)
  const code = await run('inspect', '--format', '{{.State.ExitCode}}', CONTAINER)
  check(code === '0' && took < STOP_WITHIN_MS, `SIGTERM ends it with ${code} after ${took} ms`)
} finally {
  spawnSync(engine, ['rm', '--force', CONTAINER])
  proxy.close()
  await postgres.leave()
}
console.log(`${failures} failed`)
process.exitCode = failures === 0 ? 0 : 1
