import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { agentctl, startAgentctl } from './cli/agentctl.js'
import { eventually } from './eventually.js'
import { Cluster, ended, freePort, processesWhere } from './faults/cluster.js'
import { ServiceProcess } from './faults/service.js'
import { newFolder } from './postgres.js'

/* Starts and stops the service like supervisors: with npm, as several services, and during a migration. */

const SERVER = fileURLToPath(new URL('../src/server.js', import.meta.url))
const { PG_BIN_DIR = '', PATH = '' } = process.env
const folder = newFolder(t)

const TOKEN = /\bpat_\w{28}\b/
const dataDir = join(folder, 'data')
/** The environment of two services that start one after the other. */
const env = { PATH, DATA_DIR: dataDir, PG_BIN_DIR, PORT: '0', DEMO: 'on', DRAIN_DELAY_MS: '0' }

/** Waits until the service has printed how to create a token. It prints this once it serves requests. */
async function whenServing(child: ChildProcess): Promise<{ output: string }> {
  const said = { output: '' }
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', chunk => (said.output += String(chunk)))
  while (!/npx agentctl (init|token create)/.test(said.output)) {
    if (child.exitCode !== null) throw new Error(said.output)
    await sleep(20)
  }
  return said
}

t.test('npm start with umask 077 serves a demo; SIGTERM to npm alone ends node and the embedded server', async t => {
  const port = await freePort()
  // Skips the build, because it would replace files that other tests are running.
  const npm = spawn('sh', ['-c', 'umask 077; exec npm start --silent --ignore-scripts'], {
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
    env: { ...env, PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const said = await whenServing(npm)
  t.ok(processesNaming(dataDir).length > 0)
  t.match(said.output, TOKEN, 'the first start prints the token of the administrator')
  const [curl = ''] = said.output.split('\n').filter(line => line.trim().startsWith('curl '))
  const pasted = spawnSync('sh', ['-c', `${curl.trim()} -s -o /dev/null -w '%{http_code}'`], { encoding: 'utf8' })
  if (pasted.status === 127) t.comment('curl is not installed: the printed line was not tried')
  else t.equal(pasted.stdout, '200', curl)
  npm.kill('SIGTERM')
  await ended(npm)
  await eventually(async () => processesNaming(dataDir).length === 0 && !(await isListening(port)))
  t.match(said.output, '"msg":"stopped"')
})

t.test('a closed terminal ends the service in order, and its server with it', async t => {
  if (spawnSync('script', ['--version']).error !== undefined) {
    t.comment('no program script here: a closed terminal was not seen')
    return
  }
  const command = `echo "pid:$$;"; exec '${process.execPath}' '${SERVER}'`
  const terminal = spawn('script', ['-qc', command, '/dev/null'], { env, stdio: 'pipe' })
  const { output } = await whenServing(terminal)
  t.notMatch(output, TOKEN, 'a later start prints no token')
  const pid = Number(/pid:(\d+);/.exec(output)?.[1])
  terminal.kill('SIGKILL')
  await eventually(async () => !isThere(pid) && processesNaming(dataDir).length === 0)
  t.match(readFileSync(join(dataDir, 'postgresql', 'log'), 'utf8'), 'database system is shut down')
})

t.test('two services started at once on a fresh DATA_DIR: one serves, the other ends with one sentence', async t => {
  const settings = { DATA_DIR: join(folder, 'shared'), PG_BIN_DIR, DEMO: 'on', DRAIN_DELAY_MS: '500' }
  const services = [0, 1].map(() => new ServiceProcess(0, settings))
  t.teardown(() => Promise.all(services.map(service => service.stop('SIGKILL'))))
  for (const service of services) service.launch()
  while (services.filter(service => service.isRunning).length === 2) await sleep(20)
  const [served] = services.filter(service => service.isRunning)
  const [refused] = services.filter(service => !service.isRunning)
  t.match(
    refused?.log,
    /waiting up to 10 s(.|\n)*another process runs a server on the data in .*: stop the service that runs it, or set/,
  )
  while (served?.isRunning && !/npx agentctl (init|token create)/.test(served.log)) await sleep(20)
  const ended = served?.stop()
  await sleep(50)
  void served?.stop()
  t.equal(await ended, 0, 'two signals at once count as one')
})

t.test('agentctl migrate, 75 and 69: a server that goes away in the middle; what was cut is repeated', async t => {
  const cluster = await Cluster.create()
  t.teardown(() => cluster.remove())
  const migrate = () => agentctl({ url: cluster.url(), args: ['migrate'] })
  await cluster.query(`
    create function slowly() returns event_trigger language plpgsql as $$ begin perform pg_sleep(0.3); end $$;
    create event trigger slowly on ddl_command_end execute function slowly()`)
  const { answer } = startAgentctl({ url: cluster.url(), args: ['migrate'] })
  const creating = `select from pg_stat_activity where query ~* 'create table' and pid <> pg_backend_pid()`
  await eventually(async () => (await cluster.query(creating)).length > 0)
  await cluster.stop('immediate')
  const lost = /^agentctl: the connection to the database was lost\. [^\n]* may be stored/
  t.match(await answer, { status: 75, stderr: lost })
  await cluster.start()
  await cluster.query('alter database world set default_transaction_read_only = on', [], 'postgres')
  const readOnly = /^agentctl: the database is read-only[^\n]*\n$/
  t.match(await migrate(), { status: 69, stderr: readOnly })
  await cluster.query('alter database world reset default_transaction_read_only', [], 'postgres')
  await cluster.query('drop event trigger slowly')
  t.match(await migrate(), { status: 0 })
  t.match(await migrate(), { status: 0, stdout: /up to date/ })
})

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Returns the ids of processes with `path` in the command line or at the beginning of the working directory. */
function processesNaming(path: string): number[] {
  return processesWhere(
    pid => readlinkSync(`/proc/${pid}/cwd`).startsWith(path) || readFileSync(`/proc/${pid}/cmdline`).includes(path),
  )
}

async function isListening(port: number): Promise<boolean> {
  return await fetch(`http://127.0.0.1:${port}/healthz`).then(
    () => true,
    () => false,
  )
}
