import { rememberNumbers } from '../../../schema/exact-json.js'
import { isObject } from '../check/references.js'

/* How single parts of a Swagger 2.0 document are said in OpenAPI 3. */

type Json = Record<string, unknown>

const FORM_TYPES = new Set(['application/x-www-form-urlencoded', 'multipart/form-data'])
/** Members of a parameter or header that are its schema in OpenAPI 3. */
export const SCHEMA_KEYS = [
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
const OAUTH_FLOWS = new Map([
  ['implicit', 'implicit'],
  ['password', 'password'],
  ['application', 'clientCredentials'],
  ['accessCode', 'authorizationCode'],
])

/**
 * The addresses that host, base path and schemes give; without a host none is certain but the path, without schemes `scheme` is
 * taken, and none where other schemes than http and https are named.
 */
export function serversOf({ host, basePath, schemes }: Json, scheme = 'https'): { url: string }[] {
  const path = typeof basePath === 'string' ? (basePath === '/' ? '' : basePath.replace(/\/$/, '')) : ''
  if (typeof host !== 'string' || host.trim() === '') return path === '' ? [] : [{ url: path }]
  const named = Array.isArray(schemes) && schemes.length > 0 ? schemes : [scheme]
  const chosen = [...new Set(named.filter(each => each === 'https' || each === 'http'))].sort().reverse()
  const name = host
    .trim()
    .replace(/^https?:\/\//, '')
    .replace(/\/$/, '')
  return chosen.map(each => ({ url: `${each}://${name}${path.startsWith('/') || path === '' ? '' : '/'}${path}` }))
}

export function formBody(forms: readonly Json[], types: readonly string[]): Json {
  const named = forms.filter(each => typeof each.name === 'string')
  const hasFile = named.some(each => each.type === 'file')
  const formTypes = types.filter(each => FORM_TYPES.has(each.split(';', 1)[0]?.trim().toLowerCase() ?? ''))
  const fallback = hasFile ? 'multipart/form-data' : 'application/x-www-form-urlencoded'
  const required = named.filter(each => each.required === true).map(each => each.name)
  const fields = new Map(named.map(each => [each.name as string, each]))
  const properties = mapOf([...fields.keys()], name => {
    const each = fields.get(name) as Json // one for each name
    const description = typeof each.description === 'string' ? { description: each.description } : {}
    return { ...schemaOf(each), ...description }
  })
  const schema = { type: 'object', properties, ...(required.length > 0 ? { required } : {}) }
  const content = mapOf(formTypes.length > 0 ? formTypes : [fallback], () => ({ schema }))
  return { content, ...(required.length > 0 ? { required: true } : {}) }
}

/** What is made for each of some names, by the name. */
export function mapOf(names: readonly string[], make: (name: string) => unknown): Json {
  const result: Json = {}
  for (const name of names) {
    const value = make(name)
    // An assignment to it would set the prototype.
    if (name !== '__proto__') result[name] = value
    else Object.defineProperty(result, name, { value, enumerable: true, configurable: true, writable: true })
  }
  return result
}

export function schemaOf(holder: Json): Json {
  const schema: Json = {}
  for (const key of SCHEMA_KEYS) if (holder[key] !== undefined) schema[key] = holder[key]
  rememberNumbers(holder, schema)
  return schema
}

/** How a list is written, or undefined where OpenAPI 3 cannot say it. */
export function styleOf(collectionFormat: unknown, location: string): Json | undefined {
  const isPlain = collectionFormat === undefined || collectionFormat === 'csv'
  if (location !== 'query') return isPlain ? {} : undefined
  if (collectionFormat === 'multi') return { explode: true }
  if (collectionFormat === 'ssv') return { style: 'spaceDelimited', explode: false }
  if (collectionFormat === 'pipes') return { style: 'pipeDelimited', explode: false }
  return isPlain ? { style: 'form', explode: false } : undefined
}

export function securityScheme(scheme: unknown): unknown {
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
