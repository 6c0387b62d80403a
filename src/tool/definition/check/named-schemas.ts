import type { Place } from './findings.js'

/** An object that names itself for references: `$id`, `$anchor` or `$dynamicAnchor`. */
export interface NamedSchema {
  readonly node: Record<string, unknown>
  readonly place: Place
}

/**
 * The schemas of a document that name themselves, by their names: of several with one name the first. They are noted as the first pass
 * meets them, for to go through thousands of them later would be one long step.
 */
export class NamedSchemas {
  private readonly byNode = new Map<object, NamedSchema>()
  private readonly ids = new Map<string, NamedSchema>()
  private readonly anchors = new Map<string, NamedSchema>()

  constructor(private readonly identifierCharacters: number) {}

  /** Notes what an object calls itself; once for each, however many names it has. */
  add(node: Record<string, unknown>, placeOf: () => Place): void {
    if (this.byNode.has(node)) return
    const schema: NamedSchema = { node, place: placeOf() }
    this.byNode.set(node, schema)
    const { $id, $anchor, $dynamicAnchor } = node
    if (this.isIdentifier($id)) addFirst(this.ids, withoutHash($id), schema)
    if (this.isIdentifier($anchor)) addFirst(this.anchors, $anchor, schema)
    if (this.isIdentifier($dynamicAnchor)) addFirst(this.anchors, $dynamicAnchor, schema)
  }

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
