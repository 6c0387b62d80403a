export { type CheckOptions, checkDefinition, checkDefinitionInSlices, type DefinitionCheck } from './check.js'
export {
  type ChangeClass,
  type ChangeKind,
  compareDefinitions,
  compareDefinitionsInSlices,
  type DefinitionChange,
  type DefinitionImpact,
} from './compare.js'
export type { Finding } from './findings.js'
export { type FunctionView, toFunctions } from './functions.js'
export {
  DEFAULT_DEFINITION_LIMITS,
  type DefinitionLimits,
  type DefinitionSettings,
  definitionLimitsOf,
} from './limits.js'
export type { MethodRecord } from './operations.js'
