import { type ChildProcess, spawn } from 'node:child_process'
import {
  existsSync,
  lchownSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
} from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Binaries,
  EmbeddedUnavailable,
  errorCode,
  findBinaries,
  type Home,
  nameOf,
  openHome,
  runAs,
  SOCKET,
  serverEnvironment,
  urlOf,
} from './home.js'

export { EmbeddedUnavailable }

export type Report = (line: string, level?: 'warn') => void

export interface EmbeddedOptions {
  dataDir: string
  settings?: Record<string, string>
  /** `PG_BIN_DIR`: the folder with the programs of PostgreSQL 15 or later. */
  binDir?: string
  log?: Report
}

/** A database server that this process runs. */
export interface Embedded {
  url: string
  version: string
  stop(): Promise<void>
}

/**
 * A shell script that becomes the server process. Its background subshell reads a pipe from this process. If the pipe closes without a line, this
 * process was killed, so the subshell stops the server. SIGINT is repeated, because a starting server ignores SIGINT.
 */
const BECOME_SERVER = `
umask 077
cd "$1" || exit 1
if [ -f log ] && [ "$(wc -c <log)" -gt 8000000 ]; then mv log log.old; fi
exec 3<&0 0</dev/null >>log 2>&1
shift
((
  if read -r line <&3; then exit; fi
  left=100
  while [ $left -gt 0 ] && kill -INT $$ 2>/dev/null; do left=$((left - 1)); sleep 0.2; done
) &)
exec "$@" 3<&-
`

const START_LIMIT_MS = 60_000
const STOP_LIMIT_MS = 20_000
const WAIT_FOR_OTHER_MS = 10_000
const POLL_MS = 20
const CHECK_MS = 500

/**
 * Starts the embedded PostgreSQL on a Unix socket. Only one process can run a server on the same data. A server that ends before `stop` is called is
 * restarted. The server stops when this process ends. Throws `EmbeddedUnavailable` if the server cannot run.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  if (process.platform === 'win32') throw new EmbeddedUnavailable('it does not run on Windows yet')
  const { dataDir, settings = {}, binDir, log = () => undefined } = options
  const home = openHome(dataDir, log)
  const binaries = findBinaries(home.account, binDir)
  const given = Object.entries({
    ...settings,
    listen_addresses: '',
    port: '5432',
    unix_socket_directories: `"${join(home.path, 'run').replaceAll('"', '""')}"`,
    unix_socket_permissions: '0700',
  }).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const command = [join(binaries.dir, 'postgres'), '-D', join(home.path, 'data'), ...given]
  makeData(home, binaries, settings)
  let server = await startAlone(home, command, log)
  log(`embedded PostgreSQL ${binaries.version} runs as ${nameOf(home.account)}, with its data in ${home.path}`)
  let told = ''
  const tell = (sentence: string) => {
    if (sentence !== told) log(`the embedded PostgreSQL ${sentence}`, 'warn')
    told = sentence
  }
  const leaving = new AbortController()
  const keep = async () => {
    while (await pause(CHECK_MS, leaving.signal)) {
      if (!hasEnded(server)) continue
      if (told === '') tell(`has ended; starting it again; its log is ${join(home.path, 'log')}`)
      try {
        if (!existsSync(join(home.path, 'data'))) throw new EmbeddedUnavailable(GONE)
        server = await spawnServer(home, command)
        tell('runs again')
        told = ''
      } catch (error) {
        tell(`cannot be started again yet: ${error instanceof EmbeddedUnavailable ? error.reason : String(error)}`)
      }
    }
  }
  const kept = keep()
  const stop = async () => {
    leaving.abort()
    await kept
    await end(server)
  }
  return { url: urlOf(home.path), version: binaries.version, stop }
}

const GONE = 'its data folder is gone: restore the folder, or restart the service to begin with an empty database'

/** Creates the data if it is missing. Each process fills a draft folder and renames it. The folder that is renamed first is used. */
function makeData(home: Home, { dir, major }: Binaries, settings: Record<string, string>): void {
  const data = join(home.path, 'data')
  if (existsSync(data)) {
    const stored = readText(join(data, 'PG_VERSION')).trim()
    if (stored === String(major) || stored === '') return
    throw new EmbeddedUnavailable(
      `the data in ${home.path} needs PostgreSQL ${stored}, but ${dir} has version ${major}: set PG_BIN_DIR to the programs of version ${stored}`,
    )
  }
  const draft = mkdtempSync(join(home.path, 'new-'))
  if (home.account) lchownSync(draft, home.account.uid, home.account.gid)
  const locale = major < 17 ? [] : ['--locale-provider=builtin', '--locale=C.UTF-8']
  const sync = settings.fsync === 'off' ? ['--no-sync'] : []
  const args = ['-D', join(draft, 'data'), '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', ...locale, ...sync]
  try {
    const { ok, fault } = runAs(home.account, join(dir, 'initdb'), args)
    if (!ok) throw new EmbeddedUnavailable(`initdb failed: ${causeIn(fault)}`)
    renameSync(join(draft, 'data'), data)
  } catch (error) {
    if (!existsSync(data)) throw error
  }
  // Removes all drafts, including those of killed processes.
  for (const name of readdirSync(home.path).filter(name => name.startsWith('new-')))
    rmSync(join(home.path, name), { recursive: true, force: true, maxRetries: 5 })
}

/** Waits up to 10 s until no other process runs a server on the data, then starts the server. */
async function startAlone(home: Home, command: string[], log: Report): Promise<ChildProcess> {
  const deadline = Date.now() + WAIT_FOR_OTHER_MS
  for (let isWaiting = false; ; await sleep(POLL_MS)) {
    const other = runningServer(home)
    if (other !== undefined && !isWaiting)
      log(`another process runs a server on ${home.path}; waiting up to 10 s for that server to end`, 'warn')
    isWaiting ||= other !== undefined
    try {
      if (other === undefined) return await spawnServer(home, command)
    } catch (error) {
      // The sessions of a killed server can continue for a moment, so the start is repeated.
      const isLate = Date.now() > deadline || !String(error).includes('pre-existing shared memory block')
      if (isLate && runningServer(home) === undefined) throw error // if a server runs, another process has started it
    }
    if (other !== undefined && Date.now() > deadline) {
      throw new EmbeddedUnavailable(
        `another process runs a server on the data in ${home.path}: stop the service that runs it, or set DATA_DIR to another folder`,
      )
    }
  }
}

async function spawnServer(home: Home, command: string[]): Promise<ChildProcess> {
  const deadline = Date.now() + START_LIMIT_MS
  const log = join(home.path, 'log')
  removeStalePidFile(home)
  const logged = readText(log).length
  // In a session of its own, the server does not receive the SIGINT of Ctrl-C.
  const server = spawn('/bin/sh', ['-c', BECOME_SERVER, 'embedded-postgresql', home.path, ...command], {
    ...home.account,
    cwd: '/',
    env: serverEnvironment(),
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
  let failed: Error | undefined
  server.once('error', error => (failed = error))
  server.stdin?.on('error', () => undefined) // ignores EPIPE, because the shell may have ended before `ended` is written
  server.once('exit', () => server.stdin?.end('ended\n'))
  while (failed === undefined && !hasEnded(server)) {
    const { pid, state } = readPidFile(home)
    if (pid === server.pid && state === 'ready') {
      // Lets this process exit while the server runs.
      server.unref()
      ;(server.stdin as Socket).unref()
      return server
    }
    if (Date.now() > deadline) {
      await end(server)
      throw new EmbeddedUnavailable(`the server was not ready within ${START_LIMIT_MS / 1_000} s; its log is ${log}`)
    }
    await sleep(POLL_MS)
  }
  if (failed !== undefined) throw new EmbeddedUnavailable(`it cannot start (${failed.message})`, { cause: failed })
  throw new EmbeddedUnavailable(`the server ended: ${causeIn(readText(log).slice(logged))}; its log is ${log}`)
}

/** Stops a server with a fast shutdown, which rolls open transactions back. Kills the server after 20 s. */
async function end(server: ChildProcess): Promise<void> {
  const deadline = Date.now() + STOP_LIMIT_MS
  server.kill('SIGINT')
  while (!hasEnded(server)) {
    if (Date.now() > deadline) server.kill('SIGKILL')
    await sleep(POLL_MS)
  }
}

function hasEnded(server: ChildProcess): boolean {
  return server.exitCode !== null || server.signalCode !== null
}

/** Returns the process id of the server that runs on the data; undefined if no server runs. On Linux, checks that the process is this server. */
function runningServer(home: Home): number | undefined {
  const { pid } = readPidFile(home)
  if (pid === undefined) return undefined
  try {
    if (process.platform !== 'linux') return process.kill(pid, 0) ? pid : undefined
    return readlinkSync(`/proc/${pid}/cwd`) === join(home.path, 'data') ? pid : undefined
  } catch {
    return undefined
  }
}

/** Removes the process id file of a server that has ended, because PostgreSQL would mistake a process with this id for that server. */
function removeStalePidFile(home: Home): void {
  if (readPidFile(home).pid === undefined || runningServer(home) !== undefined) return
  rmSync(join(home.path, 'data', 'postmaster.pid'), { force: true })
  rmSync(join(home.path, `${SOCKET}.lock`), { force: true })
}

function readPidFile(home: Home): { pid: number | undefined; state: string | undefined } {
  const lines = readText(join(home.path, 'data', 'postmaster.pid')).split('\n')
  return { pid: Number(lines[0]) || undefined, state: lines[7]?.trim() }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return ''
    throw error
  }
}

/** Returns the last error line of a program's output, or else the first line. Omits the line's time and process id. */
function causeIn(output: string): string {
  const lines = output.trim().split('\n')
  const isCause = (line: string) => /(FATAL|PANIC|error): /i.test(line) && !/FATAL: +the database system is /.test(line)
  return (lines.findLast(isCause) ?? lines[0])?.replace(/^\S+ \S+ \S+ \[\d+\] /, '') || 'it printed nothing'
}

/** Waits without keeping the process alive. Returns false if `signal` was aborted. */
async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => undefined)
  return !signal.aborted
}
