import { getPriority, setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { type Fault, InvalidRequest } from '../../errors.js'
import { BodyCheck } from '../../schema/body-check.js'
import { parseExact } from '../../schema/exact-json.js'
import { boundFaults } from '../../schema/faults.js'
import { parseJsonBody } from '../../schema/json-body.js'
import { TASKS, type TaskName } from './tasks.js'

/* The thread beside the one that serves requests: parses, checks and works on large bodies. */

/** What the thread is told when it starts. */
export interface ThreadSettings {
  jsonDepthMax: number
}

/** One body to work on. `strict`: unknown fields are faults. */
export interface ThreadJob {
  /** Its number, which stands in the answer. */
  job: number
  name: TaskName
  /** Bytes as they came, or the text of a body that was checked already. */
  body: { bytes: Uint8Array; hasPlainNumbers: boolean } | { text: string }
  strict: boolean
  input: unknown
}

/** `failure` is an error of the program, as text. */
export type ThreadAnswer = { job: number } & Outcome
type Outcome = { result: unknown } | { faults: Fault[] } | { failure: string }

/** How much less this thread is worth to the scheduler: with few processors the other thread, and the database, go first. */
const NICER_BY = 5
const NICE_MAX = 19

// On Linux a thread has a priority of its own; elsewhere it would be that of the process.
if (process.platform === 'linux') setPriority(Math.min(NICE_MAX, getPriority() + NICER_BY))

const { jsonDepthMax } = workerData as ThreadSettings // what `body-tasks.ts` starts the thread with
const checks = {
  update_custom_tool: new BodyCheck(TASKS.update_custom_tool.schema, jsonDepthMax),
  validate_tool: new BodyCheck(TASKS.validate_tool.schema, jsonDepthMax),
  compare_numbers: new BodyCheck(TASKS.compare_numbers.schema, jsonDepthMax),
}

parentPort?.on('message', (message: ThreadJob) => {
  const { job } = message
  void outcomeOf(message).then(outcome => parentPort?.postMessage({ job, ...outcome }, bytesOf(outcome)))
})

/** The bytes of a long answer, which go over as they are: they have a buffer of their own. */
function bytesOf(outcome: Outcome): ArrayBuffer[] {
  const { answer: sent } = ('result' in outcome ? outcome.result : {}) as { answer?: unknown }
  return sent instanceof Uint8Array ? [sent.buffer as ArrayBuffer] : []
}

async function outcomeOf({ name, body, strict, input }: ThreadJob): Promise<Outcome> {
  try {
    const verdict =
      'text' in body
        ? { value: parseExact(body.text) }
        : checks[name].verdict(parseJsonBody(body.bytes, body.hasPlainNumbers), { mask: undefined, strict })
    if ('faults' in verdict) return { faults: boundFaults(verdict.faults) }
    const run = TASKS[name].run as (body: unknown, input: unknown) => Promise<unknown> // the body passed this very task's schema
    return { result: await run(verdict.value, input) }
  } catch (error) {
    if (error instanceof InvalidRequest) return { faults: error.faults }
    return { failure: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}
