import type { Findings } from './findings.js'

/** The parts of a definition where a function's input is read, with the form of each key that OpenAPI 3.0 to 3.2 or JSON Schema 2020-12 defines. */
export type Part = 'operation' | 'parameter' | 'request body' | 'media type' | 'schema'

/** The forms of values. A value of another form is ignored; `null` counts as absent. */
const FORMS = {
  any: ['', () => true],
  text: ['a text', (value: unknown) => typeof value === 'string'],
  flag: ['true or false', (value: unknown) => typeof value === 'boolean'],
  number: ['a number', isNumber],
  bound: ['a number or a flag', (value: unknown) => isNumber(value) || typeof value === 'boolean'],
  divisor: ['a number above 0', (value: unknown) => isNumber(value) && value > 0],
  count: ['an integer from 0 on', (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0],
  values: ['a list of values', (value: unknown) => Array.isArray(value) && value.length > 0],
  names: ['a list of texts', (value: unknown) => typeof value === 'boolean' || areTexts(value)],
  type: ['one of string, number, integer, boolean, array, object and null', isType],
  map: ['an object', isMap],
  schema: ['a schema', (value: unknown) => typeof value === 'boolean' || isMap(value)],
  items: ['a schema', (value: unknown) => typeof value === 'boolean' || typeof value === 'object'],
  schemas: ['an object of schemas', isMap],
  list: ['a list of schemas', Array.isArray],
} as const satisfies Record<string, readonly [words: string, fits: (value: unknown) => boolean]>

export type Form = keyof typeof FORMS

const TYPES = new Set<unknown>(['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'])

/** The known keys of each part. */
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
    schema: `additionalProperties additionalItems unevaluatedProperties unevaluatedItems contains propertyNames contentSchema
      not if then else`,
    items: 'items',
    schemas: 'properties patternProperties dependentSchemas',
    list: 'allOf anyOf oneOf prefixItems',
  }),
}

function keysOf(byForm: Partial<Record<Form, string>>): Map<string, Form> {
  const entries = Object.entries(byForm) as [Form, string][] // the keys of a record of forms
  return new Map(entries.flatMap(([form, keys]) => keys.split(/\s+/).map(key => [key, form])))
}

/** True if a value has the form of its key. */
export function fits(form: Form, value: unknown): boolean {
  return FORMS[form][1](value)
}

/** Warns of the keys of one object that OpenAPI does not define, and of values in a form that nothing reads. */
export function checkKeys(part: Part, value: Record<string, unknown>, findings: Findings): void {
  const known = KEYS[part]
  for (const key in value) {
    const form = known.get(key)
    const held = value[key]
    if (form === undefined) {
      if (!key.startsWith('x-')) findings.warn('key_unknown', value, [key], key, part)
    } else if (form !== 'any' && held !== null && held !== undefined && !fits(form, held))
      findings.warn('value_ignored', value, [key], key, FORMS[form][0])
  }
}

function isNumber(value: unknown): value is number {
  return Number.isFinite(value)
}

function isMap(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function areTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every(each => typeof each === 'string')
}

function isType(value: unknown): boolean {
  return Array.isArray(value) ? value.every(each => TYPES.has(each)) : TYPES.has(value)
}
