import { createHash } from 'node:crypto'
import { existsSync, lstatSync, realpathSync } from 'node:fs'
import { chmod, lchown, mkdir } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { type Account, accountFor, EmbeddedUnavailable, errorCode, nameOf, runAs } from './account.js'

/**
 * The folder of one cluster: `data` (the cluster), `run` (its socket) and `log`. It belongs to the server's account with mode 0700, which
 * makes `trust` authentication safe.
 */
export interface Home {
  path: string
  account: Account
  /** The folder of the socket: `run`, unless its path is too long for a socket. */
  sockets: string
}

/** The name that PostgreSQL gives the socket of port 5432. */
export const SOCKET_NAME = '.s.PGSQL.5432'
/** A socket address has 108 bytes on Linux and 104 elsewhere, one of them for the final NUL. */
const SOCKET_PATH_LIMIT_BYTES = process.platform === 'linux' ? 107 : 103

/** Creates a folder and its parents, so that the server's account can enter it regardless of the umask. Throws the system's error. */
export async function makeDataDir(path: string): Promise<void> {
  const made = await mkdir(path, { recursive: true })
  if (made !== undefined) await chmod(path, 0o711)
}

function folderIn(dataDir: string): string {
  return join(resolve(dataDir), 'postgresql')
}

/** The existing cluster folder for this `dataDir`, or undefined. */
export function existingHome(dataDir: string): string | undefined {
  const folder = folderIn(dataDir)
  return existsSync(join(folder, 'data')) ? folder : undefined
}

/**
 * Opens the cluster's folder below `dataDir`, or creates it. For root it belongs to the server's account, which creates the subfolders:
 * that proves that it can write there.
 * @throws EmbeddedUnavailable
 */
export async function openHome(dataDir: string): Promise<Home> {
  const path = folderIn(dataDir)
  const account = accountFor(lstatSync(path, { throwIfNoEntry: false })?.uid)
  try {
    await makeDataDir(dirname(path))
    await mkdir(path, { recursive: true, mode: 0o700 })
    // The owner of the parent folder could have placed a link here, so do not follow it.
    if (account && lstatSync(path).uid === 0) await lchown(path, account.uid, account.gid)
  } catch (cause) {
    throw new EmbeddedUnavailable(`the folder ${path} cannot be made (${errorCode(cause)})`, { cause })
  }
  const home = realpathSync(path)
  const sockets = socketsOf(home)
  const make = 'umask 077; cd "$1" && chmod 700 . && mkdir -p "$2"'
  const { ok, stderr, failed } = runAs(account, '/bin/sh', ['-c', make, 'sh', home, sockets])
  if (!ok) {
    const reason = failed ?? stderr.trim()
    throw new EmbeddedUnavailable(
      `${nameOf(account)} cannot write the data folder ${path} (${reason}): set DATA_DIR to another one`,
    )
  }
  const { uid, mode } = lstatSync(sockets)
  if (uid !== (account?.uid ?? process.geteuid?.()) || (mode & 0o077) !== 0)
    throw new EmbeddedUnavailable(`the socket folder ${sockets} is open to other users`)
  return { path: home, account, sockets }
}

function socketsOf(home: string): string {
  const run = join(home, 'run')
  const isShort = Buffer.byteLength(join(run, SOCKET_NAME)) <= SOCKET_PATH_LIMIT_BYTES
  const digest = createHash('sha256').update(home).digest('hex').slice(0, 12)
  return isShort ? run : join(realpathSync('/tmp'), `agent-embedded-${digest}`)
}

/** The URL of a home's server. There is no password. */
export function urlOf(home: string): string {
  return `postgres:///postgres?user=postgres&host=${encodeURIComponent(socketsOf(realpathSync(home)))}&port=5432`
}
