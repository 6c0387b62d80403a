import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster } from './cluster.js'
import { makeWorld } from './world.js'

const PATIENCE_MS = 120_000

export interface Pair {
  primary: Cluster
  standby: Cluster
  token: string
}

/** A primary and its standby; unless told otherwise the primary commits only what its standby has. */
export async function primaryAndStandby({ synchronous = true } = {}): Promise<Pair> {
  const primary = await Cluster.create()
  const token = await makeWorld(primary.url())
  await primary.stop()
  const standby = await Cluster.copyOf(primary, 'second')
  if (synchronous) primary.configure('synchronous_standby_names', 'second')
  await primary.start()
  standby.launch()
  await standby.ready()
  const deadline = Date.now() + PATIENCE_MS
  while (!(await isReplicated(primary))) {
    if (Date.now() > deadline) throw new Error(`the standby does not follow: ${standby.log.slice(-2_000)}`)
    await sleep(50)
  }
  return { primary, standby, token }
}

async function isReplicated(primary: Cluster): Promise<boolean> {
  const rows = await primary.query(`select from pg_stat_replication where state = 'streaming'`, [], 'postgres')
  return rows.length > 0
}
