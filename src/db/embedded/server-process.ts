import {
  closeSync,
  constants,
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
import { EmbeddedUnavailable, errorCode, runAs } from './account.js'
import { type Home, SOCKET_NAME } from './home.js'

/** What a running server writes into `postmaster.pid`. */
interface PidFile {
  pid: number
  sockets: string
  ready: boolean
}

const POLL_MS = 10
const STOP_LIMIT_MS = 10_000
const READ_LIMIT_BYTES = 8192
/** What the shell around the server calls itself (`$0`), followed by the folder of the cluster. */
export const SHELL_NAME = 'embedded-postgresql'

/** Whether the server with this process id says that it accepts connections. */
export function isReady(home: Home, pid: number): boolean {
  const file = readPidFile(home)
  return file?.pid === pid && file.ready
}

/** The process ids that the shell around the server wrote: its own, the one that waits for the users to leave, the server's. */
export function readProcessIds(home: Home): { shell: number; watcher: number; server: number } | undefined {
  const [, shell, watcher, server] =
    /^(\d+) (\d+) (\d+)$/m.exec(readSmallFile(join(home.path, 'run', 'pids')) ?? '') ?? []
  if (server === undefined) return undefined
  return { shell: Number(shell), watcher: Number(watcher), server: Number(server) }
}

/**
 * Clears away what a killed cluster left, so that a new server can start: processes that still use the data, and a stale
 * `postmaster.pid`. Call it under the lock, when nothing holds the cluster.
 * @throws EmbeddedUnavailable when somebody else runs a server on this data, or a process cannot be stopped
 */
export async function clearRemains(home: Home): Promise<void> {
  // First the shells and initdb: an old shell would take away the state of the new one when its server ends.
  signal(await processesBesides(home), 'SIGKILL')
  if (!(await ended(() => processesBesides(home)))) throw cannotBeStopped(home)
  const file = readPidFile(home)
  if (!file) return
  const running = await processesOn(home, file.pid)
  const serverLives = running.includes(file.pid)
  if (serverLives && file.sockets !== home.sockets) {
    throw new EmbeddedUnavailable(`another PostgreSQL, process ${file.pid}, runs on the data in ${home.path}`)
  }
  // Without its server a session has nothing to save; the next start recovers from the log.
  signal(running, serverLives ? 'SIGINT' : 'SIGQUIT')
  const remaining = () => processesOn(home, file.pid)
  if (!(await ended(remaining))) {
    signal(await remaining(), 'SIGKILL')
    if (!(await ended(remaining))) throw cannotBeStopped(home)
  }
  // PostgreSQL clears up stale files itself, unless the process id still counts as alive: a stranger has got it since, or it is
  // a zombie that nobody has waited for. No process works on the data now, so the files are believed no longer.
  if (!isAlive(file.pid)) return
  rmSync(join(home.path, 'data', 'postmaster.pid'), { force: true })
  rmSync(join(home.sockets, `${SOCKET_NAME}.lock`), { force: true })
}

/** Kills the whole cluster, its shell included. For one whose shell or server was killed and whose rest hangs. */
export async function killCluster(home: Home): Promise<void> {
  signal(await processesBesides(home), 'SIGKILL')
  const file = readPidFile(home)
  if (file) signal(await processesOn(home, file.pid), 'SIGKILL')
}

/** Whether the process id belongs to this cluster and not to a stranger who got the number later. */
export async function isOfCluster(home: Home, pid: number): Promise<boolean> {
  return isOwnedBy(home, pid) && (await commandLine(pid)).includes(home.path)
}

/** How long the server's log is, in bytes: what a start writes comes behind. */
export function logLength(home: Home): number {
  return statSync(logFile(home), { throwIfNoEntry: false })?.size ?? 0
}

/** The last lines of the server's log, none from before this length. */
export function logTail(home: Home, length: number): string[] {
  return (readSmallFile(logFile(home), length) ?? '').split('\n').filter(line => line.trim() !== '')
}

export function logFile(home: Home): string {
  return join(home.path, 'log')
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

function readPidFile(home: Home): PidFile | undefined {
  const lines = readSmallFile(join(home.path, 'data', 'postmaster.pid'))?.split('\n') ?? []
  const pid = Number(lines[0])
  if (!Number.isInteger(pid) || pid <= 0) return undefined
  return { pid, sockets: lines[4] ?? '', ready: lines[7]?.trim() === 'ready' }
}

/** Processes of the server that works on this data: on Linux all of them, elsewhere only the one of `postmaster.pid`. */
async function processesOn(home: Home, recorded: number): Promise<number[]> {
  if (process.platform !== 'linux') return (await isOfCluster(home, recorded)) ? [recorded] : []
  return programsOf(home).filter(pid => worksOnData(home, pid))
}

/** Processes of the cluster that do not work on its data: the shells, initdb, and a server that has hardly begun. */
async function processesBesides(home: Home): Promise<number[]> {
  if (process.platform === 'linux') return programsOf(home).filter(pid => !worksOnData(home, pid))
  const { shell, watcher } = readProcessIds(home) ?? { shell: 0, watcher: 0 }
  const own = await Promise.all(
    [shell, watcher].map(async pid => (pid !== 0 && (await isOfCluster(home, pid)) ? [pid] : [])),
  )
  return own.flat()
}

/** Programs of this cluster, known by their names and arguments, or by their working folder. */
function programsOf(home: Home): number[] {
  const ids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return ids.filter(pid => {
    try {
      if (!isOwnedBy(home, pid)) return false
      const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
      const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
      if (name === 'sh') return line.includes(`\0${SHELL_NAME}\0${home.path}\0`)
      if (name !== 'postgres' && name !== 'initdb') return false
      return line.includes(`\0${home.path}/`) || readlinkSync(`/proc/${pid}/cwd`).startsWith(`${home.path}/`)
    } catch {
      return false // ended meanwhile
    }
  })
}

/** Every PostgreSQL process changes into its data folder when it starts. */
function worksOnData(home: Home, pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === join(home.path, 'data')
  } catch {
    return false // ended meanwhile
  }
}

/** Root signals only processes of the server's account, whatever that account wrote into its files. */
function isOwnedBy(home: Home, pid: number): boolean {
  if (process.platform !== 'linux') return true
  return statSync(`/proc/${pid}`, { throwIfNoEntry: false })?.uid === home.account.uid
}

async function commandLine(pid: number): Promise<string> {
  if (process.platform !== 'linux') {
    const own = { name: '', uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 }
    return (await runAs(own, 'ps', ['-o', 'command=', '-p', String(pid)])).stdout
  }
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}

async function ended(processes: () => Promise<number[]>): Promise<boolean> {
  const deadline = Date.now() + STOP_LIMIT_MS
  while ((await processes()).length > 0) {
    if (Date.now() > deadline) return false
    await sleep(POLL_MS)
  }
  return true
}

function cannotBeStopped(home: Home): EmbeddedUnavailable {
  return new EmbeddedUnavailable(`processes on the data in ${home.path} cannot be stopped`)
}

function signal(pids: number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name)
    } catch (error) {
      if (errorCode(error) !== 'ESRCH') throw error
    }
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
