import type { Loc } from '../check/findings.js'
import type { NumberTexts } from './numbers.js'
import { valueAt } from './pointers.js'

/** One change that a completion makes. */
export interface Edit {
  op: 'add' | 'replace' | 'remove'
  /** The place in the definition, from its root; empty for the definition as a whole. */
  path: Loc
  /** What stands there afterwards; absent where something is removed, and for a definition that was converted as a whole. */
  value?: unknown
  /** What kind of edit it is, for programs. */
  type: string
  /** Why, for people. */
  msg: string
}

type Container = Record<string | number, unknown>

/**
 * A definition that is being edited. The one that was given is never changed: what an edit touches is copied, each object and list
 * at most once, so that thousands of edits cost no more than one copy of the document.
 */
export class EditedDocument {
  readonly edits: Edit[] = []
  /** Characters of the places and reasons of all edits. */
  editCharacters = 0
  private readonly copies = new WeakSet<object>()
  private readonly root: Container

  constructor(
    readonly given: unknown,
    private readonly numbers: NumberTexts,
  ) {
    this.root = { document: given }
  }

  get value(): unknown {
    return this.root.document
  }

  /** What stands at `path`, or undefined. */
  at(path: Loc): unknown {
    return valueAt(this.value, path)
  }

  /** Sets what stands at `path`, whose container must exist; a list is extended by its length as the key. */
  set(path: Loc, value: unknown, type: string, msg: string): void {
    const op = this.at(path) === undefined ? 'add' : 'replace'
    const key = path.at(-1) as string | number // an edit of the whole document is a replacement
    const container = this.own(path.slice(0, -1))
    if (container === undefined) return
    container[key] = value
    this.push({ op, path, value, type, msg })
  }

  /** Takes away what stands at `path`. Items of a list go from its end, so that none moves that another removal means. */
  remove(path: Loc, type: string, msg: string): void {
    const key = path.at(-1) as string | number // an edit of the whole document is a replacement
    if (this.at(path) === undefined) return
    const container = this.own(path.slice(0, -1))
    if (container === undefined) return
    if (Array.isArray(container)) container.splice(Number(key), 1)
    else delete container[key]
    this.push({ op: 'remove', path, type, msg })
  }

  replaceAll(document: Record<string, unknown>, type: string, msg: string): void {
    this.root.document = document
    this.push({ op: 'replace', path: [], type, msg })
  }

  /** Says why what was put at a place is as it is. */
  note(path: Loc, type: string, msg: string): void {
    this.push({ op: 'replace', path, value: this.at(path), type, msg })
  }

  /** A copy that shares nothing: what stands in two places is edited in one. */
  copyOf(value: unknown): unknown {
    if (value === undefined) return undefined
    return JSON.parse(JSON.stringify(value, this.numbers.replacer), this.numbers.reviver)
  }

  private push(edit: Edit): void {
    for (const key of edit.path) this.editCharacters += String(key).length
    this.editCharacters += edit.msg.length
    this.edits.push(edit)
  }

  /** The container at `path`, copied with everything above it if that has not been done. */
  private own(path: Loc): Container | undefined {
    let holder = this.root
    for (const key of ['document', ...path]) {
      const value = Object.hasOwn(holder, key) ? holder[key] : undefined
      if (typeof value !== 'object' || value === null) return undefined
      if (!this.copies.has(value)) {
        const copy = Array.isArray(value) ? [...value] : { ...value }
        this.numbers.copied(value, copy)
        this.copies.add(copy)
        holder[key] = copy
      }
      holder = holder[key] as Container
    }
    return holder
  }
}
