import { bodyBounds } from '../http/openapi.js'
import { DEFAULT_DEFINITION_LIMITS, type DefinitionSettings, definitionLimitsOf } from './definition/index.js'

/** What bounds the body of a tool operation. */
export interface ToolBodyBounds {
  bodyLimitBytes: number
  jsonDepthMax: number
  definitionLimits: DefinitionSettings
}

/** The bounds of a body and of the definition in it, for the OpenAPI document. */
export function boundsOf({ bodyLimitBytes, jsonDepthMax, definitionLimits }: ToolBodyBounds): string {
  const limits = { ...DEFAULT_DEFINITION_LIMITS, ...definitionLimitsOf(definitionLimits) }
  const { nestingLevels, values, operations, parametersPerOperation, referenceHops } = limits
  const definition =
    `A definition itself nests at most ${nestingLevels} deep and holds at most ${values} values, ${operations} operations, ` +
    `${parametersPerOperation} parameters an operation and ${referenceHops} references in a chain.`
  return bodyBounds(bodyLimitBytes, jsonDepthMax, definition)
}
