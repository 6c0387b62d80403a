import { availableParallelism } from 'node:os'
import { Piscina } from 'piscina'
import type { Caller } from '../../auth/caller.js'
import { ClientGone, InvalidRequest, RateLimited, TRY_AGAIN, Unavailable } from '../../errors.js'
import { Semaphore } from '../../http/gate.js'
import { INLINE_BYTES_MAX, UnparsedBody } from '../../http/validation.js'
import { sourceOf } from '../../validation/json-body.js'
import { type Job, type Outcome, TASKS, type TaskInput, type TaskName, type TaskResult } from './tasks.js'

const WORKERS_MAX = Math.min(2, availableParallelism())

const IDLE_MS = 15_000

/** The bytes of a worker's heap for each byte of the largest allowed body. The heap is never smaller than `HEAP_MIB_MIN`. */
const HEAP_BYTES_PER_BODY_BYTE = 64
const HEAP_MIB_MIN = 64

/** The properties of a request that tasks need. */
export interface TaskRequest {
  body: unknown
  caller: Caller
  /** If the connection is closed, the result is no longer needed. */
  raw: { socket: { destroyed: boolean } }
}

/** A stored definition for a task. Its text is read when the task starts, so that waiting tasks do not hold the text in memory. */
export interface StoredText {
  bytes: number
  text(): Promise<string | undefined>
}

export interface BodyWorkersOptions {
  bodyLimitBytes: number
  /** The time limit for the wait for a worker and, separately, for the task itself. */
  deadlineMs: number
}

/** Runs tasks on request bodies. Processes small bodies in this thread, and large bodies in workers with limits on memory and time. */
export class BodyWorkers {
  readonly #heapMibMax: number
  readonly #pool: Piscina<Job, Outcome>
  readonly #turn: ReturnType<typeof bodyTurns>

  constructor(private readonly options: BodyWorkersOptions) {
    const mib = Math.ceil((options.bodyLimitBytes * HEAP_BYTES_PER_BODY_BYTE) / 2 ** 20)
    this.#turn = bodyTurns(WORKERS_MAX, options.deadlineMs)
    this.#heapMibMax = Math.max(HEAP_MIB_MIN, mib)
    this.#pool = new Piscina<Job, Outcome>({
      filename: new URL('./tasks.js', import.meta.url).href,
      name: 'outcomeOf' satisfies keyof typeof import('./tasks.js'),
      minThreads: 0,
      maxThreads: WORKERS_MAX,
      idleTimeout: IDLE_MS,
      recordTiming: false,
      // In Node 20, a worker that exits during `require` ends the whole process, so workers use `import`.
      execArgv: ['--no-experimental-require-module'],
      env: {}, // workers do not need the secrets in the environment
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMibMax },
    })
    // A worker can fail after its task was abandoned. Without a listener, the error would end the process.
    this.#pool.on('error', () => {})
  }

  /**
   * Runs a task on a body. Uses a worker if the body or the stored definition is large, or if `inWorker` is true. Throws `InvalidRequest` for faults
   * or if the memory limit is exceeded, and `RateLimited` or `Unavailable` if a time limit is exceeded.
   */
  async run<Name extends TaskName>(
    name: Name,
    { body, caller, raw }: TaskRequest,
    { inWorker = false, ...given }: Omit<TaskInput<Name>, 'stored'> & { inWorker?: boolean },
    stored?: StoredText,
  ): Promise<TaskResult<Name>> {
    const inputOf = async () => ({ stored: await stored?.text(), ...given })
    if (!inWorker && !(body instanceof UnparsedBody) && (stored?.bytes ?? 0) <= INLINE_BYTES_MAX) {
      const run = TASKS[name].run as (body: unknown, input: unknown) => TaskResult<Name> // the body was checked with the task's schema
      return run(body, await inputOf())
    }
    return await this.#turn(String(caller.token.id), async () => {
      if (raw.socket.destroyed) throw new ClientGone()
      const sent = body instanceof UnparsedBody ? body.bytes : Buffer.from(sourceOf(body as object).text)
      const outcome = await this.#outcome({ name, body: sent, input: (await inputOf()) as Job['input'] })
      if ('faults' in outcome) throw new InvalidRequest(outcome.faults, outcome.extra)
      if ('failure' in outcome) throw outcome.failure
      return outcome.result as TaskResult<Name> // the worker returns the task's result
    })
  }

  async #outcome(job: Job): Promise<Outcome> {
    const { deadlineMs } = this.options
    try {
      // A large body has its own buffer, which can be transferred to the worker without copying.
      const { buffer, byteLength } = job.body
      const moved = byteLength > INLINE_BYTES_MAX ? [buffer as ArrayBuffer] : []
      return await this.#pool.run(job, { signal: AbortSignal.timeout(deadlineMs), transferList: moved })
    } catch (error) {
      const { name, code } = error as NodeJS.ErrnoException
      if (code === 'ERR_WORKER_OUT_OF_MEMORY') {
        const msg = `Processing this definition takes more than ${this.#heapMibMax} MiB of memory: use a definition with fewer values`
        throw new InvalidRequest([{ loc: ['body', 'definition'], msg, type: 'definition_too_large' }])
      }
      const why = name === 'AbortError' ? `took more than ${deadlineMs / 1_000} s` : 'was interrupted'
      const message = `Processing the definition ${why}. ${TRY_AGAIN} If it fails again, use a smaller definition.`
      throw new Unavailable('overloaded', message, 'not_applied', { cause: error })
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy()
  }
}

/**
 * Runs at most `max` tasks at once, and at most one for each key. The key is the token, so that one token cannot occupy two workers. If the wait for
 * another task of the same token takes too long, throws `RateLimited`. If the wait for a worker takes too long, throws `Unavailable`.
 */
export function bodyTurns(max: number, waitMs: number) {
  const busy = `The server is busy with other definitions. ${TRY_AGAIN}`
  const ofAll = () => new Unavailable('overloaded', busy, 'not_applied')
  const ofOne = () => new RateLimited('token-requests', 1, undefined, 'checks of large definitions')
  const all = new Semaphore(max, waitMs, ofAll)
  const ofKey = new Map<string, Semaphore>()
  return async <Result>(key: string, work: () => Promise<Result>): Promise<Result> => {
    const own = ofKey.get(key) ?? new Semaphore(1, waitMs, ofOne)
    ofKey.set(key, own)
    const leaveOwn = await own.enter()
    try {
      const leave = await all.enter()
      return await work().finally(leave)
    } finally {
      leaveOwn()
      if (own.taken === 0) ofKey.delete(key)
    }
  }
}
