import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync, statfsSync } from 'node:fs'
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

/** The disk is too full for the embedded PostgreSQL. It runs again once there is space. */
export class EmbeddedDiskFull extends EmbeddedUnavailable {
  constructor(path: string, options?: ErrorOptions) {
    super(`the disk of ${path} is full`, options, 'make space there and start again')
    this.name = 'EmbeddedDiskFull'
  }
}

/** Options for the embedded PostgreSQL. */
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
  /** The folder of the Unix socket. There is no password. */
  host: string
  /** `postgres:///postgres?user=postgres&host=<folder>&port=5432`. */
  url: string
  /** The server's version: `18.4`. */
  version: string
  /** True if its disk is full. */
  isDiskFull(): boolean
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
const GONE = 'its data are gone: put them back, or stop the service to begin with an empty database'
/** The size of a WAL file. A server starts only if it can write a new one. */
const WAL_FILE_BYTES = 16 * 1024 * 1024

/**
 * Runs the embedded PostgreSQL on a Unix socket. PostgreSQL's `postmaster.pid` ensures that one process at a time runs a server on the
 * data. The server is restarted whenever it ends, until `stop`, and it ends with this process, even if that is killed.
 * @throws EmbeddedUnavailable if it cannot run here, `EmbeddedDiskFull` if only space is missing
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  try {
    if (process.platform === 'win32') throw new EmbeddedUnavailable('it does not run on Windows yet')
    const home = await openHome(options.dataDir, options.log ?? (() => undefined))
    return await startAlone(home, options)
  } catch (error) {
    const lacksSpace = !(error instanceof EmbeddedDiskFull) && /ENOSPC|No space left on device/.test(String(error))
    throw lacksSpace ? new EmbeddedDiskFull(options.dataDir, { cause: error }) : error
  }
}

/** Starts the server once no other process runs one on the data. */
async function startAlone(home: Home, options: EmbeddedOptions): Promise<Embedded> {
  const deadline = Date.now() + (options.patienceMs ?? PATIENCE_MS)
  for (;;) {
    const other = runningServer(home)
    if (other === undefined) {
      try {
        return await start(home, options)
      } catch (error) {
        // The sessions of a killed server take a moment to end.
        const isLate = Date.now() > deadline || !String(error).includes('pre-existing shared memory block')
        if (isLate && runningServer(home) === undefined) throw error // else another process was faster
      }
    } else if (Date.now() > deadline) {
      throw new EmbeddedUnavailable(
        `another process runs one on the data in ${home.path} (process id ${other}): stop it, or set DATA_DIR to another folder`,
      )
    }
    await sleep(POLL_MS)
  }
}

/** Starts the server, and restarts it whenever it is unusable, until it is stopped. */
async function start(home: Home, { settings = {}, binDir, log = () => undefined }: EmbeddedOptions): Promise<Embedded> {
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
  let server = await spawnServer(home, command)
  log(`embedded PostgreSQL ${binaries.version} started, data in ${home.path}, run by ${nameOf(home.account)}`)
  const leaving = new AbortController()
  const told = new Set<string>()
  const tell = (sentence: string) => {
    if (!told.has(sentence)) log(`the embedded PostgreSQL ${sentence}`, 'warn')
    told.add(sentence)
  }
  const keep = async () => {
    while (await pause(CHECK_MS, leaving.signal)) {
      const cause = whyUnusable(home, server)
      if (cause === undefined) continue
      tell(`${cause}; starting it again; its log is ${join(home.path, 'log')}`)
      try {
        await end(server)
        if (!existsSync(join(home.path, 'data'))) throw new EmbeddedUnavailable(GONE)
        server = await spawnServer(home, command)
        tell('runs again')
        told.clear()
      } catch (error) {
        tell(`does not start again yet: ${error instanceof EmbeddedUnavailable ? error.reason : String(error)}`)
      }
    }
  }
  const kept = keep()
  return {
    host: home.sockets,
    url: urlOf(home.path),
    version: binaries.version,
    isDiskFull: () => isDiskFull(home),
    stop: async () => {
      leaving.abort()
      await kept
      await end(server)
    },
  }
}

function whyUnusable(home: Home, server: ChildProcess): string | undefined {
  if (hasEnded(server)) return 'has ended'
  // A smart shutdown (SIGTERM) accepts no new session and waits for open ones, possibly for ever.
  return readPidFile(home).state === 'stopping' ? 'was told to stop, and waits for its sessions' : undefined
}

/** Creates the data if missing. It is complete before it is renamed into place; of two processes, the first one's data stays. */
function makeData(home: Home, { dir, major }: Binaries, settings: Record<string, string>): void {
  const data = join(home.path, 'data')
  const stored = readText(join(data, 'PG_VERSION')).trim()
  if (existsSync(data)) {
    if (stored === String(major) || stored === '') return
    throw new EmbeddedUnavailable(
      `the data in ${home.path} is of PostgreSQL ${stored} and the programs in ${dir} are of PostgreSQL ${major}`,
    )
  }
  const draft = join(home.path, `new-${randomUUID()}`)
  const locale = major < 17 ? [] : ['--locale-provider=builtin', '--locale=C.UTF-8']
  const sync = settings.fsync === 'off' ? ['--no-sync'] : []
  const args = ['-D', draft, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', ...locale, ...sync]
  try {
    const { ok, stderr, failed } = runAs(home.account, join(dir, 'initdb'), args)
    if (!ok && isDiskFull(home)) throw new EmbeddedDiskFull(home.path)
    if (!ok) throw new EmbeddedUnavailable(`initdb failed: ${failed ?? causeIn(stderr)}`)
    renameSync(draft, data)
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes(errorCode(error) ?? '')) throw error
  } finally {
    rmSync(draft, { recursive: true, force: true })
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
  let failed: Error | undefined
  server.once('error', error => (failed = error))
  server.stdin?.on('error', () => undefined) // the shell ended before the line was written
  server.once('exit', () => server.stdin?.end('ended\n'))
  while (failed === undefined && !hasEnded(server)) {
    const { pid, state } = readPidFile(home)
    if (pid === server.pid && state === 'ready') return released(home, server)
    if (Date.now() > deadline) {
      await end(server)
      throw new EmbeddedUnavailable(`the server is not ready in time, see ${log}`)
    }
    await sleep(POLL_MS)
  }
  if (failed !== undefined) throw new EmbeddedUnavailable(`it does not start (${failed.message})`, { cause: failed })
  if (isDiskFull(home)) throw new EmbeddedDiskFull(home.path)
  const written = readText(log)
  const reason = causeIn(written.slice(written.length < logged ? 0 : logged))
  throw new EmbeddedUnavailable(`the server ended: ${reason}, see ${log}`)
}

/** Allows this process to end without waiting for the server, and removes what killed processes left behind. */
function released(home: Home, server: ChildProcess): ChildProcess {
  server.unref()
  if (server.stdin && 'unref' in server.stdin) (server.stdin as import('node:net').Socket).unref()
  for (const name of readdirSync(home.path).filter(name => name.startsWith('new-'))) {
    try {
      rmSync(join(home.path, name), { recursive: true, force: true })
    } catch {
      // Another process is still writing there. It will remove the folder itself.
    }
  }
  return server
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

/** The process id of the server that runs on the data, started by any process. On Linux it checks that the id was not reused by another program. */
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

/** PostgreSQL would mistake any process with the old id for its server. */
function removeStalePidFile(home: Home): void {
  if (readPidFile(home).pid === undefined || runningServer(home) !== undefined) return
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

function isDiskFull({ path }: Home): boolean {
  const { bavail, bsize } = statfsSync(path)
  return bavail * bsize < WAL_FILE_BYTES
}

/** The last error that a program wrote, or else its first line, without time and process id. */
function causeIn(output: string): string {
  const lines = output.split('\n').filter(line => line.trim() !== '')
  const isCause = (line: string) => /(FATAL|PANIC|error): /i.test(line) && !/FATAL: +the database system is /.test(line)
  return (lines.findLast(isCause) ?? lines[0])?.replace(/^\S+ \S+ \S+ \[\d+\] /, '').trim() ?? 'it wrote nothing'
}

/** Waits without delaying a shutdown; false if `signal` ended the wait. */
async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => undefined)
  return !signal.aborted
}
