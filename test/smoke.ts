import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/*
 * The one-command start as a newcomer meets it: `npm start` with a fresh data folder, the printed lines pasted, Ctrl-C, a
 * second start, `kill -9`, a third. A program of its own, because it ends what it starts by signals. Exit code 1 when a
 * step fails.
 */

interface Running {
  child: ChildProcess
  output: () => string
  startedInMs: number
}

const folder = mkdtempSync(join(tmpdir(), 'smoke-'))
chmodSync(folder, 0o711) // the embedded server of a root start runs as another user, who must get through
const failures: string[] = []

function check(holds: boolean, what: string): void {
  console.log(`${holds ? 'ok' : 'NOT OK'} - ${what}`)
  if (!holds) failures.push(what)
}

async function start(): Promise<Running> {
  const began = performance.now()
  const { DATABASE_URL: _, ...inherited } = process.env
  const env = { ...inherited, PORT: '0', HOST: '127.0.0.1', DATA_DIR: join(folder, 'data'), LOG_LEVEL: 'warn' }
  const child = spawn('npm', ['start'], { env, detached: true, stdio: ['ignore', 'ignore', 'pipe'] })
  let text = ''
  child.stderr.on('data', chunk => {
    text += String(chunk)
  })
  while (!text.includes('Another token')) {
    if (child.exitCode !== null || performance.now() - began > 180_000) throw new Error(`no start: ${text}`)
    await pause(20)
  }
  return { child, output: () => text, startedInMs: Math.round(performance.now() - began) }
}

/** A signal to the whole group, as the terminal sends it for Ctrl-C. */
async function signal({ child }: Running, name: 'SIGINT' | 'SIGKILL'): Promise<void> {
  if (child.pid === undefined) throw new Error('npm was not started')
  const ended = new Promise(resolve => child.once('exit', resolve))
  process.kill(-child.pid, name)
  await ended
  for (let tries = 0; processesOf(folder).length > 0 && tries < 100; tries++) await pause(50)
}

/** The command lines of processes that name the folder, from /proc. */
function processesOf(path: string): string[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && name !== String(process.pid))
    .map(name => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ')
      } catch {
        return '' // it ended meanwhile
      }
    })
    .filter(line => line.includes(path))
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}

async function pastedLinesWork(running: Running): Promise<void> {
  const lines = running
    .output()
    .split('\n')
    .filter(line => line.trim().startsWith('curl '))
  check(lines.length === 1, 'the first start prints a curl line')
  if (spawnSync('curl', ['--version']).error) return console.log('# curl is not installed: its lines were not tried')
  for (const line of lines) {
    const status = execFileSync('sh', ['-c', `${line.trim()} -s -o /dev/null -w '%{http_code}'`], { encoding: 'utf8' })
    check(status === '200', `pasted, it answers 200: ${line.trim().slice(0, 70)}...`)
  }
}

async function main(): Promise<void> {
  const first = await start()
  console.log(`# first start in ${first.startedInMs} ms, compilation included`)
  check(/\bpat_[0-9A-Za-z]{28}\b/.test(first.output()), 'the first start prints a token')
  await pastedLinesWork(first)
  await signal(first, 'SIGINT')
  check(processesOf(folder).length === 0, 'after Ctrl-C no process is left')

  const second = await start()
  console.log(`# second start in ${second.startedInMs} ms`)
  check(!/\bpat_[0-9A-Za-z]{28}\b/.test(second.output()), 'the second start finds the data and prints no token')
  await signal(second, 'SIGKILL')
  check(processesOf(folder).length === 0, 'after kill -9 the database stops by itself')

  const third = await start()
  console.log(`# start after kill -9 in ${third.startedInMs} ms`)
  check(!/\bpat_[0-9A-Za-z]{28}\b/.test(third.output()), 'the start after kill -9 recovers the data')
  await signal(third, 'SIGINT')
}

try {
  await main()
} catch (error) {
  check(false, String(error))
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exitCode = failures.length === 0 ? 0 : 1
