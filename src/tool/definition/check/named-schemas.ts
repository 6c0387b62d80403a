import type { Place } from './findings.js'

/** An object that names itself for references: `$id`, `$anchor` or `$dynamicAnchor`. */
export interface NamedSchema {
  readonly node: Record<string, unknown>
  readonly place: Place
}

/**
 * The schemas of a document that name themselves, by their names: of several with one name the first. The first pass notes them.
 */
export class NamedSchemas {
  private readonly byNode = new Map<object, NamedSchema>()
  private readonly ids = new Map<string, NamedSchema>()
  private readonly anchors = new Map<string, NamedSchema>()

  constructor(private readonly identifierCharacters: number) {}

  /** Notes one name of an object, short enough to be one. */
  add(key: '$id' | '$anchor' | '$dynamicAnchor', name: string, node: Record<string, unknown>, place: Place): void {
    const schema: NamedSchema = { node, place }
    if (key !== '$id') {
      addFirst(this.anchors, name, schema)
    } else if (!this.byNode.has(node)) {
      this.byNode.set(node, schema)
      addFirst(this.ids, withoutHash(name), schema)
    }
  }

  /** The schema with an `$id` that this object is. */
  of(node: object): NamedSchema | undefined {
    return this.byNode.get(node)
  }

  /** The schema with this `$id`, whatever follows a `#` in it. */
  withId(id: string): NamedSchema | undefined {
    return this.ids.get(withoutHash(id))
  }

  /** The schema with this `$anchor` or `$dynamicAnchor`. */
  withAnchor(name: string): NamedSchema | undefined {
    return this.anchors.get(name)
  }

  /** True for a text that is short enough to be resolved against. */
  isIdentifier(value: unknown): value is string {
    return typeof value === 'string' && value.length <= this.identifierCharacters
  }
}

export function withoutHash(uri: string): string {
  const hash = uri.indexOf('#')
  return hash === -1 ? uri : uri.slice(0, hash)
}

function addFirst(schemas: Map<string, NamedSchema>, name: string, schema: NamedSchema): void {
  if (!schemas.has(name)) schemas.set(name, schema)
}
