import { type ChildProcess, spawn } from 'node:child_process'
import { chmodSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { startEmbedded } from '../../src/db/embedded/embedded.js'
import { accountFor } from '../../src/db/embedded/home.js'
import { eventually } from '../eventually.js'
import { processesWhere } from '../faults/cluster.js'
import { newFolder, withClient } from '../postgres.js'

const USER_PROGRAM = fileURLToPath(new URL('embedded-user.js', import.meta.url))
const { PG_BIN_DIR } = process.env
const OPTIONS = { settings: { fsync: 'off' }, ...(PG_BIN_DIR ? { binDir: PG_BIN_DIR } : {}) }

/** A process of `embedded-user.ts`. `answer` is the line that it prints when it is connected. */
interface User {
  process: ChildProcess
  pid: number
  answer: Promise<{ url: string; refused?: string }>
  ended: Promise<unknown>
}

t.test('it starts, answers, stops and finds its data again; no path is too long, no pid file believed', async t => {
  const dataDir = join(newFolder(t), `${'a'.repeat(120)} b,"c'%41ü`)
  const first = await startEmbedded({ dataDir, ...OPTIONS })
  const home = homeOf(first.url)
  t.teardown(() => rmSync(dirname(home), { recursive: true, force: true }))
  t.ok(clusterPids(home).length >= 5, 'the server and its background processes run')
  await query(first.url, 'create table kept (value text)')
  await query(first.url, `insert into kept values ('ä')`)
  t.equal(statSync(join(home, 'run')).mode & 0o777, 0o700, 'nobody else reaches the socket')
  const settings = `select current_setting('listen_addresses') as listen, current_setting('server_encoding') as encoding,
    current_setting('fsync') as fsync`
  t.same(await query(first.url, settings), [{ listen: '', encoding: 'UTF8', fsync: 'off' }])
  const pidFile = join(home, 'data', 'postmaster.pid')
  const content = readFileSync(pidFile, 'utf8')
  await first.stop()
  await noneLeft(home)
  const stranger = spawn('sleep', ['60'], { ...accountFor() })
  t.teardown(() => stranger.kill())
  writeFileSync(pidFile, content.replace(/^\d+/, String(stranger.pid)))
  const second = await startEmbedded({ dataDir, ...OPTIONS })
  t.ok(isAlive(stranger.pid ?? 0), 'the process that has the old id now is left alone')
  t.same(await query(second.url, 'select upper(value) as value from kept'), [{ value: 'Ä' }])
  await Promise.all([second.stop(), second.stop()])
  await noneLeft(home)
})

t.test('SIGKILL at any moment of a first start: the next start recovers', async t => {
  for (const afterMs of [70, 600]) {
    const dataDir = newFolder(t)
    const killed = enter(t, dataDir)
    await sleep(afterMs)
    killed.process.kill('SIGKILL')
    await killed.ended
    const next = enter(t, dataDir)
    const answer = await next.answer
    t.equal(answer.refused, undefined, `killed after ${afterMs} ms`)
    t.same(await query(answer.url, 'select 1 as one'), [{ one: 1 }])
    await leave(next)
    await noneLeft(join(dataDir, 'postgresql'))
    t.notMatch(readdirSync(join(dataDir, 'postgresql')), [/^new-/], 'no half-made cluster stays')
  }
})

t.test('where it cannot run: one sentence that names DATABASE_URL', async t => {
  const dataDir = newFolder(t)
  const unavailable = {
    name: 'EmbeddedUnavailable',
    message: /^the embedded PostgreSQL cannot run: .*; instead, you can set DATABASE_URL to/,
  }
  await t.rejects(startEmbedded({ dataDir, binDir: '/nonexistent' }), unavailable)
  await t.rejects(startEmbedded({ dataDir, ...OPTIONS, settings: { no_such_setting: '1' } }), {
    ...unavailable,
    message: /unrecognized configuration parameter/,
  })
  writeFileSync(join(dataDir, 'postgresql', 'data', 'PG_VERSION'), '9\n')
  await t.rejects(startEmbedded({ dataDir, ...OPTIONS }), { ...unavailable, message: /needs PostgreSQL 9/ })
  await noneLeft(join(dataDir, 'postgresql'))
})

t.test(
  'root: data that the account cannot reach is under the temporary folder',
  { skip: accountFor() === undefined },
  async t => {
    const closed = newFolder(t)
    chmodSync(closed, 0o700)
    const lines: string[] = []
    const first = await startEmbedded({ dataDir: join(closed, 'data'), ...OPTIONS, log: line => lines.push(line) })
    const place = dirname(homeOf(first.url))
    t.teardown(() => rmSync(place, { recursive: true }))
    t.match(lines[0], `is in ${place}`)
    t.equal(statSync(place).uid, 0)
    await query(first.url, 'create table kept as select 1 as value')
    await first.stop()
    const second = await startEmbedded({ dataDir: join(closed, 'data'), ...OPTIONS })
    t.same(await query(second.url, 'select value from kept'), [{ value: 1 }])
    await second.stop()
  },
)

function enter(t: Test, dataDir: string): User {
  const child = spawn(process.execPath, [USER_PROGRAM, dataDir, 'fsync=off'], {
    cwd: '/',
    // Turns off coverage, which would change the timing of these tests, and whose files another user cannot write.
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

async function leave(user: User): Promise<void> {
  user.process.stdin?.end()
  await user.ended
}

async function query(url: string, text: string): Promise<unknown[]> {
  return await withClient(url, async client => (await client.query(text)).rows)
}

function homeOf(url: string): string {
  return dirname(new URL(url).searchParams.get('host') ?? '')
}

/** Returns the ids of the processes that run in the data folder. */
function clusterPids(home: string): number[] {
  return processesWhere(pid => readlinkSync(`/proc/${pid}/cwd`) === join(home, 'data'))
}

/** Returns the ids of the shells that supervise the server. */
function shellPids(home: string): number[] {
  return processesWhere(pid => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`embedded-postgresql\0${home}\0`))
}

async function noneLeft(home: string): Promise<void> {
  await eventually(() => clusterPids(home).length + shellPids(home).length === 0)
}

function isAlive(pid: number): boolean {
  return processesWhere(other => other === pid).length === 1
}
