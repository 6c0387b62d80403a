import { createHash } from 'node:crypto'
import { existsSync, lstatSync, realpathSync } from 'node:fs'
import { chmod, lchown, mkdir } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import {
  type Account,
  accountFor,
  EmbeddedUnavailable,
  errorCode,
  isRoots,
  nameOf,
  runAs,
  temporaryRoot,
} from './account.js'

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
const FOLDER = 'postgresql'
/** A socket address has 108 bytes on Linux and 104 elsewhere, one of them for the final NUL. */
const SOCKET_PATH_LIMIT_BYTES = process.platform === 'linux' ? 107 : 103

/**
 * Creates a folder and its parents, so that the server's account can enter them regardless of the umask. It calls `mkdir` per step, because
 * Node's own recursion never ends below /proc. Throws the system's error.
 */
export async function makeDataDir(path: string): Promise<void> {
  if (existsSync(path)) return
  await makeDataDir(dirname(path))
  try {
    await mkdir(path)
    await chmod(path, 0o711)
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error // else created by another process at the same time
  }
}

/** The existing cluster folder for this `dataDir`, or undefined. */
export function existingHome(dataDir: string): string | undefined {
  const [wanted, spare] = [wantedHome(dataDir), spareHome(dataDir)]
  if (existsSync(join(wanted, 'data'))) return wanted
  return isRoots(dirname(spare)) && existsSync(join(spare, 'data')) ? spare : undefined
}

function wantedHome(dataDir: string): string {
  return join(resolve(dataDir), FOLDER)
}

/** The folder to use if root's account cannot reach `dataDir`. Its name is derived from `dataDir`, so that the next start finds it. */
function spareHome(dataDir: string): string {
  return join(temporaryRoot(), `agent-embedded-data-${digest(resolve(dataDir))}`, FOLDER)
}

/**
 * Opens the cluster's folder below `dataDir`, or creates it. For root it belongs to the server's account; if that cannot reach `dataDir`, a
 * temporary folder is used.
 * @throws EmbeddedUnavailable
 */
export async function openHome(dataDir: string, log: (line: string) => void): Promise<Home> {
  const wanted = wantedHome(dataDir)
  await made(dirname(wanted))
  const existing = existingHome(dataDir)
  const account = accountFor(lstatSync(existing ?? wanted, { throwIfNoEntry: false })?.uid)
  const reaches = account === undefined || runAs(account, '/bin/sh', ['-c', 'cd "$1"', 'sh', dirname(wanted)]).ok
  const path = existing ?? (reaches ? wanted : spareHome(dataDir))
  if (path !== wanted) {
    await made(dirname(path))
    if (!isRoots(dirname(path))) throw new EmbeddedUnavailable(`${dirname(path)} was made by another user`)
    log(
      `${nameOf(account)}, who runs the embedded PostgreSQL, cannot reach ${resolve(dataDir)}: its data is in ${path}; ` +
        'for another folder, set DATA_DIR to one within reach',
    )
  }
  return await prepared(path, account)
}

async function made(folder: string): Promise<void> {
  await makeDataDir(folder).catch(cause => {
    throw new EmbeddedUnavailable(`the folder ${folder} cannot be made (${errorCode(cause)})`, { cause })
  })
}

/** Creates a home and gives it to the account. The account creates the subfolders, which proves that it can write there. */
async function prepared(path: string, account: Account): Promise<Home> {
  await mkdir(path, { recursive: true, mode: 0o700 })
  // The owner of the parent folder could have placed a link here, so do not follow it.
  if (account && lstatSync(path).uid === 0) await lchown(path, account.uid, account.gid)
  const home = realpathSync(path)
  const sockets = socketsOf(home)
  const make = 'umask 077; cd "$1" && chmod 700 . && mkdir -p "$2"'
  const { ok, stderr, failed } = runAs(account, '/bin/sh', ['-c', make, 'sh', home, sockets])
  if (!ok) {
    throw new EmbeddedUnavailable(`${nameOf(account)} cannot write the data folder ${path}: ${failed ?? stderr.trim()}`)
  }
  const { uid, mode } = lstatSync(sockets)
  if (uid !== (account?.uid ?? process.geteuid?.()) || (mode & 0o077) !== 0)
    throw new EmbeddedUnavailable(`the socket folder ${sockets} is open to other users`)
  return { path: home, account, sockets }
}

function socketsOf(home: string): string {
  const run = join(home, 'run')
  const isShort = Buffer.byteLength(join(run, SOCKET_NAME)) <= SOCKET_PATH_LIMIT_BYTES
  return isShort ? run : join(realpathSync('/tmp'), `agent-embedded-${digest(home)}`)
}

/** The URL of a home's server. There is no password. */
export function urlOf(home: string): string {
  return `postgres:///postgres?user=postgres&host=${encodeURIComponent(socketsOf(realpathSync(home)))}&port=5432`
}

function digest(path: string): string {
  return createHash('sha256').update(path).digest('hex').slice(0, 12)
}
