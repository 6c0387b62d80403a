import type { Findings } from './findings.js'
import { isObject, type Schema } from './references.js'

export const TYPES = new Set<unknown>(['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'])
const isFlag = (value: unknown) => typeof value === 'boolean'
const isText = (value: unknown) => typeof value === 'string'

/** The possible forms of a key's value. A value in a wrong form is ignored. `null` counts as absent. */
const FORMS = {
  any: ['', () => true],
  text: ['a string', isText],
  flag: ['true or false', isFlag],
  number: ['a number', Number.isFinite],
  bound: ['a number or a boolean', (value: unknown) => Number.isFinite(value) || isFlag(value)],
  divisor: ['a number above 0', (value: unknown) => Number.isFinite(value) && Number(value) > 0],
  count: ['an integer of at least 0', (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0],
  values: ['a list with at least one value', (value: unknown) => Array.isArray(value) && value.length > 0],
  names: ['a list of strings', (value: unknown) => Array.isArray(value) && value.every(isText)],
  type: [
    'string, number, integer, boolean, array, object or null, or a list of these',
    (value: unknown) => (Array.isArray(value) ? value.every(each => TYPES.has(each)) : TYPES.has(value)),
  ],
  map: ['an object', isObject],
  schema: ['a schema', (value: unknown) => isFlag(value) || isObject(value)],
  schemas: ['an object whose values are schemas', isObject],
  list: ['a list of schemas', Array.isArray],
} as const satisfies Record<string, readonly [words: string, fits: (value: unknown) => boolean]>

type Form = keyof typeof FORMS
/** The parts of a definition that determine a function's input. */
type Part = 'operation' | 'parameter' | 'request body' | 'media type' | 'schema'

/** The keys that OpenAPI 3.0 to 3.2 or JSON Schema 2020-12 defines for each part, and the form of their values. */
export const KEYS: Record<Part, ReadonlyMap<string, Form>> = {
  operation: keysOf({
    any: 'tags summary description externalDocs operationId parameters requestBody responses callbacks security servers',
    flag: 'deprecated',
  }),
  parameter: keysOf({
    any: 'name in schema example examples $ref summary',
    text: 'description style',
    flag: 'required deprecated allowEmptyValue explode allowReserved',
    map: 'content',
  }),
  'request body': keysOf({ any: 'content $ref summary', text: 'description', flag: 'required' }),
  'media type': keysOf({ any: 'schema itemSchema example examples prefixEncoding itemEncoding $ref', map: 'encoding' }),
  schema: keysOf({
    any: `$ref $dynamicRef $schema $id $anchor $dynamicAnchor $vocabulary $comment $defs definitions const default examples
      example discriminator xml externalDocs`,
    text: 'title description format pattern contentEncoding contentMediaType',
    flag: 'nullable readOnly writeOnly deprecated uniqueItems',
    number: 'minimum maximum',
    bound: 'exclusiveMinimum exclusiveMaximum',
    divisor: 'multipleOf',
    count: 'minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains',
    values: 'enum',
    names: 'required',
    type: 'type',
    map: 'dependentRequired',
    schema: `additionalProperties unevaluatedProperties unevaluatedItems contains propertyNames contentSchema
      items not if then else`,
    schemas: 'properties patternProperties dependentSchemas',
    list: 'allOf anyOf oneOf prefixItems',
  }),
}

function keysOf(byForm: Partial<Record<Form, string>>): Map<string, Form> {
  const entries = Object.entries(byForm) as [Form, string][] // the record's keys are forms
  return new Map(entries.flatMap(([form, keys]) => keys.split(/\s+/).map(key => [key, form])))
}

export function fits(form: Form, value: unknown): boolean {
  return FORMS[form][1](value)
}

/** Warns about keys that OpenAPI does not define and about values in the wrong form. */
export function checkKeys(part: Part, value: Schema, findings: Findings): void {
  const known = KEYS[part]
  for (const key in value) {
    const form = known.get(key)
    const held = value[key]
    if (form === undefined) {
      if (!key.startsWith('x-')) findings.warn('key_unknown', value, [key], part, key)
    } else if (form !== 'any' && held !== null && held !== undefined && !fits(form, held))
      findings.warn('value_ignored', value, [key], key, FORMS[form][0])
  }
}
