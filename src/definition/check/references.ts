import { type Place, quote, type Resolved } from './findings.js'
import { DEFINITION_LIMITS } from './limits.js'
import { partAt } from './model.js'
import { quoteAddress } from './secrets.js'
import type { NamedSchemas } from './walk.js'

/** The target of a reference. */
export interface Target {
  readonly value: unknown
  readonly place: Place
  /** The part of OpenAPI that the target is; undefined if its place does not say. */
  readonly kind: string | undefined
  /** The nearest enclosing object with an `$id`. Fragments inside it may be relative to it. */
  readonly base: Record<string, unknown> | undefined
}

/** A broken reference. */
export interface Dangling {
  readonly type: 'ref_unresolved' | 'ref_external'
  readonly ref: string
}

/** The base URL assumed for a document with a relative `$self`. */
const SOMEWHERE = 'https://relative.invalid/'

/**
 * Resolves the references of one document by own properties only, with a cache. Nothing is fetched. The rules, in order:
 *
 * - `#` and `#/...` are JSON pointers from the document's root: percent-decoded, then `~1` and `~0`. A key with a literal percent sign
 *   is found too, and so is a pointer whose slashes are percent-encoded.
 * - If that finds nothing and the reference is inside a schema with an `$id`, the pointer is tried from that schema, because pasted JSON
 *   Schemas mean it so. `#` alone means that schema first.
 * - `#name` is a schema with that `$anchor` or `$dynamicAnchor`, anywhere in the document.
 * - A reference whose part before `#` equals a schema's `$id` (as written, or resolved against the enclosing `$id`), or the document's
 *   own `$self` (3.2, absolute or relative), is inside the document.
 * - All others (URLs, files, `data:`, a bare name such as `Pet`) are `ref_external` and never followed.
 */
export class References {
  private readonly memo = new Map<string, Target | Dangling>()
  private readonly self: URL | undefined

  constructor(
    private readonly document: Resolved,
    private readonly named: NamedSchemas,
  ) {
    const { $self } = document.value
    if (typeof $self !== 'string' || $self.length > DEFINITION_LIMITS.identifierCharacters) return
    this.self = parsedUrl($self, SOMEWHERE)
    if (this.self !== undefined) this.self.hash = ''
  }

  /** Returns the target of `ref`; `base` is the nearest enclosing schema with an `$id`. */
  find(ref: string, base?: Record<string, unknown>): Target | Dangling {
    if (ref.length > DEFINITION_LIMITS.keyCharacters)
      return { type: ref.startsWith('#') ? 'ref_unresolved' : 'ref_external', ref }
    const around = base === undefined ? undefined : this.named.byObject.get(base)
    if (around !== undefined && (ref === '#' || ref === '')) return this.inside(around, '') ?? this.find(ref)
    const found = this.memo.get(ref) ?? this.at(ref, ref) ?? { type: 'ref_external', ref }
    this.memo.set(ref, found)
    if (around === undefined || !isDangling(found)) return found
    if (ref.startsWith('#')) return this.inside(around, ref.slice(1)) ?? found
    const absolute = parsedUrl(ref, String(around.value.$id))
    return (absolute && this.at(absolute.href, ref)) ?? found
  }

  /** Returns the schema at the end of a chain of references; undefined if the chain is broken or too long. */
  resolve(ref: string, base: Record<string, unknown> | undefined): Target | undefined {
    const end = this.endOf(this.find(ref, base))
    return typeof end === 'string' || isDangling(end) ? undefined : end
  }

  /** Returns the end of the reference chain that begins with `first`, or why it has no end. */
  endOf(first: Target | Dangling): Target | Dangling | 'circle' | 'too far' {
    const passed = new Set<object>()
    let at = first
    while (!isDangling(at) && isObject(at.value) && typeof at.value.$ref === 'string') {
      if (passed.has(at.value)) return 'circle'
      if (passed.size >= DEFINITION_LIMITS.referenceHops - 1) return 'too far'
      passed.add(at.value)
      at = this.find(at.value.$ref, at.base)
    }
    return at
  }

  /** Returns the message of a broken reference, with the remedy. */
  messageOf({ type, ref }: Dangling): string {
    if (type === 'ref_external') {
      const bareName = /^[A-Za-z0-9_.-]{1,100}$/.test(ref) && !/\.(json|ya?ml)$/i.test(ref)
      const hint = bareName
        ? `; if a schema of this document is meant, write ${quote(`#/components/schemas/${ref}`)}`
        : ''
      return `the reference ${quoteAddress(ref)} points outside the document; nothing is fetched, so put its content into the document${hint}`
    }
    const name = /^#\/(?:\$defs|definitions)\/([^/]+)$/.exec(ref)?.[1]
    const isInside = name !== undefined && this.named.definitions.has(name)
    const hint = isInside ? `; "#" is the whole document: move it to ${quote(`#/components/schemas/${name}`)}` : ''
    return `the reference ${quote(ref)} points at nothing in this document${hint}`
  }

  /** Resolves a URI; undefined if its part before `#` is neither empty nor the name of the document or of a schema. */
  private at(uri: string, ref: string): Target | Dangling | undefined {
    const hash = uri.indexOf('#')
    const before = hash === -1 ? uri : uri.slice(0, hash)
    const root = before === '' || this.isSelf(before) ? this.document : this.named.ids.get(before)
    return root && (this.inside(root, hash === -1 ? '' : uri.slice(hash + 1)) ?? { type: 'ref_unresolved', ref })
  }

  private isSelf(before: string): boolean {
    return this.self !== undefined && parsedUrl(before, this.self.href)?.href === this.self.href
  }

  /** Resolves a fragment inside a document or schema: empty, a pointer, an anchor, or a pointer with encoded slashes. */
  private inside(root: Resolved, fragment: string): Target | undefined {
    if (fragment === '' || fragment.startsWith('/')) return this.follow(fragment, root)
    const schema = this.named.anchors.get(fragment)
    if (schema !== undefined) return { ...schema, kind: undefined, base: undefined }
    const pointer = /^%2f/i.test(fragment) ? decoded(fragment) : undefined
    return pointer === undefined ? undefined : this.follow(pointer, root)
  }

  /** Follows a JSON pointer by own properties. A pointer with more steps than the document has levels finds nothing. */
  private follow(pointer: string, root: Resolved): Target | undefined {
    const isDocument = root === this.document
    const steps = pointer.split('/', DEFINITION_LIMITS.nestingLevels + 2).slice(1)
    if (steps.length > DEFINITION_LIMITS.nestingLevels) return undefined
    let value: unknown = root.value
    let place = root.place
    let base = isDocument ? undefined : root.value
    for (const [i, step] of steps.entries()) {
      const key = ownKey(value, step)
      if (key === undefined) return undefined
      value = (value as Record<string | number, unknown>)[key] // `ownKey` found the key, so the value is an object or list
      place = { up: place, key }
      steps[i] = String(key)
      if (isObject(value) && typeof value.$id === 'string') base = value
    }
    return { value, place, kind: isDocument ? partAt(steps) : undefined, base }
  }
}

export function isDangling(found: Target | Dangling): found is Dangling {
  return 'type' in found
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** True for a reference: an object with a text as `$ref`. In a map, a member named `$ref` can be an object instead. */
export function isReference(value: unknown): value is { $ref: string } {
  return isObject(value) && typeof value.$ref === 'string'
}

/** Returns the key or index for one pointer step if `value` has it: percent-decoded, else as written. */
function ownKey(value: unknown, step: string): string | number | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  for (const text of step.includes('%') ? [decoded(step) ?? step, step] : [step]) {
    const key = text.replaceAll('~1', '/').replaceAll('~0', '~')
    if (!Array.isArray(value)) {
      if (Object.hasOwn(value, key)) return key
    } else if (/^(0|[1-9]\d{0,8})$/.test(key) && Number(key) < value.length) return Number(key)
  }
  return undefined
}

function decoded(step: string): string | undefined {
  try {
    return decodeURIComponent(step)
  } catch {
    return undefined
  }
}

/** Parses a URL; undefined if invalid. `URL.canParse` of Node 20 is wrong for non-ASCII letters once optimized. */
export function parsedUrl(url: string, base?: string): URL | undefined {
  try {
    return new URL(url, base)
  } catch {
    return undefined
  }
}
