import { JSON_BOUNDS } from '../http/body.js'
import { bodyBounds } from '../http/openapi.js'
import { DEFINITION_LIMITS } from './definition/index.js'

/** The bounds of a body and of the definition in it, for the OpenAPI document. */
export function boundsOf({ bodyLimitBytes }: { bodyLimitBytes: number }): string {
  const { nestingLevels, values, operations, parametersPerOperation, referenceHops } = DEFINITION_LIMITS
  const definition =
    `A definition itself nests at most ${nestingLevels} deep and holds at most ${values} values, ${operations} operations, ` +
    `${parametersPerOperation} parameters an operation and ${referenceHops} references in a chain.`
  return bodyBounds(bodyLimitBytes, JSON_BOUNDS.tool.depthMax, definition)
}
