import type { Resolved } from './reference-chains.js'

/** A path item, or one that a path item refers to. */
export interface Layer extends Resolved {
  readonly keys: readonly string[]
  /** True if this item or one that it leads to has a method. */
  readonly hasTool: boolean
  /** What the item refers to; what stands earlier wins. */
  readonly next: Layer | undefined
  /** True once what is wrong with its keys is said, which is so for all paths. */
  isReported: boolean
}

/** The path items of a document, and what they refer to. */
export class PathItems {
  private readonly layers = new Map<object, Layer>()

  layerOf(item: Resolved, next: Layer | undefined): Layer {
    const keys = Object.keys(item.value)
    const hasTool = keys.some(isToolMethod) || next?.hasTool === true
    return { value: item.value, place: item.place, keys, hasTool, next, isReported: false }
  }

  /** The layers of path items that references lead to, each made once. */
  sharedLayer(items: readonly Resolved[]): Layer | undefined {
    let next: Layer | undefined
    for (const item of [...items].reverse()) {
      const layer = this.layers.get(item.value) ?? this.layerOf(item, next)
      this.layers.set(item.value, layer)
      next = layer
    }
    return next
  }
}

/** `get post put patch delete` in any case. */
export function isToolMethod(key: string): boolean {
  return /^(?:get|put|post|patch|delete)$/i.test(key)
}

/** True if a layer before `layer` has the key. */
export function isShadowed(key: string, first: Layer, layer: Layer): boolean {
  for (let at: Layer | undefined = first; at !== undefined && at !== layer; at = at.next) {
    if (Object.hasOwn(at.value, key)) return true
  }
  return false
}
