import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import {
  closeSync,
  constants,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statfsSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { EmbeddedDiskFull, EmbeddedUnavailable, errorCode, identity, serverEnvironment } from './account.js'
import type { Binaries } from './binaries.js'
import { type Home, SOCKET_NAME } from './home.js'
import { openFifo, openForWriting, probeFifo } from './lock.js'
import {
  clearRemains,
  hasSocket,
  isReady,
  isServerRunning,
  isStopping,
  logFile,
  logLength,
  logTail,
  readProcessIds,
  readSmallFile,
  SHELL_NAME,
} from './server-process.js'

/**
 * How several processes share one server, whichever of them are killed.
 *
 * A small shell, in a session of its own so that Ctrl-C reaches only node, holds the server. Every process that uses the cluster
 * keeps the FIFO `run/users` open for writing; the shell's watcher reads it, and end of file means that no user is left, because
 * the kernel closes the descriptors of a killed process too. The FIFO itself stays for good, so whoever held it
 * through a crash of the server counts for the next server as well.
 *
 * Leaving and joining at the same moment: who joins writes a line and *then* looks whether `run/ready` is there; the watcher, at
 * end of file, takes `ready` away and *then* reads once more. So either the watcher sees the line and puts `ready`
 * back, or who joins sees that `ready` is gone and tries again. The second FIFO, `run/presence`, which nobody writes to, only
 * tells a process that leaves whether it is the last one, and should wait for the server's end.
 */
const HOLD_SERVER = `
trap '' HUP INT TERM
umask 077
home=$1 bin=$2 initdb=$3
shift 3
cd "$home" || exit 1
if [ -f log ] && [ "$(wc -c <log)" -gt 8000000 ]; then mv log log.old; fi
exec 3<&0 0</dev/null >>log 2>&1
rm -f run/ready* run/leaving run/pids
rm -rf new-*

(
  if [ ! -e data ]; then
    new=new-$$
    "$bin/initdb" -D "$home/$new" -U postgres -A trust -E UTF8 $initdb && [ ! -e data ] && mv $new data || exit 1
  fi
  exec "$bin/postgres" -D "$home/data" "$@"
) 3<&- &
server=$!

(
  while :; do
    while read -r line; do :; done
    mv run/ready run/leaving 2>/dev/null
    read -r line || break
    mv run/leaving run/ready 2>/dev/null
  done
  # Repeated, because a server that has only begun to start ignores the signal.
  while kill -INT $server 2>/dev/null; do sleep 0.05 || sleep 1; done </dev/null
) <&3 3<&- &
watcher=$!
exec 3<&-
# A full disk takes no process ids, and without them nobody finds the server.
echo "$$ $watcher $server" >run/pids || kill -KILL $server

wait $server
code=$?
rm -f run/ready run/leaving run/pids
kill -KILL $watcher 2>/dev/null
exit $code
`

/** This process is one of the cluster's users as long as both descriptors are open. */
export interface Membership {
  users: number
  presence: number
  /** The server's version, as it calls itself. */
  version: string
}

const POLL_MS = 5
const STOP_LIMIT_MS = 20_000
/** How long a cluster whose server is gone may take to fold up before it is killed. */
const HALF_DEAD_LIMIT_MS = 1_000

/** Joins the cluster if it runs: `absent` when nothing holds it, `changing` while it starts or stops. */
export async function joinCluster(home: Home): Promise<Membership | 'absent' | 'changing'> {
  const presence = openFifo(inRun(home, 'presence'), constants.O_RDWR)
  const users = openForWriting(inRun(home, 'users'))
  if (users !== undefined) {
    const version = announce(home, users)
    if (version !== undefined && (await accepts(home))) return { users, presence, version }
    closeSync(users)
  }
  closeSync(presence)
  return users === undefined ? 'absent' : 'changing'
}

/**
 * Joins the cluster, or waits until nothing holds it any more. Call it under the lock: then nobody else can start one.
 * @param deadline time in ms since the epoch
 * @throws EmbeddedUnavailable after the deadline
 */
export async function joinOrVacate(home: Home, deadline: number): Promise<Membership | 'absent'> {
  const since = Date.now()
  for (;;) {
    const result = await joinCluster(home)
    if (result !== 'changing') return result
    const waited = Date.now() - since
    if (waited > STOP_LIMIT_MS || (waited > HALF_DEAD_LIMIT_MS && !isServerRunning(home))) await clearRemains(home)
    if (Date.now() > deadline) throw new EmbeddedUnavailable(`the server on ${home.path} neither answers nor ends`)
    await sleep(POLL_MS)
  }
}

/**
 * Starts the server, after `initdb` if there is no data yet. Call it under the lock, when nothing holds the cluster.
 * @param settings PostgreSQL settings, given as `-c name=value`
 * @param deadline time in ms since the epoch
 * @throws EmbeddedUnavailable with the server's own words when it ends before it is ready, or somebody else runs one here
 */
export async function startCluster(
  home: Home,
  binaries: Binaries,
  settings: Record<string, string>,
  deadline: number,
): Promise<Membership> {
  await clearRemains(home)
  const presence = openFifo(inRun(home, 'presence'), constants.O_RDWR)
  const logged = logLength(home)
  const { users, shell } = spawnShell(home, binaries, settings)
  try {
    await ready(home, shell, deadline, logged)
    publish(home, binaries.version)
    return { users, presence, version: binaries.version }
  } catch (error) {
    abandonCluster({ users, presence })
    // Users of its predecessor would keep alive what nobody can join: it could not be published, or is not ready in time.
    await clearRemains(home)
    throw error
  }
}

/** Why nobody can work with the cluster, whose users are still there; undefined when they can. */
export function whyUnusable(home: Home): string | undefined {
  if (!isServerRunning(home) || probeFifo(inRun(home, 'users')) !== 'read') return 'has ended'
  if (isStopping(home)) return 'was told to stop, and waits for those who use it'
  return hasSocket(home) ? undefined : 'has lost its socket, and nobody can reach it'
}

/** Stops to be a user of the cluster, and waits for nothing. */
export function abandonCluster({ users, presence }: Pick<Membership, 'users' | 'presence'>): void {
  closeSync(users)
  closeSync(presence)
}

/**
 * Leaves the cluster. The last one out waits until the server has stopped.
 * @returns whether the server stopped or still has users; false when it took too long
 */
export async function leaveCluster(home: Home, { users, presence }: Membership): Promise<boolean> {
  closeSync(presence)
  const last = !isUsed(home)
  closeSync(users)
  const deadline = Date.now() + STOP_LIMIT_MS
  while (last && probeFifo(inRun(home, 'users')) === 'read' && !isUsed(home)) {
    if (Date.now() > deadline) return false
    await sleep(POLL_MS)
  }
  return true
}

/** Says that this process uses the cluster. The version when the watcher has not begun to stop the server. */
function announce(home: Home, users: number): string | undefined {
  try {
    writeSync(users, 'join\n')
  } catch (error) {
    if (errorCode(error) === 'EPIPE' || errorCode(error) === 'EAGAIN') return undefined
    throw error
  }
  return readSmallFile(inRun(home, 'ready'))?.trim()
}

/** Whether the server takes a connection, and not only to say that it is on its way out. */
async function accepts(home: Home): Promise<boolean> {
  if (isStopping(home)) return false
  return await new Promise(resolve => {
    const socket = connect(join(home.sockets, SOCKET_NAME))
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}

/** Whether another process uses the cluster. A FIFO without a writer ends, one with a writer has nothing to read yet. */
function isUsed(home: Home): boolean {
  const fd = openFifo(inRun(home, 'presence'), constants.O_RDONLY)
  try {
    return readSync(fd, Buffer.alloc(1), 0, 1, null) > 0
  } catch (error) {
    if (errorCode(error) === 'EAGAIN') return true
    throw error
  } finally {
    closeSync(fd)
  }
}

/** Spawns the shell with the FIFO as its standard input, so that it never waits for this process to open the other side. */
function spawnShell(home: Home, binaries: Binaries, settings: Record<string, string>) {
  const path = inRun(home, 'users')
  const opener = openFifo(path, constants.O_RDONLY)
  const users = openFifo(path, constants.O_WRONLY)
  const input = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  try {
    const shell = spawn('/bin/sh', ['-c', HOLD_SERVER, SHELL_NAME, ...shellArguments(home, binaries, settings)], {
      ...identity(home.account),
      cwd: '/',
      env: serverEnvironment(),
      stdio: [input, 'ignore', 'ignore'],
      detached: true,
    })
    shell.unref()
    return { users, shell }
  } finally {
    closeSync(opener)
    closeSync(input)
  }
}

function shellArguments(home: Home, { dir, major }: Binaries, settings: Record<string, string>): string[] {
  const locale = major < 17 ? '' : '--locale-provider=builtin --locale=C.UTF-8'
  const sync = settings.fsync === 'off' ? '--no-sync' : ''
  const all = {
    ...settings,
    listen_addresses: '',
    port: '5432',
    unix_socket_directories: `"${home.sockets.replaceAll('"', '""')}"`,
    unix_socket_permissions: '0700',
  }
  return [
    home.path,
    dir,
    `${locale} ${sync}`,
    ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ]
}

async function ready(home: Home, shell: ChildProcess, deadline: number, logged: number): Promise<void> {
  let ended = false
  let failed: Error | undefined
  shell.once('exit', () => {
    ended = true
  })
  shell.once('error', error => {
    failed = error
  })
  for (;;) {
    if (failed) throw new EmbeddedUnavailable(`its shell does not start (${failed.message})`, { cause: failed })
    if (ended && isDiskFull(home)) throw new EmbeddedDiskFull(home.path)
    if (ended) throw new EmbeddedUnavailable(`the server ended: ${reason(home, logged)}, see ${logFile(home)}`)
    const ids = readProcessIds(home)
    if (ids !== undefined && ids.shell === shell.pid && isReady(home, ids.server)) return
    if (Date.now() > deadline) throw new EmbeddedUnavailable(`the server is not ready in time, see ${logFile(home)}`)
    await sleep(POLL_MS)
  }
}

/** Size of a file of the write-ahead log: a server starts only where it can write a new one. */
const WAL_FILE_BYTES = 16 * 1024 * 1024

/** Whether there is no room for the server. Of a full disk it can write nothing into its log. */
export function isDiskFull({ path }: Home): boolean {
  const { bavail, bsize } = statfsSync(path)
  return bavail * bsize < WAL_FILE_BYTES
}

/** Why the server ended: the last error that it logged, or its first line. */
function reason(home: Home, logged: number): string {
  const lines = logTail(home, logged)
  const cause = lines.findLast(line => /(FATAL|PANIC|error): /i.test(line) && !REFUSED_CLIENT.test(line)) ?? lines[0]
  return cause?.replace(LINE_PREFIX, '').trim() ?? 'it wrote nothing'
}

/** What a client was told that came too early or too late. */
const REFUSED_CLIENT = /FATAL: +the database system is /
/** The time and the process id, which differ in every line. */
const LINE_PREFIX = /^\S+ \S+ \S+ \[\d+\] /

/** From now on others may join. Written under another name first, so that nobody reads half of it. */
function publish(home: Home, version: string): void {
  const unpublished = inRun(home, `ready-${randomUUID()}`)
  try {
    writeFileSync(unpublished, version, { flag: 'wx', mode: 0o644 })
    renameSync(unpublished, inRun(home, 'ready'))
  } finally {
    rmSync(unpublished, { force: true })
  }
}

function inRun(home: Home, name: string): string {
  return join(home.path, 'run', name)
}
