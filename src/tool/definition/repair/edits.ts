import type { Loc } from '../check/findings.js'
import type { NumberTexts } from './numbers.js'
import { valueAt } from './pointers.js'

/** One change that a repair makes. */
export interface Edit {
  /** `move` gives a key another name, at the same position. */
  op: 'add' | 'replace' | 'remove' | 'move'
  /** The place in the definition after the edits before this one, from its root; empty for the definition as a whole. */
  path: Loc
  /** The place before a `move`. */
  from?: Loc
  /** The values before and after the edit, if there are any. A `move` and a converted definition have neither. */
  before?: unknown
  after?: unknown
  /** What kind of edit it is, for programs. */
  type: string
  /** Why, for people. */
  msg: string
}

type Container = Record<string | number, unknown>

/** A definition that is being edited. The one that was given is never changed: the first edit makes a copy. */
export class EditedDocument {
  readonly edits: Edit[] = []
  /** Characters of all edits. */
  editCharacters = 0
  private readonly root: { document: unknown }
  private isOwn = false

  constructor(
    readonly given: unknown,
    private readonly numbers: NumberTexts,
  ) {
    this.root = { document: given }
  }

  get value(): unknown {
    return this.root.document
  }

  /** Makes the copy, before values of it are taken for an edit. */
  open(): void {
    if (!this.isOwn) this.root.document = this.copyOf(this.given)
    this.isOwn = true
  }

  /** The value at `path`, or undefined. */
  at(path: Loc): unknown {
    return valueAt(this.value, path)
  }

  /** Sets the value at `path`, whose container must exist; a list is extended by its length as the key. */
  set(path: Loc, after: unknown, type: string, msg: string): void {
    const [container, key] = this.own(path)
    if (container === undefined) return
    const before = Object.hasOwn(container, key) ? container[key] : undefined
    container[key] = after
    if (before === undefined) this.push({ op: 'add', path, after, type, msg })
    else this.push({ op: 'replace', path, before, after, type, msg })
  }

  /** Takes away the value at `path`. Items of a list go from its end, so that none moves that another removal means. */
  remove(path: Loc, type: string, msg: string): void {
    const [container, key] = this.own(path)
    const before = container?.[key]
    if (container === undefined || before === undefined) return
    if (Array.isArray(container)) container.splice(Number(key), 1)
    else delete container[key]
    this.push({ op: 'remove', path, before, type, msg })
  }

  /** Gives keys of the object at `holder` other names, all at once. A name that is there already is not given again. */
  rename(holder: Loc, names: ReadonlyMap<string, { to: string; type: string; msg: string }>): void {
    const [outer, last] = this.own(holder)
    const container = outer?.[last] as Container | undefined // the caller found an object there
    if (container === undefined) return
    const members = Object.entries(container)
    const taken = new Set(members.map(([key]) => key))
    for (const key of taken) delete container[key]
    for (const [key, value] of members) {
      const name = names.get(key)
      const isFree = name !== undefined && !taken.has(name.to)
      container[isFree ? name.to : key] = value
      if (!isFree) continue
      taken.add(name.to)
      const { to, type, msg } = name
      this.push({ op: 'move', path: [...holder, to], from: [...holder, key], type, msg })
    }
  }

  replaceAll(document: Record<string, unknown>, type: string, msg: string): void {
    this.root.document = document
    this.isOwn = true
    this.push({ op: 'replace', path: [], type, msg })
  }

  /** Says why the value at a place is as it is. */
  note(path: Loc, type: string, msg: string): void {
    this.push({ op: 'replace', path, after: this.at(path), type, msg })
  }

  /** A copy that shares nothing: a value at two places is edited at one of them. */
  copyOf(value: unknown): unknown {
    if (typeof value !== 'object' || value === null) return value
    const members = Object.entries(value).map(([key, each]) => [key, this.copyOf(each)] as const)
    const copy = Array.isArray(value) ? members.map(([, each]) => each) : Object.fromEntries(members)
    this.numbers.copied(value, copy)
    return copy
  }

  private push(edit: Edit): void {
    for (const key of [...edit.path, edit.msg]) this.editCharacters += String(key).length
    if (typeof edit.after === 'object') this.editCharacters += JSON.stringify(edit.after).length
    this.edits.push(edit)
  }

  /** The object or list that holds a place, and the key of the place in it. */
  private own(path: Loc): [container: Container | undefined, key: string | number] {
    this.open()
    const whole = ['document', ...path]
    const container = valueAt(this.root, whole.slice(0, -1))
    return [
      typeof container === 'object' && container !== null ? (container as Container) : undefined,
      whole.at(-1) ?? '',
    ]
  }
}
