import { type Fault, InvalidRequest } from '../../errors.js'
import { JSON_BOUNDS } from '../../http/body.js'
import { bodyCheck } from '../../schema/body-check.js'
import { parseExact } from '../../schema/exact-json.js'
import { boundFaults } from '../../schema/faults.js'
import { parseJsonBody } from '../../schema/json-body.js'
import { TASKS, type TaskName } from './tasks.js'

/** One body to work on. `strict`: unknown fields are faults. */
export interface Job {
  name: TaskName
  /** Bytes as they came, or the text of a body that was checked already. */
  body: { bytes: Uint8Array } | { text: string }
  strict: boolean
  input: object
}

/** `failure` is an error of the program, as text. */
export type Outcome = { result: unknown } | { faults: Fault[] } | { failure: string }

const checks = new Map(Object.entries(TASKS).map(([name, { schema }]) => [name, bodyCheck(schema)]))

/** Parses, checks and works on one body. Never throws. */
export function outcomeOf({ name, body, strict, input }: Job): Outcome {
  try {
    const verdict =
      'text' in body
        ? { value: parseExact(body.text) }
        : checks.get(name)?.(parseJsonBody(body.bytes, JSON_BOUNDS.tool), { mask: undefined, strict })
    if (verdict === undefined) return { failure: `${name} is no task` }
    if ('faults' in verdict) return { faults: boundFaults(verdict.faults) }
    const run = TASKS[name].run as (body: unknown, input: unknown) => unknown // it passed this task's schema
    return { result: run(verdict.value, input) }
  } catch (error) {
    if (error instanceof InvalidRequest) return { faults: error.faults }
    return { failure: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}
