import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Cluster, ended, endWithUs, freePort } from './faults/cluster.js'
import { ServiceProcess } from './faults/service.js'

/* Start and stop as supervisors do it, with the real processes: npm, several services, a migration that is cut. */
t.setTimeout(900_000)

const CLI = fileURLToPath(new URL('../src/cli.js', import.meta.url))
const SERVER = fileURLToPath(new URL('../src/server.js', import.meta.url))
const { PG_BIN_DIR = '', PATH = '' } = process.env
const folder = mkdtempSync(join(tmpdir(), 'supervised-'))
chmodSync(folder, 0o711) // the server of a root start runs as another user, who must get through
t.teardown(() => rmSync(folder, { recursive: true, force: true }))

/** Services that start one after the other and need no new database share this one. */
const dataDir = join(folder, 'data')

t.test('npm start with umask 077 serves; SIGTERM to npm alone ends node and the embedded server', async t => {
  const port = await freePort()
  // Without the build that goes before: other tests run what it would write anew. The mask hides new files from others.
  const npm = spawn('sh', ['-c', 'umask 077; exec npm start --silent --ignore-scripts'], {
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
    env: { PATH, DATA_DIR: dataDir, PG_BIN_DIR, PORT: String(port), DEMO: 'off', DRAIN_DELAY_MS: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  endWithUs(npm)
  let output = ''
  for (const stream of [npm.stdout, npm.stderr]) stream.on('data', chunk => (output += String(chunk)))
  while (!/npx agentctl (init|token create)/.test(output)) {
    if (npm.exitCode !== null) throw new Error(output)
    await sleep(20)
  }
  t.ok(processesNaming(dataDir).length > 0)
  const began = performance.now()
  npm.kill('SIGTERM')
  await ended(npm)
  while (processesNaming(dataDir).length > 0 || (await isListening(port))) {
    if (performance.now() - began > 60_000) throw new Error(`left: ${processesNaming(dataDir).join()}`)
    await sleep(20)
  }
  t.comment(`ended within ${Math.round(performance.now() - began)} ms`)
  t.match(output, '"msg":"stopped"')
})

t.test('a closed terminal ends the service in order, and its server with it', async t => {
  if (spawnSync('script', ['--version']).error !== undefined) {
    t.comment('no program script here: a closed terminal was not seen')
    return
  }
  const env = { PATH, DATA_DIR: dataDir, PG_BIN_DIR, PORT: '0', DEMO: 'off', DRAIN_DELAY_MS: '0' }
  const terminal = spawn('script', ['-qc', `echo "pid:$$;"; exec '${process.execPath}' '${SERVER}'`, '/dev/null'], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  endWithUs(terminal)
  let output = ''
  terminal.stdout.on('data', chunk => (output += String(chunk)))
  while (!/npx agentctl (init|token create)/.test(output)) {
    if (terminal.exitCode !== null) throw new Error(output)
    await sleep(20)
  }
  const pid = Number(/pid:(\d+);/.exec(output)?.[1])
  const log = join(dataDir, 'postgresql', 'log')
  terminal.kill('SIGKILL')
  const began = performance.now()
  while (isThere(pid) || processesNaming(dataDir).length > 0) {
    if (performance.now() - began > 60_000) {
      process.kill(pid, 'SIGKILL')
      throw new Error(`left: ${pid} ${processesNaming(dataDir).join()}`)
    }
    await sleep(20)
  }
  t.match(readFileSync(log, 'utf8'), 'database system is shut down')
})

t.test('two services started at once on a fresh DATA_DIR: one serves, the other ends with one sentence', async t => {
  const settings = { DATA_DIR: join(folder, 'shared'), PG_BIN_DIR, DEMO: 'on', DRAIN_DELAY_MS: '500' }
  const services = [0, 1].map(() => new ServiceProcess(0, settings))
  t.teardown(() => Promise.all(services.map(service => service.stop('SIGKILL'))))
  for (const service of services) service.launch()
  while (services.filter(service => service.isRunning).length === 2) await sleep(20)
  const [served] = services.filter(service => service.isRunning)
  const [refused] = services.filter(service => !service.isRunning)
  t.match(refused?.log, /another process runs one on the data in .*: stop it, or set DATA_DIR to another folder/)
  while (served?.isRunning && !/npx agentctl (init|token create)/.test(served.log)) await sleep(20)
  const ended = served?.stop()
  await sleep(50)
  void served?.stop()
  t.equal(await ended, 0, 'two signals at once count as one')
  t.notMatch(served?.log, 'second SIGTERM')
})

t.test('agentctl migrate, 69: a server that goes away in the middle; what was cut is repeated', async t => {
  const cluster = await Cluster.create()
  t.teardown(() => cluster.remove())
  await cluster.query('create database cut')
  const env = { PATH, DATABASE_URL: cluster.url('cut') }
  const agentctl = (command: string) => spawnSync(process.execPath, [CLI, command], { env, encoding: 'utf8' })
  const sleepy = `
    create function slowly() returns event_trigger language plpgsql as $$ begin perform pg_sleep(0.3); end $$;
    create event trigger slowly on ddl_command_end execute function slowly()`
  await cluster.query(sleepy, [], 'cut')
  const migrating = spawn(process.execPath, [CLI, 'migrate'], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let stderr = ''
  migrating.stderr.on('data', chunk => (stderr += String(chunk)))
  const count = `select count(*)::integer as count from pg_stat_activity where query ~* 'create table' and datname = 'cut'`
  while ((await cluster.query<{ count: number }>(count))[0]?.count === 0) await sleep(20)
  await cluster.stop('immediate')
  await ended(migrating)
  await cluster.start()
  t.equal(migrating.exitCode, 69)
  t.match(stderr, /^agentctl migrate: the database cannot be reached: [^\n]*; check [^\n]*\n$/)
  await cluster.query('alter database cut set default_transaction_read_only = on')
  t.match(agentctl('migrate'), {
    status: 69,
    stderr: /^agentctl migrate: the database accepts no changes at present[^\n]*\n$/,
  })
  await cluster.query('alter database cut reset default_transaction_read_only')
  await cluster.query('drop event trigger slowly', [], 'cut')
  t.match(agentctl('migrate'), { status: 0 })
  t.match(agentctl('migrate'), { status: 0, stdout: /up to date/ })
})

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Processes whose command line names this folder, or that work below it. */
function processesNaming(path: string): number[] {
  const ids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return ids.filter(pid => {
    try {
      return readlinkSync(`/proc/${pid}/cwd`).startsWith(path) || readFileSync(`/proc/${pid}/cmdline`).includes(path)
    } catch {
      return false // ended meanwhile
    }
  })
}

async function isListening(port: number): Promise<boolean> {
  return await fetch(`http://127.0.0.1:${port}/healthz`).then(
    () => true,
    () => false,
  )
}
