import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { signal } from './cluster.js'
import type { Fault } from './faults.js'
import { ServiceProcess } from './service.js'
import { Trial } from './trial.js'
import { makeWorld } from './world.js'

/** Holds the cluster, with its log of up to 1 GiB kept small by the checkpoints that the campaign asks for. */
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

  /** Process ids of the shell that leads the server's process group, and of the postmaster. */
  pids(): { shell: number; postmaster: number } {
    const [shell = 0, , postmaster = 0] = readFileSync(join(this.folder, 'postgresql', 'run', 'pids'), 'utf8')
      .split(' ')
      .map(Number)
    return { shell, postmaster }
  }

  async query<R extends pg.QueryResultRow>(text: string): Promise<R[]> {
    const client = new pg.Client({ connectionString: this.url() })
    client.on('error', () => {}) // the server is killed under it
    await client.connect()
    try {
      return (await client.query<R>(text)).rows
    } finally {
      await client.end().catch(() => {})
    }
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

  /**
   * Writes to the server's log until there is no room for the next file of it and the server gives up; or until it has
   * written more than the disk holds, because it went on with files that it had.
   */
  async exhaustWal(): Promise<void> {
    const { postmaster } = this.pids()
    const messages = `select pg_logical_emit_message(false, 'ballast', repeat('x', 1048576)) from generate_series(1, 16)`
    for (let mib = 0; mib < 2 * DISK_MIB && existsSync(`/proc/${postmaster}`); mib += 16)
      await this.query(messages).catch(() => {})
  }

  async remove(): Promise<void> {
    if (this.#isMount) execFileSync('umount', ['--lazy', this.folder])
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

/** A service that starts the embedded server, with agents and tools in it, for faults to strike. */
export async function embeddedTrial(disk: Pick<EmbeddedFault, 'ownDisk'>): Promise<Trial<EmbeddedServer>> {
  const server = new EmbeddedServer(disk)
  try {
    const { PG_BIN_DIR = '' } = process.env
    const service = await ServiceProcess.start({ DATA_DIR: server.folder, PG_BIN_DIR })
    return new Trial(server, service, await makeWorld(server.url()))
  } catch (error) {
    await server.remove()
    throw error
  }
}

export interface EmbeddedFault extends Fault<EmbeddedServer> {
  ownDisk?: boolean
}

/** A server that recovers from a crash takes as long as the machine lets it: what counts is that it comes back by itself. */
const recoveryLimitMs = 30_000

/** What may happen to a service with the embedded server. Nothing but a killed service is started again from outside. */
export const EMBEDDED_FAULTS: Readonly<Record<string, EmbeddedFault>> = {
  embedded_postmaster_killed: {
    holdMs: () => 0,
    recoveryLimitMs,
    strike: async ({ cluster }) => {
      signal(cluster.pids().postmaster, 'SIGKILL')
      return async () => {}
    },
  },
  // As `kill` and `systemctl` do: the server lets nobody in and waits for those who are, the service among them.
  embedded_postmaster_told_to_stop: {
    holdMs: () => 0,
    recoveryLimitMs,
    strike: async ({ cluster }) => {
      signal(cluster.pids().postmaster, 'SIGTERM')
      return async () => {}
    },
  },
  embedded_socket_removed: {
    holdMs: () => 0,
    recoveryLimitMs,
    strike: async ({ cluster }) => {
      rmSync(join(cluster.folder, 'postgresql', 'run', '.s.PGSQL.5432'))
      return async () => {}
    },
  },
  embedded_group_killed: {
    holdMs: () => 0,
    recoveryLimitMs,
    strike: async ({ cluster }) => {
      process.kill(-cluster.pids().shell, 'SIGKILL')
      return async () => {}
    },
  },
  embedded_service_killed: {
    holdMs: () => 0,
    recoveryLimitMs,
    mayLose: true,
    strike: async ({ service }) => {
      await service.stop('SIGKILL')
      return async () => {
        service.launch()
        await service.ready()
      }
    },
  },
  embedded_both_killed: {
    holdMs: () => 0,
    recoveryLimitMs,
    mayLose: true,
    strike: async ({ cluster, service }) => {
      signal(cluster.pids().postmaster, 'SIGKILL')
      await service.stop('SIGKILL')
      return async () => {
        service.launch()
        await service.ready()
      }
    },
  },
  embedded_disk_full: {
    ownDisk: true,
    holdMs: () => 2_000,
    recoveryLimitMs,
    strike: async ({ cluster }) => {
      const makeRoom = cluster.fill()
      await cluster.exhaustWal()
      return async () => makeRoom()
    },
  },
}
