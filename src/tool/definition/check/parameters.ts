import type { MediaTypes } from './bodies.js'
import { type Findings, type Place, placeUnder, quote } from './findings.js'
import type { DefinitionLimits } from './limits.js'
import type { MisplacedReferences } from './misplaced.js'
import type { ReferenceChains, Resolved } from './reference-chains.js'
import { isObject } from './references.js'
import { knownType } from './schema-types.js'
import type { SchemaWalk } from './schemas.js'
import { comparedText, type PathTemplate } from './templates.js'

/** A parameter that an operation takes, after references were followed. */
export interface ParameterInput {
  readonly name: string
  readonly in: string
  /** What the name is compared by: place and name make a parameter, and names of headers are compared without case. */
  readonly compared: string
  readonly value: Record<string, unknown>
  readonly place: Place
  /** False if its `in` is none that OpenAPI knows. */
  readonly isSendable: boolean
}

/** What one list of parameters gives. */
export interface ParameterList {
  readonly inputs: ParameterInput[]
  /** The index in the list of each of `inputs`. */
  readonly indexes: number[]
  readonly place: Place
  /** True if an entry could not be read: what is missing then is not known. */
  isBroken: boolean
  /** Place and name of each of `inputs`. */
  readonly keys: Set<string>
}

/** A list of parameters that is being read. */
export interface Reading {
  readonly entries: readonly unknown[]
  readonly list: ParameterList
}

const LOCATIONS = new Set(['query', 'header', 'path', 'cookie', 'querystring'])
/** OpenAPI: header parameters of these names are ignored; the media type, the security scheme and the caller's token rule. */
const RESERVED_HEADERS = new Set(['accept', 'content-type', 'authorization'])
const NO_ENTRIES: readonly unknown[] = []

/** The rules for parameters, of operations and of path items. */
export class ParameterRules {
  private readonly lists = new Map<object, ParameterList>()
  private readonly parameters = new Map<object, ParameterInput | undefined>()

  constructor(
    private readonly chains: ReferenceChains,
    private readonly misplaced: MisplacedReferences,
    private readonly mediaTypes: MediaTypes,
    private readonly schemas: SchemaWalk,
    private readonly limits: DefinitionLimits,
    private readonly headerNames: ReadonlySet<string>,
  ) {}

  /** Begins to read the parameters of an operation or a path item; those of a shared one are read once. */
  begin(entries: unknown, place: Place, isShared: boolean, findings: Findings): Reading {
    const known = isShared && Array.isArray(entries) ? this.lists.get(entries) : undefined
    if (known !== undefined) return { entries: NO_ENTRIES, list: known }
    const list = emptyList(place)
    if (!Array.isArray(entries)) {
      if (!this.misplaced.report(entries, place, 'list of parameters', findings)) findings.faultOf('list_type', place)
      list.isBroken = true
      return { entries: NO_ENTRIES, list }
    }
    if (isShared) this.lists.set(entries, list)
    if (entries.length <= this.limits.parametersPerOperation) return { entries, list }
    this.reportTooMany(place, findings)
    list.isBroken = true
    return { entries: NO_ENTRIES, list }
  }

  /** Reads the list to its end, with every schema in it. */
  read({ entries, list }: Reading, findings: Findings): void {
    this.schemas.run(findings)
    for (const [index, entry] of entries.entries()) {
      const input = this.readParameter(entry, list.place, index, findings)
      if (input === undefined) list.isBroken = true
      else this.add(input, index, list, findings)
      this.schemas.run(findings)
    }
  }

  private add(input: ParameterInput, index: number, list: ParameterList, findings: Findings): void {
    if (list.keys.has(keyOf(input))) {
      const msg = `the ${input.in} parameter ${quote(input.name)} stands twice in this list; the first is used`
      findings.warn('parameter_duplicate', msg, list.place, index)
      return
    }
    list.inputs.push(input)
    list.indexes.push(index)
    list.keys.add(keyOf(input))
  }

  private readParameter(entry: unknown, up: Place, index: number, findings: Findings): ParameterInput | undefined {
    const place = placeUnder(up, index)
    if (!isObject(entry)) {
      findings.faultOf('dict_type', place)
      return undefined
    }
    if (entry.$ref === undefined) return this.readFields({ value: entry, place }, findings)
    const found = this.chains.follow({ value: entry, place }, 'parameter', findings)
    if (found === undefined) return undefined
    if (!this.parameters.has(found.value)) this.parameters.set(found.value, this.readFields(found, findings))
    return this.parameters.get(found.value)
  }

  private readFields({ value, place }: Resolved, findings: Findings): ParameterInput | undefined {
    this.enterSchemas(value, place, findings)
    this.warnType(value, place, findings)
    const { name } = value
    if (name === undefined || name === '') {
      findings.faultOf('missing', place, 'name')
      return undefined
    }
    if (this.misplaced.report(name, placeUnder(place, 'name'), '"name"', findings)) return undefined
    if (typeof name !== 'string') {
      findings.faultOf('string_type', place, 'name')
      return undefined
    }
    if (this.misplaced.report(value.in, placeUnder(place, 'in'), '"in"', findings)) return undefined
    const location = typeof value.in === 'string' ? value.in : ''
    const compared = comparedText(location === 'header' ? name.toLowerCase() : name)
    const input = { name, in: location, compared, value, place, isSendable: LOCATIONS.has(location) }
    this.warnLocation(input, findings)
    return input
  }

  /** `parameter_type_misplaced`: a type beside `schema`, as Swagger 2.0 has it, is not read. */
  private warnType({ type }: Record<string, unknown>, place: Place, findings: Findings): void {
    if (typeof type !== 'string') return
    const msg = `the type of a parameter stands in its schema: did you mean "schema": {"type": ${quote(knownType(type) ?? type)}}?`
    findings.warn('parameter_type_misplaced', msg, place, 'type')
  }

  /** The schema of a parameter stands in `schema`, or in the one media type of its `content`. */
  private enterSchemas(parameter: Record<string, unknown>, place: Place, findings: Findings): void {
    const { schema, content } = parameter
    if (schema !== undefined && schema !== null) this.schemas.enter(schema, place, 'schema', findings)
    if (this.misplaced.report(content, placeUnder(place, 'content'), 'content', findings) || !isObject(content)) return
    const [first] = Object.keys(content)
    if (first === undefined) return
    const media = content[first]
    if (isObject(media))
      this.mediaTypes.enter({ value: media, place: placeUnder(placeUnder(place, 'content'), first) }, findings)
  }

  private warnLocation(input: ParameterInput, findings: Findings): void {
    const { name, in: location, place } = input
    if (!input.isSendable) {
      const hint = locationHint(input.value.in)
      const msg = `the parameter ${quote(name)} says by its "in" neither query, header, path nor cookie: it cannot be sent${hint}`
      findings.warn('parameter_location_unknown', msg, place, 'in')
      return
    }
    if ((location !== 'header' && location !== 'cookie') || isSupplied(input, this.headerNames)) return
    const msg = `no custom header supplies the ${location} parameter ${quote(name)}`
    findings.warn('parameter_not_supplied', msg, place)
  }

  /** `path_parameter_unused`: a path parameter that no placeholder names is never sent. */
  warnUnused(list: ParameterList, template: PathTemplate | undefined, findings: Findings): void {
    if (template === undefined || list.inputs.length === 0) return
    for (const [i, { in: location, name, compared }] of list.inputs.entries()) {
      if (location !== 'path' || template.accepts(compared)) continue
      const msg = () => `the path has no placeholder for the path parameter ${quote(name)}`
      findings.warn('path_parameter_unused', msg, list.place, list.indexes[i] ?? i)
    }
  }

  /** What only the path, its parameters and those of the operation say together. */
  checkTogether(
    own: ParameterList,
    shared: ParameterList,
    template: PathTemplate | undefined,
    findings: Findings,
  ): void {
    const { place } = own
    if (own.isBroken || shared.isBroken) return
    const most = this.limits.parametersPerOperation
    if (own.inputs.length + shared.inputs.length > most && merged(shared, own).length > most)
      this.reportTooMany(place, findings)
    if (template === undefined || template.placeholders.length === 0) return
    for (const { name, accepted } of template.placeholders) {
      if (accepted.some(each => own.keys.has(`path ${each}`) || shared.keys.has(`path ${each}`))) continue
      const msg = () =>
        `the placeholder ${quote(name)} of the path is not declared: add {"name": ${quote(name)}, "in": "path", "required": true, "schema": {"type": "string"}}`
      findings.faultWith({ name }, 'path_parameter_undeclared', msg, place)
    }
  }

  private reportTooMany(place: Place, findings: Findings): void {
    const msg = `an operation takes at most ${this.limits.parametersPerOperation} parameters`
    findings.fault('too_many_parameters', msg, place)
  }
}

/** What was probably meant by a location that there is not. */
function locationHint(value: unknown): string {
  if (typeof value !== 'string') return ''
  const text = value.trim().toLowerCase()
  if (text === 'body' || text === 'formdata') return '; the body of a call stands in "requestBody"'
  const meant = [...LOCATIONS].find(each => each === text || isNear(each, text))
  return meant === undefined ? '' : `; did you mean ${quote(meant)}?`
}

/** True if one text becomes the other by one letter more, less or other, or by two that change places. */
function isNear(one: string, other: string): boolean {
  if (Math.abs(one.length - other.length) > 1) return false
  let start = 0
  while (start < one.length && one[start] === other[start]) start++
  const [a, b] = [one.slice(start), other.slice(start)]
  return (
    a.slice(1) === b.slice(1) ||
    a.slice(1) === b ||
    a === b.slice(1) ||
    (a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2))
  )
}

/**
 * True for a header or cookie parameter that the model need not be asked for: OpenAPI ignores it by its name, or one of the tool's
 * custom headers (names in lower case) supplies it.
 */
export function isSupplied(
  { in: location, compared }: Pick<ParameterInput, 'in' | 'compared'>,
  headerNames: ReadonlySet<string>,
): boolean {
  if (location === 'cookie') return headerNames.has('cookie')
  return location === 'header' && (RESERVED_HEADERS.has(compared) || headerNames.has(compared))
}

/** The parameters of an operation: those of its path, unless the operation has one of that place and name, then its own. */
export function merged(shared: ParameterList, own: ParameterList): ParameterInput[] {
  return [...shared.inputs.filter(input => !own.keys.has(keyOf(input))), ...own.inputs]
}

function emptyList(place: Place): ParameterList {
  return { inputs: [], indexes: [], place, isBroken: false, keys: new Set() }
}

/** Where no path-level parameters are. */
export const NOTHING_SHARED = emptyList({ up: undefined, key: '' })

/** Place and name, equal exactly for what is the same parameter. */
export function keyOf(input: ParameterInput): string {
  return `${input.in} ${input.compared}`
}
