import { rememberNumbers } from '../../../schema/exact-json.js'

/** A copy that shares nothing: what stands in two places is edited in one. The document nests no deeper than the check allows. */
export function deepCopy(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  const copy = Array.isArray(value)
    ? value.map(deepCopy)
    : Object.fromEntries(Object.entries(value).map(([key, member]) => [key, deepCopy(member)]))
  rememberNumbers(value, copy)
  return copy
}
