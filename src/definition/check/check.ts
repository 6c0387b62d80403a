import {
  boundFaults,
  type Fault,
  type Finding,
  Findings,
  type Loc,
  type Place,
  placeOf,
  placeUnder,
  quote,
  SENTENCES,
  show,
} from './findings.js'
import { InputRules } from './inputs.js'
import { DEFINITION_LIMITS } from './limits.js'
import { type MethodRecord, type OperationInput, OperationRules } from './operations.js'
import { Reader } from './reader.js'
import { isObject, References } from './references.js'
import { SchemaWalk } from './schemas.js'
import { checkServers } from './servers.js'
import { Subtypes } from './subtypes.js'
import { FirstWalk } from './walk.js'

export interface CheckOptions {
  /** The most faults to collect; a repair collects more. Default: the limit of one answer. */
  mostFaults?: number
  /** The JSON path of the definition in the request; every `loc` starts with it. Default: `['body', 'definition']`. */
  at?: Loc
  /** Names of the tool's custom headers. A header supplies the parameter of its name; `Cookie` supplies all cookie parameters. */
  headerNames?: readonly string[]
}

export type DefinitionCheck =
  | { ok: true; methods: MethodRecord[]; warnings: Finding[] }
  | { ok: false; faults: Fault[]; warnings: Finding[] }

/** The result of a check, with the parsed operations that functions, repairs and comparisons need. */
export interface Inspection {
  check: DefinitionCheck
  /** The faults with their repair data, up to `mostFaults`; `check` holds at most one answer's number. */
  faults: readonly Fault[]
  /** The number of all faults, including those beyond the limit. */
  faultCount: number
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
 * Checks whether every operation of a parsed definition can become a tool without losing anything. Returns the method records in document
 * order, or every fault. It never throws, fetches or changes the definition (DECISIONS section 12).
 */
export function checkDefinition(definition: unknown, options: CheckOptions = {}): DefinitionCheck {
  return inspection(definition, options).check
}

/** Does the check and returns its details too; `checkDefinition` returns only `check`. */
export function inspection(definition: unknown, options: CheckOptions): Inspection {
  const root = placeOf(options.at ?? DEFAULT_AT)
  const findings = new Findings(options.mostFaults ?? DEFINITION_LIMITS.faults)
  const refused = () => resultOf(findings, [], undefined)
  if (!isObject(definition)) {
    findings.faultOf('dict_type', root)
    return refused()
  }
  const { named, exceeded, references: found } = new FirstWalk(definition, root, findings)
  if (exceeded !== undefined) {
    const alone = new Findings(1)
    alone.fault(exceeded.type, exceeded.msg, root)
    return resultOf(alone, [], undefined)
  }

  const references = new References({ value: definition, place: root }, named)
  const version = typeof definition.openapi === 'string' ? definition.openapi : ''
  const hasReferableMedia = !/^3\.[01](\D|$)/.test(version)
  const reader = new Reader(references, findings, hasReferableMedia)
  if (reader.isMisplaced(definition, root, 'document') || !checkVersion(definition, root, reader)) return refused()
  checkInfo(definition.info, root, reader)
  checkServers(definition.servers, true, placeUnder(root, 'servers'), reader)

  const is30 = version.startsWith('3.0')
  const subtypes = new Subtypes(references, definition, root)
  const headerNames = new Set(options.headerNames?.map(name => name.toLowerCase()))
  const inputs = new InputRules(reader, new SchemaWalk(reader, subtypes, is30), is30, headerNames)
  const rules = new OperationRules(reader, inputs, definition.servers)
  checkPaths(definition, placeUnder(root, 'paths'), rules, reader)
  checkSecurity(definition.components, placeUnder(root, 'components'), findings)
  reader.checkPlaces(definition, root, found)
  return resultOf(findings, rules.operations, { references, subtypes, is30, document: definition })
}

function resultOf(findings: Findings, operations: OperationInput[], readings: Readings | undefined): Inspection {
  const { faults, faultCount } = findings
  const warnings = findings.boundedWarnings()
  const check: DefinitionCheck =
    faultCount === 0
      ? { ok: true, methods: operations.map(each => each.record), warnings }
      : { ok: false, faults: boundFaults(faults, faultCount), warnings }
  return { check, faults, faultCount, operations, readings }
}

/**
 * True if this is an OpenAPI 3 document. Every 3.x is accepted, because OpenAPI promises compatible minor versions. A version after 3.2
 * gets the warning `openapi_version_unknown`.
 */
function checkVersion({ openapi, swagger }: Record<string, unknown>, root: Place, reader: Reader): boolean {
  const { findings } = reader
  if (reader.isMisplaced(openapi, placeUnder(root, 'openapi'), '"openapi"')) return false
  if (openapi === undefined && swagger !== undefined) {
    const version = typeof swagger === 'string' || typeof swagger === 'number' ? String(swagger) : ''
    const remedy = /^2(\.0)?$/.test(version)
      ? 'complete=true (agentctl validate --complete) converts it'
      : 'convert the document to OpenAPI 3'
    const what =
      version === ''
        ? `"swagger" is ${show(swagger)}, which is no version`
        : `Swagger ${quote(version)} is not supported`
    const msg = `${what}: ${remedy}`
    findings.fault('openapi_version_unsupported', msg, root, 'swagger')
  } else if (openapi === undefined) {
    findings.faultOf('missing', root, 'openapi')
  } else if (typeof openapi !== 'string') {
    const hint = typeof openapi === 'number' ? ': put the version in quotes' : ''
    findings.fault('string_type', `${SENTENCES.string_type}${hint}`, root, 'openapi')
  } else if (!/^3\.\d/.test(openapi)) {
    findings.fault('openapi_version_unsupported', 'only OpenAPI 3.0, 3.1 and 3.2 are supported', root, 'openapi')
  } else {
    const msg = 'this version of OpenAPI is newer than 3.2; it is read as 3.2'
    if (!/^3\.[012](\D|$)/.test(openapi)) findings.warn('openapi_version_unknown', msg, root, 'openapi')
    return true
  }
  return false
}

function checkInfo(info: unknown, root: Place, reader: Reader): void {
  const place = placeUnder(root, 'info')
  if (info === undefined) {
    reader.findings.faultOf('missing', place)
    return
  }
  const value = reader.object(info, place, 'info')
  if (value === undefined) return
  if (value.title === undefined) reader.findings.faultOf('missing', place, 'title')
  else reader.text({ value, place }, 'title')
}

function checkPaths(
  { paths, webhooks }: Record<string, unknown>,
  place: Place,
  rules: OperationRules,
  reader: Reader,
): void {
  const { findings } = reader
  if (paths === undefined) {
    const hint = webhooks === undefined ? '' : ': the document has only webhooks, which a model cannot call'
    findings.fault('missing', `Field required${hint}`, place)
    return
  }
  const items = reader.object(paths, place, 'paths')
  if (items === undefined) return
  const before = findings.faultCount
  for (const [path, item] of Object.entries(items)) {
    if (path.startsWith('x-')) continue
    rules.checkPath(path, item, place)
    if (rules.isFull) return
  }
  if (rules.operationCount === 0 && findings.faultCount === before) {
    const msg = 'no path has an operation that can become a tool (get, post, put, patch or delete)'
    findings.fault('operations_missing', msg, place)
  }
}

/** Warns `api_key_in_query`: an API key in the query ends up in logs, and no custom header can supply it. */
function checkSecurity(components: unknown, place: Place, findings: Findings): void {
  const schemes = isObject(components) ? components.securitySchemes : undefined
  for (const [name, scheme] of isObject(schemes) ? Object.entries(schemes) : []) {
    if (!isObject(scheme) || scheme.type !== 'apiKey' || scheme.in !== 'query') continue
    const msg = `the API key ${quote(name)} is sent in the query: no custom header can supply it, and addresses are logged`
    findings.warn('api_key_in_query', msg, place, 'securitySchemes', name)
  }
}
