import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Binaries,
  EmbeddedUnavailable,
  errorCode,
  findBinaries,
  identity,
  nameOf,
  runAs,
  serverEnvironment,
} from './account.js'
import { type Home, openHome, SOCKET_NAME, urlOf } from './home.js'

export { EmbeddedUnavailable }

export interface EmbeddedOptions {
  /** The cluster is in the folder `postgresql` below this one, which is created if missing. */
  dataDir: string
  /** How long to wait for another process that runs a server on the same data. Default 10,000. */
  patienceMs?: number
  /** Settings of the server (`postgres -c name=value`). */
  settings?: Record<string, string>
  /** The folder with `postgres` and `initdb` of another PostgreSQL, from version 15 (`PG_BIN_DIR`). */
  binDir?: string
  /** Receives messages for the operator: where the data is, and unusual events. */
  log?: (line: string, level?: 'warn') => void
}

/** A server that this process runs. */
export interface Embedded {
  /** `postgres:///postgres?user=postgres&host=<folder>&port=5432`. */
  url: string
  /** The server's version: `18.4`. */
  version: string
  /** Stops the server. Close all pools before. */
  stop(): Promise<void>
}

/**
 * Runs as the server's account and becomes the server. The background loop stops the server if the pipe closes without a line, that is, if
 * the parent process was killed. It repeats the signal, because a starting server ignores it.
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
const PATIENCE_MS = 10_000
const POLL_MS = 20
const CHECK_MS = 500
const IN_USE = 'another process runs one on its data: stop it, or set DATA_DIR to another folder'
const GONE = 'its data are gone: put them back, or stop the service to begin with an empty database'

/**
 * Runs the embedded PostgreSQL on a Unix socket. PostgreSQL's `postmaster.pid` ensures that one process at a time runs a server on the
 * data. The server is restarted whenever it ends, until `stop`, and it ends with this process, even if that is killed.
 * @throws EmbeddedUnavailable if it cannot run here
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const { dataDir, settings = {}, binDir, patienceMs = PATIENCE_MS, log = () => undefined } = options
  if (process.platform === 'win32') throw new EmbeddedUnavailable('it does not run on Windows yet')
  const home = await openHome(dataDir)
  const binaries = findBinaries(home.account, binDir)
  makeData(home, binaries, settings)
  const given = Object.entries({
    ...settings,
    listen_addresses: '',
    port: '5432',
    unix_socket_directories: `"${home.sockets.replaceAll('"', '""')}"`,
    unix_socket_permissions: '0700',
  }).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const command = [join(binaries.dir, 'postgres'), '-D', join(home.path, 'data'), ...given]
  let server = await spawnAlone(home, command, Date.now() + patienceMs)
  log(`embedded PostgreSQL ${binaries.version} started, data in ${home.path}, run by ${nameOf(home.account)}`)
  const leaving = new AbortController()
  const kept = (async () => {
    let told = ''
    const tell = (sentence: string) => {
      if (told !== sentence) log(`the embedded PostgreSQL ${sentence}`, 'warn')
      told = sentence
    }
    while (await pause(CHECK_MS, leaving.signal)) {
      // A smart shutdown (SIGTERM) accepts no new session and waits for open ones, possibly for ever.
      if (!hasEnded(server) && readPidFile(home).state !== 'stopping') continue
      if (told === '') tell(`has ended; starting it again; its log is ${join(home.path, 'log')}`)
      try {
        await end(server)
        if (!existsSync(join(home.path, 'data'))) throw new EmbeddedUnavailable(GONE)
        server = await spawnServer(home, command)
        tell('runs again')
        told = ''
      } catch (error) {
        tell(`does not start again yet: ${error instanceof EmbeddedUnavailable ? error.reason : String(error)}`)
      }
    }
  })()
  const stop = async () => {
    leaving.abort()
    await kept
    await end(server)
  }
  return { url: urlOf(home.path), version: binaries.version, stop }
}

/** Creates the data if missing. It is complete before it is renamed into place; of two processes, the first one's data stays. */
function makeData({ path, account }: Home, { dir, major }: Binaries, settings: Record<string, string>): void {
  const data = join(path, 'data')
  if (existsSync(data)) return
  const draft = join(path, `new-${randomUUID()}`)
  const locale = major < 17 ? [] : ['--locale-provider=builtin', '--locale=C.UTF-8']
  const sync = settings.fsync === 'off' ? ['--no-sync'] : []
  const args = ['-D', draft, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', ...locale, ...sync]
  const { ok, stderr, failed } = runAs(account, join(dir, 'initdb'), args)
  if (ok && !existsSync(data)) renameSync(draft, data)
  for (const left of readdirSync(path).filter(name => name.startsWith('new-')))
    rmSync(join(path, left), { recursive: true, force: true })
  if (!existsSync(data)) throw new EmbeddedUnavailable(`initdb failed: ${failed ?? causeIn(stderr)}`)
}

/** Starts the server. While another process runs one on the data, tries again until the deadline. */
async function spawnAlone(home: Home, command: string[], deadline: number): Promise<ChildProcess> {
  for (;;) {
    try {
      return await spawnServer(home, command)
    } catch (error) {
      // The sessions of a killed server also take a moment to end.
      const [met] = /"postmaster\.pid" already exists|pre-existing shared memory block/.exec(String(error)) ?? []
      if (met?.startsWith('"') && Date.now() > deadline) throw new EmbeddedUnavailable(IN_USE, { cause: error })
      if (met === undefined || Date.now() > deadline) throw error
    }
    await sleep(CHECK_MS)
  }
}

/** Starts the server on existing data, and waits until it is ready. Throws `EmbeddedUnavailable`. */
async function spawnServer(home: Home, command: string[]): Promise<ChildProcess> {
  const deadline = Date.now() + START_LIMIT_MS
  const log = join(home.path, 'log')
  removeStalePidFile(home)
  const logged = readText(log).length
  // `detached` starts a new session, so that Ctrl-C reaches only this process.
  const server = spawn('/bin/sh', ['-c', BECOME_SERVER, 'embedded-postgresql', home.path, ...command], {
    ...identity(home.account),
    cwd: '/',
    env: serverEnvironment(),
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
  const stdin = server.stdin as Socket // the pipe of `spawn` is one
  stdin.on('error', () => undefined) // the shell ended before the line was written
  server.once('exit', () => stdin.end('ended\n'))
  await once(server, 'spawn')
  while (!hasEnded(server)) {
    const { pid, state } = readPidFile(home)
    if (pid === server.pid && state === 'ready') {
      server.unref()
      stdin.unref()
      return server
    }
    if (Date.now() > deadline) {
      await end(server)
      throw new EmbeddedUnavailable(`the server is not ready in time, see ${log}`)
    }
    await sleep(POLL_MS)
  }
  const written = readText(log)
  const reason = causeIn(written.slice(written.length < logged ? 0 : logged))
  throw new EmbeddedUnavailable(`the server ended: ${reason}, see ${log}`)
}

/** Ends a server with a fast shutdown: uncommitted work is rolled back. Kills it if it hangs. */
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

/** PostgreSQL would mistake any process that has the id of a killed server now for that server. */
function removeStalePidFile(home: Home): void {
  const { pid } = readPidFile(home)
  if (pid === undefined || process.platform !== 'linux') return
  try {
    if (readlinkSync(`/proc/${pid}/cwd`) === join(home.path, 'data')) return
  } catch {
    // No process has the id.
  }
  rmSync(join(home.path, 'data', 'postmaster.pid'), { force: true })
  rmSync(join(home.sockets, `${SOCKET_NAME}.lock`), { force: true })
}

/** Reads the process id and the state (`starting`, `ready`, `stopping`) from `postmaster.pid`. */
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

/** The last error that a program wrote with its detail, or else its first line, without time and process id. */
function causeIn(output: string): string {
  const lines = output.split('\n').map(line => line.replace(/^\S+ \S+ \S+ \[\d+\] /, '').trim())
  const isCause = (line: string) => /(FATAL|PANIC|error): /i.test(line) && !/FATAL: +the database system is /.test(line)
  const at = lines.findLastIndex(isCause)
  const detail = at >= 0 && lines[at + 1]?.startsWith('DETAIL:') ? ` ${lines[at + 1]}` : ''
  return `${lines.at(Math.max(at, 0)) || 'it wrote nothing'}${detail}`
}

/** Waits without delaying a shutdown; false if `signal` ended the wait. */
async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => undefined)
  return !signal.aborted
}
