import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { eventually } from '../eventually.js'
import { Cluster } from './cluster.js'
import { MessageProxy } from './message-proxy.js'
import { ask, ServiceProcess } from './service.js'
import { Updates } from './updates.js'
import { makeWorld } from './world.js'

t.test('no answer is false, and a reader of changes gets each once, when the standby hangs or takes over', async t => {
  const { primary, standby, token } = await primaryAndStandby()
  t.teardown(() => Promise.all([primary.remove(), standby.remove()]))
  // This address always leads to the current primary, like that of HAProxy.
  const leader = { host: '127.0.0.1', port: primary.port }
  const entry = await MessageProxy.open(leader)
  t.teardown(() => entry.close())
  const DATABASE_URL = `postgresql://postgres@127.0.0.1:${entry.port}/world?target_session_attrs=read-write&connect_timeout=1`
  const timeouts = { STATEMENT_TIMEOUT_MS: '1500', LOCK_TIMEOUT_MS: '700' }
  const service = await ServiceProcess.start({ DATABASE_URL, SECRET_KEYS: generateKey(), ...timeouts }, t)

  const updates = new Updates(() => service.port, token)
  const feed = new Feed(service, token)
  await updates.more('200')
  await standby.freeze()
  await updates.more('503 unknown', 1)
  standby.thaw()
  await updates.more('200')
  await primary.kill()
  const receiver = 'select pid from pg_stat_wal_receiver'
  await eventually(async () => (await standby.query(receiver, [], 'postgres')).length === 0)
  await standby.query('select pg_promote()', [], 'postgres')
  leader.port = standby.port
  entry.cut()
  await feed.more()
  await updates.more('200', 20)
  await updates.stop()
  t.ok(updates.count('503 unknown') > 0)
  t.strictSame(await updates.wrong(standby), [])
  t.equal(updates.count('cut'), 0)
  const stored = await standby.query<{ change: string }>(
    `select concat_ws(' ', resource_kind, resource_id, version_after) as change from audit order by transaction_id, place`,
  )
  const changes = stored.map(({ change }) => change)
  t.strictSame(await feed.end(changes.length), changes)
})

/** Reads all changes page by page. Repeats requests that get 503 or 429. */
class Feed {
  readonly #changes: string[] = []
  #isOver = false
  readonly #reading: Promise<void>

  constructor(service: ServiceProcess, token: string) {
    this.#reading = this.#read(service, token)
  }

  async more(): Promise<void> {
    const before = this.#changes.length
    await eventually(() => this.#changes.length > before)
  }

  /** Waits for at least `count` changes, then reads one more page and stops. Returns all changes in the order of their arrival. */
  async end(count: number): Promise<string[]> {
    await eventually(() => this.#changes.length >= count)
    this.#isOver = true
    await this.#reading
    return this.#changes
  }

  async #read(service: ServiceProcess, token: string): Promise<void> {
    for (let after = 'first', isLast = false; !isLast; ) {
      const isOver = this.#isOver
      const { status, body } = await ask(service, token, 'GET', `/changes?after=${after}&wait=1`)
      if (status === 200) {
        const changes = body.changes as { kind: string; id: number; version: number }[]
        this.#changes.push(...changes.map(({ kind, id, version }) => `${kind} ${id} ${version}`))
        after = String(body.next)
        isLast = isOver
      } else if (status === 503 || status === 429) await sleep(100)
      else throw new Error(JSON.stringify(body))
    }
  }
}

/** Starts a primary with a standby. The primary commits only what the standby has received. */
async function primaryAndStandby() {
  const primary = await Cluster.create()
  const token = await makeWorld(primary.url())
  await primary.stop()
  const standby = await Cluster.copyOf(primary, 'second')
  primary.configure('synchronous_standby_names', 'second')
  await primary.start()
  standby.launch()
  await standby.ready()
  const replicated = `select from pg_stat_replication where state = 'streaming'`
  await eventually(async () => (await primary.query(replicated, [], 'postgres')).length > 0)
  return { primary, standby, token }
}
