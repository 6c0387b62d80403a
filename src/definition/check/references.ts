import type { Findings } from './findings.js'
import { DEFINITION_LIMITS, type FaultRule } from './rules.js'

export type Schema = Record<string, unknown>

/** The section of `components` for each kind of object. */
const SECTIONS = {
  'path item': 'pathItems',
  parameter: 'parameters',
  'request body': 'requestBodies',
  'media type': 'mediaTypes',
  schema: 'schemas',
} as const

const COMPONENT = /^#\/components\/([^/]+)\/[^/]+$/

/** Resolves references within one document. Only pointers that begin with `#/` are resolved, and nothing is fetched. */
export class References {
  private readonly known = new Map<string, unknown>()

  constructor(private readonly document: unknown) {}

  find(ref: unknown): unknown {
    if (typeof ref !== 'string' || !ref.startsWith('#') || ref.length > DEFINITION_LIMITS.keyCharacters)
      return undefined
    if (!this.known.has(ref)) this.known.set(ref, this.at(decoded(ref)) ?? this.at(ref))
    return this.known.get(ref)
  }

  private at(ref: string): unknown {
    if (!ref.startsWith('#/')) return undefined
    let value = this.document
    for (const step of ref.slice(2).split('/', DEFINITION_LIMITS.nestingLevels + 1)) {
      const key = step.replaceAll('~1', '/').replaceAll('~0', '~')
      if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
      value = (value as Schema)[key]
    }
    return value
  }

  /** Follows references and returns the last target; undefined if the last target is not an object. */
  end(value: unknown): Schema | undefined {
    const end = this.hops(value).at(-1)
    return isObject(end) && end.$ref === undefined ? end : undefined
  }

  /** Returns a value and at most `referenceHops` targets of its chain of references. */
  private hops(value: unknown): unknown[] {
    const hops = [value]
    const most = DEFINITION_LIMITS.referenceHops
    for (let at = value; isObject(at) && at.$ref !== undefined && hops.length <= most; at = hops.at(-1))
      hops.push(this.find(at.$ref))
    return hops
  }

  /** Returns the target of a reference. If the reference is broken or circular, reports a fault and returns undefined. */
  target(holder: Schema, part: keyof typeof SECTIONS, findings: Findings): unknown {
    const { $ref: ref } = holder
    const value = this.find(ref)
    const isTarget = isObject(value) || (typeof value === 'boolean' && part === 'schema')
    const fault = (rule: FaultRule, ...values: unknown[]) => findings.fault(rule, holder, ['$ref'], ...values)
    if (typeof ref !== 'string') return fault('string_type')
    if (!ref.startsWith('#')) return fault('ref_external', withoutSecrets(ref))
    if (ref.length > DEFINITION_LIMITS.keyCharacters)
      return fault('ref_unresolved.length', DEFINITION_LIMITS.keyCharacters)
    if (!ref.startsWith('#/') && decoded(ref) === ref) return fault('ref_unresolved.name', ref)
    if (value === undefined) return fault('ref_unresolved', ref)
    if (!isTarget || (COMPONENT.exec(ref)?.[1] ?? SECTIONS[part]) !== SECTIONS[part])
      return fault('ref_target_type', ref, part)
    const hops = this.hops(holder)
    if (Object(hops.at(-1)).$ref === undefined) return value
    const isCircle = new Set(hops).size < hops.length
    return isCircle ? fault('ref_cycle', ref) : fault('ref_cycle.length', ref, DEFINITION_LIMITS.referenceHops)
  }

  /** Returns all objects of the chain of references that begins with `start`. If the chain is broken, reports a fault and returns undefined. */
  chain(start: Schema, part: keyof typeof SECTIONS, findings: Findings): Schema[] | undefined {
    const chain = [start]
    for (let at = start; at.$ref !== undefined; ) {
      const next = this.target(at, part, findings)
      if (!isObject(next)) return undefined
      chain.push(next)
      at = next
    }
    return chain
  }
}

export function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function decoded(ref: string): string {
  try {
    return ref.includes('%') ? decodeURIComponent(ref) : ref
  } catch {
    return ref
  }
}

/** Replaces the user info and the query of an address with `***`, because both can be secret. */
export function withoutSecrets(address: string): string {
  return address.replace(/(\?)[^#]+/gs, '$1***').replace(/(^|\/\/)[^/?#]+@/, '$1***@')
}

/** Parses a URL; undefined if the URL is invalid. Avoids `URL.canParse`, which is wrong for non-ASCII letters in Node 20. */
export function parsedUrl(url: string, base?: string): URL | undefined {
  try {
    return new URL(url, base)
  } catch {
    return undefined
  }
}
