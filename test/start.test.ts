import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { readConfig } from '../src/config.js'
import { agentctl as runAgentctl } from './cli/agentctl.js'
import { eventually } from './eventually.js'
import { Cluster } from './faults/cluster.js'
import { ServiceProcess } from './faults/service.js'
import { makeWorld } from './faults/world.js'
import { newFolder } from './postgres.js'
import { serverExit } from './server-exit.js'
import { TEST_SECRET_KEYS } from './world.js'

/*
 * The messages for an operator if the start fails: the fault, the setting and the remedy. The services are real processes with real exit statuses.
 * `agentctl` runs in this process.
 */

const SERVER = fileURLToPath(new URL('../src/server.js', import.meta.url))
const folder = newFolder(t)
const cluster = await Cluster.create()
t.teardown(() => cluster.remove())
await makeWorld(cluster.url())
await askForPassword('guarded', 'sesame')
const env = { DATABASE_URL: cluster.url(), SECRET_KEYS: TEST_SECRET_KEYS }

/** Creates a role without rights, whose password the server requires. */
async function askForPassword(user: string, password: string): Promise<void> {
  await cluster.query(`create role ${user} login password '${password}'`)
  const rules = join(cluster.folder, 'data', 'pg_hba.conf')
  writeFileSync(rules, `host all ${user} 127.0.0.1/32 scram-sha-256\n${readFileSync(rules, 'utf8')}`)
  await cluster.query('select pg_reload_conf()')
}

function guardedUrl(password?: string): string {
  const url = new URL(cluster.url('world', 'guarded'))
  if (password !== undefined) url.password = password
  return url.href
}

const agentctl = (line: string, env: Record<string, string> = {}) =>
  runAgentctl({ url: cluster.url(), args: line.split(' '), env })

t.test('exit 0 and 2: the service says how it is started, and which arguments it does not know', async t => {
  const started = (...args: string[]) =>
    spawnSync(process.execPath, [SERVER, ...args], { env: { ...env, PORT: '0' }, encoding: 'utf8', timeout: 120_000 })
  const help = started('--help')
  t.match(help, { status: 0, stdout: /^Usage: agent-tool-management\n(.|\n)*ops\/configuration\.md/, stderr: /^$/ })
  const wrong = started('--port', '80', '--help')
  t.match(wrong, { status: 64, stdout: /^$/, stderr: /(^|\n)agent-tool-management: unknown argument: --port 80\n$/ })
})

t.test('exit 1: a port in use is named with the setting that picks another', async t => {
  const port = String(cluster.port)
  const output = `listen EADDRINUSE: address already in use 127.0.0.1:${port}: set HOST, PORT or METRICS_PORT; 0 picks a free port.\n`
  t.strictSame(await serverExit({ ...env, METRICS_PORT: port, LOG_LEVEL: 'silent' }), { code: 1, output })
})

t.test('exit 78: a key file that is missing or unreadable, by its setting; where to write instead', async t => {
  const file = join(folder, 'keys')
  writeFileSync(file, TEST_SECRET_KEYS)
  const DATA_DIR = join(file, 'data')
  const none = { SECRET_KEYS: '', SECRET_KEYS_FILE: join(folder, 'none') }
  const starts = [serverExit({ ...env, ...none, LOG_LEVEL: 'silent' }), serverExit({ DATA_DIR })]
  const [missing, unreadable] = await Promise.all(starts)
  const output =
    'SECRET_KEYS_FILE: the file cannot be read (ENOENT: no such file or directory). ' +
    'It must contain keys in the form id:base64. Create a key with: agentctl keys generate\n'
  t.strictSame(missing, { code: 78, output })
  t.match(await agentctl('keys status', none), { status: 78, stderr: `agentctl: ${output}` })
  const advice =
    `the key file ${join(DATA_DIR, 'secret-keys')} cannot be read or created (ENOTDIR: not a directory): ` +
    'set DATA_DIR to a folder that this user can write to\n'
  t.strictSame(unreadable, { code: 78, output: advice })
})

t.test('DATABASE_URL is read from the file that DATABASE_URL_FILE names', async t => {
  const { DATABASE_URL, ...rest } = env
  const file = join(folder, 'database-url')
  writeFileSync(file, `${DATABASE_URL}\n`)
  const told = await agentctl('status --json', { DATABASE_URL: '', DATABASE_URL_FILE: file })
  t.match(told, { status: 0, stderr: /^$/ })
  const isRefused = (names: Record<string, string>, message: RegExp) =>
    t.throws(() => readConfig({ ...rest, ...names }), { message })
  const both = { DATABASE_URL: 'postgresql://u:hunter2@a/b', DATABASE_URL_FILE: file }
  isRefused(
    both,
    /^The environment variables have faults:\n {2}set either DATABASE_URL or DATABASE_URL_FILE, not both$/,
  )
  isRefused({ DATABASE_URL_FILE: join(folder, 'none') }, /DATABASE_URL_FILE: the file cannot be read .ENOENT/)
  for (const text of ['\n', `${DATABASE_URL}\n${DATABASE_URL}\n`]) {
    writeFileSync(file, text)
    isRefused({ DATABASE_URL_FILE: file }, /DATABASE_URL: /)
  }
})

t.test('a stop while the database is awaited: stopped, without a word of the closed pool', async t => {
  const silent = createServer()
  const reached = once(silent, 'connection')
  await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
  t.teardown(() => silent.close())
  const { port } = silent.address() as AddressInfo // the server listens on TCP
  const service = launched(t, { ...env, DATABASE_URL: `postgres://app@127.0.0.1:${port}/app` })
  const [socket] = await reached
  await logged(service, '"msg":"listening"')
  const stopped = service.stop('SIGINT')
  await logged(service, '"msg":"shutting down"')
  socket.destroy()
  await stopped
  t.match(service.log, '"msg":"stopped"')
  t.notMatch(service.log, /after calling end|"not ready"/)
})

t.test('exit 78: a certificate that DATABASE_URL names and that does not exist', async t => {
  const DATABASE_URL = `${cluster.url()}?sslmode=verify-full&sslrootcert=${join(folder, 'none.pem')}`
  const certificate = /DATABASE_URL: a certificate.*none\.pem/
  t.match(await serverExit({ ...env, DATABASE_URL }), { code: 78, output: certificate })
  t.match(await agentctl('status', { DATABASE_URL }), { status: 78, stderr: certificate })
})

t.test('agentctl, 69: a host that does not exist, a wrong password, none, a database that does not exist', async t => {
  for (const [url, reason] of [
    ['postgres://app@nowhere.invalid/app', /cannot connect to the database: getaddrinfo E\w+ nowhere\.invalid/],
    [guardedUrl('open'), /password authentication failed for user "guarded"/],
    [guardedUrl(), /; check DATABASE_URL: the server asks for a password/],
    [cluster.url('nothing'), /database "nothing" does not exist/],
  ] as const) {
    const { status, stderr } = await agentctl('status', { DATABASE_URL: url })
    t.equal(status, 69, stderr)
    t.match(stderr, reason)
    t.match(stderr, /; check .*DATABASE_URL/)
    t.notMatch(stderr, /\n\s+at /)
  }
})

t.test('the service says once each why it waits for its database, and serves as soon as it can', async t => {
  const service = launched(t, { ...env, DATABASE_URL: guardedUrl('changed') })
  await logged(service, 'password authentication failed for user')
  const tries = () => cluster.log.split('password authentication failed for user "guarded"').length
  const before = tries()
  await eventually(() => tries() >= before + 3)
  const [told, ...others] = lines(service, 'refuses this service')
  t.same(others, [])
  const detail = /^The database refuses this service: check user, password, database and sslmode/
  t.match(told, { level: 40, msg: 'not ready', cause: /^password authentication failed/, detail })
  await cluster.query(`alter role guarded password 'changed'`)
  await logged(service, 'refuses this service: the role in DATABASE_URL must own the schema')
  await cluster.query('alter role guarded superuser')
  await logged(service, '"state":"ready"')
})

t.test('agentctl, 78: a schema that is ahead, and which version of the program it needs', async t => {
  await cluster.query(`insert into schema_requirement values ('9999_later', '99.0.0')`)
  t.match(await agentctl('user list'), {
    status: 78,
    stderr: /the database schema needs agentctl 99\.0\.0 or later: update agentctl/,
  })
  await cluster.query(`delete from schema_requirement where migration = '9999_later'`)
})

t.test('a schema that is behind: the log and agentctl name the command that the service then waits for', async t => {
  await cluster.query('create database bare')
  const bare = { DATABASE_URL: cluster.url('bare') }
  const service = launched(t, { ...env, ...bare })
  await logged(service, 'schema_behind')
  t.match(lines(service, 'schema_behind'), [
    { level: 40, detail: 'The database lacks the schema of this service. The operator must run: agentctl init EMAIL' },
  ])
  t.equal((await agentctl('migrate', bare)).status, 0)
  await logged(service, '"state":"ready"')
})

t.test('standard output is JSON lines, also for warnings about settings', async t => {
  const misspelt = { DATABSE_URL: 'postgresql://u:hunter2@a/b', RATE_LIMIT_PER_MINUET: '7' }
  const SECRET_KEYS_FILE = join(folder, 'linked-keys')
  writeFileSync(join(folder, 'open-keys'), TEST_SECRET_KEYS, { mode: 0o644 })
  symlinkSync(join(folder, 'open-keys'), SECRET_KEYS_FILE)
  const { DATABASE_URL } = env
  const settings = { DATABASE_URL, SECRET_KEYS_FILE, ...misspelt, PORT: '0' }
  const child = spawn(process.execPath, [SERVER], { env: settings, stdio: 'pipe' })
  t.teardown(() => child.kill('SIGKILL'))
  const output = text(child.stdout)
  await new Promise<void>(resolve => {
    child.stderr.on('data', chunk => String(chunk).includes('Listening on') && resolve())
  })
  child.kill('SIGINT')
  const lines = (await output).trimEnd().split('\n')
  t.ok(lines.length > 2)
  const msg =
    /^unknown variables are ignored: DATABSE_URL \(did you mean DATABASE_URL\?\), RATE_LIMIT_PER_MINUET \(did you/
  const warned = lines.map(line => JSON.parse(line)).filter(({ level }) => level === 40)
  t.match(warned, [{ msg }])
  t.equal(warned.length, 1)
  t.notMatch(lines.join(), 'hunter2')
})

t.test('the welcome names an address and a command that work where it is printed', async t => {
  writeFileSync(join(folder, 'agentctl'), '')
  const service = launched(t, { ...env, HOST: '0.0.0.0', PATH: `${folder}:${process.env.PATH}` })
  await logged(service, 'To create a token')
  t.match(service.log, /^ {2}Listening on (http:\/\/127\.0\.0\.1:\d+) +page: \1\/console /m)
  t.match(service.log, /^ {2}To create a token: agentctl token create --for EMAIL$/m)
})

t.test('exit 78: NODE_ENV=production with neither a database nor a DATA_DIR starts no empty one', async t => {
  const bare = { NODE_ENV: 'production', DATABSE_URL: cluster.url() }
  const output = /with NODE_ENV=production, set DATABASE_URL, or DATA_DIR for the embedded database/
  t.match(await serverExit(bare), { code: 78, output })
  t.equal(readConfig({ NODE_ENV: 'production', DATA_DIR: '/data' }).database.dataDir, '/data')
  t.match(await agentctl('status', { ...bare, DATABASE_URL: '' }), { status: 78, stderr: output })
})

/** Starts a service on a free port without waiting for it. */
function launched(t: Test, settings: Record<string, string>): ServiceProcess {
  const service = new ServiceProcess(0, { DRAIN_DELAY_MS: '0', ...settings })
  service.launch()
  t.teardown(() => service.stop('SIGKILL'))
  return service
}

async function logged(service: ServiceProcess, text: string): Promise<void> {
  const never = () => new Error(`no ${text} in: ${service.log.slice(-2_000)}`)
  await eventually(() => service.log.includes(text)).catch(() => Promise.reject(never()))
}

function lines(service: ServiceProcess, text: string): Record<string, unknown>[] {
  const found = service.log.split('\n').filter(line => line.includes(text))
  return found.map(line => JSON.parse(line))
}
