import type { KeyLists } from './key-lists.js'
import type { Chain, Resolved } from './reference-chains.js'

/** A path item, or one that a path item refers to. */
export interface Layer extends Resolved {
  /** All keys; once a shared item was gone through, those that say something of each path anew. */
  keys: readonly string[]
  readonly hasOwnTool: boolean
  /** True if this item or one that it leads to has a method. */
  readonly hasTool: boolean
  /** What the item refers to; what stands earlier wins. */
  readonly next: Layer | undefined
  /** True once what is wrong with its keys is said, which is so for all paths. */
  isReported: boolean
}

export const LONGEST_METHOD_CHARACTERS = 'additionalOperations'.length
/** What a small letter of ASCII has more than the large one. */
const CASE_BIT = 0x20

/** The path items of a document, and what they refer to. */
export class PathItems {
  private readonly layers = new Map<object, Layer>()

  constructor(private readonly keyLists: KeyLists) {}

  layerOf(item: Resolved, next: Layer | undefined): Layer {
    const keys = this.keyLists.of(item.value)
    const hasOwnTool = keys.some(isToolMethod)
    const hasTool = hasOwnTool || next?.hasTool === true
    // Written out: V8 makes a spread a new hidden class each time, a fifth of the check.
    return { value: item.value, place: item.place, keys, hasOwnTool, hasTool, next, isReported: false }
  }

  /** The layers of path items that references lead to, the last one first, each made once. */
  sharedLayer(chain: Chain | undefined): Layer | undefined {
    const missing: Chain[] = []
    let layer: Layer | undefined
    for (let at = chain; at !== undefined; at = at.next) {
      layer = this.layers.get(at.value)
      if (layer !== undefined) break
      missing.push(at)
    }
    for (const each of missing.reverse()) {
      layer = this.layerOf(each, layer)
      this.layers.set(each.value, layer)
    }
    return layer
  }

  finish(layer: Layer): void {
    layer.isReported = true
    layer.keys = filtered(layer.keys, key => key === '$ref' || key === 'parameters' || isToolMethod(key))
  }
}

/** `get post put patch delete` in any case. A path item may have half a million keys, so that none of them is copied to find out. */
export function isToolMethod(key: string): boolean {
  switch (key.length) {
    case 3:
      return isSpelled(key, 'get') || isSpelled(key, 'put')
    case 4:
      return isSpelled(key, 'post')
    case 5:
      return isSpelled(key, 'patch')
    case 6:
      return isSpelled(key, 'delete')
    default:
      return false
  }
}

/** True if the key is this word, of small letters and its length, in any case. */
function isSpelled(key: string, word: string): boolean {
  for (let i = 0; i < word.length; i++) if ((key.charCodeAt(i) | CASE_BIT) !== word.charCodeAt(i)) return false
  return true
}

/** True if a layer before `layer` has the key. */
export function isShadowed(key: string, first: Layer, layer: Layer): boolean {
  for (let at: Layer | undefined = first; at !== undefined && at !== layer; at = at.next) {
    if (Object.hasOwn(at.value, key)) return true
  }
  return false
}

function filtered(keys: readonly string[], keeps: (key: string) => boolean): string[] {
  const kept: string[] = []
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string // i is inside the list
    if (keeps(key)) kept.push(key)
  }
  return kept
}
