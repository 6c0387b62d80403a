import { Worker } from 'node:worker_threads'
import type { Caller } from '../../auth/caller.js'
import { InvalidRequest, Unavailable } from '../../errors.js'
import { UnparsedBody } from '../../http/body-parser.js'
import { SMALL_BYTES } from '../../http/body-reader.js'
import { writerFor } from '../../schema/exact-json.js'
import type { ThreadAnswer, ThreadJob, ThreadSettings } from './body-thread.js'
import { TASKS, type TaskBody, type TaskInput, type TaskName, type TaskResult } from './tasks.js'

/** With a definition of more characters beside it a small body goes to the other thread as well. */
const SMALL_CHARACTERS = SMALL_BYTES

/** What the other thread may hold for each byte that a body may have. */
const HEAP_BYTES_PER_BODY_BYTE = 64
const MIB = 2 ** 20

/** How long a body may wait for its turn, and then how long the work on it may take. */
const WAIT_MS = 20_000
const WORK_MS = 20_000

/** A thread without work ends after so long: it holds some 25 MiB, and to start another takes 0.2 s of processor. */
const IDLE_MS = 60_000

/** What of a request its task needs. */
export interface TaskRequest {
  body: unknown
  caller: Caller
  /** Its connection: when that is gone, nobody waits for the result. */
  raw: { socket: { destroyed: boolean } }
}

interface Job {
  message: ThreadJob
  request: TaskRequest
  timer: NodeJS.Timeout
  resolve(result: unknown): void
  reject(error: Error): void
}

/**
 * Does what takes long with the bodies of tool operations: small ones right here, in slices; large ones in one other thread, so
 * that parsing and checking them never holds up the answers to others. One at a time; callers take turns, each with the job
 * that they sent first.
 */
export class BodyTasks {
  readonly #settings: ThreadSettings
  readonly #heapMib: number
  /** The waiting jobs of each caller; whose turn is next stands first. */
  readonly #waiting = new Map<string, Job[]>()
  readonly #idleMs: number
  #thread: Worker | undefined
  #running: Job | undefined
  #idle: NodeJS.Timeout | undefined

  constructor(options: ThreadSettings & { bodyLimitBytes: number; idleMs?: number }) {
    const { bodyLimitBytes, idleMs = IDLE_MS, ...settings } = options
    this.#settings = settings
    this.#idleMs = idleMs
    this.#heapMib = Math.max(64, Math.ceil((bodyLimitBytes * HEAP_BYTES_PER_BODY_BYTE) / MIB))
  }

  /**
   * Runs a task on a request's body. Throws `InvalidRequest` for a body with faults, `Unavailable` when the other thread has no time
   * for it or ran out of memory.
   */
  run<Name extends TaskName>(
    name: Name,
    request: TaskRequest,
    { strict, ...input }: TaskInput<Name> & { strict: boolean },
  ): Promise<TaskResult<Name>> {
    const { body } = request
    const isLarge = body instanceof UnparsedBody
    if (!isLarge && !hasLargeInput(input)) {
      const run = TASKS[name].run as (body: unknown, input: unknown) => Promise<TaskResult<Name>> // validated by this task's schema
      return run(body as TaskBody<Name>, input)
    }
    const message: ThreadJob = {
      name,
      body: isLarge ? { ...body } : { text: writerFor(body as object)(body) },
      strict,
      input,
    }
    return this.#inThread(request, message) as Promise<TaskResult<Name>> // the thread answers what the task answers
  }

  /** Ends the thread, and what it is doing with it. */
  async close(): Promise<void> {
    await this.#thread?.terminate()
  }

  #inThread(request: TaskRequest, message: ThreadJob): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const key = String(request.caller.token.id)
      const timer = setTimeout(() => {
        this.#forget(key, job)
        reject(overloaded('Other large definitions are checked before this one.'))
      }, WAIT_MS)
      const job: Job = { message, request, timer, resolve, reject }
      const others = this.#waiting.get(key)
      if (others === undefined) this.#waiting.set(key, [job])
      else others.push(job)
      this.#next()
    })
  }

  #next(): void {
    if (this.#running !== undefined) return
    clearTimeout(this.#idle)
    const job = this.#take()
    if (job === undefined) {
      this.#idle = setTimeout(() => this.#endIdle(), this.#idleMs).unref()
      return
    }
    this.#running = job
    this.#thread ??= this.#start()
    const { body } = job.message
    const bytes = 'bytes' in body ? [body.bytes.buffer as ArrayBuffer] : [] // a large body has a buffer of its own
    const thread = this.#thread
    job.timer = setTimeout(() => void thread.terminate(), WORK_MS)
    thread.ref()
    thread.postMessage(job.message, bytes)
  }

  #endIdle(): void {
    const thread = this.#thread
    this.#thread = undefined // while it ends, it takes no work
    void thread?.terminate()
  }

  /** The first job of the caller whose turn it is, who goes to the end. Jobs that nobody waits for are left out. */
  #take(): Job | undefined {
    for (const [key, jobs] of this.#waiting) {
      const [job, ...others] = jobs as [Job, ...Job[]] // an empty list is taken out at once
      this.#waiting.delete(key)
      if (others.length > 0) this.#waiting.set(key, others)
      clearTimeout(job.timer)
      if (!job.request.raw.socket.destroyed) return job
      job.reject(overloaded('The client is gone.'))
    }
    return undefined
  }

  #forget(key: string, job: Job): void {
    const others = (this.#waiting.get(key) ?? []).filter(other => other !== job)
    if (others.length > 0) this.#waiting.set(key, others)
    else this.#waiting.delete(key)
  }

  #start(): Worker {
    const thread = new Worker(new URL('./body-thread.js', import.meta.url), {
      name: 'tool bodies',
      workerData: this.#settings,
      execArgv: [],
      env: {}, // secrets are none of its business
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMib },
    })
    thread.on('message', (answer: ThreadAnswer) => this.#finish(job => settle(job, answer)))
    const end = (error?: Error) => {
      if (this.#thread !== thread) return
      this.#thread = undefined
      this.#finish(job => job.reject(overloaded('Checking the definition took too much time or memory.', error)))
    }
    thread.on('error', end)
    thread.on('exit', () => end())
    return thread
  }

  #finish(settle: (job: Job) => void): void {
    const job = this.#running
    this.#running = undefined
    this.#thread?.unref() // an idle thread keeps no process alive
    if (job !== undefined) {
      clearTimeout(job.timer)
      settle(job)
    }
    this.#next()
  }
}

function settle(job: Job, answer: ThreadAnswer): void {
  if ('result' in answer) job.resolve(answer.result)
  else if ('faults' in answer) job.reject(new InvalidRequest(answer.faults))
  else job.reject(new Error(answer.failure))
}

function hasLargeInput(input: object): boolean {
  const { use, stored, sent } = input as Partial<TaskInput<'validate_tool'> & TaskInput<'compare_numbers'>>
  return [use?.definition, stored, sent].some(text => (text?.length ?? 0) > SMALL_CHARACTERS)
}

function overloaded(message: string, cause?: Error): Unavailable {
  return new Unavailable('overloaded', `${message} Try again.`, 'not_applied', ...(cause ? [{ cause }] : []))
}
