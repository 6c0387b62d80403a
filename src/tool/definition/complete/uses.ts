import type { Loc } from '../check/findings.js'
import { isToolMethod } from '../check/operations.js'
import { isObject } from '../check/references.js'
import type { EditedDocument } from './edits.js'
import { stepsOf } from './pointers.js'

/** Where a reference leads, as the key of a map of uses, and the reference that stands there. */
interface Hop {
  readonly place: string
  readonly next: unknown
}

/** Who refers to a path item or a body of a definition, by the place of what is referred to. Holds for one round of repairs. */
export class Uses {
  private bodyUses: Map<string, Loc[]> | undefined
  private itemUses: Map<string, Set<string>> | undefined
  /** By the reference: thousands may go on by one long one. */
  private readonly hops = new Map<string, Hop>()

  constructor(
    private readonly document: EditedDocument,
    private readonly referenceHops: number,
  ) {}

  /** Forgets what was found in the document as it was. */
  beginRound(): void {
    this.bodyUses = undefined
    this.itemUses = undefined
    this.hops.clear()
  }

  /** The paths that refer to a path item, directly or by way of others, by the place of the item. */
  ofItems(): Map<string, Set<string>> {
    if (this.itemUses !== undefined) return this.itemUses
    const uses = new Map<string, Set<string>>()
    const paths = this.document.at(['paths'])
    for (const path of isObject(paths) ? Object.keys(paths) : []) {
      for (const place of this.placesBehind(['paths', path])) {
        const users = uses.get(place) ?? new Set<string>()
        uses.set(place, users.add(path))
      }
    }
    this.itemUses = uses
    return uses
  }

  /** The operations that refer to a body, directly or by way of others, by the place of the body. */
  ofBodies(): Map<string, Loc[]> {
    if (this.bodyUses !== undefined) return this.bodyUses
    const uses = new Map<string, Loc[]>()
    for (const holder of [['paths'], ['components', 'pathItems']]) {
      const items = this.document.at(holder)
      for (const name of isObject(items) ? Object.keys(items) : []) {
        const item = this.document.at([...holder, name])
        for (const method of isObject(item) ? Object.keys(item) : []) {
          if (!isToolMethod(method)) continue
          const operation = [...holder, name, method]
          for (const place of this.placesBehind([...operation, 'requestBody'])) addTo(uses, place, operation)
        }
      }
    }
    this.bodyUses = uses
    return uses
  }

  /** The places that the reference at a place leads to, one after the other. */
  private *placesBehind(path: Loc): Generator<string> {
    let ref = this.document.at([...path, '$ref'])
    for (let hops = 0; typeof ref === 'string' && hops <= this.referenceHops; hops++) {
      const hop = this.hopOf(ref)
      yield hop.place
      ref = hop.next
    }
  }

  private hopOf(ref: string): Hop {
    const known = this.hops.get(ref)
    if (known !== undefined) return known
    const steps = stepsOf(ref)
    const hop: Hop = { place: placeKey(steps), next: this.document.at([...steps, '$ref']) }
    this.hops.set(ref, hop)
    return hop
  }
}

/** A place as the key of a map of uses. */
export function placeKey(path: Loc): string {
  return JSON.stringify(path.map(String))
}

function addTo<Value>(lists: Map<string, Value[]>, key: string, value: Value): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}
