import { CustomToolUpdate, ValidateToolRequest } from '../schema.js'
import { updateContentOf } from './update-content.js'
import { validationOf } from './validation.js'

/**
 * What is done with the body of a tool operation: its schema, and what is made of a body that passed it. What goes in and
 * comes out is data without behaviour, as a worker may do it.
 */
export const TASKS = {
  update_custom_tool: { schema: CustomToolUpdate, run: updateContentOf },
  validate_tool: { schema: ValidateToolRequest, run: validationOf },
} as const

export type TaskName = keyof typeof TASKS
export type TaskBody<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[0]
export type TaskInput<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[1]
export type TaskResult<Name extends TaskName> = ReturnType<(typeof TASKS)[Name]['run']>
