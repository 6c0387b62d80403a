import { execFileSync } from 'node:child_process'
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { EmbeddedUnavailable, errorCode } from './account.js'
import { type Home, SOCKET_NAME } from './home.js'

const POLL_MS = 10
const KILL_LIMIT_MS = 10_000
const READ_LIMIT_BYTES = 8192
/** What the shell around the server calls itself (`$0`), followed by the folder of the cluster. */
export const SHELL_NAME = 'embedded-postgresql'

/** Whether the server with this process id says that it accepts connections. */
export function isReady(home: Home, pid: number): boolean {
  const lines = pidFile(home)
  return lines[0] === String(pid) && lines[7]?.trim() === 'ready'
}

/** Whether the server is shutting down: a smart shutdown (SIGTERM) lets nobody in, and waits for those who are, maybe for ever. */
export function isStopping(home: Home): boolean {
  return pidFile(home)[7]?.trim() === 'stopping'
}

/** Whether the server's socket is there to connect to. */
export function hasSocket(home: Home): boolean {
  return existsSync(join(home.sockets, SOCKET_NAME))
}

/** Has the server that the shell started end now: its sessions are cut, and what they had not committed is rolled back. */
export function endServer(home: Home): void {
  const ids = readProcessIds(home)
  if (ids !== undefined && isServerRunning(home)) sendSignal(ids.server, 'SIGINT')
}

/** The process ids that the shell around the server wrote: its own and the server's. */
export function readProcessIds(home: Home): { shell: number; server: number } | undefined {
  const [, shell, server] = /^(\d+) \d+ (\d+)$/m.exec(readSmallFile(join(home.path, 'run', 'pids')) ?? '') ?? []
  return server === undefined ? undefined : { shell: Number(shell), server: Number(server) }
}

/** Whether the server that the shell started still runs. */
export function isServerRunning(home: Home): boolean {
  const ids = readProcessIds(home)
  if (ids === undefined) return false
  return process.platform === 'linux' ? isOfCluster(home, ids.server) : isAlive(ids.server)
}

/**
 * Kills what still runs of a cluster that nobody holds, or that hangs, and takes away the files by which PostgreSQL would
 * take a stranger with the old process id, or a zombie, for its server. The next start recovers from the log. Call it
 * under the lock.
 * @throws EmbeddedUnavailable when somebody else runs a server on this data, or a process cannot be killed
 */
export async function clearRemains(home: Home): Promise<void> {
  const [pid, , , , sockets] = pidFile(home)
  const deadline = Date.now() + KILL_LIMIT_MS
  for (let left = processesOf(home); left.length > 0; left = processesOf(home)) {
    if (sockets !== undefined && sockets !== home.sockets && left.includes(Number(pid)))
      throw new EmbeddedUnavailable(`another PostgreSQL, process ${pid}, runs on the data in ${home.path}`)
    if (Date.now() > deadline) throw new EmbeddedUnavailable(`processes on the data in ${home.path} cannot be stopped`)
    for (const one of left) sendSignal(one, 'SIGKILL')
    await sleep(POLL_MS)
  }
  rmSync(join(home.path, 'data', 'postmaster.pid'), { force: true })
  rmSync(join(home.sockets, `${SOCKET_NAME}.lock`), { force: true })
}

export function logFile(home: Home): string {
  return join(home.path, 'log')
}

/** How long the server's log is, in bytes: what a start writes comes behind. */
export function logLength(home: Home): number {
  return statSync(logFile(home), { throwIfNoEntry: false })?.size ?? 0
}

/** The last lines of the server's log, none from before this length. */
export function logTail(home: Home, length: number): string[] {
  return (readSmallFile(logFile(home), length) ?? '').split('\n').filter(line => line.trim() !== '')
}

/**
 * The start of a file that belongs to the server's account, or its end, with nothing before `tailFrom` bytes. No link is
 * followed, nothing but a file is opened. Undefined when there is none.
 */
export function readSmallFile(path: string, tailFrom?: number): string | undefined {
  let fd: number
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
  try {
    const stats = fstatSync(fd)
    if (!stats.isFile()) return undefined
    const buffer = Buffer.alloc(READ_LIMIT_BYTES)
    // A log that is shorter than it was has been begun anew.
    const from = tailFrom === undefined || tailFrom > stats.size ? 0 : tailFrom
    const position = tailFrom === undefined ? 0 : Math.max(from, stats.size - READ_LIMIT_BYTES)
    return buffer.toString('utf8', 0, readSync(fd, buffer, 0, READ_LIMIT_BYTES, position))
  } finally {
    closeSync(fd)
  }
}

/** The lines of `postmaster.pid`: process id first, the socket's folder fifth, the state eighth. None when there is none. */
function pidFile(home: Home): string[] {
  return readSmallFile(join(home.path, 'data', 'postmaster.pid'))?.split('\n') ?? []
}

/** The processes of the cluster: shells, initdb, the server and its sessions; the sessions only on Linux. */
function processesOf(home: Home): number[] {
  if (process.platform === 'linux')
    return readdirSync('/proc')
      .map(Number)
      .filter(pid => isOfCluster(home, pid))
  const own = /\/(?:postgres|initdb) | embedded-postgresql /
  const lines = execFileSync('ps', ['-axo', 'pid=,command='], { encoding: 'utf8' }).split('\n')
  return lines.filter(line => line.includes(home.path) && own.test(line)).map(line => Number.parseInt(line, 10))
}

/** By name and arguments or, as every PostgreSQL process changes into its data folder, by that. Only of the account. */
function isOfCluster(home: Home, pid: number): boolean {
  try {
    if (statSync(`/proc/${pid}`).uid !== home.account.uid) return false
    const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
    if (name === 'sh') return line.includes(`\0${SHELL_NAME}\0${home.path}\0`)
    if (name !== 'postgres' && name !== 'initdb') return false
    return line.includes(`\0${home.path}/`) || readlinkSync(`/proc/${pid}/cwd`).startsWith(`${home.path}/`)
  } catch {
    return false // no process, or it ended meanwhile
  }
}

function sendSignal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if (errorCode(error) !== 'ESRCH') throw error
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errorCode(error) !== 'ESRCH'
  }
}
