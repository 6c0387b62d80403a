import { type Place, quote } from './findings.js'
import type { DefinitionLimits } from './limits.js'
import { type NamedSchema, type NamedSchemas, withoutHash } from './named-schemas.js'

/** What an object of the document is, as far as the place it stands at says it; a `schemaPart` stands inside a component schema. */
export type Kind = 'schema' | 'schemaPart' | 'parameter' | 'requestBody' | 'pathItem' | 'mediaType' | 'other'

/** Where a reference leads. */
export interface Target {
  readonly value: unknown
  readonly place: Place
  /** Undefined where the place alone does not say it. */
  readonly kind: Kind | undefined
  /** The nearest object around the target that has an `$id`: fragments inside it may be meant relative to it. */
  readonly base: Record<string, unknown> | undefined
}

/** What bounds the references of a document (see `DefinitionLimits`). */
export type ReferenceLimits = Pick<DefinitionLimits, 'nestingLevels' | 'keyCharacters'>

/** A reference that leads nowhere. A hundred thousand of them may be remembered, so that what is said of it is made when it is said. */
export interface Dangling {
  readonly type: 'ref_unresolved' | 'ref_external'
  readonly ref: string
}

/** Where a document with a relative `$self` is taken to be. */
const SOMEWHERE = 'https://relative.invalid/'

const COMPONENT_KINDS = new Map<string, Kind>([
  ['schemas', 'schema'],
  ['parameters', 'parameter'],
  ['requestBodies', 'requestBody'],
  ['pathItems', 'pathItem'],
  ['mediaTypes', 'mediaType'],
  ['responses', 'other'],
  ['headers', 'other'],
  ['examples', 'other'],
  ['links', 'other'],
  ['callbacks', 'other'],
  ['securitySchemes', 'other'],
])

/**
 * Finds what the references of one document point at: own-property look-up only, memoised, nothing fetched. A base is an `$id` of
 * bounded length, so that resolving a reference against it costs the same for each.
 *
 * What a reference means, in this order:
 * - `#` and `#/...` are JSON pointers from the document's root, percent-decoded, then `~1` and `~0`; a key that is written
 *   with a literal percent sign is found too, and a pointer whose slashes are percent-encoded. Into any place: other operations,
 *   responses, extensions.
 * - if that finds nothing and the reference stands inside a schema with an `$id`, the pointer is tried from that schema,
 *   because JSON Schemas that were pasted into a document mean it so; `#` alone means that schema first.
 * - `#name` is a schema with that `$anchor` or `$dynamicAnchor`, anywhere in the document.
 * - a reference whose part before `#` equals the `$id` of a schema in the document (as written, or resolved against the `$id`
 *   around it), or the document's own `$self` (3.2, absolute or relative), is inside the document.
 * - everything else (URLs, files, `data:`, a bare name such as `Pet`) is outside: `ref_external`, never looked at.
 */
export class References {
  private readonly memo = new Map<string, Target | Dangling>()
  private selfUrl: URL | undefined

  constructor(
    private readonly document: Record<string, unknown>,
    private readonly root: Place,
    private readonly named: NamedSchemas,
    private readonly limits: ReferenceLimits,
  ) {}

  find(ref: string, base?: Record<string, unknown>): Target | Dangling {
    if (ref.length > this.limits.keyCharacters) return ref.startsWith('#') ? unresolved(ref) : external(ref)
    if (base !== undefined) return this.findFromBase(ref, base)
    // A name is looked up as fast as what is remembered of it.
    if (isAnchor(ref)) return this.inAnchored(ref.slice(1)) ?? unresolved(ref)
    let found = this.memo.get(ref)
    if (found === undefined) {
      found = this.findFromRoot(ref)
      this.memo.set(ref, found)
    }
    return found
  }

  /** What to write instead of `#/$defs/X` that is meant from a schema around it, for `#` is the whole document; empty for all else. */
  hintFor(ref: string, place: Place): string {
    const [, section, name] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(ref) ?? []
    if (section === undefined || name === undefined) return ''
    const keys: (string | number)[] = []
    for (let at: Place | undefined = place; at !== undefined && at !== this.root; at = at.up) keys.unshift(at.key)
    let node: unknown = this.document
    let pointer = ''
    let found: string | undefined
    for (const key of keys) {
      node = isObject(node) || Array.isArray(node) ? (node as Record<string | number, unknown>)[key] : undefined
      pointer += `/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`
      const definitions = isObject(node) ? node[section] : undefined
      if (isObject(definitions) && ownKey(definitions, name) !== undefined) found = pointer
    }
    if (found === undefined) return ''
    const meant = quote(`#${found}/${section}/${name}`)
    return `; "#" is the whole document: move it to "#/components/schemas/${name}", or write ${meant}`
  }

  private findFromBase(ref: string, base: Record<string, unknown>): Target | Dangling {
    if (ref === '#' || ref === '') return this.inNamed(base, '') ?? this.find(ref)
    const found = this.find(ref)
    if (!isDangling(found)) return found
    if (ref.startsWith('#')) return this.inNamed(base, ref.slice(1)) ?? found
    return this.findRelativeTo(base, ref) ?? found
  }

  private findFromRoot(ref: string): Target | Dangling {
    const hash = ref.indexOf('#')
    const before = hash === -1 ? ref : ref.slice(0, hash)
    const fragment = hash === -1 ? '' : ref.slice(hash + 1)
    if (before === '' || this.isSelf(before)) return this.inDocument(fragment) ?? unresolved(ref)
    return this.inIdentified(before, fragment, ref) ?? external(ref)
  }

  private findRelativeTo(base: Record<string, unknown>, ref: string): Target | Dangling | undefined {
    const id = base.$id
    const absolute = this.named.isIdentifier(id) ? parsedUrl(ref, id) : undefined
    if (absolute === undefined) return undefined
    const fragment = absolute.hash.slice(1)
    absolute.hash = ''
    return this.inIdentified(absolute.href, fragment, ref)
  }

  private isSelf(before: string): boolean {
    const self = this.document.$self
    if (!this.named.isIdentifier(self)) return false
    if (self === before) return true
    this.selfUrl ??= parsedUrl(withoutHash(self), SOMEWHERE)
    return this.selfUrl !== undefined && parsedUrl(before, this.selfUrl.href)?.href === this.selfUrl.href
  }

  private inDocument(fragment: string): Target | undefined {
    if (fragment === '') return { value: this.document, place: this.root, kind: 'other', base: undefined }
    const from = { node: this.document, place: this.root }
    return fragment.startsWith('/') ? this.follow(fragment, from, true) : this.inOther(fragment, from, true)
  }

  private inIdentified(id: string, fragment: string, ref: string): Target | Dangling | undefined {
    const schema = this.named.withId(id)
    if (schema === undefined) return undefined
    return this.inSchema(schema, fragment) ?? unresolved(ref)
  }

  private inNamed(base: Record<string, unknown>, fragment: string): Target | undefined {
    const schema = this.named.of(base)
    return schema === undefined ? undefined : this.inSchema(schema, fragment)
  }

  private inSchema(schema: NamedSchema, fragment: string): Target | undefined {
    if (fragment === '') return { value: schema.node, place: schema.place, kind: undefined, base: schema.node }
    return fragment.startsWith('/') ? this.follow(fragment, schema, false) : this.inOther(fragment, schema, false)
  }

  /** An anchor, or a pointer whose very slashes are percent-encoded. */
  private inOther(fragment: string, from: NamedSchema, fromRoot: boolean): Target | undefined {
    const anchored = this.inAnchored(fragment)
    if (anchored !== undefined || !/^%2f/i.test(fragment)) return anchored
    const pointer = decoded(fragment)
    return pointer === undefined ? undefined : this.follow(pointer, from, fromRoot)
  }

  private inAnchored(name: string): Target | undefined {
    const schema = this.named.withAnchor(name)
    return schema === undefined
      ? undefined
      : { value: schema.node, place: schema.place, kind: undefined, base: undefined }
  }

  /** Walks a JSON pointer by own properties. It is never split as a whole: more steps than the document has levels lead nowhere. */
  private follow(pointer: string, from: NamedSchema, fromRoot: boolean): Target | undefined {
    const steps: string[] = []
    let value: unknown = from.node
    let place = from.place
    let base = fromRoot ? undefined : from.node
    let start = 1
    while (start <= pointer.length) {
      if (steps.length >= this.limits.nestingLevels) return undefined
      const slash = pointer.indexOf('/', start)
      const end = slash === -1 ? pointer.length : slash
      const key = ownKey(value, pointer.slice(start, end))
      if (key === undefined) return undefined
      // ownKey found it, so value is an object or a list that has it.
      value = (value as Record<string | number, unknown>)[key]
      place = { up: place, key }
      steps.push(String(key))
      if (isObject(value) && typeof value.$id === 'string') base = value
      start = end + 1
    }
    return { value, place, kind: fromRoot ? kindAt(steps) : undefined, base }
  }
}

/** True for `#name`; a pointer may begin with a percent sign too. */
function isAnchor(ref: string): boolean {
  return ref.length > 1 && ref[0] === '#' && ref[1] !== '/' && ref[1] !== '%'
}

export function isDangling(found: Target | Dangling): found is Dangling {
  return 'type' in found
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The key or index that one step of a pointer means in `value`, if `value` has it: percent-decoded, else as written. */
function ownKey(value: unknown, step: string): string | number | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const text = decoded(step)
  const key = text === undefined ? undefined : ownPlainKey(value, text)
  return key === undefined && text !== step ? ownPlainKey(value, step) : key
}

function ownPlainKey(value: object, step: string): string | number | undefined {
  const key = step.includes('~') ? step.replaceAll('~1', '/').replaceAll('~0', '~') : step
  if (!Array.isArray(value)) return Object.hasOwn(value, key) ? key : undefined
  return /^(0|[1-9]\d{0,8})$/.test(key) && Number(key) < value.length ? Number(key) : undefined
}

function decoded(step: string): string | undefined {
  if (!step.includes('%')) return step
  try {
    return decodeURIComponent(step)
  } catch {
    return undefined
  }
}

/** A URL, or undefined. `URL.canParse` of Node 20 answers wrong for letters outside ASCII once it is optimized. */
export function parsedUrl(url: string, base?: string): URL | undefined {
  try {
    return new URL(url, base)
  } catch {
    return undefined
  }
}

/** What stands at a place, as far as OpenAPI's own structure says it; deeper places are judged by their shape alone. */
function kindAt(steps: readonly string[]): Kind | undefined {
  const [section, name] = steps
  if (section === 'components') {
    if (steps.length < 3) return 'other'
    const kind = COMPONENT_KINDS.get(name as string)
    if (kind === 'schema' && steps.length > 3) return 'schemaPart'
    return steps.length === 3 ? kind : undefined
  }
  if (section === 'paths' || section === 'webhooks') {
    if (steps.length === 2) return 'pathItem'
    return steps.length < 4 ? 'other' : undefined
  }
  if (steps.length > 1) return undefined
  return section === 'info' || section === 'servers' || section === 'tags' || section === 'security'
    ? 'other'
    : undefined
}

function unresolved(ref: string): Dangling {
  return { type: 'ref_unresolved', ref }
}

function external(ref: string): Dangling {
  return { type: 'ref_external', ref }
}

/** What is wrong with a reference, and the remedy. */
export function messageOf({ type, ref }: Dangling): string {
  if (type === 'ref_unresolved') return `the reference ${quote(ref)} points at nothing in this document`
  const bareName = /^[A-Za-z0-9_.-]{1,100}$/.test(ref) && !/\.(json|ya?ml)$/i.test(ref)
  const hint = bareName ? `; if a schema of this document is meant, write ${quote(`#/components/schemas/${ref}`)}` : ''
  return `the reference ${quote(ref)} points outside the document; nothing is fetched, so put its content into the document${hint}`
}
