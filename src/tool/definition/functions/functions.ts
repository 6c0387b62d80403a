import { type CheckOptions, DEFAULT_AT, inspection, type Readings } from '../check/check.js'
import type { Fault } from '../check/findings.js'
import { type BodyInput, isSupplied, type ParameterInput } from '../check/inputs.js'
import type { OperationInput } from '../check/operations.js'
import { isDangling, isObject } from '../check/references.js'
import { type ConvertedSchema, comparable, type Definition, type JsonSchema, SchemaConverter } from './json-schema.js'
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

/** The definition has faults, so that no functions can be made of it. */
export class DefinitionRefused extends Error {
  constructor(readonly faults: Fault[]) {
    super('the definition has faults')
  }
}

const BODY_PROPERTY = 'requestBody'
/** Each function is complete in itself, so a few shared schemas could make gigabytes. */
const MOST_CHARACTERS = 32 * 1024 * 1024

/**
 * The functions that a model is given, one for each operation, in document order; each is complete in itself.
 *
 * Every parameter is a property of its own name; of two that differ only in place, the second is `query_id` and so on. What a
 * custom header supplies, and what cannot be sent, is left out. The JSON body is the one property `requestBody`.
 * Throws `DefinitionRefused` with the faults of `checkDefinition`, or with `functions_too_large`.
 */
export function toFunctions(definition: unknown, options: CheckOptions = {}): FunctionView[] {
  const { check, operations, readings } = inspection(definition, options)
  if (!check.ok) throw new DefinitionRefused(check.faults)
  if (readings === undefined) return []
  const schemas = new InputSchemas(readings)
  const headerNames = new Set(options.headerNames?.map(name => name.toLowerCase()))
  const names = functionNames(operations.map(each => each.record))
  let characters = 0
  return operations.map((operation, i) => {
    const { name: operationId, summary, spec, method, path } = operation.record
    const parameters = schemas.parametersOf(operation, headerNames)
    characters += comparable(parameters).length
    if (characters > MOST_CHARACTERS) {
      const msg = `the functions of this definition together hold more than ${MOST_CHARACTERS} characters: divide it into several`
      throw new DefinitionRefused([{ loc: [...(options.at ?? DEFAULT_AT)], msg, type: 'functions_too_large' }])
    }
    const name = names[i] as string // one for each operation
    return { name, operationId, description: describe(summary, spec.description), parameters, method, path }
  })
}

/** A parameter or the body of an operation. */
export interface Input extends ConvertedSchema, ParameterInput {
  readonly isRequired: boolean
}

/** Makes the argument schemas of the operations of one document; what operations share is converted once. */
export class InputSchemas {
  readonly converter: SchemaConverter
  private readonly made = new Map<object, ConvertedSchema>()

  constructor(private readonly readings: Readings) {
    this.converter = new SchemaConverter(readings)
  }

  /** What an operation takes in; the body is the last, in `body`. */
  inputsOf({ parameters, body }: OperationInput): Input[] {
    const inputs = parameters.map(each => {
      const isRequired = each.in === 'path' || each.value.required === true
      return { ...each, ...this.parameterSchema(each), isRequired }
    })
    if (body === undefined) return inputs
    const { value, place } = body
    const named = { name: BODY_PROPERTY, in: 'body', key: 'body', value, place, isSendable: true }
    return [...inputs, { ...named, ...this.bodySchema(body), isRequired: value.required === true }]
  }

  /** The arguments of one operation. */
  parametersOf(operation: OperationInput, headerNames: ReadonlySet<string>): Record<string, unknown> {
    const properties = new Map<string, JsonSchema>()
    const required: string[] = []
    const uses = new Set<Definition>()
    for (const input of this.inputsOf(operation)) {
      if (isSupplied(input, headerNames) || !input.isSendable) continue
      let name = properties.has(input.name) ? `${input.in}_${input.name}` : input.name
      while (properties.has(name)) name = `${name}_`
      properties.set(name, input.schema)
      if (input.isRequired) required.push(name)
      for (const use of input.uses) uses.add(use)
    }
    const $defs: Record<string, JsonSchema> = {}
    for (const { name, converted } of uses) {
      if (converted === undefined) continue
      $defs[name] = converted.schema
      for (const use of converted.uses) uses.add(use)
    }
    return {
      type: 'object',
      properties: Object.fromEntries(properties),
      ...(required.length > 0 ? { required } : {}),
      ...(Object.keys($defs).length > 0 ? { $defs } : {}),
    }
  }

  private parameterSchema({ value }: ParameterInput): ConvertedSchema {
    const known = this.made.get(value)
    if (known !== undefined) return known
    const { schema, uses } = this.converter.convert(this.schemaOf(value))
    const own: Record<string, unknown> = {}
    if (typeof value.description === 'string' && value.description !== '') own.description = value.description
    if (value.deprecated === true) own.deprecated = true
    const examples = examplesOf(value)
    if (examples.length > 0) own.examples = examples
    const made = { schema: { ...asObject(schema), ...own }, uses }
    this.made.set(value, made)
    return made
  }

  private bodySchema(body: BodyInput): ConvertedSchema {
    const { value, media } = body
    const known = this.made.get(body)
    if (known !== undefined) return known
    const items = media.itemSchema === undefined ? undefined : { type: 'array', items: media.itemSchema }
    const { schema, uses } = this.converter.convert(media.schema ?? items)
    const described = { ...asObject(schema) }
    if (typeof value.description === 'string') described.description ??= value.description
    const made = { schema: described, uses }
    this.made.set(body, made)
    return made
  }

  /** A parameter's schema stands in `schema`, or in the only media type of `content`. */
  private schemaOf({ schema, content }: Record<string, unknown>): unknown {
    if (schema !== undefined && schema !== null) return schema
    const media = isObject(content) ? Object.values(content)[0] : undefined
    if (!isObject(media)) return undefined
    if (typeof media.$ref !== 'string') return media.schema
    const target = this.readings.references.find(media.$ref)
    return !isDangling(target) && isObject(target.value) ? target.value.schema : undefined
  }
}

function asObject(schema: JsonSchema): Record<string, unknown> {
  if (typeof schema === 'object') return schema
  return schema ? {} : { not: {} }
}

function examplesOf({ example, examples }: Record<string, unknown>): unknown[] {
  if (example !== undefined) return [example]
  const listed = isObject(examples) ? Object.values(examples) : []
  return listed.flatMap(each => (isObject(each) && 'value' in each ? [each.value] : []))
}

function describe(summary: string, description: unknown): string {
  return typeof description === 'string' && description !== '' && description !== summary
    ? `${summary}\n\n${description}`
    : summary
}
