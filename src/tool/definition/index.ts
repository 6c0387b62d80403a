export { type CheckOptions, checkDefinition, type DefinitionCheck } from './check/check.js'
export type { Finding } from './check/findings.js'
export {
  DEFAULT_DEFINITION_LIMITS,
  type DefinitionLimits,
} from './check/limits.js'
export type { MethodRecord } from './check/operations.js'
export { parsedUrl } from './check/references.js'
export { originsOf, unusableServer } from './check/servers.js'
export { compareDefinitions, type DefinitionChange } from './compare.js'
export { type Completion, completeDefinition } from './complete/complete.js'
export type { Edit } from './complete/edits.js'
export { GivenPlaces } from './complete/given-places.js'
export { DefinitionRefused, type FunctionView, toFunctions } from './functions/functions.js'
