import { Type } from '@sinclair/typebox'
import { originsOf } from '../definition/index.js'
import { CustomToolUpdate, ValidateToolRequest } from '../schema.js'
import { compareNumbers } from '../written-numbers.js'
import { updateContentOf } from './update-content.js'
import { validationOf } from './validation.js'

/** Compares the numbers of a stored definition, if it is still there, and one that was sent: a task without a body of its own. */
const comparisonOf = (_: object, { stored, sent }: { stored?: string; sent: string }) =>
  stored === undefined ? undefined : compareNumbers({ stored, sent })

/** The server origins of a stored definition, if it is still there: likewise. */
const originsIn = (_: object, { stored }: { stored?: string }) =>
  stored === undefined ? new Set<string>() : originsOf(JSON.parse(stored))

/**
 * What is done with the body of a tool operation: its schema, and what is made of a body that passed it. What goes in and
 * comes out is data without behaviour, as a worker may do it.
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
export type TaskResult<Name extends TaskName> = ReturnType<(typeof TASKS)[Name]['run']>
