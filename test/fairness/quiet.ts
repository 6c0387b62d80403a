import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { ServiceProcess } from '../faults/service.js'
import type { QuietUpdates, Served } from './callers.js'
import { commandLineOf, othersProcessorMs } from './processor.js'
import type { FairnessWorld, Owner } from './world.js'

/** Who the quiet callers are, from which address they send, and what. */
export interface QuietSettings {
  from?: string
  owners: Owner[]
  updates?: QuietUpdates
}

/** What the quiet callers met in one slot, and how many processors others used meanwhile. */
export interface Slot extends Served {
  othersProcessors: number
}

/** Quiet callers in a thread of their own. */
export class QuietCallers {
  readonly #client: FairnessWorld['client']
  readonly #service: ServiceProcess
  readonly #thread: Worker

  constructor({ client }: FairnessWorld, service: ServiceProcess, settings: QuietSettings) {
    this.#client = client
    this.#service = service
    const workerData = { port: service.port, ...settings }
    this.#thread = new Worker(new URL('./quiet-thread.js', import.meta.url), { workerData, execArgv: [] })
  }

  /** Each owner updates their agent again and again until the time is over. */
  async serve(durationMs: number): Promise<Slot> {
    const backends = await this.#backends()
    const [begun, usedMs] = [performance.now(), othersProcessorMs(backends)]
    this.#thread.postMessage({ durationMs, serving: { service: this.#service.pid, backends } })
    const [served] = (await once(this.#thread, 'message')) as [Served] // the thread answers nothing else
    const othersProcessors = (othersProcessorMs(backends) - usedMs) / (performance.now() - begun)
    return { ...served, othersProcessors }
  }

  async close(): Promise<void> {
    await this.#thread.terminate()
  }

  /** The backends of the world's database, where they run on this machine: their command line names it. */
  async #backends(): Promise<number[]> {
    const { rows } = await this.#client.query<{ pid: number; name: string }>(
      'select pid, datname as name from pg_stat_activity where datname = current_database()',
    )
    return rows.filter(({ pid, name }) => commandLineOf(pid).includes(` ${name} `)).map(({ pid }) => pid)
  }
}
