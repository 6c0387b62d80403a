import { type Findings, type Place, placeUnder, quote, type Resolved } from './findings.js'
import { DEFINITION_LIMITS } from './limits.js'
import { partUnder } from './model.js'
import { isDangling, isObject, isReference, type References, type Target } from './references.js'
import { quoteAddress } from './secrets.js'

type Schema = Record<string, unknown>

/** The parts that OpenAPI allows to be references. */
const REFERABLE = new Set(
  ['path item', 'parameter', 'request body', 'response', 'header', 'schema', 'example', 'link', 'callback'].concat(
    'security scheme',
  ),
)

/** Parts that no tool reads, including their content, in lower case. A path begins with a slash, so it is never one of these. */
const UNREAD = new Set(
  `externaldocs tags contact license responses callbacks security links headers encoding webhooks components head options
  trace query additionaloperations`.split(/\s+/),
)

/** Reads parts of a document for the rules, and reports parts that do not have the form that OpenAPI requires. */
export class Reader {
  constructor(
    readonly references: References,
    readonly findings: Findings,
    private readonly hasReferableMedia: boolean,
  ) {}

  /** References that have been reported as misplaced. */
  private readonly reported = new Set<object>()

  /** Returns the value if it is an object, else undefined and a fault. */
  object(value: unknown, place: Place, part: string): Record<string, unknown> | undefined {
    if (this.isMisplaced(value, place, part)) return undefined
    // A `$ref` that is not a text is reported here: nothing is known of its target.
    if (isObject(value) && (value.$ref === undefined || this.isReferable(part))) return value
    if (isObject(value)) this.findings.faultOf('string_type', placeUnder(place, '$ref'))
    else this.findings.faultOf('dict_type', place)
    return undefined
  }

  /** Returns the value if it is a list, else undefined and a fault. */
  list(value: unknown, place: Place, part: string): unknown[] | undefined {
    if (Array.isArray(value)) return value
    if (!this.isMisplaced(value, place, part)) this.findings.faultOf('list_type', place)
    return undefined
  }

  /** Returns the text under `key`, else undefined and a fault. */
  text({ value, place }: Resolved, key: string): string | undefined {
    const text = value[key]
    if (typeof text === 'string') return text
    const at = placeUnder(place, key)
    if (!this.isMisplaced(text, at, `"${key}"`)) this.findings.faultOf('string_type', at)
    return undefined
  }

  private isReferable(part: string): boolean {
    return REFERABLE.has(part) || (part === 'media type' && this.hasReferableMedia)
  }

  /** True, with a fault, if the part is a reference where OpenAPI allows none. Its content is then unknown. */
  isMisplaced(value: unknown, place: Place, part: string): boolean {
    if (!isReference(value) || this.isReferable(part)) return false
    const target = this.references.find(value.$ref)
    const type = isDangling(target) && target.type === 'ref_external' ? 'ref_external' : 'ref_not_allowed'
    this.findings.fault(type, misplacedText(part, value.$ref), place, '$ref')
    this.reported.add(value)
    return true
  }

  /** Reports misplaced references that no rule has read. In parts that no tool reads they are only a warning, and so are broken ones. */
  checkPlaces(document: Record<string, unknown>, root: Place, found: readonly Resolved[]): void {
    for (const { value, place } of found) {
      const steps = stepsBetween(root, place)
      const part = this.reported.has(value) ? undefined : partOf(document, steps)
      if (part === undefined) continue
      const first = steps.find(step => step === 'servers' || UNREAD.has(String(step).toLowerCase()))
      const isAboutDocument = steps[0] === 'info' && steps.length > 1 && steps[1] !== 'title'
      const isUnread = isAboutDocument || (first !== undefined && first !== 'servers')
      const ref = value.$ref as string // only references with a text are collected
      const isAllowed = this.isReferable(part)
      if (!isUnread) this.isMisplaced(value, place, part)
      else if (!isAllowed || isDangling(this.references.find(ref, value))) {
        const why = isAllowed ? 'that leads nowhere' : 'where OpenAPI allows none'
        this.findings.warn(
          'ref_not_read',
          `this ${part} is a reference (${quoteAddress(ref)}) ${why}; no tool reads it`,
          place,
          '$ref',
        )
      }
    }
  }

  /** Returns `start`, or the object at the end of its references; undefined and a fault if a reference is broken. */
  follow(start: Resolved, part: string): Resolved | undefined {
    return start.value.$ref === undefined ? start : this.passed(start, part).end
  }

  /**
   * Returns every object on the reference chain from `start`, without `start`. A cycle is reported at each use, because no single link is
   * wrong; a broken link is reported at the link.
   */
  passed(start: Resolved, part: string): { items: Resolved[]; end: Resolved | undefined } {
    const seen = new Set<object>()
    const items: Resolved[] = []
    for (let at = start; at.value.$ref !== undefined; ) {
      const isCircle = seen.has(at.value)
      if (isCircle || seen.size >= DEFINITION_LIMITS.referenceHops) {
        const where = isCircle ? 'in a circle' : `through more than ${DEFINITION_LIMITS.referenceHops} references`
        this.findings.fault('ref_cycle', `the reference leads ${where}`, start.place, '$ref')
        return { items: isCircle ? items.slice(0, -1) : [], end: undefined }
      }
      seen.add(at.value)
      const next = this.target(at, '$ref', part)
      if (!isObject(next?.value)) return { items, end: undefined }
      at = { value: next.value, place: next.place }
      items.push(at)
    }
    return { items, end: items.at(-1) }
  }

  /** Returns the target of the reference under `key` if it is the wanted part; else undefined and a fault. */
  target({ value, place }: Resolved, key: string, part: string, base?: Schema): Target | undefined {
    const ref = value[key]
    const target = typeof ref === 'string' ? this.references.find(ref, base) : undefined
    if (target === undefined) this.findings.faultOf('string_type', place, key)
    else if (isDangling(target)) {
      this.findings.fault(target.type, this.references.messageOf(target), place, key)
      this.reported.add(value)
    } else if (isPart(target, part)) return target
    else {
      const msg = `the reference ${quote(String(ref))} points at something that is not a ${part}`
      this.findings.fault('ref_target_type', msg, place, key)
    }
    return undefined
  }
}

function stepsBetween(root: Place, place: Place): (string | number)[] {
  const steps: (string | number)[] = []
  for (let at = place; at !== root && at.up !== undefined; at = at.up) steps.unshift(at.key)
  return steps
}

/** Returns the part at this path; undefined for data, extensions, and the content of a reference or of a schema with an `$id`. */
function partOf(document: Record<string, unknown>, steps: readonly (string | number)[]): string | undefined {
  let part: string | undefined = 'document'
  let value: unknown = document
  for (const step of steps) {
    const isList = Array.isArray(value)
    if (isReference(value) || (isObject(value) && value.$id !== undefined) || String(step).startsWith('x-'))
      return undefined
    part = partUnder(part, String(step)) ?? (isList ? part : undefined)
    if (part === undefined || part === 'data') return undefined
    value = (value as Record<string | number, unknown>)[step]
  }
  return part
}

/** True if the target is the wanted part. If its place does not say, an object with `name` and `in` is a parameter, any other a schema. */
function isPart({ value, kind }: Target, part: string): boolean {
  if (typeof value === 'boolean') return part === 'schema' && (kind ?? part) === part
  if (!isObject(value) || kind !== undefined) return isObject(value) && kind === part
  return part !== 'parameter' || (value.$ref ?? value.name ?? value.in) !== undefined
}

/** Returns the message for a reference where OpenAPI allows none. */
export function misplacedText(part: string, ref: string): string {
  return `this ${part} is a reference (${quoteAddress(ref)}), and OpenAPI allows none here: bundle the document first`
}
