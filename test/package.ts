import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/*
 * Tests the package as a user gets it: packs it, installs it into an empty folder, runs both commands, and starts the service with `npx`. `npm run
 * test:package` installs the production packages from the registry. The exit code is 1 if a step fails.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const START_WITHIN_MS = 120_000

const folder = mkdtempSync(join(tmpdir(), 'package-'))
chmodSync(folder, 0o711) // if root starts PostgreSQL, it runs as another user, who needs access to this folder
let failures = 0

function check(holds: boolean, what: string): void {
  console.log(`${holds ? 'ok' : 'NOT OK'} - ${what}`)
  if (!holds) failures += 1
}

interface Packed {
  filename: string
  size: number
  files: { path: string }[]
}

function pack(): Packed {
  const text = execFileSync('npm', ['pack', '--json', '--pack-destination', folder], { cwd: ROOT, encoding: 'utf8' })
  const [packed] = JSON.parse(text.slice(text.indexOf('['))) as Packed[] // the format of npm; the output of `prepack` can precede it
  if (packed === undefined) throw new Error('npm pack packed nothing')
  return packed
}

/** Starts the service with `npx` from the packed file, in an empty folder, and waits until the service prints its address. */
async function start(tarball: string): Promise<{ child: ChildProcess; origin: string; token: string }> {
  const cwd = join(folder, 'anywhere')
  mkdirSync(cwd)
  chmodSync(cwd, 0o711)
  const { DATABASE_URL: _, ...inherited } = process.env
  const env = { ...inherited, HOST: '127.0.0.1', PORT: '0', LOG_LEVEL: 'warn' }
  const child = spawn('npx', ['--yes', `file:${tarball}`], {
    cwd,
    env,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let text = ''
  child.stderr.on('data', chunk => {
    text += String(chunk)
  })
  for (const began = performance.now(); performance.now() - began < START_WITHIN_MS && child.exitCode === null; ) {
    const origin = /Listening on (http:\S+)/.exec(text)?.[1]
    const token = /pat_\w+/.exec(text)?.[0]
    if (origin !== undefined && token !== undefined) return { child, origin, token }
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  stop(child)
  throw new Error(`npx did not start the service: ${text}`)
}

/** Sends the signal of Ctrl-C to the whole process group. */
function stop({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGINT')
  } catch {
    // The process has already ended.
  }
}

const packed = pack()
const tarball = join(folder, packed.filename)
const paths = packed.files.map(({ path }) => path)
check(
  paths.includes('LICENSE') && paths.includes('build/src/server.js'),
  'the licence and the build are in the package',
)
const strangers = paths.filter(path =>
  /^(test|bench|src(?!\/console\/page))\/|^build\/(test|bench)\/|\.map$|^\.env/.test(path),
)
check(strangers.length === 0, `nothing of the tests is in the package: ${strangers.slice(0, 3)}`)
check(packed.size <= 1_000_000, `${paths.length} files, ${packed.size} bytes`)

const installed = join(folder, 'installed')
mkdirSync(installed)
writeFileSync(join(installed, 'package.json'), '{"private":true}')
const install = ['install', '--omit=optional', '--no-audit', '--no-fund', tarball]
execFileSync('npm', install, { cwd: installed, stdio: 'inherit' })
const help = execFileSync(join(installed, 'node_modules', '.bin', 'agentctl'), ['--help'], { encoding: 'utf8' })
check(/apply/.test(help), 'agentctl --help')

const { child, origin, token } = await start(tarball)
const updated = await fetch(`${origin}/persona/1?update_mask=name`, {
  method: 'PATCH',
  headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
  body: '{"name":"From the package"}',
})
check(updated.status === 200, `the first update: ${updated.status}`)
const ended = once(child, 'exit')
stop(child)
await ended
rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 })
console.log(`${failures} failed`)
process.exitCode = failures === 0 ? 0 : 1
