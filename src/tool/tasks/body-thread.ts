import { readFileSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { parentPort, workerData } from 'node:worker_threads'
import { type Fault, InvalidRequest } from '../../errors.js'
import { giveWay } from '../../priority.js'
import { BodyCheck } from '../../schema/body-check.js'
import { parseExact } from '../../schema/exact-json.js'
import { boundFaults } from '../../schema/faults.js'
import { jsonBodySteps } from '../../schema/json-body.js'
import { BudgetSpent, inSlices, type WorkBudget } from '../definition/index.js'
import { TASKS, type TaskName } from './tasks.js'

/* The thread beside the one that serves requests: parses, checks and works on large bodies. */

/** What the thread is told when it starts. */
export interface ThreadSettings {
  jsonDepthMax: number
  /** What the thread may hold in its heap; who needs more is refused. */
  heapMibMax: number
}

/** One body to work on. `strict`: unknown fields are faults. */
export interface ThreadJob {
  /** Its number, which stands in the answer. */
  job: number
  name: TaskName
  /** Of what is under way no other one may hold much: if memory runs out, it is refused. */
  isLarge: boolean
  /** It is given up after so long, to begin again when it is its turn among those that take longer; absent where it may take longer. */
  trialMs?: number
  /** Bytes as they came, or the text of a body that was checked already. */
  body: { bytes: Uint8Array; hasPlainNumbers: boolean } | { text: string }
  strict: boolean
  input: object
}

/** `failure` is an error of the program, as text; `isGivenUp` says that its trial is over. */
export type ThreadAnswer = { job: number } & Outcome
type Outcome = { result: unknown } | { faults: Fault[] } | { isGivenUp: true } | { failure: string }

giveWay() // to the thread that serves requests, and to the database

const { jsonDepthMax, heapMibMax } = workerData as ThreadSettings // what `body-tasks.ts` starts the thread with
const checks = {
  update_custom_tool: new BodyCheck(TASKS.update_custom_tool.schema, jsonDepthMax),
  validate_tool: new BodyCheck(TASKS.validate_tool.schema, jsonDepthMax),
  compare_numbers: new BodyCheck(TASKS.compare_numbers.schema, jsonDepthMax),
  stored_origins: new BodyCheck(TASKS.stored_origins.schema, jsonDepthMax),
}

parentPort?.on('message', (message: ThreadJob) => {
  const { job, isLarge } = message
  void outcomeOf(message).then(outcome => {
    parentPort?.postMessage({ job, ...outcome }, bytesOf(outcome))
    if (isLarge) setImmediate(tidy) // by then nothing holds what it was about
  })
})

const MIB = 2 ** 20

/** What a large job leaves behind may be so much; more is collected at once, not when the next one needs the room. */
const LEFT_MIB_MAX = 48

/**
 * Refuses the job that is under way where it holds too much. Garbage does not count. V8's own limit is no remedy: it ends the whole
 * process where a single allocation of more than 16 MiB passes it.
 */
const MEMORY: WorkBudget = {
  nextSlice: behindTrials,
  spend: () => {
    if (heapMib() <= heapMibMax) return true
    collectGarbage()
    if (heapMib() <= heapMibMax) return true
    const msg = `Checking it takes more than ${heapMibMax} MiB of memory: give it fewer values`
    throw new InvalidRequest([{ loc: ['body', 'definition'], msg, type: 'definition_too_large' }])
  },
}

/** Between two slices of what may take long, trials have so many turns of the event loop. */
const TRIAL_TURNS = 5
let trialsUnderWay = 0

async function behindTrials(): Promise<void> {
  for (let turn = 0; turn < TRIAL_TURNS && trialsUnderWay > 0; turn++) await nextTurn()
}

/** For what may take as long as it takes. */
const PATIENT: WorkBudget = { spend: () => true, nextSlice: behindTrials }

/** The time that this thread may work on a trial. What a busy machine does meanwhile does not count. */
class Trial implements WorkBudget {
  #leftMs: number
  #ranMs = ranMs()

  constructor(ms: number) {
    this.#leftMs = ms
  }

  spend(ms: number): boolean {
    this.#leftMs -= Math.min(ms, ranMs() - this.#ranMs)
    return this.#leftMs > 0
  }

  async nextSlice(): Promise<void> {
    this.#ranMs = ranMs()
  }
}

/** For how long a processor has worked for this thread; where the system does not tell, the time. In ms. */
function ranMs(): number {
  try {
    return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e6
  } catch {
    return performance.now()
  }
}

/** New objects are collected in any case: they are garbage now, and beside the next job some of them would be copied. */
function tidy(): void {
  if (heapMib() > LEFT_MIB_MAX) collectGarbage()
  else collectGarbage({ type: 'minor' })
}

function heapMib(): number {
  return getHeapStatistics().used_heap_size / MIB
}

let collector: ((options?: { type: 'minor' }) => void) | undefined

/** V8 has the function only where it is asked for, and a context that is made afterwards. */
function collectGarbage(options?: { type: 'minor' }): void {
  if (collector === undefined) setFlagsFromString('--expose-gc')
  collector ??= runInNewContext('gc') as NonNullable<typeof collector> // what the flag is for
  collector(options)
}

/** The bytes of a long answer, which go over as they are: they have a buffer of their own. */
function bytesOf(outcome: Outcome): ArrayBuffer[] {
  const { answer: sent } = ('result' in outcome ? outcome.result : {}) as { answer?: unknown }
  return sent instanceof Uint8Array ? [sent.buffer as ArrayBuffer] : []
}

async function outcomeOf({ name, body, strict, input, isLarge, trialMs }: ThreadJob): Promise<Outcome> {
  const timed = () => (trialMs === undefined ? PATIENT : new Trial(trialMs))
  const bounded = { budget: isLarge ? MEMORY : timed() }
  trialsUnderWay += trialMs === undefined ? 0 : 1
  try {
    const verdict =
      'text' in body
        ? { value: parseExact(body.text) }
        : checks[name].verdict(await inSlices(jsonBodySteps(body.bytes, body.hasPlainNumbers), bounded), {
            mask: undefined,
            strict,
          })
    if ('faults' in verdict) return { faults: boundFaults(verdict.faults) }
    const run = TASKS[name].run as (body: unknown, input: unknown) => Promise<unknown> // the body passed this very task's schema
    return { result: await run(verdict.value, { ...input, ...bounded }) }
  } catch (error) {
    if (error instanceof InvalidRequest) return { faults: error.faults }
    if (error instanceof BudgetSpent) return { isGivenUp: true }
    return { failure: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  } finally {
    trialsUnderWay -= trialMs === undefined ? 0 : 1
  }
}
