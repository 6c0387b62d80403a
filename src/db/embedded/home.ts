import { createHash } from 'node:crypto'
import { existsSync, lstatSync, readdirSync, realpathSync } from 'node:fs'
import { chmod, lchown, lstat, mkdir } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import {
  type Account,
  accountOf,
  checkIsOurs,
  EmbeddedUnavailable,
  errorCode,
  isRoot,
  preferredAccount,
  runAs,
  temporaryRoot,
} from './account.js'

/**
 * The folder of one cluster: `data` (the cluster itself), `run` (its socket) and `log`. It has mode 0700 and belongs to the
 * account that runs the server; that mode is what makes `trust` authentication safe.
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
/** The address of a socket holds 108 bytes on Linux and 104 elsewhere, one of them for the final NUL. */
const SOCKET_PATH_LIMIT_BYTES = process.platform === 'linux' ? 107 : 103

/**
 * Makes a folder and those above it where they are missing, so that the account of the server can pass through, whatever the
 * umask says. Each step is one call: Node's own recursion never ends below /proc. Throws the system's error.
 */
export async function makeDataDir(path: string): Promise<void> {
  if (existsSync(path)) return
  await makeDataDir(dirname(path))
  try {
    await mkdir(path)
    await chmod(path, 0o711)
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error // else by another process at the same time
  }
}

/** Whether a cluster was made for this `dataDir` before, wherever it lies. Makes nothing. */
export function embeddedDataExists(dataDir: string): boolean {
  const folders = [resolve(dataDir), ...(isRoot() ? [spareOf(dataDir)] : [])]
  return folders.some(folder => existsSync(join(folder, FOLDER, 'data')))
}

/**
 * Opens the cluster's folder below `dataDir`, making it when it is new. As root it belongs to the account that runs the server;
 * where that account cannot reach `dataDir`, a folder under a temporary one takes its place.
 * @throws EmbeddedUnavailable
 */
export async function openHome(dataDir: string, log: (line: string) => void): Promise<Home> {
  const wanted = join(resolve(dataDir), FOLDER)
  if (!isRoot()) {
    const account = preferredAccount()
    if (!(await makeHome(wanted, account))) throw new EmbeddedUnavailable(`the data folder ${wanted} cannot be made`)
    const { uid } = lstatSync(wanted)
    if (uid === account.uid) return await prepared(wanted, account)
    throw new EmbeddedUnavailable(`the data folder ${wanted} belongs to another user (id ${uid})`)
  }
  const owner = ownerOf(wanted)
  const spare = join(spareOf(dataDir), FOLDER)
  const hasData = owner !== undefined && existsSync(join(wanted, 'data'))
  const account = owner ?? preferredAccount()
  if (hasData || (!existsSync(spare) && (await makeHome(wanted, account)))) return await prepared(wanted, account)
  const spareAccount = ownerOf(spare) ?? preferredAccount()
  await makeDataDir(dirname(spare))
  checkIsOurs(dirname(spare))
  if (!(await makeHome(spare, spareAccount))) throw new EmbeddedUnavailable(`${spare} cannot be made`)
  log(
    `the user ${spareAccount.name}, who runs the embedded PostgreSQL, cannot reach ${resolve(dataDir)}: its data is in ` +
      `${spare}; for another folder, set DATA_DIR to one that ${spareAccount.name} can reach`,
  )
  return await prepared(spare, spareAccount)
}

/** The account that owns an existing home. A home that is there but empty and root's (a mount point) counts as missing. */
function ownerOf(path: string): Account | undefined {
  if (!existsSync(path)) return undefined
  const stats = lstatSync(path)
  if (!stats.isDirectory()) throw new EmbeddedUnavailable(`${path} is not a folder`)
  if (stats.uid !== 0) return accountOf(stats.uid)
  if (readdirSync(path).length === 0) return undefined
  throw new EmbeddedUnavailable(`${path} belongs to root, who cannot run PostgreSQL`)
}

/** Makes the folder and gives it to the account; false where that cannot be, or the account could not reach it. */
async function makeHome(path: string, account: Account): Promise<boolean> {
  try {
    await makeDataDir(dirname(path))
    const { code } = await runAs(account, '/bin/sh', ['-c', 'cd "$1"', 'sh', dirname(path)])
    if (code !== 0) return false
    await mkdir(path, { recursive: true, mode: 0o700 })
    // The owner of the folder above might have put a link here.
    if (isRoot() && (await lstat(path)).uid === 0) await lchown(path, account.uid, account.gid)
    return true
  } catch (error) {
    if (['EACCES', 'EROFS', 'EPERM', 'ENOTDIR', 'ENOENT'].includes(errorCode(error) ?? '')) return false
    throw error
  }
}

/** Its name follows from `dataDir`, so that the next start finds it. */
function spareOf(dataDir: string): string {
  return join(temporaryRoot(), `agent-embedded-data-${digest(resolve(dataDir))}`)
}

/** Has the account make what is missing, which proves that it can reach the folder and write there. */
async function prepared(path: string, account: Account): Promise<Home> {
  const home = realpathSync(path)
  const run = join(home, 'run')
  const isShort = Buffer.byteLength(join(run, SOCKET_NAME)) <= SOCKET_PATH_LIMIT_BYTES
  const sockets = isShort ? run : join(realpathSync('/tmp'), `agent-embedded-${digest(home)}`)
  const make = 'umask 077; cd "$1" && chmod 700 . && mkdir -p "$2"'
  const { code, stderr, failed } = await runAs(account, '/bin/sh', ['-c', make, 'sh', home, sockets])
  if (code !== 0) {
    const reason = failed ?? stderr.trim()
    throw new EmbeddedUnavailable(`the user ${account.name} cannot write the data folder ${path}: ${reason}`)
  }
  const stats = lstatSync(sockets)
  if (!stats.isDirectory() || stats.uid !== account.uid || (stats.mode & 0o077) !== 0)
    throw new EmbeddedUnavailable(`the socket folder ${sockets} is open to other users`)
  return { path: home, account, sockets }
}

function digest(path: string): string {
  return createHash('sha256').update(path).digest('hex').slice(0, 12)
}
