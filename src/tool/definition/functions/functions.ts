import { createHash } from 'node:crypto'
import { InvalidRequest } from '../../../errors.js'
import { type CheckOptions, inspect } from '../check/check.js'
import { type BodyInput, isSupplied, type OperationInput, type ParameterInput } from '../check/operations.js'
import { isDangling, isObject, type References } from '../check/references.js'
import { type JsonSchema, SchemaConverter } from './json-schema.js'

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

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8
const BODY_PROPERTY = 'requestBody'

/**
 * The function-calling view of every method of a definition, in document order.
 *
 * - The name is the operationId with every other character than `[A-Za-z0-9_-]` replaced by `_`; over 64 characters it is cut and
 *   ends with a hash of the operationId, which does not change when other operations come or go.
 * - The description is the summary, then the description where it says something else.
 * - Every parameter is a property of its own name: path-level parameters first, those that the operation declares anew (same place
 *   and name) left out, then the operation's own. Path parameters are always required. If two differ only in place, the first
 *   keeps the name and the next is `query_id`, `header_id` and so on. Header and cookie parameters that a custom header supplies
 *   are left out, as are `Accept`, `Content-Type` and `Authorization` and parameters of an unknown place, which cannot be sent.
 * - The JSON body is one property, `requestBody` (as the reference names it), required if the body is. It is not spread among the
 *   parameters: so lists, alternatives and circular schemas are bodies like any other and no name of a body's property can hide
 *   a parameter's. If a parameter is called so, the body becomes `body_requestBody`.
 * - References become `$defs`; circular schemas stay references (see `SchemaConverter`).
 *
 * Throws `InvalidRequest` with the faults of `checkDefinition` if the definition is refused.
 */
export function toFunctions(definition: unknown, options: CheckOptions = {}): FunctionView[] {
  const { check, operations, references } = inspect(definition, options, true)
  if (!check.ok) throw new InvalidRequest(check.faults)
  if (references === undefined) return []
  const schemas = new InputSchemas(references, definition, options.headerNames ?? [])
  const names = new Set<string>()
  return operations.map(operation => {
    const { record } = operation
    const name = functionName(record.name, names)
    names.add(name)
    return {
      name,
      operationId: record.name,
      description: describe(record.summary, record.spec.description),
      parameters: schemas.parametersOf(operation),
      method: record.method,
      path: record.path,
    }
  })
}

/** Makes the argument schemas of the operations of one document. */
export class InputSchemas {
  readonly converter: SchemaConverter
  private readonly headerNames: ReadonlySet<string>

  constructor(
    private readonly references: References,
    definition: unknown,
    headerNames: readonly string[],
  ) {
    const is30 = isObject(definition) && String(definition.openapi).startsWith('3.0')
    this.converter = new SchemaConverter(references, is30)
    this.headerNames = new Set(headerNames.map(name => name.toLowerCase()))
  }

  parametersOf({ parameters, body }: OperationInput): Record<string, unknown> {
    const properties: Record<string, unknown> = {}
    const required: string[] = []
    const uses = new Set<string>()
    const add = (name: string, place: string, schema: unknown, isRequired: boolean) => {
      let key = Object.hasOwn(properties, name) ? `${place}_${name}` : name
      while (Object.hasOwn(properties, key)) key = `${key}_`
      properties[key] = schema
      if (isRequired) required.push(key)
    }
    for (const parameter of parameters) {
      if (!this.isAsked(parameter)) continue
      const isRequired = parameter.in === 'path' || parameter.value.required === true
      add(parameter.name, parameter.in, this.parameterSchema(parameter, uses), isRequired)
    }
    if (body !== undefined) add(BODY_PROPERTY, 'body', this.bodySchema(body, uses), body.value.required === true)
    const $defs = this.converter.closure(uses)
    return {
      type: 'object',
      properties,
      ...(required.length > 0 ? { required } : {}),
      ...(Object.keys($defs).length > 0 ? { $defs } : {}),
    }
  }

  isAsked(parameter: ParameterInput): boolean {
    return !isSupplied(parameter.name, parameter.in, this.headerNames) && parameter.isSendable
  }

  parameterSchema({ value }: ParameterInput, uses: Set<string>): Record<string, unknown> {
    const schema = asObject(this.converter.convert(this.schemaOf(value), uses))
    if (typeof value.description === 'string' && value.description !== '') schema.description = value.description
    if (value.deprecated === true) schema.deprecated = true
    const examples = examplesOf(value)
    if (examples.length > 0) schema.examples = examples
    return schema
  }

  bodySchema({ value, media }: BodyInput, uses: Set<string>): Record<string, unknown> {
    const items = media.itemSchema === undefined ? undefined : { type: 'array', items: media.itemSchema }
    const schema = asObject(this.converter.convert(media.schema ?? items, uses))
    if (typeof value.description === 'string' && schema.description === undefined)
      schema.description = value.description
    return schema
  }

  /** A parameter's schema stands in `schema`, or in the only media type of `content`. */
  private schemaOf(parameter: Record<string, unknown>): unknown {
    if (parameter.schema !== undefined && parameter.schema !== null) return parameter.schema
    if (!isObject(parameter.content)) return undefined
    const [media] = Object.values(parameter.content)
    if (!isObject(media) || typeof media.$ref !== 'string') return isObject(media) ? media.schema : undefined
    const target = this.references.find(media.$ref)
    return !isDangling(target) && isObject(target.value) ? target.value.schema : undefined
  }
}

function asObject(schema: JsonSchema): Record<string, unknown> {
  if (typeof schema === 'object') return schema
  return schema ? {} : { not: {} }
}

function examplesOf(parameter: Record<string, unknown>): unknown[] {
  if (parameter.example !== undefined) return [parameter.example]
  if (!isObject(parameter.examples)) return []
  return Object.values(parameter.examples).flatMap(each => (isObject(each) && 'value' in each ? [each.value] : []))
}

function describe(summary: string, description: unknown): string {
  return typeof description === 'string' && description !== '' && description !== summary
    ? `${summary}\n\n${description}`
    : summary
}

/** The operationId as a name for model providers, unlike every name in `taken`. */
export function functionName(operationId: string, taken: ReadonlySet<string>): string {
  const plain = operationId.slice(0, NAME_CHARACTERS).replace(/[^A-Za-z0-9_-]/g, '_')
  if (operationId.length <= NAME_CHARACTERS && !taken.has(plain)) return plain
  for (let round = 0; ; round++) {
    const salted = round === 0 ? operationId : `${operationId}#${round}`
    const hash = createHash('sha256').update(salted).digest('hex').slice(0, HASH_CHARACTERS)
    const name = `${plain.slice(0, NAME_CHARACTERS - 1 - HASH_CHARACTERS)}_${hash}`
    if (!taken.has(name)) return name
  }
}
