import type { Loc } from '../check/findings.js'

/** The keys that a JSON pointer leads through, percent-decoded; those of any other reference lead nowhere. */
export function stepsOf(ref: string): string[] {
  if (!ref.startsWith('#/')) return [ref]
  let pointer = ref.slice('#/'.length)
  try {
    pointer = decodeURIComponent(pointer)
  } catch {
    // Percent signs that encode nothing are themselves.
  }
  return pointer.split('/').map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** The reference that leads through these keys. */
export function referenceTo(steps: readonly string[]): string {
  return `#/${steps.map(step => step.replaceAll('~', '~0').replaceAll('/', '~1').replaceAll('%', '%25')).join('/')}`
}

/** The value at these keys, or undefined. */
export function valueAt(root: unknown, path: readonly Loc[number][]): unknown {
  let value = root
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Record<string | number, unknown>)[key]
  }
  return value
}

/** A place as the key of a map. */
export function placeKey(path: Loc): string {
  return JSON.stringify(path.map(String))
}
