import type { Transaction } from 'kysely'
import type { Database } from '../../db/tables.js'
import type { Actor } from '../../updates/audit.js'
import type { Outcome } from './report.js'

/** A part of an apply that is stored as a whole. */
export interface Step {
  /** How many rows it makes, changes or removes. */
  rows: number
  /** Whether others may administer afterwards, and nothing before it is needed to see that. */
  people: boolean
  run(trx: Transaction<Database>, actor: Actor): Promise<void>
}

/** What becomes of the rows of some lists, and what stores it. */
export interface Plan {
  outcomes: Outcome[]
  steps: Step[]
}

/** Steps of at most so many rows together, in their order; a larger step stands by itself. */
export function* portions(steps: readonly Step[], rowsMax: number): Generator<Step[]> {
  let portion: Step[] = []
  let rows = 0
  for (const step of steps) {
    if (portion.length > 0 && rows + step.rows > rowsMax) {
      yield portion
      portion = []
      rows = 0
    }
    portion.push(step)
    rows += step.rows
  }
  if (portion.length > 0) yield portion
}
