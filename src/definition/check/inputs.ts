import type { Findings } from './findings.js'
import { checkKeys } from './keys.js'
import { isObject, type References, type Schema } from './references.js'
import { DEFINITION_LIMITS, type WarningRule } from './rules.js'
import type { SchemaWalk } from './schemas.js'

/** The reason why a body or a parameter cannot become an argument, with the values for the message. */
type Lost = readonly [rule: WarningRule, ...values: unknown[]]

export interface ParameterInput {
  readonly name: string
  readonly in: string
  /** The location and the name, which identify a parameter. */
  readonly key: string
  readonly value: Schema
  /** True if the model supplies the parameter. False if OpenAPI ignores it, a custom header supplies it, or its location is invalid. */
  readonly isArgument: boolean
  readonly lost?: Lost | undefined
  /** The description next to a reference to the parameter. It replaces the parameter's own description. */
  readonly description?: string
}

export interface BodyInput {
  readonly value: Schema
  /** The chosen media type object; `{}` if it is null. */
  readonly media: Schema
  readonly mediaType: string
  readonly encoding?: Record<string, FieldEncoding>
  readonly description?: string
}

/** The encoding of a form field. Properties with OpenAPI's defaults (style `form`, exploded) are absent. */
export interface FieldEncoding {
  style?: string
  explode?: boolean
  allow_reserved?: boolean
  /** The JSON media type, if the field is sent as JSON text. */
  content_type?: string
}

export interface ParameterList {
  readonly byKey: Map<string, ParameterInput>
  /** True if an entry could not be read. `byKey` can then be incomplete. */
  isBroken: boolean
  /** The reason why the first unusable parameter cannot become an argument. */
  lost?: Lost | undefined
}

export const NO_PARAMETERS: ParameterList = { byKey: new Map(), isBroken: false }

export const FORM = 'application/x-www-form-urlencoded'
const LOCATIONS = new Set<unknown>(['query', 'header', 'path', 'cookie', 'querystring'])
const STYLES = new Set('simple label matrix form spaceDelimited pipeDelimited deepObject cookie'.split(' '))
/** Header parameters that OpenAPI ignores. Runtimes set these headers. */
const RESERVED_HEADERS = new Set(['header accept', 'header content-type', 'header authorization'])
const MOST_PARTS = 100

/** Reads and checks each shared parameter or body only once. */
export class InputRules {
  private readonly lists = new Map<object, ParameterList>()
  private readonly parameters = new Map<object, ParameterInput | undefined>()
  private readonly bodies = new Map<object, BodyInput | { lost: Lost } | undefined>()

  constructor(
    private readonly references: References,
    private readonly schemas: SchemaWalk,
    private readonly findings: Findings,
    private readonly is30: boolean,
    private readonly headerNames: ReadonlySet<string>,
  ) {}

  readList(holder: Schema): ParameterList {
    const { parameters: entries } = holder
    if (entries === undefined) return NO_PARAMETERS
    const known = Array.isArray(entries) ? this.lists.get(entries) : undefined
    if (known !== undefined) return known
    const list: ParameterList = { byKey: new Map(), isBroken: true }
    const most = DEFINITION_LIMITS.parametersPerOperation
    if (!Array.isArray(entries)) this.findings.fault('list_type', holder, ['parameters'])
    else if (entries.length > most) this.findings.fault('too_many_parameters', holder, ['parameters'], most)
    else {
      this.lists.set(entries, list)
      const inputs = entries.map((entry, i) => this.readParameter(entry, entries, i))
      list.isBroken = inputs.includes(undefined)
      for (const [i, input] of inputs.entries()) {
        if (input === undefined) continue
        if (list.byKey.has(input.key)) this.findings.warn('parameter_ignored.twice', entries, [i], input.name)
        else list.byKey.set(input.key, input)
        list.lost ??= input.lost
      }
    }
    return list
  }

  private readParameter(entry: unknown, list: unknown[], i: number): ParameterInput | undefined {
    if (!isObject(entry)) return this.findings.fault('dict_type', list, [i])
    const value = this.references.chain(entry, 'parameter', this.findings)?.at(-1)
    if (value === undefined) return undefined
    if (!this.parameters.has(value)) this.parameters.set(value, this.readFields(value))
    const input = this.parameters.get(value)
    return input && entry !== value ? { ...input, ...this.descriptionBeside(entry) } : input
  }

  /** Returns the description next to a `$ref`, unless the document is OpenAPI 3.0, which ignores this description. */
  private descriptionBeside({ $ref, description }: Schema): { description?: string } {
    return $ref !== undefined && !this.is30 && typeof description === 'string' ? { description } : {}
  }

  private readFields(value: Schema): ParameterInput | undefined {
    const { findings } = this
    checkKeys('parameter', value, findings)
    const { name, in: location, content, style } = value
    this.schemas.check(value, 'schema')
    if (isObject(content)) for (const type of Object.keys(content).slice(0, 1)) this.readMedia(content, type)
    if (typeof name !== 'string' || name === '')
      return findings.fault(name === undefined || name === '' ? 'missing' : 'string_type', value, ['name'])
    const at = LOCATIONS.has(location) ? String(location) : ''
    if (at === '') findings.warn('parameter_ignored.location', value, ['in'], name)
    const key = `${at} ${at === 'header' ? name.toLowerCase() : name}`
    const isArgument = at !== '' && !this.isSupplied(at, key)
    const lost: Lost | undefined = isArgument && !isStyle(style) ? ['operation_passed_over.style', name] : undefined
    return { name, in: at, key, value, isArgument, lost }
  }

  /** True if OpenAPI ignores the header parameter, or if a custom header supplies the header or cookie parameter. */
  private isSupplied(location: string, key: string): boolean {
    if (location === 'cookie') return this.headerNames.has('cookie')
    return location === 'header' && (RESERVED_HEADERS.has(key) || this.headerNames.has(key.slice('header '.length)))
  }

  readBody(operation: Schema, method: string): BodyInput | { lost: Lost } | undefined {
    const { requestBody } = operation
    if (requestBody === undefined) return undefined
    if (!isObject(requestBody)) return this.findings.fault('dict_type', operation, ['requestBody'])
    const verb = method.toLowerCase()
    const isIgnored = this.is30 && verb === 'get'
    const value = isIgnored
      ? this.references.end(requestBody)
      : this.references.chain(requestBody, 'request body', this.findings)?.at(-1)
    if (value === undefined) return undefined
    // HTTP defines no body for GET and DELETE, so an optional body is omitted if its schema requires nothing or the body cannot be sent.
    const isOptional = isIgnored || ((verb === 'get' || verb === 'delete') && value.required !== true)
    if (isOptional && !this.asksFor(value)) return undefined
    if (!isIgnored && !this.bodies.has(value)) this.bodies.set(value, this.readContent(value))
    const body = this.bodies.get(value)
    if (isIgnored || (isOptional && body !== undefined && 'lost' in body)) {
      this.findings.warn(isIgnored ? 'body_ignored' : 'body_ignored.optional', operation, ['requestBody'], method)
      return undefined
    }
    return body === undefined || 'lost' in body ? body : { ...body, ...this.descriptionBeside(requestBody) }
  }

  /** True if the schema of a media type requires or limits something. */
  private asksFor({ content }: Schema): boolean {
    return Object.values(isObject(content) ? content : {}).some(each => {
      const schema = this.references.end(Object(each).schema) ?? {}
      const { type = 'object', title: _, description: __, ...others } = schema
      return (
        type !== 'object' ||
        Object.values(others).some(value => value === true || Object.keys(Object(value)).length > 0)
      )
    })
  }

  /** Chooses `application/json`, else the first other JSON media type, else a form. Checks only the chosen media type. */
  private readContent(body: Schema): BodyInput | { lost: Lost } | undefined {
    checkKeys('request body', body, this.findings)
    const { content = {} } = body
    if (!isObject(content)) return this.findings.fault('dict_type', body, ['content'])
    const types = Object.keys(content)
    const mediaType =
      types.find(each => each === 'application/json') ??
      types.find(each => essenceOf(each) === 'application/json') ??
      types.find(each => essenceOf(each).endsWith('+json')) ??
      types.find(each => essenceOf(each) === FORM)
    if (mediaType === undefined) return { lost: ['operation_passed_over.body'] }
    const media = this.readMedia(content, mediaType)
    if (media === undefined || essenceOf(mediaType) !== FORM) return media && { value: body, media, mediaType }
    const sent = this.formEncoding(media)
    return 'lost' in sent ? sent : { value: body, media, mediaType, ...sent }
  }

  /** Reads a media type and checks its schemas. In OpenAPI 3.2, a media type can be a reference. */
  private readMedia(content: Schema, name: string): Schema | undefined {
    const held = content[name] ?? {}
    if (!isObject(held)) return this.findings.fault('dict_type', content, [name])
    const media = this.references.chain(held, 'media type', this.findings)?.at(-1)
    if (media === undefined) return undefined
    checkKeys('media type', media, this.findings)
    if ((media.schema ?? media.itemSchema ?? null) === null) this.findings.warn('schema_missing', content, [name])
    for (const key of ['schema', 'itemSchema']) this.schemas.check(media, key)
    return media
  }

  /** Returns a form's encodings by field name, or the reason why the form cannot be sent. */
  private formEncoding(media: Schema): { encoding: Record<string, FieldEncoding> } | { lost: Lost } {
    const encoding: Record<string, FieldEncoding> = {}
    for (const { type = 'object', properties } of this.partsOf(media.schema)) {
      if (![type].flat().includes('object')) return { lost: ['operation_passed_over.form'] }
      for (const [name, schema] of Object.entries(isObject(properties) ? properties : {})) {
        const given = isObject(media.encoding) && Object.hasOwn(media.encoding, name) ? media.encoding[name] : undefined
        const sent = this.fieldEncoding(isObject(given) ? given : {}, this.partsOf(schema))
        if (sent === undefined) return { lost: ['operation_passed_over.field', name] }
        if (Object.keys(sent).length > 0) encoding[name] = sent
      }
    }
    return { encoding }
  }

  /** Returns the encoding of one field; undefined if the field's values cannot be encoded. */
  private fieldEncoding(given: Schema, parts: readonly Schema[]): FieldEncoding | undefined {
    const { style = 'form', contentType, explode = style === 'form', allowReserved } = given
    const isStyled = ['style', 'explode', 'allowReserved'].some(key => given[key] !== undefined)
    if (!isStyled && typeof contentType === 'string' && contentType !== 'text/plain')
      return /^application\/(?:[\w.-]+\+)?json$/i.test(contentType) ? { content_type: contentType } : undefined
    if (!isStyle(style)) return undefined
    if (style !== 'deepObject') {
      const inside = parts.flatMap(part => valuesIn(part).flatMap(each => this.partsOf(each)))
      if (inside.some(isComposite) || (style !== 'form' && parts.some(isMap))) return undefined
    }
    return {
      ...(style !== 'form' && { style: String(style) }),
      ...(typeof explode === 'boolean' && explode !== (style === 'form') && { explode }),
      ...(allowReserved === true && { allow_reserved: true }),
    }
  }

  /** Returns a schema and the schemas to which its references, `allOf`, `oneOf` and `anyOf` lead. Returns at most `MOST_PARTS` schemas. */
  private partsOf(schema: unknown): Schema[] {
    const parts = new Set<Schema>()
    const pending = [schema]
    for (let next = pending.pop(); next !== undefined && parts.size < MOST_PARTS; next = pending.pop()) {
      const end = this.references.end(next)
      if (end === undefined || parts.has(end)) continue
      parts.add(end)
      for (const list of [end.allOf, end.oneOf, end.anyOf])
        if (Array.isArray(list)) pending.push(...list.slice(0, MOST_PARTS))
    }
    return [...parts]
  }
}

function isStyle(style: unknown): boolean {
  return typeof style !== 'string' || STYLES.has(style)
}

function valuesIn({ items, properties, additionalProperties }: Schema): unknown[] {
  return [items, additionalProperties, ...(isObject(properties) ? Object.values(properties) : [])]
}

function isMap({ type, properties, additionalProperties }: Schema): boolean {
  return [type].flat().includes('object') || isObject(properties) || isObject(additionalProperties)
}

function isComposite(schema: Schema): boolean {
  return isMap(schema) || [schema.type].flat().includes('array') || schema.items !== undefined
}

function essenceOf(mediaType: string): string {
  return mediaType.slice(0, 256).split(';', 1)[0]?.trim().toLowerCase() ?? ''
}
