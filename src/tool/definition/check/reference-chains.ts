import { type Findings, type Place, quote } from './findings.js'
import { isDangling, isObject, type Kind, messageOf, type References, type Target } from './references.js'

/** A value and the place at which it stands, after references were followed. */
export interface Resolved {
  readonly value: Record<string, unknown>
  readonly place: Place
}

/** Where the references that begin at an object lead, the same for everybody who comes by that object. */
export interface Chain extends Resolved {
  readonly next: Chain | undefined
  /** How many references follow each other from here. */
  readonly hops: number
  readonly end: Resolved | 'circle' | 'too-far' | 'broken'
}

const HOPS_A_STEP = 250
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
 * Follows objects that are references to what they mean, each once. A fault stands at each use, as no single step of a circle is
 * the wrong one; that of a broken link stands at the link.
 */
export class ReferenceChains {
  // What a reference leads to can be met again and is remembered; what stands in its own place is met once.
  private readonly chains = new Map<Kind, Map<object, Chain | undefined>>()
  private readonly reportedRefs = new Set<object>()

  constructor(
    private readonly references: References,
    private readonly mostHops: number,
  ) {}

  /** Follows an object that is a reference to what it means. */
  follow(start: Resolved, kind: Kind, findings: Findings): Resolved | undefined {
    if (start.value.$ref === undefined) return start
    const chain = this.chainOf(start, kind, findings)
    return this.report(chain, start.place, findings)
  }

  /** What the chain leads to; the fault of a chain that ends nowhere stands at each use, but for that of a broken link. */
  report({ end, hops }: Chain, place: Place, findings: Findings): Resolved | undefined {
    const most = this.mostHops
    if (end === 'circle') findings.fault('ref_cycle', 'the reference leads in a circle', place, '$ref')
    else if (end === 'too-far' || hops > most)
      findings.fault('ref_cycle', `the reference leads through more than ${most} references`, place, '$ref')
    else if (end !== 'broken') return end
    return undefined
  }

  /** Every object is followed once. A chain that is longer than one step may take is given up; its beginning is too long anyway. */
  chainOf(start: Resolved, kind: Kind, findings: Findings): Chain {
    const chains = this.chains.get(kind) ?? new Map<object, Chain | undefined>()
    this.chains.set(kind, chains)
    const passed: Resolved[] = []
    let next: Chain | undefined
    let end: Chain['end'] | undefined
    for (let at: Resolved | undefined = start; end === undefined; ) {
      const known: Chain | undefined = chains.get(at.value)
      if (known !== undefined || at.value.$ref === undefined) {
        next = known ?? { ...at, next: undefined, hops: 0, end: at }
        end = next.end
      } else if (chains.has(at.value)) {
        end = 'circle'
      } else if (passed.length > HOPS_A_STEP) {
        end = 'too-far'
      } else {
        chains.set(at.value, undefined)
        passed.push(at)
        const following = this.followOnce(at, kind, findings)
        if (following === undefined) end = 'broken'
        else at = following
      }
    }
    for (let i = passed.length - 1; i >= 0; i--) {
      const step = passed[i] as Resolved // i is inside the list
      next = { ...step, next, hops: (next?.hops ?? 0) + 1, end }
      if (end !== 'too-far' || passed.length - i > this.mostHops) chains.set(step.value, next)
      else chains.delete(step.value)
    }
    return next as Chain // known, or made of a step that was passed
  }

  private followOnce({ value, place }: Resolved, kind: Kind, findings: Findings): Resolved | undefined {
    const ref = value.$ref
    const target = typeof ref === 'string' ? this.references.find(ref) : undefined
    if (target !== undefined && !isDangling(target) && isObject(target.value) && isOfKind(target, target.value, kind)) {
      return { value: target.value, place: target.place }
    }
    if (this.reportedRefs.has(value)) return undefined
    this.reportedRefs.add(value)
    if (target === undefined) findings.faultOf('string_type', place, '$ref')
    else if (isDangling(target)) findings.fault(target.type, () => messageOf(target), place, '$ref')
    else
      findings.fault(
        'ref_target_type',
        `the reference ${quote(String(ref))} points at something that is not a ${KIND_WORDS[kind]}`,
        place,
        '$ref',
      )
    return undefined
  }
}

/** True if the place says so; where it says nothing, an object that is named and placed nowhere is not a parameter but a schema. */
function isOfKind(target: Target, value: Record<string, unknown>, kind: Kind): boolean {
  if (target.kind !== undefined) return target.kind === kind
  return kind !== 'parameter' || value.$ref !== undefined || value.name !== undefined || value.in !== undefined
}
