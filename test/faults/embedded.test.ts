import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { serverExit } from '../server-exit.js'
import { TEST_SECRET_KEYS } from '../world.js'
import { canMount } from './cluster.js'
import { ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

const { PATH = '', PG_BIN_DIR = '' } = process.env

/** Holds the cluster, with little room beside it. */
const DISK_MIB = 400

/** The embedded server of a service under test, seen from outside: by its files and its socket. */
class EmbeddedServer {
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

t.test('whatever ends the embedded server or its service, it runs again and keeps what was acknowledged', async t => {
  const server = new EmbeddedServer()
  t.teardown(() => server.remove())
  const settings = { DATA_DIR: server.folder, PG_BIN_DIR, DEMO: 'off', DRAIN_DELAY_MS: '0' }
  const service = await ServiceProcess.start(settings)
  t.teardown(() => service.stop('SIGKILL'))
  const token = await makeWorld(server.url())
  const strikes: Record<string, () => void | Promise<void>> = {
    'server killed': () => void process.kill(server.pid(), 'SIGKILL'),
    'server told to stop': () => void process.kill(server.pid(), 'SIGTERM'),
    'service killed': async () => {
      await service.stop('SIGKILL')
      service.launch()
    },
  }
  for (const [what, strike] of Object.entries(strikes)) {
    const before = server.pid()
    const call = (method: string, body?: object) =>
      fetch(`http://127.0.0.1:${service.port}/persona/1${body ? '?update_mask=description' : ''}`, {
        method,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        ...(body && { body: JSON.stringify(body) }),
      })
    t.equal((await call('PATCH', { description: what })).status, 200, what)
    await strike()
    while (server.pid() === 0 || server.pid() === before) await sleep(20)
    await service.ready()
    t.match(await (await call('GET')).json(), { description: what }, what)
  }

  const data = join(server.folder, 'postgresql', 'data')
  const postmaster = server.pid()
  renameSync(data, `${data}.away`)
  process.kill(postmaster, 'SIGKILL')
  while (!service.log.includes('its data are gone')) await sleep(20)
  t.match(await service.readiness(), {
    status: 503,
    detail: /it is the embedded PostgreSQL.*the file log beside its data/,
  })
  t.notOk(existsSync(data), 'no empty database in their place')
  renameSync(`${data}.away`, data)
  await service.ready()
  t.match(service.log, /has ended; starting it again; its log is .*does not start again yet: .*are gone.*runs again/s)
  t.notMatch(service.log, 'DATABASE_URL')

  const running = server.pid()
  const status = () => spawnSync(process.execPath, [CLI, 'status'], { env: { PATH, ...settings }, encoding: 'utf8' })
  t.equal(status().status, 0, 'agentctl uses the server of the service')
  t.equal(server.pid(), running)
  t.equal(await service.stop(), 0)
  t.equal(server.pid(), 0)
  t.match(status(), {
    status: 69,
    stderr: /cannot be reached: .*the embedded PostgreSQL, which the service \(npm start\) runs/,
  })
})

t.test(
  'status 69 and one sentence when the disk is full at the start; 503 database_full when it is later',
  { skip: !canMount() && 'file systems cannot be mounted here' },
  async t => {
    const server = new EmbeddedServer({ ownDisk: true })
    t.teardown(() => server.remove())
    const settings = { DATA_DIR: server.folder, PG_BIN_DIR, DEMO: 'off', DRAIN_DELAY_MS: '0' }
    const makeRoom = server.fill()
    const withoutKey = await serverExit(settings)
    t.equal(withoutKey.code, 69)
    t.match(withoutKey.output, /^the disk of .* is full; make space there and start again\n$/)
    const { code, output } = await serverExit({ ...settings, SECRET_KEYS: TEST_SECRET_KEYS })
    t.equal(code, 69)
    t.match(output, /cannot run: the disk of .* is full; make space there and start again\n$/)
    makeRoom()
    const service = await ServiceProcess.start(settings)
    t.teardown(() => service.stop('SIGKILL'))
    const makeRoomAgain = server.fill()
    process.kill(server.pid(), 'SIGKILL')
    while ((await service.readiness()).reason !== 'database_full') await sleep(20)
    makeRoomAgain()
    await service.ready()
    t.equal(await service.stop(), 0)
  },
)
