import type { Findings } from './findings.js'
import { DEFINITION_LIMITS } from './limits.js'

/** Node 20 has the method; the compiler's es2023 library does not declare it. */
interface WellFormedText {
  isWellFormed(): boolean
}

/**
 * Visits every value of a definition before the rules run. Returns the limit of levels or values that it exceeds. Reports what cannot be
 * stored: NUL, lone surrogates, numbers beyond a double, keys that change a prototype or are too long. A value shared by YAML aliases
 * counts at each place.
 */
export function walkAll(
  document: object,
  findings: Findings,
): 'definition_too_deep' | 'definition_too_large' | undefined {
  let values = 1
  const visit = (node: object, level: number): ReturnType<typeof walkAll> => {
    if (level >= DEFINITION_LIMITS.nestingLevels) return 'definition_too_deep'
    const isList = Array.isArray(node)
    for (const each in node) {
      if (++values > DEFINITION_LIMITS.values) return 'definition_too_large'
      const value = (node as Record<string, unknown>)[each]
      const key = isList ? Number(each) : each
      if (!isList) checkKey(each, value, node)
      if (typeof value === 'string') checkText(value, node, key)
      else if (typeof value === 'number') {
        if (!Number.isFinite(value)) findings.fault('finite_number', node, [key])
      } else if (typeof value === 'object' && value !== null) {
        const exceeded = visit(value, level + 1)
        if (exceeded !== undefined) return exceeded
      }
    }
    return undefined
  }
  const checkKey = (key: string, value: unknown, node: object) => {
    if (key.length > DEFINITION_LIMITS.keyCharacters)
      findings.fault('string_too_long', node, [key], DEFINITION_LIMITS.keyCharacters)
    checkText(key, node, key)
    const isPrototype =
      key === 'constructor' && typeof value === 'object' && value !== null && Object.hasOwn(value, 'prototype')
    if (key === '__proto__' || isPrototype) findings.fault('key_forbidden', node, [key], key)
  }
  const checkText = (text: string, node: object, key: string | number) => {
    if (text.includes('\0')) findings.fault('string_nul', node, [key])
    else if (!(text as unknown as WellFormedText).isWellFormed()) findings.fault('string_unicode', node, [key])
  }
  return visit(document, 0)
}
