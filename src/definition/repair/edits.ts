import type { Loc } from '../check/findings.js'
import type { NumberTexts } from './numbers.js'
import { valueAt } from './pointers.js'

/** One change that a repair makes. */
export interface Edit {
  /** `move` renames a key and keeps its position. */
  op: 'add' | 'replace' | 'remove' | 'move'
  /** The path from the root after all earlier edits; empty for the whole definition. */
  path: Loc
  /** The old path of a `move`. */
  from?: Loc
  /** The values before and after the edit, if they exist. A `move` and a converted definition have neither. */
  before?: unknown
  after?: unknown
  /** The kind of edit, for programs. */
  type: string
  /** The reason, for people. */
  msg: string
}

type Container = Record<string | number, unknown>

/** A definition during a repair. The given one is never changed: the first edit makes a copy. */
export class EditedDocument {
  readonly edits: Edit[] = []
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

  /** Makes the copy. Call it before you read values to edit. */
  open(): void {
    if (!this.isOwn) this.root.document = this.copyOf(this.given)
    this.isOwn = true
  }

  /** Returns the value at `path`, or undefined. */
  at(path: Loc): unknown {
    return valueAt(this.value, path)
  }

  /** Sets the value at `path`. Its container must exist. The length of a list as the key appends. */
  set(path: Loc, after: unknown, type: string, msg: string): void {
    const [container, key] = this.own(path)
    if (container === undefined) return
    const before = Object.hasOwn(container, key) ? container[key] : undefined
    container[key] = after
    if (before === undefined) this.push({ op: 'add', path, after, type, msg })
    else this.push({ op: 'replace', path, before, after, type, msg })
  }

  /** Removes the value at `path`. Remove the items of a list from its end, so that other indexes stay valid. */
  remove(path: Loc, type: string, msg: string): void {
    const [container, key] = this.own(path)
    const before = container?.[key]
    if (container === undefined || before === undefined) return
    if (Array.isArray(container)) container.splice(Number(key), 1)
    else delete container[key]
    this.push({ op: 'remove', path, before, type, msg })
  }

  /** Renames keys of the object at `holder`, all at once. A name that is already in use is skipped. */
  rename(holder: Loc, names: ReadonlyMap<string, { to: string; type: string; msg: string }>): void {
    const [outer, last] = this.own(holder)
    const container = outer?.[last] as Container | undefined // the caller has checked that it is an object
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

  /** Records an edit that explains a value without changing it. */
  note(path: Loc, type: string, msg: string): void {
    this.push({ op: 'replace', path, after: this.at(path), type, msg })
  }

  /** Returns a deep copy without shared parts: an edit of one place must not change another. */
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

  /** Makes the copy, and returns the container of a path and the last key. */
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
