import { isObject, type References } from './references.js'
import type { WarningRule } from './rules.js'

type Schema = Record<string, unknown>

/** How a field of a form is sent, where that differs from OpenAPI's default (style `form`, exploded). */
export interface FieldEncoding {
  style?: string
  explode?: boolean
  allow_reserved?: boolean
  /** The field is sent as a text of this type, such as JSON. */
  content_type?: string
}

/** Why no argument can carry a body or a parameter: a rule, with the values of its sentence. */
export type Lost = readonly [rule: WarningRule, ...values: unknown[]]

const MOST_PARTS = 100
const STYLES = new Set<unknown>([
  'simple',
  'label',
  'matrix',
  'form',
  'spaceDelimited',
  'pipeDelimited',
  'deepObject',
  'cookie',
])

/** True for a style that OpenAPI has. */
export function isStyle(style: unknown): boolean {
  return typeof style !== 'string' || STYLES.has(style)
}

/** Returns how the fields of a form are sent, by their names; or why an operation with this body is left out. */
export function formEncoding(
  media: Schema,
  references: References,
): { encoding: Record<string, FieldEncoding> } | { lost: Lost } {
  const encoding: Record<string, FieldEncoding> = {}
  for (const part of partsOf(media.schema, references)) {
    if (part.type !== undefined && ![part.type].flat().includes('object'))
      return { lost: ['operation_passed_over.form'] }
    for (const [name, schema] of Object.entries(isObject(part.properties) ? part.properties : {})) {
      const given = isObject(media.encoding) && Object.hasOwn(media.encoding, name) ? media.encoding[name] : undefined
      const sent = fieldEncoding(isObject(given) ? given : {}, partsOf(schema, references), references)
      if (sent === undefined) return { lost: ['operation_passed_over.field', name] }
      if (Object.keys(sent).length > 0) encoding[name] = sent
    }
  }
  return { encoding }
}

/** Returns how one field is sent; undefined if its encoding cannot express its values. */
function fieldEncoding(given: Schema, parts: readonly Schema[], references: References): FieldEncoding | undefined {
  const { style = 'form', contentType, explode = style === 'form', allowReserved } = given
  const isStyled = ['style', 'explode', 'allowReserved'].some(key => given[key] !== undefined)
  if (!isStyled && typeof contentType === 'string' && contentType !== 'text/plain')
    return /^application\/(?:[\w.-]+\+)?json$/i.test(contentType) ? { content_type: contentType } : undefined
  if (!isStyle(style)) return undefined
  if (style !== 'deepObject') {
    const inside = parts.flatMap(part => [...valuesIn(part)].flatMap(each => partsOf(each, references)))
    if (inside.some(isComposite) || (style !== 'form' && parts.some(isMap))) return undefined
  }
  return {
    ...(style !== 'form' && { style: String(style) }),
    ...(typeof explode === 'boolean' && explode !== (style === 'form') && { explode }),
    ...(allowReserved === true && { allow_reserved: true }),
  }
}

/** Returns a schema and those that describe the same value through references, `allOf`, `oneOf` and `anyOf`, up to a limit. */
function partsOf(schema: unknown, references: References): Schema[] {
  const parts = new Set<Schema>()
  const pending = [schema]
  for (let next = pending.pop(); next !== undefined && parts.size < MOST_PARTS; next = pending.pop()) {
    const end = references.end(next)
    if (end === undefined || parts.has(end)) continue
    parts.add(end)
    for (const list of [end.allOf, end.oneOf, end.anyOf])
      if (Array.isArray(list)) pending.push(...list.slice(0, MOST_PARTS))
  }
  return [...parts]
}

/** Returns the schemas of the values inside a list or an object. */
function valuesIn({ items, properties, additionalProperties }: Schema): unknown[] {
  return [items, additionalProperties, ...(isObject(properties) ? Object.values(properties) : [])]
}

function isMap({ type, properties, additionalProperties }: Schema): boolean {
  return [type].flat().includes('object') || isObject(properties) || isObject(additionalProperties)
}

function isComposite(schema: Schema): boolean {
  return isMap(schema) || [schema.type].flat().includes('array') || schema.items !== undefined
}
