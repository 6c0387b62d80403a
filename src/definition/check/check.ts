import { checkServers } from './addresses.js'
import { type Fault, type Finding, Findings, faultOf, type Loc } from './findings.js'
import { InputRules } from './inputs.js'
import { DEFINITION_LIMITS } from './limits.js'
import { type MethodRecord, type OperationInput, OperationRules } from './operations.js'
import { isObject, References } from './references.js'
import { SchemaWalk } from './schemas.js'
import { Subtypes } from './subtypes.js'
import { walkAll } from './walk.js'

export interface CheckOptions {
  /** The JSON path of the definition in the request; every `loc` starts with it. Default: `['body', 'definition']`. */
  at?: Loc
  /** Names of the tool's custom headers. A header supplies the parameter of its name; `Cookie` supplies all cookie parameters. */
  headerNames?: readonly string[]
  /** True if operations that are passed over are faults. */
  strict?: boolean
}

export type DefinitionCheck =
  | { ok: true; methods: MethodRecord[]; warnings: Finding[] }
  | { ok: false; faults: Fault[]; warnings: Finding[] }

/** The result of a check, with the parsed operations that functions and comparisons need. */
export interface Inspection {
  check: DefinitionCheck
  /** Every readable operation, even if the check found faults elsewhere. */
  operations: OperationInput[]
  /** Undefined if nothing of the definition could be read. */
  readings: Readings | undefined
}

/** What is needed to read the schemas of one definition. */
export interface Readings {
  references: References
  subtypes: Subtypes
  is30: boolean
  document: Record<string, unknown>
}

/** The default JSON path of a definition in a request body. */
export const DEFAULT_AT: Loc = ['body', 'definition']

/**
 * Checks whether each operation of a parsed definition can become a function without losing anything. Returns the method records in
 * document order, or every fault. It never throws, fetches or changes the definition (DECISIONS section 12).
 */
export function checkDefinition(definition: unknown, options: CheckOptions = {}): DefinitionCheck {
  return inspection(definition, options).check
}

/** Does the check and returns its details too; `checkDefinition` returns only `check`. */
export function inspection(definition: unknown, options: CheckOptions): Inspection {
  const at = options.at ?? DEFAULT_AT
  const findings = new Findings()
  const resultOf = (operations: OperationInput[], readings?: Readings): Inspection => {
    const found = findings.located(definition, at)
    const isLost = ({ type }: Finding) => options.strict === true && type === 'operation_passed_over'
    const lost = found.warnings.filter(isLost).map(({ severity: _, ...fault }) => fault)
    const faults = [...found.faults, ...lost].slice(0, DEFINITION_LIMITS.faults)
    const warnings = found.warnings.filter(each => !isLost(each))
    const check: DefinitionCheck =
      faults.length === 0
        ? { ok: true, methods: operations.map(each => each.record), warnings }
        : { ok: false, faults, warnings }
    return { check, operations, readings }
  }
  const refused = (fault: Fault): Inspection => ({
    check: { ok: false, faults: [fault], warnings: [] },
    operations: [],
    readings: undefined,
  })
  if (!isObject(definition)) return refused(faultOf('dict_type', [...at]))
  const exceeded = walkAll(definition, findings)
  if (exceeded !== undefined) {
    const limit = exceeded === 'definition_too_deep' ? DEFINITION_LIMITS.nestingLevels : DEFINITION_LIMITS.values
    return refused(faultOf(exceeded, [...at], [limit]))
  }
  const { openapi, swagger, info, servers, paths } = definition
  if (openapi === undefined && swagger !== undefined)
    findings.fault('openapi_version_unsupported.swagger', definition, ['swagger'], swagger)
  else if (openapi === undefined) findings.fault('missing', definition, ['openapi'])
  else if (typeof openapi !== 'string') findings.fault('string_type', definition, ['openapi'])
  else if (!/^3\.\d/.test(openapi)) findings.fault('openapi_version_unsupported', definition, ['openapi'])
  if (typeof openapi !== 'string' || !/^3\.\d/.test(openapi)) return resultOf([])

  if (info === undefined) findings.fault('missing', definition, ['info'])
  else if (!isObject(info) || info.$ref !== undefined) findings.fault('dict_type', definition, ['info'])
  else if (info.title === undefined) findings.fault('missing', info, ['title'])
  else if (typeof info.title !== 'string') findings.fault('string_type', info, ['title'])
  const address = checkServers(servers, definition, findings)

  const is30 = openapi.startsWith('3.0')
  const references = new References(definition)
  const subtypes = new Subtypes(references, definition)
  const headerNames = new Set(options.headerNames?.map(name => name.toLowerCase()))
  const schemas = new SchemaWalk(references, subtypes, findings, is30)
  const inputs = new InputRules(references, schemas, findings, is30, headerNames)
  const rules = new OperationRules(references, findings, inputs, address)
  if (paths === undefined) findings.fault('missing', definition, ['paths'])
  else if (!isObject(paths) || paths.$ref !== undefined) findings.fault('dict_type', definition, ['paths'])
  else rules.check(paths, definition)
  return resultOf(rules.operations, { references, subtypes, is30, document: definition })
}
