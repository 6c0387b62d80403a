import { rememberNumbers } from '../../../schema/exact-json.js'
import { isObject } from '../check/references.js'

type Json = Record<string, unknown>

/** What a conversion may use up; beyond it the result would be larger than a definition may be. */
export class TooLarge extends Error {}

const METHODS = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch']
const FORM_TYPES = new Set(['application/x-www-form-urlencoded', 'multipart/form-data'])
const JSON_TYPE = 'application/json'
/** Members of a parameter or header that are its schema in OpenAPI 3. */
const SCHEMA_KEYS = [
  'type',
  'format',
  'items',
  'default',
  'enum',
  'maximum',
  'exclusiveMaximum',
  'minimum',
  'exclusiveMinimum',
  'maxLength',
  'minLength',
  'pattern',
  'maxItems',
  'minItems',
  'uniqueItems',
  'multipleOf',
]
const MOVED_SECTIONS: readonly (readonly [string, string])[] = [
  ['#/definitions/', '#/components/schemas/'],
  ['#/parameters/', '#/components/parameters/'],
  ['#/responses/', '#/components/responses/'],
]
const OAUTH_FLOWS = new Map([
  ['implicit', 'implicit'],
  ['password', 'password'],
  ['application', 'clientCredentials'],
  ['accessCode', 'authorizationCode'],
])
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
const STEP_MEMBERS = 1000

/**
 * Turns a Swagger 2.0 document into OpenAPI 3.0.3: servers, request bodies of body and form parameters, schemas of parameters,
 * responses, security schemes, and references to where things stand now. What it does not know stays as it is. Own code, because
 * no library of it is bounded: the result has at most `mostValues` values, and the input must have passed the budget walk.
 * The input is never changed; what is the same in both versions is shared with it. A sequence of short steps.
 */
export function* convertSwagger(document: Json, mostValues: number): Generator<void, Json> {
  return yield* new SwaggerConversion(document, mostValues).run()
}

class SwaggerConversion {
  private made = 0

  constructor(
    private readonly document: Json,
    private readonly mostValues: number,
  ) {}

  *run(): Generator<void, Json> {
    const { document } = this
    const result: Json = { openapi: '3.0.3' }
    rememberNumbers(document, result)
    for (const key of Object.keys(document)) {
      if (key === 'info' || key === 'tags' || key === 'externalDocs' || key === 'security' || key.startsWith('x-'))
        result[key] = document[key]
    }
    const servers = serversOf(document)
    if (servers.length > 0) result.servers = servers
    result.paths = yield* this.paths()
    const components = yield* this.components()
    if (Object.keys(components).length > 0) result.components = components
    return (yield* withModernSchemas(result, this.mostValues)) as Json
  }

  private *paths(): Generator<void, unknown> {
    const { paths } = this.document
    if (!isObject(paths)) return paths
    const result: Json = {}
    for (const path of Object.keys(paths)) {
      const item = paths[path]
      result[path] = isObject(item) && !path.startsWith('x-') ? this.pathItem(item) : item
      yield
    }
    return result
  }

  private pathItem(item: Json): Json {
    const shared = Array.isArray(item.parameters) ? item.parameters : []
    const isBody = (entry: unknown) => {
      const { in: location } = this.resolved(entry)
      return location === 'body' || location === 'formData'
    }
    const bodies = shared.filter(isBody)
    const result: Json = {}
    for (const key of Object.keys(item)) {
      if (key === 'parameters' && Array.isArray(item.parameters)) {
        result.parameters = shared.filter(each => !isBody(each)).map(each => this.parameter(each))
      } else if (METHODS.includes(key) && isObject(item[key])) {
        result[key] = this.operation(item[key] as Json, bodies)
      } else {
        result[key] = item[key]
      }
    }
    return result
  }

  private operation(operation: Json, sharedBodies: readonly unknown[]): Json {
    const result: Json = {}
    for (const key of Object.keys(operation)) {
      if (key === 'consumes' || key === 'produces' || key === 'schemes') continue
      if (key === 'responses') result.responses = this.responses(operation)
      else if (key !== 'parameters' || !Array.isArray(operation.parameters)) result[key] = operation[key]
      else result.parameters = []
    }
    const own = Array.isArray(operation.parameters) ? operation.parameters : []
    const plain: unknown[] = []
    const forms: Json[] = []
    let body: unknown
    for (const entry of [...sharedBodies, ...own]) {
      this.pay()
      const parameter = this.resolved(entry)
      if (parameter.in === 'body') body = entry
      else if (parameter.in === 'formData') forms.push(parameter)
      else plain.push(this.parameter(entry))
    }
    if (Array.isArray(operation.parameters)) result.parameters = plain
    const types = mediaTypes(operation.consumes ?? this.document.consumes)
    this.pay(types.length)
    if (body !== undefined) result.requestBody = this.body(body, types)
    else if (forms.length > 0) result.requestBody = formBody(forms, types)
    return result
  }

  private body(entry: unknown, types: readonly string[]): Json {
    const parameter = this.resolved(entry)
    const schema = parameter.schema
    return {
      ...(typeof parameter.description === 'string' ? { description: parameter.description } : {}),
      ...(parameter.required === true ? { required: true } : {}),
      content: Object.fromEntries(
        (types.length > 0 ? types : [JSON_TYPE]).map(type => [type, schema === undefined ? {} : { schema }]),
      ),
    }
  }

  private parameter(entry: unknown): unknown {
    this.pay()
    if (!isObject(entry) || entry.$ref !== undefined || typeof entry.in !== 'string') return entry
    const result: Json = {}
    for (const key of Object.keys(entry)) {
      if (!SCHEMA_KEYS.includes(key) && key !== 'collectionFormat' && key !== 'allowEmptyValue')
        result[key] = entry[key]
    }
    if (entry.in === 'query' && entry.allowEmptyValue === true) result.allowEmptyValue = true
    if (result.schema === undefined) result.schema = schemaOf(entry)
    if (entry.type === 'array') Object.assign(result, styleOf(entry.collectionFormat, entry.in))
    return result
  }

  private responses({ responses, produces }: Json): unknown {
    if (!isObject(responses)) return responses
    const types = mediaTypes(produces ?? this.document.produces)
    return Object.fromEntries(Object.keys(responses).map(code => [code, this.response(responses[code], types)]))
  }

  private response(response: unknown, types: readonly string[]): unknown {
    this.pay(1 + types.length)
    if (!isObject(response) || response.$ref !== undefined) return response
    const { schema, headers, examples, ...rest } = response
    const result: Json = { ...rest }
    if (isObject(headers)) {
      result.headers = Object.fromEntries(
        Object.keys(headers).map(name => {
          const header = headers[name]
          if (!isObject(header)) return [name, header]
          const description = typeof header.description === 'string' ? { description: header.description } : {}
          return [name, { ...description, schema: schemaOf(header) }]
        }),
      )
    }
    if (schema !== undefined) {
      const shown = isObject(examples) ? examples : {}
      result.content = Object.fromEntries(
        (types.length > 0 ? types : [JSON_TYPE]).map(type => [
          type,
          { schema, ...(Object.hasOwn(shown, type) ? { example: shown[type] } : {}) },
        ]),
      )
    }
    return result
  }

  private *components(): Generator<void, Json> {
    const { definitions, parameters, responses, securityDefinitions } = this.document
    const components: Json = {}
    if (isObject(definitions)) components.schemas = definitions
    if (isObject(parameters)) {
      // Those that are a body stand in each operation that refers to them.
      const kept: Json = {}
      for (const name of Object.keys(parameters)) {
        const parameter = parameters[name]
        const location = isObject(parameter) ? parameter.in : undefined
        if (location !== 'body' && location !== 'formData') kept[name] = this.parameter(parameter)
        yield
      }
      components.parameters = kept
    }
    if (isObject(responses)) {
      const types = mediaTypes(this.document.produces)
      components.responses = Object.fromEntries(
        Object.keys(responses).map(name => [name, this.response(responses[name], types)]),
      )
    }
    if (isObject(securityDefinitions)) {
      components.securitySchemes = Object.fromEntries(
        Object.keys(securityDefinitions).map(name => [name, securityScheme(securityDefinitions[name])]),
      )
    }
    return components
  }

  /** A parameter, or the one of the document that it refers to. */
  private resolved(entry: unknown): Json {
    if (!isObject(entry)) return {}
    const { $ref } = entry
    if (typeof $ref !== 'string' || !$ref.startsWith('#/parameters/')) return entry
    const name = $ref.slice('#/parameters/'.length).replaceAll('~1', '/').replaceAll('~0', '~')
    const { parameters } = this.document
    const target = isObject(parameters) && Object.hasOwn(parameters, name) ? parameters[name] : undefined
    return isObject(target) ? target : entry
  }

  private pay(values = 1): void {
    this.made += values
    if (this.made > this.mostValues) throw new TooLarge()
  }
}

/** The addresses that host, base path and schemes give; without a host none is certain but the path. */
export function serversOf({ host, basePath, schemes }: Json): { url: string }[] {
  const path = typeof basePath === 'string' ? (basePath === '/' ? '' : basePath.replace(/\/$/, '')) : ''
  if (typeof host !== 'string' || host.trim() === '') return path === '' ? [] : [{ url: path }]
  const known = Array.isArray(schemes) ? schemes.filter(each => each === 'https' || each === 'http') : []
  const chosen = known.length === 0 ? ['https'] : [...new Set(known)].sort().reverse()
  const name = host
    .trim()
    .replace(/^https?:\/\//, '')
    .replace(/\/$/, '')
  return chosen.map(scheme => ({ url: `${scheme}://${name}${path.startsWith('/') || path === '' ? '' : '/'}${path}` }))
}

function mediaTypes(types: unknown): string[] {
  return Array.isArray(types) ? types.filter(each => typeof each === 'string' && each !== '') : []
}

function formBody(forms: readonly Json[], types: readonly string[]): Json {
  const named = forms.filter(each => typeof each.name === 'string')
  const hasFile = named.some(each => each.type === 'file')
  const formTypes = types.filter(each => FORM_TYPES.has(each.split(';', 1)[0]?.trim().toLowerCase() ?? ''))
  const fallback = hasFile ? 'multipart/form-data' : 'application/x-www-form-urlencoded'
  const required = named.filter(each => each.required === true).map(each => each.name)
  const properties = Object.fromEntries(
    named.map(each => {
      const description = typeof each.description === 'string' ? { description: each.description } : {}
      return [each.name as string, { ...schemaOf(each), ...description }]
    }),
  )
  const schema = { type: 'object', properties, ...(required.length > 0 ? { required } : {}) }
  const content = Object.fromEntries((formTypes.length > 0 ? formTypes : [fallback]).map(type => [type, { schema }]))
  return { content, ...(required.length > 0 ? { required: true } : {}) }
}

function schemaOf(holder: Json): Json {
  const schema: Json = {}
  for (const key of SCHEMA_KEYS) if (holder[key] !== undefined) schema[key] = holder[key]
  rememberNumbers(holder, schema)
  return schema
}

function styleOf(collectionFormat: unknown, location: string): Json {
  if (location !== 'query') return {}
  if (collectionFormat === 'multi') return { explode: true }
  if (collectionFormat === 'ssv') return { style: 'spaceDelimited', explode: false }
  if (collectionFormat === 'pipes') return { style: 'pipeDelimited', explode: false }
  return { style: 'form', explode: false }
}

function securityScheme(scheme: unknown): unknown {
  if (!isObject(scheme)) return scheme
  if (scheme.type === 'basic') {
    const { type: _, ...rest } = scheme
    return { ...rest, type: 'http', scheme: 'basic' }
  }
  if (scheme.type !== 'oauth2') return scheme
  const { flow, authorizationUrl, tokenUrl, scopes, ...rest } = scheme
  const name = OAUTH_FLOWS.get(String(flow))
  if (name === undefined) return scheme
  const details: Json = { scopes: isObject(scopes) ? scopes : {} }
  if (authorizationUrl !== undefined) details.authorizationUrl = authorizationUrl
  if (tokenUrl !== undefined) details.tokenUrl = tokenUrl
  return { ...rest, flows: { [name]: details } }
}

/** A place of Swagger 2.0 as OpenAPI 3 has it. */
export function movedReference(ref: string): string {
  for (const [from, to] of MOVED_SECTIONS) if (ref.startsWith(from)) return to + ref.slice(from.length)
  return ref
}

/**
 * A copy in which references lead to where things stand now and schemas speak 3.0: files are binary strings, a discriminator is an
 * object, `x-nullable` is `nullable`. Without recursion; the input nests no deeper than the budget walk allows.
 */
function* withModernSchemas(document: Json, mostValues: number): Generator<void, unknown> {
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
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { from, to, isMap } = next
    for (const key of Array.isArray(from) ? from.keys() : Object.keys(from)) {
      if (++values % STEP_MEMBERS === 0) yield
      if (values > mostValues) throw new TooLarge()
      const value = (from as Record<string | number, unknown>)[key]
      // In a map the keys are names and mean nothing.
      if (isMap) (to as Json)[key] = copy(value, false)
      else if (key === '$ref' && typeof value === 'string') (to as Json).$ref = movedReference(value)
      else if (key === 'example' || key === 'examples' || key === 'default' || key === 'enum') (to as Json)[key] = value
      else if (key === 'discriminator' && typeof value === 'string')
        (to as Json).discriminator = { propertyName: value }
      else if (key === 'x-nullable' && typeof value === 'boolean') (to as Json).nullable = value
      else (to as Record<string | number, unknown>)[key] = copy(value, MAP_KEYS.has(String(key)))
    }
    if (!isMap && (to as Json).type === 'file') Object.assign(to, { type: 'string', format: 'binary' })
  }
  return root
}
