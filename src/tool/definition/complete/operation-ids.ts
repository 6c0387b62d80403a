import { type Loc, quote } from '../check/findings.js'
import { isToolMethod } from '../check/operations.js'
import { isObject } from '../check/references.js'
import type { EditedDocument } from './edits.js'
import { generatedId, TakenNames } from './ids.js'
import { stepsOf } from './pointers.js'
import { charactersOf } from './sizes.js'
import { placeKey, type Uses } from './uses.js'

/** Characters of all path items together that are copied because several paths share them. */
const MOST_COPIED_CHARACTERS = 1024 * 1024

/** The repairs after which each operation of a definition has an id, and one of its own. */
export class OperationIdRepairs {
  private ids: TakenNames | undefined
  /** Holds for one round. */
  private readonly mergedItems = new Map<object, Record<string, unknown>>()
  private readonly methodsByIds = new WeakMap<object, Map<string, string[]>>()
  private copiedCharacters = 0

  constructor(
    private readonly document: EditedDocument,
    private readonly uses: Uses,
    private readonly referenceHops: number,
  ) {}

  /** Forgets what was found in the document as it was. */
  beginRound(): void {
    this.mergedItems.clear()
  }

  /** Gives an operation that has no id one that is made of method and path. */
  add(path: Loc, msg: string): void {
    const ids = this.takenIds()
    const id = generatedId(String(path.at(-2)), String(path.at(-3)), ids)
    this.document.set(path, id, 'operation_id_added', msg)
  }

  /** The id of an operation that another path refers to is that path's as well: then that path gets a copy. */
  mendEqual(path: Loc, value: string, use: string | undefined): void {
    const users = this.uses.ofItems().get(placeKey(path.slice(0, -2)))
    const start = `${String(path.at(-2))} `
    if (users === undefined || !use?.startsWith(start) || !users.has(use.slice(start.length))) {
      this.renumberId(path, value)
      return
    }
    for (const user of users) {
      if (this.copiedCharacters > MOST_COPIED_CHARACTERS) return
      this.mendSharedItem(['paths', user], value)
    }
  }

  /** A path that shares its operations with another one gets a copy of them with ids of its own, as long as that is small. */
  mendSharedItem(path: Loc, givenId: string): void {
    const { document } = this
    const item = document.at(path)
    if (!isObject(item) || this.copiedCharacters > MOST_COPIED_CHARACTERS) return
    if (item.$ref !== undefined) {
      const rest = typeof item.$ref === 'string' ? this.mergedItem(item.$ref) : undefined
      if (rest === undefined) return
      const methods = this.methodsOf(rest, givenId).filter(method => !Object.hasOwn(item, method))
      if (methods.length === 0 && this.methodsOf(item, givenId).length === 0) return
      for (const part of [item, rest]) {
        const room = MOST_COPIED_CHARACTERS - this.copiedCharacters
        if (charactersOf(part, room) <= room) continue
        this.copiedCharacters = MOST_COPIED_CHARACTERS + 1
        return
      }
      const merged: Record<string, unknown> = {}
      addMembers(merged, item)
      addMembers(merged, rest)
      this.copiedCharacters += charactersOf(merged, MOST_COPIED_CHARACTERS - this.copiedCharacters)
      if (this.copiedCharacters > MOST_COPIED_CHARACTERS) return
      const copy = this.document.copyOf(merged)
      const reason = 'another path has the same operations; each operation has an id of its own'
      document.set(path, copy, 'path_item_copied', reason)
    }
    for (const method of this.methodsOf(document.at(path) as Record<string, unknown>, givenId)) {
      const id = document.at([...path, method, 'operationId'])
      if (id === givenId) this.renumberId([...path, method, 'operationId'], givenId)
    }
  }

  /** The methods of a path item whose operation had this id when the item was first looked at. */
  private methodsOf(item: Record<string, unknown>, givenId: string): readonly string[] {
    let methods = this.methodsByIds.get(item)
    if (methods === undefined) {
      methods = new Map()
      for (const key of Object.keys(item)) {
        const operation = isToolMethod(key) ? item[key] : undefined
        if (!isObject(operation) || typeof operation.operationId !== 'string') continue
        const id = operation.operationId
        const same = methods.get(id)
        if (same === undefined) methods.set(id, [key])
        else same.push(key)
      }
      this.methodsByIds.set(item, methods)
    }
    return methods.get(givenId) ?? []
  }

  private renumberId(path: Loc, value: string): void {
    const ids = this.takenIds()
    const id = ids.take(`${value}_${String(path.at(-2)).toLowerCase()}`)
    this.document.set(path, id, 'operation_id_renamed', `${quote(value)} is the id of another operation`)
  }

  /** The path item that a reference leads to with all that it refers to in turn, what stands earlier winning as in the check. */
  private mergedItem(ref: string): Record<string, unknown> | undefined {
    const first = this.document.at(stepsOf(ref))
    if (!isObject(first)) return undefined
    const known = this.mergedItems.get(first)
    if (known !== undefined) return known
    const merged: Record<string, unknown> = {}
    let layer: Record<string, unknown> = first
    for (let hops = 0; hops <= this.referenceHops; hops++) {
      addMembers(merged, layer)
      if (typeof layer.$ref !== 'string') {
        if (layer.$ref !== undefined) return undefined
        this.mergedItems.set(first, merged)
        return merged
      }
      const next = this.document.at(stepsOf(layer.$ref))
      if (!isObject(next)) return undefined
      layer = next
    }
    return undefined
  }

  /** All operationIds of the document, also of what is not used, so that a new one is unlike each. */
  private takenIds(): TakenNames {
    if (this.ids !== undefined) return this.ids
    const ids = new TakenNames()
    for (const holder of [this.document.at(['paths']), this.document.at(['components', 'pathItems'])]) {
      if (!isObject(holder)) continue
      for (const name of Object.keys(holder)) {
        const item = holder[name]
        for (const operation of isObject(item) ? Object.values(item) : []) {
          if (isObject(operation) && typeof operation.operationId === 'string') ids.add(operation.operationId)
        }
      }
    }
    this.ids = ids
    return ids
  }
}

/** Adds the members of a path item that are not there yet, but for its reference. */
function addMembers(to: Record<string, unknown>, item: Record<string, unknown>): void {
  for (const key of Object.keys(item)) {
    // An assignment to `__proto__` would set the prototype; such a definition is refused.
    if (key !== '$ref' && key !== '__proto__' && !Object.hasOwn(to, key)) to[key] = item[key]
  }
}
