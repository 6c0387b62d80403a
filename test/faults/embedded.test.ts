import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { newFolder } from '../postgres.js'
import { ask, ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

const { PATH = '', PG_BIN_DIR = '' } = process.env

/** The service's data folder, through which the tests observe the embedded server from outside. */
const folder = newFolder(t)
const home = join(folder, 'postgresql')
const url = `postgres:///postgres?user=postgres&host=${encodeURIComponent(join(home, 'run'))}`

/** Returns the process id of the postmaster; 0 if the postmaster does not run. */
function postmasterPid(): number {
  const path = join(home, 'data', 'postmaster.pid')
  return existsSync(path) ? Number.parseInt(readFileSync(path, 'utf8'), 10) || 0 : 0
}

t.test('whatever ends the embedded server or its service, it runs again and keeps what was acknowledged', async t => {
  const settings = { DATA_DIR: folder, PG_BIN_DIR, DEMO: 'off', DRAIN_DELAY_MS: '0' }
  const service = await ServiceProcess.start(settings, t)
  const token = await makeWorld(url)
  const strikes: Record<string, () => void | Promise<void>> = {
    'server killed': () => void process.kill(postmasterPid(), 'SIGKILL'),
    'service killed': async () => {
      await service.stop('SIGKILL')
      service.launch()
    },
  }
  for (const [what, strike] of Object.entries(strikes)) {
    const before = postmasterPid()
    const body = { description: what }
    t.match(await ask(service, token, 'PATCH', '/persona/1?update_mask=description', { body }), { status: 200 }, what)
    await strike()
    while (postmasterPid() === 0 || postmasterPid() === before) await sleep(20)
    await service.ready()
    t.match(await ask(service, token, 'GET', '/persona/1'), { body }, what)
  }

  const data = join(home, 'data')
  const postmaster = postmasterPid()
  renameSync(data, `${data}.away`)
  process.kill(postmaster, 'SIGKILL')
  while (!service.log.includes('its data folder is gone')) await sleep(20)
  t.match(await service.readiness(), {
    status: 503,
    detail: /restarts the embedded PostgreSQL.*the file "log" next to its data folder/,
  })
  t.notOk(existsSync(data), 'no empty database in their place')
  renameSync(`${data}.away`, data)
  await service.ready()
  while (!/is gone.*runs again/s.test(service.log)) await sleep(20)
  t.match(service.log, /has ended; starting it again; its log is .*cannot be started again yet: .*is gone/s)
  t.notMatch(service.log, 'DATABASE_URL')

  const running = postmasterPid()
  const status = () => spawnSync(process.execPath, [CLI, 'status'], { env: { PATH, ...settings }, encoding: 'utf8' })
  t.equal(status().status, 0, 'agentctl uses the server of the service')
  t.equal(postmasterPid(), running)
  t.equal(await service.stop(), 0)
  t.equal(postmasterPid(), 0)
  t.match(status(), {
    status: 69,
    stderr: /cannot connect to the database: .*the service \(npm start\) runs and restarts the embedded PostgreSQL/,
  })
})
