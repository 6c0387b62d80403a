import { setTimeout as sleep } from 'node:timers/promises'
import threads from 'node:worker_threads'

/* Loaded before the service by `--import`. Kills the first worker threads, each at a different time after its start, and prints each kill. */

const KILLS = Number(process.env['WORKER_KILLS'] ?? 0)
const [STEP_MS, RANGE_MS] = [7, 420]
const outOfMemory = Object.assign(new Error('out of memory'), { code: 'ERR_WORKER_OUT_OF_MEMORY' })
let [started, killed] = [0, 0]

class KilledWorker extends threads.Worker {
  readonly #turn = started++

  constructor(...given: ConstructorParameters<typeof threads.Worker>) {
    super(...given)
    if (this.#turn < KILLS) void this.#kill()
  }

  /** Emits another error before it terminates, like a worker that runs out of memory just after its deadline. */
  override terminate(): Promise<number> {
    if (this.#turn < KILLS && this.threadId > 0) this.emit('error', outOfMemory)
    return super.terminate()
  }

  async #kill(): Promise<void> {
    await sleep((this.#turn * STEP_MS) % RANGE_MS)
    if (this.#turn % 2 === 0 && this.threadId > 0) this.emit('error', outOfMemory)
    await super.terminate()
    process.stdout.write(`killed ${++killed}\n`)
  }
}

if (threads.isMainThread) {
  threads.Worker = KilledWorker
  const { timeout } = AbortSignal
  AbortSignal.timeout = ms => timeout.call(AbortSignal, ms === 5_000 ? 300 : ms) // shortens the deadline for checking a definition
}
