import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { EmbeddedDiskFull, EmbeddedUnavailable } from './account.js'
import { type Binaries, findBinaries } from './binaries.js'
import {
  abandonCluster,
  isDiskFull,
  joinCluster,
  joinOrVacate,
  leaveCluster,
  type Membership,
  startCluster,
  whyUnusable,
} from './holder.js'
import { embeddedDataExists, type Home, openHome } from './home.js'
import { takeLock } from './lock.js'
import { endServer, logFile, readSmallFile } from './server-process.js'

export { EmbeddedDiskFull, EmbeddedUnavailable, embeddedDataExists }

/** How to run the embedded PostgreSQL. */
export interface EmbeddedOptions {
  /** The cluster lives in the folder `postgresql` below this one, which is made when it is missing. */
  dataDir: string
  /** Settings of the server (`postgres -c name=value`). Only the process that starts the server decides them. */
  settings?: Record<string, string>
  /** A folder with `postgres` and `initdb` of another PostgreSQL, from version 15 (`PG_BIN_DIR`). */
  binDir?: string
  /** How long to wait, recovery after a crash included. Default 60,000. */
  startTimeoutMs?: number
  /** Gets sentences for the operator: where the data is, and what is unusual. */
  log?: (line: string, level?: 'warn') => void
}

/** A server that this process uses, together with others or alone. */
export interface Embedded {
  /** For `pg`: `host` is the folder of the Unix socket; there is no password. */
  connection: { host: string; port: number; user: string; database: string }
  /**
   * The same as one string, which `pg` and libpq understand: `postgres:///postgres?user=postgres&host=<folder>&port=5432`.
   * `new URL(url)` takes it apart, and setting its `pathname` names another database.
   */
  url: string
  /** The server's version: `18.4`. */
  version: string
  /** Whether this process started the server or found it running. */
  role: 'started' | 'joined'
  /** What the server writes about itself. */
  logFile: string
  /** Why the server, or one that another user of it has started since, cannot be used: `has ended`, ...; undefined when it can. */
  whyUnusable(): string | undefined
  /** Has the server end now, whoever uses it: for one that nobody can use any more. */
  end(): void
  /** Whether its disk has no room for it. */
  isDiskFull(): boolean
  /** Stops to be its user and waits for nothing: this process has joined its successor. */
  abandon(): void
  /** Leaves the server; the last process to do so stops it, and its promise resolves after that. End all pools before. */
  stop(): Promise<void>
}

const START_TIMEOUT_MS = 60_000
const USER = 'postgres'
const DATABASE = 'postgres'
const PORT = 5432
/** A killed server's sessions end by themselves, but not at once; until then PostgreSQL refuses to start. */
const SESSIONS_END_MS = 10_000

/**
 * Starts the embedded PostgreSQL, or joins it when another process has started it on the same `dataDir`. The server listens on
 * a Unix socket only, outlives the process that started it as long as another one uses it, and stops with its last user, however
 * that one ends.
 * @throws EmbeddedUnavailable with one sentence when it cannot run here, `EmbeddedDiskFull` when it lacks only space
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  try {
    return await startOrJoin(options)
  } catch (error) {
    const lacksSpace = !(error instanceof EmbeddedDiskFull) && /ENOSPC|No space left on device/.test(String(error))
    throw lacksSpace ? new EmbeddedDiskFull(options.dataDir, { cause: error }) : error
  }
}

async function startOrJoin(options: EmbeddedOptions): Promise<Embedded> {
  const log = options.log ?? (() => undefined)
  if (process.platform === 'win32') throw new EmbeddedUnavailable('it does not run on Windows yet')
  const home = await openHome(options.dataDir, log)
  const running = await joinCluster(home)
  if (typeof running !== 'string') return embedded(home, running, 'joined', log)

  const deadline = Date.now() + (options.startTimeoutMs ?? START_TIMEOUT_MS)
  const unlock = await takeLock(home.path, home.account, deadline)
  try {
    const joined = await joinOrVacate(home, deadline)
    if (joined !== 'absent') return embedded(home, joined, 'joined', log)
    return embedded(home, await start(home, options, deadline), 'started', log)
  } finally {
    unlock()
  }
}

async function start(home: Home, options: EmbeddedOptions, deadline: number): Promise<Membership> {
  const binaries = await findBinaries(home.account, options.binDir)
  checkMajor(home, binaries)
  const patience = Date.now() + SESSIONS_END_MS
  for (;;) {
    try {
      return await startCluster(home, binaries, options.settings ?? {}, deadline)
    } catch (error) {
      const sessionsLeft = error instanceof Error && error.message.includes('pre-existing shared memory block')
      if (!sessionsLeft || Date.now() > patience) throw error
    }
    await sleep(50)
  }
}

function checkMajor(home: Home, binaries: Binaries): void {
  const stored = readSmallFile(join(home.path, 'data', 'PG_VERSION'))?.trim()
  if (stored === undefined || stored === String(binaries.major)) return
  throw new EmbeddedUnavailable(
    `the data in ${home.path} is of PostgreSQL ${stored} and the programs in ${binaries.dir} are of PostgreSQL ${binaries.major}`,
  )
}

function embedded(home: Home, membership: Membership, role: Embedded['role'], log: (line: string) => void): Embedded {
  log(`embedded PostgreSQL ${membership.version} ${role}, data in ${home.path}, run by the user ${home.account.name}`)
  let left: Promise<void> | undefined
  return {
    connection: { host: home.sockets, port: PORT, user: USER, database: DATABASE },
    url: `postgres:///${DATABASE}?user=${USER}&host=${encodeURIComponent(home.sockets)}&port=${PORT}`,
    version: membership.version,
    role,
    logFile: logFile(home),
    whyUnusable: () => whyUnusable(home),
    end: () => endServer(home),
    isDiskFull: () => isDiskFull(home),
    abandon: () => abandonCluster(membership),
    stop: () => {
      left ??= leaveCluster(home, membership).then(stopped => {
        if (!stopped) log(`embedded PostgreSQL takes long to stop, see ${logFile(home)}`)
      })
      return left
    },
  }
}
