export { type CheckOptions, checkDefinition, checkDefinitionInSlices, type DefinitionCheck } from './check.js'
export type { Finding } from './findings.js'
export { DEFAULT_DEFINITION_LIMITS, type DefinitionLimits } from './limits.js'
export type { MethodRecord } from './operations.js'
