import { Type } from '@sinclair/typebox'
import { inSlices, originsOf, type WorkBudget } from '../definition/index.js'
import { CustomToolUpdate, ValidateToolRequest } from '../schema.js'
import { compareNumbers } from '../written-numbers.js'
import { updateContentOf } from './update-content.js'
import { validationOf } from './validation.js'

interface Budgeted {
  budget?: WorkBudget
}

/** Compares the numbers of a stored definition, if it is still there, and one that was sent: a task without a body of its own. */
const comparisonOf = async (_: object, { stored, sent, budget }: Budgeted & { stored?: string; sent: string }) =>
  stored === undefined ? undefined : await inSlices(compareNumbers({ stored, sent }), { budget })

/** The server origins of a stored definition, if it is still there: likewise. */
const originsIn = async (_: object, { stored }: Budgeted & { stored?: string }) =>
  stored === undefined ? new Set<string>() : originsOf(JSON.parse(stored))

/**
 * What is done with the body of a tool operation, by the operation's id: its schema, and what is made of a body that passed it.
 * What goes in and comes out is data without behaviour, as another thread may do the work.
 */
export const TASKS = {
  update_custom_tool: { schema: CustomToolUpdate, run: updateContentOf },
  validate_tool: { schema: ValidateToolRequest, run: validationOf },
  compare_numbers: { schema: Type.Object({}), run: comparisonOf },
  stored_origins: { schema: Type.Object({}), run: originsIn },
} as const

export type TaskName = keyof typeof TASKS
export type TaskBody<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[0]
export type TaskInput<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[1]
export type TaskResult<Name extends TaskName> = Awaited<ReturnType<(typeof TASKS)[Name]['run']>>
