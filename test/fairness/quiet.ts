import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { QuietUpdates, Served } from './callers.js'
import type { Owner } from './world.js'

/** Who the quiet callers are, from which address they send, and what. */
export interface QuietSettings {
  port: number
  from: string
  owners: Owner[]
  updates?: QuietUpdates
}

/** Quiet callers in a thread of their own. */
export class QuietCallers {
  readonly #thread: Worker

  constructor(settings: QuietSettings) {
    this.#thread = new Worker(new URL('./quiet-thread.js', import.meta.url), { workerData: settings, execArgv: [] })
  }

  /** Each owner updates their agent again and again until the time is over. */
  async serve(durationMs: number): Promise<Served> {
    this.#thread.postMessage(durationMs)
    const [served] = await once(this.#thread, 'message')
    return served as Served // the thread answers nothing else
  }

  async close(): Promise<void> {
    await this.#thread.terminate()
  }
}
