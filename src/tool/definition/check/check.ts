import { BudgetWalk } from './budget.js'
import {
  type Fault,
  type FaultData,
  type Finding,
  Findings,
  type Loc,
  type Place,
  placeOf,
  placeUnder,
  quote,
  SENTENCES,
} from './findings.js'
import { DEFAULT_DEFINITION_LIMITS, type DefinitionLimits } from './limits.js'
import { MisplacedReferences } from './misplaced.js'
import { type MethodRecord, type OperationInput, OperationRules } from './operations.js'
import { isObject, References } from './references.js'
import { SchemaWalk } from './schemas.js'
import { checkServers } from './servers.js'
import { Subtypes } from './subtypes.js'

export interface CheckOptions {
  /** Defaults: `DEFAULT_DEFINITION_LIMITS`. */
  limits?: Partial<DefinitionLimits>
  /** Where the definition stands in the request; every `loc` starts with it. Default: `['body', 'definition']`. */
  at?: Loc
  /** Names of the tool's custom headers: header parameters of these names are supplied, `Cookie` supplies all cookie parameters. */
  headerNames?: readonly string[]
}

export type DefinitionCheck =
  | { ok: true; methods: MethodRecord[]; warnings: Finding[] }
  | { ok: false; faults: Fault[]; warnings: Finding[] }

/** A check together with what the operations take in, for those who make something of a definition. */
export interface Inspection {
  check: DefinitionCheck
  /** All faults that were found, also those that `check` has no room for. */
  faultCount: number
  /** What other code needs to know of a fault of `check`; no part of an answer. */
  data: ReadonlyMap<Fault, FaultData>
  /** Every operation that could be read, also when the check has faults elsewhere. */
  operations: OperationInput[]
  /** Undefined for a definition of which nothing could be read. */
  readings: Readings | undefined
}

/** How the schemas of a definition are read. */
export interface Readings {
  references: References
  subtypes: Subtypes
  is30: boolean
}

/** Where a definition stands in a request. */
export const DEFAULT_AT: Loc = ['body', 'definition']

/**
 * Answers whether the operations of this definition, a parsed JSON value, can be turned into tools without losing anything: the
 * method records in document order, or every fault. It never throws, fetches or changes the definition (DECISIONS section 12).
 */
export function checkDefinition(definition: unknown, options: CheckOptions = {}): DefinitionCheck {
  return inspection(definition, options, false).check
}

/** The one implementation. */
export function inspection(definition: unknown, options: CheckOptions, collect: boolean): Inspection {
  const limits =
    options.limits === undefined ? DEFAULT_DEFINITION_LIMITS : { ...DEFAULT_DEFINITION_LIMITS, ...options.limits }
  const root = placeOf(options.at ?? DEFAULT_AT)
  const findings = new Findings(limits.faults, limits.warnings)
  if (!isObject(definition)) {
    findings.faultOf('dict_type', root)
    return refusal(findings, limits)
  }

  const walk = new BudgetWalk(definition, root, limits, findings)
  if (walk.exceeded !== undefined) return exceeded(walk.exceeded, root, limits)

  const references = new References(definition, root, walk.named, limits)
  const misplaced = new MisplacedReferences(references, !/^3\.[01](\D|$)/.test(String(definition.openapi)))
  if (misplaced.report(definition, root, 'document', findings)) return refusal(findings, limits)
  if (!checkVersion(definition, root, misplaced, findings)) return refusal(findings, limits)
  checkInfo(definition.info, root, misplaced, findings)
  checkServers(definition.servers, true, placeUnder(root, 'servers'), misplaced, findings)

  const is30 = (definition.openapi as string).startsWith('3.0')
  const subtypes = new Subtypes(references, definition, root)
  const schemas = new SchemaWalk(references, subtypes, misplaced, !is30, limits.referenceHops)
  const rules = new OperationRules(
    references,
    misplaced,
    schemas,
    limits,
    options.headerNames ?? [],
    findings,
    collect,
    definition.servers,
  )
  if (!misplaced.report(definition.paths, placeUnder(root, 'paths'), 'paths', findings))
    checkPaths(definition, placeUnder(root, 'paths'), rules, findings)
  checkSecurity(definition.components, placeUnder(root, 'components'), findings)
  misplaced.walk(definition, root, 'document', findings)

  const check: DefinitionCheck =
    findings.faultCount > 0
      ? refusal(findings, limits).check
      : { ok: true, methods: rules.methods, warnings: findings.boundedWarnings() }
  return {
    check,
    data: findings.data,
    faultCount: findings.faultCount,
    operations: rules.inputs,
    readings: { references, subtypes, is30 },
  }
}

function refusal(findings: Findings, limits: DefinitionLimits): Inspection {
  const faults = findings.boundedFaults(limits.faultBytes)
  return {
    check: { ok: false, faults, warnings: findings.boundedWarnings() },
    data: findings.data,
    faultCount: findings.faultCount,
    operations: [],
    readings: undefined,
  }
}

function exceeded(
  type: 'definition_too_deep' | 'definition_too_large',
  root: Place,
  limits: DefinitionLimits,
): Inspection {
  const findings = new Findings(1, 0)
  const msg =
    type === 'definition_too_deep'
      ? `the definition nests deeper than ${limits.nestingLevels} levels`
      : `the definition holds more than ${limits.values} values`
  findings.fault(type, msg, root)
  return refusal(findings, limits)
}

/**
 * True if this is an OpenAPI 3 document. Any 3.x is taken, also a future one, as OpenAPI promises that minor versions agree;
 * one after 3.2 is the warning `openapi_version_unknown`.
 */
function checkVersion(
  definition: Record<string, unknown>,
  root: Place,
  misplaced: MisplacedReferences,
  findings: Findings,
): boolean {
  const { openapi, swagger } = definition
  if (misplaced.report(openapi, placeUnder(root, 'openapi'), '"openapi"', findings)) return false
  if (openapi === undefined && swagger !== undefined) {
    const version = typeof swagger === 'string' || typeof swagger === 'number' ? String(swagger) : ''
    const remedy = /^2(\.0)?$/.test(version)
      ? 'complete=true (agentctl validate --complete) converts it'
      : 'convert the document to OpenAPI 3'
    const msg = `Swagger ${quote(version)} is not supported: ${remedy}`
    findings.fault('openapi_version_unsupported', msg, root, 'swagger')
  } else if (openapi === undefined) {
    findings.faultOf('missing', root, 'openapi')
  } else if (typeof openapi !== 'string') {
    const hint = typeof openapi === 'number' ? ': put the version in quotes' : ''
    findings.fault('string_type', `${SENTENCES.string_type}${hint}`, root, 'openapi')
  } else if (!/^3\.\d/.test(openapi)) {
    findings.fault('openapi_version_unsupported', 'only OpenAPI 3.0, 3.1 and 3.2 are supported', root, 'openapi')
  } else {
    if (!/^3\.[012](\D|$)/.test(openapi)) {
      findings.warn(
        'openapi_version_unknown',
        'this version of OpenAPI is newer than 3.2; it is read as 3.2',
        root,
        'openapi',
      )
    }
    return true
  }
  return false
}

function checkInfo(info: unknown, root: Place, misplaced: MisplacedReferences, findings: Findings): void {
  const place = placeUnder(root, 'info')
  if (misplaced.report(info, place, 'info', findings)) return
  if (info === undefined) findings.faultOf('missing', root, 'info')
  else if (!isObject(info)) findings.faultOf('dict_type', root, 'info')
  else if (info.title === undefined) findings.faultOf('missing', root, 'info', 'title')
  else if (misplaced.report(info.title, placeUnder(place, 'title'), '"title"', findings)) return
  else if (typeof info.title !== 'string') findings.faultOf('string_type', root, 'info', 'title')
}

function checkPaths(
  { paths, webhooks }: Record<string, unknown>,
  place: Place,
  rules: OperationRules,
  findings: Findings,
): void {
  if (paths === undefined) {
    const hint = webhooks === undefined ? '' : ': the document has only webhooks, which a model cannot call'
    findings.fault('missing', `Field required${hint}`, place)
    return
  }
  if (!isObject(paths)) {
    findings.faultOf('dict_type', place)
    return
  }
  const before = findings.faultCount
  for (const path of Object.keys(paths)) {
    if (path.startsWith('x-')) continue
    rules.checkPath(path, paths[path], place)
    if (rules.isFull) return
  }
  if (rules.operationCount === 0 && findings.faultCount === before) {
    const msg = 'no path has an operation that can become a tool (get, post, put, patch or delete)'
    findings.fault('operations_missing', msg, place)
  }
}

/** `api_key_in_query`: a key that is sent in the address ends up in logs, and no custom header can supply it. */
function checkSecurity(components: unknown, place: Place, findings: Findings): void {
  const schemes = isObject(components) ? components.securitySchemes : undefined
  if (!isObject(schemes)) return
  for (const name of Object.keys(schemes)) {
    const scheme = schemes[name]
    if (!isObject(scheme) || scheme.type !== 'apiKey' || scheme.in !== 'query') continue
    const msg = () =>
      `the API key ${quote(name)} is sent in the query: no custom header can supply it, and addresses are logged`
    findings.warn('api_key_in_query', msg, place, 'securitySchemes', name)
  }
}
