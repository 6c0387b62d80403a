import { type Place, placeUnder, quote, type Resolved } from './findings.js'
import { BODY_FORMS, PARAMETER_FORMS, warnForms } from './forms.js'
import { DEFINITION_LIMITS } from './limits.js'
import type { Reader } from './reader.js'
import { isObject } from './references.js'
import { knownType, type SchemaWalk } from './schemas.js'
import { type PathTemplate, routesOf } from './templates.js'

/** A parameter of an operation, with references resolved. */
export interface ParameterInput {
  readonly name: string
  readonly in: string
  /** Place and name. Two parameters with the same key are the same parameter. */
  readonly key: string
  readonly value: Record<string, unknown>
  readonly place: Place
  /** True if the model fills the parameter in. False if it cannot be sent, OpenAPI ignores it, or a custom header supplies it. */
  readonly isArgument: boolean
  /** The description next to the reference. From OpenAPI 3.1 on it overrides the parameter's own. */
  readonly description?: string
}

/** The JSON body of an operation, with references resolved. */
export interface BodyInput {
  readonly value: Record<string, unknown>
  /** The chosen media type object; empty if the document gives none. */
  readonly media: Record<string, unknown>
  readonly mediaType: string
  readonly place: Place
  /** See `ParameterInput.description`. */
  readonly description?: string
}

/** The parameters of one list by key, each with its index in the list. */
export interface ParameterList {
  readonly byKey: Map<string, { input: ParameterInput; index: number }>
  /** True if an entry could not be read, so that parameters may be missing here. */
  isBroken: boolean
}

export const NO_PARAMETERS: ParameterList = { byKey: new Map(), isBroken: false }

const LOCATIONS = ['query', 'header', 'path', 'cookie', 'querystring']
/** OpenAPI ignores header parameters with these names: the media type, the security scheme and the caller's token set them. */
const RESERVED_HEADERS = new Set(['header accept', 'header content-type', 'header authorization'])

/** Checks and reads parameters and bodies. Each referenced object is read once. */
export class InputRules {
  private readonly lists = new Map<object, ParameterList>()
  private readonly parameters = new Map<object, ParameterInput | undefined>()
  private readonly bodies = new Map<object, BodyInput | undefined>()
  /** Cache for `isIgnored`, by the body object. */
  private readonly ignored = new Map<object, boolean>()

  constructor(
    private readonly reader: Reader,
    private readonly schemas: SchemaWalk,
    private readonly is30: boolean,
    private readonly headerNames: ReadonlySet<string>,
  ) {}

  /** Reads the parameter list of an operation or a path item. */
  readList(value: unknown, place: Place): ParameterList {
    if (value === undefined) return NO_PARAMETERS
    const known = Array.isArray(value) ? this.lists.get(value) : undefined
    if (known !== undefined) return known
    const entries = this.reader.list(value, place, 'list of parameters')
    const list: ParameterList = { byKey: new Map(), isBroken: entries === undefined }
    if (entries === undefined) return list
    this.lists.set(entries, list)
    if (entries.length > DEFINITION_LIMITS.parametersPerOperation) {
      list.isBroken = true
      this.reportTooMany(place)
      return list
    }
    for (const [index, entry] of entries.entries()) {
      const input = this.readParameter(entry, placeUnder(place, index))
      if (input === undefined) {
        list.isBroken = true
      } else if (list.byKey.has(input.key)) {
        const msg = `the ${input.in} parameter ${quote(input.name)} is in this list twice; the first is used`
        this.reader.findings.warn('parameter_duplicate', msg, place, index)
      } else list.byKey.set(input.key, { input, index })
    }
    return list
  }

  private readParameter(entry: unknown, place: Place): ParameterInput | undefined {
    const value = this.reader.object(entry, place, 'parameter')
    if (value === undefined) return undefined
    const { found, beside } = this.follow(value, place, 'parameter')
    if (found === undefined) return undefined
    if (!this.parameters.has(found.value)) this.parameters.set(found.value, this.readFields(found))
    const input = this.parameters.get(found.value)
    return input && 'description' in beside ? { ...input, ...beside } : input
  }

  private readFields(parameter: Resolved): ParameterInput | undefined {
    const { value, place } = parameter
    const { findings } = this.reader
    warnForms(value, PARAMETER_FORMS, place, findings)
    this.checkSchemas(parameter)
    if (typeof value.type === 'string') {
      const type = quote(knownType(value.type) ?? value.type)
      const msg = `the type of a parameter belongs in its schema: did you mean "schema": {"type": ${type}}?`
      findings.warn('parameter_type_misplaced', msg, place, 'type')
    }
    if (value.name === undefined || value.name === '') {
      findings.faultOf('missing', place, 'name')
      return undefined
    }
    const name = this.reader.text(parameter, 'name')
    if (name === undefined || this.reader.isMisplaced(value.in, placeUnder(place, 'in'), '"in"')) return undefined
    const location = typeof value.in === 'string' ? value.in : ''
    const key = `${location} ${location === 'header' ? name.toLowerCase() : name}`
    const isSendable = LOCATIONS.includes(location)
    const isArgument = isSendable && !isSupplied({ in: location, key }, this.headerNames)
    if (!isSendable) {
      const hint = locationHint(value.in)
      const msg = `the parameter ${quote(name)} has an "in" other than query, header, path or cookie: it cannot be sent${hint}`
      findings.warn('parameter_location_unknown', msg, place, 'in')
    } else if (isArgument && (location === 'header' || location === 'cookie')) {
      findings.warn(
        'parameter_not_supplied',
        `no custom header supplies the ${location} parameter ${quote(name)}`,
        place,
      )
    }
    return { name, in: location, key, value, place, isArgument }
  }

  /** Follows references. Also returns the description next to a reference, which OpenAPI 3.0 ignores. */
  private follow(value: Record<string, unknown>, place: Place, part: string) {
    const start = { value, place }
    if (value.$ref === undefined) return { found: start, beside: {} }
    const { items, end: found } = this.reader.passed(start, part)
    const references = this.is30 ? [] : [start, ...items.slice(0, -1)]
    const described = references.find(
      each => typeof each.value.description === 'string' && each.value.description !== '',
    )
    return { found, beside: described === undefined ? {} : { description: described.value.description as string } }
  }

  /** Checks the schema of a parameter, which is in `schema` or in the one media type of `content`. */
  private checkSchemas({ value: { schema, content, required }, place }: Resolved): void {
    this.schemas.check(schema, place, 'schema', required === true)
    const at = placeUnder(place, 'content')
    if (this.reader.isMisplaced(content, at, 'content') || !isObject(content)) return
    const [name] = Object.keys(content)
    const media = content[name ?? '']
    if (name !== undefined && isObject(media)) this.readMediaType({ value: media, place: placeUnder(at, name) })
  }

  /** Warns `path_parameter_unused`: a path parameter without a placeholder is never sent. */
  warnUnused(list: ParameterList, { declared, path }: PathTemplate, place: Place): void {
    for (const { input, index } of list.byKey.values()) {
      if (input.in !== 'path' || declared.has(input.key)) continue
      const route = routesOf(path).get(input.name)
      const hint = route === undefined ? '' : `: write ${quote(route.written)} for ${quote(route.step)}`
      const msg = `the path has no placeholder for the path parameter ${quote(input.name)}${hint}`
      this.reader.findings.warn('path_parameter_unused', msg, place, index)
    }
  }

  reportTooMany(place: Place): void {
    const msg = `an operation takes at most ${DEFINITION_LIMITS.parametersPerOperation} parameters`
    this.reader.findings.fault('too_many_parameters', msg, place)
  }

  /** Returns the body of an operation; undefined if it has none, or if the body is ignored or has a fault. */
  readBody(body: unknown, method: string, place: Place): BodyInput | undefined {
    if (body === undefined) return undefined
    const value = this.reader.object(body, place, 'request body')
    if (value === undefined || this.isIgnored(value, method, place)) return undefined
    const { found, beside } = this.follow(value, place, 'request body')
    if (found === undefined) return undefined
    if (!this.bodies.has(found.value)) this.bodies.set(found.value, this.readContent(found))
    const input = this.bodies.get(found.value)
    return input && 'description' in beside ? { ...input, ...beside } : input
  }

  /**
   * True if a body is ignored. HTTP gives a body of GET, HEAD and DELETE no meaning: OpenAPI 3.0 ignores it, later versions advise against
   * it. A JSON body of a DELETE is still an argument, because many 3.0 documents need it. Any other optional body is ignored, not refused.
   */
  private isIgnored(value: Record<string, unknown>, method: string, place: Place): boolean {
    if (!/^(?:get|head|delete)$/i.test(method)) return false
    const known = this.ignored.get(value)
    if (known !== undefined) return known
    const { references, findings } = this.reader
    const target = typeof value.$ref === 'string' ? references.resolve(value.$ref, undefined)?.value : value
    if (!isObject(target) && !this.is30) return false
    const { content, required } = isObject(target) ? target : {}
    const types = isObject(content) ? content : {}
    const media = Object.values(types)
    const isEmpty = target !== undefined && media.every(each => !isObject(each) || this.isEmpty(each.schema))
    const isJson = jsonMediaType(types) !== undefined || Object.keys(types).some(type => type.endsWith('/*'))
    const isOptional = isJson ? !/^delete$/i.test(method) : required !== true
    const isIgnored = this.is30 ? isOptional || !isJson : !isJson && (isOptional || isEmpty)
    const verb = method.toUpperCase()
    if (!isIgnored) {
      const msg = `HTTP gives a body of ${verb} no meaning: some clients and servers drop it`
      findings.warn('body_discouraged', msg, place)
    } else if (!isEmpty) {
      const msg = `the body of ${verb} is ignored, because HTTP gives it no meaning: declare query parameters, or use POST`
      findings.warn('body_ignored', msg, place)
    }
    this.ignored.set(value, isIgnored)
    return isIgnored
  }

  /** True for a schema without any constraint. */
  private isEmpty(schema: unknown): boolean {
    if (!isObject(schema)) return true
    const end = typeof schema.$ref === 'string' ? this.reader.references.resolve(schema.$ref, undefined)?.value : schema
    if (!isObject(end)) return false
    const { type = 'object', properties, additionalProperties, title, description, ...others } = end
    const asksFor = (value: unknown) => (isObject(value) ? Object.keys(value).length > 0 : value === true)
    return type === 'object' && ![properties, additionalProperties, others].some(asksFor)
  }

  /** Chooses `application/json`, else the first JSON media type. Only the chosen one is checked. */
  private readContent(body: Resolved): BodyInput | undefined {
    warnForms(body.value, BODY_FORMS, body.place, this.reader.findings)
    const at = placeUnder(body.place, 'content')
    const content = body.value.content === undefined ? {} : this.reader.object(body.value.content, at, 'content')
    if (content === undefined) return undefined
    const name = jsonMediaType(content)
    if (name === undefined) {
      const msg =
        Object.keys(content).length === 0
          ? 'the body names no media type: add "content": {"application/json": {"schema": ...}}, or take "requestBody" out'
          : 'the body has no JSON media type such as application/json: a model sends JSON only'
      this.reader.findings.fault('request_body_media_type_unsupported', msg, at)
      return undefined
    }
    const place = placeUnder(at, name)
    if (content[name] === null) return { value: body.value, media: {}, mediaType: name, place }
    const value = this.reader.object(content[name], place, 'media type')
    const media = value && this.readMediaType({ value, place }, body.value.required === true)
    return media && { value: body.value, media: media.value, mediaType: name, place: media.place }
  }

  /** Resolves a media type, which may be a reference in OpenAPI 3.2. */
  private readMediaType(media: Resolved, isRequired = false): Resolved | undefined {
    if (this.reader.isMisplaced(media.value, media.place, 'media type')) return undefined
    const found = this.reader.follow(media, 'media type')
    for (const key of ['schema', 'itemSchema'])
      if (found !== undefined) this.schemas.check(found.value[key], found.place, key, isRequired)
    return found
  }
}

/** Returns a hint for an unknown parameter location. */
function locationHint(value: unknown): string {
  if (typeof value !== 'string') return ''
  const text = value.trim().toLowerCase()
  if (text === 'body' || text === 'formdata') return '; the body of a call stands in "requestBody"'
  const meant = LOCATIONS.find(each => each === text || isNear(each, text))
  return meant === undefined ? '' : `; did you mean ${quote(meant)}?`
}

/** True for texts that differ by about one letter. */
export function isNear(one: string, other: string): boolean {
  const letters = Math.min(new Set(one).size, new Set(other).size)
  return Math.abs(one.length - other.length) <= 1 && new Set(one + other).size <= letters + 1
}

/**
 * True for a header or cookie parameter that the model does not fill in: OpenAPI ignores its name, or a custom header of the tool (names
 * in lower case) supplies it.
 */
export function isSupplied(
  { in: location, key }: Pick<ParameterInput, 'in' | 'key'>,
  headerNames: ReadonlySet<string>,
): boolean {
  if (location === 'cookie') return headerNames.has('cookie')
  return location === 'header' && (RESERVED_HEADERS.has(key) || headerNames.has(key.slice('header '.length)))
}

/** Returns the JSON media type: `application/json` or `...+json`, in any case, with or without parameters such as a charset. */
export function jsonMediaType(content: Record<string, unknown>): string | undefined {
  if (Object.hasOwn(content, 'application/json')) return 'application/json'
  let suffixed: string | undefined
  for (const name of Object.keys(content)) {
    const essence = name.slice(0, 256).split(';', 1)[0]?.trim().toLowerCase()
    if (essence === 'application/json') return name
    if (suffixed === undefined && essence?.endsWith('+json')) suffixed = name
  }
  return suffixed
}
