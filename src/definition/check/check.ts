import { checkServers } from './addresses.js'
import { type Fault, type Finding, Findings, faultOf, type Loc } from './findings.js'
import { InputRules } from './inputs.js'
import { type MethodRecord, type OperationInput, OperationRules, parametersOf } from './operations.js'
import { isObject, References, type Schema } from './references.js'
import { DEFINITION_LIMITS } from './rules.js'
import { SchemaWalk } from './schemas.js'
import { Subtypes } from './subtypes.js'

export interface CheckOptions {
  /** The path of the definition in the request. Each `loc` begins with this path. Default: `['body', 'definition']`. */
  at?: Loc
  /** The names of the tool's custom headers. Each header supplies the header parameter with its name. `Cookie` supplies all cookie parameters. */
  headerNames?: readonly string[]
  /** True if operations that cannot become functions are faults. */
  strict?: boolean
}

export type DefinitionCheck =
  | { ok: true; methods: MethodRecord[]; warnings: Finding[] }
  | { ok: false; faults: Fault[]; warnings: Finding[] }

export interface Inspection {
  check: DefinitionCheck
  /** All operations that could be read, even if other parts have faults. */
  operations: OperationInput[]
  readings?: Readings
}

export interface Readings {
  references: References
  subtypes: Subtypes
  is30: boolean
  document: Schema
}

export const DEFAULT_AT: Loc = ['body', 'definition']

/**
 * Checks a parsed definition (DECISIONS section 12). Returns the methods in document order, or the faults. Never throws and never changes the
 * definition.
 */
export function checkDefinition(definition: unknown, options: CheckOptions = {}): DefinitionCheck {
  return inspection(definition, options).check
}

export function inspection(definition: unknown, options: CheckOptions): Inspection {
  const { at = DEFAULT_AT } = options
  const findings = new Findings()
  const exceeded = isObject(definition) ? walkAll(definition, findings) : 'dict_type'
  if (!isObject(definition) || exceeded !== undefined) {
    const limit = DEFINITION_LIMITS[exceeded === 'definition_too_deep' ? 'nestingLevels' : 'values']
    const faults = [faultOf(exceeded ?? 'dict_type', [...at], [limit])]
    return { check: { ok: false, faults, warnings: [] }, operations: [] }
  }
  const { operations = [], ...read } = checkParts(definition, findings, options) ?? {}
  const { faults, warnings } = findings.located(definition, at)
  const methods = operations.map(({ record }) => record)
  const check =
    faults.length === 0 ? { ok: true as const, methods, warnings } : { ok: false as const, faults, warnings }
  return { check, operations, ...read }
}

function checkParts(definition: Schema, findings: Findings, { headerNames = [], strict = false }: CheckOptions) {
  const { openapi, swagger, info, servers, paths } = definition
  const isSupported = typeof openapi === 'string' && /^3\.\d/.test(openapi)
  if (openapi === undefined && swagger !== undefined)
    findings.fault('openapi_version_unsupported.swagger', definition, ['swagger'], swagger)
  else if (openapi === undefined) findings.fault('missing', definition, ['openapi'])
  else if (typeof openapi !== 'string') findings.fault('string_type', definition, ['openapi'])
  else if (!isSupported) findings.fault('openapi_version_unsupported', definition, ['openapi'])
  if (!isSupported) return undefined

  if (info === undefined) findings.fault('missing', definition, ['info'])
  else if (!isObject(info) || info.$ref !== undefined) findings.fault('dict_type', definition, ['info'])
  else if (info.title === undefined) findings.fault('missing', info, ['title'])
  else if (typeof info.title !== 'string') findings.fault('string_type', info, ['title'])
  const addresses = checkServers(servers, definition, findings)

  const is30 = openapi.startsWith('3.0')
  const references = new References(definition)
  const subtypes = new Subtypes(references, definition)
  const schemas = new SchemaWalk(references, subtypes, findings, is30)
  const suppliedHeaders = new Set(headerNames.map(name => name.toLowerCase()))
  const inputs = new InputRules(references, schemas, findings, is30, suppliedHeaders)
  const rules = new OperationRules(references, findings, inputs, addresses, strict)
  if (paths === undefined) findings.fault('missing', definition, ['paths'])
  else if (!isObject(paths) || paths.$ref !== undefined) findings.fault('dict_type', definition, ['paths'])
  else rules.check(paths, definition)
  warnQueryKeys(definition, rules.operations, findings)
  return { operations: rules.operations, readings: { references, subtypes, is30, document: definition } }
}

/** Warns about API keys in the query that no operation declares as a parameter. Custom headers cannot supply these keys. */
function warnQueryKeys({ components }: Schema, operations: readonly OperationInput[], findings: Findings): void {
  const schemes = isObject(components) && isObject(components.securitySchemes) ? components.securitySchemes : {}
  for (const [key, scheme] of Object.entries(schemes)) {
    const { type, in: place, name }: Schema = isObject(scheme) ? scheme : {}
    const isSent = (each: OperationInput) => parametersOf(each).some(one => one.in === 'query' && one.name === name)
    if (type === 'apiKey' && place === 'query' && !operations.some(isSent))
      findings.warn('address_incomplete.key', schemes, [key], name)
  }
}

/**
 * Visits every value of a definition before all other checks. Returns the fault if a limit is exceeded. Reports NUL, lone surrogates, infinite
 * numbers, keys that are too long, and keys that change a prototype. A value that YAML aliases repeat counts each time.
 */
function walkAll(document: object, findings: Findings): 'definition_too_deep' | 'definition_too_large' | undefined {
  let values = 0
  const visit = (value: unknown, holder: object, key: string | number, level: number): ReturnType<typeof walkAll> => {
    if (++values > DEFINITION_LIMITS.values) return 'definition_too_large'
    if (typeof value === 'string') checkText(value, holder, key)
    else if (typeof value === 'number' && !Number.isFinite(value)) findings.fault('finite_number', holder, [key])
    if (typeof value !== 'object' || value === null) return undefined
    if (level >= DEFINITION_LIMITS.nestingLevels) return 'definition_too_deep'
    let exceeded: ReturnType<typeof walkAll>
    if (Array.isArray(value))
      for (let i = 0; i < value.length && !exceeded; i++) exceeded = visit(value[i], value, i, level + 1)
    else
      for (const each in value) {
        const member = (value as Schema)[each]
        checkKey(each, member, value)
        exceeded ??= visit(member, value, each, level + 1)
      }
    return exceeded
  }
  const checkKey = (key: string, value: unknown, node: object) => {
    if (key.length > DEFINITION_LIMITS.keyCharacters)
      findings.fault('string_too_long', node, [key], DEFINITION_LIMITS.keyCharacters)
    checkText(key, node, key)
    const inner = key === 'constructor' && isObject(value) && Object.hasOwn(value, 'prototype') ? '.prototype' : ''
    if (key === '__proto__' || inner !== '') findings.fault('key_forbidden', node, [key], key + inner)
  }
  const checkText = (text: string, node: object, key: string | number) => {
    if (text.includes('\0')) findings.fault('string_nul', node, [key])
    else if (!text.isWellFormed()) findings.fault('string_unicode', node, [key])
  }
  return visit(document, document, '', 0)
}
