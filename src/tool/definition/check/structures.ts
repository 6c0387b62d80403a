import { textWithBigInts } from '../../../schema/exact-json.js'
import { isObject } from './references.js'

/** Members looked at between two looks at the clock. */
const STEP_MEMBERS = 500

/** One object or list whose members are being numbered. */
interface Frame {
  readonly value: object
  /** Of an object; a list has none but its indices. */
  keys: readonly string[] | undefined
  isSorted: boolean
  next: number
  text: string
}

/**
 * Gives values of equal structure equal numbers: two JSON values have the same number exactly if they are written alike, but for
 * the order of keys. Each object is looked at once, however often it is asked for, so that comparing nested schemas level by
 * level costs no more than reading them.
 */
export class Structures {
  private readonly numbers = new Map<string, number>()
  private readonly byObject = new Map<object, number>()

  /** The number of `value`. */
  numberOf(value: unknown): number {
    const stack: Frame[] = []
    let result = this.begin(value, stack)
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      if (!top.isSorted) {
        top.keys = sorted(top.keys ?? [])
        top.isSorted = true
      }
      const { value, keys } = top
      if (result !== undefined && top.next > 0) {
        top.text += `${result},`
        // A number stands for what was read of a long list or object: to put a million pieces of text together is one long step.
        if (top.next % STEP_MEMBERS === 0) top.text = `~${this.numbered(top.text)},`
      }
      if (top.next >= (keys ?? (value as unknown[])).length) {
        stack.pop()
        result = this.numbered(top.text)
        this.byObject.set(top.value, result)
        continue
      }
      const key = keys === undefined ? top.next : (keys[top.next] as string) // there is one more
      top.next++
      if (typeof key === 'string') top.text += `${JSON.stringify(key)}:`
      result = this.begin((value as Record<string | number, unknown>)[key], stack)
    }
    return result as number // the outermost value was numbered last
  }

  /** A text that tells a value from every other: of a large object or list it is its number. */
  keyOf(value: unknown): string {
    return typeof value === 'object' && value !== null ? `#${this.numberOf(value)}` : textWithBigInts(value)
  }

  /** The number of a plain value or of an object that has one; undefined if a frame was put on the stack for it. */
  private begin(value: unknown, stack: Frame[]): number | undefined {
    if (typeof value !== 'object' || value === null) return this.numbered(`=${textWithBigInts(value)}`)
    const known = this.byObject.get(value)
    if (known !== undefined) return known
    const keys = Array.isArray(value) ? undefined : Object.keys(value)
    // Of empty ones there may be a million.
    if ((keys ?? (value as unknown[])).length === 0) return this.numbered(keys === undefined ? '[]' : '{}')
    const isSorted = keys === undefined || keys.length <= STEP_MEMBERS
    stack.push({
      value,
      keys: isSorted ? keys?.sort() : keys,
      isSorted,
      next: 0,
      text: Array.isArray(value) ? '[' : '{',
    })
    return undefined
  }

  private numbered(text: string): number {
    const number = this.numbers.get(text) ?? this.numbers.size
    if (number === this.numbers.size) this.numbers.set(text, number)
    return number
  }
}

/** The texts in order: short runs are sorted, then each two made one. */
function sorted(texts: readonly string[]): string[] {
  let runs: string[][] = []
  for (let start = 0; start < texts.length; start += STEP_MEMBERS) {
    runs.push(texts.slice(start, start + STEP_MEMBERS).sort())
  }
  while (runs.length > 1) {
    const merged: string[][] = []
    for (let i = 0; i < runs.length; i += 2) merged.push(mergedRun(runs[i] ?? [], runs[i + 1] ?? []))
    runs = merged
  }
  return runs[0] ?? []
}

function mergedRun(one: readonly string[], other: readonly string[]): string[] {
  const result: string[] = []
  let [i, j] = [0, 0]
  while (i < one.length || j < other.length) {
    const [left, right] = [one[i], other[j]]
    const isLeft = right === undefined || (left !== undefined && left < right)
    result.push((isLeft ? left : right) as string) // one of them is there
    if (isLeft) i++
    else j++
  }
  return result
}

/** True if two JSON values are equal, whatever the order of keys; neither may hold itself. No recursion. */
export function areEqual(one: unknown, other: unknown): boolean {
  const pending: [unknown, unknown][] = [[one, other]]
  for (let pair = pending.pop(); pair !== undefined; pair = pending.pop()) {
    const [left, right] = pair
    if (left === right) continue
    if (Array.isArray(left) && Array.isArray(right)) {
      if (left.length !== right.length) return false
      for (let i = 0; i < left.length; i++) {
        if (left[i] === right[i]) continue
        if (typeof left[i] !== 'object' || typeof right[i] !== 'object') return false
        pending.push([left[i], right[i]])
      }
    } else if (isObject(left) && isObject(right)) {
      const keys = Object.keys(left)
      // To list the keys of a large object is one step, and cannot be divided.
      if (keys.length !== Object.keys(right).length) return false
      for (const key of keys) {
        if (!Object.hasOwn(right, key)) return false
        if (left[key] !== right[key]) pending.push([left[key], right[key]])
      }
    } else {
      return false
    }
  }
  return true
}
