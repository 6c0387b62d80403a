import { createHash } from 'node:crypto'

const COMPARED_CHARACTERS = 1024

/** One placeholder of a path. */
export interface Placeholder {
  readonly name: string
  /** The names under which it may be declared, as they are compared. */
  readonly accepted: readonly string[]
}

/** A path's placeholders, in order, each name once. */
export class PathTemplate {
  readonly placeholders: readonly Placeholder[]
  private readonly accepted: ReadonlySet<string>

  constructor(names: ReadonlySet<string>) {
    this.placeholders = Array.from(names, name => ({ name, accepted: declaredNames(name).map(comparedText) }))
    this.accepted = new Set(this.placeholders.flatMap(each => each.accepted))
  }

  /** True if a path parameter of this name, as it is compared, has a placeholder. */
  accepts(compared: string): boolean {
    return this.accepted.has(compared)
  }
}

const NO_PLACEHOLDERS = new PathTemplate(new Set())

/**
 * Reads the placeholders of a path such as `/tickets/{id}`. Braces must pair, may not nest and may not be empty; anything
 * else between them is a name, never a pattern and never a format. Stops after `limit` placeholders.
 */
export function readTemplate(path: string, limit: number): PathTemplate | 'invalid' | 'too-many' {
  if (!/[{}]/.test(path)) return NO_PLACEHOLDERS
  const names = new Set<string>()
  let at = 0
  for (let count = 0; ; count++) {
    const open = path.indexOf('{', at)
    const close = path.indexOf('}', at)
    if (open === -1 && close === -1) return new PathTemplate(names)
    if (open === -1 || close < open) return 'invalid'
    const name = path.slice(open + 1, close)
    if (name === '' || name.includes('{')) return 'invalid'
    if (count >= limit) return 'too-many'
    names.add(name)
    at = close + 1
  }
}

/**
 * The names under which a placeholder may be declared: as written, and without the operators of RFC 6570 and API gateways:
 * `{+name}`, `{name*}`, `{name+}`.
 */
function declaredNames(placeholder: string): string[] {
  if (!/^\+|[*+]$/.test(placeholder)) return [placeholder]
  const bare = placeholder.replace(/^\+/, '').replace(/[*+]$/, '')
  return bare === placeholder ? [placeholder] : [placeholder, bare]
}

/** What stands for a text where thousands are compared: itself, or the hash of one that is long. Made once for each. */
export function comparedText(text: string): string {
  return text.length > COMPARED_CHARACTERS ? createHash('sha256').update(text).digest('hex') : text
}
