import { type CheckOptions, DEFAULT_AT, type Inspection, inspection, type Readings } from '../check/check.js'
import { type Fault, faultOf, type Loc, pathsOf } from '../check/findings.js'
import type { BodyInput, FieldEncoding, ParameterInput } from '../check/inputs.js'
import { OPERATORS, type OperationInput, parametersOf } from '../check/operations.js'
import { isObject, type Schema } from '../check/references.js'
import {
  asObject,
  type ConvertedSchema,
  comparable,
  type Definition,
  type JsonSchema,
  SchemaConverter,
  titled,
} from './json-schema.js'
import { argumentNames, functionNames } from './names.js'

/** The function that a model gets for one operation, and how its calls are sent. */
export interface FunctionView {
  /** Unique in the definition. All model providers accept the name (`^[A-Za-z0-9_-]{1,64}$`). */
  name: string
  operationId: string
  description: string
  /** A JSON Schema (draft 2020-12) of an object with one property for each argument. Referenced schemas are in `$defs`. */
  parameters: Record<string, unknown>
  method: string
  path: string
  /** How each argument is sent, in the order of `parameters`. */
  arguments: ArgumentView[]
  /** Maps the new name of each renamed nested property to its original name. `parameters` has the new names. */
  wire_names?: Record<string, string>
}

export interface ArgumentView {
  argument: string
  in: string
  /** The parameter's original name. Absent for the body. */
  name?: string
  media_type?: string
  /** `style`, `explode` and `allow_reserved` are absent if they have OpenAPI's defaults. The placeholder `{+name}` sets `allow_reserved` to true. */
  style?: string
  explode?: boolean
  allow_reserved?: boolean
  /** The encoding of each form field, by the field's original name. Fields with OpenAPI's default encoding (style `form`, exploded) are omitted. */
  encoding?: Record<string, FieldEncoding>
}

/** No functions can be made from the definition. `faults` has the reasons. */
export class DefinitionRefused extends Error {
  constructor(readonly faults: Fault[]) {
    super('the definition has faults')
  }
}

const BODY_ARGUMENT = 'requestBody'
/** The limit for all functions of a definition together. Each function contains copies of schemas, so functions could reach gigabytes. */
const MOST_CHARACTERS = 32 * 1024 * 1024

/**
 * Returns the functions for a model, one for each operation, in document order. Arguments are named after their parameters (`argumentNames`). If
 * parameters in two locations have the same name, the second argument gets a prefix, for example `query_id`. The body is the argument `requestBody`.
 * Parameters that custom headers supply are omitted. Throws `DefinitionRefused` with the faults of the definition or with `functions_too_large`.
 */
export function toFunctions(definition: unknown, options: CheckOptions = {}): FunctionView[] {
  const inspected = inspection(definition, options)
  if (!inspected.check.ok) throw new DefinitionRefused(inspected.check.faults)
  const functions = functionsOf(inspected)
  if (functions !== undefined) return functions.map(({ operation: _, ...view }) => view)
  throw new DefinitionRefused([faultOf('functions_too_large', [...(options.at ?? DEFAULT_AT)], [MOST_CHARACTERS])])
}

export interface ReadFunction extends FunctionView {
  readonly operation: OperationInput
  readonly loc: Loc
}

/** Returns the functions of all operations that could be read. Returns undefined if the definition cannot be read or the functions are too large. */
export function readableFunctions(definition: unknown, options: CheckOptions): ReadFunction[] | undefined {
  const functions = functionsOf(inspection(definition, options))
  if (functions === undefined) return undefined
  const specs = functions.map(({ operation }) => operation.record.spec)
  const places = pathsOf(definition, specs, options.at ?? DEFAULT_AT)
  return functions.map((each, i) => ({ ...each, loc: places.get(specs[i] ?? {}) ?? [] }))
}

type MadeFunction = Omit<ReadFunction, 'loc'>

function functionsOf({ operations, readings }: Inspection): MadeFunction[] | undefined {
  if (readings === undefined) return undefined
  const schemas = new ArgumentSchemas(readings)
  const names = functionNames(operations.map(each => each.record))
  const functions: MadeFunction[] = []
  let characters = 0
  for (const [i, operation] of operations.entries()) {
    const { name: operationId, summary, spec, method, path } = operation.record
    const more = typeof spec.description === 'string' && spec.description !== summary ? spec.description : ''
    const inputs = schemas.argumentsOf(operation)
    const { parameters, wireNames } = schemas.parametersOf(inputs)
    characters += comparable(parameters).length
    if (characters > MOST_CHARACTERS) return undefined
    functions.push({
      name: names[i] as string, // there is one name for each operation
      operationId,
      description: more === '' ? summary : `${summary}\n\n${more}`,
      parameters,
      method,
      path: sentPath(path, inputs),
      arguments: inputs.map(input => argumentView(input, path)),
      ...(wireNames.size > 0 && { wire_names: Object.fromEntries(wireNames) }),
      operation,
    })
  }
  return functions
}

/** Returns the path with each placeholder named like its parameter, for example `/{name}` instead of `/{+name}`. */
function sentPath(path: string, inputs: readonly Argument[]): string {
  const isName = (name: string) => inputs.some(each => each.in === 'path' && each.name === name)
  return path.replace(/[^{}]+(?=\})/g, name => (isName(name) ? name : name.replace(OPERATORS, '')))
}

function argumentView(given: Argument, path: string): ArgumentView {
  const { argument, in: location, name, mediaType, encoding = {}, value } = given
  const sent = {
    ...(mediaType !== undefined && { media_type: mediaType }),
    ...(Object.keys(encoding).length > 0 && { encoding }),
  }
  if (location === 'body') return { argument, in: location, ...sent }
  const usual = location === 'query' || location === 'cookie' ? 'form' : 'simple'
  const style = typeof value.style === 'string' ? value.style : usual
  const { explode, allowReserved } = value
  return {
    argument,
    in: location,
    name,
    ...sent,
    ...(style !== usual && { style }),
    ...(typeof explode === 'boolean' && explode !== (style === 'form') && { explode }),
    ...((allowReserved === true || (location === 'path' && path.includes(`{+${name}}`))) && { allow_reserved: true }),
  }
}

interface Argument extends ConvertedSchema {
  readonly argument: string
  /** The parameter's location, or `body`. */
  readonly in: string
  readonly name: string
  readonly mediaType: string | undefined
  readonly encoding?: Record<string, FieldEncoding> | undefined
  readonly value: Schema
}

class ArgumentSchemas {
  private readonly converter: SchemaConverter

  constructor(private readonly readings: Readings) {
    this.converter = new SchemaConverter(readings)
  }

  argumentsOf(operation: OperationInput): Argument[] {
    const { body } = operation
    const inputs: Omit<Argument, 'argument'>[] = parametersOf(operation).map(input => ({
      ...input,
      ...this.parameterSchema(input),
      mediaType: isObject(input.value.content) ? Object.keys(input.value.content)[0] : undefined,
    }))
    if (body !== undefined) inputs.push({ ...body, ...this.bodySchema(body), name: BODY_ARGUMENT, in: 'body' })
    const labels = new Set<string>()
    for (const { name, in: location } of inputs) {
      let label = labels.has(name) ? `${location}_${name}` : name
      while (labels.has(label)) label = `${label}_`
      labels.add(label)
    }
    const names = argumentNames([...labels])
    return inputs.map((each, i) => {
      const argument = names[i] as string // there is one name for each label
      return { ...each, argument, schema: titled(each.schema, argument, each.name) }
    })
  }

  /** Combines the arguments into one schema. Also returns the original names of renamed nested properties. */
  parametersOf(inputs: readonly Argument[]): { parameters: Schema; wireNames: Map<string, string> } {
    const uses = new Set<Definition>()
    const wireNames = new Map<string, string>()
    const include = (converted: ConvertedSchema) => {
      for (const use of converted.uses) uses.add(use)
      for (const [name, wire] of converted.renamed) wireNames.set(name, wire)
    }
    inputs.forEach(include)
    const $defs: Record<string, JsonSchema> = {}
    for (const { name, converted } of uses) {
      if (converted === undefined) continue
      $defs[name] = converted.schema
      include(converted)
    }
    const required = inputs.flatMap(({ argument, in: location, value }) =>
      location === 'path' || value.required === true ? [argument] : [],
    )
    const parameters = {
      type: 'object',
      properties: Object.fromEntries(inputs.map(each => [each.argument, each.schema])),
      ...(required.length > 0 && { required }),
      ...(Object.keys($defs).length > 0 && { $defs }),
    }
    return { parameters, wireNames }
  }

  /** Converts a parameter's schema, which is in `schema` or in the media type of `content`. */
  private parameterSchema({ value, description: own }: ParameterInput): ConvertedSchema {
    const description = own ?? value.description
    const [content] = Object.values(isObject(value.content) ? value.content : {})
    const media = this.readings.references.end(content) ?? {}
    return this.described(value.schema ?? media.schema, [value, media], {
      ...(typeof description === 'string' && description !== '' && { description }),
      ...(value.deprecated === true && { deprecated: true }),
    })
  }

  private bodySchema({ value, media, description }: BodyInput): ConvertedSchema {
    const items = media.itemSchema === undefined ? undefined : { type: 'array', items: media.itemSchema }
    const made = this.described(media.schema ?? items, [media])
    const own = description ?? asObject(made.schema).description ?? value.description
    return { ...made, schema: { ...asObject(made.schema), ...(typeof own === 'string' && { description: own }) } }
  }

  /** Converts a schema. Adds `members`, and the examples from the first holder that has any. */
  private described(schema: unknown, holders: readonly Schema[], members: Schema = {}): ConvertedSchema {
    const examples = holders.map(each => this.examplesOf(each)).find(each => each.length > 0)
    const made = this.converter.convert(schema, examples)
    return { ...made, schema: { ...asObject(made.schema), ...members } }
  }

  private examplesOf({ example, examples }: Schema): unknown[] {
    if (example !== undefined) return [example]
    return (isObject(examples) ? Object.values(examples) : []).flatMap(each => {
      const { dataValue, value = dataValue } = this.readings.references.end(each) ?? {}
      return value === undefined ? [] : [value]
    })
  }
}
