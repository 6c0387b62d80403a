import type { Loc } from '../check/findings.js'
import { DEFINITION_LIMITS } from '../check/limits.js'
import { isToolMethod } from '../check/operations.js'
import { isObject } from '../check/references.js'
import type { EditedDocument } from './edits.js'
import { placeKey, stepsOf } from './pointers.js'

export interface DroppedOperation {
  method: string
  path: string
  msg: string
}

/** An operation and a path that leads to it. */
interface Use {
  readonly place: Loc
  readonly path: string
}

/** The most characters of media types in the message about a dropped operation. */
const MOST_TYPE_CHARACTERS = 200
const ANY_JSON = /^\s*(?:\*\/\*|application\/\*|text\/json|application\/x-json)\s*(?:;|$)/i
/** With more operations none is dropped, because nobody could read such a list. */
const MOST_USES = 20_000

/** Repairs request bodies that a model cannot send. */
export class BodyRepairs {
  readonly dropped: DroppedOperation[] = []
  private uses: Map<string, Use[]> | undefined
  /** Cached by reference: thousands of operations may use the same long one. */
  private readonly places = new Map<string, { path: Loc; key: string }>()

  constructor(
    private readonly document: EditedDocument,
    private readonly dropsUnsupported: boolean,
  ) {}

  /** Drops the cached uses, because the document has changed since the last round. */
  beginRound(): void {
    this.uses = undefined
  }

  /** Makes a body of any type JSON. Drops the operations with any other body if `dropsUnsupported` is set. */
  repair(path: Loc, content: unknown): void {
    const { document } = this
    const types = isObject(content) ? Object.keys(content) : []
    if (content !== undefined && !isObject(content)) return
    const any = types.find(name => ANY_JSON.test(name))
    if (any !== undefined && isObject(content)) {
      const msg = `${any} takes JSON too`
      document.set([...path, 'application/json'], document.copyOf(content[any]), 'body_type_added', msg)
    } else if (this.dropsUnsupported) {
      this.uses ??= this.usesOfBodies()
      const named = types.slice(0, 3).join(', ')
      const shown = named.length > MOST_TYPE_CHARACTERS ? `${named.slice(0, MOST_TYPE_CHARACTERS)}...` : named
      for (const use of this.uses.get(placeKey(path.slice(0, -1))) ?? [])
        this.drop(use, shown === '' ? 'its body names no media type' : `its body is ${shown}: a model sends JSON only`)
    }
  }

  private drop({ place, path }: Use, msg: string): void {
    // Several paths may lead to one operation, which may be dropped already.
    if (this.document.at(place) !== undefined) this.document.remove(place, 'operation_dropped', msg)
    this.dropped.push({ method: String(place.at(-1)), path, msg })
  }

  /** Returns the operations that use each body, directly or by reference, by the place of the body. */
  private usesOfBodies(): Map<string, Use[]> {
    const byBody = new Map<string, Use[]>()
    const paths = this.document.at(['paths'])
    let count = 0
    for (const path of isObject(paths) ? Object.keys(paths) : []) {
      const methods = new Set<string>()
      for (const item of this.placesFrom(['paths', path])) {
        const value = this.document.at(item.path)
        for (const method of isObject(value) ? Object.keys(value) : []) {
          if (!isToolMethod(method) || methods.has(method)) continue
          methods.add(method)
          if (++count > MOST_USES) return new Map()
          const place = [...item.path, method]
          for (const { key } of this.placesFrom([...place, 'requestBody'])) {
            const uses = byBody.get(key) ?? []
            uses.push({ place, path })
            byBody.set(key, uses)
          }
        }
      }
    }
    return byBody
  }

  /** Yields a place, then the places on its reference chain. */
  private *placesFrom(path: Loc): Generator<{ path: Loc; key: string }> {
    let at = { path, key: placeKey(path) }
    for (let hops = 0; hops <= DEFINITION_LIMITS.referenceHops; hops++) {
      yield at
      const ref = this.document.at([...at.path, '$ref'])
      if (typeof ref !== 'string') return
      const steps = stepsOf(ref)
      at = this.places.get(ref) ?? { path: steps, key: placeKey(steps) }
      this.places.set(ref, at)
    }
  }
}
