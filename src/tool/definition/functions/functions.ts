import { type Fault, InvalidRequest, type Loc } from '../../../errors.js'
import type { BodyInput } from '../check/bodies.js'
import { type CheckOptions, DEFAULT_AT, inspection, type Readings } from '../check/check.js'
import { DEFAULT_DEFINITION_LIMITS, type DefinitionLimits } from '../check/limits.js'
import type { OperationInput } from '../check/operations.js'
import { isSupplied, type ParameterInput } from '../check/parameters.js'
import { isDangling, isObject, type References } from '../check/references.js'
import {
  type ConvertedSchema,
  type Definition,
  type JsonSchema,
  measure,
  SchemaConverter,
  type Size,
} from './json-schema.js'
import { functionNames } from './names.js'

/** What a language model is given of one method. */
export interface FunctionView {
  /** Valid for the model providers: `^[A-Za-z0-9_-]{1,64}$`, unique among the functions of the definition. */
  name: string
  /** As written in the definition. */
  operationId: string
  description: string
  /** A JSON Schema of draft 2020-12, complete in itself: an object with one property for each argument, and `$defs`. */
  parameters: Record<string, unknown>
  method: string
  path: string
}

const BODY_PROPERTY = 'requestBody'
/** What is around name, description and the members of the parameters in the JSON of a function. */
const ENVELOPE_BYTES = JSON.stringify({
  type: 'function',
  function: { name: '', description: '', parameters: { type: 'object', properties: {}, required: [] } },
}).length

/**
 * The functions that a model is given, one for each operation, in document order; each is complete in itself.
 *
 * Every parameter is a property of its own name; of two that differ only in place, the second is `query_id` and so on. What a custom header
 * supplies, and what cannot be sent, is left out. The JSON body is the one property `requestBody`.
 * Throws `InvalidRequest` with the faults of `checkDefinition`, or with `functions_too_large`.
 */
export function toFunctions(definition: unknown, options: CheckOptions = {}): FunctionView[] {
  const inspected = inspection(definition, options, true)
  if (!inspected.check.ok) throw new InvalidRequest(inspected.check.faults)
  const { operations, readings } = inspected
  if (readings === undefined) return []
  const limits = { ...DEFAULT_DEFINITION_LIMITS, ...options.limits }
  const schemas = new InputSchemas(readings, options.headerNames ?? [])
  const names = functionNames(operations.map(each => each.record))
  const views: FunctionView[] = []
  const size: Size = { values: 0, bytes: 0, otherBytes: 0 }
  for (const [i, operation] of operations.entries()) {
    const { record } = operation
    const name = names[i] as string // one for each operation
    const description = describe(record.summary, record.spec.description)
    size.bytes += name.length + Buffer.byteLength(description)
    size.otherBytes += ENVELOPE_BYTES
    const parameters = schemas.parametersOf(operation, size, limits)
    if (parameters === undefined) throw new InvalidRequest([tooLarge(options.at ?? DEFAULT_AT, limits)])
    views.push({ name, operationId: record.name, description, parameters, method: record.method, path: record.path })
  }
  return views
}

function tooLarge(at: Loc, { functionValues, functionBytes }: DefinitionLimits): Fault {
  const msg =
    `the functions of this definition together hold more than ${functionValues} values or ${functionBytes} bytes: ` +
    'divide it into several definitions, or let fewer operations share its large schemas'
  return { loc: [...at], msg, type: 'functions_too_large' }
}

/** Makes the argument schemas of the operations of one document. */
export class InputSchemas {
  readonly converter: SchemaConverter
  private readonly references: References
  private readonly headerNames: ReadonlySet<string>
  private readonly parameters = new Map<object, ConvertedSchema>()
  private readonly bodies = new Map<object, ConvertedSchema>()

  constructor({ references, subtypes, is30 }: Readings, headerNames: readonly string[]) {
    this.references = references
    this.converter = new SchemaConverter(references, subtypes, is30)
    this.headerNames = new Set(headerNames.map(name => name.toLowerCase()))
  }

  /** The arguments of one operation; adds their size to `size`, and is undefined once that is beyond the limits. */
  parametersOf(
    operation: OperationInput,
    size: Size,
    limits: Pick<DefinitionLimits, 'functionValues' | 'functionBytes'>,
  ): Record<string, unknown> | undefined {
    const { body } = operation
    const properties: Record<string, unknown> = {}
    const required: string[] = []
    const uses = new Set<Definition>()
    const add = (name: string, place: string, schema: ConvertedSchema, isRequired: boolean) => {
      let key = Object.hasOwn(properties, name) ? `${place}_${name}` : name
      while (Object.hasOwn(properties, key)) key = `${key}_`
      setOwn(properties, key, schema.schema)
      addName(size, key, '"":,')
      if (isRequired) {
        required.push(key)
        addName(size, key, '"",')
      }
      for (const use of schema.uses) uses.add(use)
      addSize(size, schema.size)
    }
    const isTooLarge = () => size.values > limits.functionValues || size.bytes > limits.functionBytes
    for (const parameter of operation.parameters) {
      if (!this.isAsked(parameter)) continue
      const isRequired = parameter.in === 'path' || parameter.value.required === true
      add(parameter.name, parameter.in, this.parameterSchema(parameter), isRequired)
      if (isTooLarge()) return undefined
    }
    if (body !== undefined) add(BODY_PROPERTY, 'body', this.bodySchema(body), body.value.required === true)
    const $defs: Record<string, JsonSchema> = {}
    for (const { name, converted } of uses) {
      if (converted === undefined) continue
      if (isTooLarge()) return undefined
      $defs[name] = converted.schema
      addName(size, name, '"":,')
      addSize(size, converted.size)
      for (const use of converted.uses) uses.add(use)
    }
    if (isTooLarge()) return undefined
    return {
      type: 'object',
      properties,
      ...(required.length > 0 ? { required } : {}),
      ...(Object.keys($defs).length > 0 ? { $defs } : {}),
    }
  }

  isAsked(parameter: ParameterInput): boolean {
    return !isSupplied(parameter, this.headerNames) && parameter.isSendable
  }

  /** A parameter that many operations share is the same object each time. */
  parameterSchema({ value }: ParameterInput): ConvertedSchema {
    const known = this.parameters.get(value)
    if (known !== undefined) return known
    const { schema, uses, size } = this.converter.convert(this.schemaOf(value))
    const described = { ...asObject(schema) }
    const own: Record<string, unknown> = {}
    if (typeof value.description === 'string' && value.description !== '') own.description = value.description
    if (value.deprecated === true) own.deprecated = true
    const examples = examplesOf(value)
    if (examples.length > 0) own.examples = examples
    const ownSize = { ...size }
    measure(own, ownSize)
    const made = { schema: Object.assign(described, own), uses, size: ownSize }
    this.parameters.set(value, made)
    return made
  }

  bodySchema(body: BodyInput): ConvertedSchema {
    const { value, media } = body
    const known = this.bodies.get(body)
    if (known !== undefined) return known
    const items = media.itemSchema === undefined ? undefined : { type: 'array', items: media.itemSchema }
    const { schema, uses, size } = this.converter.convert(media.schema ?? items)
    const described = { ...asObject(schema) }
    const ownSize = { ...size }
    if (typeof value.description === 'string' && described.description === undefined) {
      described.description = value.description
      measure({ description: value.description }, ownSize)
    }
    const made = { schema: described, uses, size: ownSize }
    this.bodies.set(body, made)
    return made
  }

  /** A parameter's schema stands in `schema`, or in the only media type of `content`. */
  private schemaOf(parameter: Record<string, unknown>): unknown {
    if (parameter.schema !== undefined && parameter.schema !== null) return parameter.schema
    if (!isObject(parameter.content)) return undefined
    const { content } = parameter
    const media = content[Object.keys(content)[0] ?? '']
    if (!isObject(media) || typeof media.$ref !== 'string') return isObject(media) ? media.schema : undefined
    const target = this.references.find(media.$ref)
    return !isDangling(target) && isObject(target.value) ? target.value.schema : undefined
  }
}

function asObject(schema: JsonSchema): Record<string, unknown> {
  if (typeof schema === 'object') return schema
  return schema ? {} : { not: {} }
}

function examplesOf({ example, examples }: Record<string, unknown>): unknown[] {
  if (example !== undefined) return [example]
  const values: unknown[] = []
  if (!isObject(examples)) return values
  for (const name of Object.keys(examples)) {
    const each = examples[name]
    if (isObject(each) && 'value' in each) values.push(each.value)
  }
  return values
}

function describe(summary: string, description: unknown): string {
  return typeof description === 'string' && description !== '' && description !== summary
    ? `${summary}\n\n${description}`
    : summary
}

/** Sets a property of any name, `__proto__` too, which an assignment would take for the prototype. */
function setOwn(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== '__proto__') object[key] = value
  else Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true })
}

function addSize(size: Size, more: Size): void {
  size.values += more.values
  size.bytes += more.bytes
  size.otherBytes += more.otherBytes
}

function addName(size: Size, name: string, around: string): void {
  size.bytes += Buffer.byteLength(name)
  size.otherBytes += around.length
}
