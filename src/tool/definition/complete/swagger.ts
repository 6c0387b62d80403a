import type { Loc } from '../../../errors.js'
import { rememberNumbers } from '../../../schema/exact-json.js'
import { quote } from '../check/findings.js'
import { isObject } from '../check/references.js'
import { charactersAt, charactersOf, mostMadeOf } from './sizes.js'
import { formBody, mapOf, SCHEMA_KEYS, schemaOf, securityScheme, serversOf, styleOf } from './swagger-parts.js'
import { JSON_TYPE, METHODS, MovedReferences, NotConvertible, SwaggerParameters } from './swagger-references.js'

type Json = Record<string, unknown>

/** Something that OpenAPI 3 cannot say as it was, or that was not said at all: what was taken instead stands at `path` of the result. */
export interface ConversionNote {
  path: Loc
  type: string
  msg: string
}

export interface Conversion {
  document: Json
  notes: ConversionNote[]
}

/** What holds names beside which no keyword stands. */
const MAP_KEYS = new Set([
  'properties',
  'patternProperties',
  'schemas',
  'parameters',
  'responses',
  'headers',
  'content',
])
/** What is data, in which no reference and no schema stands. */
const SHARED_KEYS = new Set(['example', 'examples', 'default', 'enum'])
/** What a field of a form, or a media type, is at least in the result: a name and an object. */
const MEMBER_CHARACTERS = 16
/**
 * Turns a Swagger 2.0 document into OpenAPI 3.0.3: servers, request bodies of body and form parameters, schemas of parameters,
 * responses, security schemes, and references to where things stand now. What it does not know stays as it is, extensions too;
 * what it had to decide is in `notes`. Own code, because no library of it is bounded: the result has at most `mostValues` values
 * and 16 characters for each of the input, which must have passed the budget walk. `scheme` is that of a document that names none.
 * Throws `NotConvertible`. The input is never changed; what is the same in both versions is shared with it.
 */
export function convertSwagger(
  document: Json,
  { mostValues, scheme }: { mostValues: number; scheme: string | undefined },
): Conversion {
  const most = mostMadeOf(charactersOf(document))
  return new SwaggerConversion(document, mostValues, most, scheme).run()
}

class SwaggerConversion {
  private readonly notes: ConversionNote[] = []
  private readonly parameters: SwaggerParameters
  private readonly references: MovedReferences
  private readonly servers: { url: string }[]
  /** By what schemes can say: a host may be long, and operations many. */
  private readonly serversBySchemes = new Map<string, { url: string }[]>()
  private readonly namedTypes = new WeakMap<object, string[]>()
  private made = 0

  constructor(
    private readonly document: Json,
    private readonly mostValues: number,
    private readonly mostCharacters: number,
    private readonly scheme: string | undefined,
  ) {
    this.servers = serversOf(document, scheme)
    this.parameters = new SwaggerParameters(document)
    this.references = new MovedReferences(document, this.parameters, types => this.typesOf(types))
  }

  run(): Conversion {
    const { document } = this
    const result: Json = { openapi: '3.0.3' }
    rememberNumbers(document, result)
    for (const key of Object.keys(document)) {
      if (key === 'info' || key === 'tags' || key === 'externalDocs' || key === 'security' || key.startsWith('x-'))
        result[key] = document[key]
    }
    if (this.servers.length > 0) {
      result.servers = this.servers
      if (document.schemes === undefined && typeof document.host === 'string') {
        const origin = this.scheme === undefined ? 'https is assumed' : 'that of the server given is taken'
        this.note(['servers', 0, 'url'], 'scheme_assumed', `the document names a host and no scheme: ${origin}`)
      }
    }
    result.paths = this.paths()
    const components = this.components()
    if (Object.keys(components).length > 0) result.components = components
    // Both are objects: a copy of an object is one.
    return { document: this.withModernSchemas(result) as Json, notes: this.notes }
  }

  private paths(): unknown {
    const { paths } = this.document
    if (!isObject(paths)) return paths
    const result: Json = {}
    for (const path of Object.keys(paths)) {
      const item = paths[path]
      result[path] = isObject(item) && !path.startsWith('x-') ? this.pathItem(item, ['paths', path]) : item
    }
    return result
  }

  private pathItem(item: Json, at: Loc): Json {
    const shared = Array.isArray(item.parameters) ? item.parameters : []
    const bodies: unknown[] = []
    const plain: unknown[] = []
    for (const each of shared) {
      if (this.parameters.isBody(each)) bodies.push(each)
      else plain.push(this.parameter(each, [...at, 'parameters', plain.length]))
    }
    const result: Json = {}
    for (const key of Object.keys(item)) {
      const value = item[key]
      if (key === 'parameters' && Array.isArray(value)) {
        result.parameters = plain
      } else if (isObject(value) && METHODS.has(key.toLowerCase())) {
        result[key] = this.operation(value, bodies, [...at, key])
      } else {
        result[key] = value
      }
    }
    return result
  }

  private operation(operation: Json, sharedBodies: readonly unknown[], at: Loc): Json {
    const result: Json = {}
    for (const key of Object.keys(operation)) {
      if (key === 'consumes' || key === 'produces' || key === 'schemes') continue
      if (key === 'responses') result.responses = this.responses(operation.responses, operation.produces)
      else if (key !== 'parameters' || !Array.isArray(operation.parameters)) result[key] = operation[key]
      else result.parameters = []
    }
    if (operation.schemes !== undefined) this.addServers(result, operation.schemes, at)
    const own = Array.isArray(operation.parameters) ? operation.parameters : []
    const plain: unknown[] = []
    const forms: Json[] = []
    let body: unknown
    for (const entry of [...sharedBodies, ...own]) {
      const parameter = this.parameters.resolved(entry)
      if (parameter.in === 'body') body = entry
      else if (parameter.in === 'formData') forms.push(parameter)
      else plain.push(this.parameter(entry, [...at, 'parameters', plain.length]))
      // Path-level bodies stand in each operation.
      this.pay(MEMBER_CHARACTERS)
    }
    if (Array.isArray(operation.parameters)) result.parameters = plain
    const types = this.typesOf(operation.consumes ?? this.document.consumes)
    if (body !== undefined) result.requestBody = this.body(body, types)
    else if (forms.length > 0) result.requestBody = formBody(forms, types)
    return result
  }

  /** An operation that goes by other schemes than the document has servers of its own. */
  private addServers(operation: Json, schemes: unknown, at: Loc): void {
    const servers = this.serversOf(schemes)
    if (servers.length === 0) {
      const msg = 'the schemes of the operation give no http(s) address: it is called as the others are'
      this.note(at, 'schemes_removed', msg)
    } else if (servers !== this.servers) {
      operation.servers = servers
    }
  }

  /** The servers under these schemes; the document's own where they are the same. */
  private serversOf(schemes: unknown): { url: string }[] {
    const named = Array.isArray(schemes) ? schemes : []
    const key = `${named.length > 0} ${named.includes('https')} ${named.includes('http')}`
    const known = this.serversBySchemes.get(key)
    if (known !== undefined) return known
    const { host, basePath } = this.document
    const made = typeof host === 'string' ? serversOf({ host, basePath, schemes }, this.scheme) : []
    const isSame = made.length === this.servers.length && made.every(({ url }, i) => url === this.servers[i]?.url)
    const servers = isSame ? this.servers : made
    this.serversBySchemes.set(key, servers)
    return servers
  }

  private body(entry: unknown, types: readonly string[]): Json {
    const parameter = this.parameters.resolved(entry)
    const schema = parameter.schema
    return {
      ...(typeof parameter.description === 'string' ? { description: parameter.description } : {}),
      ...(parameter.required === true ? { required: true } : {}),
      content: mapOf(types, () => (schema === undefined ? {} : { schema })),
    }
  }

  private parameter(entry: unknown, at: Loc): unknown {
    this.pay(1)
    if (!isObject(entry) || entry.$ref !== undefined || typeof entry.in !== 'string') return entry
    const result: Json = {}
    for (const key of Object.keys(entry)) {
      if (!SCHEMA_KEYS.includes(key) && key !== 'collectionFormat' && key !== 'allowEmptyValue')
        result[key] = entry[key]
    }
    if (entry.in === 'query' && entry.allowEmptyValue === true) result.allowEmptyValue = true
    if (result.schema === undefined) result.schema = schemaOf(entry)
    if (entry.type !== 'array') return result
    const style = styleOf(entry.collectionFormat, entry.in)
    if (style !== undefined) return Object.assign(result, style)
    const format = quote(String(entry.collectionFormat))
    const msg = `OpenAPI 3 has no collectionFormat ${format} for ${quote(entry.in)}: the values are separated by commas`
    this.note(at, 'collection_format_replaced', msg)
    return entry.in === 'query' ? { ...result, style: 'form', explode: false } : result
  }

  private responses(responses: unknown, produces: unknown): unknown {
    if (!isObject(responses)) return responses
    const result: Json = {}
    for (const code of Object.keys(responses)) {
      result[code] = this.response(responses[code], produces)
    }
    return result
  }

  private response(response: unknown, produces: unknown): unknown {
    this.pay(1)
    if (!isObject(response) || response.$ref !== undefined) return response
    const { schema, headers, examples } = response
    const kept = Object.keys(response).filter(key => key !== 'schema' && key !== 'headers' && key !== 'examples')
    const result = mapOf(kept, key => response[key])
    if (isObject(headers)) {
      result.headers = mapOf(Object.keys(headers), name => {
        const header = headers[name]
        if (!isObject(header)) return header
        const description = typeof header.description === 'string' ? { description: header.description } : {}
        return { ...description, schema: schemaOf(header) }
      })
    }
    if (schema !== undefined) {
      const shown = isObject(examples) ? examples : {}
      result.content = mapOf(this.typesOf(produces ?? this.document.produces), type => ({
        schema,
        ...(Object.hasOwn(shown, type) ? { example: shown[type] } : {}),
      }))
    }
    return result
  }

  private components(): Json {
    const { definitions, parameters, responses, securityDefinitions } = this.document
    const components: Json = {}
    if (isObject(definitions)) components.schemas = definitions
    if (isObject(parameters)) {
      // Those that are a body stand in each operation that refers to them.
      const kept: Json = {}
      for (const name of Object.keys(parameters)) {
        const parameter = parameters[name]
        if (!this.parameters.isBody(parameter))
          kept[name] = this.parameter(parameter, ['components', 'parameters', name])
      }
      components.parameters = kept
    }
    if (isObject(responses)) components.responses = this.responses(responses, undefined)
    if (isObject(securityDefinitions)) {
      const schemes = Object.keys(securityDefinitions)
      components.securitySchemes = mapOf(schemes, name => securityScheme(securityDefinitions[name]))
    }
    return components
  }

  /** The media types of a list; JSON where it names none. Each will stand in the result. */
  private typesOf(types: unknown): string[] {
    if (!Array.isArray(types)) return [JSON_TYPE]
    let named = this.namedTypes.get(types)
    if (named === undefined) {
      named = types.filter(each => typeof each === 'string' && each !== '')
      this.namedTypes.set(types, named)
    }
    for (const type of named) this.pay(type.length + MEMBER_CHARACTERS)
    return named.length > 0 ? named : [JSON_TYPE]
  }

  private note(path: Loc, type: string, msg: string): void {
    for (const key of path) this.pay(charactersAt(key))
    this.pay(msg.length)
    this.notes.push({ path, type, msg })
  }

  private pay(characters: number): void {
    this.made += characters
    if (this.made > this.mostCharacters) throw tooLarge(this.mostCharacters, 'characters')
  }

  /**
   * A copy in which references lead to where things stand now and schemas speak 3.0: files are binary strings, a discriminator is an
   * object, `x-nullable` is `nullable`. Without recursion; the input nests no deeper than the budget walk allows.
   */
  private withModernSchemas(document: Json): unknown {
    const pending: { from: object; to: Record<string | number, unknown> | unknown[]; isMap: boolean }[] = []
    const copy = (value: unknown, isMap: boolean): unknown => {
      if (typeof value !== 'object' || value === null) return value
      const to = Array.isArray(value) ? [] : {}
      rememberNumbers(value, to)
      pending.push({ from: value, to, isMap })
      return to
    }
    const root = copy(document, false)
    let values = 0
    this.made = 0
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const { from, to, isMap } = next
      for (const key of Array.isArray(from) ? from.keys() : Object.keys(from)) {
        if (++values > this.mostValues) throw tooLarge(this.mostValues, 'values')
        const value = (from as Record<string | number, unknown>)[key]
        this.pay(charactersAt(value) + (typeof key === 'string' ? key.length : 1))
        // In a map the keys are names and mean nothing.
        if (isMap) {
          ;(to as Json)[key] = copy(value, false)
        } else if (key === '$ref' && typeof value === 'string') {
          ;(to as Json).$ref = this.references.moved(value)
        } else if (key === 'x-nullable' && typeof value === 'boolean') {
          ;(to as Json).nullable = value
        } else if (SHARED_KEYS.has(String(key)) || String(key).startsWith('x-')) {
          if (typeof value === 'object') this.pay(charactersOf(value, this.mostCharacters - this.made))
          ;(to as Json)[key] = value
        } else if (key === 'discriminator' && typeof value === 'string') {
          ;(to as Json).discriminator = { propertyName: value }
        } else {
          ;(to as Record<string | number, unknown>)[key] = copy(value, MAP_KEYS.has(String(key)))
        }
      }
      if (!isMap && (to as Json).type === 'file') Object.assign(to, { type: 'string', format: 'binary' })
    }
    return root
  }
}

function tooLarge(most: number, unit: string): NotConvertible {
  const msg = `converted to OpenAPI 3 the definition would hold more than ${most} ${unit}, as each body stands at each of its operations and media types: name fewer in "consumes" and "produces", and put large schemas under "definitions"`
  return new NotConvertible('definition_too_large', msg)
}
