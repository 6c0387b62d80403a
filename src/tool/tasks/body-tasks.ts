import { setFlagsFromString } from 'node:v8'
import { Worker } from 'node:worker_threads'
import type { Caller } from '../../auth/caller.js'
import type { ThreadTurns } from '../../db/connection/thread-turns.js'
import type { Waiter } from '../../db/connection/waiter.js'
import { leaveRested, WorkQueue, type WorkQueueLimits } from '../../db/connection/work-queue.js'
import { ClientGone, InvalidRequest, TRY_AGAIN, Unavailable } from '../../errors.js'
import { UnparsedBody } from '../../http/body-parser.js'
import { SMALL_BYTES } from '../../http/body-reader.js'
import { writerFor } from '../../schema/exact-json.js'
import { BudgetSpent, TimeBudget } from '../definition/index.js'
import type { ThreadAnswer, ThreadJob, ThreadSettings } from './body-thread.js'
import { TASKS, type TaskBody, type TaskInput, type TaskName, type TaskResult } from './tasks.js'

/** With a definition of more characters beside it a small body goes to the other thread as well. */
const SMALL_CHARACTERS = SMALL_BYTES

/** What is small may take so long all the same, as each reference to one part is work: what takes longer begins again in the other thread. */
const HERE_MS = 5

/**
 * The most characters, in body and definitions, of jobs that are light, of those that are middling, which few definitions are, and of
 * large ones. Each size has queues of its own, so that none waits for the end of one that takes much longer.
 */
const LIGHT_CHARACTERS = 64 * 1024
const MIDDLING_CHARACTERS = 512 * 1024
const ANY_CHARACTERS = Number.POSITIVE_INFINITY

/** So much of a job is about a millisecond's work: more of a plain check, less of a repair with a report. */
const CHARACTERS_PER_MS = 2_000

/**
 * A job that is not large is dear when it takes longer than so many times what its size lets expect, and so long. Then it begins again
 * when its turn among the dear ones comes: who sends little that takes seconds keeps nobody waiting for it whose check takes
 * milliseconds, however many do that. Of many who come at once each has one such trial first.
 */
const TRIAL_TIMES = 2
const TRIAL_MS = 20

/** What the other thread may hold for each byte that a body may have: of 5 MiB, 180 MiB. With what serves requests it is below 400. */
const HEAP_BYTES_PER_BODY_BYTE = 36
const HEAP_MIB_MIN = 64
/** V8's own limit for the thread, which is never to be reached, as that may end the process: a job is refused long before. */
const HEAP_LIMIT_FACTOR = 4
const MIB = 2 ** 20

/**
 * What V8 has for the thread's new objects, in MiB, from its start on: most definitions are checked before that is full, and are garbage then, which
 * costs nothing to collect. The four of the thread that serves requests hold a request many times over, but not a definition of 150 kB with
 * what its check makes: each was copied, mostly twice, before it was garbage.
 */
const SEMI_SPACE_MIB = 16

/**
 * Behind a large job its place is kept for so many times as long, but no longer than so many ms, where others are served meanwhile: this
 * thread and what collects its garbage give way, but a scheduler leaves them a part of a processor.
 */
const REST = { times: 3, msMax: 500 }

/** How long a body may wait for its turn, and then how long the work on it may take. */
const WAIT_MS = 20_000
const WORK_MS = 20_000

/** For the jobs of one size that are not dear, and for large ones. */
const QUEUE: WorkQueueLimits = {
  name: 'checking_thread',
  awaited: 'the thread that checks large definitions',
  runningMax: 1,
  runningPerCallerMax: 1,
  waitingPerCallerMax: 100,
  waitMs: WAIT_MS,
}

/** For those of one token: others' are not waited for. */
const OWN: WorkQueueLimits = { ...QUEUE, runningMax: Number.POSITIVE_INFINITY }

/** For dear light ones, of which two hold little: whose caller used less than others does not wait for the end of theirs. */
const DEAR_LIGHT: WorkQueueLimits = { ...QUEUE, runningMax: 2, reservedMax: 1 }

/** A thread without work ends after so long: it holds some 25 MiB, and to start another takes 0.2 s of processor. */
const IDLE_MS = 60_000

/** What of a request its task needs. */
export interface TaskRequest extends Waiter {
  body: unknown
  caller: Caller
  /** Its connection: when that is gone, nobody waits for the result. */
  raw: { socket: { destroyed: boolean } }
}

/** A stored definition that a task needs. It is read when the task's turn has come: what waits holds none. */
export interface StoredText {
  /** About how long it is. In characters or bytes. */
  length: number
  /** Undefined where it is gone by now. */
  text(): Promise<string | undefined>
}

/** The jobs of one size. */
interface Size {
  charactersMax: number
  queue: WorkQueue
  /** Of a size whose jobs are tried: undefined where each may take as long as it takes. */
  tried?: {
    /** A token has one at a time, from before its trial until it is done. */
    own: WorkQueue
    /** Of those that turned out to be dear. */
    dear: WorkQueue
  }
}

/** What is to be done in a turn. */
interface Turn extends Pick<Size, 'charactersMax' | 'queue'> {
  job: Omit<ThreadJob, 'job'>
  stored: StoredText | undefined
  expectedMs: number
}

/** What the thread works on. */
interface Job {
  message: ThreadJob
  /** Of its size. */
  charactersMax: number
  /** Whether the thread is ended for it. */
  isBlamed: boolean
  timer: NodeJS.Timeout
  resolve(result: unknown): void
  reject(error: Error): void
}

/**
 * Does what takes long with the bodies of tool operations: small ones right here, in slices that have turns; large and dear ones in one other thread, so
 * that parsing and checking them never holds up the answers to others. One job of each queue at a time: they are worked on in slices
 * too, so a small one need not wait for the end of a larger one, nor a cheap one for that of a dear one. Callers who wait have the
 * same time of each queue.
 */
export class BodyTasks {
  readonly #settings: ThreadSettings
  readonly #turns: ThreadTurns
  readonly #light: Size
  readonly #middling: Size
  readonly #large: Size
  readonly #idleMs: number
  /** What is under way in the thread, by number. */
  readonly #jobs = new Map<number, Job>()
  #lastJob = 0
  #thread: Worker | undefined
  #idle: NodeJS.Timeout | undefined

  /** `turns`: those of the thread that serves requests. */
  constructor(options: { jsonDepthMax: number; bodyLimitBytes: number; turns: ThreadTurns; idleMs?: number }) {
    const { bodyLimitBytes, idleMs = IDLE_MS, jsonDepthMax, turns } = options
    this.#turns = turns
    const heapMibMax = Math.max(HEAP_MIB_MIN, Math.ceil((bodyLimitBytes * HEAP_BYTES_PER_BODY_BYTE) / MIB))
    this.#settings = { jsonDepthMax, heapMibMax }
    this.#idleMs = idleMs
    const waited = new WeakMap<Waiter, number>()
    const queue = (limits = QUEUE) => new WorkQueue({ ...limits, waited })
    this.#light = {
      charactersMax: LIGHT_CHARACTERS,
      queue: queue(),
      tried: { own: queue(OWN), dear: queue(DEAR_LIGHT) },
    }
    this.#middling = { charactersMax: MIDDLING_CHARACTERS, queue: queue(), tried: { own: queue(OWN), dear: queue() } }
    this.#large = { charactersMax: ANY_CHARACTERS, queue: queue() }
  }

  /**
   * Runs a task on a request's body, with the stored definition that it needs, if any. Throws `InvalidRequest` for a body with
   * faults or one that takes too much memory, `RateLimited` when too many of its token wait, `QueueExhausted` when the other thread
   * had no time for it, `Unavailable` when it ran out of time, and what the reading of the definition throws.
   */
  async run<Name extends TaskName>(
    name: Name,
    request: TaskRequest,
    { strict, ...input }: Omit<TaskInput<Name>, 'stored'> & { strict: boolean },
    stored?: StoredText,
  ): Promise<TaskResult<Name>> {
    const { body } = request
    const isLarge = body instanceof UnparsedBody
    const definitionLengths = [stored?.length ?? 0, (input as { sent?: string }).sent?.length ?? 0]
    if (!isLarge && definitionLengths.every(length => length <= SMALL_CHARACTERS)) {
      const run = TASKS[name].run as (body: unknown, input: unknown) => Promise<TaskResult<Name>> // validated by this task's schema
      const { place } = request.caller.token
      const budget = new TimeBudget(HERE_MS, () => this.#turns.turn(place, request))
      try {
        return await run(body as TaskBody<Name>, { ...(await withStored(input, stored)), budget })
      } catch (error) {
        if (!(error instanceof BudgetSpent)) throw error
      }
    }
    const message = {
      name,
      body: isLarge ? { ...body } : { text: writerFor(body as object)(body) },
      strict,
      input,
    }
    const characters = definitionLengths.reduce((sum, length) => sum + length, isLarge ? body.bytes.length : 0)
    return (await this.#inThread(request, message, stored, characters)) as TaskResult<Name> // the thread answers what the task answers
  }

  /** Ends the thread, and what it is doing with it. */
  async close(): Promise<void> {
    for (const job of this.#jobs.values()) job.isBlamed = true
    await this.#thread?.terminate()
  }

  async #inThread(
    request: TaskRequest,
    message: Omit<ThreadJob, 'job' | 'isLarge'>,
    stored: StoredText | undefined,
    characters: number,
  ): Promise<unknown> {
    const { charactersMax, queue, tried } = this.#sizeOf(characters)
    const expectedMs = characters / CHARACTERS_PER_MS
    const job = { ...message, isLarge: charactersMax === ANY_CHARACTERS }
    const turn = { job, stored, charactersMax, queue, expectedMs }
    if (tried === undefined) return await this.#inTurn(request, turn)
    const trialMs = TRIAL_TIMES * expectedMs + TRIAL_MS
    return await tried.own.run(
      tokenOf(request),
      async () => {
        try {
          return await this.#inTurn(request, { ...turn, job: { ...job, trialMs } })
        } catch (error) {
          if (!(error instanceof BudgetSpent)) throw error
          return await this.#inTurn(request, { ...turn, queue: tried.dear, expectedMs: trialMs })
        }
      },
      undefined,
      request,
    )
  }

  /** Waits for the turn of a job in this queue, and answers its result. Throws `BudgetSpent` where its trial ended before it. */
  async #inTurn(request: TaskRequest, { job, stored, charactersMax, queue, expectedMs }: Turn): Promise<unknown> {
    const leave = await queue.enter(tokenOf(request), undefined, expectedMs, request)
    const sinceMs = performance.now()
    try {
      if (request.raw.socket.destroyed) throw new ClientGone()
      const whole = { ...job, input: await withStored(job.input, stored) }
      return await new Promise((resolve, reject) => this.#begin(whole, { charactersMax, resolve, reject }))
    } finally {
      const tookMs = performance.now() - sinceMs
      const rests = job.isLarge && this.#turns.servesOthersThan(request.caller.token.place)
      if (rests) leaveRested(leave, tookMs, REST)
      else leave()
    }
  }

  #sizeOf(characters: number): Size {
    if (characters <= LIGHT_CHARACTERS) return this.#light
    return characters <= MIDDLING_CHARACTERS ? this.#middling : this.#large
  }

  #begin(
    message: Omit<ThreadJob, 'job'>,
    { charactersMax, resolve, reject }: Pick<Job, 'charactersMax' | 'resolve' | 'reject'>,
  ): void {
    clearTimeout(this.#idle)
    const number = ++this.#lastJob
    const timer = setTimeout(() => {
      job.isBlamed = true
      void this.#thread?.terminate()
    }, WORK_MS)
    const job = { message: { ...message, job: number }, charactersMax, isBlamed: false, timer, resolve, reject }
    this.#jobs.set(number, job)
    this.#post(job)
  }

  #post({ message, charactersMax }: Job): void {
    this.#thread ??= this.#start()
    this.#thread.ref()
    const { body, trialMs } = message
    // Copied where it may begin again. Of what is not light, which has a buffer of its own, copies cost half as much as the work.
    const isGivenAway = 'bytes' in body && trialMs === undefined && !mayBeginAgain(charactersMax)
    this.#thread.postMessage(message, isGivenAway ? [body.bytes.buffer as ArrayBuffer] : [])
  }

  #endIdle(): void {
    const thread = this.#thread
    this.#thread = undefined // while it ends, it takes no work
    void thread?.terminate()
  }

  #start(): Worker {
    // Read when a thread begins: those that run keep theirs. It goes before `maxYoungGenerationSizeMb` wherever node was given one.
    setFlagsFromString(`--max-semi-space-size=${SEMI_SPACE_MIB}`)
    setFlagsFromString(`--min-semi-space-size=${SEMI_SPACE_MIB}`)
    const thread = new Worker(new URL('./body-thread.js', import.meta.url), {
      name: 'tool bodies',
      workerData: this.#settings,
      execArgv: [],
      env: {}, // secrets are none of its business
      resourceLimits: { maxOldGenerationSizeMb: this.#settings.heapMibMax * HEAP_LIMIT_FACTOR },
    })
    thread.on('message', (answer: ThreadAnswer) => {
      const job = this.#jobs.get(answer.job)
      if (job !== undefined) this.#finish(answer.job, () => settle(job, answer))
    })
    const end = (error?: Error) => {
      if (this.#thread !== thread) return
      this.#thread = undefined
      this.#refuse(error)
    }
    thread.on('error', end)
    thread.on('exit', () => end())
    return thread
  }

  /** The thread ended for the largest of what it was at, or for what took too long. Of what was beside that, what is light begins again. */
  #refuse(cause: Error | undefined): void {
    const jobs = [...this.#jobs]
    const largest = Math.max(...jobs.map(([, { charactersMax }]) => charactersMax))
    for (const [number, { charactersMax, isBlamed, reject }] of jobs) {
      if (isBlamed || charactersMax === largest) {
        this.#finish(number, () => reject(overloaded(endOf(cause), cause)))
      } else if (!mayBeginAgain(charactersMax)) {
        this.#finish(number, () =>
          reject(overloaded('The check was broken off for that of a larger definition.', cause)),
        )
      }
    }
    for (const job of this.#jobs.values()) this.#post(job)
  }

  #finish(number: number, settle: () => void): void {
    clearTimeout(this.#jobs.get(number)?.timer)
    this.#jobs.delete(number)
    if (this.#jobs.size === 0) {
      this.#thread?.unref() // an idle thread keeps no process alive
      this.#idle = setTimeout(() => this.#endIdle(), this.#idleMs).unref()
    }
    settle()
  }
}

function tokenOf({ caller }: TaskRequest): string {
  return String(caller.token.id)
}

/** Whether a job of this size is kept until it is done. */
function mayBeginAgain(charactersMax: number): boolean {
  return charactersMax <= LIGHT_CHARACTERS
}

/** Why a job has no result, in words. It was ended by us where there is no cause. */
function endOf(cause: Error | undefined): string {
  if (cause === undefined) return `Checking the definition took more than ${WORK_MS / 1_000} s.`
  if ((cause as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY')
    return 'Checking the definition took more memory than there is.'
  return 'The definition was not checked: the thread that checks ended, and the log says why.'
}

function settle(job: Job, answer: ThreadAnswer): void {
  if ('result' in answer) job.resolve(answer.result)
  else if ('faults' in answer) job.reject(new InvalidRequest(answer.faults))
  else if ('isGivenUp' in answer) job.reject(new BudgetSpent('its trial is over'))
  else job.reject(new Error(answer.failure))
}

/** A task's input with the text of the stored definition, where that is there. */
async function withStored(input: object, stored: StoredText | undefined): Promise<object> {
  const text = await stored?.text()
  return text === undefined ? input : { ...input, stored: text }
}

function overloaded(message: string, cause?: Error): Unavailable {
  return new Unavailable('overloaded', `${message} ${TRY_AGAIN}`, 'not_applied', ...(cause ? [{ cause }] : []))
}
