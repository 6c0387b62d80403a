import { createHash } from 'node:crypto'
import { existsSync, realpathSync } from 'node:fs'
import { chmod, lchown, lstat, mkdir, readdir, realpath } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { type Account, accountOf, EmbeddedUnavailable, errorCode, isRoot, preferredAccount, runAs } from './account.js'
import { temporaryRoots } from './binaries.js'
import { makeDataDir } from './data-dir.js'

/**
 * The folder of one cluster: `data` (the cluster itself), `run` (socket, FIFOs, state), `log` and the lock. It has mode 0700
 * and belongs to the account that runs the server; that mode is what makes `trust` authentication safe.
 */
export interface Home {
  path: string
  account: Account
  /** The folder of the socket: `run`, unless its path is too long for a socket. */
  sockets: string
}

const FOLDER = 'postgresql'
/** `sun_path` holds 108 bytes on Linux and 104 elsewhere, one of them for the final NUL. */
const SOCKET_PATH_LIMIT_BYTES = process.platform === 'linux' ? 107 : 103
/** The name that PostgreSQL gives the socket of port 5432. */
export const SOCKET_NAME = '.s.PGSQL.5432'

/** Run as the server's account: proves that it can reach the folder and write there, and makes what every process needs. */
const PREPARE = `
umask 077
cd "$1" && chmod 700 . || exit 1
mkdir run 2>/dev/null
for fifo in users presence; do
  mkfifo "run/$fifo" 2>/dev/null
  [ -p "run/$fifo" ] || exit 1
done
[ "$2" = "$1/run" ] || mkdir "$2" 2>/dev/null || [ -d "$2" ]
`

/**
 * Opens the cluster's folder below `dataDir`, making it when it is new. As root it belongs to the account that runs the server;
 * where that account cannot reach `dataDir`, a folder under the system's temporary directory takes its place, under a name
 * that follows from `dataDir`, so that the next start finds it.
 * @throws EmbeddedUnavailable
 */
export async function openHome(dataDir: string, log: (line: string) => void): Promise<Home> {
  const wanted = join(resolve(dataDir), FOLDER)
  if (!isRoot()) return openOwnHome(wanted)

  const owner = await ownerOf(wanted)
  const spare = join(spareParent(resolve(dataDir)), FOLDER)
  const hasData = owner !== undefined && existsSync(join(wanted, 'data'))
  if (hasData || !existsSync(spare)) {
    const account = owner ?? preferredAccount()
    if (hasData || (await makeHome(wanted, account))) return prepared(wanted, account)
  }
  const account = await makeSpareHome(spare)
  log(
    `the user ${account.name}, who runs the embedded PostgreSQL, cannot reach ${resolve(dataDir)}: its data is in ${spare}; ` +
      `for another place, set DATA_DIR to a folder that ${account.name} can reach`,
  )
  return prepared(spare, account)
}

/** Whether a cluster was made for this `dataDir` before, wherever it lies. Makes nothing. */
export function embeddedDataExists(dataDir: string): boolean {
  const homes = [join(resolve(dataDir), FOLDER)]
  if (isRoot()) homes.push(join(spareParent(resolve(dataDir)), FOLDER))
  return homes.some(home => existsSync(join(home, 'data')))
}

async function openOwnHome(path: string): Promise<Home> {
  try {
    await makeDataDir(dirname(path))
    await mkdir(path, { recursive: true, mode: 0o700 })
  } catch (error) {
    throw new EmbeddedUnavailable(`the data folder ${path} cannot be made (${errorCode(error)})`, { cause: error })
  }
  const { uid } = await lstat(path)
  if (uid !== process.geteuid?.())
    throw new EmbeddedUnavailable(`the data folder ${path} belongs to another user (id ${uid})`)
  return prepared(path, preferredAccount())
}

/** The account that owns an existing home. A home that is there but empty and root's (a mount point) counts as missing. */
async function ownerOf(path: string): Promise<Account | undefined> {
  const stats = await lstat(path).catch(() => undefined)
  if (!stats) return undefined
  if (!stats.isDirectory()) throw new EmbeddedUnavailable(`${path} is not a folder`)
  if (stats.uid !== 0) return accountOf(stats.uid)
  if ((await readdir(path)).length > 0)
    throw new EmbeddedUnavailable(`${path} belongs to root, who cannot run PostgreSQL`)
  return undefined
}

/** Makes the folder and gives it to the account; false where that cannot be, or the account could not reach it. */
async function makeHome(path: string, account: Account): Promise<boolean> {
  const dataDir = dirname(path)
  try {
    await makeDataDir(dataDir)
    const { code, failed } = await runAs(account, '/bin/sh', ['-c', 'cd "$1"', 'sh', dataDir])
    if (failed !== undefined) throw notThatUser(account, failed)
    if (code !== 0) return false
    await mkdir(path, { recursive: true, mode: 0o700 })
    // Whoever owns the folder above might have put a link here.
    if ((await lstat(path)).uid === 0) await lchown(path, account.uid, account.gid)
    return true
  } catch (error) {
    if (['EACCES', 'EROFS', 'EPERM', 'ENOTDIR'].includes(errorCode(error) ?? '')) return false
    throw error
  }
}

/** The folder under the temporary one, made where it is missing; answers the account that owns it. */
async function makeSpareHome(path: string): Promise<Account> {
  const parent = dirname(path)
  await mkdir(parent).catch(error => {
    if (errorCode(error) !== 'EEXIST') throw new EmbeddedUnavailable(`${parent} cannot be made (${errorCode(error)})`)
  })
  await checkSpareParent(parent)
  await chmod(parent, 0o711) // whatever the umask says
  const account = (await ownerOf(path)) ?? preferredAccount()
  if (!(await makeHome(path, account))) throw new EmbeddedUnavailable(`${path} cannot be made`)
  return account
}

function spareParent(dataDir: string): string {
  const [root] = temporaryRoots()
  if (root === undefined) throw new EmbeddedUnavailable(`there is no temporary folder for the data of ${dataDir}`)
  return join(root, `agent-embedded-data-${digest(dataDir)}`)
}

/** Everybody may make folders under a temporary root: only what root made is believed. */
async function checkSpareParent(parent: string): Promise<void> {
  const stats = await lstat(parent)
  if (stats.isDirectory() && stats.uid === 0 && (stats.mode & 0o022) === 0) return
  throw new EmbeddedUnavailable(`${parent} was made by another user`)
}

async function prepared(path: string, account: Account): Promise<Home> {
  const home = { path: await realpath(path).catch(() => path), account, sockets: '' }
  home.sockets = socketFolder(home.path)
  const { code, stderr, failed } = await runAs(account, '/bin/sh', ['-c', PREPARE, 'sh', home.path, home.sockets])
  if (failed !== undefined) throw notThatUser(account, failed)
  if (code !== 0) {
    throw new EmbeddedUnavailable(
      `the user ${account.name} cannot write the data folder ${path} ${stderr.trim()}`.trim(),
    )
  }
  await checkSocketFolder(home)
  return home
}

function socketFolder(home: string): string {
  const run = join(home, 'run')
  if (Buffer.byteLength(join(run, SOCKET_NAME)) <= SOCKET_PATH_LIMIT_BYTES) return run
  return join(realpathSync('/tmp'), `agent-embedded-${digest(home)}`)
}

async function checkSocketFolder({ sockets, account }: Home): Promise<void> {
  const stats = await lstat(sockets)
  if (stats.isDirectory() && stats.uid === account.uid && (stats.mode & 0o077) === 0) return
  throw new EmbeddedUnavailable(`the socket folder ${sockets} is open to other users`)
}

function notThatUser(account: Account, failed: string): EmbeddedUnavailable {
  return new EmbeddedUnavailable(`this process may not act as the user ${account.name} (${failed})`)
}

function digest(path: string): string {
  return createHash('sha256').update(path).digest('hex').slice(0, 12)
}
