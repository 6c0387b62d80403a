import { type Findings, type Place, quote } from './findings.js'
import { isDangling, isObject, type Kind, messageOf, type References, type Target } from './references.js'

/** A value and the place at which it stands, after references were followed. */
export interface Resolved {
  readonly value: Record<string, unknown>
  readonly place: Place
}

const KIND_WORDS: Record<Kind, string> = {
  schema: 'schema',
  schemaPart: 'schema',
  parameter: 'parameter',
  requestBody: 'request body',
  pathItem: 'path item',
  mediaType: 'media type',
  other: 'thing that is used here',
}

/**
 * Follows objects that are references to what they mean. The fault of a circle stands at each use, as no single step of it is the
 * wrong one; that of a broken link stands at the link.
 */
export class ReferenceChains {
  constructor(
    private readonly references: References,
    private readonly mostHops: number,
  ) {}

  /** Follows an object that is a reference to what it means. */
  follow(start: Resolved, kind: Kind, findings: Findings): Resolved | undefined {
    return start.value.$ref === undefined ? start : this.passed(start, kind, findings).end
  }

  /** All that the references from `start` lead through, without `start`; `end` is undefined for a chain that ends nowhere. */
  passed(start: Resolved, kind: Kind, findings: Findings): { items: Resolved[]; end: Resolved | undefined } {
    const seen = new Set<object>()
    const items: Resolved[] = []
    for (let at = start; at.value.$ref !== undefined; ) {
      const isCircle = seen.has(at.value)
      if (isCircle || seen.size >= this.mostHops) {
        const where = isCircle ? 'in a circle' : `through more than ${this.mostHops} references`
        findings.fault('ref_cycle', `the reference leads ${where}`, start.place, '$ref')
        return { items: isCircle ? items.slice(0, -1) : [], end: undefined }
      }
      seen.add(at.value)
      const next = this.followOnce(at, kind, findings)
      if (next === undefined) return { items, end: undefined }
      items.push(next)
      at = next
    }
    return { items, end: items.at(-1) }
  }

  private followOnce({ value, place }: Resolved, kind: Kind, findings: Findings): Resolved | undefined {
    const ref = value.$ref
    const target = typeof ref === 'string' ? this.references.find(ref) : undefined
    if (target === undefined) findings.faultOf('string_type', place, '$ref')
    else if (isDangling(target)) findings.fault(target.type, () => messageOf(target), place, '$ref')
    else if (isObject(target.value) && isOfKind(target, target.value, kind))
      return { value: target.value, place: target.place }
    else {
      const msg = `the reference ${quote(String(ref))} points at something that is not a ${KIND_WORDS[kind]}`
      findings.fault('ref_target_type', msg, place, '$ref')
    }
    return undefined
  }
}

/** True if the place says so; where it says nothing, an object that is named and placed nowhere is not a parameter but a schema. */
function isOfKind(target: Target, value: Record<string, unknown>, kind: Kind): boolean {
  if (target.kind !== undefined) return target.kind === kind
  return kind !== 'parameter' || value.$ref !== undefined || value.name !== undefined || value.in !== undefined
}
