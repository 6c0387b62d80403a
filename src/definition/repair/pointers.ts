import type { Loc } from '../check/findings.js'

/** Returns the keys of a JSON pointer, percent-decoded; an empty list for any other reference. */
export function stepsOf(ref: string): string[] {
  if (!ref.startsWith('#/')) return [ref]
  let pointer = ref.slice('#/'.length)
  try {
    pointer = decodeURIComponent(pointer)
  } catch {
    // Invalid percent-encoding is taken literally.
  }
  return pointer.split('/').map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** Returns the reference with these keys as its JSON pointer. */
export function referenceTo(steps: readonly string[]): string {
  return `#/${steps.map(step => step.replaceAll('~', '~0').replaceAll('/', '~1').replaceAll('%', '%25')).join('/')}`
}

/** Returns the value at this path, or undefined. */
export function valueAt(root: unknown, path: readonly Loc[number][]): unknown {
  let value = root
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Record<string | number, unknown>)[key]
  }
  return value
}

/** Returns a path as the key of a map. */
export function placeKey(path: Loc): string {
  return JSON.stringify(path.map(String))
}
