import type { Findings } from './findings.js'
import { type FieldEncoding, formEncoding, isStyle, type Lost } from './forms.js'
import { checkKeys } from './keys.js'
import { DEFINITION_LIMITS } from './limits.js'
import { isObject, type References } from './references.js'
import type { SchemaWalk } from './schemas.js'

type Schema = Record<string, unknown>

/** A parameter of an operation, with references resolved. */
export interface ParameterInput {
  readonly name: string
  readonly in: string
  /** Place and name. Two parameters with the same key are the same parameter. */
  readonly key: string
  readonly value: Schema
  /** True if the model fills the parameter in. False if it cannot be sent, OpenAPI ignores it, or a custom header supplies it. */
  readonly isArgument: boolean
  readonly lost?: Lost
  /** The description next to the reference. From OpenAPI 3.1 on it overrides the parameter's own. */
  readonly description?: string
}

/** The body of an operation, with references resolved. */
export interface BodyInput {
  readonly value: Schema
  /** The chosen media type object; empty if the document gives none. */
  readonly media: Schema
  readonly mediaType: string
  /** How the fields of a form are sent. */
  readonly encoding?: Record<string, FieldEncoding>
  readonly description?: string
}

/** A body that no argument can carry. */
export interface Unsendable {
  readonly lost: Lost
}

/** The parameters of one list, by key. */
export interface ParameterList {
  readonly byKey: Map<string, ParameterInput>
  /** True if an entry could not be read, so that parameters may be missing here. */
  isBroken: boolean
  /** Why the first parameter that no argument can carry is lost. */
  lost?: Lost | undefined
}

export const NO_PARAMETERS: ParameterList = { byKey: new Map(), isBroken: false }

const FORM = 'application/x-www-form-urlencoded'
const LOCATIONS = new Set<unknown>(['query', 'header', 'path', 'cookie', 'querystring'])
/** OpenAPI ignores header parameters with these names: the media type, the security scheme and the caller's token set them. */
const RESERVED_HEADERS = new Set(['header accept', 'header content-type', 'header authorization'])

/** Checks and reads parameters and bodies. Each referenced object is read once. */
export class InputRules {
  private readonly lists = new Map<object, ParameterList>()
  private readonly parameters = new Map<object, ParameterInput | undefined>()
  private readonly bodies = new Map<object, BodyInput | Unsendable | undefined>()

  constructor(
    private readonly references: References,
    private readonly schemas: SchemaWalk,
    private readonly findings: Findings,
    private readonly is30: boolean,
    private readonly headerNames: ReadonlySet<string>,
  ) {}

  /** Reads the parameter list of an operation or a path item. */
  readList(holder: Schema): ParameterList {
    const entries = holder.parameters
    if (entries === undefined) return NO_PARAMETERS
    const known = Array.isArray(entries) ? this.lists.get(entries) : undefined
    if (known !== undefined) return known
    const list: ParameterList = { byKey: new Map(), isBroken: !Array.isArray(entries) }
    if (!Array.isArray(entries)) {
      this.findings.fault('list_type', holder, ['parameters'])
      return list
    }
    this.lists.set(entries, list)
    if (entries.length > DEFINITION_LIMITS.parametersPerOperation) {
      list.isBroken = true
      this.findings.fault('too_many_parameters', holder, ['parameters'], DEFINITION_LIMITS.parametersPerOperation)
      return list
    }
    for (const [i, entry] of entries.entries()) {
      const input = this.readParameter(entry, entries, i)
      if (input === undefined) list.isBroken = true
      else if (list.byKey.has(input.key)) this.findings.warn('parameter_ignored.twice', entries, [i], input.name)
      else {
        list.byKey.set(input.key, input)
        list.lost ??= input.lost
      }
    }
    return list
  }

  private readParameter(entry: unknown, list: unknown[], i: number): ParameterInput | undefined {
    if (!isObject(entry)) {
      this.findings.fault('dict_type', list, [i])
      return undefined
    }
    const chain = this.references.chain(entry, 'parameter', this.findings)
    const value = chain?.at(-1)
    if (chain === undefined || value === undefined) return undefined
    if (!this.parameters.has(value)) this.parameters.set(value, this.readFields(value))
    const input = this.parameters.get(value)
    return input && chain.length > 1 ? { ...input, ...this.descriptionIn(chain) } : input
  }

  /** Returns the description next to a reference, which OpenAPI 3.0 ignores. */
  private descriptionIn(chain: readonly Schema[]): { description?: string } {
    const found = this.is30
      ? undefined
      : chain.slice(0, -1).find(({ description }) => typeof description === 'string' && description !== '')
    return found === undefined ? {} : { description: found.description as string } // `find` tested it
  }

  private readFields(value: Schema): ParameterInput | undefined {
    const { findings } = this
    checkKeys('parameter', value, findings)
    const { name, in: location, content } = value
    this.schemas.check(value, 'schema')
    if (isObject(content)) for (const type of Object.keys(content).slice(0, 1)) this.readMedia(content, type)
    if (name === undefined || name === '') findings.fault('missing', value, ['name'])
    else if (typeof name !== 'string') findings.fault('string_type', value, ['name'])
    else {
      const isSendable = LOCATIONS.has(location)
      const at = isSendable ? String(location) : ''
      if (!isSendable) findings.warn('parameter_ignored.location', value, ['in'], name)
      const key = `${at} ${at === 'header' ? name.toLowerCase() : name}`
      const isArgument = isSendable && !isSupplied(at, key, this.headerNames)
      const isLost = isArgument && !isStyle(value.style)
      return {
        name,
        in: at,
        key,
        value,
        isArgument,
        ...(isLost && { lost: ['operation_passed_over.style', name, value.style] }),
      }
    }
    return undefined
  }

  /** Returns the body of an operation, or why none can be sent; undefined if it has none or a fault. */
  readBody(operation: Schema, method: string): BodyInput | Unsendable | undefined {
    const { requestBody } = operation
    if (requestBody === undefined) return undefined
    if (!isObject(requestBody)) {
      this.findings.fault('dict_type', operation, ['requestBody'])
      return undefined
    }
    const verb = method.toLowerCase()
    if (this.is30 && verb === 'get') {
      if (this.asksFor(this.references.end(requestBody)))
        this.findings.warn('body_ignored', operation, ['requestBody'], method)
      return undefined
    }
    const chain = this.references.chain(requestBody, 'request body', this.findings)
    const value = chain?.at(-1)
    if (chain === undefined || value === undefined) return undefined
    // HTTP gives these bodies no meaning, so an optional one is not worth the operation.
    const isOptional = (verb === 'get' || verb === 'delete') && value.required !== true
    if (isOptional && !this.asksFor(value)) return undefined
    if (!this.bodies.has(value)) this.bodies.set(value, this.readContent(value))
    const body = this.bodies.get(value)
    if (isOptional && body !== undefined && 'lost' in body) {
      this.findings.warn('body_ignored', operation, ['requestBody'], method)
      return undefined
    }
    if (body === undefined || 'lost' in body) return body
    return chain.length > 1 ? { ...body, ...this.descriptionIn(chain) } : body
  }

  /** True if some media type of a body has a schema with a field or another constraint. */
  private asksFor(body: Schema | undefined): boolean {
    const media = isObject(body?.content) ? Object.values(body.content) : []
    return media.some(each => {
      const {
        type = 'object',
        properties,
        additionalProperties,
        title,
        description,
        ...others
      } = this.references.end(Object(each).schema) ?? {}
      const isAsked = [properties, additionalProperties, others].some(value =>
        isObject(value) ? Object.keys(value).length > 0 : value === true,
      )
      return isAsked || type !== 'object'
    })
  }

  /** Chooses `application/json`, else the first JSON media type, else a form. Only the chosen one is checked. */
  private readContent(body: Schema): BodyInput | Unsendable | undefined {
    checkKeys('request body', body, this.findings)
    const { content = {} } = body
    if (!isObject(content)) {
      this.findings.fault('dict_type', body, ['content'])
      return undefined
    }
    const mediaType = jsonMediaType(content) ?? Object.keys(content).find(name => essenceOf(name) === FORM)
    if (mediaType === undefined) return { lost: ['operation_passed_over.body'] }
    const media = this.readMedia(content, mediaType)
    if (media === undefined || essenceOf(mediaType) !== FORM) return media && { value: body, media, mediaType }
    const sent = formEncoding(media, this.references)
    return 'lost' in sent ? sent : { value: body, media, mediaType, ...sent }
  }

  /** Checks a media type, which may be a reference in OpenAPI 3.2, and its schemas. */
  private readMedia(content: Schema, name: string): Schema | undefined {
    const held = content[name] ?? {}
    if (!isObject(held)) {
      this.findings.fault('dict_type', content, [name])
      return undefined
    }
    const media = this.references.chain(held, 'media type', this.findings)?.at(-1)
    if (media === undefined) return undefined
    checkKeys('media type', media, this.findings)
    if ((media.schema ?? media.itemSchema ?? null) === null) this.findings.warn('schema_missing', content, [name])
    for (const key of ['schema', 'itemSchema']) this.schemas.check(media, key)
    return media
  }
}

/**
 * True for a header or cookie parameter that the model does not fill in: OpenAPI ignores its name, or a custom header of the tool (names
 * in lower case) supplies it.
 */
function isSupplied(location: string, key: string, headerNames: ReadonlySet<string>): boolean {
  if (location === 'cookie') return headerNames.has('cookie')
  return location === 'header' && (RESERVED_HEADERS.has(key) || headerNames.has(key.slice('header '.length)))
}

function essenceOf(mediaType: string): string {
  return mediaType.slice(0, 256).split(';', 1)[0]?.trim().toLowerCase() ?? ''
}

/** Returns the JSON media type: `application/json` or `...+json`, in any case, with or without parameters such as a charset. */
function jsonMediaType(content: Schema): string | undefined {
  if (Object.hasOwn(content, 'application/json')) return 'application/json'
  const names = Object.keys(content)
  return (
    names.find(name => essenceOf(name) === 'application/json') ?? names.find(name => essenceOf(name).endsWith('+json'))
  )
}
