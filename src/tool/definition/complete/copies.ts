import { rememberNumbers } from '../../../schema/exact-json.js'

/** A copy that shares nothing: what stands in two places is edited in one. No recursion. */
export function deepCopy(value: unknown): unknown {
  const pending: { from: object; to: object }[] = []
  const begin = (each: unknown): unknown => {
    if (typeof each !== 'object' || each === null) return each
    const to = Array.isArray(each) ? [] : {}
    rememberNumbers(each, to)
    pending.push({ from: each, to })
    return to
  }
  const root = begin(value)
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const from = next.from as Record<string, unknown> // or a list, whose keys are its indices
    const to = next.to as Record<string, unknown>
    for (const key of Object.keys(from)) {
      const member = begin(from[key])
      if (key !== '__proto__') to[key] = member
      else Object.defineProperty(to, key, { value: member, enumerable: true, configurable: true, writable: true })
    }
  }
  return root
}
