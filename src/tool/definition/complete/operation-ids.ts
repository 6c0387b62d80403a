import type { Loc } from '../../../errors.js'
import { quote } from '../check/findings.js'
import { isToolMethod } from '../check/path-items.js'
import { isObject } from '../check/references.js'
import { deepCopy } from './copies.js'
import type { EditedDocument } from './edits.js'
import { generatedId, TakenNames } from './ids.js'
import { stepsOf } from './pointers.js'
import { charactersOf } from './sizes.js'
import { placeKey, type Uses } from './uses.js'

/** Characters of all path items together that are copied because several paths share them. */
const MOST_COPIED_CHARACTERS = 1024 * 1024
const MEMBERS_A_STEP = 1000

/** The repairs after which each operation of a definition has an id, and one of its own. */
export class OperationIdRepairs {
  private ids: TakenNames | undefined
  /** Holds for one round. */
  private readonly mergedItems = new Map<string, Record<string, unknown>>()
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
  *add(path: Loc, msg: string): Generator<void> {
    const ids = yield* this.takenIds()
    const id = generatedId(String(path.at(-2)), String(path.at(-3)), ids)
    this.document.set(path, id, 'operation_id_added', msg)
  }

  /** The id of an operation that another path refers to is that path's as well: then that path gets a copy. */
  *mendEqual(path: Loc, value: string, msg: string): Generator<void> {
    if (!msg.startsWith(`${quote(value)} is already`)) return
    const users = (yield* this.uses.ofItems()).get(placeKey(path.slice(0, -2))) ?? []
    if (!users.some(user => msg.endsWith(quote(`${path.at(-2)} ${user}`)))) {
      yield* this.renumberId(path, value)
      return
    }
    for (const user of users) yield* this.mendSharedItem(['paths', user], msg)
  }

  /** A path that shares its operations with another one gets a copy of them with ids of its own, as long as that is small. */
  *mendSharedItem(path: Loc, msg: string): Generator<void> {
    const { document } = this
    const item = document.at(path)
    if (!isObject(item) || this.copiedCharacters > MOST_COPIED_CHARACTERS) return
    if (item.$ref !== undefined) {
      const rest = typeof item.$ref === 'string' ? this.mergedItem(item.$ref) : undefined
      if (rest === undefined) return
      const { $ref: _, ...own } = item
      const merged: Record<string, unknown> = { ...own, ...rest, ...own }
      const isEqual = (operation: unknown) =>
        isObject(operation) &&
        typeof operation.operationId === 'string' &&
        msg.startsWith(`${quote(operation.operationId)} is already`)
      if (!Object.values(merged).some(isEqual)) return
      this.copiedCharacters += yield* charactersOf(merged, MOST_COPIED_CHARACTERS - this.copiedCharacters)
      if (this.copiedCharacters > MOST_COPIED_CHARACTERS) return
      const copy = yield* deepCopy(merged)
      const reason = 'another path has the same operations; each operation has an id of its own'
      document.set(path, copy, 'path_item_copied', reason)
    }
    for (const method of Object.keys(document.at(path) as object)) {
      const id = document.at([...path, method, 'operationId'])
      if (isToolMethod(method) && typeof id === 'string' && msg.startsWith(`${quote(id)} is already`))
        yield* this.renumberId([...path, method, 'operationId'], id)
    }
  }

  private *renumberId(path: Loc, value: string): Generator<void> {
    const ids = yield* this.takenIds()
    const id = ids.take(`${value}_${String(path.at(-2)).toLowerCase()}`)
    this.document.set(path, id, 'operation_id_renamed', `${quote(value)} is the id of another operation`)
  }

  /** The path item that a reference leads to with all that it refers to in turn, what stands earlier winning as in the check. */
  private mergedItem(ref: string): Record<string, unknown> | undefined {
    const known = this.mergedItems.get(ref)
    if (known !== undefined) return known
    const merged: Record<string, unknown> = {}
    let next: unknown = ref
    for (let hops = 0; typeof next === 'string' && hops <= this.referenceHops; hops++) {
      const layer = this.document.at(stepsOf(next))
      if (!isObject(layer)) return undefined
      for (const key of Object.keys(layer)) if (key !== '$ref' && !Object.hasOwn(merged, key)) merged[key] = layer[key]
      next = layer.$ref
    }
    if (next !== undefined) return undefined
    this.mergedItems.set(ref, merged)
    return merged
  }

  /** All operationIds of the document, also of what is not used, so that a new one is unlike each. */
  private *takenIds(): Generator<void, TakenNames> {
    if (this.ids !== undefined) return this.ids
    const ids = new TakenNames()
    let count = 0
    for (const holder of [this.document.at(['paths']), this.document.at(['components', 'pathItems'])]) {
      if (!isObject(holder)) continue
      for (const name of Object.keys(holder)) {
        const item = holder[name]
        for (const operation of isObject(item) ? Object.values(item) : []) {
          if (++count % MEMBERS_A_STEP === 0) yield
          if (isObject(operation) && typeof operation.operationId === 'string') ids.add(operation.operationId)
        }
      }
    }
    this.ids = ids
    return ids
  }
}
