import { FORM } from './check/inputs.js'
import { isObject, References, type Schema } from './check/references.js'

const METHODS = new Set('get put post delete options head patch'.split(' '))
const JSON_TYPE = 'application/json'
const MULTIPART = 'multipart/form-data'
const ANY_TYPE = '*/*'
const SECTIONS = new Map(Object.entries({ definitions: 'schemas', parameters: 'parameters', responses: 'responses' }))
/** Keys of parameters, form fields and headers in Swagger 2.0. OpenAPI 3 has these keys in `schema`. */
const SCHEMA_MEMBERS = new Set(
  `type format items default enum maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems
  minItems uniqueItems multipleOf x-nullable`.split(/\s+/),
)
const SCHEMAS = new Set('items additionalProperties not allOf anyOf oneOf'.split(' '))
/** The OpenAPI 3 style for each `collectionFormat` of a query parameter or form field. */
const STYLES = new Map<unknown, Schema>([
  ['multi', {}],
  ['csv', { explode: false }],
  ['ssv', { style: 'spaceDelimited', explode: false }],
  ['pipes', { style: 'pipeDelimited', explode: false }],
])
const FLOWS = new Map(Object.entries({ application: 'clientCredentials', accessCode: 'authorizationCode' }))
/**
 * Converts a Swagger 2.0 document to OpenAPI 3.0. Keeps parts that cannot be converted, so that the check reports them. `scheme` is used if the
 * document has a host but no schemes. Returns undefined if the schemas that are copied for operations and media types exceed `mostCopied` characters.
 */
export function convertSwagger(given: Schema, scheme: string, mostCopied: number): Schema | undefined {
  return new Conversion(given, scheme, mostCopied).document()
}

class Conversion {
  /** Schemas inside `paths` that are the targets of references. These schemas become components. */
  private readonly moved: Schema = {}
  private readonly references: References
  private copied = 0

  constructor(
    private readonly given: Schema,
    private readonly scheme: string,
    private readonly mostCopied: number,
  ) {
    this.references = new References(given)
  }

  document(): Schema | undefined {
    const { swagger: _, info, host, basePath, schemes, consumes, produces, paths, ...others } = this.given
    const { definitions, parameters, responses, securityDefinitions, ...rest } = others
    const items = mapped(paths, (item, path) => (path.startsWith('x-') ? item : this.pathItem(item)))
    const shared = Object.entries(Object(parameters)).filter(([, each]) => !isBody(each))
    const components: Schema = {
      schemas: mapped(definitions, (each, name) => this.schema(each, name)),
      parameters: shared.length > 0 ? mapped(Object.fromEntries(shared), each => this.parameter(each)) : undefined,
      responses: mapped(responses, each => this.response(each, produces)),
      securitySchemes: mapped(securityDefinitions, securityScheme),
    }
    if (Object.keys(this.moved).length > 0) components.schemas = { ...this.moved, ...Object(components.schemas) }
    if (this.copied > this.mostCopied) return undefined
    const isEmpty = Object.values(components).every(each => each === undefined)
    const document = { openapi: '3.0.4', info, servers: this.serversOf(schemes), ...rest, paths: items }
    // The copy has no undefined properties, and no object occurs in it twice.
    return JSON.parse(JSON.stringify(isEmpty ? document : { ...document, components }))
  }

  /** Returns one server for each scheme, https first. Returns undefined if the document has neither a host nor a base path. */
  private serversOf(schemes: unknown): { url: string }[] | undefined {
    const { host, basePath } = this.given
    const path = typeof basePath === 'string' ? basePath.replace(/^(?!\/|$)/, '/').replace(/\/$/, '') : ''
    if (typeof host !== 'string' || host === '') return path === '' ? undefined : [{ url: path }]
    const end = host.replace(/\/$/, '') + path
    if (host.includes('://')) return [{ url: end }]
    const named = Array.isArray(schemes) && schemes.length > 0 ? schemes.map(textOf) : [this.scheme]
    const order = ['https', 'http', ...named].filter(each => named.includes(each))
    return [...new Set(order)].map(each => ({ url: `${each}://${end}` }))
  }

  private pathItem(item: unknown): unknown {
    const bodies = this.bodiesOf(item)
    return mapped(item, (value, key) => {
      if (key === 'parameters') return this.parametersOf(value)
      return METHODS.has(key.toLowerCase()) && isObject(value) ? this.operation(value, bodies) : value
    })
  }

  private operation(operation: Schema, shared: readonly Schema[]): Schema {
    const { consumes = this.given.consumes, produces = this.given.produces, schemes, ...others } = operation
    const own = this.bodiesOf(operation)
    const bodies = own.some(each => each.in === 'body') ? own : [...shared, ...own]
    return {
      ...others,
      parameters: this.parametersOf(operation.parameters),
      requestBody: this.requestBody(bodies, typesOf(consumes)) ?? others.requestBody,
      responses: mapped(operation.responses, (each, code) =>
        code.startsWith('x-') ? each : this.response(each, produces),
      ),
      servers: schemes === undefined ? others.servers : this.serversOf(schemes),
    }
  }

  private bodiesOf(holder: unknown): Schema[] {
    const { parameters } = Object(holder)
    return (Array.isArray(parameters) ? parameters : []).map(each => this.references.end(each)).filter(isBody)
  }

  private parametersOf(list: unknown): unknown {
    if (!Array.isArray(list)) return list
    const kept = list.filter(each => !isBody(this.references.end(each)))
    return kept.length === 0 ? undefined : kept.map(each => this.parameter(each))
  }

  private parameter(given: unknown): unknown {
    if (!isObject(given)) return given
    const { $ref } = given
    if (typeof $ref === 'string' && !$ref.startsWith('#/paths/')) return { ...given, $ref: this.reference($ref) }
    const entry = $ref === undefined ? given : this.references.end(given)
    if (!isObject(entry)) return given
    if (entry !== given) this.copied += JSON.stringify(entry).length
    const { collectionFormat, ...members } = entry
    if (members.schema !== undefined) return { ...entry, schema: this.schema(members.schema) }
    const others = Object.entries(members).filter(([key]) => !SCHEMA_MEMBERS.has(key))
    return { ...Object.fromEntries(others), schema: this.schemaIn(members), ...styleOf(entry) }
  }

  private schemaIn(members: Schema): unknown {
    const own = Object.entries(members).filter(([key]) => SCHEMA_MEMBERS.has(key))
    return this.schema(Object.fromEntries(own))
  }

  private requestBody(bodies: readonly Schema[], types: readonly string[]): Schema | undefined {
    const body = bodies.find(each => each.in === 'body')
    if (body !== undefined) {
      const { name: _, in: __, schema, ...others } = body
      return { ...others, content: this.content(types, { schema: this.schema(schema) }) }
    }
    if (bodies.length === 0) return undefined
    const properties = new Map<string, unknown>()
    const encoded = new Map<string, unknown>()
    for (const field of bodies) {
      const { name, in: _, required: __, collectionFormat: ___, ...members } = field
      const { collectionFormat, ...style } = styleOf(field)
      properties.set(textOf(name), { ...members, ...Object(this.schemaIn(members)), collectionFormat })
      if (Object.keys(style).length > 0) encoded.set(textOf(name), style)
    }
    const required = bodies.filter(each => each.required === true).map(each => each.name)
    const schema = {
      type: 'object',
      properties: Object.fromEntries(properties),
      required: required.length > 0 ? required : undefined,
    }
    const forms = types.filter(type => type === FORM || type === MULTIPART)
    const usual = bodies.some(({ type }) => type === 'file') ? MULTIPART : FORM
    const media = { schema, encoding: encoded.size > 0 ? Object.fromEntries(encoded) : undefined }
    return {
      required: required.length > 0 || undefined,
      content: this.content(forms.length > 0 ? forms : [usual], media),
    }
  }

  private response(response: unknown, produces: unknown): unknown {
    if (!isObject(response)) return response
    const { $ref, schema, headers, examples, ...others } = response
    if ($ref !== undefined) return { ...response, $ref: this.reference($ref) }
    const media = schema === undefined ? {} : this.content(typesOf(produces), { schema: this.schema(schema) })
    const shown = Object.entries(Object(examples)).map(([type, example]) => [type, { ...Object(media[type]), example }])
    const content = { ...media, ...Object.fromEntries(shown) }
    return {
      ...others,
      headers: mapped(headers, each => this.parameter(each)),
      content: Object.keys(content).length > 0 ? content : others.content,
    }
  }

  private content(types: readonly string[], media: Schema): Schema {
    if (this.copied > this.mostCopied) return {}
    this.copied += types.join().length + types.length * JSON.stringify(media).length
    return Object.fromEntries(types.map(type => [type, media]))
  }

  /** Converts a schema. `name` is the schema's key if the schema is in `definitions`. */
  private schema(given: unknown, name?: string): unknown {
    if (Array.isArray(given)) return given.map(each => this.schema(each))
    const schema = mapped(given, (value, key) => {
      if (key === '$ref') return this.reference(value)
      if (key === 'properties') return mapped(value, each => this.schema(each))
      if (key === 'discriminator' && typeof value === 'string') return discriminator(value, given as Schema, name)
      return SCHEMAS.has(key) ? this.schema(value) : value
    })
    if (!isObject(schema)) return schema
    const { 'x-nullable': nullable, ...others } = schema
    const file = others.type === 'file' ? { type: 'string', format: 'binary' } : {}
    return { ...others, ...file, nullable }
  }

  /** Converts a reference, so that it points to the same object in the converted document. */
  private reference(ref: unknown): unknown {
    const [, section = '', rest] = /^#\/([^/]+)(.*)$/s.exec(textOf(ref)) ?? []
    const to = SECTIONS.get(section)
    if (to !== undefined) return `#/components/${to}${rest}`
    const target = section === 'paths' ? this.references.find(ref) : undefined
    if (!isObject(target)) return ref
    const name = textOf(ref)
      .slice('#/'.length)
      .replace(/[^A-Za-z0-9]/g, '_')
    if (!Object.hasOwn(this.moved, name)) {
      this.moved[name] = {} // ends the recursion for a schema that contains itself
      this.moved[name] = this.schema(target)
    }
    return `#/components/schemas/${name}`
  }
}

function mapped(value: unknown, convert: (each: unknown, key: string) => unknown): unknown {
  if (!isObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, convert(each, key)]))
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function isBody(entry: unknown): entry is Schema {
  return isObject(entry) && (entry.in === 'body' || entry.in === 'formData')
}

/** Returns the media types in a list. `ANY_TYPE` and an empty list become JSON. */
function typesOf(types: unknown): string[] {
  const named = (Array.isArray(types) ? types : []).filter(each => typeof each === 'string')
  return named.length === 0 ? [JSON_TYPE] : [...new Set(named.map(each => (each === ANY_TYPE ? JSON_TYPE : each)))]
}

/** Returns the OpenAPI 3 style of a parameter. Keeps a `collectionFormat` that has no such style. */
function styleOf({ type, in: location, collectionFormat }: Schema): Schema {
  const isForm = location === 'query' || location === 'formData'
  const style = isForm ? STYLES.get(collectionFormat ?? 'csv') : (collectionFormat ?? 'csv') === 'csv' ? {} : undefined
  if (type !== 'array') return collectionFormat === undefined ? {} : { collectionFormat }
  return style ?? { collectionFormat }
}

/** Converts a discriminator. In Swagger 2.0, its values are the names of the schema and of the subtypes. */
function discriminator(propertyName: string, schema: Schema, name: string | undefined): Schema {
  const listed = Object(Object(schema.properties)[propertyName]).enum
  const isOne = name !== undefined && (!Array.isArray(listed) || listed.includes(name))
  const target = `#/components/schemas/${name?.replaceAll('~', '~0').replaceAll('/', '~1')}`
  return { propertyName, mapping: isOne ? { [name]: target } : undefined }
}

function securityScheme(scheme: unknown): unknown {
  if (!isObject(scheme)) return scheme
  const { type, flow, authorizationUrl, tokenUrl, scopes, ...others } = scheme
  if (type === 'basic') return { ...others, type: 'http', scheme: 'basic' }
  if (type !== 'oauth2') return scheme
  return {
    ...others,
    type,
    flows: { [FLOWS.get(textOf(flow)) ?? textOf(flow)]: { authorizationUrl, tokenUrl, scopes } },
  }
}
