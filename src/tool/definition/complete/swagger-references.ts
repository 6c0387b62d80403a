import { quote } from '../check/findings.js'
import { isObject } from '../check/references.js'
import { referenceTo, stepsOf, valueAt } from './pointers.js'
import { SCHEMA_KEYS } from './swagger-parts.js'

type Json = Record<string, unknown>

/** Why a document cannot be converted, as a fault says it. */
export class NotConvertible extends Error {
  constructor(
    readonly type: 'definition_too_large' | 'ref_unresolved',
    message: string,
  ) {
    super(message)
  }
}

export const JSON_TYPE = 'application/json'
export const METHODS = new Set(['get', 'put', 'post', 'delete', 'options', 'head', 'patch'])
const MOVED_SECTIONS: readonly (readonly [string, string])[] = [
  ['#/definitions/', '#/components/schemas/'],
  ['#/parameters/', '#/components/parameters/'],
  ['#/responses/', '#/components/responses/'],
]
const REFERENCE_HOPS = 8

/** The parameters of a Swagger 2.0 document, as its references mean them. */
export class SwaggerParameters {
  /** By the reference: thousands may go on by one long one. */
  private readonly targets = new Map<string, unknown>()

  constructor(private readonly document: Json) {}

  /** A parameter, or the one that it refers to. */
  resolved(entry: unknown): Json {
    let at = entry
    for (let hops = 0; isObject(at) && typeof at.$ref === 'string' && hops < REFERENCE_HOPS; hops++)
      at = this.targetOf(at.$ref)
    return isObject(at) ? at : {}
  }

  private targetOf(ref: string): unknown {
    if (!this.targets.has(ref)) this.targets.set(ref, valueAt(this.document, stepsOf(ref)))
    return this.targets.get(ref)
  }

  /** True for a parameter that becomes a body. */
  isBody(entry: unknown): boolean {
    const { in: location } = this.resolved(entry)
    return location === 'body' || location === 'formData'
  }
}

/** Where the references of a Swagger 2.0 document lead once it is OpenAPI 3. `typesOf` answers the media types of a list. */
export class MovedReferences {
  private readonly movedIndexes = new WeakMap<object, number[]>()

  constructor(
    private readonly document: Json,
    private readonly parameters: SwaggerParameters,
    private readonly typesOf: (types: unknown) => string[],
  ) {}

  /** A reference to where it leads now. */
  moved(ref: string): string {
    if (!ref.startsWith('#/')) return ref
    const steps = stepsOf(ref)
    const to = this.movedSteps(steps)
    if (to !== undefined) {
      // As it is written, where only its beginning changes.
      const plain = movedReference(ref)
      return stepsOf(plain).join('/') === to.join('/') ? plain : referenceTo(to)
    }
    // One that led nowhere before is said to by the check.
    if (valueAt(this.document, steps) === undefined) return ref
    const msg = `the reference ${quote(ref)} leads to what has no such place in OpenAPI 3: put it under "definitions" and refer to it there`
    throw new NotConvertible('ref_unresolved', msg)
  }

  /** The place in the result of what stands at a place of the document; undefined where it has none. */
  private movedSteps(steps: readonly string[]): string[] | undefined {
    const [section = '', name = '', third = '', fourth = ''] = steps
    const { document } = this
    const under = (place: readonly string[], rest: readonly string[] | undefined) => rest && [...place, ...rest]
    if (section === 'definitions') return ['components', 'schemas', ...steps.slice(1)]
    if (section === 'parameters')
      return under(
        ['components', 'parameters', name],
        this.inParameter(valueAt(document, [section, name]), steps.slice(2)),
      )
    if (section === 'responses')
      return under(['components', 'responses', name], this.inResponse(undefined, steps.slice(2)))
    if (section !== 'paths') return [...steps]
    if (third === 'parameters') return this.inParameters(steps, 3, undefined)
    if (!METHODS.has(third.toLowerCase())) return [...steps]
    const operation = valueAt(document, [section, name, third])
    if (fourth === 'parameters') return this.inParameters(steps, 4, isObject(operation) ? operation : undefined)
    if (fourth !== 'responses' || steps.length < 6) return [...steps]
    return under(
      steps.slice(0, 5),
      this.inResponse(isObject(operation) ? operation.produces : undefined, steps.slice(5)),
    )
  }

  /** A place in a list of parameters whose index is step number `at`; the body among them stands beside the list. */
  private inParameters(steps: readonly string[], at: number, operation: Json | undefined): string[] | undefined {
    const list = valueAt(this.document, steps.slice(0, at))
    const index = Number(steps[at])
    const entry = Array.isArray(list) ? list[index] : undefined
    if (!Array.isArray(list) || entry === undefined) return [...steps]
    const rest = steps.slice(at + 1)
    if (this.parameters.isBody(entry)) {
      if (operation === undefined || !isObject(entry) || entry.in !== 'body' || rest[0] !== 'schema') return undefined
      const [type = JSON_TYPE] = this.typesOf(operation.consumes ?? this.document.consumes)
      return [...steps.slice(0, at - 1), 'requestBody', 'content', type, ...rest]
    }
    const inside = this.inParameter(entry, rest)
    return inside && [...steps.slice(0, at), String(this.indexesOf(list)[index]), ...inside]
  }

  /** Where the entries of a list stand once the bodies are taken out. */
  private indexesOf(list: readonly unknown[]): number[] {
    let indexes = this.movedIndexes.get(list)
    if (indexes === undefined) {
      let kept = 0
      indexes = list.map(entry => (this.parameters.isBody(entry) ? -1 : kept++))
      this.movedIndexes.set(list, indexes)
    }
    return indexes
  }

  private inParameter(parameter: unknown, rest: readonly string[]): string[] | undefined {
    if (this.parameters.isBody(parameter)) return undefined
    return SCHEMA_KEYS.includes(rest[0] ?? '') ? ['schema', ...rest] : [...rest]
  }

  private inResponse(produces: unknown, rest: readonly string[]): string[] | undefined {
    const [part, name = '', key = '', ...others] = rest
    if (part === 'examples') return undefined
    if (part === 'schema') return ['content', this.typesOf(produces ?? this.document.produces)[0] ?? JSON_TYPE, ...rest]
    if (part === 'headers' && SCHEMA_KEYS.includes(key)) return [part, name, 'schema', key, ...others]
    return [...rest]
  }
}

/** A place of Swagger 2.0 as OpenAPI 3 has it. */
export function movedReference(ref: string): string {
  for (const [from, to] of MOVED_SECTIONS) if (ref.startsWith(from)) return to + ref.slice(from.length)
  return ref
}
