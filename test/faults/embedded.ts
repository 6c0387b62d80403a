import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Holds the cluster, with little room beside it. */
const DISK_MIB = 400

/** The embedded server of a service under test, seen from outside: by its files and its socket. */
export class EmbeddedServer {
  /** What the service gets as `DATA_DIR`. */
  readonly folder: string
  readonly #isMount: boolean

  /** `ownDisk`: on a file system of its own, in memory, which `fill` fills; see `canMount`. */
  constructor({ ownDisk = false } = {}) {
    this.folder = mkdtempSync(join(tmpdir(), 'agents-embedded-'))
    this.#isMount = ownDisk
    if (ownDisk) execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'tmpfs', this.folder])
    chmodSync(this.folder, 0o755) // the server's own account has to reach it
  }

  url(): string {
    return `postgres:///postgres?user=postgres&host=${encodeURIComponent(join(this.folder, 'postgresql', 'run'))}`
  }

  /** The process id of the postmaster; 0 when there is none. */
  pid(): number {
    const path = join(this.folder, 'postgresql', 'data', 'postmaster.pid')
    return existsSync(path) ? Number.parseInt(readFileSync(path, 'utf8'), 10) || 0 : 0
  }

  /** Leaves no room on the disk; answers what makes room again. */
  fill(): () => void {
    const ballast = join(this.folder, 'ballast')
    try {
      for (;;) writeFileSync(ballast, Buffer.alloc(64 * 1024), { flag: 'a' })
    } catch {
      // Full.
    }
    return () => rmSync(ballast)
  }

  async remove(): Promise<void> {
    if (this.#isMount) execFileSync('umount', ['--lazy', this.folder])
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }
}
