import { randomUUID } from 'node:crypto'
import { upgradeFromTwoToThree } from '@scalar/openapi-upgrader/2.0-to-3.0'
import { type Fault, type Loc, quote, SENTENCES, show } from '../check/findings.js'
import { misplacedText } from '../check/reader.js'
import { isObject } from '../check/references.js'
import { addressMeant } from '../check/servers.js'
import type { NumberTexts } from './numbers.js'
import { referenceTo, stepsOf, valueAt } from './pointers.js'

type Json = Record<string, unknown>

/** A guess of the conversion, with the path of its result. */
interface ConversionNote {
  path: Loc
  type: string
  msg: string
}

/** Thrown if a document cannot be converted. The path of the fault is that in the Swagger document. */
export class NotConvertible extends Error {
  constructor(readonly fault: Fault) {
    super(fault.msg)
  }
}

const JSON_TYPE = 'application/json'
const METHODS = new Set(['get', 'put', 'post', 'delete', 'options', 'head', 'patch'])
/** Objects under these keys are maps: their keys are names, not keywords. */
const MAP_KEYS = new Set([
  ...'properties patternProperties definitions parameters responses headers securityDefinitions'.split(' '),
])
/** Values under these keys are data, without references or schemas. */
const DATA_KEYS = new Set(['example', 'default', 'enum'])
const PLAIN_FORMATS: unknown[] = ['csv', 'ssv', 'pipes', 'multi']
const REFERENCE_HOPS = 8
/** The fewest characters that a media type adds to the result. */
const MEMBER_CHARACTERS = 16
const FREE_CHARACTERS = 256 * 1024
const CHARACTERS_FOR_EACH = 16
const MOST_CHARACTERS = 32 * 1024 * 1024

/** Returns the most characters that a definition of this length may become: kilobytes that grow to megabytes are an attack. */
export function mostMadeOf(characters: number): number {
  return Math.min(MOST_CHARACTERS, FREE_CHARACTERS + CHARACTERS_FOR_EACH * characters)
}

/**
 * Converts Swagger 2.0 to OpenAPI 3.0 with Scalar's upgrader. First it prepares what the upgrader would lose or misread: it copies shared
 * bodies to each operation, redirects references into operations to a definition, and hides data. Throws `NotConvertible`, also if the
 * result would be far larger than the document. `scheme` is used if the document names none.
 */
export function convertSwagger(
  given: Json,
  { scheme, numbers }: { scheme: string | undefined; numbers: NumberTexts },
): { document: Json; notes: ConversionNote[] } {
  const text = JSON.stringify(given, numbers.replacer)
  const preparation = new Preparation(JSON.parse(text) as Json, mostMadeOf(text.length), scheme)
  const { document, notes } = preparation
  preparation.run()
  let upgraded: Json
  try {
    upgraded = upgradeFromTwoToThree(document) as Json
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    const msg = `the document breaks the rules of Swagger 2.0, so it cannot be converted: ${reason}`
    throw new NotConvertible({ loc: [], msg, type: 'openapi_version_unsupported' })
  }
  const { openapi, info, ...others } = upgraded
  const { servers } = preparation
  const whole = { openapi, info, ...(servers.length > 0 && { servers }), ...others }
  const shown = JSON.stringify(whole, (_, value) => preparation.revealed(value))
  return { document: JSON.parse(shown, numbers.reviver) as Json, notes }
}

/**
 * Returns the server addresses from host, base path and schemes, https first; only the path without a host. Empty if all schemes are other
 * than http and https.
 */
export function serversOf({ host, basePath, schemes }: Json, scheme = 'https'): { url: string }[] {
  const path = typeof basePath === 'string' ? basePath.replace(/\/$/, '') : ''
  if (typeof host !== 'string' || host.trim() === '') return path === '' ? [] : [{ url: path }]
  const named = Array.isArray(schemes) && schemes.length > 0 ? schemes : [scheme]
  const chosen = [...new Set(named.filter(each => each === 'https' || each === 'http'))].sort().reverse()
  const name = (addressMeant(host.trim()) ?? host.trim()).replace(/^https?:\/\//, '')
  const start = `${name.replace(/\/$/, '')}${path.startsWith('/') || path === '' ? '' : '/'}`
  return chosen.map(each => ({ url: `${each}://${start}${path}` }))
}

/** Prepares a copy of a document for the upgrader. */
class Preparation {
  readonly notes: ConversionNote[] = []
  readonly servers: { url: string }[]
  private readonly mark = `hidden-${randomUUID()}:`
  private readonly hidden: unknown[] = []
  private readonly where: Json
  private made = 0

  constructor(
    readonly document: Json,
    private readonly mostCharacters: number,
    private readonly scheme: string | undefined,
  ) {
    const { host, basePath, schemes } = document
    this.where = { host, basePath }
    this.servers = serversOf({ ...this.where, schemes }, scheme)
  }

  run(): void {
    const { document } = this
    document.swagger = '2.0'
    for (const key of ['host', 'basePath', 'schemes', 'consumes', 'produces', 'parameters'])
      refuseReference(document[key], [key])
    if (this.servers.length > 0 && document.schemes === undefined && typeof document.host === 'string') {
      const origin = this.scheme === undefined ? 'https is assumed' : 'that of the server given is taken'
      const msg = `the document names a host without a scheme: ${origin}`
      this.notes.push({ path: ['servers', 0, 'url'], type: 'scheme_assumed', msg })
    }
    this.mapParents()
    this.copyTargets()
    const [consumes, produces] = [typesOf(document.consumes), typesOf(document.produces)]
    for (const key of ['host', 'basePath', 'schemes', 'consumes', 'produces']) delete document[key]
    const { paths } = document
    for (const path of isObject(paths) ? Object.keys(paths) : []) {
      const item = (paths as Json)[path]
      if (isObject(item) && !path.startsWith('x-')) this.prepareItem(item, ['paths', path], consumes, produces)
    }
    for (const [name, each] of entriesOf(document.parameters)) {
      if (isBody(each)) delete (document.parameters as Json)[name]
      else this.prepareParameter(each, ['components', 'parameters', name], ['parameters', name])
    }
    for (const [, each] of entriesOf(document.responses)) this.prepareResponse(each, produces)
    this.hideData(document, false)
  }

  /** Adds mappings: in Swagger 2.0 a discriminator's value is the name of the schema or of a schema that inherits it. */
  private mapParents(): void {
    for (const [name, schema] of entriesOf(this.document.definitions)) {
      const property = isObject(schema) ? schema.discriminator : undefined
      if (!isObject(schema) || typeof property !== 'string') continue
      const vendor = schema['x-ms-discriminator-value'] ?? schema['x-discriminator-value']
      const value = typeof vendor === 'string' ? vendor : name
      const values = valueAt(schema, ['properties', property, 'enum'])
      if (!Array.isArray(values) || values.includes(value))
        schema.discriminator = {
          propertyName: property,
          mapping: { [value]: referenceTo(['components', 'schemas', name]) },
        }
    }
  }

  /** Returns the hidden value for a mark; any other value unchanged. */
  revealed(value: unknown): unknown {
    const isMark = typeof value === 'string' && value.startsWith(this.mark)
    return isMark ? this.hidden[Number(value.slice(this.mark.length))] : value
  }

  /**
   * Copies the targets of references that the conversion moves: inside `paths`, inside shared parameters and responses, and bodies, which
   * each operation has itself in OpenAPI 3.
   */
  private copyTargets(): void {
    const { document } = this
    const entries = new Set<unknown>()
    const holders: Json[] = []
    const copies = new Map<string, string>()
    const lookInto = (value: unknown) =>
      forEachObject(value, each => {
        for (const entry of Array.isArray(each.parameters) ? each.parameters : []) entries.add(entry)
        if (typeof each.$ref === 'string' && /^#\/(?:paths|parameters|responses)\//.test(each.$ref)) holders.push(each)
      })
    const copyOf = (target: Json) => {
      const text = JSON.stringify(target)
      this.pay(text.length)
      const copy = JSON.parse(text) as Json
      lookInto(copy)
      return copy
    }
    lookInto(document)
    for (const holder of holders) {
      const ref = holder.$ref as string // only objects with a text as `$ref` are collected
      const steps = stepsOf(ref)
      const isOfPath = steps[0] === 'paths'
      const isNumbered = isOfPath && steps.length <= 5 && steps.at(-2) === 'parameters'
      const target = isNumbered || entries.has(holder) ? this.resolved(holder) : valueAt(document, steps)
      if (!isObject(target)) continue
      if (entries.has(holder) && (isNumbered || isBody(target))) {
        delete holder.$ref
        Object.assign(holder, copyOf(target))
      } else if (isNumbered) {
        const msg = `the reference ${quote(ref)} has a target that OpenAPI 3 cannot reference: move it to "definitions" and refer to it there`
        throw new NotConvertible({ loc: [], msg, type: 'ref_unresolved' })
      } else if (steps.length > (isOfPath ? 5 : 2) || (isOfPath && steps[2] === 'parameters')) {
        if (!copies.has(ref)) copies.set(ref, this.newDefinition(steps, copyOf(target)))
        holder.$ref = copies.get(ref)
      }
    }
  }

  private newDefinition(steps: readonly string[], copy: Json): string {
    if (!isObject(this.document.definitions)) this.document.definitions = {}
    const definitions = this.document.definitions as Json
    const words = steps.join('_').replace(/[^A-Za-z0-9]+/g, '_')
    let name = words
    for (let i = 2; Object.hasOwn(definitions, name); i++) name = `${words}_${i}`
    definitions[name] = copy
    return `#/definitions/${name}`
  }

  private prepareItem(item: Json, at: Loc, consumes: string[], produces: string[]): void {
    const shared = this.parametersOf(item, at)
    if (item.parameters !== undefined) item.parameters = shared.filter(each => !isBody(each))
    for (const [method, operation] of Object.entries(item)) {
      if (isObject(operation) && METHODS.has(method.toLowerCase()))
        this.prepareOperation(operation, shared.filter(isBody), [...at, method], consumes, produces)
      else if (method !== 'parameters' && typeof operation !== 'string') item[method] = this.hide(operation)
    }
  }

  private prepareOperation(
    operation: Json,
    sharedBodies: readonly Json[],
    at: Loc,
    consumes: string[],
    produces: string[],
  ): void {
    for (const key of ['schemes', 'consumes', 'produces']) refuseReference(operation[key], [...at, key])
    const own = this.parametersOf(operation, at)
    operation.consumes = operation.consumes === undefined ? consumes : typesOf(operation.consumes)
    operation.produces = operation.produces === undefined ? produces : typesOf(operation.produces)
    const bodies = own.filter(isBody)
    const hasBody = bodies.some(each => each.in === 'body')
    bodies.unshift(...sharedBodies.filter(each => !(hasBody && each.in === 'body')))
    if (own.length + bodies.length > 0) operation.parameters = [...own.filter(each => !isBody(each)), ...bodies]
    for (const each of bodies) this.payFor(operation.consumes as string[], each)
    for (const [code, response] of entriesOf(operation.responses)) {
      if (!code.startsWith('x-') && isObject(response)) this.payFor(operation.produces as string[], response.schema)
    }
    if (operation.schemes !== undefined) this.addServers(operation, at)
  }

  /** Gives an operation with its own schemes its own servers. */
  private addServers(operation: Json, at: Loc): void {
    const { schemes } = operation
    delete operation.schemes
    const servers = typeof this.where.host === 'string' ? serversOf({ ...this.where, schemes }, this.scheme) : []
    if (servers.length === 0) {
      const msg = 'the schemes of the operation give no http(s) address: the servers of the document are used'
      this.notes.push({ path: at, type: 'schemes_removed', msg })
    } else if (JSON.stringify(servers) !== JSON.stringify(this.servers)) {
      this.pay(JSON.stringify(servers).length)
      operation.servers = servers
    }
  }

  /** Returns the prepared parameters of a path item or operation, without bodies. */
  private parametersOf(holder: Json, at: Loc): unknown[] {
    const list = holder.parameters ?? []
    refuseReference(list, [...at, 'parameters'])
    if (!Array.isArray(list))
      throw new NotConvertible({ loc: [...at, 'parameters'], msg: SENTENCES.list_type, type: 'list_type' })
    let index = 0
    for (const [i, each] of list.entries())
      if (!isBody(each)) this.prepareParameter(each, [...at, 'parameters', index++], [...at, 'parameters', i])
    return list
  }

  private prepareParameter(entry: unknown, at: Loc, given: Loc): void {
    if (!isObject(entry)) throw new NotConvertible({ loc: given, msg: SENTENCES.dict_type, type: 'dict_type' })
    if (typeof entry.$ref === 'string') return
    for (const key of ['in', 'type', 'collectionFormat']) refuseReference(entry[key], [...given, key])
    if (typeof entry.in !== 'string')
      throw new NotConvertible({ loc: [...given, 'in'], msg: SENTENCES.missing, type: 'missing' })
    const { collectionFormat: format } = entry
    if (entry.type !== 'array' || format === undefined) return
    if (entry.in === 'query' ? PLAIN_FORMATS.includes(format) : format === 'csv') return
    delete entry.collectionFormat
    const msg = `the collectionFormat is ${show(format)}, which OpenAPI 3 does not have for ${quote(entry.in)}: the values are separated by commas`
    this.notes.push({ path: at, type: 'collection_format_replaced', msg })
  }

  /** Gives a response the media types of `produces`, because operations may differ from the document. */
  private prepareResponse(response: unknown, produces: readonly string[]): void {
    if (!isObject(response) || response.schema === undefined) return
    const { schema } = response
    this.payFor(produces, schema)
    delete response.schema
    response.content = Object.fromEntries(produces.map(type => [type, { schema }]))
  }

  /** Returns a parameter, or the target of its reference. */
  private resolved(entry: unknown): unknown {
    let at = entry
    for (let hops = 0; isObject(at) && typeof at.$ref === 'string' && hops < REFERENCE_HOPS; hops++)
      at = valueAt(this.document, stepsOf(at.$ref))
    return at
  }

  /** Hides data that the upgrader would misread as schemas, and converts what it leaves unchanged in schemas. */
  private hideData(holder: Json | unknown[], isMap: boolean): void {
    for (const [key, value] of Object.entries(holder)) {
      const set = (to: unknown) => Object.assign(holder, { [key]: to })
      if (value === null) set(this.hide(value))
      else if (typeof value !== 'object') {
        if (isMap || key === '$ref') continue
        if (key === 'discriminator' && typeof value === 'string') set({ propertyName: value })
        else if (key === 'x-nullable' && typeof value === 'boolean') {
          delete (holder as Json)[key]
          Object.assign(holder, { nullable: value })
        }
      } else if (!isMap && (DATA_KEYS.has(key) || /^x-(?!examples?$)/.test(key))) set(this.hide(value))
      else if (!isMap && key === 'examples' && isObject(value))
        for (const name of Object.keys(value)) value[name] = this.hide(value[name])
      else this.hideData(value as Json, !isMap && !Array.isArray(holder) && MAP_KEYS.has(key))
    }
  }

  private hide(value: unknown): string {
    return `${this.mark}${this.hidden.push(value) - 1}`
  }

  private payFor(types: readonly string[], value: unknown): void {
    const each = MEMBER_CHARACTERS + (JSON.stringify(value)?.length ?? 0)
    for (const type of types) this.pay(type.length + each)
  }

  private pay(characters: number): void {
    this.made += characters
    if (this.made <= this.mostCharacters) return
    const msg = `converted to OpenAPI 3 the definition would hold more than ${this.mostCharacters} characters, as each body is copied to each of its operations and media types: name fewer in "consumes" and "produces", and put large schemas under "definitions"`
    throw new NotConvertible({ loc: [], msg, type: 'definition_too_large' })
  }
}

/** Refuses a part that is a reference, because the conversion would drop it. */
function refuseReference(value: unknown, loc: Loc): void {
  if (!isObject(value) || typeof value.$ref !== 'string') return
  const type = value.$ref.startsWith('#') ? 'ref_not_allowed' : 'ref_external'
  throw new NotConvertible({ loc: [...loc, '$ref'], msg: misplacedText(`"${loc.at(-1)}"`, value.$ref), type })
}

/** Returns the media types of a list; JSON if it names none. */
function typesOf(types: unknown): string[] {
  const named = Array.isArray(types) ? types.filter(each => typeof each === 'string' && each !== '') : []
  return named.length > 0 ? named : [JSON_TYPE]
}

function isBody(entry: unknown): entry is Json {
  return isObject(entry) && (entry.in === 'body' || entry.in === 'formData')
}

function entriesOf(value: unknown): [string, unknown][] {
  return isObject(value) ? Object.entries(value) : []
}

/** Visits every object in a value, without recursion. */
function forEachObject(value: unknown, visit: (object: Json) => void): void {
  const pending = [value]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (typeof at !== 'object' || at === null) continue
    if (isObject(at)) visit(at)
    for (const member of Object.values(at)) if (member !== null && typeof member === 'object') pending.push(member)
  }
}
